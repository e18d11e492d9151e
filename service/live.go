package service

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	livePeriod = time.Second // how often the figures of a sale are read while somebody follows them
	// liveCall bounds each call of a store except for the books, so that a store that hangs delays the figures little.
	liveCall   = 300 * time.Millisecond
	liveWindow = 10 // the most periods that the latencies cover
	// booksLimit bounds one reading of the books, a sum over all orders of the sale. The pause after the reading is at least
	// booksPause times as long as the reading.
	booksLimit = 5 * time.Second
	booksPause = 20
)

// LiveStore reads a sale from the database.
type LiveStore interface {
	Offer(ctx context.Context, saleID string) (offer model.Offer, ok bool, err error)
	Books(ctx context.Context, saleID string) (books model.Books, ok bool, err error)
}

// Peeker reads the state of gates, in the order of its arguments.
type Peeker interface {
	Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error)
}

// Live reads the figures of the sales that somebody follows. Follow returns the figures of a sale, which change about once a
// period and are nil until the first reading.
type Live struct {
	*Watches[*SaleFigures]
	catalog   *Catalog
	store     LiveStore
	gate      Peeker
	instances func(ctx context.Context) map[string]model.Instance
	bounds    []float64
}

// NewLive creates a Live, which reads nothing until Follow is called. The function "instances" returns the running instances by
// their ids. The bounds are those of the latencies in the instances' Stages, in seconds.
func NewLive(catalog *Catalog, store LiveStore, gate Peeker, instances func(ctx context.Context) map[string]model.Instance, bounds []float64) *Live {
	l := &Live{catalog: catalog, store: store, gate: gate, instances: instances, bounds: bounds}
	l.Watches = NewWatches(l.watch)
	return l
}

// SaleFigures are the figures of a sale in one period. Figures of a store that does not answer may be older. Books and Drift may
// be older in any case, as BooksAt and DriftAt show.
type SaleFigures struct {
	Now       time.Time
	Offer     model.Offer
	Line      model.Stock // of the sale that has the line; in a campaign, it counts the calls of all sales
	Database  bool        // the database has returned the sale
	Books     model.Books
	BooksAt   time.Time // when the books were read; zero: not yet
	Reachable bool      // the gate answers
	Gate      model.GateState
	Drift     int64
	DriftAt   time.Time // when Drift was measured; zero: not yet
	Stages    map[string]Latency
	Instances map[string]model.Instance
}

// Latency tells how long purchases were in a stage, or how long transactions of the settle took, in at most liveWindow periods.
type Latency struct {
	Count    uint64
	P50, P99 time.Duration
}

// watch reads the figures of a sale once a period and publishes them, until ctx ends.
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
		to.Set(new(last))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look returns the figures of one period; f has those of the period before. It does not read the books, since that may take
// longer than a period. A drift of 0 counts if the stock does not change during the look. Any other drift also requires that
// the stock has not changed since the look before, because the gate hears of an order later than the database.
func (l *Live) look(ctx context.Context, saleID string, f SaleFigures) SaleFigures {
	before := f.Offer.Stock
	offer, found := l.offer(ctx, saleID)
	if found {
		f.Offer = offer
	} else if known := l.catalog.InMemory(saleID); known != nil && known.Stock.Version > f.Offer.Stock.Version {
		f.Offer = *known
	}
	if id := f.Offer.LineID(); id == f.Offer.ID {
		f.Line = f.Offer.Stock
	} else if f.Offer.Stock.Lined == model.InLine { // a campaign in a rush has no such sale
		if line, ok := l.offer(ctx, id); ok {
			f.Line = line.Stock
		}
	}
	peeking, cancel := context.WithTimeout(ctx, liveCall)
	gates, err := l.gate.Peek(peeking, f.Offer.GateRef())
	cancel()
	f.Database, f.Reachable, f.Now = found, err == nil, l.catalog.Now()
	if f.Reachable {
		f.Gate = gates[0]
	}
	if f.Reachable && found {
		after, ok := l.offer(ctx, saleID)
		if units := drift(f.Gate, after.Stock); ok && after.Stock == offer.Stock && (units == 0 || after.Stock == before) {
			f.Drift, f.DriftAt = units, f.Now
		}
	}
	asking, cancel := context.WithTimeout(ctx, liveCall)
	defer cancel()
	f.Instances = l.instances(asking)
	return f
}

func (l *Live) offer(ctx context.Context, saleID string) (offer model.Offer, found bool) {
	ctx, cancel := context.WithTimeout(ctx, liveCall)
	defer cancel()
	offer, found, err := l.store.Offer(ctx, saleID)
	return offer, found && err == nil
}

// pastBooks are books with the time at which their reading began.
type pastBooks struct {
	books model.Books
	at    time.Time
}

// readBooks reads the books repeatedly until ctx ends.
func (l *Live) readBooks(ctx context.Context, saleID string, into *atomic.Pointer[pastBooks]) {
	for {
		began, at := l.catalog.now(), l.catalog.Now()
		reading, cancel := context.WithTimeout(ctx, booksLimit)
		books, ok, err := l.store.Books(reading, saleID)
		cancel()
		if ok && err == nil { // after an error the last books stay
			into.Store(&pastBooks{books, at})
		}
		if !pause.For(ctx, max(livePeriod, booksPause*l.catalog.now().Sub(began))) {
			return
		}
	}
}

// latencies returns each stage's latency between the first and the last reading. An instance counts from its first reading on.
func latencies(readings []map[string]model.Instance, bounds []float64) map[string]Latency {
	sums := map[string][]uint64{}
	for id, now := range readings[len(readings)-1] {
		first := slices.IndexFunc(readings, func(r map[string]model.Instance) bool { _, there := r[id]; return there })
		for stage, counts := range now.Stages {
			before := readings[first][id].Stages[stage]
			if before == nil {
				before = make([]uint64, len(counts)) // nothing had passed the stage
			}
			if len(counts) != len(bounds)+1 || len(before) != len(counts) {
				continue // the instance has other bounds
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

// quantile estimates the time that the fraction q of a stage's times does not exceed. "counts" has, for each bound, the number of
// times up to this bound, and at the end the number of all times. A time above the last bound is reported as that bound.
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
