package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"github.com/pressly/goose/v3"

	"flashsale/migrations"
)

// migrateWaitSeconds is how long an instance waits for the migration lock of a MySQL server.
const migrateWaitSeconds = 30

// Migration is one numbered step of the schema.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// MigrateUp brings the schema up to date. On MySQL, instances take turns. MigrateUp, MigrateDown and MigrateStatus return an
// error if their turn does not come within migrateWaitSeconds, or if notOthers finds a table of another program.
func (s *Store) MigrateUp(ctx context.Context) error {
	return s.migrate(ctx, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// MigrateDown reverses the last applied step, which may delete data. If no step is applied, it does nothing.
func (s *Store) MigrateDown(ctx context.Context) error {
	return s.migrate(ctx, func(p *goose.Provider) error {
		if _, err := p.Down(ctx); !errors.Is(err, goose.ErrNoNextVersion) {
			return err
		}
		return nil
	})
}

// MigrateStatus lists the steps of this program in their order, applied or not.
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

// CheckSchema returns an error, which says what to do, if the schema is older than that of this program.
func (s *Store) CheckSchema(ctx context.Context) error {
	applied, newest, err := s.schema(ctx)
	if err == nil && applied < newest {
		err = fmt.Errorf("--database: the schema is at step %d of %d; start an instance first, or run flashsale migrate up", applied, newest)
	}
	return err
}

func (s *Store) migrate(ctx context.Context, run func(*goose.Provider) error) (err error) {
	db, dialect := s.writers, goose.DialectSQLite3
	if !s.sqlite {
		// Of several servers, all instances try the same one first, since a server knows only its own locks.
		connector, err := servers{s.mysql.config, slices.Sorted(slices.Values(s.mysql.hosts))}.connector()
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		// This pool sets no time limits for statements, because a step may take long.
		db, dialect = s.open(repeatable{connector}), goose.DialectMySQL
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	files, err := fs.Sub(migrations.FS, s.dialect("mysql", "sqlite"))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	begin := func() error {
		if err := s.notOthers(ctx, files); err != nil {
			return err
		}
		return run(provider)
	}
	if s.sqlite {
		return begin()
	}
	return underLock(ctx, db, begin)
}

var createsTable = regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)

// notOthers returns an error if the database has a table with a name from the first step, but not the table in which goose counts
// the steps. Goose makes that table first, so the other one belongs to another program.
func (s *Store) notOthers(ctx context.Context, files fs.FS) error {
	there, err := s.tables(ctx)
	if err != nil || slices.Contains(there, goose.DefaultTablename) {
		return err
	}
	first, err := fs.ReadFile(files, "00001_engine.sql")
	if err != nil {
		return err
	}
	for _, table := range createsTable.FindAllStringSubmatch(string(first), -1) {
		if slices.Contains(there, table[1]) {
			return fmt.Errorf("--database: it has a table %s of another program: want a database of its own", table[1])
		}
	}
	return nil
}

func (s *Store) tables(ctx context.Context) (names []string, err error) {
	return column[string](s.read.WithContext(ctx), "list the tables", s.dialect(
		"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME",
		"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"))
}

// repeatable makes connections for steps that may have been begun before.
type repeatable struct{ driver.Connector }

// Connect is part of driver.Connector.
func (r repeatable) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return repeatableConn{made.(conn)}, nil
}

type repeatableConn struct{ conn }

// doneBefore are the numbers of errors that say that what a statement makes is there already, or that what it removes is gone.
var doneBefore = []int{1050, 1051, 1060, 1061, 1091}

// ExecContext is part of driver.ExecerContext. It passes over the errors of doneBefore.
func (c repeatableConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	done, err := c.conn.ExecContext(ctx, query, args)
	if mysql, _ := codes(err); slices.Contains(doneBefore, mysql) {
		return driver.ResultNoRows, nil
	}
	return done, err
}

// underLock runs fn while it holds a named lock of the MySQL server. If the connection breaks, the server releases the lock.
func underLock(ctx context.Context, db *sql.DB, fn func() error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('flashsale_migrate_', DATABASE()), ?)", migrateWaitSeconds).Scan(&got)
	switch {
	case err != nil:
		return fmt.Errorf("migrate: %w", err)
	case got.Int64 != 1:
		return errors.New("migrate: another instance holds the migration lock")
	}
	err = fn()
	_, errUnlock := conn.ExecContext(ctx, "SELECT RELEASE_LOCK(CONCAT('flashsale_migrate_', DATABASE()))")
	return errors.Join(err, errUnlock)
}
