package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"flashsale/internal/observe"
	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// rebuildPause is how old a gate's epoch, or its last renewal, must be before another rebuild begins. A rebuild renews the
	// epoch "renewals" times in rebuildPause, so that no other instance rebuilds the gate as well.
	rebuildPause   = time.Second
	renewals       = 4
	rebuildsAtOnce = 8 // by one Ensure
	// gateRequests is how many requests may wait. Further ones are dropped, since Ensure looks at the gates anyway.
	gateRequests = 256
	// changesAtOnce is about the most changes that go to a gate at once, so that the script takes a few milliseconds.
	changesAtOnce = 1000
)

// GateStore reads and writes what the database has about gates.
type GateStore interface {
	Offer(ctx context.Context, saleID string) (model.Offer, bool, error)
	NextEpoch(ctx context.Context, saleID string, seen, gates int64, pause time.Duration) (epoch int64, won bool, err error)
	RenewEpoch(ctx context.Context, saleID string, epoch int64) error
	GateContents(ctx context.Context, saleID string) (contents model.GateContents, ok bool, err error)
	GateChanges(ctx context.Context, saleID string, after int64, limit int) (changes []model.GateChange, upTo int64, more bool, err error)
	ForgetGateChanges(ctx context.Context, saleID string, upTo int64) error
	Log(ctx context.Context, actor, action, subject, detail string) error
}

// GateLife reads, replaces and changes gates in Redis.
type GateLife interface {
	Peeker
	Close(ctx context.Context, gate model.GateRef, epoch int64) (ok bool, err error)
	StreamLengths(ctx context.Context, gate model.GateRef) ([]int64, error)
	Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error)
	CatchUp(ctx context.Context, gate model.GateRef, after, upTo int64, changes []model.GateChange) error
	Count(ctx context.Context, gate model.GateRef, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error)
}

// Gates installs the gates of sales from the database: when a sale is new, and when a gate is lost or wrong. It also applies to
// the gates changes that the database has made without them.
type Gates struct {
	store     GateStore
	gate      GateLife
	catalog   *Catalog
	log       *slog.Logger
	observe   observe.All
	retired   bool
	atOnce    int // gates that Ensure rebuilds at the same time
	requests  chan GateRequest
	asked     sync.Map         // the requests that wait, so that many attempts cause only one request
	replace   sync.Map         // by sale, the request to replace its gate, until a newer gate is seen
	forgotten map[string]int64 // by sale, the version up to which its changes are deleted; only Ensure uses the map
}

// GateRequest asks for an open gate of a sale. A gate of Epoch or an older epoch is replaced even if it is open.
type GateRequest struct {
	SaleID string
	Reason model.RebuildReason
	Epoch  int64 // 0: any open gate of the newest epoch is enough
}

// NewGates creates the service. "retired" is true for a strategy that uses no gates. Gates then installs none, and closes those
// that are open, since they would not count what is sold without them.
func NewGates(store GateStore, gate GateLife, catalog *Catalog, retired bool, log *slog.Logger, observers ...observe.Observer) *Gates {
	return &Gates{
		store: store, gate: gate, catalog: catalog, retired: retired, log: log, observe: observers, atOnce: rebuildsAtOnce,
		requests: make(chan GateRequest, gateRequests), forgotten: map[string]int64{},
	}
}

// closes reports whether the gate of a sale is to be closed for good: the strategy uses no gates, or the sale is in line.
func (g *Gates) closes(o model.Offer) bool { return g.retired || o.Stock.Lined == model.InLine }

// Judge returns whether a sale sells now, as Catalog.Judge does.
func (g *Gates) Judge(saleID string) model.Verdict { return g.catalog.Judge(saleID) }

// NeedGate asks the controller to install a gate of a sale if none is open, and returns at once.
func (g *Gates) NeedGate(saleID string) {
	r := GateRequest{SaleID: saleID, Reason: model.RebuildNeeded}
	if _, waits := g.asked.LoadOrStore(r, true); waits {
		return
	}
	select {
	case g.requests <- r:
	default: // Ensure looks at the gates anyway
		g.asked.Delete(r)
	}
}

// ReplaceGate makes a following Ensure replace the gate of a sale, if the gate has this epoch or an older one.
func (g *Gates) ReplaceGate(saleID string, epoch int64, reason model.RebuildReason) {
	g.replace.Store(saleID, GateRequest{SaleID: saleID, Reason: reason, Epoch: epoch})
}

// Serve handles a request from Requests.
func (g *Gates) Serve(ctx context.Context, r GateRequest) error {
	g.asked.Delete(r)
	return g.rebuild(ctx, r)
}

// Requests returns the requests that wait for the controller.
func (g *Gates) Requests() <-chan GateRequest { return g.requests }

// rebuild installs a new gate of a sale, unless an open gate satisfies the request. It returns nil without a new gate if another
// rebuild has begun, or has renewed the epoch, less than rebuildPause ago. If the gate is to be closed for good, rebuild only
// closes it.
func (g *Gates) rebuild(ctx context.Context, r GateRequest) error {
	saleID := r.SaleID
	offer, ok, err := g.store.Offer(ctx, saleID)
	if err != nil || !ok {
		return err
	}
	states, err := g.gate.Peek(ctx, offer.GateRef())
	if err != nil {
		return err
	}
	fresh := states[0].Open && states[0].Epoch >= offer.Stock.Epoch && states[0].Epoch > r.Epoch
	closes := g.closes(offer)
	if closes && !states[0].Open || !closes && fresh {
		return nil
	}
	epoch, won, err := g.store.NextEpoch(ctx, saleID, offer.Stock.Epoch, states[0].Epoch, rebuildPause)
	if err != nil || !won {
		return err
	}
	if ok, err = g.gate.Close(ctx, offer.GateRef(), epoch); err != nil || !ok || closes {
		return err
	}
	defer g.renew(ctx, saleID, epoch)()
	ctx, rebuilt := g.observe.Begin(ctx, observe.Step{Name: observe.Rebuild, Label: string(r.Reason)})
	// The closed gate admits nothing, so its stream only shrinks, and no longer moves once it is empty.
	for err = model.ErrStreamMoved; errors.Is(err, model.ErrStreamMoved); {
		err = g.install(ctx, offer.GateRef(), epoch)
	}
	rebuilt(err)
	if errors.Is(err, model.ErrNewerGate) || errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rebuild the gate of sale %s: %w", saleID, err)
	}
	g.log.InfoContext(ctx, "gate installed", "sale", saleID, "epoch", epoch, "reason", r.Reason)
	// The snapshot lacks what the database sold or released after the snapshot was taken.
	return errors.Join(g.catchUpGate(ctx, offer.GateRef()), g.store.Log(ctx, engine, "install_gate", saleID, fmt.Sprintf("epoch %d: %s", epoch, r.Reason)))
}

// renew renews the time stamp of the epoch until stop is called: the rebuild of a large gate may take longer than rebuildPause.
func (g *Gates) renew(ctx context.Context, saleID string, epoch int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for pause.For(ctx, rebuildPause/renewals) {
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

// errGone means that the sale was erased meanwhile.
var errGone = errors.New("the sale is gone")

// install measures the stream, takes a snapshot of the database, and opens the new gate. Units of entries that are in the stream
// and not yet in the database are not offered again. install returns errGone, or the model.ErrStreamMoved or model.ErrNewerGate
// of the gate's Install.
func (g *Gates) install(ctx context.Context, gate model.GateRef, epoch int64) error {
	lengths, err := g.gate.StreamLengths(ctx, gate)
	if err != nil {
		return err
	}
	contents, ok, err := g.store.GateContents(ctx, gate.SaleID)
	if err != nil {
		return err
	}
	if !ok {
		return errGone
	}
	defer contents.Close()
	bad, err := g.gate.Install(ctx, epoch, lengths, contents)
	for _, text := range bad { // Install has deleted these entries, even if it failed afterwards
		g.log.ErrorContext(ctx, "an unreadable entry was deleted from the stream", "sale", gate.SaleID, "entry", text)
		err = errors.Join(err, g.store.Log(ctx, engine, "delete_entry", gate.SaleID, text))
	}
	return err
}

// Changed applies to a sale's gate the changes that the database has made without the gate, unless the gate is to be closed for
// good. It also ends the latch of the sale on this instance. A failure is logged, since a later Ensure may apply the changes.
func (g *Gates) Changed(ctx context.Context, saleID string) {
	ctx = context.WithoutCancel(ctx)
	offer, ok, err := g.catalog.Sale(ctx, saleID)
	if err == nil && ok && !g.closes(offer) {
		err = g.catchUpGate(ctx, offer.GateRef())
	}
	if err != nil {
		g.log.WarnContext(ctx, "the gate does not have a change of the database yet", "sale", saleID, "error", err)
	}
	g.catalog.Unlatch(saleID) // last: a gate that does not have the units yet would refuse, and so latch the sale again
}

// catchUpGate applies to a gate, if it exists, the changes of the stock that the gate lacks.
func (g *Gates) catchUpGate(ctx context.Context, gate model.GateRef) error {
	states, err := g.gate.Peek(ctx, gate)
	if err != nil {
		return err
	}
	if states[0].Away {
		return fmt.Errorf("%w: the gate of sale %s can't be reached", model.ErrUnavailable, gate.SaleID)
	}
	if !states[0].Exists {
		return nil
	}
	return g.catchUp(ctx, gate, states[0].Version)
}

// catchUp is catchUpGate for a gate that has all changes up to a version of the stock.
func (g *Gates) catchUp(ctx context.Context, gate model.GateRef, version int64) error {
	for {
		changes, upTo, more, err := g.store.GateChanges(ctx, gate.SaleID, version, changesAtOnce)
		if err != nil || upTo == version {
			return err
		}
		if err := g.gate.CatchUp(ctx, gate, version, upTo, changes); err != nil || !more {
			return err
		}
		version = upTo
	}
}

// Ensure checks the gates of the watched sales that have not ended. It rebuilds or closes those that need it, see wants. To other
// open gates it applies the changes of the stock that they lack. If they lack none, it deletes from the database the changes that
// they have. It leaves a gate that can't be reached alone, and returns an error if no gate can be reached.
func (g *Gates) Ensure(ctx context.Context) error {
	now := g.catalog.Now()
	live := g.catalog.live.Load().those(func(o *model.Offer) bool { return o.Judge(now) != model.Ended })
	if len(live) == 0 {
		g.replace.Clear()
		clear(g.forgotten)
		return nil
	}
	states, err := g.gate.Peek(ctx, model.GateRefs(live)...)
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
		case g.closes(live[i]):
		case s.Version < live[i].Stock.GateVersion:
			errs = append(errs, g.catchUp(ctx, live[i].GateRef(), s.Version))
		case live[i].Stock.GateVersion > g.forgotten[live[i].ID]:
			err := g.store.ForgetGateChanges(ctx, live[i].ID, s.Version)
			if errs = append(errs, err); err == nil {
				g.forgotten[live[i].ID] = s.Version
			}
		}
	}
	return errors.Join(append(errs, g.rebuildAll(ctx, wanted))...)
}

// wants returns whether the gate of a sale has to be rebuilt, or closed for good, and the request for that with the reason.
func (g *Gates) wants(o model.Offer, s model.GateState) (r GateRequest, wants bool) {
	r.SaleID = o.ID
	if g.closes(o) {
		r.Reason = model.RebuildClosed
		return r, s.Open
	}
	if asked, found := g.replace.Load(o.ID); found {
		if asked := asked.(GateRequest); s.Epoch <= asked.Epoch {
			return asked, true
		}
		g.replace.CompareAndDelete(o.ID, asked)
	}
	switch {
	case s.Open && s.Epoch <= o.Stock.WrongEpoch:
		r.Reason, r.Epoch = model.RebuildTooMany, s.Epoch
	case s.Open && s.Revision < o.Revision:
		r.Reason, r.Epoch = model.RebuildOldSale, s.Epoch
	case s.Open && s.Epoch < o.Stock.Epoch:
		r.Reason = model.RebuildOldEpoch
	case s.Open:
		return r, false
	case s.Exists:
		r.Reason = model.RebuildClosed
	default:
		r.Reason = model.RebuildMissing
	}
	return r, true
}

// rebuildAll rebuilds gates, several at a time: after a loss of Redis, the gates of all sales may be missing.
func (g *Gates) rebuildAll(ctx context.Context, wanted []GateRequest) error {
	errs, turns := make([]error, len(wanted)), make(chan struct{}, g.atOnce)
	var rebuilding sync.WaitGroup
	for i, r := range wanted {
		turns <- struct{}{}
		rebuilding.Go(func() {
			errs[i] = g.rebuild(ctx, r)
			<-turns
		})
	}
	rebuilding.Wait()
	return errors.Join(errs...)
}

// Preheat installs the gate of a new sale, unless the sale needs none.
func (g *Gates) Preheat(ctx context.Context, saleID string) error {
	return g.rebuild(ctx, GateRequest{SaleID: saleID, Reason: model.RebuildPreheat})
}

// Count counts one request of a user to a sale. If the user has sent more than f allows, ok is false, and the next request is
// allowed after retryAfter.
func (g *Gates) Count(ctx context.Context, saleID, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	offer, _, err := g.catalog.Sale(ctx, saleID)
	if err != nil {
		return 0, false, err
	}
	return g.gate.Count(ctx, model.GateRef{SaleID: saleID, CampaignID: offer.Campaign.ID, Shards: max(offer.Shards, 1)}, userID, f)
}
