package fault

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

// marathonRows are rows with a long run.
var marathonRows = []row{
	{30, "marathon: random faults of all parts, one after the other and two at once", "nothing lost, doubled or over; the rest is sold", marathon},
}

// marathonPace is the time between two buyers.
var marathonPace = size(10*time.Millisecond, 5*time.Millisecond)

const (
	marathonInstances = 3
	// marathonPays: one in so many confirmed orders is paid, until half of the quota is.
	marathonPays = 20
)

type fault struct {
	part  string // a part has one fault at a time
	name  string
	begin func()
	end   func()
}

// episode is a pause, and then faults that last for some time.
type episode struct {
	pause, lasts time.Duration
	faults       []fault
}

// schedule draws episodes from a seed until they fill a time. Each has a fault, or two of different parts. A kind, as that
// of several instances, is drawn before one of its faults. Two faults are in the order of their kinds.
func schedule(seed uint64, total, longestPause, longest time.Duration, kinds [][]fault) (list []episode) {
	rng := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	draw := func() (kind int, f fault) {
		kind = rng.IntN(len(kinds))
		return kind, kinds[kind][rng.IntN(len(kinds[kind]))]
	}
	for filled := time.Duration(0); filled < total; {
		e := episode{pause: between(longestPause/4, longestPause), lasts: between(longest/10, longest)}
		kind, first := draw()
		e.faults = []fault{first}
		if other, second := draw(); rng.IntN(3) == 0 && second.part != first.part {
			e.faults = append(e.faults, second)
			if other < kind {
				slices.Reverse(e.faults)
			}
		}
		list = append(list, e)
		filled += e.pause + e.lasts
	}
	return list
}

// marathonSeed returns the seed of DRILL_SEED, or a new one.
func marathonSeed(d *drill) uint64 {
	text := os.Getenv("DRILL_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	d.ok(err)
	return seed
}

// marathon runs three instances for a long time while random parts fail. Whenever a buyer is told that the sale is sold
// out, another buyer cancels an order, so that the sale stays at its last units.
func marathon(d *drill) {
	seed := marathonSeed(d)
	db := d.ownDatabase()
	faults := [][]fault{
		{{"MariaDB", "MariaDB killed", db.Kill, db.Restart}},
		{{"MariaDB", "MariaDB frozen", db.Stop, db.Continue}},
		{{"Redis", "Redis killed", d.Redis.Kill, d.Redis.Restart}},
		{{"Redis", "Redis frozen", d.Redis.Stop, d.Redis.Continue}},
		{{"Redis", "Redis wiped", func() { d.tell(d.client(d.Redis), "FLUSHALL") }, func() {}}},
	}
	m := &runners{drill: d}
	var deaths, cuts []fault
	for i := range marathonInstances {
		link := d.proxy(d.Redis.Addr())
		instance := m.start(i, link.RedisURL())
		restart := func() { instance = m.start(i, link.RedisURL()) }
		deaths = append(deaths, fault{fmt.Sprint("instance ", i), "an instance killed", func() { instance.Kill() }, restart})
		cuts = append(cuts, fault{fmt.Sprint("link ", i), "an instance cut off from Redis", link.Cut, link.Restore})
	}
	faults = append(faults, cuts, deaths) // they end in this order: an instance needs all other parts
	d.quota = size(400, 4_000)
	d.sale = d.SaleToPay(m.address(0), d.quota, 3600)
	episodes := schedule(seed, size(12*time.Second, 10*time.Minute), size(time.Second, 4*time.Second),
		size(1500*time.Millisecond, 8*time.Second), faults)
	note := fmt.Sprintf("DRILL_SEED=%d repeats these faults", seed)
	d.Log(note)
	progress(note)

	d.watched = d.watch(d.sale)
	d.load = d.crowdAt(d.sale, manner{every: marathonPace, to: m.address, then: m.goOn})
	counts := map[string]int{}
	for _, e := range episodes {
		<-time.After(e.pause)
		for _, f := range e.faults {
			counts[f.name]++
			d.Logf("%s for %s", f.name, ms(e.lasts))
			f.begin()
		}
		<-time.After(e.lasts)
		for _, f := range e.faults {
			f.end()
		}
	}
	all := d.stop()
	d.urls = []string{m.address(0), m.address(1), m.address(2)}
	d.finish("seed %d; %s; %s; %d cancelled, %d paid", seed, listed(counts), all, m.count(toCancel), m.count(toPay))
	orders, err := d.books.orders(d.Context(), d.sale)
	d.ok(err)
	if broken := kept(orders, m.deeds); len(broken) > 0 {
		d.result.Lost += len(broken)
		d.Errorf("orders are not as they were left: %s", some(broken))
	}
}

// runners are the buyers of a marathon, and what they do after their purchases.
type runners struct {
	*drill
	addresses [marathonInstances]atomic.Pointer[string]

	mu    sync.Mutex
	held  []shop.Attempt // confirmed orders that are neither paid nor cancelled, the oldest first
	sold  int
	deeds []deed
}

// start runs an instance and stores its address for the buyers.
func (m *runners) start(i int, redis string) *shop.Instance {
	m.Helper()
	instance := m.Start("--redis", redis, "--ack-wait", "800ms")
	m.addresses[i].Store(&instance.URL)
	return instance
}

// address returns the address of a buyer's instance, which may be down.
func (m *runners) address(buyer int) string { return *m.addresses[buyer%marathonInstances].Load() }

// goOn is called after each answer. A buyer with an order pays or keeps it. If the sale is sold out, the oldest kept
// order is cancelled.
func (m *runners) goOn(a shop.Attempt) {
	m.mu.Lock()
	var todo func(order shop.Attempt, url string) deed
	switch {
	case a.Confirmed():
		m.sold++
		if m.sold%marathonPays == 0 && m.sold/marathonPays < m.quota/2 {
			todo = m.pay
		} else {
			m.held = append(m.held, a)
		}
	case a.Code == "sold_out" && len(m.held) > 0:
		a, m.held = m.held[0], m.held[1:]
		todo = m.cancel
	}
	url := m.address(m.sold + len(m.deeds))
	m.mu.Unlock()
	if todo == nil {
		return
	}
	if it := todo(a, url); it.does != "" {
		m.mu.Lock()
		m.deeds = append(m.deeds, it)
		m.mu.Unlock()
		m.record.add(it.does, it.Attempt)
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
