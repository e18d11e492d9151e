package fault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// marathonRows are rows with a long run.
var marathonRows = []row{
	{30, "marathon: random faults of all parts, one after the other and two at once", "nothing lost, doubled or over; the rest is sold", marathon},
}

// marathonPace is the time between two buyers.
var marathonPace = span(10*time.Millisecond, 5*time.Millisecond)

const (
	marathonInstances = 3
	// marathonPays: one in so many confirmed orders is paid, until half of the quota is.
	marathonPays = 20
)

// fault is a fault of a part, which has a begin and an end.
type fault struct {
	part  string // a part has one fault at a time
	name  string
	begin func()
	end   func()
}

// episode is a pause, and then faults that last for some time.
type episode struct {
	pause, lasts time.Duration
	faults       []int
}

// schedule draws episodes from a seed until they fill a time. Each has one fault, or two of different parts. Adjacent
// faults with the same name, such as those of several instances, count as one kind, of which one is drawn.
func schedule(seed uint64, total, longestPause, longest time.Duration, faults []fault) (list []episode) {
	rng := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	var kinds [][]int
	for i, f := range faults {
		if last := len(kinds) - 1; last < 0 || faults[kinds[last][0]].name != f.name {
			kinds = append(kinds, nil)
		}
		kinds[len(kinds)-1] = append(kinds[len(kinds)-1], i)
	}
	draw := func() int {
		kind := kinds[rng.IntN(len(kinds))]
		return kind[rng.IntN(len(kind))]
	}
	for filled := time.Duration(0); filled < total; {
		e := episode{pause: between(longestPause/4, longestPause), lasts: between(longest/10, longest)}
		e.faults = []int{draw()}
		if second := draw(); rng.IntN(3) == 0 && faults[second].part != faults[e.faults[0]].part {
			e.faults = append(e.faults, second)
		}
		slices.Sort(e.faults)
		list = append(list, e)
		filled += e.pause + e.lasts
	}
	return list
}

// marathonSeed returns the seed of DRILL_SEED, or a new one.
func marathonSeed(d *drill) uint64 {
	text, given := os.LookupEnv("DRILL_SEED")
	if !given || text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		d.Fatalf("DRILL_SEED: %v", err)
	}
	return seed
}

// marathon runs three instances for a long time while random parts fail. Whenever a buyer is told that the sale is sold
// out, another buyer cancels an order, so that the sale stays at its last units.
func marathon(d *drill) {
	seed := marathonSeed(d)
	db, redis := kit.MariaDB(d), kit.Redis(d)
	s := shop.On(d, db.NewDatabase(d), redis)
	faults := []fault{
		{"MariaDB", "MariaDB killed", db.Kill, db.Restart},
		{"MariaDB", "MariaDB frozen", db.Stop, db.Continue},
		{"Redis", "Redis killed", redis.Kill, redis.Restart},
		{"Redis", "Redis frozen", redis.Stop, redis.Continue},
		{"Redis", "Redis wiped", func() { d.tell(d.client(redis), "FLUSHALL") }, func() {}},
	}
	m := &runners{d: d, shop: s, quota: int64(size(400, 4_000))}
	var deaths, cuts []fault
	for i := range marathonInstances {
		link := d.proxy(redis.Addr())
		instance := m.start(i, link.RedisURL())
		deaths = append(deaths, fault{fmt.Sprint("instance ", i), "an instance killed", func() { instance.Kill() }, func() { instance = m.start(i, link.RedisURL()) }})
		cuts = append(cuts, fault{fmt.Sprint("link ", i), "an instance cut off from Redis", link.Cut, link.Restore})
	}
	faults = slices.Concat(faults, cuts, deaths) // they end in this order: an instance needs all other parts
	m.sale = s.SaleToPay(m.address(0), int(m.quota), 3600)
	episodes := schedule(seed, span(12*time.Second, 10*time.Minute), span(time.Second, 4*time.Second), span(1500*time.Millisecond, 8*time.Second), faults)
	note := fmt.Sprintf("DRILL_SEED=%d repeats these faults", seed)
	d.Log(note)
	progress(note)

	books := d.watch(s, m.sale)
	load := d.rushAs(s, m.sale, manner{every: marathonPace, to: m.address, then: m.goOn})
	counts := map[string]int{}
	for _, e := range episodes {
		d.pass(e.pause)
		for _, i := range e.faults {
			counts[faults[i].name]++
			d.Logf("%s for %s", faults[i].name, e.lasts.Round(time.Millisecond))
			faults[i].begin()
		}
		d.pass(e.lasts)
		for _, i := range e.faults {
			faults[i].end()
		}
	}
	attempts := load.stop()
	books()
	d.recovered(s, m.sale, m.quota, attempts, m.address(0), m.address(1), m.address(2))
	m.check()
	d.result.Happened = fmt.Sprintf("seed %d; %s; %s; %d cancelled, %d paid", seed, listed(counts), d.tally(attempts), m.count(toCancel), m.count(toPay))
}

// pass waits for a time of the schedule.
func (d *drill) pass(t time.Duration) {
	d.Helper()
	select {
	case <-time.After(t):
	case <-d.Context().Done():
		d.Fatal(d.Context().Err())
	}
}

// listed formats counts, in the order of their names.
func listed(counts map[string]int) string {
	text := ""
	for i, name := range slices.Sorted(maps.Keys(counts)) {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d × %s", counts[name], name)
	}
	return text
}

// runners are the buyers of a marathon, and what they do after their purchases.
type runners struct {
	d     *drill
	shop  *shop.Shop
	sale  string
	quota int64
	urls  [marathonInstances]atomic.Pointer[string]

	mu        sync.Mutex
	held      []shop.Attempt // confirmed orders that are neither paid nor cancelled, the oldest first
	confirmed int
	deeds     []deed
}

// start runs an instance and stores its address for the buyers.
func (m *runners) start(i int, redis string) *shop.Instance {
	m.d.Helper()
	instance := m.shop.Start("--redis", redis, "--ack-wait", "800ms")
	m.urls[i].Store(&instance.URL)
	return instance
}

// address returns the address of a buyer's instance, which may be down.
func (m *runners) address(buyer int) string { return *m.urls[buyer%marathonInstances].Load() }

// goOn is called after each answer. A buyer with an order pays or keeps it. If the sale is sold out, the oldest kept
// order is cancelled.
func (m *runners) goOn(a shop.Attempt) {
	m.mu.Lock()
	var todo func(order shop.Attempt, url string) (deed, bool)
	switch {
	case a.Confirmed():
		m.confirmed++
		if m.confirmed%marathonPays == 0 && int64(m.confirmed/marathonPays) < m.quota/2 {
			todo = m.pay
			break
		}
		m.held = append(m.held, a)
	case a.Code == "sold_out" && len(m.held) > 0:
		a, m.held = m.held[0], m.held[1:]
		todo = func(order shop.Attempt, url string) (deed, bool) { return cancelOrder(m.shop, order, url), true }
	}
	url := m.address(m.confirmed + len(m.deeds))
	m.mu.Unlock()
	if todo == nil {
		return
	}
	it, done := todo(a, url)
	if !done {
		return
	}
	m.mu.Lock()
	m.deeds = append(m.deeds, it)
	m.mu.Unlock()
	m.d.record.add(it.does, it.Attempt)
}

// pay pays an order, and returns the provider's callback with its answer. If no payment was started, nothing was paid.
func (m *runners) pay(order shop.Attempt, url string) (it deed, started bool) {
	status, doc, err := m.shop.Call(http.MethodPost, url+"/api/v1/orders/"+order.OrderID+"/payments", m.shop.Token(order.User), nil)
	id, _ := doc["payment_id"].(string)
	if err != nil || status != http.StatusCreated || id == "" {
		return it, false
	}
	a := shop.Attempt{User: order.User, Key: order.Key, URL: url, OrderID: order.OrderID, Invoked: time.Now()}
	status, doc, err = m.shop.Callback(url, id, "txn-"+order.User, shop.PriceCents)
	a.Answered = time.Now()
	if err == nil {
		a.Status = status
		a.Code, _ = doc["code"].(string)
	}
	return deed{toPay, a}, true
}

// check compares the orders with what was done to them.
func (m *runners) check() {
	m.d.Helper()
	books, err := openLedger(m.shop.Database)
	if err != nil {
		m.d.Fatal(err)
	}
	defer books.close()
	orders, err := books.orders(m.d.Context(), m.sale)
	if err != nil {
		m.d.Fatal(err)
	}
	if broken := kept(orders, m.deeds); len(broken) > 0 {
		m.d.result.Lost += len(broken)
		m.d.Errorf("orders are not as they were left: %s", some(broken))
	}
}

// count returns the number of such deeds that succeeded.
func (m *runners) count(does string) (n int) {
	for _, it := range m.deeds {
		if it.does == does && said(it.Status) == saidYes {
			n++
		}
	}
	return n
}
