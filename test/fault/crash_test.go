package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

// crashRows are faults of the engine's own processes, and of the entries that they read from the stream.
var crashRows = slices.Concat(
	deaths(diesSelling, "the app is killed",
		death{admitted, "after the admit"}, death{"after settle", "after the commit"}, death{"before acknowledge", "before the acknowledgement"}),
	deaths(diesRebuilding, "the app is killed in a rebuild,",
		death{"after next epoch", "after the epoch"}, death{"after close", "after the close"}, death{"after measure", "after measuring the stream"},
		death{"after read the contents", "after its snapshot of the database"}, death{"before stage the ids", "when half is staged"}, death{"after install", "after the install"}),
	[]row{
		{13, "the app is killed within a second of Redis's return", "another one repairs the gate, without traffic", func(d *drill) { diesRebuilding(d, "") }},
		{13, "the app is killed when it has sold without its Redis", "another one tells the gate", diesHavingSold},
		{13, "the app is killed when orders are cancelled, before it tells the gate", "another one tells the gate", diesReleasing},
		{13, "the app is killed when money was sent back, before it notes that", "noted later; the money goes back once", diesRefunding},
		{14, "entries are in the stream two or three times", "no double order", addedTwice},
		{14, "an instance stands still with entries in hand", "the other settles them; no double order when it goes on", slowInstance},
		{14, "an instance stands still while it locks the stock row", "MySQL gives up on it; the others sell on", frozenWithTheStock},
		{14, "poisoned entries", "deleted, or refused for good; others are settled", poisonedEntries},
	},
)

// admitted is the failpoint after the gate has admitted an attempt, whose buyer waits at this instance. The other points
// may be passed for entries of another instance's buyers alone, or when all buyers have their answers.
const admitted = "after admit"

// death is a failpoint of app, and where it lies in words.
type death struct{ point, where string }

// deaths returns one row for each failpoint.
func deaths(run func(d *drill, point string), fault string, points ...death) (rows []row) {
	for _, p := range points {
		rows = append(rows, row{13, fault + " " + p.where, "goes on without it, or after a restart", func(d *drill) { run(d, p.point) }})
	}
	return rows
}

// failpoints makes the instances run a build that can be made to die at a certain line.
func (d *drill) failpoints() { d.Binary = shop.Build(d, "-tags", "failpoints") }

// underLoad returns the pass of a failpoint at which an instance dies in the midst of its load. Acknowledgements are a tenth
// of a second apart.
func underLoad(point string) int {
	if point == "before acknowledge" {
		return size(3, 10)
	}
	return size(10, 200)
}

// mortal starts an instance that exits at the nth pass of a failpoint.
func (d *drill) mortal(point string, n int) *shop.Instance {
	return d.StartWith([]string{fmt.Sprintf("FLASHSALE_FAILPOINT=%s:%d", point, n)})
}

// dead waits until an instance has exited, and returns the time.
func (d *drill) dead(i *shop.Instance) time.Time {
	d.Helper()
	select {
	case <-i.Exited():
	case <-time.After(time.Minute):
		d.FatalSlowf("the instance has not met its failpoint: %s", i.Log)
	}
	return time.Now()
}

// repaired waits until the gate agrees with the database: the gate is open, nothing is in flight, and it has as many
// units left as are available. It sends no request to the engine. since is the time from which an instance could repair
// the gate.
func (d *drill) repaired(since time.Time) {
	d.Helper()
	client := d.client(d.Redis)
	d.until(repairTime-time.Since(since), "the gate is repaired", func() (bool, error) {
		fields, errGate := client.HMGet(d.Context(), gateKey(d.sale, "gate"), "open", "left", "extra").Result()
		b, errBooks := d.books.balance(d.Context(), d.sale)
		empty, errStream := d.streamEmpty(client)()
		want := []any{"1", fmt.Sprint(b.available), "0"}
		return empty && slices.Equal(fields, want), errors.Join(errGate, errBooks, errStream)
	})
	d.result.Repair = time.Since(since)
}

// successor ends a death: an instance repairs the gate, from the time since on. The buyers whose connection broke repeat
// their requests there under the same keys. Each must get an order: the first request's order, if that made one.
func (d *drill) successor(next *shop.Instance, died, since time.Time) (again []shop.Attempt) {
	d.Helper()
	d.pause()
	d.urls = []string{next.URL}
	d.repaired(since)
	for _, a := range d.attempts {
		if a.Status == 0 && a.Invoked.Before(died) {
			again = append(again, d.buy(a.User, a.Key, next.URL))
		}
	}
	d.told(again, "201", "202")
	d.attempts = append(d.attempts, again...)
	return again
}

// diesSelling kills one of two instances under load; the other instance settles what the dead one has left.
func diesSelling(d *drill, point string) {
	d.stores()
	d.failpoints()
	survivor := d.Start()
	d.open(size(800, 10_000), survivor)
	doomed := d.mortal(point, underLoad(point))
	d.rush(doomed.URL, survivor.URL)
	died := d.dead(doomed)
	d.more(size(200, 2_000))
	d.pause()
	again := d.successor(survivor, died, time.Now())
	if len(again) == 0 && point == admitted {
		d.Slowf("nobody's connection broke")
	}
	all := d.stop("0", "201", "202")
	d.finish("%d whose connection broke asked again: %s; in all: %s", len(again), tally(again), all)
}

// slowly lets so few buyers come to an instance that units are left when it dies: a gate is rebuilt at most once a
// second.
func (d *drill) slowly(to *shop.Instance) *load {
	return d.crowdAt(d.sale, manner{every: 2 * time.Millisecond, to: inTurn(to.URL)})
}

// diesRebuilding restarts Redis empty and kills the only instance while it rebuilds the gate, at a failpoint or, without
// one, at a random moment within the next second. Then another instance is started.
func diesRebuilding(d *drill, point string) {
	d.stores()
	d.failpoints()
	first := d.Start()
	d.open(size(1_500, 13_000), first) // first installs its first gate, so that doomed meets its failpoint in the rebuild
	first.Stop()
	doomed := d.mortal(point, 1)
	d.load = d.slowly(doomed)
	d.more(size(200, 5_000))
	d.Redis.Kill()
	d.Redis.Restart()
	back := time.Now()
	if point == "" {
		time.Sleep(rand.N(time.Second)) // a random moment, which no event announces
		doomed.Kill()
	}
	died := d.dead(doomed)
	d.pause()
	next := d.Start()
	again := d.successor(next, died, time.Now())
	d.rush()
	d.more(size(200, 5_000))
	all := d.stop("0", "201", "202")
	d.finish("killed after %s; %d whose connection broke asked again: %s; in all: %s", ms(died.Sub(back)), len(again), tally(again), all)
}

// diesHavingSold cuts one of two instances off from Redis, lets it sell without the gate, and kills it. The other
// instance has to read these orders from the database and bring them to the gate.
func diesHavingSold(d *drill) {
	d.stores()
	link := d.proxy(d.Redis.Addr())
	survivor, doomed := d.Start(), d.Start("--redis", link.RedisURL())
	d.open(size(600, 3_000), survivor)
	link.Cut()
	d.rush(doomed.URL)
	d.more(size(200, 2_000))
	doomed.Kill()
	died := time.Now()
	d.successor(survivor, died, died)
	d.finish("sold past the gate: %s", d.stop("0", "201", "202", "409 sold_out", "503 unavailable"))
}

// diesReleasing cancels orders through an instance that dies just before it brings the first release to the gate.
func diesReleasing(d *drill) {
	d.stores()
	d.failpoints()
	survivor := d.Start()
	d.sell(size(100, 500), survivor)
	attempts := d.Rush(d.sale, "first", d.quota, nil, survivor.URL)
	d.told(attempts, "201", "202")
	doomed := d.mortal("before tell the gate", 1)
	cancelled := 1 // the order whose cancellation gets no answer is cancelled as well: the transaction has committed
	for _, a := range slices.DeleteFunc(attempts, func(a shop.Attempt) bool { return !a.Confirmed() }) {
		answer := d.cancel(a, doomed.URL)
		if answer.Status == 0 {
			break // the instance has died
		}
		if answer.Status != http.StatusOK {
			d.wrong(answer.Status)("cancel: %d", answer.Status)
		}
		cancelled++
	}
	d.repaired(d.dead(doomed))
	fresh := d.Rush(d.sale, "fresh", d.quota, nil, survivor.URL)
	if bought := shop.Tally(fresh)["201 "]; bought != cancelled {
		failed := d.Errorf
		if bought < cancelled && undecided(fresh) {
			failed = d.Slowf
		}
		failed("%d were cancelled and %d sold again", cancelled, bought)
	}
	d.result.Happened = fmt.Sprintf("killed at the first cancel; then %s", tally(fresh))
	d.Books(d.sale)
	d.Audited(survivor.URL, d.sale)
}

// diesRefunding kills the only instance after the provider's refund and before the instance stores it.
func diesRefunding(d *drill) {
	d.stores()
	d.failpoints()
	doomed := d.mortal("before mark as refunded", 1)
	d.sell(1, doomed)
	buyer := d.Rush(d.sale, "buyer", 1, nil, doomed.URL)[0]
	d.mustBe(buyer.Confirmed(), buyer.Status, "the buyer was told %d %s", buyer.Status, buyer.Code)
	order := doomed.URL + "/api/v1/orders/" + buyer.OrderID
	payment := d.Must(http.StatusCreated, http.MethodPost, order+"/payments", d.Token(buyer.User), nil)
	_, err := ask(d.Context(), http.DefaultClient, http.MethodPost, text(payment, "pay_url"), strings.NewReader("choice=pay"),
		"Content-Type", "application/x-www-form-urlencoded")
	d.ok(err)
	d.until(recoveryTime, "the order is paid", func() (bool, error) { return d.orderStatus(doomed.URL, buyer) == "paid", nil })
	refund := doomed.URL + "/api/v1/admin/orders/" + buyer.OrderID + "/refund"
	d.Must(http.StatusOK, http.MethodPost, refund, d.Operator(doomed.URL), nil)
	d.dead(doomed)

	next := d.Start()
	d.until(recoveryTime, "the refund is noted", func() (bool, error) {
		noted, err := d.count("SELECT COUNT(*) FROM payments WHERE status = 'refunded'")
		return noted == 1, err
	})
	var charges, refunds int
	err = d.sql("SELECT COUNT(*), SUM(status = 'refunded') FROM sandbox_transactions").Scan(&charges, &refunds)
	if err != nil || charges != 1 || refunds != 1 {
		d.Errorf("the bank has %d transactions, %d refunded, %v", charges, refunds, err)
	}
	d.result.Happened = "noted by the next instance; the bank refunded the charge once"
	if again := d.Rush(d.sale, "next", 1, nil, next.URL)[0]; !again.Confirmed() {
		d.wrong(again.Status)("the unit is not sold again: %d %s", again.Status, again.Code)
	}
	d.Audited(next.URL, d.sale)
}

// addedTwice adds entries to the stream a second time as soon as they are there, and a third time when all are settled.
func addedTwice(d *drill) {
	d.stores()
	d.open(size(800, 15_000), d.Start(), d.Start())
	d.rush()
	client, stream := d.client(d.Redis), gateKey(d.sale, "stream")
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	add := func(m redis.XMessage) {
		d.ok(client.XAdd(d.Context(), &redis.XAddArgs{Stream: stream, Values: m.Values}).Err())
	}
	var seen []redis.XMessage
	copied := map[string]bool{}
	for last, want := "0", size(100, 2_000); len(seen) < want; {
		streams, err := client.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, last}, Count: 50, Block: time.Second}).Result()
		if errors.Is(err, redis.Nil) {
			continue // no entry came within a second
		}
		if err != nil {
			d.FatalSlowf("after %d entries: %v", len(seen), err)
		}
		for _, m := range streams[0].Messages {
			last = m.ID
			if text := fmt.Sprint(m.Values); !copied[text] { // the copies are read as well
				copied[text], seen = true, append(seen, m)
				add(m)
			}
		}
	}
	d.more(200)
	d.pause()
	d.until(recoveryTime, "all entries are settled", d.streamEmpty(client))
	for _, m := range seen {
		add(m)
	}
	d.finish("%d entries added two or three times; %s", len(seen), d.stop("201", "202", "409 sold_out"))
}

// slowInstance freezes an instance that has unsettled entries, and continues it when the other instance has settled them.
func slowInstance(d *drill) {
	d.stores()
	a := d.Start()
	d.open(size(800, 3_000), a)
	client := d.client(d.Redis)
	d.attempts = d.Rush(d.sale, "first", 50, nil, a.URL)
	known, err := client.HKeys(d.Context(), "fs:instances").Result()
	d.ok(err)
	b := d.Start()
	d.urls = append(d.urls, b.URL)
	inHand := func() (n int) { // the entries of b
		list, err := client.XRange(d.Context(), gateKey(d.sale, "stream"), "-", "+").Result()
		d.ok(err)
		for _, m := range list {
			if text, _ := m.Values["attempt"].(string); !slices.ContainsFunc(known, func(name string) bool { return strings.Contains(text, " "+name+" ") }) {
				n++
			}
		}
		return n
	}
	d.rush()
	left := 0
	for range size(1, 3) {
		d.more(200)
		d.until(recoveryTime, "it is frozen with entries in hand", func() (bool, error) {
			b.Signal(syscall.SIGSTOP)
			if left = inHand(); left > 0 {
				return true, nil
			}
			b.Signal(syscall.SIGCONT)
			return false, nil
		})
		d.until(recoveryTime, "the other has settled them", func() (bool, error) { return inHand() == 0, nil })
		b.Signal(syscall.SIGCONT)
	}
	d.more(200)
	// An instance that was frozen for longer than its time-outs closes connections without an answer.
	all := d.stop("0", "201", "202", "409 sold_out", "503 unavailable")
	d.finish("the other settled %d entries of it at last; %s", left, all)
}

// frozenWithTheStock freezes an instance that sells by the database alone, between the last statement of a transaction
// and its commit. Its locks keep the other instance from settling until MySQL ends the idle transaction.
func frozenWithTheStock(d *drill) {
	root := d.ownDatabase().Root(d)
	a, b := d.Start("--ack-wait", "300ms"), d.Start("--strategy", "optimistic")
	d.open(size(700, 3_000), a, b)
	frozen := make(chan []shop.Attempt, 1)
	d.whileLocked(d.sale, func(*sql.Tx) {
		go func() { frozen <- d.Rush(d.sale, "frozen", 10, nil, b.URL) }()
		d.until(recoveryTime, "it waits for the stock", func() (bool, error) { return d.waiting(root) })
		b.Signal(syscall.SIGSTOP)
	}) // the rollback leaves the lock on the stock row to the frozen instance
	stopped := time.Now()
	d.rush(a.URL)
	// It waits for an order, not a 201: on a slow machine all units may be queued before MySQL ends the transaction.
	d.until(recoveryTime, "the other sells", func() (bool, error) {
		sold, err := d.count("SELECT COUNT(*) FROM orders WHERE sale_id = ? AND user_id NOT LIKE 'frozen%'", d.sale)
		return sold > 0, err
	})
	stall := time.Since(stopped)
	b.Signal(syscall.SIGCONT)
	d.more(size(100, 1_000))
	d.attempts = <-frozen
	all := d.stop("201", "202", "409 sold_out", "503 unavailable")
	d.retire(b) // which is slow, because its strategy loses most races
	d.finish("there was no order for %s; %s", stall.Round(100*time.Millisecond), all)
}

// poisonedEntries adds to the stream entries that cannot be parsed, and entries that can be parsed but not settled: the
// database refuses their rows each time.
func poisonedEntries(d *drill) {
	d.stores()
	d.open(size(1_200, 5_000), d.Start(), d.Start())
	d.rush()
	d.more(200)

	id := func(sale, of string) string { return sale + of + strings.Repeat("A", model.OrderIDLength-len(sale+of)) }
	entry := func(id, quantity, key string) []any {
		return []any{"attempt", strings.Join([]string{id, "poisoner", quantity, "1", "nowhere", key}, " ")}
	}
	garbage := [][]any{
		{"x", "y"},
		{"attempt", ""},
		{"attempt", "\x00\xff"},
		{"attempt", strings.Repeat("x ", 1<<15)},
		entry(id(d.sale, "N"), "none", "key"),
		entry(id(d.sale, "M"), "-1", "key"),
		entry(id(strings.Repeat("B", model.IDLength), ""), "1", "key"),
	}
	// These values fit no column. For some of these entries not even a refusal can be stored.
	poison := [][]any{
		entry(id(d.sale, "K"), "1", strings.Repeat("k", 300)),
		entry(id(d.sale, "L"), "1", "clé"),
		entry(id(d.sale, "Q"), "99999999999", "key"),
		entry(id(d.sale, "é"), "1", "key"),
	}
	client := d.client(d.Redis)
	begun := time.Now()
	for _, values := range slices.Concat(garbage, poison) {
		d.ok(client.XAdd(d.Context(), &redis.XAddArgs{Stream: gateKey(d.sale, "stream"), Values: values}).Err())
	}
	var deleted, refused, orders int
	look := func() error {
		// A deletion may be recorded twice. The record begins with the entry's id.
		return d.sql(`SELECT (SELECT COUNT(DISTINCT SUBSTRING_INDEX(detail, ' ', 1)) FROM audit_log WHERE subject = ? AND action = 'delete_entry'),
			(SELECT COUNT(*) FROM refusals WHERE sale_id = ? AND user_id = 'poisoner'),
			(SELECT COUNT(*) FROM orders WHERE user_id = 'poisoner')`, d.sale, d.sale).Scan(&deleted, &refused, &orders)
	}
	d.until(recoveryTime, "what nobody can read is deleted, and noted", func() (bool, error) {
		err := look()
		return deleted >= len(garbage), err
	})
	d.more(500)
	// By these entries the gate's units do not add up, so the auditor may replace it. For that moment the database answers, and its
	// "sold out" is not final for a key that the gate may have admitted.
	all := d.stop("201", "202", "409 sold_out", "503 unavailable")
	// Such an entry is refused for good at its fifth delivery; a delivery comes some three seconds after the one
	// before.
	d.until(3*recoveryTime, "nothing is left in the stream", d.streamEmpty(client))
	took := time.Since(begun)
	d.ok(look())
	if bad := len(garbage) + len(poison); orders > 0 || deleted+refused != bad {
		d.Errorf("of %d bad entries %d were deleted and %d refused, %d became orders", bad, deleted, refused, orders)
	}
	d.finish("%d deleted, %d refused for good, within %s; %s", deleted, refused, took.Round(time.Second), all)
}
