package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
)

// statement is a statement of SQL with its arguments.
type statement struct {
	query string
	args  []any
}

// calls puts statements together into as few calls of the database as possible, and leaves out empty ones. On MySQL, where a call
// takes a round trip, this is one call; if a statement fails, those behind it are not executed. On SQLite, each statement is a
// call. This is also so on a Galera cluster: if a transaction of another node aborts this one between two statements of a call,
// MariaDB 10.11 still confirms a COMMIT in that call (see TestGalera).
func (s *Store) calls(list ...statement) []statement {
	list = slices.DeleteFunc(list, func(st statement) bool { return st.query == "" })
	if s.sqlite || s.galera || len(list) < 2 {
		return list
	}
	queries, args := make([]string, len(list)), []any(nil)
	for i, st := range list {
		queries[i], args = st.query, append(args, st.args...)
	}
	return []statement{{strings.Join(queries, "; "), args}}
}

func do(query string, args ...any) statement { return statement{query, args} }

// run executes statements, in as few calls as possible.
func (s *Store) run(tx *gorm.DB, list ...statement) error {
	_, err := s.execute(tx, list...)
	return err
}

// execute executes statements, in as few calls as possible, and returns the number of rows that the last one changed. It
// bypasses GORM, which would inspect each argument by reflection.
func (s *Store) execute(tx *gorm.DB, list ...statement) (changed int64, err error) {
	for _, st := range s.calls(list...) {
		res, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, st.query, st.args...)
		if err != nil {
			return 0, outages{tx.Dialector}.Translate(err)
		}
		if changed, err = res.RowsAffected(); err != nil {
			return 0, err
		}
	}
	return changed, nil
}

// sqliteParameters is the most parameters in a statement of inserting on SQLite, whose driver searches all of them for each one.
const sqliteParameters = 256

// inserting returns the statements, on MySQL at most one, that insert rows. "into" is the table with its columns in brackets,
// "row" the SQL of one row, "values" the arguments of all rows, and "onConflict" the SQL after the rows.
func (s *Store) inserting(into, row string, values []any, onConflict string) (list []statement) {
	most, columns := max(1, len(values)), strings.Count(row, "?")
	if s.sqlite {
		most = sqliteParameters / columns * columns
	}
	for chunk := range slices.Chunk(values, most) {
		rows := strings.Repeat(", "+row, len(chunk)/columns)[len(", "):]
		list = append(list, statement{"INSERT INTO " + into + " VALUES " + rows + onConflict, chunk})
	}
	return list
}

// places returns the SQL of a list of n arguments; n is at least 1.
func places(n int) string { return "(" + strings.Repeat(", ?", n)[len(", "):] + ")" }

// begin and commit are the first and the last statement of a transaction of transactInCalls; on SQLite they are empty.
func (s *Store) begin() statement { return statement{query: s.dialect("START TRANSACTION", "")} }

func (s *Store) commit() statement { return statement{query: s.dialect("COMMIT", "")} }

// transactInCalls is transact for a function that itself executes begin first and commit last, so that these can share calls.
func (s *Store) transactInCalls(ctx context.Context, fn func(tx *gorm.DB) error) error {
	if s.sqlite {
		return s.transact(ctx, fn)
	}
	return s.repeat(ctx, func() error {
		conn, err := s.writers.Conn(ctx)
		if err != nil {
			return outages{s.write.Dialector}.Translate(err)
		}
		committed := false
		defer func() {
			if !committed {
				rollBack(ctx, conn)
			}
			_ = conn.Close() // returns the connection to the pool
		}()
		tx := s.write.WithContext(ctx)
		tx.Statement.ConnPool = conn
		err = fn(tx)
		committed = err == nil
		return err
	})
}

// endTimeout bounds a statement that kills another statement or rolls back a transaction.
const endTimeout = time.Second

// rollBack rolls back a transaction. If the server does not confirm this, the connection is closed, which also rolls back.
func rollBack(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool closes it
	}
}

// statements tells kill on which connection a transaction on MySQL runs.
type statements struct {
	mu         sync.Mutex
	connection int64 // the server's id of the connection; 0 until it is known, and after the transaction
}

// on sets the connection. It waits for a kill under way, which could otherwise hit the connection's next transaction.
func (r *statements) on(connection int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connection = connection
}

// kill ends the statement that a transaction is executing, if its connection is known. When a context ends, the driver only
// closes its end of the connection, and a statement that waits for a lock would go on waiting. If the pool uses another server by
// now, kill may end another statement there.
func (s *Store) kill(ctx context.Context, r *statements) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connection == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = s.write.WithContext(ctx).Exec("KILL QUERY ?", r.connection).Error // the connection may have been lost
}
