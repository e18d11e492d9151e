package sim

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/service"
	"flashsale/strategy"
	"flashsale/worker"
)

const (
	// refreshPeriod and ensurePeriod are the periods of worker.Controller.
	refreshPeriod = 250 * time.Millisecond
	ensurePeriod  = time.Second
	ackWait       = 800 * time.Millisecond
)

// instance is one run of the engine in a place. Each start has a name of its own.
type instance struct {
	s     *sim
	place int
	name  string
	ctx   context.Context
	stop  context.CancelFunc
	gone  chan struct{} // closed when the instance is killed
	dead  bool          // guarded by turns.mu

	gathers  atomic.Bool      // attempts have gathered at the gate since the last call that settles
	desks    map[string]*desk // by sale
	strategy strategy.Strategy
	settler  *worker.Settler
	waiters  *service.Waiters
	log      *slog.Logger
}

// desk holds an instance's parts for one sale. If all sales shared them, the order in which two gates are replaced
// would depend on chance.
type desk struct {
	sale    string
	catalog *service.Catalog
	gates   *service.Gates
	changed chan struct{}
	expired chan struct{} // signals that orders of the sale have expired
}

// start runs a new instance in a place. While the database is away no instance can start, so start tries again later.
func (s *sim) start(place int) {
	if s.away(inDatabase, place) {
		s.later(500*time.Millisecond, fmt.Sprintf("place %d starts", place), func(s *sim) { s.start(place) })
		return
	}
	if s.places[place] != nil {
		return
	}
	s.starts[place]++
	i := &instance{
		s: s, place: place, name: fmt.Sprintf("%c%d", 'a'+place, s.starts[place]), gone: make(chan struct{}),
		desks: map[string]*desk{}, waiters: service.NewWaiters(time.Now),
	}
	i.ctx, i.stop = context.WithCancel(s.ctx)
	i.log = slog.New(logger{s, i.name})
	for _, sale := range s.sales {
		d := &desk{sale: sale, changed: make(chan struct{}, 1), expired: make(chan struct{}, 1)}
		d.catalog = service.NewCatalog(catalogView{i.database("catalog").view, sale}, time.Now)
		d.gates = service.NewGates(i.database("gates "+s.name(sale)), i.redis("gates "+s.name(sale)), d.catalog, false, i.log)
		s.must(d.catalog.Refresh(i.ctx))
		i.desks[sale] = d
	}
	i.settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: i.redis("settler"), Ledger: s.mutation.ledger(i), Live: func() []model.GateRef { return refs(s.sales...) },
		Running:  func(context.Context, time.Duration) []string { return s.running() },
		Instance: i.name, Apart: i.waiters.Apart, Wake: i.waiters.Wake, Lost: func(gate model.GateRef) {
			i.replace(gate.SaleID, i.desks[gate.SaleID].catalog.Epoch(gate.SaleID), model.RebuildLost)
		},
		Now: time.Now, Log: i.log,
	})
	i.strategy = strategy.NewHybrid(strategy.Needs{
		Gate: i.redis("door"), Database: i.database("door"), Control: control{i}, Settler: front{i}, Log: i.log, Now: time.Now,
	})
	expirer := &worker.Expirer{Store: i.database("expirer"), Released: i.expired, Grace: payGrace, Now: time.Now, Log: i.log}
	refunder := &worker.Refunder{Store: i.database("refunder"), Provider: "sandbox", Refund: s.refund, Log: i.log}
	s.mu.Lock()
	s.places[place] = i
	s.mu.Unlock()
	for _, run := range []func(context.Context){i.settler.Run, expirer.Run, refunder.Run} {
		s.work.Go(func() { run(i.ctx) })
	}
	for _, sale := range s.sales {
		d, part := i.desks[sale], "auditor "+s.name(sale)
		auditor := &worker.Auditor{
			Audits: &service.Auditor{Store: auditView{i.database(part), sale}, Gate: i.redis(part)},
			Lease: func(ctx context.Context, loop string, ttl time.Duration) (bool, error) {
				return i.database(part).Lease(ctx, loop, i.name, ttl)
			},
			AuditLog: i.database(part), Catalog: d.catalog, Replace: i.replace, Log: i.log,
		}
		s.work.Go(func() { auditor.Run(i.ctx) })
		s.work.Go(func() { i.refresh(d) })
		s.work.Go(func() { i.lookAfterGates(d) })
		s.work.Go(func() { i.tellOfExpired(d) })
	}
}

// refs names the gates of sales, each in one shard.
func refs(sales ...string) []model.GateRef {
	gates := make([]model.GateRef, len(sales))
	for i, sale := range sales {
		gates[i] = model.GateRef{SaleID: sale, Shards: 1}
	}
	return gates
}

// kill ends an instance at once. Its calls to the stores may still happen, but it gets no answers.
func (s *sim) kill(place int) {
	i := s.places[place]
	if i == nil {
		return
	}
	s.mu.Lock()
	s.places[place] = nil
	i.dead = true
	s.mu.Unlock()
	close(i.gone)
	i.stop()
	s.work.Go(i.strategy.Close)
}

func (i *instance) killed() bool {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	return i.dead
}

func (i *instance) redis(part string) gateView {
	return gateView{gate.New(i.s.client, i.name), view{i.s, i, part, inRedis}}
}

func (i *instance) database(part string) storeView {
	return storeView{i.s.db, view{i.s, i, part, inDatabase}}
}

func (i *instance) hear() {
	for _, d := range i.desks {
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
}

// replace requests a new gate. Requests with different reasons would be separate, although they have the same effect,
// so all have the same reason.
func (i *instance) replace(sale string, epoch int64, _ model.RebuildReason) {
	what := fmt.Sprintf("%s replace the gate of %s of epoch %d", i.name, sale, epoch)
	i.s.ask(what, func() { i.desks[sale].gates.ReplaceGate(sale, epoch, model.RebuildDrift) })
}

// teller returns a service.Gates for a part of the instance that makes its own calls to the stores.
func (i *instance) teller(part, sale string) *service.Gates {
	return service.NewGates(i.database(part), i.redis(part), i.desks[sale].catalog, false, i.log)
}

// front is the settler as the strategy uses it.
type front struct{ i *instance }

func (f front) Add(entries []model.Entry) {
	i := f.i
	i.s.ask(i.name+" settle "+listed(entries, func(e model.Entry) string { return i.s.name(e.ID) }), func() { i.settler.Add(entries) })
}

// Busy is asked before a call of the gate; if it is true, the call waits for more attempts.
func (f front) Busy() bool {
	busy := f.i.settler.Busy()
	if busy {
		f.i.gathers.Store(true)
	}
	return busy
}

// running returns the names of the instances that run.
func (s *sim) running() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.places {
		if i != nil {
			names = append(names, i.name)
		}
	}
	return names
}

// expired has the releases of expired orders brought to the gates. The expirer takes the sales in a random order, so
// each sale has a loop of its own, and the expirer waits for none of them.
func (i *instance) expired(_ context.Context, sale string, _ []model.Release) {
	select {
	case i.desks[sale].expired <- struct{}{}:
	default:
	}
}

func (i *instance) tellOfExpired(d *desk) {
	teller := i.teller("expirer", d.sale)
	for {
		select {
		case <-i.ctx.Done():
			return
		case <-d.expired:
			teller.Changed(i.ctx, d.sale)
		}
	}
}

// refresh and lookAfterGates do the work of worker.Controller. If a request and a period come together, the controller
// chooses at random; here the request goes first.
func (i *instance) refresh(d *desk) {
	// No other timer ends at this offset within a millisecond. Otherwise what others read from the catalog at the same
	// instant would depend on chance.
	time.Sleep(111 * time.Microsecond) // of the bubble's clock
	ticker := time.NewTicker(refreshPeriod)
	defer ticker.Stop()
	for {
		_ = d.catalog.Refresh(i.ctx) // fails while the database is away, and is repeated
		select {
		case <-i.ctx.Done():
			return
		case <-ticker.C:
		case <-d.changed:
		}
	}
}

func (i *instance) lookAfterGates(d *desk) {
	ticker := time.NewTicker(ensurePeriod)
	defer ticker.Stop()
	_ = d.gates.Ensure(i.ctx) // what fails here and below is repeated
	for i.ctx.Err() == nil {
		select {
		case r := <-d.gates.Requests():
			_ = d.gates.Serve(i.ctx, r)
			continue
		default:
		}
		select {
		case <-i.ctx.Done():
		case r := <-d.gates.Requests():
			_ = d.gates.Serve(i.ctx, r)
		case <-ticker.C:
			_ = d.gates.Ensure(i.ctx)
		}
	}
}

// control is the instance's control module as its strategy uses it.
type control struct{ i *instance }

func (c control) Judge(sale string) model.Verdict { return c.i.desks[sale].gates.Judge(sale) }

func (c control) NeedGate(sale string) {
	c.i.s.ask(c.i.name+" need a gate of "+sale, func() { c.i.desks[sale].gates.NeedGate(sale) })
}
