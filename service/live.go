package service

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/model"
)

const (
	// livePeriod is how often the figures of a sale are read while somebody looks at them.
	livePeriod = time.Second
	// liveCall bounds each look at a store, so that figures still come once a period while all stores hang.
	liveCall = 300 * time.Millisecond
	// liveWindow is how many periods the latencies are of: long enough for a p99, short enough to see a change.
	liveWindow = 10
	// The books are a sum over all orders of the sale. One look may take booksLimit, and the next one waits for
	// booksPause times what it took: so one sale that is watched costs the database at most a twentieth of a connection.
	booksLimit = 5 * time.Second
	booksPause = 20
)

// LiveStore is what the database says of a sale.
type LiveStore interface {
	Offer(ctx context.Context, saleID string) (offer model.Offer, ok bool, err error)
	Books(ctx context.Context, saleID string) (books model.Books, ok bool, err error)
}

// LiveGate looks at gates.
type LiveGate interface {
	Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error)
}

// Live reads the figures of the sales that operators look at.
type Live struct {
	catalog   *Catalog
	store     LiveStore
	gate      LiveGate
	instances func(ctx context.Context) map[string]model.Instance
	bounds    []float64
	watches   *Watches[*SaleFigures]
}

// NewLive reads nothing until somebody looks. instances gives the running instances by their ids; bounds are those of
// their stages' latencies, in seconds.
func NewLive(catalog *Catalog, store LiveStore, gate LiveGate, instances func(ctx context.Context) map[string]model.Instance, bounds []float64) *Live {
	l := &Live{catalog: catalog, store: store, gate: gate, instances: instances, bounds: bounds}
	l.watches = NewWatches(l.watch)
	return l
}

// Follow gives the figures of a sale once a period; they are nil until the first were read. leave must be called once.
// However many follow, they are read once.
func (l *Live) Follow(saleID string) (newest *Newest[*SaleFigures], leave func()) {
	return l.watches.Follow(saleID)
}

// SaleFigures is all there is to see of a sale at one instant. What a store doesn't say stays as it was last known.
type SaleFigures struct {
	Now       time.Time
	Offer     model.Offer
	Database  bool // it answers
	Books     model.Books
	BooksAt   time.Time // zero until they were read
	Reachable bool      // the gate answers
	Gate      model.GateState
	Drift     int64
	DriftAt   time.Time // zero until the stock stood still for as long as a look at the gate takes
	Stages    map[string]Latency
	Instances map[string]model.Instance
}

// Latency is of what passed a stage within the last liveWindow periods.
type Latency struct {
	Count    uint64
	P50, P99 time.Duration
}

// watch is the source of a sale's figures.
func (l *Live) watch(ctx context.Context, saleID string, to *Newest[*SaleFigures]) {
	var books atomic.Pointer[pastBooks]
	var reading sync.WaitGroup
	reading.Go(func() { l.readBooks(ctx, saleID, &books) })
	defer reading.Wait()
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	var readings []map[string]model.Instance
	last := SaleFigures{Books: model.Books{Orders: map[model.OrderStatus]int64{}, Units: map[model.OrderStatus]int64{}}}
	for {
		last = l.look(ctx, saleID, last)
		if readings = append(readings, last.Instances); len(readings) > liveWindow+1 {
			readings = readings[1:]
		}
		last.Stages = latencies(readings, l.bounds)
		if b := books.Load(); b != nil {
			last.Books, last.BooksAt = b.books, b.at
		}
		figures := last
		to.Set(&figures)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look reads what can be read at once.
func (l *Live) look(ctx context.Context, saleID string, f SaleFigures) SaleFigures {
	before, found := l.offer(ctx, saleID)
	gates, err := within(ctx, func(ctx context.Context) ([]model.GateState, error) { return l.gate.Peek(ctx, saleID) })
	f.Database, f.Reachable = found, err == nil
	if found {
		f.Offer = before
	} else if known, ok := l.catalog.InMemory(saleID); ok {
		f.Offer = known
	}
	f.Now = l.catalog.Now()
	if f.Reachable {
		f.Gate = gates[0]
	}
	if f.Reachable && found {
		if after, ok := l.offer(ctx, saleID); ok && after.Stock == before.Stock {
			f.Drift, f.DriftAt = drift(f.Gate, after.Stock), f.Now
		}
	}
	asking, cancel := context.WithTimeout(ctx, liveCall)
	defer cancel()
	f.Instances = l.instances(asking)
	return f
}

func (l *Live) offer(ctx context.Context, saleID string) (offer model.Offer, found bool) {
	offer, err := within(ctx, func(ctx context.Context) (offer model.Offer, err error) {
		offer, found, err = l.store.Offer(ctx, saleID)
		return offer, err
	})
	return offer, found && err == nil
}

// within gives a call its time.
func within[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, liveCall)
	defer cancel()
	return call(ctx)
}

// pastBooks are the books as they were at an instant.
type pastBooks struct {
	books model.Books
	at    time.Time
}

// readBooks reads the books again and again until ctx ends.
func (l *Live) readBooks(ctx context.Context, saleID string, into *atomic.Pointer[pastBooks]) {
	for {
		began, at := l.catalog.now(), l.catalog.Now()
		reading, cancel := context.WithTimeout(ctx, booksLimit)
		books, ok, err := l.store.Books(reading, saleID)
		cancel()
		if ok && err == nil { // the age of the last ones tells of an error
			into.Store(&pastBooks{books, at})
		}
		pause := time.NewTimer(max(livePeriod, booksPause*l.catalog.now().Sub(began)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// latencies gives for each stage what all instances together noted between the readings. An instance counts from the
// first reading that has it.
func latencies(readings []map[string]model.Instance, bounds []float64) map[string]Latency {
	sums := map[string][]uint64{}
	for id, now := range readings[len(readings)-1] {
		first := slices.IndexFunc(readings, func(r map[string]model.Instance) bool { _, there := r[id]; return there })
		for stage, counts := range now.Stages {
			before := readings[first][id].Stages[stage]
			if before == nil {
				before = make([]uint64, len(counts)) // nothing had passed it
			}
			if len(counts) != len(bounds)+1 || len(before) != len(counts) {
				continue // of a version with other bounds
			}
			if sums[stage] == nil {
				sums[stage] = make([]uint64, len(counts))
			}
			for i := range counts {
				sums[stage][i] += counts[i] - before[i]
			}
		}
	}
	stages := make(map[string]Latency, len(sums))
	for stage, counts := range sums {
		stages[stage] = Latency{Count: counts[len(bounds)], P50: quantile(0.50, counts, bounds), P99: quantile(0.99, counts, bounds)}
	}
	return stages
}

// quantile estimates the time within which a part q of them passed. counts are cumulative, with all of them behind those
// of the bounds. What is past the last bound is taken for that bound.
func quantile(q float64, counts []uint64, bounds []float64) time.Duration {
	all := counts[len(bounds)]
	if all == 0 {
		return 0
	}
	rank := q * float64(all)
	i := sort.Search(len(bounds), func(i int) bool { return float64(counts[i]) >= rank })
	if i == len(bounds) {
		return seconds(bounds[i-1])
	}
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = bounds[i-1], float64(counts[i-1])
	}
	return seconds(low + (bounds[i]-low)*(rank-below)/(float64(counts[i])-below))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
