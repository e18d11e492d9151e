// Package repository stores sales, stock, orders and payments in MySQL or SQLite, and is the source of truth for them. On MySQL,
// transactions that write run at READ COMMITTED. WriteStock overwrites a stock row without a check, to demonstrate lost updates.
package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	gosqlite "github.com/glebarez/go-sqlite"
	"github.com/glebarez/sqlite"
	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"flashsale/internal/batch"
	"flashsale/internal/observe"
	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	dialTimeout = 3 * time.Second // for connecting to a server
	// ioTimeout bounds each read from a MySQL server and each write to it, except in migrations. It is longer than the next two,
	// so that the server usually ends a slow statement first.
	ioTimeout        = 10 * time.Second
	statementSeconds = 5 // for a SELECT on MySQL and a statement on MariaDB, except in migrations
	lockWaitSeconds  = 3 // for a wait for a row lock on MySQL, except in migrations
	// idleSeconds is how long a transaction outside migrations may be idle between two statements before MariaDB ends it.
	// Otherwise the row locks of an instance that hangs would block the others.
	idleSeconds   = 4
	connLifetime  = 10 * time.Minute // limits the age of a connection, so that a pool follows a failover behind one address
	sqliteReaders = 4                // connections that read beside the single writer that SQLite allows
	// transactionTries bounds the tries of a transaction that fails because of others, for example by a deadlock. clusterTries is
	// for a Galera cluster, where a transaction of another node that changes the same row and commits first ends this one.
	transactionTries, clusterTries = 8, 20
	// The pause before a repeat is a random time below a limit, so that transactions that collided seldom collide again. The
	// limit is retryPause before the first repeat, and doubles with each repeat up to 32 times retryPause.
	retryPause = 2 * time.Millisecond
)

// Store is the database. Its methods are safe for concurrent use.
type Store struct {
	write   *gorm.DB // SQLite: one connection, for writes. MySQL: the pool
	read    *gorm.DB // SQLite: connections that only read. MySQL: the same pool
	writers *sql.DB  // the pool of write
	readers *sql.DB  // the pool of read
	sqlite  bool
	hosts   *hosts                         // nil: the address does not name several servers
	galera  bool                           // the server is a node of a Galera cluster
	lock    chan struct{}                  // held in repeat; nil: no lock, see Exclusive
	mysql   *servers                       // MySQL: the servers, without limits on a statement's time, for migrations
	open    func(driver.Connector) *sql.DB // MySQL: makes a pool

	observe   observe.All
	lookUps   *batch.Batcher[model.Attempt, *model.Order] // the calls of Order, in batches
	lined     *batch.Batcher[string, bool]                // the calls of InLine, in batches
	campaigns *sync.Map                                   // by sale, see campaignsOf
	terms     *sync.Map                                   // by sale, see knownTerms
}

// Open connects to `sqlite:PATH` or `mysql://user:pass@host:port/db`. maxConns bounds the pool of MySQL. Open creates the folder
// of an SQLite file, but no tables. An address of MySQL may name several servers, as host:port,host:port, of which the store uses
// one that takes writes, see hosts. An address of MySQL may have parameters:
//   - tls=true encrypts connections and checks the server's certificate. tls=skip-verify encrypts without the check.
//     tls=preferred encrypts without the check, and only if the server can.
//   - tls-ca is a file with the authorities that may have signed the server's certificate, instead of the machine's. It implies
//     tls=true, and excludes the other two values of tls.
//   - tls-cert and tls-key are files with the certificate of this client and its key. They imply tls=true if tls is not given.
//   - socket is the path of the server's socket, instead of a host. It excludes the other parameters.
func Open(ctx context.Context, address string, maxConns int) (*Store, error) {
	return OpenBy(ctx, address, maxConns, sql.OpenDB)
}

// OpenBy is Open, but the function "open" makes the store's connection pools, so that a caller can observe the statements.
func OpenBy(ctx context.Context, address string, maxConns int, open func(driver.Connector) *sql.DB) (s *Store, err error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		s, err = openSQLite(ctx, path, open)
	} else {
		s, err = openMySQL(ctx, address, maxConns, open)
	}
	if err != nil {
		return nil, err
	}
	s.lookUps, s.lined = batch.New(lookUpLimits, s.lookUp), batch.New(lookUpLimits, s.areInLine)
	s.campaigns, s.terms = &sync.Map{}, &sync.Map{}
	return s, nil
}

// sqliteConnector makes connections with the registered driver of SQLite, which provides no driver.Connector.
type sqliteConnector struct {
	driver driver.Driver
	dsn    string
}

func (c sqliteConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }

func (c sqliteConnector) Driver() driver.Driver { return c.driver }

func openSQLite(ctx context.Context, path string, open func(driver.Connector) *sql.DB) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of the database: %w", err)
	}
	// synchronous=FULL: a confirmed order must survive a power cut, not only a crash of the process.
	dsn := path + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	named, err := sql.Open(sqlite.DriverName, dsn) // only to get its driver
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = named.Close() }()
	pool := func(dsn string) *sql.DB { return open(sqliteConnector{named.Driver(), dsn}) }
	s := &Store{writers: pool(dsn), readers: pool(dsn + "&_pragma=query_only(1)"), sqlite: true}
	if s.write, err = overPool(ctx, sqlite.Dialector{Conn: s.writers}, s.writers, 1); err == nil {
		s.read, err = overPool(ctx, sqlite.Dialector{Conn: s.readers}, s.readers, sqliteReaders)
	}
	if err != nil {
		return nil, errors.Join(err, s.readers.Close(), s.writers.Close())
	}
	return s, nil
}

// overPool returns GORM over the pool that the dialector uses, and limits the pool to "conns" connections.
func overPool(ctx context.Context, dialector gorm.Dialector, pool *sql.DB, conns int) (*gorm.DB, error) {
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxLifetime(connLifetime)
	db, err := gorm.Open(outages{dialector}, &gorm.Config{
		TranslateError:         true,
		SkipDefaultTransaction: true,
		Logger:                 logger.Discard, // errors are returned
	})
	if err == nil { // GORM translates the errors of statements, but not those of Rows
		err = db.Callback().Row().After("gorm:row").Register("outages", func(db *gorm.DB) {
			if db.Error != nil {
				db.Error = outages{dialector}.Translate(db.Error)
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, wrap("reach the database", pool.PingContext(ctx))
}

// outages is a dialect that wraps an error in model.ErrUnavailable if the error may be temporary, see outage.
type outages struct{ gorm.Dialector }

// Translate is part of gorm.ErrorTranslator.
func (o outages) Translate(err error) error {
	if translator, ok := o.Dialector.(gorm.ErrorTranslator); ok {
		err = translator.Translate(err)
	}
	if !outage(err) || errors.Is(err, model.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
}

// Explain leaves out the values: gorm calls Explain for each Scan, although the logger discards the result.
func (outages) Explain(query string, _ ...any) string { return query }

func outage(err error) bool {
	if mysql, sqlite := codes(err); mysql != 0 || sqlite != 0 {
		return !broken(err) && sqlite&0xff != 9 // SQLITE_INTERRUPT: the caller's context ended
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysqldriver.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Exclusive returns a Store whose writing transactions of several statements hold "lock", a channel of capacity 1.
func (s *Store) Exclusive(lock chan struct{}) *Store {
	locked := *s
	locked.lock = lock
	return &locked
}

// Observed returns a Store of the same database whose steps are reported to these observers.
func (s *Store) Observed(observers ...observe.Observer) *Store {
	observed := *s
	observed.observe = observers
	return &observed
}

// Close cancels look-ups that take longer than closeGrace, and closes the pools. No method may be called after it.
//
// Close also moves SQLite's log into the database's file, which takes up to logGrace while connections are in use: if the
// context of a transaction has ended, database/sql rolls it back in a goroutine of its own, which nothing waits for. The last
// connection would move the log as well, but not if two are closed at once, or if its last statement was interrupted. If Close
// fails to move it, the next start does.
//
//nolint:contextcheck,nolintlint // a store is closed after the contexts of its users have ended
func (s *Store) Close() error {
	s.lookUps.Close(closeGrace)
	s.lined.Close(closeGrace)
	err := s.readers.Close()
	if s.sqlite {
		waiting, cancel := context.WithTimeout(context.Background(), logGrace)
		defer cancel()
		_, _ = s.writers.ExecContext(waiting, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	return errors.Join(err, s.writers.Close())
}

// Pools returns the connection pools by their use: "all" on MySQL, "write" and "read" on SQLite.
func (s *Store) Pools() map[string]*sql.DB {
	if s.sqlite {
		return map[string]*sql.DB{"write": s.writers, "read": s.readers}
	}
	return map[string]*sql.DB{"all": s.writers}
}

// errReadOnly means that the database accepts no writes, for example because it is a replica.
var errReadOnly = fmt.Errorf("%w: the database is read-only", model.ErrUnavailable)

// Ping checks that the database answers and, on MySQL, that it accepts writes. If it accepts none, Ping closes the idle
// connections and returns an error that wraps model.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	if s.sqlite {
		return s.readers.PingContext(ctx)
	}
	is, err := cell[string](s.read.WithContext(ctx), "ping", readOnly)
	if err == nil && !slices.Contains(writable, is) {
		s.renew()
		return errReadOnly
	}
	return err
}

// renew closes the idle connections, which may lead to a server that is no longer the primary.
func (s *Store) renew() {
	s.writers.SetMaxIdleConns(0)
	s.writers.SetMaxIdleConns(s.writers.Stats().MaxOpenConnections)
}

// nowMillis returns an SQL expression for the database's clock, in milliseconds since 1970.
func (s *Store) nowMillis() string {
	return s.dialect("CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)", "CAST(unixepoch('subsec') * 1000 AS INTEGER)")
}

// dialect returns the text for this kind of database.
func (s *Store) dialect(mysql, sqlite string) string {
	if s.sqlite {
		return sqlite
	}
	return mysql
}

// Now reads the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.nowOn(s.read.WithContext(ctx)) }

func (s *Store) nowOn(db *gorm.DB) (time.Time, error) {
	now, _, err := one(scan(db, "read the database's clock", func(now *time.Time) []any { return []any{millis(now)} }, "SELECT "+s.nowMillis()))
	return now, err
}

// forUpdate returns the SQL that locks the rows of a SELECT. SQLite has one writer at a time, and no row locks.
func (s *Store) forUpdate() string { return s.dialect(" FOR UPDATE", "") }

func (s *Store) skipLocked() string { return s.dialect(" FOR UPDATE SKIP LOCKED", "") }

func (s *Store) insertIgnore() string { return s.dialect("INSERT IGNORE", "INSERT OR IGNORE") }

// transact runs fn in one transaction. It repeats the transaction if another one may have been in the way, see passing, or if the
// driver gives up the connection. If the last try fails so, the error wraps model.ErrUnavailable. If the commit fails with
// another error, the transaction may have been committed.
func (s *Store) transact(ctx context.Context, fn func(tx *gorm.DB) error) error {
	return s.repeat(ctx, func() error { return s.write.WithContext(ctx).Transaction(fn) })
}

func (s *Store) repeat(ctx context.Context, transaction func() error) (err error) {
	if s.lock != nil {
		select {
		case s.lock <- struct{}{}:
			defer func() { <-s.lock }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tries := transactionTries
	if s.galera {
		tries = clusterTries
	}
	for try := range tries {
		err = transaction()
		switch {
		case errors.Is(err, driver.ErrBadConn): // nothing was committed
			s.renew()
		case err == nil || !passing(err):
			return err
		}
		if !pause.For(ctx, rand.N(retryPause<<min(try, 5))) { //nolint:gosec // no secret
			return ctx.Err()
		}
	}
	return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
}

// errTakenBack rolls back a transaction that must change nothing.
var errTakenBack = errors.New("taken back")

// decide is transact for an fn that returns a verdict; a refusal rolls back. If fn fails with errRefusing, decide waits until the
// leases of refusals are over, and runs fn again.
func (s *Store) decide(ctx context.Context, fn func(tx *gorm.DB) (model.Verdict, error)) (verdict model.Verdict, err error) {
	for {
		err = s.transact(ctx, func(tx *gorm.DB) (err error) {
			if verdict, err = fn(tx); err == nil && verdict != model.Accepted {
				err = errTakenBack
			}
			return err
		})
		if err == nil || errors.Is(err, errTakenBack) {
			return verdict, nil
		}
		refusing, err := s.announceReturn(ctx, err)
		if err == nil && !pause.For(ctx, refusing) {
			err = ctx.Err()
		}
		if err != nil {
			return verdict, err
		}
	}
}

// oneInstant are the options of a transaction whose reads all see what the first one sees. SQLite ignores the level.
var oneInstant = &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}

// codes returns the number of an error of MySQL, or the extended code of an error of SQLite. Both are 0 for any other error.
func codes(err error) (mysql, sqlite int) {
	if e, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return int(e.Number), 0
	}
	if e, ok := errors.AsType[*gosqlite.Error](err); ok {
		return 0, e.Code()
	}
	return 0, 0
}

// passing reports whether another transaction, or a kill, may have caused the error, so that a repeat may succeed.
func passing(err error) bool {
	mysql, sqlite := codes(err)
	return errors.Is(err, gorm.ErrDuplicatedKey) || // if another writer has inserted the row, the repeat finds it
		slices.Contains([]int{1213, 1205, 1020, 1317}, mysql) || // deadlock, lock wait, changed since read, interrupted
		sqlite&0xff == 5 // SQLITE_BUSY
}

// broken reports whether a statement failed because of its text or the data, for example a violated constraint.
func broken(err error) bool {
	mysql, sqlite := codes(err)
	return errors.Is(err, gorm.ErrDuplicatedKey) || errors.Is(err, gorm.ErrCheckConstraintViolated) ||
		// null, no such column, syntax, no such table, range, no default, value, length, checks
		slices.Contains([]int{1048, 1054, 1064, 1146, 1264, 1364, 1366, 1406, 3819, 4025}, mysql) ||
		sqlite&0xff == 19 || sqlite&0xff == 1 // SQLITE_CONSTRAINT, SQLITE_ERROR
}

// violated reports whether a statement failed because of a CHECK constraint.
func violated(err error) bool {
	mysql, sqlite := codes(err)
	return mysql == 3819 || mysql == 4025 || sqlite == 275 // of MySQL, of MariaDB, SQLITE_CONSTRAINT_CHECK
}

// wrap adds the name of the failed operation to err, unless err is nil.
func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}
