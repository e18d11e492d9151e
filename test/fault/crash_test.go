package fault

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// crashRows are faults of the engine's own processes, and of the entries that they read from the stream.
var crashRows = slices.Concat(
	deaths(diesSelling, "the app is killed",
		death{admitted, "after the admit"}, death{"committed", "after the commit"}, death{"acknowledging", "before the acknowledgement"}),
	deaths(diesRebuilding, "the app is killed in a rebuild,",
		death{"epoch", "after the epoch"}, death{"closed", "after the close"}, death{"measured", "after measuring the stream"},
		death{"contents", "after its snapshot of the database"}, death{"staged", "when half is staged"}, death{"installed", "after the install"}),
	[]row{
		{13, "the app is killed within a second of Redis's return", "another one repairs the gate, without traffic", diesAnywhere},
		{13, "the app is killed when it has sold without its Redis", "another one tells the gate", diesHavingSold},
		{13, "the app is killed when orders are cancelled, before it tells the gate", "another one tells the gate", diesReleasing},
		{13, "the app is killed when money was sent back, before it notes that", "noted later; the money goes back once", diesRefunding},
		{14, "entries are delivered twice", "no double order; claimed", deliveredTwice},
		{14, "a consumer stands still", "its entries are claimed; no double order when it goes on", slowConsumer},
		{14, "an instance stands still while it locks the stock row", "MySQL gives up on it; the others sell on", frozenWithTheStock},
		{14, "poisoned entries", "deleted, or refused for good; others are settled", poisonedEntries},
	},
)

// admitted is the failpoint after the gate has admitted an attempt, whose buyer waits at this instance. The other points
// may be passed for entries of another instance's buyers alone, or when all buyers have their answers.
const admitted = "admitted"

// death is a failpoint of app, and where it lies in words.
type death struct{ point, where string }

// deaths returns one row for each failpoint.
func deaths(run func(d *drill, point string), fault string, points ...death) (rows []row) {
	for _, p := range points {
		rows = append(rows, row{13, fault + " " + p.where, "goes on without it, or after a restart", func(d *drill) { run(d, p.point) }})
	}
	return rows
}

// mortal starts an instance that exits at the nth pass of a failpoint.
func mortal(s *shop.Shop, point string, n int) *shop.Instance {
	return s.StartWith([]string{fmt.Sprintf("FLASHSALE_FAILPOINT=%s:%d", point, n)})
}

// dead waits until an instance has exited, and returns the time.
func (d *drill) dead(i *shop.Instance) time.Time {
	d.Helper()
	select {
	case <-i.Exited():
	case <-time.After(time.Minute):
		d.Errorf("the instance has not met its failpoint: %s", i.Log)
	}
	return time.Now()
}

// repaired waits until the gate agrees with the database: the gate is open, nothing is in flight, and it has as many
// units left as are available. It sends no request to the engine. since is the time from which an instance could repair
// the gate.
func (d *drill) repaired(s *shop.Shop, sale string, since time.Time) {
	d.Helper()
	client := d.client(s.Redis)
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer books.close()
	gate := "fs:{" + sale + "}:gate"
	d.until(repairTime-time.Since(since), "the gate is repaired", func() (bool, error) {
		fields, err := client.HMGet(d.Context(), gate, "open", "left", "inflight").Result()
		if err != nil {
			return false, err
		}
		b, err := books.balance(d.Context(), sale)
		if err != nil {
			return false, err
		}
		queued, err := client.XLen(d.Context(), streamOf(sale)).Result()
		return fields[0] == "1" && fields[1] == fmt.Sprint(b.available) && fields[2] == "0" && queued == 0, err
	})
	d.result.Repair = time.Since(since)
}

// askAgain lets the buyers whose connection broke before a moment repeat their requests under the same keys. Each must
// get an order: the first request's order, if that made one.
func (d *drill) askAgain(s *shop.Shop, sale string, attempts []shop.Attempt, until time.Time, url string) (again []shop.Attempt) {
	d.Helper()
	for _, a := range attempts {
		if a.Status == 0 && a.Invoked.Before(until) {
			a = shop.Attempt{User: a.User, Key: a.Key, URL: url}
			s.Buy(&a, sale)
			again = append(again, a)
		}
	}
	d.told(again, "201", "202")
	return again
}

// diesSelling kills one of two instances under load; the other instance settles what the dead one has left.
func diesSelling(d *drill, point string) {
	s := shop.New(d)
	s.Binary = shop.Build(d, "-tags", "failpoints")
	survivor := s.Start()
	quota := size(800, 10_000)
	sale := s.Sale(survivor.URL, quota)
	books := d.watch(s, sale)
	doomed := mortal(s, point, size(10, 200))
	load := d.rush(s, sale, doomed.URL, survivor.URL)
	died := d.dead(doomed)
	load.more(size(200, 2_000), time.Minute)
	attempts := load.stop()
	d.repaired(s, sale, time.Now())
	again := d.askAgain(s, sale, attempts, died, survivor.URL)
	if len(again) == 0 && point == admitted {
		d.Error("nobody's connection broke")
	}
	attempts = append(attempts, again...)
	books()
	d.told(attempts, "0", "201", "202")
	d.result.Happened = fmt.Sprintf("%d whose connection broke asked again: %s; in all: %s", len(again), d.tally(again), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, survivor.URL)
}

// diesRebuilding restarts Redis empty and kills the only instance while it rebuilds the gate. Then another instance is
// started.
func diesRebuilding(d *drill, point string) {
	s := shop.New(d)
	s.Binary = shop.Build(d, "-tags", "failpoints")
	first := s.Start()
	quota := size(900, 13_000)
	sale := s.Sale(first.URL, quota) // first installs its first gate, so that doomed meets its failpoint in the rebuild
	first.Stop()
	books := d.watch(s, sale)
	doomed := mortal(s, point, 1)
	// Slow enough that units are left when the instance dies: a gate is rebuilt at most once a second.
	slowly := manner{every: 2 * time.Millisecond, to: func(int) string { return doomed.URL }}
	load := d.rushAs(s, sale, slowly)
	load.more(size(200, 5_000), time.Minute)
	s.Redis.Kill()
	s.Redis.Restart()
	died := d.dead(doomed)
	attempts := load.stop()
	next := s.Start()
	d.repaired(s, sale, time.Now())
	again := d.askAgain(s, sale, attempts, died, next.URL)
	load = d.rush(s, sale, next.URL)
	load.more(size(200, 5_000), time.Minute)
	attempts = slices.Concat(attempts, again, load.stop())
	books()
	d.told(attempts, "0", "201", "202")
	d.result.Happened = fmt.Sprintf("%d whose connection broke asked again: %s; in all: %s", len(again), d.tally(again), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, next.URL)
}

// diesAnywhere restarts Redis empty under load and kills the only instance at a random moment within the next second.
func diesAnywhere(d *drill) {
	s := shop.New(d)
	doomed := s.Start()
	quota := size(900, 13_000)
	sale := s.Sale(doomed.URL, quota)
	books := d.watch(s, sale)
	load := d.rushAs(s, sale, manner{every: 2 * time.Millisecond, to: func(int) string { return doomed.URL }})
	load.more(size(200, 2_000), time.Minute)
	s.Redis.Kill()
	s.Redis.Restart()
	after := rand.N(time.Second)
	time.Sleep(after) // a random moment, which no event announces
	doomed.Kill()
	died := time.Now()
	attempts := load.stop()
	next := s.Start()
	d.repaired(s, sale, time.Now())
	attempts = append(attempts, d.askAgain(s, sale, attempts, died, next.URL)...)
	books()
	d.told(attempts, "0", "201", "202")
	d.result.Happened = fmt.Sprintf("killed after %s; %s", after.Round(time.Millisecond), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, next.URL)
}

// diesHavingSold cuts one of two instances off from Redis, lets it sell without the gate, and kills it. The other
// instance has to read these orders from the database and bring them to the gate.
func diesHavingSold(d *drill) {
	s := shop.New(d)
	link := d.proxy(s.Redis.Addr())
	survivor, doomed := s.Start(), s.Start("--redis", link.RedisURL())
	quota := size(600, 3_000)
	sale := s.Sale(survivor.URL, quota)
	books := d.watch(s, sale)
	link.Cut()
	load := d.rush(s, sale, doomed.URL)
	load.more(size(200, 2_000), time.Minute)
	doomed.Kill()
	died := time.Now()
	attempts := load.stop()
	d.repaired(s, sale, died)
	attempts = append(attempts, d.askAgain(s, sale, attempts, died, survivor.URL)...)
	books()
	d.told(attempts, "0", "201", "202", "409 sold_out", "503 unavailable")
	d.result.Happened = fmt.Sprintf("sold past the gate: %s", d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, survivor.URL)
}

// diesReleasing cancels orders through an instance that dies just before it brings the first release to the gate.
func diesReleasing(d *drill) {
	s := shop.New(d)
	s.Binary = shop.Build(d, "-tags", "failpoints")
	survivor := s.Start()
	quota := size(100, 500)
	sale := s.Sale(survivor.URL, quota)
	attempts := s.Rush(sale, "first", quota, nil, survivor.URL)
	d.told(attempts, "201", "202")
	doomed := mortal(s, "changed", 1)
	cancelled := 0
	for _, a := range attempts {
		if status, _, err := s.Call(http.MethodDelete, doomed.URL+"/api/v1/orders/"+a.OrderID, s.Token(a.User), nil); err != nil {
			break
		} else if status != http.StatusOK {
			d.Errorf("cancel: %d", status)
		}
		cancelled++
	}
	died := d.dead(doomed)
	d.repaired(s, sale, died)
	// The order whose cancellation got no answer is cancelled as well: the transaction had committed.
	fresh := s.Rush(sale, "fresh", quota, nil, survivor.URL)
	bought := 0
	for _, a := range fresh {
		if a.Confirmed() {
			bought++
		}
	}
	if bought != cancelled+1 {
		d.Errorf("%d were cancelled and %d sold again", cancelled+1, bought)
	}
	d.result.Happened = fmt.Sprintf("killed at the first cancel; then %s", d.tally(fresh))
	s.Books(sale)
	s.Audited(survivor.URL, sale)
}

// diesRefunding kills the only instance after the provider's refund and before the instance stores it.
func diesRefunding(d *drill) {
	s := shop.New(d)
	s.Binary = shop.Build(d, "-tags", "failpoints")
	doomed := mortal(s, "refunded", 1)
	sale := s.Sale(doomed.URL, 1)
	buyer := s.Rush(sale, "buyer", 1, nil, doomed.URL)[0]
	payment := s.Must(http.StatusCreated, "POST", doomed.URL+"/api/v1/orders/"+buyer.OrderID+"/payments", s.Token(buyer.User), nil)
	address, _ := payment["pay_url"].(string)
	request, err := http.NewRequestWithContext(d.Context(), http.MethodPost, address, strings.NewReader("choice=pay"))
	if err != nil {
		d.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.Fatal(err)
	}
	_ = response.Body.Close()
	paid := func(url string) (bool, error) { return d.orderStatus(s, url, buyer) == "paid", nil }
	d.until(recoveryTime, "the order is paid", func() (bool, error) { return paid(doomed.URL) })
	s.Must(http.StatusOK, "POST", doomed.URL+"/api/v1/admin/orders/"+buyer.OrderID+"/refund", s.Operator(doomed.URL), nil)
	d.dead(doomed)

	next := s.Start()
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer books.close()
	d.until(recoveryTime, "the refund is noted", func() (bool, error) {
		var noted int
		err := books.db.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM payments WHERE status = 'refunded'").Scan(&noted)
		return noted == 1, err
	})
	var charges, refunds int
	err = books.db.QueryRowContext(d.Context(), "SELECT COUNT(*), SUM(status = 'refunded') FROM sandbox_transactions").Scan(&charges, &refunds)
	if err != nil || charges != 1 || refunds != 1 {
		d.Errorf("the bank has %d transactions, %d refunded, %v", charges, refunds, err)
	}
	d.result.Happened = "noted by the next instance; the bank refunded the charge once"
	if again := s.Rush(sale, "next", 1, nil, next.URL)[0]; !again.Confirmed() {
		d.Errorf("the unit is not sold again: %d %s", again.Status, again.Code)
	}
	s.Audited(next.URL, sale)
}

// Names of the group and the stream, as redis-cli shows them.
const settlers = "settlers"

func streamOf(sale string) string { return "fs:{" + sale + "}:stream" }

// deliveredTwice adds a consumer to the group, which takes entries and never settles them. It adds each of these
// entries to the stream a second time at once, and a third time when all entries are settled.
func deliveredTwice(d *drill) {
	s := shop.New(d)
	a, b := s.Start(), s.Start()
	quota := size(800, 8_000)
	sale := s.Sale(a.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, a.URL, b.URL)
	client, stream := d.client(s.Redis), streamOf(sale)
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	var taken []redis.XMessage
	add := func(m redis.XMessage) {
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: m.Values}).Err(); err != nil {
			d.Fatal(err)
		}
	}
	// Redis serves a blocked client as soon as an entry is added, before the engine reads it.
	args := &redis.XReadGroupArgs{Group: settlers, Consumer: "thief", Streams: []string{stream, ">"}, Count: 10, Block: time.Second}
	for want := size(100, 2_000); len(taken) < want; {
		streams, err := client.XReadGroup(ctx, args).Result()
		if err != nil {
			d.Fatalf("after %d entries: %v", len(taken), err)
		}
		for _, m := range streams[0].Messages {
			taken = append(taken, m)
			add(m)
		}
	}
	load.more(200, time.Minute)
	attempts := load.stop()
	d.until(recoveryTime, "the entries taken away are claimed and settled", func() (bool, error) {
		n, err := client.XLen(ctx, stream).Result()
		return n == 0, err
	})
	for _, m := range taken {
		add(m)
	}
	books()
	d.told(attempts, "201", "202", "409 sold_out")
	d.result.Happened = fmt.Sprintf("%d entries taken away, and each added twice; %s", len(taken), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}

// slowConsumer freezes an instance that has unsettled entries, and continues it when the other instance has claimed
// them.
func slowConsumer(d *drill) {
	s := shop.New(d)
	a := s.Start()
	quota := size(800, 3_000)
	sale := s.Sale(a.URL, quota)
	books := d.watch(s, sale)
	client := d.client(s.Redis)
	attempts := s.Rush(sale, "first", 50, nil, a.URL)
	known := d.consumers(client, sale)
	b := s.Start()
	load := d.rush(s, sale, a.URL, b.URL)
	claimed := int64(0)
	for range size(1, 3) {
		load.more(200, time.Minute)
		d.until(recoveryTime, "it is frozen with entries in hand", func() (bool, error) {
			b.Signal(syscall.SIGSTOP)
			if claimed = d.inHand(client, sale, known); claimed > 0 {
				return true, nil
			}
			b.Signal(syscall.SIGCONT)
			return false, nil
		})
		d.until(recoveryTime, "the other has claimed them", func() (bool, error) { return d.inHand(client, sale, known) == 0, nil })
		b.Signal(syscall.SIGCONT)
	}
	load.more(200, time.Minute)
	attempts = append(attempts, load.stop()...)
	books()
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	d.result.Happened = fmt.Sprintf("%d entries were claimed from it at last; %s", claimed, d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}

// frozenWithTheStock freezes an instance between the last statement of a settle and its commit. Its locks keep the
// other instances from settling until MySQL ends the idle transaction.
func frozenWithTheStock(d *drill) {
	db := kit.MariaDB(d)
	s := shop.On(d, db.NewDatabase(d), kit.Redis(d))
	a, b := s.Start("--ack-wait", "300ms"), s.Start("--ack-wait", "300ms")
	quota := size(700, 3_000)
	sale := s.Sale(a.URL, quota)
	books := d.watch(s, sale)
	root := db.Root(d)
	others, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer others.close()

	frozen := make(chan []shop.Attempt, 1)
	d.transact(others.db, func(tx *sql.Tx) error {
		var available int
		if err := tx.QueryRowContext(d.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", sale).Scan(&available); err != nil {
			return err
		}
		go func() { frozen <- s.Rush(sale, "frozen", 10, nil, b.URL) }()
		d.until(recoveryTime, "its settle waits for the stock", func() (bool, error) { return d.waiting(root) })
		b.Signal(syscall.SIGSTOP)
		return nil // the rollback leaves the lock on the stock row to the frozen instance
	})
	stopped := time.Now()
	load := d.rush(s, sale, a.URL)
	// It waits for an order, not a 201: on a slow machine all units may be queued before MySQL ends the transaction.
	d.until(recoveryTime, "the other sells", func() (bool, error) {
		orders, err := others.orders(d.Context(), sale)
		return slices.ContainsFunc(orders, func(w written) bool { return !strings.HasPrefix(w.user, "frozen") }), err
	})
	stall := time.Since(stopped)
	b.Signal(syscall.SIGCONT)
	load.more(size(100, 1_000), time.Minute)
	attempts := append(load.stop(), <-frozen...)
	books()
	d.told(attempts, "201", "202", "409 sold_out")
	d.result.Happened = fmt.Sprintf("there was no order for %s; %s", stall.Round(100*time.Millisecond), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}

// consumers returns the consumers of a sale's stream, by name, with their numbers of pending entries.
func (d *drill) consumers(client *redis.Client, sale string) map[string]int64 {
	d.Helper()
	list, err := client.XInfoConsumers(d.Context(), streamOf(sale), settlers).Result()
	if err != nil {
		d.Fatal(err)
	}
	pending := map[string]int64{}
	for _, c := range list {
		pending[c.Name] = c.Pending
	}
	return pending
}

// inHand counts the pending entries of all consumers except the known ones.
func (d *drill) inHand(client *redis.Client, sale string, known map[string]int64) (n int64) {
	d.Helper()
	for name, pending := range d.consumers(client, sale) {
		if _, ok := known[name]; !ok {
			n += pending
		}
	}
	return n
}

// poisonedEntries adds to the stream entries that cannot be parsed, and entries that can be parsed but not settled: the
// database refuses their rows each time.
func poisonedEntries(d *drill) {
	s := shop.New(d)
	a, b := s.Start(), s.Start()
	quota := size(1_200, 5_000)
	sale := s.Sale(a.URL, quota)
	books := d.watch(s, sale)
	load := d.rush(s, sale, a.URL, b.URL)
	load.more(200, time.Minute)

	hash := model.HashRequest(1)
	id := func(sale, of string) string { return sale + of + strings.Repeat("A", model.OrderIDLength-len(sale+of)) }
	entry := func(id, quantity, hash, key string) []any {
		return []any{"attempt", strings.Join([]string{id, "poisoner", quantity, hash, "1", "nowhere", key}, " ")}
	}
	garbage := [][]any{
		{"x", "y"},
		{"attempt", ""},
		{"attempt", "\x00\xff"},
		{"attempt", strings.Repeat("x ", 1<<15)},
		entry(id(sale, "N"), "none", hash, "key"),
		entry(id(sale, "M"), "-1", hash, "key"),
		entry(id(strings.Repeat("B", model.IDLength), ""), "1", hash, "key"),
	}
	// These values fit no column. For some of these entries not even a refusal can be stored.
	poison := [][]any{
		entry(id(sale, "K"), "1", hash, strings.Repeat("k", 300)),
		entry(id(sale, "L"), "1", hash, "clé"),
		entry(id(sale, "Q"), "99999999999", hash, "key"),
		entry(id(sale, "H"), "1", strings.Repeat(hash, 2), "key"),
		entry(id(sale, "é"), "1", hash, "key"),
	}
	client, stream := d.client(s.Redis), streamOf(sale)
	begun := time.Now()
	for _, values := range slices.Concat(garbage, poison) {
		if err := client.XAdd(d.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Err(); err != nil {
			d.Fatal(err)
		}
	}
	ledger, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer ledger.close()
	var deleted, refused, orders int
	look := func() error {
		return ledger.db.QueryRowContext(d.Context(), `SELECT (SELECT COUNT(*) FROM operations WHERE subject = ? AND action = 'delete_entry'),
			(SELECT COUNT(*) FROM refusals WHERE sale_id = ? AND user_id = 'poisoner'), (SELECT COUNT(*) FROM orders WHERE user_id = 'poisoner')`,
			sale, sale).Scan(&deleted, &refused, &orders)
	}
	d.until(recoveryTime, "what nobody can read is deleted, and noted", func() (bool, error) {
		err := look()
		return deleted >= len(garbage), err
	})
	load.more(500, time.Minute)
	attempts := load.stop()
	books()
	// Such an entry is refused for good at its fifth delivery; a delivery comes some three seconds after the one
	// before.
	d.until(3*recoveryTime, "nothing is left in the stream", func() (bool, error) {
		n, err := client.XLen(d.Context(), stream).Result()
		return n == 0, err
	})
	took := time.Since(begun)
	if err := look(); err != nil {
		d.Fatal(err)
	}
	if orders > 0 || deleted+refused != len(garbage)+len(poison) {
		d.Errorf("of %d bad entries %d were deleted and %d refused, %d became orders", len(garbage)+len(poison), deleted, refused, orders)
	}
	d.told(attempts, "201", "202", "409 sold_out")
	d.result.Happened = fmt.Sprintf("%d deleted, %d refused for good, within %s; %s", deleted, refused, took.Round(time.Second), d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}
