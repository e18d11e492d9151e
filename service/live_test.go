package service

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// counter is what Live reads of one sale.
type counter struct {
	*fakeSales
	mu        sync.Mutex
	looks     map[string]int
	state     model.GateState
	errGate   error
	books     model.Books
	booksTake time.Duration
	hang      bool // every store does, until its caller gives up
	moving    bool // the stock is another at each look
}

func (d *counter) look(ctx context.Context, what string) error {
	d.mu.Lock()
	d.looks[what]++
	hang, err := d.hang, d.errGate
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if what != "gate" {
		err = nil
	}
	return err
}

func (d *counter) Offer(ctx context.Context, id string) (model.Offer, bool, error) {
	if err := d.look(ctx, "offer"); err != nil {
		return model.Offer{}, false, err
	}
	d.mu.Lock()
	moving := d.moving
	d.mu.Unlock()
	if moving {
		d.change(func(f *fakeSales) { f.offers[0].Stock.Version++ })
	}
	return d.fakeSales.Offer(ctx, id)
}

func (d *counter) Peek(ctx context.Context, ids ...string) ([]model.GateState, error) {
	err := d.look(ctx, "gate")
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Repeat([]model.GateState{d.state}, len(ids)), err
}

func (d *counter) Books(ctx context.Context, _ string) (model.Books, bool, error) {
	if err := d.look(ctx, "books"); err != nil {
		return model.Books{}, false, err
	}
	select {
	case <-time.After(d.booksTake):
	case <-ctx.Done():
		return model.Books{}, false, ctx.Err()
	}
	d.fakeSales.mu.Lock()
	defer d.fakeSales.mu.Unlock()
	return d.books, true, d.err
}

func (d *counter) instances(ctx context.Context) map[string]model.Instance {
	_ = d.look(ctx, "instances")
	return map[string]model.Instance{"here": said(d.asked()["instances"])}
}

// set changes what the gate has left, and whether the stock moves.
func (d *counter) set(left int64, moving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state.Left, d.moving = left, moving
}

// said is what the instance says when it is asked for the nth time: another purchase passed.
func said(n int) model.Instance {
	return model.Instance{URL: "http://here", Stages: map[string][]uint64{"deduct": {uint64(n), uint64(n)}}}
}

// asked tells how often each store was asked.
func (d *counter) asked() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.looks)
}

// newCounter is a counter over a sale of ten units, two of them held, at a gate that agrees.
func newCounter(t *testing.T) (live *Live, d *counter, saleID string) {
	t.Helper()
	o := openOffer()
	o.Stock.Available, o.Stock.Held = 8, 2
	d = &counter{
		fakeSales: newFakeSales(o), looks: map[string]int{}, state: model.GateState{Exists: true, Open: true, Epoch: 1, Left: 8},
		books: model.Books{Stock: o.Stock, Orders: map[model.OrderStatus]int64{model.OrderPending: 1}, Units: map[model.OrderStatus]int64{model.OrderPending: 2}},
	}
	return NewLive(refreshed(t, d), d, d, d.instances, []float64{1}), d, o.ID
}

// after waits a while and gives what a follower then sees.
func after(wait time.Duration, newest *Newest[*SaleFigures]) *SaleFigures {
	time.Sleep(wait)
	synctest.Wait()
	figures, _ := newest.Get()
	return figures
}

// However many look, the stores are asked once a second, and no more when the last one has left.
func TestLiveIsReadOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, d, id := newCounter(t)
		first, leaveFirst := live.Follow(id)
		synctest.Wait()
		if f, _ := first.Get(); f == nil {
			t.Fatal("nothing to see at once")
		}
		others := make([]func(), 20)
		for i := range others {
			var newest *Newest[*SaleFigures]
			newest, others[i] = live.Follow(id)
			if f, _ := newest.Get(); f == nil {
				t.Errorf("follower %d sees nothing at once", i)
			}
		}
		f := after(10*livePeriod, first)
		if want := map[string]int{"offer": 22, "gate": 11, "instances": 11, "books": 11}; !maps.Equal(d.asked(), want) {
			t.Errorf("in ten seconds the stores were asked %v, want %v", d.asked(), want)
		}
		if age := live.catalog.Now().Sub(f.Now); age > livePeriod {
			t.Errorf("the figures are %s old", age)
		}
		for _, leave := range others {
			leave()
		}
		if f := after(livePeriod, first); live.catalog.Now().Sub(f.Now) > livePeriod {
			t.Error("others left, and the figures stand still")
		}
		leaveFirst()
		before := d.asked()["gate"]
		time.Sleep(10 * livePeriod)
		if n := d.asked()["gate"]; n != before {
			t.Errorf("nobody looks, and the gate was asked %d times", n-before)
		}
	})
}

// The figures are what the stores say.
func TestLiveFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, d, id := newCounter(t)
		newest, leave := live.Follow(id)
		defer leave()
		f := after(livePeriod, newest)
		offer, _, _ := d.fakeSales.Offer(t.Context(), id)
		want := &SaleFigures{
			Now: f.Now, Offer: offer, Database: true, Books: d.books, BooksAt: f.Now, Reachable: true, Gate: d.state, DriftAt: f.Now,
			Stages:    map[string]Latency{"deduct": {Count: 1, P50: 500 * time.Millisecond, P99: 990 * time.Millisecond}},
			Instances: map[string]model.Instance{"here": said(2)},
		}
		want.BooksAt = f.BooksAt // as old as the tickers are apart
		if age := f.Now.Sub(f.BooksAt); age < 0 || age > livePeriod {
			t.Errorf("the books are %s old", age)
		}
		if !reflect.DeepEqual(f, want) {
			t.Errorf("the figures are\n%+v, want\n%+v", f, want)
		}
		if f := after(30*livePeriod, newest); f.Stages["deduct"].Count != liveWindow {
			t.Errorf("the latencies are of %d seconds", f.Stages["deduct"].Count)
		}
	})
}

// A drift is told of a stock that stands still while the gate is read; of another one the last drift stays.
func TestLiveDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, d, id := newCounter(t)
		d.set(11, false)
		newest, leave := live.Follow(id)
		defer leave()
		still := after(livePeriod, newest)
		if still.Drift != 3 || !still.DriftAt.Equal(still.Now) {
			t.Errorf("a drift of %d at %s", still.Drift, still.DriftAt)
		}
		d.set(8, true)
		if f := after(5*livePeriod, newest); f.Drift != 3 || !f.DriftAt.Equal(still.DriftAt) || f.Gate.Left != 8 {
			t.Errorf("a drift of %d at %s, %d left", f.Drift, f.DriftAt, f.Gate.Left)
		}
		d.set(8, false)
		if f := after(livePeriod, newest); f.Drift != 0 || !f.DriftAt.Equal(f.Now) {
			t.Errorf("a drift of %d at %s", f.Drift, f.DriftAt)
		}
	})
}

// Books that take long are read seldom, and hold up nothing else.
func TestLiveBooksTakeLong(t *testing.T) {
	for took, every := range map[time.Duration]time.Duration{
		time.Millisecond: livePeriod + time.Millisecond, 200 * time.Millisecond: 4200 * time.Millisecond, 3 * time.Second: 63 * time.Second,
		time.Hour: booksLimit + booksPause*booksLimit, // given up
	} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live, d, id := newCounter(t)
				d.booksTake = took
				newest, leave := live.Follow(id)
				defer leave()
				const rounds = 5
				f := after(rounds*every-time.Millisecond, newest)
				if n := d.asked()["books"]; n != rounds {
					t.Errorf("they were read %d times, want %d", n, rounds)
				}
				if n := d.asked()["gate"]; n != int((rounds*every-time.Millisecond)/livePeriod)+1 {
					t.Errorf("the gate was looked at %d times", n)
				}
				if f.BooksAt.IsZero() != (took > booksLimit) || len(f.Books.Orders) == 0 && took < booksLimit {
					t.Errorf("books of %s: %+v", f.BooksAt, f.Books)
				}
			})
		})
	}
}

// Whatever is away, the figures go on, and say so; what is back is seen again.
func TestLiveWhileStoresAreAway(t *testing.T) {
	set := func(d *counter, database, gate error, hang bool) {
		d.change(func(f *fakeSales) { f.err = database })
		d.mu.Lock()
		defer d.mu.Unlock()
		d.errGate, d.hang = gate, hang
	}
	for name, tc := range map[string]struct {
		database, gate error
		hang           bool
	}{
		"the database": {database: errAway}, "Redis": {gate: errAway}, "both": {database: errAway, gate: errAway}, "all hang": {hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live, d, id := newCounter(t)
				newest, leave := live.Follow(id)
				defer leave()
				there := after(livePeriod, newest)
				set(d, tc.database, tc.gate, tc.hang)
				for range 20 {
					f := after(livePeriod, newest)
					if age := live.catalog.Now().Sub(f.Now); age > 2*livePeriod {
						t.Fatalf("the figures are %s old", age)
					}
				}
				f, _ := newest.Get()
				database, gate := tc.database == nil && !tc.hang, tc.gate == nil && !tc.hang
				if f.Database != database || f.Reachable != gate {
					t.Errorf("the database is there: %t, the gate: %t", f.Database, f.Reachable)
				}
				if f.Offer.ID != id || f.Offer.Stock.Available != 8 || f.Gate != there.Gate || len(f.Instances) != 1 || len(f.Books.Orders) != 1 {
					t.Errorf("what was known is forgotten: %+v", f)
				}
				if old := f.Now.Sub(f.BooksAt) > 10*livePeriod; old == database {
					t.Errorf("the books are of %s, at %s", f.BooksAt, f.Now)
				}
				set(d, nil, nil, false)
				if f := after(booksLimit*(booksPause+1), newest); !f.Database || !f.Reachable || f.Now.Sub(f.BooksAt) > 2*livePeriod {
					t.Errorf("it is back, and the figures are %+v", f)
				}
			})
		})
	}
}

// Instances come, go and start again; what they noted before somebody looked doesn't count.
func TestLatencies(t *testing.T) {
	bounds := []float64{0.001, 0.01, 0.1}
	type reading = map[string]model.Instance
	at := func(counts ...uint64) model.Instance {
		return model.Instance{Stages: map[string][]uint64{"deduct": counts}}
	}
	for name, tc := range map[string]struct {
		readings []reading
		want     map[string]Latency
	}{
		"nobody":             {[]reading{{}}, map[string]Latency{}},
		"at first":           {[]reading{{"a": at(5, 6, 7, 8)}}, map[string]Latency{"deduct": {}}},
		"within one bound":   {[]reading{{"a": at(5, 6, 7, 8)}, {"a": at(5, 106, 107, 108)}}, map[string]Latency{"deduct": {100, 5500 * time.Microsecond, 9910 * time.Microsecond}}},
		"two instances":      {[]reading{{"a": at(0, 0, 0, 0), "b": at(9, 9, 9, 9)}, {"a": at(50, 50, 50, 50), "b": at(9, 59, 59, 59)}}, map[string]Latency{"deduct": {100, time.Millisecond, 9820 * time.Microsecond}}},
		"past the last":      {[]reading{{"a": at(0, 0, 0, 0)}, {"a": at(0, 0, 0, 5)}}, map[string]Latency{"deduct": {5, 100 * time.Millisecond, 100 * time.Millisecond}}},
		"one came":           {[]reading{{}, {"a": at(0, 0, 0, 70)}, {"a": at(2, 2, 2, 72)}}, map[string]Latency{"deduct": {2, 500 * time.Microsecond, 990 * time.Microsecond}}},
		"one left":           {[]reading{{"a": at(0, 0, 0, 0), "b": at(0, 0, 0, 0)}, {"a": at(2, 2, 2, 2)}}, map[string]Latency{"deduct": {2, 500 * time.Microsecond, 990 * time.Microsecond}}},
		"one wasn't heard":   {[]reading{{"a": at(0, 0, 0, 0)}, {}, {"a": at(2, 2, 2, 2)}}, map[string]Latency{"deduct": {2, 500 * time.Microsecond, 990 * time.Microsecond}}},
		"a stage came":       {[]reading{{"a": {}}, {"a": at(2, 2, 2, 2)}}, map[string]Latency{"deduct": {2, 500 * time.Microsecond, 990 * time.Microsecond}}},
		"of other bounds":    {[]reading{{"a": at(0, 0)}, {"a": at(2, 2)}}, map[string]Latency{}},
		"suddenly of others": {[]reading{{"a": at(0, 0)}, {"a": at(2, 2, 2, 2)}}, map[string]Latency{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := latencies(tc.readings, bounds); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
