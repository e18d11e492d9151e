package fault

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"flashsale/internal/ranks"
	"flashsale/test/kit/drand"
	"flashsale/test/kit/shop"
)

// drawerDies kills the caller at each step of a draw, last when half of the winners have their orders.
func drawerDies(d *drill) {
	d.stores()
	d.failpoints()
	first := d.mortal("before seal a line", 1)
	entrants := size(700, 3_000) // a transaction draws 500
	d.queue(entrants-50, shop.Document{"mode": "draw"}, first)
	d.enter("u", entrants, first.URL)
	d.starts(60)
	d.dead(first)
	for _, point := range []string{"after seal a line", "before draw winners", "after draw winners"} {
		d.staleLease()
		d.dead(d.mortal(point, 1))
	}
	half := d.lineIs("a part is drawn", func(b *lineBooks) bool { return len(b.orders) > 0 })
	if len(half.orders) >= d.quota {
		d.Errorf("all %d were drawn at once", len(half.orders))
	}
	d.staleLease()
	d.urls = []string{d.Start().URL}
	b := d.lineIs("the draw is over", func(b *lineBooks) bool { return b.phase == "over" })
	d.stop()
	d.drawn(&b)
	d.result.Happened = fmt.Sprintf("killed at 4 steps, last with %d of %d orders; each winner has one", len(half.orders), len(b.orders))
	d.Books(d.sale)
}

// botsFirst has bots enter first in a draw, until they are half of the entries.
func botsFirst(d *drill) {
	d.stores()
	a := d.Start()
	entrants := size(400, 4_000)
	d.queue(entrants/4, shop.Document{"mode": "draw"}, a)
	d.enter("bot", entrants/2, a.URL)
	d.enter("user", entrants/2, a.URL)
	d.starts(60)
	b := d.lineIs("the draw is over", func(b *lineBooks) bool { return b.phase == "over" })
	d.stop()
	bots := 0
	for _, winner := range d.drawn(&b) {
		if strings.HasPrefix(winner, "bot") {
			bots++
		}
	}
	least := fewest(d.quota, 5e-7)
	if bots < least || bots > d.quota-least {
		d.Errorf("bots won %d of %d units, want %d to %d", bots, d.quota, least, d.quota-least)
	}
	d.result.Happened = fmt.Sprintf("bots had the first %d of %d entries, and won %d of %d units (allowed: %d to %d)", entrants/2, entrants, bots, d.quota, least, d.quota-least)
	d.Books(d.sale)
}

// fewest returns how many of n throws of a coin are heads at least: fewer heads have a probability below p. The numbers of
// winners vary less than those of heads, because nobody is drawn twice.
func fewest(n int, p float64) int {
	sum := 0.0
	for k := range n {
		all, _ := math.Lgamma(float64(n + 1))
		these, _ := math.Lgamma(float64(k + 1))
		rest, _ := math.Lgamma(float64(n - k + 1))
		if sum += math.Exp(all - these - rest - float64(n)*math.Ln2); sum >= p {
			return k
		}
	}
	return n
}

// drawWithoutBeacon lets the source of the beacon answer in every wrong way. Only the answer of the chain may end that.
func drawWithoutBeacon(d *drill) {
	d.stores()
	relay := drand.Serve(d)
	ended := make(chan struct{})
	wrong := []func(w http.ResponseWriter, round int64){
		func(http.ResponseWriter, int64) { <-ended },
		func(w http.ResponseWriter, _ int64) { w.WriteHeader(http.StatusBadGateway) },
		func(w http.ResponseWriter, round int64) {
			_, _ = io.WriteString(w, drand.JSON(round-1, relay.Sign(round-1)))
		},
		func(w http.ResponseWriter, round int64) {
			_, _ = io.WriteString(w, drand.JSON(round, relay.Sign(round-1)))
		},
	}
	defer close(ended)
	kinds := int64(len(wrong))
	relay.Break(func(w http.ResponseWriter, round int64) { wrong[relay.Asked()%kinds](w, round) })
	args := []string{"--beacon", relay.URL, "--beacon-chain", relay.Info()}
	first := d.Start(args...)
	d.queue(size(20, 200), shop.Document{"mode": "draw", "beacon": true}, first)
	d.enter("u", 3*d.quota, d.urls...)
	d.starts(60)
	sealed := d.lineIs("the root is public", func(b *lineBooks) bool { return b.phase == "sealed" && b.root != "" })
	answered := func(times int64) {
		d.Helper()
		from := relay.Asked()
		d.until(time.Minute, "the source is asked", func() (bool, error) { return relay.Asked() > from+times, nil })
	}
	answered(kinds)
	d.urls = []string{d.Start(args...).URL}
	first.Kill()
	answered(kinds)
	still, err := d.books.line(d.Context(), d.sale)
	d.ok(err)
	if still.phase != "sealed" || still.root != sealed.root || still.seed != "" || len(still.orders) > 0 {
		d.Errorf("without a round: phase %s, root %s, before %s, seed %q, %d orders", still.phase, still.root, sealed.root, still.seed, len(still.orders))
	}
	asked := relay.Asked()
	relay.Break(nil)
	back := time.Now()
	drawn := d.lineIs("the draw is over", func(b *lineBooks) bool { return b.phase == "over" })
	d.result.Recovery = time.Since(back)
	d.stop()
	d.drawn(&drawn)
	var round int64
	d.ok(d.sql("SELECT beacon_round FROM sale_lines WHERE sale_id = ?", d.sale).Scan(&round))
	if want := fmt.Sprintf("%x", sha256.Sum256(relay.Sign(round))); drawn.randomness != want {
		d.Errorf("the randomness is %s, that of round %d is %s", drawn.randomness, round, want)
	}
	d.result.Happened = fmt.Sprintf("%d wrong answers or none, an instance killed meanwhile; then %d of %d entries won by round %d", asked, len(drawn.orders), len(drawn.entrants), round)
	d.Books(d.sale)
}

// drawn checks that exactly the first ranks have won, and returns the users who did.
func (d *drill) drawn(b *lineBooks) (winners []string) {
	d.Helper()
	if err := b.sealRight(); err != nil {
		d.Error(err)
	}
	order, _ := b.order()
	quantities := slices.Repeat([]int64{1}, len(b.entrants))
	var want []string
	for _, number := range ranks.Winners(order, b.quota, quantities, nil) {
		want = append(want, b.entrants[number].user)
	}
	for _, o := range b.orders {
		winners = append(winners, o.user)
	}
	slices.Sort(want)
	slices.Sort(winners)
	if !slices.Equal(want, winners) {
		d.Errorf("the winners are %s, want %s", some(winners), some(want))
	}
	return winners
}
