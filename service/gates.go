package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/model"
)

const (
	// rebuildPause keeps a sale's gate from being rebuilt more often than once in this time, by anyone.
	rebuildPause = time.Second
	// rebuildsAtOnce is how many gates an instance rebuilds at the same time.
	rebuildsAtOnce = 8
	// installTries bounds how often the stream may move under a rebuild. The old gate admits nothing by
	// then, so that each time entries were settled, of which there are only so many.
	installTries = 20
	// gateRequests wait for the controller; more than that ask for the same gates.
	gateRequests = 256
)

// GateStore is what the database knows of gates.
type GateStore interface {
	Offer(ctx context.Context, saleID string) (model.Offer, bool, error)
	NextEpoch(ctx context.Context, saleID string, seen, gates int64, pause time.Duration) (epoch int64, won bool, err error)
	GateContents(ctx context.Context, saleID string, pending []model.Entry) (contents model.GateContents, ok bool, err error)
	Log(ctx context.Context, actor, action, subject, detail string) error
}

// GateLife is how gates are looked at and replaced in Redis.
type GateLife interface {
	Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error)
	Close(ctx context.Context, saleID string, epoch int64) (ok bool, err error)
	Pending(ctx context.Context, saleID string) ([]model.Entry, error)
	Install(ctx context.Context, epoch int64, c model.GateContents, entries []model.Entry) error
}

// Gates installs the gates of sales from the database: before a sale opens, and whenever one is lost or wrong.
type Gates struct {
	Installed func(reason string) // hears of every gate that this instance has installed; may be nil

	store    GateStore
	gate     GateLife
	catalog  *Catalog
	log      *slog.Logger
	retired  bool
	atOnce   int // gates rebuilt at the same time
	requests chan GateRequest
	asked    sync.Map // requests that wait, so that a thousand attempts ask once
	replace  sync.Map // requests for new gates that the controller serves when it looks next, until each is done
}

// GateRequest asks for a gate: for an open one if there is none, or for a new one in any case.
type GateRequest struct {
	SaleID, Reason string
	Replace        bool
}

// NewGates makes the service.
func NewGates(store GateStore, gate GateLife, catalog *Catalog, log *slog.Logger) *Gates {
	return &Gates{store: store, gate: gate, catalog: catalog, log: log, atOnce: rebuildsAtOnce, requests: make(chan GateRequest, gateRequests)}
}

// Retire is for a strategy that uses no gates: none is installed any more, and those that an earlier strategy left
// open are closed, since they would not hear of what is sold. It must be called before anything else.
func (g *Gates) Retire() { g.retired = true }

// Epoch is the newest generation of a sale's gate that this instance has heard of.
func (g *Gates) Epoch(saleID string) int64 { return g.catalog.Epoch(saleID) }

// Judge says whether a sale sells now, as far as this instance knows: NotFound if it isn't watched.
func (g *Gates) Judge(saleID string) model.Verdict { return g.catalog.Judge(saleID) }

// NeedGate asks the controller to see to it that a sale has an open gate, and returns at once.
func (g *Gates) NeedGate(saleID, reason string) { g.ask(GateRequest{SaleID: saleID, Reason: reason}) }

// ReplaceGate asks the controller for a new gate of a sale whose present one is wrong, and returns at once. It is
// installed within a second, or when Redis is back.
func (g *Gates) ReplaceGate(saleID, reason string) {
	g.replace.LoadOrStore(saleID, reason)
}

func (g *Gates) ask(r GateRequest) {
	if _, waits := g.asked.LoadOrStore(r, true); waits {
		return
	}
	select {
	case g.requests <- r:
	default: // the controller looks at every gate each second anyway
		g.asked.Delete(r)
	}
}

// Serve does what a request asks for.
func (g *Gates) Serve(ctx context.Context, r GateRequest) error {
	g.asked.Delete(r)
	return g.rebuild(ctx, r)
}

// Requests are the gates asked for.
func (g *Gates) Requests() <-chan GateRequest { return g.requests }

// rebuild installs a new gate of a sale over an absent or an older one. Of several callers, in all instances,
// one wins and the others return at once; so does a caller that finds a rebuild not a second old.
func (g *Gates) rebuild(ctx context.Context, r GateRequest) (err error) {
	saleID := r.SaleID
	defer func() {
		if err != nil && r.Replace {
			g.ReplaceGate(saleID, r.Reason)
		}
	}()
	offer, ok, err := g.store.Offer(ctx, saleID)
	if err != nil || !ok {
		return err
	}
	states, err := g.gate.Peek(ctx, saleID)
	if err != nil {
		return err
	}
	fresh := states[0].Open && states[0].Epoch >= offer.Stock.Epoch
	if g.retired && !states[0].Open || !g.retired && fresh && !r.Replace {
		return nil
	}
	epoch, won, err := g.store.NextEpoch(ctx, saleID, offer.Stock.Epoch, states[0].Epoch, rebuildPause)
	if err != nil || !won {
		if r.Replace { // what it is asked for may have come after the other rebuild
			g.ReplaceGate(saleID, r.Reason)
		}
		return err
	}
	if ok, err = g.gate.Close(ctx, saleID, epoch); err != nil || !ok || g.retired {
		return err
	}
	for range installTries {
		err = g.install(ctx, saleID, epoch)
		if !errors.Is(err, model.ErrStreamMoved) {
			break
		}
	}
	if errors.Is(err, model.ErrNewerGate) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rebuild the gate of sale %s: %w", saleID, err)
	}
	g.log.InfoContext(ctx, "gate installed", "sale", saleID, "epoch", epoch, "reason", r.Reason)
	if g.Installed != nil {
		g.Installed(r.Reason)
	}
	return g.store.Log(ctx, "engine", "install_gate", saleID, fmt.Sprintf("epoch %d: %s", epoch, r.Reason))
}

// install reads the stream, then the database, then opens the new gate if the stream has not moved since:
// what is in the stream and not in the database yet is left out of the units that the gate may admit.
func (g *Gates) install(ctx context.Context, saleID string, epoch int64) error {
	entries, err := g.gate.Pending(ctx, saleID)
	if err != nil {
		return err
	}
	contents, ok, err := g.store.GateContents(ctx, saleID, entries)
	if err != nil || !ok {
		return err
	}
	return g.gate.Install(ctx, epoch, contents, entries)
}

// Ensure rebuilds the gates that are missing, closed or behind the database, of the sales that have not ended; or closes the open ones
// if they are retired.
func (g *Gates) Ensure(ctx context.Context) error {
	live := g.catalog.live.Load().list()
	live = slices.DeleteFunc(live, func(o model.Offer) bool { return o.Judge(g.catalog.Now()) == model.Ended })
	if len(live) == 0 {
		g.replace.Clear()
		return nil
	}
	ids := make([]string, len(live))
	for i, o := range live {
		ids[i] = o.ID
	}
	states, err := g.gate.Peek(ctx, ids...)
	if err != nil {
		return err
	}
	var wanted []GateRequest
	for i, s := range states {
		if s.Away { // what was asked for stays asked for
			continue
		}
		r := GateRequest{SaleID: ids[i], Reason: "missing"}
		reason, replace := g.replace.LoadAndDelete(r.SaleID)
		switch {
		case replace:
			r.Reason, _ = reason.(string)
			r.Replace = true
		case s.Open && s.Revision < live[i].Revision:
			r.Reason, r.Replace = "missed a change", true
		case s.Open && s.Epoch < live[i].Stock.Epoch:
			r.Reason = "of an older epoch"
		case s.Open && !g.retired:
			continue
		case s.Exists && !s.Open:
			r.Reason = "left closed, or of another Redis"
		}
		wanted = append(wanted, r)
	}
	return g.rebuildAll(ctx, wanted)
}

// rebuildAll rebuilds the gates of many sales, several at a time: at a start, or after a loss of Redis, buyers of
// all of them wait.
func (g *Gates) rebuildAll(ctx context.Context, wanted []GateRequest) error {
	errs := make([]error, len(wanted))
	var next atomic.Int64
	var rebuilding sync.WaitGroup
	for range min(len(wanted), g.atOnce) {
		rebuilding.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(wanted)); i = next.Add(1) - 1 {
				errs[i] = g.rebuild(ctx, wanted[i])
			}
		})
	}
	rebuilding.Wait()
	return errors.Join(errs...)
}

// Preheat installs the gate of a new sale.
func (g *Gates) Preheat(ctx context.Context, saleID string) error {
	return g.rebuild(ctx, GateRequest{SaleID: saleID, Reason: "preheat"})
}
