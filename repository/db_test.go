package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"flashsale/model"
	"flashsale/test/kit"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	openDB(t, "sqlite:"+file)
	for name, address := range map[string]string{
		"nothing":               "",
		"no scheme":             "127.0.0.1:3306/shop",
		"another scheme":        "postgres://u:hunter2@127.0.0.1/shop",
		"no database":           "mysql://u:hunter2@127.0.0.1:3306/",
		"no host":               "mysql:///shop",
		"no URL at all":         "mysql://u:hunter2@host:port:port/%zz",
		"nobody listens":        "mysql://u:hunter2@" + nobody + "/shop",
		"a file for the folder": "sqlite:" + filepath.Join(file, "shop.db"),
	} {
		t.Run(name, func(t *testing.T) {
			store, err := Open(t.Context(), address, suiteConns)
			if err == nil {
				t.Fatalf("it opened: %v", store.Close())
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

// Wrong and odd passwords: the one is refused without being told, the other is taken as it is.
func TestOpenWithPasswords(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariadbAddress(t))
	const odd = "p@ss/w:ord?a=b#%41 ü"
	d.exec(t, "SET PASSWORD = PASSWORD(?)", odd)
	u, err := url.Parse(d.address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), odd)
	if err := openStore(t, u.String(), suiteConns).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	u.User = url.UserPassword(u.User.Username(), "hunter2")
	store, err := Open(t.Context(), u.String(), suiteConns)
	if err == nil {
		t.Fatalf("a wrong password opened it: %v", store.Close())
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error tells the password: %v", err)
	}
}

// held takes n connections of a pool at once.
func held(t *testing.T, db *gorm.DB, n int) []*sql.Conn {
	t.Helper()
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*sql.Conn, n)
	for i := range conns {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if conns[i], err = pool.Conn(ctx); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		t.Cleanup(func() {
			if err := conns[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return conns
}

func ask(t *testing.T, conn *sql.Conn, query string) (answer string) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), query).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

// Every connection of the pool has the settings, not only the first.
func TestMariaDBSessions(t *testing.T) {
	t.Parallel()
	const conns = 5
	d := openStore(t, mariadbAddress(t), conns)
	for i, conn := range held(t, d.write, conns) {
		for query, want := range map[string]string{
			"SELECT @@session.tx_isolation":             "READ-COMMITTED",
			"SELECT @@session.innodb_lock_wait_timeout": fmt.Sprint(lockWaitSeconds),
			"SELECT @@session.max_statement_time":       fmt.Sprint(statementSeconds),
			"SELECT @@session.sql_mode":                 "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
			"SELECT @@session.character_set_client":     "utf8mb4",
			"SELECT @@session.autocommit":               "1",
		} {
			if got := ask(t, conn, query); got != want {
				t.Errorf("connection %d: %s gives %s, want %s", i, query, got, want)
			}
		}
	}
}

func TestSQLiteSessions(t *testing.T) {
	t.Parallel()
	d := openDB(t, sqliteAddress(t))
	for name, side := range map[string]struct {
		db    *gorm.DB
		conns int
		only  string
	}{"the writer": {d.write, 1, "0"}, "the readers": {d.read, sqliteReaders, "1"}} {
		t.Run(name, func(t *testing.T) {
			for i, conn := range held(t, side.db, side.conns) {
				for query, want := range map[string]string{
					"PRAGMA journal_mode": "wal", "PRAGMA synchronous": "2", "PRAGMA busy_timeout": "5000", "PRAGMA query_only": side.only,
				} {
					if got := ask(t, conn, query); got != want {
						t.Errorf("connection %d: %s gives %s, want %s", i, query, got, want)
					}
				}
			}
		})
	}
}

// The bound of a pool is in force: when its connections are taken there is no further one, here and as the
// server counts them.
func TestPoolIsBounded(t *testing.T) {
	const conns = 5
	onBoth(t, func(t *testing.T, d *testDB) {
		small := openStore(t, d.address, conns)
		pools := map[*gorm.DB]int{small.write: conns}
		if d.sqlite {
			pools = map[*gorm.DB]int{small.write: 1, small.read: sqliteReaders}
		}
		for db, want := range pools {
			all := held(t, db, want)
			pool, err := db.DB()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if conn, err := pool.Conn(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("beyond %d: %v, %v", want, conn, err)
			}
			if d.sqlite {
				continue
			}
			others, err := d.write.DB()
			if err != nil {
				t.Fatal(err)
			}
			want += others.Stats().OpenConnections
			query := "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Killed' AND DB = DATABASE()"
			if got := ask(t, all[0], query); got != fmt.Sprint(want) {
				t.Errorf("the server counts %s connections, want %d", got, want)
			}
		}
	})
}

func TestReadersCantWriteSQLite(t *testing.T) {
	t.Parallel()
	d := openDB(t, sqliteAddress(t))
	if err := d.read.WithContext(t.Context()).Exec("DELETE FROM sales").Error; err == nil {
		t.Error("a reading connection wrote")
	}
}

// A transaction has the only writer's place from its start, so that it never has to give up in the middle.
func TestSQLiteTransactionsBeginAsWriters(t *testing.T) {
	t.Parallel()
	address := sqliteAddress(t)
	d := openDB(t, address)
	hasty, err := sql.Open("sqlite", strings.TrimPrefix(address, "sqlite:")+"?_pragma=busy_timeout(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hasty.Close(); err != nil {
			t.Error(err)
		}
	}()
	write := func() error {
		_, err := hasty.ExecContext(t.Context(), "DELETE FROM leases")
		return err
	}
	err = d.transact(t.Context(), func(*gorm.DB) error {
		if write() == nil {
			t.Error("another one wrote beside a transaction")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// Two processes over one file, as when a command runs beside the server, wait for each other.
func TestTwoInstancesShareAnSQLiteFile(t *testing.T) {
	t.Parallel()
	d := openDB(t, sqliteAddress(t))
	stores := []*testDB{d, d.another(t)}
	sale, yes := d.newSale(t, 7), make([]bool, 12)
	together(len(yes), func(i int) {
		yes[i] = stores[i%2].race(t, sale.ID, attempt(sale.ID, fmt.Sprint("u", i), "k", 1))[0].Verdict == model.Accepted
	})
	sold := 0
	for _, ok := range yes {
		if ok {
			sold++
		}
	}
	if sold != 7 {
		t.Errorf("%d were sold", sold)
	}
	d.balanced(t)
}

func TestNowIsTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before := time.Now().Truncate(time.Millisecond) // both run on this machine
		now, after := d.now(t), time.Now()
		if now.Before(before) || now.After(after) || now.Location() != time.UTC {
			t.Errorf("it is %s, here it is %s to %s", now, before, after)
		}
	})
}

// Where the database's clock stands, there time stands for everything that money hangs on. The session's
// clock is set off by hours while this machine's runs on.
func TestTheDatabasesClockDecides(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariadbAddress(t))
	at := openStore(t, d.address, 1) // one connection, so that all runs in the session that is set off
	sale := d.newSale(t, 9, func(s *model.Sale) { s.StartsAt, s.EndsAt = s.StartsAt.Add(2*time.Hour), s.EndsAt.Add(2*time.Hour) })
	start := sale.StartsAt
	set := func(clock time.Time) {
		t.Helper()
		at.exec(t, fmt.Sprintf("SET timestamp = %.3f", float64(clock.UnixMilli())/1000))
		if now := at.now(t); !now.Equal(clock) {
			t.Fatalf("the clock shows %s, not %s", now, clock)
		}
	}
	take := func(user string, want model.Verdict) *model.Order {
		t.Helper()
		got := at.deduct(t, sale.ID, attempt(sale.ID, user, "k", 1))[0]
		if got.Verdict != want {
			t.Errorf("%s got %s, want %s", user, got.Verdict, want)
		}
		return got.Order
	}
	set(start.Add(-time.Millisecond))
	take("early", model.NotStarted)
	set(start)
	order := take("punctual", model.Accepted)
	if order == nil || !order.CreatedAt.Equal(start) || !order.ExpiresAt.Equal(start.Add(15*time.Minute)) {
		t.Fatalf("the order is %+v", order)
	}
	settled := at.settle(t, sale.ID, attempt(sale.ID, "queued", "k", 1))[0].Order
	if !settled.CreatedAt.Equal(start) || !settled.ExpiresAt.Equal(start.Add(15*time.Minute)) {
		t.Errorf("the settled order is %+v", settled)
	}
	paid := take("payer", model.Accepted)
	p := at.startPayment(t, *paid)

	set(sale.EndsAt.Add(-time.Millisecond))
	d.overdue(t, -9*time.Hour, settled.ID) // so that it stays
	take("just in time", model.Accepted)
	set(sale.EndsAt)
	take("late", model.Ended)

	set(order.ExpiresAt.Add(-time.Millisecond))
	if _, verdict, err := at.StartPayment(t.Context(), order.UserID, order.ID, "bank"); verdict != model.Accepted || err != nil {
		t.Errorf("in the last millisecond: %s, %v", verdict, err)
	}
	set(order.ExpiresAt)
	if _, verdict, err := at.StartPayment(t.Context(), order.UserID, order.ID, "bank"); verdict != model.NotPayable || err != nil {
		t.Errorf("after the last millisecond: %s, %v", verdict, err)
	}
	const grace = 30 * time.Second
	set(order.ExpiresAt.Add(grace - time.Millisecond))
	if got, err := at.ExpireDue(t.Context(), grace, 9); len(got) > 0 || err != nil {
		t.Errorf("within the grace expired %v, %v", got, err)
	}
	if got, _ := at.pay(t, p, "t"); got.Status != model.OrderPaid || !got.PaidAt.Equal(order.ExpiresAt.Add(grace-time.Millisecond)) {
		t.Errorf("within the grace the payment made it %s at %s", got.Status, got.PaidAt)
	}
	set(order.ExpiresAt.Add(grace))
	for _, step := range []model.ClockStep{{At: order.CreatedAt.Add(time.Millisecond), By: time.Millisecond}, {At: order.CreatedAt.Add(time.Hour), By: time.Hour}} {
		if got, err := at.Overdue(t.Context(), grace, step, 9, nil); len(got) > 0 || err != nil {
			t.Errorf("after a step of %s expired %v, %v", step.By, got, err)
		}
	}
	made := model.ClockStep{At: order.CreatedAt, By: time.Hour} // since the step
	if got, err := at.Overdue(t.Context(), grace, made, 9, nil); len(got[sale.ID]) != 1 || err != nil {
		t.Errorf("made since the step, and overdue are %v, %v", got, err)
	}
	got, err := at.ExpireDue(t.Context(), grace, 9)
	if err != nil || len(got[sale.ID]) != 1 || got[sale.ID][0].OrderID != order.ID {
		t.Errorf("beyond the grace expired %v, %v", got, err)
	}
	d.balanced(t)
}

// The hour that comes twice in autumn: where the server's own zone is one with summer time, the clock still
// grows by an hour each hour.
func TestTheClockKnowsNoSummerTime(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3") // which the server inherits
	d := openDB(t, kit.MariaDB(t).NewDatabase(t))
	at := openStore(t, d.address, 1)
	for _, instant := range []time.Time{
		time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), // half past two, in summer time
		time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC), // half past two again
		time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC),  // in the hour that is left out
	} {
		at.exec(t, "SET timestamp = ?", instant.Unix())
		if now := at.now(t); !now.Equal(instant) {
			t.Errorf("at %s the clock shows %s", instant, now)
		}
	}
}

func TestClosedStoreAnswersWithAnError(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		other := d.another(t)
		if err := other.Ping(t.Context()); err != nil {
			t.Errorf("an open store: %v", err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if err := other.Ping(t.Context()); err == nil {
			t.Error("a closed store answers")
		}
		if got, err := other.Deduct(t.Context(), model.NewSaleID(), nil); err == nil {
			t.Errorf("a closed store decides: %+v", got)
		}
	})
}

// A database that is away makes every answer unavailable, which its caller may ask for again, and never a
// verdict; what is broken isn't mistaken for it. When it is back, the same store goes on.
func TestAnOutageIsUnavailable(t *testing.T) {
	t.Parallel()
	server := kit.MariaDB(t)
	d := openDB(t, server.NewDatabase(t))
	sale := d.newSale(t, 5)
	o := d.buy(t, sale.ID, "me", 1)
	p := d.startPayment(t, o)
	server.Kill()
	ctx, a := t.Context(), attempt(sale.ID, "you", "k", 1)
	for name, call := range map[string]func() error{
		"now":         func() error { _, err := d.Now(ctx); return err },
		"offer":       func() error { _, _, err := d.Offer(ctx, sale.ID); return err },
		"live offers": func() error { _, err := d.LiveOffers(ctx, 0); return err },
		"order":       func() error { _, _, err := d.Order(ctx, o.ID); return err },
		"orders":      func() error { _, _, err := d.Orders(ctx, model.OrderFilter{Limit: 1}); return err },
		"books":       func() error { _, _, err := d.Books(ctx, sale.ID); return err },
		"contents":    func() error { _, _, err := d.GateContents(ctx, sale.ID); return err },
		"next epoch":  func() error { _, _, err := d.NextEpoch(ctx, sale.ID, 0, 0, 0); return err },
		"lease":       func() error { _, err := d.Lease(ctx, "l", "h", time.Hour); return err },
		"data key":    func() error { _, err := d.DataKey(ctx, "k"); return err },
		"account":     func() error { _, _, err := d.Account(ctx, "alice"); return err },
		"deduct":      func() error { _, err := d.Deduct(ctx, sale.ID, []model.Attempt{a}); return err },
		"settle":      func() error { _, err := d.Settle(ctx, sale.ID, entries(a)); return err },
		"refuse":      func() error { _, err := d.Refuse(ctx, entries(a)[0], model.ReasonFailed); return err },
		"cancel":      func() error { _, _, err := d.Cancel(ctx, "me", o.ID); return err },
		"expire":      func() error { _, err := d.ExpireDue(ctx, 0, 1); return err },
		"refund":      func() error { _, _, err := d.RefundOrder(ctx, o.ID, "op"); return err },
		"payment":     func() error { _, _, err := d.StartPayment(ctx, "me", o.ID, "bank"); return err },
		"callback": func() error {
			_, _, _, err := d.ApplyCallback(ctx, "bank", model.Callback{PaymentID: p.ID, ProviderTxnID: "t", Succeeded: true, AmountCents: p.AmountCents})
			return err
		},
	} {
		if err := call(); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	server.Restart()
	d.pay(t, p, "t")
	wantVerdicts(t, d.settle(t, sale.ID, a), model.Accepted)
	d.wantUnits(t, sale.ID, units{available: 3, held: 1, paid: 1})
	d.balanced(t)
	err := d.write.WithContext(ctx).Exec("UPDATE nothing SET nothing = 1").Error
	if err == nil || errors.Is(err, model.ErrUnavailable) {
		t.Errorf("what is broken is said to be away: %v", err)
	}
}

// What passes is tried again, as a whole and a bounded number of times; what doesn't is told at once.
func TestTransactTriesAgain(t *testing.T) {
	deadlock, lockWait := &mysqldriver.MySQLError{Number: 1213}, &mysqldriver.MySQLError{Number: 1205}
	syntax, ours := &mysqldriver.MySQLError{Number: 1064}, errors.New("ours")
	always := func(err error) []error {
		list := make([]error, transactionTries)
		for i := range list {
			list[i] = err
		}
		return list
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			errs  []error // of the tries, nil after them
			tries int
			want  error
		}{
			"at once":              {nil, 1, nil},
			"a deadlock":           {[]error{deadlock}, 2, nil},
			"a lock wait":          {[]error{lockWait, lockWait}, 3, nil},
			"wrapped":              {[]error{fmt.Errorf("op: %w", deadlock)}, 2, nil},
			"up to the last":       {always(deadlock)[1:], transactionTries, nil},
			"too often":            {always(lockWait), transactionTries, model.ErrUnavailable},
			"too often, its cause": {always(lockWait), transactionTries, lockWait},
			"a wrong statement":    {[]error{syntax}, 1, syntax},
			"our own error":        {[]error{ours}, 1, ours},
			"after a deadlock":     {[]error{deadlock, ours}, 2, ours},
		} {
			t.Run(name, func(t *testing.T) {
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
				if tries != tc.tries || !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("%d tries, %v, want %d, %v", tries, err, tc.tries, tc.want)
				}
				want := int64(1)
				if tc.want == nil {
					want++ // of the only try that held
				}
				if s := d.stock(t, sale.ID); s.Version != want {
					t.Errorf("the version is %d, want %d", s.Version, want)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		err := d.transact(ctx, func(*gorm.DB) error {
			tries++
			cancel()
			return deadlock
		})
		if tries != 1 || err == nil {
			t.Errorf("after the caller left: %d tries, %v", tries, err)
		}
	})
}

// Two transactions take two rows in opposite orders: the server ends one, which gets through when it is tried
// again.
func TestTransactSurvivesADeadlock(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariadbAddress(t))
	sales := []model.Sale{d.newSale(t, 1), d.newSale(t, 1)}
	var firstLocks sync.WaitGroup
	firstLocks.Add(2)
	tries := make([]int, 2)
	together(2, func(i int) {
		err := d.transact(t.Context(), func(tx *gorm.DB) error {
			tries[i]++
			for n, sale := range []model.Sale{sales[i], sales[1-i]} {
				if err := tx.Exec("UPDATE stock SET version = version + 1 WHERE sale_id = ?", sale.ID).Error; err != nil {
					return err
				}
				if n == 0 && tries[i] == 1 {
					firstLocks.Done()
					firstLocks.Wait()
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("transaction %d: %v", i, err)
		}
	})
	if tries[0]+tries[1] != 3 {
		t.Errorf("there were %v tries, want one deadlock", tries)
	}
	for _, sale := range sales {
		if s := d.stock(t, sale.ID); s.Version != 3 {
			t.Errorf("the version is %d, want 3", s.Version)
		}
	}
	d.balanced(t)
}

// Hole 51: the primary becomes read-only under open connections, as in a planned failover. The first refused write
// leaves all of them, since what they read may be out of date from then on; a ping tells; once the server takes writes
// again, so does the store.
func TestHole51_ReadOnlyServer(t *testing.T) {
	server := kit.MariaDB(t)
	d := openStore(t, server.NewDatabase(t), suiteConns)
	if err := d.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	sale, root := d.newSale(t, 5), server.Root(t)
	execute := func(statement string) {
		t.Helper()
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := d.write.DB()
	if err != nil {
		t.Fatal(err)
	}
	idle := func() int { return pool.Stats().Idle }
	occupy := func() {
		t.Helper()
		var all sync.WaitGroup
		for range suiteConns {
			all.Go(func() { d.read.WithContext(t.Context()).Exec("DO SLEEP(0.2)") })
		}
		all.Wait()
		if idle() < suiteConns-1 {
			t.Fatalf("%d connections stand", idle())
		}
	}
	settle := func(user string) error {
		_, err := d.Settle(t.Context(), sale.ID, entries(attempt(sale.ID, user, "k", 1)))
		return err
	}
	if err := errors.Join(d.Ping(t.Context()), settle("before")); err != nil {
		t.Fatal(err)
	}
	occupy()
	execute("SET GLOBAL read_only = ON")
	if err := settle("meanwhile"); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrBroken) || idle() > 0 {
		t.Errorf("a write: %v, and %d connections stand", err, idle())
	}
	occupy()
	if err := d.Ping(t.Context()); !errors.Is(err, errReadOnly) || idle() > 0 {
		t.Errorf("a ping: %v, and %d connections stand", err, idle())
	}
	execute("SET GLOBAL read_only = OFF")
	if err := errors.Join(d.Ping(t.Context()), settle("after")); err != nil {
		t.Error(err)
	}
}
