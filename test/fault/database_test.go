package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// databaseRows are faults of MariaDB.
var databaseRows = []row{
	{9, "mariadbd is killed under load and restarted", "confirmed orders survive; 503 or queued meanwhile", databaseKilled},
	{10, "the reply to a commit is lost", "the engine finds out; exactly one order", commitReplyLost},
	{11, "the stock row is locked for 2 s; deadlocks", "tried again; no wrong answer; a bounded wait", lockedAndDeadlocked},
	{12, "the database's disk is full", "503 or queued, no false yes; recovers", diskFull},
	{17, "others have all of MySQL's 20 connections", "503 or queued at once; recovers", connectionsTaken},
	{17, "pools of 64 connections, MySQL has 20", "success, or 503 at once; recovers", poolsTooLarge},
}

const (
	// fast is how soon a buyer gets 503 or 202 while the database is down, on a machine that has other work.
	fast = 5 * time.Second
	// feltTries bounds the polls for the first sign of a fault.
	feltTries = 100
)

// gatedAndAlone starts an instance that sells through the gate, and one that has lost Redis and sells from the database
// alone. So a fault of the database meets both ways of selling. --ack-wait is short, so that no buyer waits long for an
// order that doesn't come.
func (d *drill) gatedAndAlone(s *shop.Shop, args ...string) (gated, alone *shop.Instance) {
	d.Helper()
	args = append(args, "--ack-wait", "300ms")
	down := kit.Redis(d)
	gated = s.Start(args...)
	alone = s.Start(append(args, "--redis", down.URL())...)
	down.Kill()
	return gated, alone
}

// told fails the row if a buyer got any other answer than these.
func (d *drill) told(attempts []shop.Attempt, answers ...string) {
	d.Helper()
	for answer, n := range shop.Tally(attempts) {
		if !slices.Contains(answers, strings.TrimSpace(answer)) {
			d.Errorf("%d × %q, want only %q", n, answer, answers)
		}
	}
}

// within returns the attempts that were both sent and answered between two times.
func within(attempts []shop.Attempt, from, to time.Time) []shop.Attempt {
	return slices.DeleteFunc(attempts, func(a shop.Attempt) bool { return a.Invoked.Before(from) || a.Answered.After(to) })
}

// slowest returns the longest wait for an answer, and the 99th percentile of the waits.
func slowest(attempts []shop.Attempt) (longest, p99 time.Duration) {
	waits := make([]time.Duration, len(attempts))
	for i, a := range attempts {
		waits[i] = a.Answered.Sub(a.Invoked)
	}
	if len(waits) == 0 {
		return 0, 0
	}
	slices.Sort(waits)
	return waits[len(waits)-1], waits[len(waits)*99/100]
}

// execute runs statements that have to succeed.
func (d *drill) execute(db *sql.DB, statements ...string) {
	d.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(d.Context(), statement); err != nil {
			d.Fatalf("%s: %v", statement, err)
		}
	}
}

func databaseKilled(d *drill) {
	db := kit.MariaDB(d)
	s := shop.On(d, db.NewDatabase(d), kit.Redis(d))
	gated, alone := d.gatedAndAlone(s)
	quota := size(1_200, 25_000)
	sale := s.Sale(gated.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, gated.URL, alone.URL)
	var meanwhile []shop.Attempt
	for range size(1, 3) {
		load.more(size(300, 5_000), time.Minute)
		db.Kill()
		killed := time.Now()
		load.more(size(200, 1_000), time.Minute)
		meanwhile = append(meanwhile, within(load.soFar(), killed, time.Now())...)
		db.Restart()
	}
	load.more(size(300, 5_000), time.Minute)
	attempts := load.stop()
	books()
	d.told(meanwhile, "202", "503 unavailable")
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	longest, _ := slowest(meanwhile)
	if longest > fast {
		d.Errorf("a buyer waited %s for a no", longest)
	}
	d.result.Happened = fmt.Sprintf("without a database: %s, within %s; in all: %s", d.tally(meanwhile), longest.Round(time.Millisecond), d.tally(attempts))
	alone.Stop()
	d.recovered(s, sale, int64(quota), attempts, gated.URL)
}

// commitReplyLost loses the replies to commits one by one, with their connections, and then all replies for a while:
// the engine can't know whether it has committed. Buyers who got 503 ask again under their keys.
func commitReplyLost(d *drill) {
	s := shop.New(d)
	u, err := url.Parse(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	first, second := d.proxy(u.Host), d.proxy(u.Host)
	behind := func(p *proxy) string { return strings.Replace(s.Database, u.Host, p.Addr(), 1) }
	down := kit.Redis(d)
	gated := s.Start("--ack-wait", "300ms", "--database", behind(first))
	alone := s.Start("--ack-wait", "300ms", "--database", behind(second), "--redis", down.URL())
	down.Kill()
	quota := size(900, 8_000)
	sale := s.Sale(gated.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, gated.URL, alone.URL)
	load.more(200, time.Minute)

	lose := size(5, 20) // after each loss a settler pauses for longer
	for _, p := range []*proxy{first, second} {
		p.LoseReplyTo("\x03COMMIT", lose) // as the driver sends it: the command byte and the statement
	}
	for tries := 0; first.Lost() < int64(lose) || second.Lost() < int64(lose); tries++ {
		if tries == feltTries {
			d.Fatalf("%d and %d commits lost their replies, want %d each", first.Lost(), second.Lost(), lose)
		}
		load.more(50, time.Minute)
	}
	silent := time.Now()
	first.LoseReplies()
	second.LoseReplies()
	load.more(size(20, 500), time.Minute)
	queued := slices.DeleteFunc(load.soFar(), func(a shop.Attempt) bool { return a.Status != http.StatusAccepted || a.Answered.Before(silent) })
	first.Restore()
	second.Restore()
	load.more(200, time.Minute)
	attempts := load.stop()
	books()
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	longest, _ := slowest(queued)
	if len(queued) == 0 || longest > fast {
		d.Errorf("while the database was silent %d heard that they are queued, the last after %s", len(queued), longest)
	}
	// A settle that lost a reply logs it. Without that line the row has shown nothing.
	if log := gated.Log.String(); !strings.Contains(log, "settle; trying again") {
		d.Errorf("no settle has lost the reply to its commit: %s", log)
	}

	ledger, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer ledger.close()
	orders, err := ledger.orders(d.Context(), sale)
	if err != nil {
		d.Fatal(err)
	}
	idOf := map[string]string{}
	for _, w := range orders {
		idOf[w.user] = w.id
	}
	alone.Stop()
	refused, had := 0, 0
	for _, a := range slices.Clone(attempts) {
		if a.Status != http.StatusServiceUnavailable {
			continue
		}
		refused++
		again := shop.Attempt{User: a.User, Key: a.Key, URL: gated.URL}
		s.Buy(&again, sale)
		attempts = append(attempts, again)
		if id, ok := idOf[a.User]; ok {
			had++
			if !again.Confirmed() || again.OrderID != id {
				d.Errorf("%s has order %s, asks again under the same key and is told %d %s %s", a.User, id, again.Status, again.Code, again.OrderID)
			}
		}
	}
	d.result.Happened = fmt.Sprintf("%d replies lost; %d of %d buyers who heard 503 had an order, and found it under their keys; 202 within %s; %s",
		first.Lost()+second.Lost(), had, refused, longest.Round(time.Millisecond), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, gated.URL)
}

// lockedAndDeadlocked runs other sessions on the engine's tables: one that holds the lock on the stock row, and some
// that lock the stock first and then its buyers, against the engine's order.
func lockedAndDeadlocked(d *drill) {
	db := kit.MariaDB(d)
	s := shop.On(d, db.NewDatabase(d), kit.Redis(d))
	a, b := s.Start(), s.Start()
	quota := size(1_000, 8_000)
	sale := s.Sale(a.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, a.URL, b.URL)
	load.more(300, time.Minute)
	others, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer others.close()

	for range size(1, 10) {
		d.transact(others.db, func(tx *sql.Tx) error {
			var available int
			if err := tx.QueryRowContext(d.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", sale).Scan(&available); err != nil {
				return err
			}
			_, err := tx.ExecContext(d.Context(), "DO SLEEP(2)")
			return err
		})
		load.more(100, time.Minute)
	}
	victims := d.deadlocks(others.db, db.Root(d), sale, size(3, 30))
	load.more(200, time.Minute)
	attempts := load.stop()
	books()
	d.told(attempts, "201", "202", "409 sold_out")
	longest, p99 := slowest(attempts)
	if p99 > 2*fast {
		d.Errorf("the slowest in a hundred waited %s", p99)
	}
	d.result.Happened = fmt.Sprintf("%d deadlocks that the engine lost; p99 %s, longest %s; %s", victims,
		p99.Round(time.Millisecond), longest.Round(time.Millisecond), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}

// transact runs a transaction and rolls it back.
func (d *drill) transact(db *sql.DB, do func(tx *sql.Tx) error) {
	d.Helper()
	tx, err := db.BeginTx(d.Context(), nil)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after a deadlock it is rolled back already
	if err := do(tx); err != nil {
		d.Fatal(err)
	}
}

// deadlocks provokes deadlocks until the engine has been the victim of so many, and returns their number.
func (d *drill) deadlocks(db, root *sql.DB, sale string, victims int) (lost int) {
	d.Helper()
	counter := func() (n int) {
		var name string
		if err := root.QueryRowContext(d.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n); err != nil {
			d.Fatal(err)
		}
		return n
	}
	d.execute(db, "CREATE TABLE ballast (n INT PRIMARY KEY) ENGINE=InnoDB")
	before, ours := counter(), 0
	for range feltTries {
		if lost = counter() - before - ours; lost >= victims {
			return lost
		}
		d.transact(db, func(tx *sql.Tx) error {
			// InnoDB rolls back the lighter transaction of a deadlock: this one has changed more rows than a batch
			// does.
			if _, err := tx.ExecContext(d.Context(), "INSERT INTO ballast SELECT seq FROM seq_1_to_5000"); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRowContext(d.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", sale).Scan(&n); err != nil {
				return err
			}
			d.until(recoveryTime, "a settle waits for the stock", func() (bool, error) { return d.waiting(root) })
			err := tx.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM buyers WHERE sale_id = ? FOR UPDATE", sale).Scan(&n)
			if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == 1213 {
				ours++
				return nil
			}
			return err
		})
	}
	d.Fatalf("the engine lost %d deadlocks, the drill %d; want %d lost by the engine", lost, ours, victims)
	return lost
}

// waiting reports whether a transaction waits for a lock of another.
func (d *drill) waiting(root *sql.DB) (bool, error) {
	var name string
	var waits int
	err := root.QueryRowContext(d.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").Scan(&name, &waits)
	return waits > 0, err
}

// until polls the function there until it returns true without an error. It fails the row after most.
func (d *drill) until(most time.Duration, what string, there func() (bool, error)) {
	d.Helper()
	deadline := time.Now().Add(most)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := there()
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.Fatalf("%s: not within %s: %v", what, most, err)
		}
		<-ticker.C
	}
}

func diskFull(d *drill) {
	db, fill, free := smallDisk(d)
	s := shop.On(d, db.NewDatabase(d), kit.Redis(d))
	gated, alone := d.gatedAndAlone(s)
	quota := size(1_000, 8_000)
	sale := s.Sale(gated.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, gated.URL, alone.URL)
	load.more(200, time.Minute)
	fill(s.Database)
	// The first inserts still fit: they use the free space in the tables' files.
	filled := time.Now()
	for tries := 0; shop.Tally(within(load.soFar(), filled, time.Now()))["503 unavailable"] < 20; tries++ {
		if tries == feltTries {
			d.Fatalf("nobody heard of the full disk: %s", d.tally(load.soFar()))
		}
		load.more(50, time.Minute)
	}
	from := time.Now()
	load.more(size(200, 2_000), time.Minute)
	meanwhile := within(load.soFar(), from, time.Now())
	free()
	held := "MariaDB held out"
	if !db.Running() { // "Out of disk space in rollback" is fatal to InnoDB; in production a supervisor restarts it
		held = "MariaDB gave up and was started again"
		db.Restart()
	}
	load.more(size(200, 2_000), time.Minute)
	attempts := load.stop()
	books()
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	d.result.Happened = fmt.Sprintf("%s; with a full disk: %s; in all: %s", held, d.tally(meanwhile), d.tally(attempts))
	alone.Stop()
	d.recovered(s, sale, int64(quota), attempts, gated.URL)
}

// smallDisk starts a server whose disk can be made full. In the full form the disk is a tmpfs of 120 MB of its own,
// which takes root, and a file fills it. The short form needs no root: a resource limit makes the kernel refuse the
// server any write past a file's first 16 MB. Old orders fill the table of orders up to there, so that the next order
// gets the same error.
func smallDisk(d *drill) (db *kit.MariaDBServer, fill func(database string), free func()) {
	d.Helper()
	if !full {
		signal.Ignore(syscall.SIGXFSZ) // inherited by the server, whose writes past the limit then return an error
		db = kit.MariaDB(d)
		signal.Reset(syscall.SIGXFSZ)
		fill = func(database string) {
			d.limitFiles(db.PID(), "16777216")
			d.fillOrders(database)
		}
		return db, fill, func() { d.limitFiles(db.PID(), "unlimited") }
	}
	disk, err := os.MkdirTemp("", "drill-")
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = os.Remove(disk) })
	if out, err := exec.CommandContext(d.Context(), "mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", disk).CombinedOutput(); err != nil {
		d.Fatalf("the full form of this row mounts a small disk, which takes root: %v: %s", err, out)
	}
	d.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "umount", disk).CombinedOutput(); err != nil {
			d.Errorf("unmount %s: %v: %s", disk, err, out)
		}
	})
	filler := filepath.Join(disk, "filler")
	return kit.MariaDBIn(d, disk), func(string) { d.fillDisk(filler) }, func() {
		if err := os.Remove(filler); err != nil {
			d.Fatal(err)
		}
	}
}

// fillDisk writes a file until the disk is full.
func (d *drill) fillDisk(path string) {
	d.Helper()
	file, err := os.Create(path)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for piece := make([]byte, 1<<16); err == nil; {
		_, err = file.Write(piece)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.Fatalf("fill the disk: %v", err)
	}
}

// limitFiles sets how large a process may make its files, in bytes.
func (d *drill) limitFiles(pid int, most string) {
	d.Helper()
	out, err := exec.CommandContext(d.Context(), "prlimit", "--pid", strconv.Itoa(pid), "--fsize="+most+":").CombinedOutput()
	if err != nil {
		d.Fatalf("prlimit: %v: %s", err, out)
	}
}

// fillOrders adds orders of an old sale until the table is full.
func (d *drill) fillOrders(database string) {
	d.Helper()
	others, err := openLedger(database)
	if err != nil {
		d.Fatal(err)
	}
	defer others.close()
	added := 0
	for _, rows := range []int{1000, 100, 10, 1} { // smaller and smaller steps
		for err = nil; err == nil; added += rows {
			_, err = others.db.ExecContext(d.Context(), `INSERT INTO orders SELECT CONCAT('PAST', LPAD(seq + ?, 44, '0')), 'PAST', CONCAT('u', seq + ?), 1, 100, 'CNY',
				'expired', 'stream', 1, REPEAT('k', 128), REPEAT('0', 32), 0, 0, NULL FROM seq_1_to_1000 LIMIT ?`, added, added, rows)
		}
		if refused, ok := errors.AsType[*mysql.MySQLError](err); !ok || refused.Number != 1114 {
			d.Fatalf("fill the orders: %v", err)
		}
	}
}

// connectionsTaken lets other clients take every connection of MySQL, also those that the engine had.
func connectionsTaken(d *drill) {
	db := kit.MariaDB(d)
	s := shop.On(d, db.NewDatabase(d), kit.Redis(d))
	gated, alone := d.gatedAndAlone(s)
	quota := size(800, 7_000)
	sale := s.Sale(gated.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, gated.URL, alone.URL)
	load.more(200, time.Minute)

	root := db.Root(d)
	d.execute(root, "SET GLOBAL max_connections = 20")
	u, err := url.Parse(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	admin, err := root.Conn(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	var others []*sql.Conn
	d.until(recoveryTime, "others have every connection", func() (bool, error) {
		left, err := d.disconnect(admin, u.User.Username())
		if err == nil && left == 0 && len(others) >= 19 { // the administrator has the twentieth
			return true, nil
		}
		for err == nil {
			var c *sql.Conn
			if c, err = root.Conn(d.Context()); err == nil {
				others = append(others, c)
			}
		}
		if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == 1040 {
			err = nil
		}
		return false, err
	})
	from := time.Now()
	load.more(size(200, 2_000), time.Minute)
	meanwhile := within(load.soFar(), from, time.Now())
	for _, c := range append(others, admin) {
		_ = c.Close() // whether or not the connection still works
	}
	load.more(size(200, 2_000), time.Minute)
	attempts := load.stop()
	books()
	d.told(meanwhile, "202", "503 unavailable")
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	longest, p99 := slowest(meanwhile)
	if p99 > fast {
		d.Errorf("the slowest in a hundred waited %s for a no", p99)
	}
	d.result.Happened = fmt.Sprintf("without a connection: %s, p99 %s, longest %s; in all: %s", d.tally(meanwhile),
		p99.Round(time.Millisecond), longest.Round(time.Millisecond), d.tally(attempts))
	alone.Stop()
	d.recovered(s, sale, int64(quota), attempts, gated.URL)
}

// disconnect ends a user's connections and returns how many there were.
func (d *drill) disconnect(admin *sql.Conn, user string) (n int, err error) {
	rows, err := admin.QueryContext(d.Context(), "SELECT id FROM information_schema.processlist WHERE user = ?", user)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, id := range ids {
		_, err := admin.ExecContext(d.Context(), fmt.Sprintf("KILL %d", id))
		if refused, ok := errors.AsType[*mysql.MySQLError](err); err != nil && (!ok || refused.Number != 1094) { // gone already
			return 0, err
		}
	}
	return len(ids), nil
}

// poolsTooLarge has so many buyers list their orders that each instance needs more connections than MySQL allows.
func poolsTooLarge(d *drill) {
	db := kit.MariaDB(d)
	s := shop.On(d, db.NewDatabase(d), kit.Redis(d))
	gated, alone := d.gatedAndAlone(s, "--db-max-conns", "64")
	quota := size(800, 8_000)
	sale := s.Sale(gated.URL, quota)
	root := db.Root(d)
	admin, err := root.Conn(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	d.execute(root, "SET GLOBAL max_connections = 20")
	u, err := url.Parse(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.disconnect(admin, u.User.Username()); err != nil {
		d.Fatal(err)
	}
	books := d.watch(s, sale)
	looks := d.lookers(s, gated.URL, alone.URL)
	load := d.rush(s, sale, gated.URL, alone.URL)
	load.more(size(500, 5_000), time.Minute)
	attempts := load.stop()
	answers, longest := looks()
	books()
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	for answer, n := range answers {
		if answer != http.StatusOK && answer != http.StatusServiceUnavailable {
			d.Errorf("%d who looked at their orders heard %d", n, answer)
		}
	}
	if answers[http.StatusServiceUnavailable] == 0 {
		d.Errorf("nobody felt the lack of connections: %v", answers)
	}
	if wait, _ := slowest(attempts); max(longest, wait) > 2*fast {
		d.Errorf("somebody waited %s", max(longest, wait))
	}
	d.result.Happened = fmt.Sprintf("%d looks at orders, %d × 503, longest %s; %s", answers[http.StatusOK]+answers[http.StatusServiceUnavailable],
		answers[http.StatusServiceUnavailable], longest.Round(time.Millisecond), d.tally(attempts))
	alone.Stop()
	// The fault ends here. Otherwise the remaining instance could hold every connection, and the books could not be
	// read.
	if _, err := admin.ExecContext(d.Context(), "SET GLOBAL max_connections = 500"); err != nil {
		d.Fatal(err)
	}
	d.recovered(s, sale, int64(quota), attempts, gated.URL)
}

// lookers are buyers who list their orders again and again until the returned function is called. It returns the
// answers by status, and the longest wait.
func (d *drill) lookers(s *shop.Shop, urls ...string) (end func() (map[int]int, time.Duration)) {
	var ended atomic.Bool
	var looking sync.WaitGroup
	d.Cleanup(func() {
		ended.Store(true)
		looking.Wait()
	})
	var mu sync.Mutex
	answers, longest := map[int]int{}, time.Duration(0)
	for i := range 2 * crowd {
		looking.Go(func() {
			for !ended.Load() {
				start := time.Now()
				status, _, err := s.Call(http.MethodGet, urls[i%len(urls)]+"/api/v1/orders", s.Token("looker"), nil)
				if err != nil {
					d.Error(err)
					return
				}
				mu.Lock()
				answers[status]++
				longest = max(longest, time.Since(start))
				mu.Unlock()
			}
		})
	}
	return func() (map[int]int, time.Duration) {
		ended.Store(true)
		looking.Wait()
		return answers, longest
	}
}

// TestSlowest tests how the rows measure waits.
func TestSlowest(t *testing.T) {
	start := time.Now()
	var attempts []shop.Attempt
	for i := range 200 {
		attempts = append(attempts, shop.Attempt{Invoked: start, Answered: start.Add(time.Duration(i) * time.Millisecond)})
	}
	if longest, p99 := slowest(attempts); longest != 199*time.Millisecond || p99 != 198*time.Millisecond {
		t.Errorf("longest %s, p99 %s", longest, p99)
	}
	if longest, p99 := slowest(nil); longest != 0 || p99 != 0 {
		t.Errorf("of nobody: longest %s, p99 %s", longest, p99)
	}
	if got := within(attempts, start, start.Add(9*time.Millisecond)); len(got) != 10 {
		t.Errorf("%d were answered within 9 ms, want 10", len(got))
	}
}
