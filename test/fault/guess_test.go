package fault

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

// lookups returns how many reads the database and how many commands Redis have had from all their clients.
func (d *drill) lookups() (reads, commands int) {
	d.Helper()
	reads, err := d.status(d.books.db, "Com_select")
	d.ok(err)
	return reads, d.figure(d.client(d.Redis), "stats", "total_commands_processed")
}

// cost returns how many look-ups more the stores had while do ran than they have without guesses, by the counts of a
// second without guesses.
func (d *drill) cost(idleReads, idleCommands int, do func()) (reads, commands int) {
	d.Helper()
	reads, commands = d.lookups()
	start := time.Now()
	do()
	seconds := time.Since(start).Seconds()
	nowReads, nowCommands := d.lookups()
	return nowReads - reads - int(float64(idleReads)*seconds), nowCommands - commands - int(float64(idleCommands)*seconds)
}

func walkedIDs(d *drill) {
	d.stores()
	a := d.Start()
	d.sell(50, a)
	client := d.manyConnections()
	mine, theirs := d.buy("walker", "key", a.URL), d.buy("owner", "key", a.URL)
	d.attempts = []shop.Attempt{mine, theirs}
	d.told(d.attempts, "201")
	token := d.Token("walker")

	// The answers to all kinds of guesses have to be the same, and to take the same time.
	kinds := map[string]func(n int) string{
		"absent":              func(int) string { return d.sale + model.NewSaleID() + model.NewSaleID() },
		"someone else's":      func(int) string { return theirs.OrderID },
		"of one's own form":   func(int) string { return mine.OrderID[:32] + model.NewSaleID() },
		"with one's own tag":  func(int) string { return theirs.OrderID[:32] + mine.OrderID[32:] },
		"counted on from one": func(n int) string { return mine.OrderID[:44] + base32Digits(n) },
	}
	times := map[string][]time.Duration{}
	guesses := 0
	walk := func(rounds int) {
		want := ""
		for n := range rounds {
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				id := kinds[kind](n)
				if id == mine.OrderID {
					continue
				}
				for _, route := range []struct{ method, tail string }{{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPost, "/payments"}} {
					r := d.called(client, route.method, a.URL+"/api/v1/orders/"+id+route.tail, token, "", "X-Request-Id", "same")
					r.header.Del("Date")
					if got := fmt.Sprint(r.status, r.header, string(r.body)); want == "" {
						want = got
					} else if got != want {
						d.Fatalf("%s, %s%s: %s; the first was told %s", kind, route.method, route.tail, got, want)
					}
					if r.status != http.StatusNotFound {
						d.Fatalf("%s: %d %s", kind, r.status, r.body)
					}
					times[kind] = append(times[kind], r.took)
					guesses++
				}
			}
		}
	}
	walk(5) // warm up connections and memory
	clear(times)
	guesses = 0

	const calm = time.Second
	idleReads, idleCommands := d.cost(0, 0, func() { <-time.After(calm) })
	reads, commands := d.cost(idleReads, idleCommands, func() { walk(size(100, 2_000)) })
	if budget := guesses / 5; reads > budget || commands > budget {
		d.Errorf("%d guesses of orders have cost %d reads of the database and %d commands to Redis", guesses, reads, commands)
	}
	var typical []time.Duration
	for _, list := range times {
		typical = append(typical, percentile(list, 50))
	}
	fastest, slowest := slices.Min(typical), slices.Max(typical)
	if slowest > 2*fastest+100*time.Microsecond {
		d.Errorf("half of the answers came within %v", typical)
	}

	// A guess of a sale costs no look-up of its own either: concurrent guesses share the look-up for new sales.
	sales := size(1_000, 20_000)
	salesReads, _ := d.cost(idleReads, idleCommands, func() {
		inParallel(50, sales, func(int) {
			id := model.NewSaleID()
			r, err := ask(d.Context(), client, http.MethodGet, a.URL+"/api/v1/sales/"+id, http.NoBody)
			if err != nil || r.status != http.StatusNotFound {
				d.Errorf("sale %s: %d %s %v", id, r.status, r.body, err)
			}
		})
	})
	if salesReads > sales/5 {
		d.Errorf("%d guesses of sales have cost %d reads of the database", sales, salesReads)
	}
	d.finish("%d guesses of orders, half of each kind answered within %s to %s, cost %d reads more than none; %d guesses of sales",
		guesses, fastest.Round(time.Microsecond), slowest.Round(time.Microsecond), max(reads, 0), sales)
}

// base32Digits returns n as four base32 digits.
func base32Digits(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	return string([]byte{digits[n>>15&31], digits[n>>10&31], digits[n>>5&31], digits[n&31]})
}
