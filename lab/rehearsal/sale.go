package rehearsal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
	"flashsale/strategy"
)

const (
	// quiet is the least time from the end of a rehearsal's planned arrivals to the start of a sale.
	quiet = 5 * time.Minute
	// lead is the time from the creation of the hidden sale to its start, in which the instances hear of the sale.
	lead = 5 * time.Second
	// settleTime bounds the waits for the shop to be ready and for the last orders. clearTime bounds each step of clearing up.
	settleTime, clearTime = time.Minute, time.Minute
	// look is the pause between two looks at a state.
	look = 50 * time.Millisecond
	// orderPage is how many orders are read at once.
	orderPage = 500
	// leaseName is the name of the lease that keeps rehearsals apart. It is renewed every leaseRenew, because a lease that lasts
	// longer than another run asks for would count as expired, see repository.Store.Lease.
	leaseName  = "rehearsal"
	leaseTime  = time.Minute
	leaseRenew = 10 * time.Second
	// actor is the name of the command in the audit log, and at the gate.
	actor = "rehearse"
)

// ErrNotNow means that no rehearsal may run now.
var ErrNotNow = errors.New("no rehearsal now")

// clock returns the time by the database's clock.
func (r *run) clock() time.Time { return r.now().Add(r.skew) }

// mayRehearse returns ErrNotNow if an instance has another version, or if a sale that has not ended starts earlier than "quiet"
// after the planned arrivals. Shadow and closed sales do not count. With an embedded Redis no instances are seen.
func (r *run) mayRehearse(ctx context.Context) error {
	if r.gate != nil {
		running, err := r.gate.Running(ctx, r.clock())
		if err != nil {
			return err
		}
		for id, i := range running {
			if i.Version != r.version {
				return fmt.Errorf("%w: the instance %s is of version %q, and this command of %q", ErrNotNow, id, i.Version, r.version)
			}
		}
	}
	offers, err := r.stores.Database.LiveOffers(ctx, 0)
	if err != nil {
		return err
	}
	over := r.clock().Add(lead + r.shape.Lasts + quiet)
	for _, o := range offers {
		if !model.IsShadow(o.ID) && o.Status != model.SaleClosed && o.StartsAt.Before(over) {
			return fmt.Errorf("%w: the sale %s is open, or opens within %s", ErrNotNow, o.ID, (lead + r.shape.Lasts + quiet).Round(time.Second))
		}
	}
	return nil
}

// alone takes the lease of the rehearsals, or returns ErrNotNow if another rehearsal has it. "release" gives the lease back. The
// returned context ends with ctx, or when the lease is found lost.
func (r *run) alone(ctx context.Context) (_ context.Context, release func() error, err error) {
	ours, err := r.lease(ctx, leaseTime)
	if err == nil && !ours {
		err = fmt.Errorf("%w: another rehearsal runs, or was killed less than %s ago", ErrNotNow, leaseTime)
	}
	if err != nil {
		return nil, nil, err
	}
	held := context.WithoutCancel(ctx) // an interrupted run keeps the lease while it clears up
	ctx, cancel := context.WithCancel(ctx)
	renewing, stop := context.WithCancel(held)
	var renewer sync.WaitGroup
	renewer.Go(func() {
		for pause.For(renewing, leaseRenew) {
			if ours, err := r.lease(renewing, leaseTime); err == nil && !ours {
				cancel()
				return
			}
		}
	})
	return ctx, func() error {
		stop()
		renewer.Wait()
		defer cancel()
		limit, done := context.WithTimeout(held, clearTime)
		defer done()
		if ours, err := r.lease(limit, leaseTime); err != nil || !ours {
			return err
		}
		_, err := r.lease(limit, 0)
		return err
	}, nil
}

// lease takes or extends the lease of the rehearsals; false: another run has it. A ttl of 0 ends the lease, even another run's.
func (r *run) lease(ctx context.Context, ttl time.Duration) (bool, error) {
	return r.stores.Database.Lease(ctx, leaseName, r.holder, ttl)
}

// erase removes a hidden sale with its orders from the database and, if this command can reach Redis, its gate from there.
func (r *run) erase(ctx context.Context, saleID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	err := r.stores.Database.EraseSale(ctx, saleID)
	if r.gate != nil {
		err = errors.Join(err, r.gate.Erase(ctx, model.Sale{ID: saleID}.GateRef()), r.gate.Announce(ctx, saleID))
	}
	return err
}

// offer makes the hidden sale, with a time to pay that outlasts the run. It first removes hidden sales that were left behind.
func (r *run) offer(ctx context.Context) (model.Sale, error) {
	left, err := r.stores.Database.ShadowSales(ctx)
	if err != nil {
		return model.Sale{}, err
	}
	for _, id := range left {
		if err := r.erase(ctx, id); err != nil {
			return model.Sale{}, err
		}
	}
	whole := lead + r.shape.Lasts + linger + settleTime
	starts := r.clock().Add(lead).Truncate(time.Millisecond)
	sale := model.Sale{
		ID: model.NewShadowID(), Code: rand.Text()[:8], Title: "Rehearsal, never on sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1,
		PayTimeoutSeconds: int((2 * whole).Seconds()), StartsAt: starts, EndsAt: starts.Add(whole), Status: model.SaleShadow, Revision: 1, Shards: 1, Mode: model.ModeRush,
	}
	if err := r.stores.Database.CreateSale(ctx, sale, r.shape.Units, actor); err != nil {
		return model.Sale{}, err
	}
	if r.gate != nil {
		err = r.gate.Announce(ctx, sale.ID)
	}
	return sale, err
}

// ready waits until the crowd can read the sale at the URL and, if this command can reach a gate that the strategy uses, until
// the gate is open. It returns an error after settleTime.
func (r *run) ready(ctx context.Context, c *crowd) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	kind, _ := strategy.Of(r.settings.Strategy)
	b := &buyer{address: addressOf(0)}
	if c.send(ctx, b, request{method: http.MethodGet, path: "/api/v1/orders", public: true}).status == http.StatusUnauthorized {
		return errors.New("--secret: the server does not take tokens that are signed with it")
	}
	for {
		a := c.send(ctx, b, request{method: http.MethodGet, path: c.sale(), public: true})
		open := a.status == http.StatusOK
		if open && r.gate != nil && kind.UsesGate {
			states, err := r.gate.Peek(ctx, model.Sale{ID: c.saleID}.GateRef())
			if err != nil {
				return err
			}
			open = states[0].Open
		}
		switch {
		case open:
			return nil
		case pause.For(ctx, look): // look again
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return ctx.Err()
		case a.status == http.StatusOK:
			return fmt.Errorf("--strategy: the gate of the hidden sale does not open within %s; do the instances have the strategy %s?", settleTime, r.settings.Strategy)
		default:
			return fmt.Errorf("--url: the hidden sale is not there within %s (%s); does the server use the same --database?", settleTime, a)
		}
	}
}

// settled waits, for at most settleTime, until admitted attempts are in the database. Attempts that are missing are findings.
func (r *run) settled(ctx context.Context, saleID string, list []told) ([]Finding, error) {
	limit, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		var f findings
		if r.gate != nil {
			states, err := r.gate.Peek(ctx, model.Sale{ID: saleID}.GateRef())
			if err != nil {
				return nil, err
			}
			if waiting := states[0].Stream; waiting > 0 {
				f.add(WrongBooks, "admitted attempts wait in the stream", "", waiting)
			}
		}
		for _, t := range list {
			if t.order == "" || t.status != model.OrderQueued {
				continue
			}
			_, ok, err := r.stores.Database.Order(ctx, t.order)
			if err != nil {
				return nil, err
			}
			if !ok {
				f.add(LostOrder, "a buyer was told of a queued order that is not in the database", userOf(t.buyer)+" "+t.order, 1)
			}
		}
		if len(f.list) == 0 || !pause.For(limit, look) {
			return f.list, ctx.Err()
		}
	}
}

// books reads the sale's books.
func (r *run) books(ctx context.Context, saleID string) (b books, err error) {
	b.orders = map[string]model.Order{}
	audit, ok, err := r.stores.Auditor(r.gate).AuditSettled(ctx, saleID)
	if err == nil && !ok {
		err = fmt.Errorf("the hidden sale %s is gone", saleID)
	}
	if err != nil {
		return b, err
	}
	b.audit = audit
	for cursor := ""; ; {
		page, next, err := r.stores.Database.Orders(ctx, model.OrderFilter{SaleIDs: []string{saleID}, Cursor: cursor, Limit: orderPage})
		if err != nil {
			return b, err
		}
		for _, o := range page {
			b.orders[o.ID] = o
		}
		if cursor = next; cursor == "" {
			return b, nil
		}
	}
}
