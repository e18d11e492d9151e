package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// refusesToOpen checks that an address is refused, and that the error hides the password hunter2.
func refusesToOpen(t *testing.T, name, address string) {
	t.Helper()
	store, err := Open(t.Context(), address, suiteConns)
	if err == nil {
		t.Errorf("%s: the database was opened: %v", name, store.Close())
		return
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%s: the error shows the password: %v", name, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	unused := listener.Addr().String()
	check.NoError(t, listener.Close())
	file := filepath.Join(t.TempDir(), "file")
	openDB(t, "sqlite:"+file)
	for name, address := range map[string]string{
		"no address":            "",
		"no scheme":             "127.0.0.1:3306/shop",
		"another scheme":        "postgres://u:hunter2@127.0.0.1/shop",
		"no database":           "mysql://u:hunter2@127.0.0.1:3306/",
		"no host":               "mysql:///shop",
		"an invalid URL":        "mysql://u:hunter2@host:port:port/%zz",
		"an unused port":        "mysql://u:hunter2@" + unused + "/shop",
		"a file for the folder": "sqlite:" + filepath.Join(file, "shop.db"),
	} {
		refusesToOpen(t, name, address)
	}
}

func TestOpenWithPasswords(t *testing.T) {
	t.Parallel()
	d := openStore(t, mariaDB(t), suiteConns)
	const odd = "p@ss/w:ord?a=b#%41 ü"
	d.exec(t, "SET PASSWORD = PASSWORD(?)", odd)
	u, err := url.Parse(d.address)
	check.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), odd)
	check.NoError(t, openStore(t, u.String(), suiteConns).Ping(t.Context()))
	u.User = url.UserPassword(u.User.Username(), "hunter2")
	refusesToOpen(t, "a wrong password", u.String())
}

// takeConns takes n connections of a pool at once.
func takeConns(t *testing.T, db *gorm.DB, n int) []*sql.Conn {
	t.Helper()
	pool, err := db.DB()
	check.NoError(t, err)
	conns := make([]*sql.Conn, n)
	for i := range conns {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conns[i], err = pool.Conn(ctx)
		check.NoError(t, err)
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return conns
}

// wantAnswers checks the answers to queries on each connection.
func wantAnswers(t *testing.T, conns []*sql.Conn, answers map[string]string) {
	t.Helper()
	for i, conn := range conns {
		for query, want := range answers {
			var got string
			check.NoError(t, conn.QueryRowContext(t.Context(), query).Scan(&got))
			check.Same(t, fmt.Sprintf("%s on connection %d", query, i), got, want)
		}
	}
}

// Every connection of the pool has the settings.
func TestMariaDBSessions(t *testing.T) {
	t.Parallel()
	const conns = 5
	wantAnswers(t, takeConns(t, openStore(t, mariaDB(t), conns).write, conns), map[string]string{
		"SELECT @@session.tx_isolation":             "READ-COMMITTED",
		"SELECT @@session.innodb_lock_wait_timeout": fmt.Sprint(lockWaitSeconds),
		"SELECT @@session.max_statement_time":       fmt.Sprint(statementSeconds),
		"SELECT @@session.sql_mode":                 "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
		"SELECT @@session.character_set_client":     "utf8mb4",
		"SELECT @@session.autocommit":               "1",
		"SELECT @@session.check_constraint_checks":  "1",
	})
}

// Whatever a server's defaults say, a session has the variables that the statements were written for.
func TestHole75_SessionVariables(t *testing.T) {
	t.Parallel()
	odd := map[string]string{
		"autocommit": "0", "completion_type": "'CHAIN'", "sql_mode": "'ANSI_QUOTES,PIPES_AS_CONCAT'", "sql_safe_updates": "1", "sql_select_limit": "1",
		"max_join_size": "1", "sql_big_selects": "0", "sql_auto_is_null": "1", "unique_checks": "0", "time_zone": "'+05:00'",
		"character_set_client": "latin1", "character_set_results": "latin1", "collation_connection": "latin1_german1_ci",
		"tx_isolation": "'SERIALIZABLE'", "tx_read_only": "1", "check_constraint_checks": "0",
	}
	set := make([]string, 0, len(odd))
	for name, value := range odd {
		set = append(set, name+" = "+value)
	}
	server := kit.MariaDB(t, "--init-connect=SET "+strings.Join(set, ", "))
	d := openDB(t, server.NewDatabase(t)) // which also migrates
	plain, err := mysqlServers(d.address)
	check.NoError(t, err)
	plain.config.Params = nil
	connector, err := plain.connector()
	check.NoError(t, err)
	stranger := sql.OpenDB(connector)
	t.Cleanup(func() { _ = stranger.Close() })
	ours, err := d.write.DB()
	check.NoError(t, err)
	usual, err := openStore(t, mariaDB(t), 1).write.DB()
	check.NoError(t, err)
	delete(odd, "max_join_size") // is not pinned: sql_big_selects makes it mean nothing
	for name := range odd {
		read := func(db *sql.DB) (value string) {
			check.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@session."+name).Scan(&value))
			return value
		}
		check.Same(t, name, read(ours), read(usual))
		if read(stranger) == read(usual) {
			t.Errorf("%s is not odd", name)
		}
	}
	for name := range meaning {
		if odd[name] == "" {
			t.Errorf("no odd %s was tried", name)
		}
	}
	sale := d.newSale(t, 3, func(s *model.Sale) { s.Title = "für 漢" })
	order := d.payFor(t, d.buy(t, sale.ID, "ann", 1))
	other := d.another(t)
	check.Same(t, "order", other.order(t, order.ID).Status, model.OrderPaid)
	offer, _, err := other.Offer(t.Context(), sale.ID)
	check.NoError(t, err)
	check.Same(t, "title", offer.Title, sale.Title)
}

// Servers that are managed by others may refuse tables without a primary key.
func TestEveryTableHasAPrimaryKey(t *testing.T) {
	t.Parallel()
	d := openDB(t, kit.MariaDB(t, "--innodb-force-primary-key=ON").NewDatabase(t))
	check.Same(t, "tables without one", d.count(t, `SELECT COUNT(*) FROM information_schema.TABLES AS t WHERE TABLE_SCHEMA = DATABASE() AND NOT EXISTS (
		SELECT * FROM information_schema.STATISTICS AS s WHERE s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME AND INDEX_NAME = 'PRIMARY')`), 0)
}

func TestOldMySQLIsRefused(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"8.0.16": true, "8.0.36-0ubuntu0.22.04.1": true, "8.4.0": true, "9.1.0-log": true, "10.0.0": true,
		"8.0.15": false, "5.7.44-log": false, "8.0": false, "": false,
	} {
		check.Same(t, "MySQL "+version+" enforces checks", enforcesChecks(version), want)
	}
}

func TestSQLiteSessions(t *testing.T) {
	t.Parallel()
	d := openDB(t, "sqlite:"+filepath.Join(t.TempDir(), "new folder", "shop.db"))
	settings := map[string]string{
		"PRAGMA journal_mode": "wal", "PRAGMA synchronous": "2", "PRAGMA busy_timeout": "5000", "PRAGMA query_only": "0",
	}
	wantAnswers(t, takeConns(t, d.write, 1), settings)
	settings["PRAGMA query_only"] = "1"
	wantAnswers(t, takeConns(t, d.read, sqliteReaders), settings)
}

// A pool opens no more connections than its limit, also as the server counts them.
func TestPoolIsBounded(t *testing.T) {
	const conns = 5
	onBoth(t, func(t *testing.T, d *testDB) {
		small := openStore(t, d.address, conns)
		pools := map[*gorm.DB]int{small.write: conns}
		if d.sqlite {
			pools = map[*gorm.DB]int{small.write: 1, small.read: sqliteReaders}
		}
		for db, limit := range pools {
			all := takeConns(t, db, limit)
			pool, err := db.DB()
			check.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if conn, err := pool.Conn(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("beyond %d connections: %v, %v", limit, conn, err)
			}
			if !d.sqlite {
				others, err := d.write.DB()
				check.NoError(t, err)
				query := "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Killed' AND DB = DATABASE()"
				wantAnswers(t, all[:1], map[string]string{query: fmt.Sprint(limit + others.Stats().OpenConnections)})
			}
		}
	})
}

// A transaction is the only writer from its start, so that it never fails halfway.
func TestSQLiteTransactionsBeginAsWriters(t *testing.T) {
	t.Parallel()
	d := openDB(t, kit.SQLite(t))
	other := kit.OpenSQL(t, d.address)
	other.SetMaxOpenConns(1)
	_, err := other.ExecContext(t.Context(), "PRAGMA busy_timeout = 0")
	check.NoError(t, err)
	write := func() error {
		_, err := other.ExecContext(t.Context(), "DELETE FROM leases")
		return err
	}
	check.NoError(t, d.transact(t.Context(), func(*gorm.DB) error {
		if write() == nil {
			t.Error("another writer wrote during a transaction")
		}
		return nil
	}))
	check.NoError(t, write())
}

// Two processes share one file, as when a command runs beside the server. They wait for each other.
func TestTwoInstancesShareAnSQLiteFile(t *testing.T) {
	t.Parallel()
	d := openDB(t, kit.SQLite(t))
	stores, sale := []*testDB{d, d.another(t)}, d.newSale(t, 7)
	outcomes := check.Collect(12, func(i int) model.Outcome {
		return stores[i%2].retry(t, deducting, attempt(sale.ID, fmt.Sprint("u", i), "k", 1))[0]
	})
	check.Same(t, "sold units", tally(outcomes)[model.Accepted], 7)
}

func TestNowIsTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before := time.Now().Truncate(time.Millisecond) // test and database run on this machine
		now, after := d.now(t), time.Now()
		if now.Before(before) || now.After(after) || now.Location() != time.UTC {
			t.Errorf("the database's clock shows %s, this machine's %s to %s", now, before, after)
		}
	})
}

// The database's clock decides wherever money is at stake. Here the clock of its session is hours ahead of this
// machine's, and stands still.
func TestTheDatabasesClockDecides(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariaDB(t))
	at := openStore(t, d.address, 1) // all statements run in the one session whose clock is set
	sale := d.newSale(t, 9, shift(2*time.Hour))
	start, deadline := sale.StartsAt, sale.StartsAt.Add(15*time.Minute)
	set := func(clock time.Time) {
		t.Helper()
		at.exec(t, fmt.Sprintf("SET timestamp = %.3f", float64(clock.UnixMilli())/1000))
		check.Same(t, "the clock", at.now(t), clock)
	}
	take := func(user string, by way, want model.Verdict) model.Order {
		t.Helper()
		got := at.take(t, by, attempt(sale.ID, user, "k", 1))
		wantVerdicts(t, got, want)
		if want != model.Accepted {
			return model.Order{}
		}
		return *got[0].Order
	}
	set(start.Add(-time.Millisecond))
	take("early", deducting, model.NotStarted)
	set(start)
	order, settled := take("punctual", deducting, model.Accepted), take("queued", settling, model.Accepted)
	for _, o := range []model.Order{order, settled} {
		check.Same(t, "time of the order", o.CreatedAt, start)
		check.Same(t, "deadline of the order", o.ExpiresAt, deadline)
	}
	p := at.startPayment(t, take("payer", deducting, model.Accepted))

	set(sale.EndsAt.Add(-time.Millisecond))
	d.overdue(t, -9*time.Hour, settled.ID) // so that only one order expires below
	take("just in time", deducting, model.Accepted)
	set(sale.EndsAt)
	take("late", deducting, model.Ended)

	startPayment := func(want model.Verdict) {
		t.Helper()
		if _, verdict, err := at.StartPayment(t.Context(), order.UserID, order.ID, "bank"); verdict != want || err != nil {
			t.Errorf("start a payment: %s, %v, want %s", verdict, err, want)
		}
	}
	set(deadline.Add(-time.Millisecond))
	startPayment(model.Accepted)
	set(deadline)
	startPayment(model.NotPayable)

	const grace = 30 * time.Second
	overdue := func(step model.ClockStep, want ...string) {
		t.Helper()
		got, err := at.Overdue(t.Context(), grace, step, 9, nil)
		if err != nil || !slices.Equal(got[sale.ID], want) {
			t.Errorf("with the step %+v the overdue orders are %v, %v, want %v", step, got, err, want)
		}
	}
	set(deadline.Add(grace - time.Millisecond))
	overdue(model.ClockStep{})
	paid, _ := at.pay(t, p, "t")
	check.Same(t, "status within the grace", paid.Status, model.OrderPaid)
	check.Same(t, "time of the payment", paid.PaidAt, deadline.Add(grace-time.Millisecond))
	set(deadline.Add(grace))
	overdue(model.ClockStep{}, order.ID)
	overdue(model.ClockStep{At: start.Add(time.Millisecond), By: time.Millisecond})
	overdue(model.ClockStep{At: start.Add(time.Hour), By: time.Hour})
	overdue(model.ClockStep{At: start, By: time.Hour}, order.ID) // made since the step
	released, err := at.Expire(t.Context(), sale.ID, []string{order.ID})
	if err != nil || len(released) != 1 || released[0].OrderID != order.ID {
		t.Errorf("expired %v, %v", released, err)
	}
}

// Although the server's zone has summer time, the database's clock grows by an hour each hour.
func TestTheClockKnowsNoSummerTime(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3") // the server inherits it
	at := openStore(t, kit.MariaDB(t).NewDatabase(t), 1)
	for _, instant := range []time.Time{
		time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), // half past two, in summer time
		time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC), // half past two again
		time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC),  // in the hour that is left out
	} {
		at.exec(t, "SET timestamp = ?", instant.Unix())
		check.Same(t, "the clock", at.now(t), instant)
	}
}

func TestClosedStoreAnswersWithAnError(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		other := d.another(t)
		check.NoError(t, other.Ping(t.Context()))
		check.NoError(t, other.Close())
		check.Same(t, "a closed store answers", other.Ping(t.Context()) == nil, false)
		if got, err := other.Deduct(t.Context(), model.NewSaleID(), nil); err == nil {
			t.Errorf("a closed store decides: %+v", got)
		}
		if got, ok, err := other.Order(t.Context(), "any"); ok || !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("a closed store reads the order %+v, %t, %v", got, ok, err)
		}
	})
}

// Who copies the file of a stopped server has everything, also if a connection was in use when the store was closed.
func TestCloseEmptiesTheLog(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		address := kit.SQLite(t)
		d := openStore(t, address, 1)
		check.NoError(t, d.MigrateUp(t.Context()))
		conn, err := d.readers.Conn(t.Context())
		check.NoError(t, err, d.Close())
		if log, err := os.Stat(strings.TrimPrefix(address, "sqlite:") + "-wal"); err == nil && log.Size() > 0 {
			pace.Errorf(t, "there is a log of %d bytes beside the file", log.Size())
		}
		check.NoError(t, conn.Close())
	})
}

// While the database is away, every call returns ErrUnavailable rather than a verdict. When the database is back, the
// same store goes on. A wrong statement is not mistaken for an outage.
func TestAnOutageIsUnavailable(t *testing.T) {
	t.Parallel()
	server := kit.MariaDB(t)
	d := openDB(t, server.NewDatabase(t))
	sale := d.newSale(t, 5)
	o := d.buy(t, sale.ID, "me", 1)
	p := d.startPayment(t, o)
	live := NewLiveSales(d.Store)
	before, err := live.LiveOffers(t.Context(), 0)
	check.NoError(t, err)
	server.Kill()
	ctx, a := t.Context(), attempt(sale.ID, "you", "k", 1)
	for name, call := range map[string]func() error{
		"now":         func() error { _, err := d.Now(ctx); return err },
		"offer":       func() error { _, _, err := d.Offer(ctx, sale.ID); return err },
		"live offers": func() error { _, err := d.LiveOffers(ctx, 0); return err },
		"live sales":  func() error { _, err := live.LiveOffers(ctx, 0); return err },
		"server":      func() error { _, err := d.Server(ctx, time.Now); return err },
		"order":       func() error { _, _, err := d.Order(ctx, o.ID); return err },
		"orders":      func() error { _, _, err := d.Orders(ctx, model.OrderFilter{Limit: 1}); return err },
		"books":       func() error { _, _, err := d.Books(ctx, sale.ID); return err },
		"contents":    func() error { _, _, err := d.GateContents(ctx, sale.ID); return err },
		"next epoch":  func() error { _, _, err := d.NextEpoch(ctx, sale.ID, 0, 0, 0); return err },
		"lease":       func() error { _, err := d.Lease(ctx, "l", "h", time.Hour); return err },
		"data key":    func() error { _, err := d.DataKey(ctx, "k"); return err },
		"account":     func() error { _, _, err := d.Account(ctx, "alice"); return err },
		"deduct":      func() error { _, err := deducting.try(ctx, d, a); return err },
		"settle":      func() error { _, err := settling.try(ctx, d, a); return err },
		"refuse":      func() error { _, err := d.Refuse(ctx, entries(a)[0], model.ReasonFailed); return err },
		"cancel":      func() error { _, _, err := d.Cancel(ctx, "me", o.ID); return err },
		"overdue":     func() error { _, err := d.Overdue(ctx, 0, model.ClockStep{}, 1, nil); return err },
		"expire":      func() error { _, err := d.Expire(ctx, sale.ID, []string{o.ID}); return err },
		"refund":      func() error { _, _, err := d.RefundOrder(ctx, o.ID, "op"); return err },
		"payment":     func() error { _, _, err := d.StartPayment(ctx, "me", o.ID, "bank"); return err },
		"callback":    func() error { _, _, _, err := d.ApplyReport(ctx, "bank", paidBy(p, "t"), true); return err },
	} {
		if err := call(); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	server.Restart()
	after, err := live.LiveOffers(t.Context(), 0)
	check.NoError(t, err)
	check.Same(t, "live sales after the outage", after, before)
	d.pay(t, p, "t")
	wantVerdicts(t, d.settle(t, a), model.Accepted)
	d.wantUnits(t, sale.ID, units{available: 3, held: 1, paid: 1})
	err = d.write.WithContext(ctx).Exec("UPDATE nothing SET nothing = 1").Error
	if err == nil || errors.Is(err, model.ErrUnavailable) {
		t.Errorf("a wrong statement: %v", err)
	}
}

// A transaction that another one was in the way of is repeated as a whole, a limited number of times. Any other error
// is returned at once.
func TestTransactTriesAgain(t *testing.T) {
	deadlock, lockWait := &mysqldriver.MySQLError{Number: 1213}, &mysqldriver.MySQLError{Number: 1205}
	syntax, ours := &mysqldriver.MySQLError{Number: 1064}, errors.New("ours")
	type errs = []error
	onBoth(t, func(t *testing.T, d *testDB) {
		type row struct {
			errs  errs // of the tries, nil after them
			tries int
			want  error
		}
		check.Each(t, map[string]row{
			"no error":                {nil, 1, nil},
			"a deadlock":              {errs{deadlock}, 2, nil},
			"two lock waits":          {errs{lockWait, lockWait}, 3, nil},
			"a wrapped error":         {errs{fmt.Errorf("op: %w", deadlock)}, 2, nil},
			"success at the last try": {slices.Repeat(errs{deadlock}, transactionTries-1), transactionTries, nil},
			"too often":               {slices.Repeat(errs{lockWait}, transactionTries), transactionTries, model.ErrUnavailable},
			"too often, its cause":    {slices.Repeat(errs{lockWait}, transactionTries), transactionTries, lockWait},
			"a wrong statement":       {errs{syntax}, 1, syntax},
			"an error of the engine":  {errs{ours}, 1, ours},
			"after a deadlock":        {errs{deadlock, ours}, 2, ours},
		}, func(t *testing.T, tc row) {
			sale, tries := d.newSale(t, 1), 0
			err := d.transact(t.Context(), func(tx *gorm.DB) error {
				tries++
				if err := tx.Exec("UPDATE stock SET version = version + 1 WHERE sale_id = ?", sale.ID).Error; err != nil {
					return err
				}
				if tries <= len(tc.errs) {
					return tc.errs[tries-1]
				}
				return nil
			})
			if tries != tc.tries || !errors.Is(err, tc.want) {
				t.Errorf("%d tries, %v, want %d, %v", tries, err, tc.tries, tc.want)
			}
			want := int64(1)
			if tc.want == nil {
				want++ // only the last try was committed
			}
			check.Same(t, "version", d.stock(t, sale.ID).Version, want)
		})
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		err := d.transact(ctx, func(*gorm.DB) error {
			tries++
			cancel()
			return deadlock
		})
		if tries != 1 || err == nil {
			t.Errorf("after the caller has left: %d tries, %v", tries, err)
		}
	})
}

// Two transactions lock two rows in opposite orders. The server ends one of them, which succeeds at a later try.
func TestTransactSurvivesADeadlock(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariaDB(t))
	sales := []string{d.newSale(t, 1).ID, d.newSale(t, 1).ID}
	var firstLocks sync.WaitGroup
	firstLocks.Add(2)
	tries := check.Collect(2, func(i int) (tries int) {
		err := d.transact(t.Context(), func(tx *gorm.DB) error {
			tries++
			for n, sale := range []string{sales[i], sales[1-i]} {
				if err := tx.Exec("UPDATE stock SET version = version + 1 WHERE sale_id = ?", sale).Error; err != nil {
					return err
				}
				if n == 0 && tries == 1 {
					firstLocks.Done()
					firstLocks.Wait()
				}
			}
			return nil
		})
		check.Error(t, "a transaction", err, nil)
		return tries
	})
	if tries[0]+tries[1] < 3 { // more, if this process stands still for longer than a statement waits for a lock
		t.Errorf("the tries are %d, so no deadlock occurred", tries)
	}
	for _, sale := range sales {
		check.Same(t, "version", d.stock(t, sale).Version, 3)
	}
}

// The primary becomes read-only under open connections, as in a planned failover. The first refused write, or a ping,
// closes all idle connections, since their server's data may be out of date. Once the server accepts writes, so does the
// store.
func TestHole51_ReadOnlyServer(t *testing.T) {
	server := kit.MariaDB(t)
	d := openDB(t, server.NewDatabase(t))
	sale, root := d.newSale(t, 5), server.Root(t)
	execute := func(statement string) {
		t.Helper()
		_, err := root.ExecContext(t.Context(), statement)
		check.NoError(t, err)
	}
	pool, err := d.write.DB()
	check.NoError(t, err)
	idle := func() int { return pool.Stats().Idle }
	fillPool := func() {
		t.Helper()
		for _, conn := range takeConns(t, d.read, suiteConns) {
			check.NoError(t, conn.Close()) // back to the pool
		}
		check.Same(t, "idle connections", idle(), suiteConns)
	}
	settle := func(user string) error {
		_, err := settling.try(t.Context(), d, attempt(sale.ID, user, "k", 1))
		return err
	}
	check.NoError(t, d.Ping(t.Context()), settle("before"))
	fillPool()
	execute("SET GLOBAL read_only = ON")
	if err := settle("meanwhile"); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrBroken) || idle() > 0 {
		t.Errorf("a write: %v, and %d connections are idle", err, idle())
	}
	fillPool()
	if err := d.Ping(t.Context()); !errors.Is(err, errReadOnly) || idle() > 0 {
		t.Errorf("a ping: %v, and %d connections are idle", err, idle())
	}
	execute("SET GLOBAL read_only = OFF")
	check.NoError(t, d.Ping(t.Context()), settle("after"))
}

// Where a call of the database costs a round trip, statements travel together. On a Galera cluster each travels alone, since a
// COMMIT in a call may be confirmed in spite of an abort before it.
func TestStatementsInACall(t *testing.T) {
	for calls, s := range map[int]*Store{1: {}, 2: {galera: true}} {
		check.Same(t, "calls", len(s.calls(do("BEGIN"), do(""), do("COMMIT"))), calls)
	}
	check.Same(t, "calls on SQLite", len((&Store{sqlite: true}).calls(do("a"), do("b"), do("c"))), 3)
}
