package fault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

// marketRows are faults while many sales are hot at once, so that most batches have attempts on several sales.
var marketRows = slices.Concat(
	deaths(diesInTheMarket, "the app is killed while twenty sales share its batches,",
		death{admitted, "after the admit"}, death{"before settle", "before the settle"}, death{"after settle", "after the commit"},
		death{"before acknowledge", "before the acknowledgement"}),
	[]row{{14, "one of a hundred sales is poisoned all the time", "the others are confirmed as fast as before", poisonedMarket}},
)

// market is many sales with a crowd at each.
type market struct {
	*drill
	sales  []string
	crowds []*load
	each   int // the quota of each sale
}

// market opens sales on the instances that sell. One buyer comes to each sale in a period.
func (d *drill) market(sales, quota int, period time.Duration) *market {
	m := &market{drill: d, each: quota}
	for range sales {
		m.sales = append(m.sales, d.Sale(d.urls[0], quota))
	}
	to := inTurn(d.urls...)
	for _, sale := range m.sales {
		m.crowds = append(m.crowds, d.crowdAt(sale, manner{every: period, to: to}))
	}
	return m
}

// more waits until so many more attempts on each sale have ended.
func (m *market) more(answers int) {
	var all sync.WaitGroup
	for _, crowd := range m.crowds {
		all.Go(func() { crowd.more(answers) })
	}
	all.Wait()
}

// stop ends the crowds and returns their attempts.
func (m *market) stop() (attempts [][]shop.Attempt) {
	for _, crowd := range m.crowds {
		attempts = append(attempts, crowd.stop())
	}
	return attempts
}

// shared fails the row unless transactions have settled attempts on several sales: their orders were made in the same
// millisecond.
func (m *market) shared() {
	m.Helper()
	const several = "SELECT COUNT(*) FROM (SELECT 1 FROM orders GROUP BY created_at_ms HAVING COUNT(DISTINCT sale_id) > 2) AS batches"
	if batches, err := m.count(several); batches == 0 || err != nil {
		m.Slowf("no batch had several sales: %v", err)
	}
}

// diesInTheMarket kills one of two instances. The other settles what the dead one has left. Buyers whose connection broke
// ask again under their keys, and each gets an order.
func diesInTheMarket(d *drill, point string) {
	const sales = 20
	d.stores()
	d.failpoints()
	survivor, doomed := d.Start(), d.mortal(point, underLoad(point))
	d.sell(1, survivor, doomed)
	m := d.market(sales, size(100, 1_000), size(40*time.Millisecond, 10*time.Millisecond))
	died := d.dead(doomed)
	m.more(size(5, 100))
	d.urls = []string{survivor.URL}
	broken, all := 0, m.stop()
	for i, sale := range m.sales {
		attempts := all[i]
		for _, a := range slices.Clone(attempts) {
			if a.Status == 0 && a.Invoked.Before(died) {
				again := shop.Attempt{User: a.User, Key: a.Key, URL: survivor.URL}
				d.Buy(&again, sale)
				d.toldOf(sale, []shop.Attempt{again}, "201", "202")
				attempts, broken = append(attempts, again), broken+1
			}
		}
		d.toldOf(sale, attempts, "0", "201", "202")
		d.recovered(sale, m.each, attempts)
	}
	if broken == 0 && point == admitted {
		d.Slowf("nobody's connection broke")
	}
	m.shared()
	d.result.Happened = fmt.Sprintf("%d whose connection broke asked again, on %d sales", broken, sales)
}

// poisonedMarket adds to the stream of one sale, again and again, entries that the database refuses. They fail each
// batch that they share with other sales.
func poisonedMarket(d *drill) {
	const every = 20 * time.Millisecond
	sales := size(20, 100)
	d.ownDatabase()
	d.sell(size(500, 3_000), d.Start(), d.Start())
	m := d.market(sales-1, size(60, 500), size(200*time.Millisecond, 150*time.Millisecond))
	poisoned := d.crowdAt(d.sale, manner{every: unhurried, to: inTurn(d.urls...)})
	m.more(size(2, 20))

	client, before := d.client(d.Redis), time.Now()
	added := 0
	end := d.meanwhile(1, every, func(int, int) {
		id := d.sale + model.NewSaleID() + model.NewSaleID() // the form of an order's id
		entry := strings.Join([]string{id, "poisoner", "99999999999", "1", "nowhere", "key"}, " ")
		if err := client.XAdd(d.Context(), &redis.XAddArgs{Stream: gateKey(d.sale, "stream"), Values: []any{"attempt", entry}}).Err(); err != nil {
			d.Error(err)
		}
		added++
	})
	<-time.After(size(4*time.Second, 30*time.Second)) // for so long the poison comes
	end()
	to, all := time.Now(), m.stop()
	attempts := within(slices.Concat(all...), before, to)
	longest, p99 := slowest(attempts)
	for i, sale := range m.sales {
		d.toldOf(sale, within(all[i], before, to), "201")
	}
	// The short form runs beside other tests, so its bound is higher.
	if p99 > size(2*time.Second, 300*time.Millisecond) {
		d.Slowf("the slowest in a hundred waited %s", p99)
	}
	d.result.Happened = fmt.Sprintf("%d poisoned entries; buyers of the other sales: %s, p99 %s, longest %s", added, tally(attempts), ms(p99), ms(longest))
	for i, sale := range m.sales {
		d.recovered(sale, m.each, all[i])
	}
	d.until(3*recoveryTime, "nothing is left in the stream", d.streamEmpty(client))
	orders, err := d.count("SELECT COUNT(*) FROM orders WHERE user_id = 'poisoner'")
	if orders > 0 || err != nil {
		d.Errorf("%d poisoned entries became orders: %v", orders, err)
	}
	m.shared()
	d.recovered(d.sale, d.quota, poisoned.stop())
}
