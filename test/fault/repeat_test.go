package fault

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

// repeatRows are buyers who repeat their requests while instances refuse requests from memory.
var repeatRows = []row{
	{61, "keys repeated on the other instance at once, on a sold-out sale whose units come back", "nobody who was told yes is told no", repeatedKeys},
}

// repeatedKeys lets buyers send a request to one of two instances and repeat it on the other at once, or at the same time.
// Some of the buyers who got a unit cancel in each round, after the instances have refused from memory.
func repeatedKeys(d *drill) {
	d.stores()
	a, b := d.Start("--ops-addr", "127.0.0.1:0"), d.Start("--ops-addr", "127.0.0.1:0")
	d.sell(size(20, 100), a, b)
	figures := []string{a.OpsURL(), b.OpsURL()}
	client := d.manyConnections()
	rounds, perRound, returns := size(2, 20), size(1_500, 20_000), 5
	var mu sync.Mutex
	var holders, open []shop.Attempt // who were told yes, and who had no answer
	var asked atomic.Int64
	send := func(a shop.Attempt) shop.Attempt {
		if _, err := d.knock(client, &a, d.sale); err != nil || a.Status >= http.StatusInternalServerError {
			d.Slowf("%s: %d %s %v", a.Key, a.Status, a.Code, err)
			mu.Lock()
			open = append(open, a)
			mu.Unlock()
		}
		asked.Add(1)
		return a
	}
	// repeats sends a request again, to both instances. The answer must not be no once it was yes.
	repeats := func(a shop.Attempt, yes bool) shop.Attempt {
		for _, url := range d.urls {
			a.URL = url
			switch again := send(a); {
			case again.Status == 0 || again.Status >= http.StatusInternalServerError: // no answer
			case said(again.Status) == saidYes || again.Status == http.StatusAccepted:
				yes, a.Status, a.OrderID = true, again.Status, again.OrderID
			case yes:
				d.Errorf("%s was told yes, then %d %s", a.Key, again.Status, again.Code)
			}
		}
		return a
	}
	buy := func(n int) {
		a := shop.Attempt{User: fmt.Sprintf("u%d", n), Key: "key"}
		var answers [2]shop.Attempt
		a.URL = d.urls[n%2]
		if n%4 < 2 { // at the same time
			other := a
			other.URL = d.urls[(n+1)%2]
			var both sync.WaitGroup
			both.Go(func() { answers[0] = send(a) })
			both.Go(func() { answers[1] = send(other) })
			both.Wait()
		} else {
			answers[0] = send(a)
			answers[1] = answers[0]
		}
		yes := false
		for _, answer := range answers {
			yes = yes || said(answer.Status) == saidYes || answer.Status == http.StatusAccepted
		}
		if a = repeats(a, yes); a.Status != 0 {
			mu.Lock()
			holders = append(holders, a)
			mu.Unlock()
		}
	}
	n := 0
	for range rounds {
		d.until(time.Minute, "an instance may refuse from memory", func() (bool, error) {
			buy(n)
			n++
			leased, err := d.count("SELECT COUNT(*) FROM stock WHERE sale_id = ? AND available = 0 AND refusing_until_ms > returning_at_ms + 1000", d.sale)
			return leased == 1, err
		})
		d.mustBe(len(holders) > 0, 0, "nobody has bought")
		inParallel(16, perRound, func(i int) {
			if i%4 == 0 {
				mu.Lock()
				holder := holders[rand.IntN(len(holders))]
				mu.Unlock()
				repeats(holder, true)
				return
			}
			buy(n + i)
		})
		n += perRound
		inParallel(returns, returns, func(int) {
			at := rand.IntN(len(holders))
			holder := holders[at]
			r := d.called(client, http.MethodDelete, d.urls[at%2]+"/api/v1/orders/"+holder.OrderID, d.Token(holder.User), "")
			if r.status == http.StatusOK {
				d.record.add(toCancel, holder)
			}
		})
	}
	// What memory refuses does not come to the strategy.
	refused := d.metric(figures, "flashsale_purchases_total{") - d.metric(figures, `flashsale_purchase_stage_seconds_count{stage="deduct"}`)
	if refused <= 0 {
		d.Slowf("no request was refused from memory")
	}
	d.attempts = slices.Concat(holders, open)
	d.finish("%d requests at two instances, %d keys with an order: none was told no after a yes; %d were refused from memory",
		asked.Load(), len(holders), refused)
}

// metric adds up the values of a metric, or of one of its series, at several instances.
func (d *drill) metric(figures []string, series string) (sum int) {
	d.Helper()
	for _, url := range figures {
		page, err := ask(d.Context(), d.manyConnections(), http.MethodGet, url+"/metrics", http.NoBody)
		d.mustBe(err == nil && page.status == http.StatusOK, page.status, "the figures: %s %v", page, err)
		for line := range strings.Lines(string(page.body)) {
			if strings.HasPrefix(line, series) {
				sum += number(line[strings.LastIndex(line, " ")+1 : len(line)-1])
			}
		}
	}
	return sum
}
