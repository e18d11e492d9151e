package fault

import (
	"cmp"
	"context"
	"errors"
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
	s := shop.New(d)
	a := s.StartWith(leanly)
	const quota = buyers + 100
	sale := s.Sale(a.URL, quota)
	s.Redis.Kill()
	scouts := d.away(a, s, sale)

	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
	held, err := books.db.BeginTx(d.Context(), nil)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = held.Rollback() }()
	if _, err := held.ExecContext(d.Context(), "UPDATE stock SET version = version WHERE sale_id = ?", sale); err != nil {
		d.Fatal(err)
	}

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
	attempts := make([]shop.Attempt, buyers)
	refused := make(chan time.Duration, buyers)
	var all sync.WaitGroup
	for i := range attempts {
		at := &attempts[i]
		at.User, at.Key, at.URL = fmt.Sprint("u", i), fmt.Sprint("key-", i), a.URL
		all.Go(func() {
			r, err := knock(d.Context(), client, s, at, sale)
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
	var turned []time.Duration               // refused while the row was locked, so without a wait for it
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
	filled := d.resident(a)
	if err := held.Rollback(); err != nil {
		d.Fatal(err)
	}
	all.Wait()
	confirmed := 0
	for _, at := range attempts {
		if at.Confirmed() {
			confirmed++
		}
	}
	if len(turned) == 0 {
		d.Errorf("nobody was turned away while %d waited", buyers)
	}
	if confirmed < waitingAtMost/2 {
		d.Errorf("only %d of those that waited were served: %v", confirmed, shop.Tally(attempts))
	}
	d.result.Happened = fmt.Sprintf("%s; %d were turned away while the row was held, 99 of 100 within %s; %d MiB with the queue full",
		d.tally(attempts), len(turned), percentile(turned, 99).Round(time.Millisecond), filled>>20)
	s.Redis.Restart()
	d.recovered(s, sale, quota, append(attempts, scouts...), a.URL)
}

// away sends buyers until an instance has noticed that its Redis is gone. From then on the instance sells from the
// database and does not ask Redis. It returns the buyers' attempts.
func (d *drill) away(i *shop.Instance, s *shop.Shop, sale string) (scouts []shop.Attempt) {
	d.Helper()
	shop.Recovered(d, "the instance leaves Redis alone", func() error {
		status, doc, err := s.Call(http.MethodGet, i.URL+"/readyz", "", nil)
		dependencies, _ := doc["dependencies"].(shop.Document)
		if err == nil && status == http.StatusOK && dependencies["strategy"] == "down" {
			return nil
		}
		at := shop.Attempt{User: fmt.Sprint("scout", len(scouts)), Key: "key", URL: i.URL}
		s.Buy(&at, sale)
		scouts = append(scouts, at)
		return fmt.Errorf("%d %v %w", status, doc, cmp.Or(err, errors.New("it still tries")))
	})
	return scouts
}
