package sim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/service"
	"flashsale/strategy"
	"flashsale/worker"
)

const (
	// refreshPeriod and ensurePeriod are those of worker.Controller.
	refreshPeriod = 250 * time.Millisecond
	ensurePeriod  = time.Second
	ackWait       = 800 * time.Millisecond
)

// instance is one run of the engine in a place. It has a name of its own, as each start has.
type instance struct {
	s     *sim
	place int
	name  string
	ctx   context.Context
	stop  context.CancelFunc
	gone  chan struct{} // closed by its end
	dead  bool          // under the world's lock

	desks    map[string]*desk // by sale
	strategy strategy.Strategy
	settler  *worker.Settler
	waiters  *service.Waiters
	log      *slog.Logger
}

// desk is what an instance has for one sale. With one for all sales, the order in which two gates are replaced would be
// left to chance.
type desk struct {
	sale    string
	catalog *service.Catalog
	gates   *service.Gates
	changed chan struct{}
	expired chan struct{} // orders of the sale have expired
}

// start runs a new instance in a place, when the database is there, without which none starts.
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
		desks: map[string]*desk{}, waiters: service.NewWaiters(),
	}
	i.ctx, i.stop = context.WithCancel(s.ctx)
	i.log = slog.New(logger{s, i.name})
	for _, sale := range s.sales {
		d := &desk{sale: sale, changed: make(chan struct{}, 1), expired: make(chan struct{}, 1)}
		d.catalog = service.NewCatalog(catalogView{i.view("catalog"), sale}, time.Now)
		d.gates = service.NewGates(i.database("gates "+s.name(sale)), i.redis("gates "+s.name(sale)), d.catalog, i.log)
		s.must(d.catalog.Refresh(i.ctx))
		i.desks[sale] = d
	}
	i.strategy = strategy.NewHybrid(strategy.Needs{
		Gate: i.redis("door"), Database: i.database("door"), Control: control{i}, Log: i.log, Retried: func() {}, Now: time.Now,
	})
	i.settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: i.redis("settler"), Outbox: i.redis("settler"), Ledger: s.mutation.ledger(i), Peek: i.redis("settler").Peek,
		LiveIDs: func() []string { return s.sales }, Instance: i.name, Wake: i.waiters.WakeAll,
		Observe: func(int, time.Duration) {}, Now: time.Now, Log: i.log,
	})
	expirer := &worker.Expirer{Store: i.database("expirer"), Released: i.expired, Emptied: func() {}, Violated: func() {
		s.ask("cry", func() { s.fail("the books of a sale don't let its orders expire") })
	}, Grace: payGrace, Now: time.Now, Log: i.log}
	refunder := &worker.Refunder{Store: i.database("refunder"), Refund: s.refund, Log: i.log}
	s.mu.Lock()
	s.places[place] = i
	s.mu.Unlock()
	for _, run := range []func(context.Context){i.settler.Run, expirer.Run, refunder.Run} {
		s.work.Go(func() { run(i.ctx) })
	}
	for _, sale := range s.sales {
		d, part := i.desks[sale], "auditor "+s.name(sale)
		auditor := &worker.Auditor{
			Audits: &service.Auditor{Store: auditView{i.database(part), sale}, Gate: i.redis(part)}, Leases: i.database(part),
			Catalog: d.catalog, Instance: i.name, Replace: i.replace, Found: func(string, int64) {}, Log: i.log,
			Violated: func() { s.ask("cry", func() { s.fail("the auditor saw books that don't balance") }) },
		}
		s.work.Go(func() { auditor.Run(i.ctx) })
		s.work.Go(func() { i.refresh(d) })
		s.work.Go(func() { i.lookAfterGates(d) })
		s.work.Go(func() { i.tellOfExpired(d) })
	}
}

// kill ends an instance at once: what it has asked of the stores may happen or not, and nobody hears of it.
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

func (i *instance) view(part string) view { return view{i.s, i, part} }
func (i *instance) redis(part string) gateView {
	return gateView{gate.New(i.s.client, i.name), i.view(part)}
}
func (i *instance) database(part string) storeView { return storeView{i.s.db, i.view(part)} }

// hear is what an announcement does.
func (i *instance) hear() {
	for _, d := range i.desks {
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
}

// replace asks for a new gate. Requests of different reasons stand beside each other and have the same effect, so one
// reason stands for all.
func (i *instance) replace(sale string, epoch int64, _ string) {
	what := fmt.Sprintf("%s replace the gate of %s of epoch %d", i.name, sale, epoch)
	i.s.ask(what, func() { i.desks[sale].gates.ReplaceGate(sale, epoch, "it drifted") })
}

// teller tells gates of changes as a part of the instance that calls the stores by itself.
func (i *instance) teller(part, sale string) *service.Gates {
	return service.NewGates(i.database(part), i.redis(part), i.desks[sale].catalog, i.log)
}

// queued tells the settler of an admitted attempt.
func (i *instance) queued(sale string) {
	i.s.ask(i.name+" settle "+sale, func() { i.settler.Notify(sale) })
}

// expired has the gates of expired orders told. The expirer takes the sales in an order that is left to chance, so each
// has a loop of its own, and the expirer waits for none.
func (i *instance) expired(_ context.Context, sale string, _ []model.Release) error {
	i.desks[sale].catalog.Unlatch(sale)
	select {
	case i.desks[sale].expired <- struct{}{}:
	default:
	}
	return nil
}

func (i *instance) tellOfExpired(d *desk) {
	teller := i.teller("expirer", d.sale)
	for {
		select {
		case <-i.ctx.Done():
			return
		case <-d.expired:
			_ = teller.CatchUp(i.ctx, d.sale) // the next look at the gates does what fails here
		}
	}
}

// refresh and lookAfterGates are what worker.Controller does. It chooses by chance when a request and a period come
// together; here the request goes first.
func (i *instance) refresh(d *desk) {
	// Between the milliseconds at which all else happens, or what others read of the catalog at such an instant would
	// be left to chance.
	time.Sleep(111 * time.Microsecond) // of the bubble's clock
	ticker := time.NewTicker(refreshPeriod)
	defer ticker.Stop()
	for {
		_ = d.catalog.Refresh(i.ctx) // fails while the database is away, and is tried again
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
	_ = d.gates.Ensure(i.ctx) // what fails here and below is tried again
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

// control is the instance's control module as its strategy sees it.
type control struct{ i *instance }

func (c control) Epoch(sale string) int64         { return c.i.desks[sale].gates.Epoch(sale) }
func (c control) Judge(sale string) model.Verdict { return c.i.desks[sale].gates.Judge(sale) }

func (c control) NeedGate(sale, _ string) {
	c.i.s.ask(c.i.name+" need a gate of "+sale, func() { c.i.desks[sale].gates.NeedGate(sale, "missing") })
}
