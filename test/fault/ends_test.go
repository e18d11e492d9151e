package fault

import (
	"cmp"
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// endRows are runs in which a final answer might change. Their numbers are those of docs/holes.md.
var endRows = []row{
	{47, "FLUSHALL while settlers hold entries and every buyer polls", "what was told to be lost stays lost, and is sold again", lostWhilePolled},
	{48, "a repeated key on an instance that has lost Redis, which has its first try", "no refusal; the first try becomes an order", notSoldOut},
	{55, "forged wake-ups for attempts that wait for the database", "202 and no order; then one order each", forgedWakeUps},
}

// ends maps each final status that a client was told to the statuses that the order may have later. Other statuses may
// still become anything. An expired order may be paid late.
var ends = map[string][]string{
	"cancelled": {"cancelled"},
	"rejected":  {"rejected"},
	"refunded":  {"refunded"},
	"expired":   {"expired", "paid", "refunded"},
}

// end is a final status of an order that a client was told.
type end struct{ user, order, status string }

// ended records that a client was told an order's status, if the status is final.
func (r *record) ended(a shop.Attempt, status string) {
	if ends[status] == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends == nil {
		r.ends = map[end]struct{}{}
	}
	r.ends[end{a.User, a.OrderID, status}] = struct{}{}
}

// changed returns the orders whose status contradicts the final status that a client was told. now asks the engine for
// the present one.
func (r *record) changed(now func(a shop.Attempt) string) (changed []string) {
	r.mu.Lock()
	told := slices.SortedFunc(maps.Keys(r.ends), func(a, b end) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.status, b.status))
	})
	r.mu.Unlock()
	is := make([]string, len(told))
	inParallel(crowd, len(told), func(i int) {
		is[i] = now(shop.Attempt{User: told[i].user, OrderID: told[i].order})
	})
	for i, e := range told {
		if !slices.Contains(ends[e.status], is[i]) {
			changed = append(changed, fmt.Sprintf("%s was told to be %s, and is %q", e.order, e.status, is[i]))
		}
	}
	return changed
}

// settledStatus asks for an order until its status is no longer queued, or the time of a recovery is over.
func (d *drill) settledStatus(url string, a shop.Attempt) (status string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(recoveryTime); time.Now().Before(end); <-ticker.C {
		if status = d.orderStatus(url, a); ends[status] != nil || status == "pending" || status == "paid" {
			break
		}
	}
	return status
}

// lostWhilePolled wipes Redis while settlers hold entries and wait for the locked stock row. At the same time every
// buyer polls the status of the attempt.
func lostWhilePolled(d *drill) {
	d.stores()
	d.open(size(100, 1_000), d.Start("--ack", "queued"), d.Start("--ack", "queued"))
	var lost atomic.Int64
	var polling sync.WaitGroup
	d.whileLocked(d.sale, func(*sql.Tx) {
		d.attempts = d.Rush(d.sale, "queued", d.quota/2, nil, d.urls...)
		d.tell(d.client(d.Redis), "FLUSHALL")
		for _, a := range d.attempts {
			polling.Go(func() {
				if a.Status == http.StatusAccepted && d.settledStatus(a.URL, a) == "rejected" {
					lost.Add(1)
				}
			})
		}
		d.until(recoveryTime, "somebody is told that the attempt is lost", func() (bool, error) { return lost.Load() > 0, nil })
	}) // the settlers go on
	polling.Wait()
	d.finish("%s; %d were told to be lost", d.stop(), lost.Load())
}

// notSoldOut lets an instance die after it has admitted an attempt. Another instance, which can't ask Redis, sells the
// whole quota from the database. The attempt becomes an order after another order's unit is released.
func notSoldOut(d *drill) {
	d.stores()
	d.failpoints()
	doomed, down := d.mortal(admitted, 1), kit.Redis(d)
	quota := size(20, 100)
	d.open(quota, doomed)
	alone := d.Start("--redis", down.URL())
	down.Kill()
	first := d.buy("first", "first", doomed.URL)
	d.dead(doomed)
	attempts := append(d.away(alone), d.Rush(d.sale, "u", 2*quota, nil, alone.URL)...)
	soldOut := func(attempts []shop.Attempt, url string) {
		d.Helper()
		if live := d.Check(d.sale, attempts, url); live != quota {
			failed := d.Errorf
			if live < quota && undecided(attempts) {
				failed = d.Slowf
			}
			failed("%d of %d sold", live, quota)
		}
	}
	soldOut(attempts, alone.URL)
	again := d.buy(first.User, first.Key, alone.URL)
	d.told([]shop.Attempt{again}, "503 unavailable")

	bought := slices.IndexFunc(attempts, shop.Attempt.Confirmed)
	d.mustBe(bought >= 0, 0, "nobody has bought: %s", tally(attempts))
	if cancelled := d.cancel(attempts[bought], alone.URL); cancelled.Status != http.StatusOK {
		d.wrong(cancelled.Status)("cancel: %+v", cancelled)
	}
	survivor := d.Start()
	d.until(recoveryTime, "the first try becomes an order", func() (bool, error) {
		again = d.buy(first.User, first.Key, survivor.URL)
		return again.Confirmed(), nil
	})
	d.stop()
	d.result.Happened = tally(attempts) + "; the repeated key heard 503, and then 201"
	soldOut(append(attempts, again), survivor.URL)
	d.Audited(survivor.URL, d.sale)
	d.AuditCommand()
}

// forgedWakeUps publishes wake-ups for buyers whose orders can't be made, because the stock row is locked. It uses the
// format of this engine, and that of an older one whose wake-ups contained the verdict.
func forgedWakeUps(d *drill) {
	d.stores()
	d.sell(size(20, 200), d.Start("--ack-wait", "2s"))
	client := d.client(d.Redis)
	forged := 0
	forge := func() {
		entries, err := client.XRange(d.Context(), gateKey(d.sale, "stream"), "-", "+").Result()
		d.ok(err)
		channels, err := client.PubSubChannels(d.Context(), "fs:wake:*").Result()
		d.ok(err)
		for _, e := range entries {
			id, _, _ := strings.Cut(fmt.Sprint(e.Values["attempt"]), " ")
			for _, channel := range channels {
				for _, words := range []string{`["%s"]`, `{"%s":{"Verdict":"accepted","Order":{"ID":"x","Status":"pending"}}}`} {
					forged++
					d.ok(client.Publish(d.Context(), channel, fmt.Sprintf(words, id)).Err())
				}
			}
		}
	}
	d.whileLocked(d.sale, func(*sql.Tx) {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			d.attempts = d.Rush(d.sale, "u", d.quota, nil, d.urls...)
		}()
		for {
			select {
			case <-answered:
				return
			case <-time.After(10 * time.Millisecond):
				forge()
			}
		}
	})
	if forged == 0 {
		d.Slowf("no wake-up was forged")
	}
	d.finish("%s; %d wake-ups forged", d.stop("202"), forged)
}
