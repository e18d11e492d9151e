package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pressly/goose/v3"

	"flashsale/migrations"
)

// migrateWaitSeconds is how long one instance waits while another one migrates.
const migrateWaitSeconds = 30

// Migration is one numbered step of the schema.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// MigrateUp brings the schema up to date. Instances that start together take turns.
func (s *Store) MigrateUp(ctx context.Context) error {
	return s.migrate(ctx, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// MigrateDown reverts the last applied step and deletes the data of that step. If no step is applied, it does nothing.
func (s *Store) MigrateDown(ctx context.Context) error {
	return s.migrate(ctx, func(p *goose.Provider) error {
		_, err := p.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		}
		return err
	})
}

// MigrateStatus lists the steps in their order.
func (s *Store) MigrateStatus(ctx context.Context) ([]Migration, error) {
	var list []Migration
	err := s.migrate(ctx, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		for _, m := range status {
			list = append(list, Migration{Version: m.Source.Version, Name: m.Source.Path, Applied: m.State == goose.StateApplied})
		}
		return err
	})
	return list, err
}

// CheckSchema returns an error that says what to do if the database lacks tables, or steps of the schema, of this program.
func (s *Store) CheckSchema(ctx context.Context) error {
	applied, newest, err := s.schema(ctx)
	if err == nil && applied < newest {
		err = fmt.Errorf("--database: the schema is at step %d of %d; start an instance first, or run flashsale migrate up", applied, newest)
	}
	return err
}

func (s *Store) migrate(ctx context.Context, run func(*goose.Provider) error) (err error) {
	dialect, folder := goose.DialectMySQL, "mysql"
	if s.sqlite {
		dialect, folder = goose.DialectSQLite3, "sqlite"
	}
	db, done, err := s.migrationPool()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, done()) }()
	files, err := fs.Sub(migrations.FS, folder)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if s.sqlite {
		return run(provider)
	}
	return underLock(ctx, db, func() error { return run(provider) })
}

// migrationPool returns a pool whose statements have no time limit, because a step may take long on a large table. A step
// is sent in one piece. The caller must call done at the end.
func (s *Store) migrationPool() (db *sql.DB, done func() error, err error) {
	if s.sqlite {
		db, err = s.write.DB()
		return db, func() error { return nil }, err
	}
	// Of several servers all instances take the same one, since a server knows only its own locks.
	connector, err := servers{s.mysql.config, slices.Sorted(slices.Values(s.mysql.hosts))}.connector()
	if err != nil {
		return nil, nil, err
	}
	db = sql.OpenDB(connector)
	return db, db.Close, nil
}

// underLock runs fn while it holds a named lock of the MySQL server. If the connection breaks, the server releases the
// lock.
func underLock(ctx context.Context, db *sql.DB, fn func() error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('flashsale_migrate_', DATABASE()), ?)", migrateWaitSeconds).Scan(&got); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if got.Int64 != 1 {
		return errors.New("migrate: another instance holds the migration lock")
	}
	defer func() {
		_, unlockErr := conn.ExecContext(ctx, "SELECT RELEASE_LOCK(CONCAT('flashsale_migrate_', DATABASE()))")
		err = errors.Join(err, unlockErr)
	}()
	return fn()
}
