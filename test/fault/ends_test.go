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
	told := slices.SortedFunc(maps.Keys(r.ends), func(a, b end) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.status, b.status)) })
	r.mu.Unlock()
	is := make([]string, len(told))
	var next atomic.Int64
	var asking sync.WaitGroup
	for range min(crowd, len(told)) {
		asking.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(told); i = int(next.Add(1)) - 1 {
				is[i] = now(shop.Attempt{User: told[i].user, OrderID: told[i].order})
			}
		})
	}
	asking.Wait()
	for i, e := range told {
		if !slices.Contains(ends[e.status], is[i]) {
			changed = append(changed, fmt.Sprintf("%s was told to be %s, and is %q", e.order, e.status, is[i]))
		}
	}
	return changed
}

// settledStatus asks for an order until its status is no longer queued, or the time of a recovery is over.
func (d *drill) settledStatus(s *shop.Shop, url string, a shop.Attempt) (status string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(recoveryTime); time.Now().Before(end); <-ticker.C {
		if status = d.orderStatus(s, url, a); ends[status] != nil || status == "pending" || status == "paid" {
			break
		}
	}
	return status
}

// lostWhilePolled wipes Redis while settlers hold entries and wait for the locked stock row. At the same time every
// buyer polls the status of the attempt.
func lostWhilePolled(d *drill) {
	s := shop.New(d)
	urls := []string{s.Start("--ack", "queued").URL, s.Start("--ack", "queued").URL}
	quota := size(100, 1_000)
	sale := s.Sale(urls[0], quota)
	books := d.watch(s, sale)
	others, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer others.close()
	var attempts []shop.Attempt
	var lost atomic.Int64
	var polling sync.WaitGroup
	d.transact(others.db, func(tx *sql.Tx) error {
		var available int
		if err := tx.QueryRowContext(d.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", sale).Scan(&available); err != nil {
			return err
		}
		attempts = s.Rush(sale, "queued", quota/2, nil, urls...)
		d.tell(d.client(s.Redis), "FLUSHALL")
		for _, a := range attempts {
			polling.Go(func() {
				if a.Status == http.StatusAccepted && d.settledStatus(s, a.URL, a) == "rejected" {
					lost.Add(1)
				}
			})
		}
		d.until(recoveryTime, "somebody is told that the attempt is lost", func() (bool, error) { return lost.Load() > 0, nil })
		return nil // the rollback unlocks the stock row, and the settlers go on
	})
	polling.Wait()
	books()
	d.result.Happened = fmt.Sprintf("%s; %d were told to be lost", d.tally(attempts), lost.Load())
	d.recovered(s, sale, int64(quota), attempts, urls...)
}

// notSoldOut lets an instance die after it has admitted an attempt. Another instance, which can't ask Redis, sells the
// whole quota from the database. The attempt becomes an order after another order's unit is released.
func notSoldOut(d *drill) {
	s := shop.New(d)
	s.Binary = shop.Build(d, "-tags", "failpoints")
	doomed, down := mortal(s, "admitted", 1), kit.Redis(d)
	quota := size(20, 100)
	sale := s.Sale(doomed.URL, quota)
	books := d.watch(s, sale)
	alone := s.Start("--redis", down.URL())
	down.Kill()
	first := shop.Attempt{User: "first", Key: "first", URL: doomed.URL}
	s.Buy(&first, sale)
	d.dead(doomed)
	attempts := append(d.away(alone, s, sale), s.Rush(sale, "u", 2*quota, nil, alone.URL)...)
	if live := s.Check(sale, attempts, alone.URL); live != quota {
		d.Errorf("%d of %d sold", live, quota)
	}
	again := shop.Attempt{User: first.User, Key: first.Key, URL: alone.URL}
	s.Buy(&again, sale)
	d.told([]shop.Attempt{again}, "503 unavailable")

	bought := attempts[slices.IndexFunc(attempts, shop.Attempt.Confirmed)]
	if cancelled := cancelOrder(s, bought, alone.URL); cancelled.Status != http.StatusOK {
		d.Errorf("cancel: %+v", cancelled)
	}
	survivor := s.Start()
	d.until(recoveryTime, "the first try becomes an order", func() (bool, error) {
		again.URL = survivor.URL
		s.Buy(&again, sale)
		return again.Confirmed(), nil
	})
	books()
	d.result.Happened = d.tally(attempts) + "; the repeated key heard 503, and then 201"
	if live := s.Check(sale, append(attempts, again), survivor.URL); live != quota {
		d.Errorf("%d of %d sold", live, quota)
	}
	s.Audited(survivor.URL, sale)
	s.AuditCommand()
}

// forgedWakeUps publishes wake-ups for buyers whose orders can't be made, because the stock row is locked. It uses the
// format of this engine, and that of an older one whose wake-ups contained the verdict.
func forgedWakeUps(d *drill) {
	s := shop.New(d)
	url := s.Start("--ack-wait", "2s").URL
	quota := size(20, 200)
	sale := s.Sale(url, quota)
	client := d.client(s.Redis)
	others, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer others.close()
	var attempts []shop.Attempt
	forged := 0
	d.transact(others.db, func(tx *sql.Tx) error {
		var available int
		if err := tx.QueryRowContext(d.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", sale).Scan(&available); err != nil {
			return err
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			attempts = s.Rush(sale, "u", quota, nil, url)
		}()
		for {
			select {
			case <-answered:
				return nil
			case <-time.After(10 * time.Millisecond):
			}
			entries, err := client.XRange(d.Context(), streamOf(sale), "-", "+").Result()
			if err != nil {
				return err
			}
			channels, err := client.PubSubChannels(d.Context(), "fs:wake:*").Result()
			if err != nil {
				return err
			}
			for _, e := range entries {
				id, _, _ := strings.Cut(fmt.Sprint(e.Values["attempt"]), " ")
				for _, channel := range channels {
					for _, words := range []string{`["%s"]`, `{"%s":{"Verdict":"accepted","Order":{"ID":"x","Status":"pending"}}}`} {
						forged++
						if err := client.Publish(d.Context(), channel, fmt.Sprintf(words, id)).Err(); err != nil {
							return err
						}
					}
				}
			}
		}
	})
	if forged == 0 {
		d.Error("no wake-up was forged")
	}
	d.told(attempts, "202")
	d.result.Happened = fmt.Sprintf("%s; %d wake-ups forged", d.tally(attempts), forged)
	d.recovered(s, sale, int64(quota), attempts, url)
}
