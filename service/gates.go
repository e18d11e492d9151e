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
	// rebuildPause keeps a sale's gate from being rebuilt more often than once in this time, by anyone, and from being rebuilt
	// by two at a time: who does so renews the epoch renewals times in it.
	rebuildPause = time.Second
	renewals     = 4
	// rebuildsAtOnce is how many gates an instance rebuilds at the same time.
	rebuildsAtOnce = 8
	// gateRequests wait for the controller; more than that ask for the same gates.
	gateRequests = 256
	// changesAtOnce go to a gate in one script, which takes a few milliseconds for them.
	changesAtOnce = 1000
)

// GateStore is what the database knows of gates.
type GateStore interface {
	Offer(ctx context.Context, saleID string) (model.Offer, bool, error)
	NextEpoch(ctx context.Context, saleID string, seen, gates int64, pause time.Duration) (epoch int64, won bool, err error)
	RenewEpoch(ctx context.Context, saleID string, epoch int64) error
	GateContents(ctx context.Context, saleID string) (contents model.GateContents, ok bool, err error)
	Log(ctx context.Context, actor, action, subject, detail string) error
}

// GateChanges are the changes in the database that gates have to be told.
type GateChanges interface {
	GateChanges(ctx context.Context, saleID string, after int64, limit int) (changes []model.GateChange, upTo int64, more bool, err error)
	ForgetGateChanges(ctx context.Context, saleID string, upTo int64) error
}

// GateLife is how gates are looked at and replaced in Redis.
type GateLife interface {
	Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error)
	Close(ctx context.Context, saleID string, epoch int64) (ok bool, err error)
	StreamLengths(ctx context.Context, saleID string) ([]int64, error)
	Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error)
}

// GateListener is how a gate in Redis is told of changes.
type GateListener interface {
	CatchUp(ctx context.Context, saleID string, after, upTo int64, changes []model.GateChange) error
}

// Gates installs the gates of sales from the database: before a sale opens, and whenever one is lost or wrong; and tells
// them what the database changes without them. Whatever makes a gate wrong is recorded in the database by the
// transaction that does so, so any instance finds it when it looks next, also if the one that did it died.
type Gates struct {
	Installed func(reason string) // hears of every gate that this instance has installed; may be nil

	store interface {
		GateStore
		GateChanges
	}
	gate interface {
		GateLife
		GateListener
	}
	catalog   *Catalog
	log       *slog.Logger
	retired   bool
	atOnce    int // gates rebuilt at the same time
	requests  chan GateRequest
	asked     sync.Map         // requests that wait, so that a thousand attempts ask once
	replace   sync.Map         // by sale, the requests to replace its gate, until a newer one is seen
	forgotten map[string]int64 // by sale, up to which version its changes are deleted; only Ensure uses it
}

// GateRequest asks for an open gate of a sale. One of this epoch or an older one is replaced even if it is open.
type GateRequest struct {
	SaleID, Reason string
	Epoch          int64 // 0: an open gate will do
}

// NewGates makes the service.
func NewGates(store interface {
	GateStore
	GateChanges
}, gate interface {
	GateLife
	GateListener
}, catalog *Catalog, log *slog.Logger,
) *Gates {
	return &Gates{
		store: store, gate: gate, catalog: catalog, log: log, atOnce: rebuildsAtOnce,
		requests: make(chan GateRequest, gateRequests), forgotten: map[string]int64{},
	}
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

// ReplaceGate asks the controller for a new gate in place of one of this epoch, and returns at once. It is installed
// within a second, or when Redis is back.
func (g *Gates) ReplaceGate(saleID string, epoch int64, reason string) {
	g.replace.Store(saleID, GateRequest{SaleID: saleID, Reason: reason, Epoch: epoch})
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
func (g *Gates) rebuild(ctx context.Context, r GateRequest) error {
	saleID := r.SaleID
	offer, ok, err := g.store.Offer(ctx, saleID)
	if err != nil || !ok {
		return err
	}
	states, err := g.gate.Peek(ctx, saleID)
	if err != nil {
		return err
	}
	fresh := states[0].Open && states[0].Epoch >= offer.Stock.Epoch && states[0].Epoch > r.Epoch
	if g.retired && !states[0].Open || !g.retired && fresh {
		return nil
	}
	epoch, won, err := g.store.NextEpoch(ctx, saleID, offer.Stock.Epoch, states[0].Epoch, rebuildPause)
	if err != nil || !won {
		return err
	}
	if ok, err = g.gate.Close(ctx, saleID, epoch); err != nil || !ok || g.retired {
		return err
	}
	defer g.renew(ctx, saleID, epoch)()
	// The old gate admits nothing by now, so that each time entries were settled, of which there are only so many.
	for err = model.ErrStreamMoved; errors.Is(err, model.ErrStreamMoved); {
		err = g.install(ctx, saleID, epoch)
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
	// What the database sold or released meanwhile is not in the snapshot.
	return errors.Join(g.CatchUp(ctx, saleID), g.store.Log(ctx, "engine", "install_gate", saleID, fmt.Sprintf("epoch %d: %s", epoch, r.Reason)))
}

// renew renews the epoch's time stamp until stop is called. Without this, another instance would start a rebuild of a newer
// epoch after rebuildPause, and a large gate takes longer.
func (g *Gates) renew(ctx context.Context, saleID string, epoch int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticker := time.NewTicker(rebuildPause / renewals)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := g.store.RenewEpoch(ctx, saleID, epoch); err != nil && ctx.Err() == nil {
				g.log.WarnContext(ctx, "another instance may start a rebuild as well", "sale", saleID, "error", err)
			}
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// install measures the stream, takes a snapshot of the database, and opens the new gate if no entry has left the stream
// since. The units of entries that are in the stream and not yet in the database are not offered again.
func (g *Gates) install(ctx context.Context, saleID string, epoch int64) error {
	lengths, err := g.gate.StreamLengths(ctx, saleID)
	if err != nil {
		return err
	}
	contents, ok, err := g.store.GateContents(ctx, saleID)
	if err != nil || !ok {
		return err
	}
	defer contents.Close()
	bad, err := g.gate.Install(ctx, epoch, lengths, contents)
	for _, text := range bad { // Install has deleted these entries, also if it failed later
		g.log.ErrorContext(ctx, "an entry that nobody can read was deleted from the stream", "sale", saleID, "entry", text)
		err = errors.Join(err, g.store.Log(ctx, "engine", "delete_entry", saleID, text))
	}
	return err
}

// Changed tells a sale's gate what the database has just changed without it. If that fails, the next Ensure of any
// instance does it.
func (g *Gates) Changed(ctx context.Context, saleID string) {
	if err := g.CatchUp(context.WithoutCancel(ctx), saleID); err != nil {
		g.log.WarnContext(ctx, "the gate could not be told of a change yet", "sale", saleID, "error", err)
	}
	g.catalog.Unlatch(saleID)
}

// CatchUp tells a sale's gate, if there is one, what the database has changed without it.
func (g *Gates) CatchUp(ctx context.Context, saleID string) error {
	states, err := g.gate.Peek(ctx, saleID)
	if err != nil {
		return err
	}
	if states[0].Away {
		return fmt.Errorf("%w: the gate of sale %s can't be reached", model.ErrUnavailable, saleID)
	}
	if !states[0].Exists {
		return nil
	}
	return g.catchUp(ctx, saleID, states[0].Version)
}

// catchUp is CatchUp for a gate that knows the changes up to a version.
func (g *Gates) catchUp(ctx context.Context, saleID string, version int64) error {
	for {
		changes, upTo, more, err := g.store.GateChanges(ctx, saleID, version, changesAtOnce)
		if err != nil || upTo == version {
			return err
		}
		if err := g.gate.CatchUp(ctx, saleID, version, upTo, changes); err != nil || !more {
			return err
		}
		version = upTo
	}
}

// Ensure looks after the gates of the sales that have not ended: it rebuilds those that are missing, closed, behind the
// database or wrong, and tells the others what they missed. Retired gates that are open are closed.
func (g *Gates) Ensure(ctx context.Context) error {
	live := g.catalog.live.Load().list()
	live = slices.DeleteFunc(live, func(o model.Offer) bool { return o.Judge(g.catalog.Now()) == model.Ended })
	if len(live) == 0 {
		g.replace.Clear()
		clear(g.forgotten)
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
	var errs []error
	for i, s := range states {
		switch r, wants := g.wants(live[i], s); {
		case s.Away:
		case wants:
			wanted = append(wanted, r)
		case g.retired:
		case s.Version < live[i].Stock.GateVersion:
			errs = append(errs, g.catchUp(ctx, ids[i], s.Version))
		case live[i].Stock.GateVersion > g.forgotten[ids[i]]:
			err := g.store.ForgetGateChanges(ctx, ids[i], s.Version)
			if errs = append(errs, err); err == nil {
				g.forgotten[ids[i]] = s.Version
			}
		}
	}
	return errors.Join(append(errs, g.rebuildAll(ctx, wanted))...)
}

// wants says whether the gate of a sale has to be rebuilt, and why.
func (g *Gates) wants(o model.Offer, s model.GateState) (r GateRequest, wants bool) {
	r.SaleID = o.ID
	if asked, found := g.replace.Load(o.ID); found {
		if asked := asked.(GateRequest); s.Epoch <= asked.Epoch {
			return asked, true
		}
		g.replace.CompareAndDelete(o.ID, asked)
	}
	switch {
	case s.Open && s.Epoch <= o.Stock.WrongEpoch:
		r.Reason, r.Epoch = "it admitted more than the stock", s.Epoch
	case s.Open && s.Revision < o.Revision:
		r.Reason, r.Epoch = "missed a change", s.Epoch
	case s.Open && s.Epoch < o.Stock.Epoch:
		r.Reason = "of an older epoch"
	case s.Open:
		return r, g.retired
	case s.Exists:
		r.Reason = "left closed, or of another Redis"
	default:
		r.Reason = "missing"
	}
	return r, true
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
