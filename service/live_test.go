package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// counter are the stores that Live reads, of one sale. It counts the calls.
type counter struct {
	*fakeStores
	booksTake time.Duration
	hang      bool // every call hangs until its context ends
	moving    bool // the stock changes with each reading
}

// look counts a call, and hangs if the stores do.
func (c *counter) look(ctx context.Context, what string) error {
	unlock := c.locked()
	c.calls["live "+what]++
	hang := c.hang
	unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (c *counter) Offer(ctx context.Context, id string) (model.Offer, bool, error) {
	if err := c.look(ctx, "offer"); err != nil {
		return model.Offer{}, false, err
	}
	c.change(func(f *fakeStores) {
		if c.moving {
			f.offers[0].Stock.Version++
		}
	})
	return c.fakeStores.Offer(ctx, id)
}

func (c *counter) Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	if err := c.look(ctx, "gate"); err != nil {
		return nil, err
	}
	return c.fakeStores.Peek(ctx, gates...)
}

func (c *counter) Books(ctx context.Context, id string) (model.Books, bool, error) {
	if err := c.look(ctx, "books"); err != nil {
		return model.Books{}, false, err
	}
	select {
	case <-time.After(c.booksTake):
		return c.fakeStores.Books(ctx, id)
	case <-ctx.Done():
		return model.Books{}, false, ctx.Err()
	}
}

func (c *counter) instances(ctx context.Context) map[string]model.Instance {
	_ = c.look(ctx, "instances")
	return map[string]model.Instance{"here": reported(c.count("live instances"))}
}

// reported is what the instance reports in its nth report: each time one more purchase has passed.
func reported(n int) model.Instance {
	return model.Instance{URL: "http://here", Stages: map[string][]uint64{"deduct": {uint64(n), uint64(n)}}}
}

// set changes what the gate has left, and whether the stock moves.
func (c *counter) set(left int64, moving bool) {
	c.change(func(f *fakeStores) { f.states[f.offers[0].ID], c.moving = openGate(1, left), moving })
}

// newCounter returns the stores of a sale of ten units, two of them held, whose gate agrees, and a Live that reads them.
func newCounter(t *testing.T) (live *Live, c *counter, saleID string) {
	t.Helper()
	o := openOffer()
	o.Stock.Available, o.Stock.Held = 8, 2
	c = &counter{fakeStores: newFakeStores(o)}
	c.books = model.Books{
		Stock:  o.Stock,
		Orders: map[model.OrderStatus]int64{model.OrderPending: 1}, Units: map[model.OrderStatus]int64{model.OrderPending: 2},
	}
	c.set(8, false)
	return NewLive(refreshed(t, c), c, c, c.instances, []float64{1}), c, o.ID
}

// follower returns what a follower sees after a while.
func follower(newest *Newest[*SaleFigures]) (after func(time.Duration) *SaleFigures) {
	return func(wait time.Duration) *SaleFigures {
		time.Sleep(wait)
		synctest.Wait()
		figures, _ := newest.Get()
		return figures
	}
}

// fresh compares the age of figures with one period.
func (l *Live) fresh(t *testing.T, what string, f *SaleFigures) {
	t.Helper()
	if age := l.catalog.Now().Sub(f.Now); age > livePeriod {
		t.Errorf("%s: the figures are %s old", what, age)
	}
}

// The stores are read once a period for all followers, and no more after the last follower has left.
func TestLiveIsReadOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, c, id := newCounter(t)
		first, leaveFirst := live.Follow(id)
		synctest.Wait()
		others := make([]func(), 20)
		for i := range others {
			var newest *Newest[*SaleFigures]
			newest, others[i] = live.Follow(id)
			if f, _ := newest.Get(); f == nil {
				t.Errorf("follower %d has no figures at once", i)
			}
		}
		after := follower(first)
		f := after(10 * livePeriod)
		for what, want := range map[string]int{"offer": 22, "gate": 11, "instances": 11, "books": 11} {
			check.Same(t, "calls in ten periods: "+what, c.count("live "+what), want)
		}
		live.fresh(t, "with followers", f)
		for _, leave := range others {
			leave()
		}
		live.fresh(t, "after all but one have left", after(livePeriod))
		leaveFirst()
		before := c.count("live gate")
		time.Sleep(10 * livePeriod)
		check.Same(t, "calls without followers", c.count("live gate"), before)
	})
}

func TestLiveFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, c, id := newCounter(t)
		newest, leave := live.Follow(id)
		defer leave()
		after := follower(newest)
		f := after(livePeriod)
		if age := f.Now.Sub(f.BooksAt); age < 0 || age > livePeriod {
			t.Errorf("the books are %s old", age)
		}
		check.Same(t, "figures", f, &SaleFigures{
			Now: f.Now, Offer: c.offers[0], Line: c.offers[0].Stock, Database: true, Books: c.books, BooksAt: f.BooksAt,
			Reachable: true, Gate: openGate(1, 8), DriftAt: f.Now,
			Stages:    map[string]Latency{"deduct": {Count: 1, P50: 500 * time.Millisecond, P99: 990 * time.Millisecond}},
			Instances: map[string]model.Instance{"here": reported(2)},
		})
		check.Same(t, "seconds that the latencies cover", after(30 * livePeriod).Stages["deduct"].Count, liveWindow)
	})
}

// The drift is computed while the stock does not change, and one other than 0 when it has not changed for a period. Otherwise
// the last drift stays.
func TestLiveDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, c, id := newCounter(t)
		c.set(11, false)
		newest, leave := live.Follow(id)
		defer leave()
		after := follower(newest)
		drift := func(what string, f *SaleFigures, want int64, at time.Time) {
			t.Helper()
			if f.Drift != want || !f.DriftAt.Equal(at) {
				t.Errorf("%s: a drift of %d at %s, want %d at %s", what, f.Drift, f.DriftAt, want, at)
			}
		}
		still := after(livePeriod)
		drift("three units too many", still, 3, still.Now)
		c.set(8, true)
		f := after(5 * livePeriod)
		drift("the stock changes", f, 3, still.Now)
		check.Same(t, "units left at the gate", f.Gate.Left, 8)
		c.set(9, false)
		drift("the stock has changed since the last look", after(livePeriod), 3, still.Now)
		f = after(livePeriod)
		drift("the stock stands still", f, 1, f.Now)
		c.set(8, true)
		after(livePeriod)
		c.set(8, false)
		f = after(livePeriod)
		drift("no drift, after a change", f, 0, f.Now)
	})
}

// Books that take long are read seldom, and delay no other figure.
func TestLiveBooksTakeLong(t *testing.T) {
	type test struct{ took, every time.Duration }
	check.EachInBubble(t, map[string]test{
		"a millisecond":     {time.Millisecond, livePeriod + time.Millisecond},
		"a fifth":           {200 * time.Millisecond, 4200 * time.Millisecond},
		"three seconds":     {3 * time.Second, 63 * time.Second},
		"they are given up": {time.Hour, booksLimit + booksPause*booksLimit},
	}, func(t *testing.T, tc test) {
		live, c, id := newCounter(t)
		c.booksTake = tc.took
		newest, leave := live.Follow(id)
		defer leave()
		const rounds = 5
		f := follower(newest)(rounds*tc.every - time.Millisecond)
		check.Same(t, "readings of the books", c.count("live books"), rounds)
		check.Same(t, "readings of the gate", c.count("live gate"), int((rounds*tc.every-time.Millisecond)/livePeriod)+1)
		check.Same(t, "the books have a time", !f.BooksAt.IsZero(), tc.took < booksLimit)
		check.Same(t, "the books have orders", len(f.Books.Orders) > 0, tc.took < booksLimit)
	})
}

// While a store is away, the figures go on with its last values and report that it is away, until it is back.
func TestLiveWhileStoresAreAway(t *testing.T) {
	type test struct {
		database, gate error
		hang           bool
	}
	check.EachInBubble(t, map[string]test{
		"the database": {errAway, nil, false}, "Redis": {nil, errAway, false}, "both": {errAway, errAway, false},
		"all hang": {nil, nil, true},
	}, func(t *testing.T, tc test) {
		live, c, id := newCounter(t)
		newest, leave := live.Follow(id)
		defer leave()
		after := follower(newest)
		before := after(livePeriod)
		c.change(func(f *fakeStores) { f.err, f.errGate, c.hang = tc.database, tc.gate, tc.hang })
		for range 20 {
			if age := live.catalog.Now().Sub(after(livePeriod).Now); age > 2*livePeriod {
				t.Fatalf("the figures are %s old", age)
			}
		}
		f, _ := newest.Get()
		database, gate := tc.database == nil && !tc.hang, tc.gate == nil && !tc.hang
		check.Same(t, "the database and the gate answer", []bool{f.Database, f.Reachable}, []bool{database, gate})
		if f.Offer != before.Offer || f.Gate != before.Gate || len(f.Instances) != 1 || len(f.Books.Orders) != 1 {
			t.Errorf("the last values are lost: %+v", f)
		}
		check.Same(t, "the books are old", f.Now.Sub(f.BooksAt) > 10*livePeriod, !database)
		c.change(func(f *fakeStores) { f.err, f.errGate, c.hang = nil, nil, false })
		if f := after(booksLimit * (booksPause + 1)); !f.Database || !f.Reachable || f.Now.Sub(f.BooksAt) > 2*livePeriod {
			t.Errorf("the stores are back, and the figures are %+v", f)
		}
	})
}

// Latencies are over all instances. What an instance counted before the first reading does not count.
func TestLatencies(t *testing.T) {
	type readings = []map[string]model.Instance
	type test struct {
		readings readings
		want     map[string]Latency
	}
	at := func(counts ...uint64) model.Instance {
		return model.Instance{Stages: map[string][]uint64{"deduct": counts}}
	}
	const us, ms = time.Microsecond, time.Millisecond
	deduct := func(count uint64, p50, p99 time.Duration) map[string]Latency {
		return map[string]Latency{"deduct": {count, p50, p99}}
	}
	none, two := map[string]Latency{}, deduct(2, ms/2, 990*us)
	check.Each(t, map[string]test{
		"no instance":       {readings{{}}, none},
		"the first reading": {readings{{"a": at(5, 6, 7, 8)}}, deduct(0, 0, 0)},
		"within one bound":  {readings{{"a": at(5, 6, 7, 8)}, {"a": at(5, 106, 107, 108)}}, deduct(100, 5500*us, 9910*us)},
		"two instances": {
			readings{{"a": at(0, 0, 0, 0), "b": at(9, 9, 9, 9)}, {"a": at(50, 50, 50, 50), "b": at(9, 59, 59, 59)}},
			deduct(100, ms, 9820*us),
		},
		"above the last bound":       {readings{{"a": at(0, 0, 0, 0)}, {"a": at(0, 0, 0, 5)}}, deduct(5, 100*ms, 100*ms)},
		"an instance starts":         {readings{{}, {"a": at(0, 0, 0, 70)}, {"a": at(2, 2, 2, 72)}}, two},
		"an instance stops":          {readings{{"a": at(0, 0, 0, 0), "b": at(0, 0, 0, 0)}, {"a": at(2, 2, 2, 2)}}, two},
		"an instance misses one":     {readings{{"a": at(0, 0, 0, 0)}, {}, {"a": at(2, 2, 2, 2)}}, two},
		"a stage occurs":             {readings{{"a": {}}, {"a": at(2, 2, 2, 2)}}, two},
		"an instance's other bounds": {readings{{"a": at(0, 0)}, {"a": at(2, 2)}}, none},
		"the bounds change":          {readings{{"a": at(0, 0)}, {"a": at(2, 2, 2, 2)}}, none},
	}, func(t *testing.T, tc test) {
		check.Same(t, "latencies", latencies(tc.readings, []float64{0.001, 0.01, 0.1}), tc.want)
	})
}
