package rush

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"flashsale/app"
	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/internal/pause"
	"flashsale/model"
	"flashsale/service"
	"flashsale/strategy"
)

const (
	// quiet is how long before the start of a sale a rehearsal must be over.
	quiet = 5 * time.Minute
	// lead is the time from the creation of the sale to its start, in which the instances hear of it.
	lead = 5 * time.Second
	// settleTime bounds the wait for the last orders after the run, clearTime the removal of the sale.
	settleTime, clearTime = time.Minute, time.Minute
	// look is the pause between two looks at a state that nothing announces.
	look = 50 * time.Millisecond
	// orderPage is how many orders are read at once.
	orderPage = 500
	// leaseName is the name of the lease that keeps rehearsals apart. It is renewed until the end: a lease that is longer
	// than another command asks for would count as expired, see repository.Store.Lease.
	leaseName  = "rehearsal"
	leaseTime  = time.Minute
	leaseRenew = 10 * time.Second
	// actor is the name of the command in the operations log.
	actor = "rush"
)

// ErrNotNow means that a rehearsal would do harm now, or could not be right.
var ErrNotNow = errors.New("no rehearsal now")

// shop is the shop on whose stores the hidden sale is.
type shop struct {
	settings config.Settings
	stores   *app.Stores
	gate     *gate.Gate // nil if Redis runs inside the process of the server, where this command cannot reach it
	version  string
	holder   string // of the lease
	skew     time.Duration
	now      func() time.Time
}

// openShop opens the stores of a running server.
func openShop(ctx context.Context, settings config.Settings, version string, now func() time.Time) (s *shop, err error) {
	s = &shop{settings: settings, version: version, holder: rand.Text(), now: now}
	open := settings
	if settings.Redis == config.EmbeddedRedis {
		open.RedisReplicas = ""
	}
	if s.stores, err = app.OpenStores(ctx, &open, nil); err != nil {
		return nil, err
	}
	if err := s.stores.Database.CheckSchema(ctx); err != nil {
		return nil, errors.Join(err, s.stores.Close())
	}
	if s.stores.Embedded == nil {
		s.gate = gate.New(s.stores.Redis, actor)
	}
	asked := now()
	clock, err := s.stores.Database.Now(ctx)
	if err != nil {
		return nil, errors.Join(err, s.stores.Close())
	}
	s.skew = clock.Sub(asked.Add(now().Sub(asked) / 2))
	return s, nil
}

// clock is the time by the database's clock, which decides when a sale starts.
func (s *shop) clock() time.Time { return s.now().Add(s.skew) }

// mayRehearse returns ErrNotNow if a sale is open or opens before the end of the rehearsal, or an instance has another
// version.
func (s *shop) mayRehearse(ctx context.Context, lasts time.Duration) error {
	if s.gate != nil {
		running, err := s.gate.Running(ctx, s.clock())
		if err != nil {
			return err
		}
		for id, i := range running {
			if i.Version != s.version {
				return fmt.Errorf("%w: the instance %s is of version %q, and this command of %q", ErrNotNow, id, i.Version, s.version)
			}
		}
	}
	offers, err := s.stores.Database.LiveOffers(ctx, 0)
	if err != nil {
		return err
	}
	over := s.clock().Add(lead + lasts + quiet)
	for _, o := range offers {
		if !model.IsShadow(o.ID) && o.Status != model.SaleClosed && o.StartsAt.Before(over) {
			return fmt.Errorf("%w: the sale %s is open, or opens within %s", ErrNotNow, o.ID, (lead + lasts + quiet).Round(time.Second))
		}
	}
	return nil
}

// alone returns ErrNotNow if another rehearsal runs. Else no other begins until release is called. The returned context
// ends if that can't be held, as after a pause of this machine.
func (s *shop) alone(ctx context.Context) (_ context.Context, release func() error, err error) {
	ours, err := s.stores.Database.Lease(ctx, leaseName, s.holder, leaseTime)
	if err == nil && !ours {
		err = fmt.Errorf("%w: another rehearsal runs, or was killed less than %s ago", ErrNotNow, leaseTime)
	}
	if err != nil {
		return nil, nil, err
	}
	held := context.WithoutCancel(ctx) // also while an interrupted run clears up
	ctx, cancel := context.WithCancel(ctx)
	renewing, stop := context.WithCancel(held)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for pause.For(renewing, leaseRenew) {
			if ours, err := s.stores.Database.Lease(renewing, leaseName, s.holder, leaseTime); err == nil && !ours {
				cancel()
				return
			}
		}
	}()
	return ctx, func() error {
		stop()
		<-stopped
		defer cancel()
		limit, done := context.WithTimeout(held, clearTime)
		defer done()
		if ours, err := s.stores.Database.Lease(limit, leaseName, s.holder, leaseTime); err != nil || !ours {
			return err
		}
		_, err := s.stores.Database.Lease(limit, leaseName, s.holder, 0)
		return err
	}, nil
}

// gateOf names the gate of a rehearsal's sale, which has one shard.
func gateOf(saleID string) model.GateRef { return model.GateRef{SaleID: saleID, Shards: 1} }

// erase removes a hidden sale with all that belongs to it.
func (s *shop) erase(ctx context.Context, saleID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	err := s.stores.Database.EraseSale(ctx, saleID)
	if s.gate != nil {
		err = errors.Join(err, s.gate.Erase(ctx, gateOf(saleID)), s.gate.Announce(ctx, saleID))
	}
	return err
}

// offer removes what a killed rehearsal has left, and makes the hidden sale. Nobody's order expires during the run.
func (s *shop) offer(ctx context.Context, units int64, lasts time.Duration) (model.Sale, error) {
	left, err := s.stores.Database.ShadowSales(ctx)
	if err != nil {
		return model.Sale{}, err
	}
	for _, id := range left {
		if err := s.erase(ctx, id); err != nil {
			return model.Sale{}, err
		}
	}
	whole := lead + lasts + linger + settleTime
	starts := s.clock().Add(lead).Truncate(time.Millisecond)
	sale := model.Sale{
		ID: model.NewShadowID(), Code: rand.Text()[:8], Title: "Rehearsal, never on sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1,
		PayTimeoutSeconds: int((2 * whole).Seconds()), StartsAt: starts, EndsAt: starts.Add(whole), Status: model.SaleShadow, Revision: 1, Shards: 1, Mode: model.ModeRush,
	}
	if err := s.stores.Database.CreateSale(ctx, sale, units, actor); err != nil {
		return model.Sale{}, err
	}
	if s.gate != nil {
		err = s.gate.Announce(ctx, sale.ID)
	}
	return sale, err
}

// ready waits until the crowd can read the sale at the URL, and its gate is open if the strategy has one. It returns an error at
// once if the server takes no tokens of the crowd.
func (s *shop) ready(ctx context.Context, c *client, saleID string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	kind, _ := strategy.Of(s.settings.Strategy)
	b := &buyer{address: addressOf(0)}
	if c.send(ctx, b, request{method: http.MethodGet, path: "/api/v1/orders", public: true}).status == http.StatusUnauthorized {
		return errors.New("--secret: the server does not take tokens that are signed with it")
	}
	for {
		a := c.send(ctx, b, request{method: http.MethodGet, path: "/api/v1/sales/" + saleID, public: true})
		open := true
		if a.status == http.StatusOK && s.gate != nil && kind.UsesGate {
			states, err := s.gate.Peek(ctx, gateOf(saleID))
			if err != nil {
				return err
			}
			open = states[0].Open
		}
		if a.status == http.StatusOK && open {
			return nil
		}
		if pause.For(ctx, look) {
			continue
		}
		switch {
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return ctx.Err()
		case a.status == http.StatusOK:
			return fmt.Errorf("--strategy: the gate of the hidden sale does not open within %s; do the instances have the strategy %s?", settleTime, s.settings.Strategy)
		default:
			return fmt.Errorf("--url: the hidden sale is not there within %s (%s); does the server use the same --database?", settleTime, a)
		}
	}
}

// settled waits until every admitted attempt is in the database, and returns the attempts that were not in time: as
// findings, since an attempt that was admitted has to be settled.
func (s *shop) settled(ctx context.Context, saleID string, list []told) ([]Finding, error) {
	limit, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		var f findings
		if s.gate != nil {
			states, err := s.gate.Peek(ctx, gateOf(saleID))
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
			_, ok, err := s.stores.Database.Order(ctx, t.order)
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

// books reads the sale's books after the run.
func (s *shop) books(ctx context.Context, saleID string) (b books, err error) {
	auditor := &service.Auditor{Store: s.stores.Database}
	if s.gate != nil {
		auditor.Gate = s.gate
	}
	b.orders = map[string]model.Order{}
	var ok bool
	if b.audit, ok, err = auditor.AuditSettled(ctx, saleID); err != nil || !ok {
		return b, errors.Join(err, missing(ok, saleID))
	}
	for cursor := ""; ; {
		page, next, err := s.stores.Database.Orders(ctx, model.OrderFilter{SaleID: saleID, Cursor: cursor, Limit: orderPage})
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

func missing(ok bool, saleID string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("the hidden sale %s is gone", saleID)
}
