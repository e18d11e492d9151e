package fault

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

// mostAnswers are the answers that buyers may get in these rows.
var mostAnswers = []string{"201", "202", "409 sold_out", "503 unavailable"}

// refusedWith reports whether MariaDB refused a statement with an error of this number.
func refusedWith(err error, number uint16) bool {
	refused, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && refused.Number == number
}

func databaseKilled(d *drill) {
	db := d.ownDatabase()
	gated, alone := d.gatedAndAlone()
	d.open(size(1_200, 25_000), gated, alone)
	d.rush()
	var meanwhile []shop.Attempt
	for range size(1, 3) {
		d.more(size(300, 5_000))
		db.Kill()
		killed := time.Now()
		d.more(size(200, 1_000))
		meanwhile = append(meanwhile, d.since(killed)...)
		db.Restart()
	}
	d.more(size(300, 5_000))
	all := d.stop(mostAnswers...)
	d.told(meanwhile, "202", "503 unavailable")
	longest, _ := slowest(meanwhile)
	if longest > fast {
		d.Slowf("a buyer waited %s for a no", longest)
	}
	d.retire(alone)
	d.finish("without a database: %s, within %s; in all: %s", tally(meanwhile), ms(longest), all)
}

// commitReplyLost loses the replies to commits one by one, with their connections, and then all replies for a while:
// the engine can't know whether it has committed. Buyers who got 503 ask again under their keys.
func commitReplyLost(d *drill) {
	d.stores()
	host := d.databaseURL().Host
	links := [2]*proxy{d.proxy(host), d.proxy(host)}
	down := kit.Redis(d)
	behind := func(p *proxy, args ...string) *shop.Instance {
		return d.Start(append(args, "--ack-wait", "300ms", "--database", strings.Replace(d.Database, host, p.addr, 1))...)
	}
	gated, alone := behind(links[0]), behind(links[1], "--redis", down.URL())
	down.Kill()
	d.open(size(900, 8_000), gated, alone)
	d.rush()
	d.more(200)

	lose := size(5, 20) // after each loss a settler pauses for longer
	for _, p := range links {
		p.LoseReplyTo("COMMIT", lose)
	}
	for tries := 0; min(links[0].Lost(), links[1].Lost()) < int64(lose); tries++ {
		if tries == feltTries {
			d.FatalSlowf("%d and %d commits lost their replies, want %d each", links[0].Lost(), links[1].Lost(), lose)
		}
		d.more(50)
	}
	silent := time.Now()
	for _, p := range links {
		p.LoseReplies()
	}
	d.more(size(20, 500))
	queued := slices.DeleteFunc(d.soFar(), func(a shop.Attempt) bool {
		return a.Status != http.StatusAccepted || a.Answered.Before(silent)
	})
	for _, p := range links {
		p.Restore()
	}
	d.more(200)
	d.stop(mostAnswers...)
	longest, _ := slowest(queued)
	if len(queued) == 0 || longest > fast {
		d.Slowf("while the database was silent %d heard that they are queued, the last after %s", len(queued), longest)
	}
	// A settle that lost a reply logs it. Without that line the row has shown nothing.
	if log := gated.Log.String(); !strings.Contains(log, "a batch can't be settled; it is tried again") {
		d.Slowf("no settle has lost the reply to its commit: %s", log)
	}

	orders, err := d.books.orders(d.Context(), d.sale)
	d.ok(err)
	idOf := map[string]string{}
	for _, w := range orders {
		idOf[w.user] = w.id
	}
	d.retire(alone)
	refused, had := 0, 0
	for _, a := range slices.Clone(d.attempts) {
		if a.Status != http.StatusServiceUnavailable {
			continue
		}
		refused++
		again := d.buy(a.User, a.Key, gated.URL)
		d.attempts = append(d.attempts, again)
		if id, ok := idOf[a.User]; ok {
			had++
			if !again.Confirmed() || again.OrderID != id {
				d.wrong(again.Status)("%s has order %s, asks again under the same key and is told %+v", a.User, id, again)
			}
		}
	}
	d.finish("%d replies lost; %d of %d buyers who heard 503 had an order, and found it under their keys; 202 within %s; %s",
		links[0].Lost()+links[1].Lost(), had, refused, ms(longest), tally(d.attempts))
}

// lockedAndDeadlocked runs other sessions on the engine's tables: one that holds the lock on the stock row, and some
// that lock the stock first and then its buyers, against the engine's order.
func lockedAndDeadlocked(d *drill) {
	root := d.ownDatabase().Root(d)
	d.open(size(1_000, 8_000), d.Start(), d.Start())
	d.rush()
	d.more(300)
	for range size(1, 10) {
		d.whileLocked(d.sale, func(tx *sql.Tx) {
			_, err := tx.ExecContext(d.Context(), "DO SLEEP(2)")
			d.ok(err)
		})
		d.more(100)
	}
	victims := d.deadlocks(root, size(3, 30))
	d.more(200)
	all := d.stop("201", "202", "409 sold_out")
	longest, p99 := slowest(d.attempts)
	if p99 > 2*fast {
		d.Slowf("the slowest in a hundred waited %s", p99)
	}
	d.finish("%d deadlocks that the engine lost; p99 %s, longest %s; %s", victims, ms(p99), ms(longest), all)
}

// deadlocks provokes deadlocks until the engine has been the victim of so many, and returns their number.
func (d *drill) deadlocks(root *sql.DB, victims int) (lost int) {
	d.Helper()
	counter := func() int {
		n, err := d.status(root, "Innodb_deadlocks")
		d.ok(err)
		return n
	}
	d.execute(d.books.db, "CREATE TABLE ballast (n INT PRIMARY KEY) ENGINE=InnoDB")
	before, ours := counter(), 0
	for range feltTries {
		if lost = counter() - before - ours; lost >= victims {
			return lost
		}
		d.whileLocked(d.sale, func(tx *sql.Tx) {
			// InnoDB rolls back the lighter transaction of a deadlock: this one has changed more rows than a batch
			// does.
			_, err := tx.ExecContext(d.Context(), "INSERT INTO ballast SELECT seq FROM seq_1_to_5000")
			d.ok(err)
			d.until(recoveryTime, "a settle waits for the stock", func() (bool, error) { return d.waiting(root) })
			var n int
			err = tx.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM buyers WHERE sale_id = ? FOR UPDATE", d.sale).Scan(&n)
			if refusedWith(err, 1213) {
				ours++
			} else {
				d.ok(err)
			}
		})
	}
	d.FatalSlowf("the engine lost %d deadlocks, the drill %d; want %d lost by the engine", lost, ours, victims)
	return lost
}

// waiting reports whether a transaction waits for a lock of another.
func (d *drill) waiting(root *sql.DB) (bool, error) {
	waits, err := d.status(root, "Innodb_row_lock_current_waits")
	return waits > 0, err
}

func diskFull(d *drill) {
	db, fill, free := smallDisk(d)
	d.useStores(db.NewDatabase(d), kit.Redis(d))
	gated, alone := d.gatedAndAlone()
	d.open(size(1_000, 8_000), gated, alone)
	d.rush()
	d.more(200)
	fill()
	// The first inserts still fit: they use the free space in the tables' files.
	filled := time.Now()
	for tries := 0; shop.Tally(d.since(filled))["503 unavailable"] < 20; tries++ {
		if tries == feltTries {
			d.FatalSlowf("nobody heard of the full disk: %s", tally(d.soFar()))
		}
		d.more(50)
	}
	from := time.Now()
	d.more(size(200, 2_000))
	meanwhile := d.since(from)
	free()
	held := "MariaDB held out"
	if !db.Running() { // "Out of disk space in rollback" is fatal to InnoDB; in production a supervisor restarts it
		held = "MariaDB gave up and was started again"
		db.Restart()
	}
	d.more(size(200, 2_000))
	all := d.stop(mostAnswers...)
	d.retire(alone)
	d.finish("%s; with a full disk: %s; in all: %s", held, tally(meanwhile), all)
}

// smallDisk starts a server whose disk can be made full. In the full form the disk is a tmpfs of 120 MB of its own,
// which takes root, and a file fills it. The short form needs no root: a resource limit makes the kernel refuse the
// server any write past a file's first 16 MB. Old orders fill the table of orders up to there, so that the next order
// gets the same error.
func smallDisk(d *drill) (db *kit.MariaDBServer, fill, free func()) {
	d.Helper()
	if !full {
		signal.Ignore(syscall.SIGXFSZ) // inherited by the server, whose writes past the limit then return an error
		db = kit.MariaDB(d)
		signal.Reset(syscall.SIGXFSZ)
		limit := func(most string) { d.command("prlimit", "--pid", strconv.Itoa(db.PID()), "--fsize="+most+":") }
		fill = func() {
			limit("16777216")
			d.fillOrders()
		}
		return db, fill, func() { limit("unlimited") }
	}
	disk, err := os.MkdirTemp("", "drill-")
	d.ok(err)
	d.Cleanup(func() { _ = os.Remove(disk) })
	// This takes root.
	d.command("mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", disk)
	d.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "umount", disk).CombinedOutput(); err != nil {
			d.Errorf("unmount %s: %v: %s", disk, err, out)
		}
	})
	filler := filepath.Join(disk, "filler")
	return kit.MariaDBIn(d, disk), func() { d.fillDisk(filler) }, func() { d.ok(os.Remove(filler)) }
}

func (d *drill) command(name string, args ...string) {
	d.Helper()
	if out, err := exec.CommandContext(d.Context(), name, args...).CombinedOutput(); err != nil {
		d.Fatalf("%s: %v: %s", name, err, out)
	}
}

// fillDisk writes a file until the disk is full.
func (d *drill) fillDisk(path string) {
	d.Helper()
	file, err := os.Create(path)
	d.ok(err)
	defer func() { _ = file.Close() }()
	for piece := make([]byte, 1<<16); err == nil; {
		_, err = file.Write(piece)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.Fatalf("fill the disk: %v", err)
	}
}

// fillOrders adds orders of an old sale until the table is full.
func (d *drill) fillOrders() {
	d.Helper()
	added := 0
	for _, rows := range []int{1000, 100, 10, 1} { // smaller and smaller steps
		var err error
		for ; err == nil; added += rows {
			_, err = d.books.db.ExecContext(d.Context(), `INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents,
				currency, status, source, epoch, idempotency_key, created_at_ms, expires_at_ms) SELECT CONCAT('PAST', LPAD(seq + ?, 44, '0')), 'PAST',
				CONCAT('u', seq + ?), 1, 100, 'CNY', 'expired', 'stream', 1, REPEAT('k', 128), 0, 0 FROM seq_1_to_1000 LIMIT ?`, added, added, rows)
		}
		if !refusedWith(err, 1114) {
			d.Fatalf("fill the orders: %v", err)
		}
	}
}

// connectionsTaken lets other clients take every connection of MySQL, also those that the engine had.
func connectionsTaken(d *drill) {
	root := d.ownDatabase().Root(d)
	gated, alone := d.gatedAndAlone()
	d.open(size(800, 7_000), gated, alone)
	d.rush()
	d.more(200)

	d.execute(root, "SET GLOBAL max_connections = 20")
	admin, err := root.Conn(d.Context())
	d.ok(err)
	var others []*sql.Conn
	d.until(recoveryTime, "others have every connection", func() (bool, error) {
		left, err := d.disconnect(admin)
		if err == nil && left == 0 && len(others) >= 19 { // the administrator has the twentieth
			return true, nil
		}
		for err == nil {
			var c *sql.Conn
			if c, err = root.Conn(d.Context()); err == nil {
				others = append(others, c)
			}
		}
		if refusedWith(err, 1040) {
			err = nil
		}
		return false, err
	})
	from := time.Now()
	d.more(size(200, 2_000))
	meanwhile := d.since(from)
	for _, c := range append(others, admin) {
		_ = c.Close() // whether or not the connection still works
	}
	d.more(size(200, 2_000))
	all := d.stop(mostAnswers...)
	d.told(meanwhile, "202", "503 unavailable")
	longest, p99 := slowest(meanwhile)
	if p99 > fast {
		d.Slowf("the slowest in a hundred waited %s for a no", p99)
	}
	d.retire(alone)
	d.finish("without a connection: %s, p99 %s, longest %s; in all: %s", tally(meanwhile), ms(p99), ms(longest), all)
}

// disconnect ends the connections of the engine's user and returns how many there were.
func (d *drill) disconnect(admin *sql.Conn) (n int64, err error) {
	killed, err := admin.ExecContext(d.Context(), "KILL USER "+d.databaseURL().User.Username())
	if err != nil {
		return 0, err
	}
	return killed.RowsAffected()
}

// poolsTooLarge has so many buyers list their orders that each instance needs more connections than MySQL allows.
func poolsTooLarge(d *drill) {
	root := d.ownDatabase().Root(d)
	gated, alone := d.gatedAndAlone("--db-max-conns", "64")
	d.sell(size(800, 8_000), gated, alone)
	admin, err := root.Conn(d.Context())
	d.ok(err)
	defer func() { _ = admin.Close() }()
	d.execute(root, "SET GLOBAL max_connections = 20")
	_, err = d.disconnect(admin)
	d.ok(err)
	d.watched = d.watch(d.sale)
	var mu sync.Mutex
	answers, longest := map[int]int{}, time.Duration(0)
	stopLooking := d.meanwhile(2*crowd, time.Millisecond, func(buyer, _ int) {
		start := time.Now()
		status, _, err := d.Call(http.MethodGet, d.urls[buyer%2]+"/api/v1/orders", d.Token("looker"), nil)
		if err != nil {
			d.Slowf("%v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		answers[status]++
		longest = max(longest, time.Since(start))
	})
	d.rush()
	d.more(size(500, 5_000))
	d.pause()
	stopLooking()
	all := d.stop(mostAnswers...)
	for answer, n := range answers {
		if answer != http.StatusOK && answer != http.StatusServiceUnavailable {
			d.wrong(answer)("%d who looked at their orders heard %d", n, answer)
		}
	}
	short := answers[http.StatusServiceUnavailable]
	if short == 0 {
		d.Slowf("nobody felt the lack of connections: %v", answers)
	}
	if wait, _ := slowest(d.attempts); max(longest, wait) > 2*fast {
		d.Slowf("somebody waited %s", max(longest, wait))
	}
	d.retire(alone)
	// The fault ends here. Otherwise the remaining instance could hold every connection, and the books could not be
	// read.
	_, err = admin.ExecContext(d.Context(), "SET GLOBAL max_connections = 500")
	d.ok(err)
	d.finish("%d looks at orders, %d × 503, longest %s; %s", answers[http.StatusOK]+short, short, ms(longest), all)
}
