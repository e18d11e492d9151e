package fault

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"flashsale/test/kit/shop"
)

// The most attempts that wait for the database, for one sale on one instance: in the queue, and in the batch in
// progress.
const (
	waitingAtMost = 4096
	inOneBatch    = 512
)

func fullQueue(d *drill) {
	const excess = 600
	const buyers = waitingAtMost + inOneBatch + excess
	d.openFiles(2*buyers + 1_000)
	d.stores()
	a := d.StartWith(leanly)
	d.sell(buyers+100, a)
	d.Redis.Kill()
	scouts := d.away(a)

	// All buyers come at once. The excess is refused at once; the others wait until the stock row is free. slots bounds
	// the connections that are opened at once.
	slots := make(chan struct{}, dialers)
	client := d.manyConnections(func(t *http.Transport) {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			slots <- struct{}{}
			defer func() { <-slots }()
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	d.attempts = make([]shop.Attempt, buyers)
	refused := make(chan time.Duration, buyers)
	var all sync.WaitGroup
	var turned []time.Duration // refused while the row was locked, so without a wait for it
	var filled int64
	d.whileLocked(d.sale, func(*sql.Tx) {
		for i := range d.attempts {
			at := &d.attempts[i]
			at.User, at.Key, at.URL = fmt.Sprint("u", i), fmt.Sprint("key-", i), a.URL
			all.Go(func() {
				r, err := d.knock(client, at, d.sale)
				switch {
				case err != nil:
					d.Errorf("%s: %v", at.User, err)
				case r.status == http.StatusCreated:
				case again(r) != "":
					d.Errorf("%s: %s", at.User, again(r))
				default:
					refused <- r.took
				}
			})
		}
		enough := time.NewTimer(6 * time.Second) // the engine gives the waiting batch up after eight
		defer enough.Stop()
		for waiting := true; waiting && len(turned) < excess; {
			select {
			case took := <-refused:
				turned = append(turned, took)
			case <-enough.C:
				waiting = false
			}
		}
		filled = d.resident(a)
	})
	all.Wait()
	if len(turned) == 0 {
		d.Errorf("nobody was turned away while %d waited", buyers)
	}
	if confirmed := shop.Tally(d.attempts)["201 "]; confirmed < waitingAtMost/2 {
		d.Errorf("only %d of those that waited were served: %v", confirmed, shop.Tally(d.attempts))
	}
	told := tally(d.attempts)
	d.attempts = append(d.attempts, scouts...)
	d.Redis.Restart()
	d.finish("%s; %d were turned away while the row was held, 99 of 100 within %s; %d MiB with the queue full",
		told, len(turned), ms(percentile(turned, 99)), filled>>20)
}

// away sends buyers until an instance has noticed that its Redis is gone. From then on the instance sells from the
// database and does not ask Redis. It returns the buyers' attempts.
func (d *drill) away(i *shop.Instance) (scouts []shop.Attempt) {
	d.Helper()
	d.until(time.Minute, "the instance leaves Redis alone", func() (bool, error) {
		status, doc, err := d.Call(http.MethodGet, i.URL+"/readyz", "", nil)
		dependencies, _ := doc["dependencies"].(shop.Document)
		if err == nil && status == http.StatusOK && dependencies["strategy"] == "down" {
			return true, nil
		}
		scouts = append(scouts, d.buy(fmt.Sprint("scout", len(scouts)), "key", i.URL))
		return false, err
	})
	return scouts
}
