package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
)

// hooks are functions that a test runs in the middle of a transaction of its store.
type hooks struct {
	begins, looksForCalls, stockMoved atomic.Pointer[func()]
	fails                             atomic.Pointer[func(statement string) error]
}

// between runs fn once, just before this store's next writing transaction. Deduct has read the sale by then.
func (d *testDB) between(fn func()) { d.hooks.begins.Store(&fn) }

// beforeCallsAreLocked runs fn once, just before a buyer's call is looked for and locked. The sale has been read by then.
func (d *testDB) beforeCallsAreLocked(fn func()) { d.hooks.looksForCalls.Store(&fn) }

// breaksOff makes each statement that changes something fail as fn says, before it reaches the database. nil: none fails.
func (d *testDB) breaksOff(fn func(statement string) error) {
	if fn == nil {
		d.hooks.fails.Store(nil)
		return
	}
	d.hooks.fails.Store(&fn)
}

// afterStockMoves runs fn once, after a statement has changed a stock row and before the commit.
func (d *testDB) afterStockMoves(fn func()) { d.hooks.stockMoved.Store(&fn) }

func (h *hooks) open(connector driver.Connector) *sql.DB {
	return sql.OpenDB(hookedConnector{connector, h})
}

func run(hook *atomic.Pointer[func()]) {
	if fn := hook.Swap(nil); fn != nil {
		(*fn)()
	}
}

type hookedConnector struct {
	driver.Connector
	hooks *hooks
}

func (c hookedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hookedConn{conn.(connection), c.hooks}, nil
}

// connection is what the drivers of both databases can do, and GORM needs.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
}

type hookedConn struct {
	connection
	hooks *hooks
}

// ResetSession, IsValid and CheckNamedValue are for MySQL's driver. SQLite's has none of them.
func (c hookedConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.connection.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

// IsValid is part of driver.Validator.
func (c hookedConn) IsValid() bool {
	validator, ok := c.connection.(driver.Validator)
	return !ok || validator.IsValid()
}

// CheckNamedValue is part of driver.NamedValueChecker.
func (c hookedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.connection.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c hookedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if !opts.ReadOnly {
		run(&c.hooks.begins)
	}
	return c.connection.BeginTx(ctx, opts)
}

func (c hookedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.HasPrefix(query, "START TRANSACTION") {
		run(&c.hooks.begins)
	}
	if strings.Contains(query, "FROM calls WHERE sale_id = ? AND user_id IN") {
		run(&c.hooks.looksForCalls)
	}
	return c.connection.QueryContext(ctx, query, args)
}

func (c hookedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if fails := c.hooks.fails.Load(); fails != nil {
		if err := (*fails)(fmt.Sprint(query, args)); err != nil {
			return nil, err
		}
	}
	res, err := c.connection.ExecContext(ctx, query, args)
	if err == nil && strings.Contains(query, "UPDATE stock SET ") && !strings.HasSuffix(query, "COMMIT") {
		run(&c.hooks.stockMoved)
	}
	return res, err
}
