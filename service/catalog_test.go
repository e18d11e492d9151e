package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"flashsale/model"
)

var (
	errAway = errors.New("the store is away")
	discard = slog.New(slog.DiscardHandler)
)

// fakeSales is the database of a catalog. Its clock is this process's plus an offset.
type fakeSales struct {
	offset time.Duration
	began  func() // of each read of the live sales

	mu      sync.Mutex
	offers  []model.Offer
	ended   []model.Offer // not live any more
	made    map[string]time.Time
	err     error
	calls   map[string]int
	codes   int   // given at the last look for new sales
	version int64 // grows with each read of the live sales, if it is not 0
}

func newFakeSales(offers ...model.Offer) *fakeSales {
	f := &fakeSales{made: map[string]time.Time{}, calls: map[string]int{}}
	for _, o := range offers {
		f.add(o)
	}
	return f
}

func (f *fakeSales) add(o model.Offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offers = append(f.offers, o)
	f.made[o.ID] = time.Now().Add(f.offset)
}

func (f *fakeSales) change(fn func(f *fakeSales)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f)
}

func (f *fakeSales) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeSales) LiveOffers(_ context.Context, linger time.Duration) ([]model.Offer, error) {
	if f.began != nil {
		f.began()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls["live"]++
	if f.version > 0 {
		f.version++
		f.offers[0].Stock.Version = f.version
	}
	var live []model.Offer
	for _, o := range f.offers {
		if o.EndsAt.After(time.Now().Add(f.offset - linger)) {
			live = append(live, o)
		}
	}
	return live, f.err
}

func (f *fakeSales) Offer(_ context.Context, id string) (model.Offer, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls["offer"]++
	for _, o := range slices.Concat(f.offers, f.ended) {
		if o.ID == id {
			return o, true, f.err
		}
	}
	return model.Offer{}, false, f.err
}

func (f *fakeSales) SaleCodes(_ context.Context, since time.Time) (map[string]string, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls["codes"]++
	codes := map[string]string{}
	for _, o := range slices.Concat(f.offers, f.ended) {
		if !f.made[o.ID].Before(since) {
			codes[o.ID] = o.Code
		}
	}
	f.codes = len(codes)
	return codes, time.Now().Add(f.offset), f.err
}

func (f *fakeSales) Now(context.Context) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.offset), f.err
}

// openOffer is a sale of 10 units, at most 2 for each user, which is open for two hours around now.
func openOffer() model.Offer {
	id := model.NewSaleID()
	return model.Offer{
		Sale: model.Sale{
			ID: id, Code: "C" + id[:7], LimitPerUser: 2, PriceCents: 150, Currency: "CNY", Status: model.SaleLive, Revision: 1, Parts: 1,
			StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), PayTimeoutSeconds: 600,
			Title: "a sale",
		},
		Stock: model.Stock{SaleID: id, Quota: 10, Available: 10, Version: 1, Epoch: 1},
	}
}

func refreshed(t *testing.T, store CatalogStore) *Catalog {
	t.Helper()
	c := NewCatalog(store, time.Now)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestUnknownIDsCostNothing: guessed ids, many at once, cause no look-up of a sale and one small query in a while.
func TestUnknownIDsCostNothing(t *testing.T) {
	for name, tc := range map[string]struct{ callers, guesses int }{"one after the other": {1, 10}, "all at once": {1000, 1}} {
		t.Run(name, func(t *testing.T) {
			store := newFakeSales(openOffer())
			c := refreshed(t, store)
			before := store.count("codes")
			start := time.Now()
			var guesses sync.WaitGroup
			for i := range tc.callers {
				guesses.Go(func() {
					for j := range tc.guesses {
						if _, ok, err := c.Sale(t.Context(), fmt.Sprint("GUESS-", i, "-", j)); ok || err != nil {
							t.Errorf("guess %d: %t, %v", i, ok, err)
						}
					}
				})
			}
			guesses.Wait()
			if n := store.count("offer"); n != 0 {
				t.Errorf("%d sales were looked up", n)
			}
			elapsed := time.Since(start)
			if n, most := store.count("codes")-before, int(elapsed/filterPause)+1; n < 1 || n > most {
				t.Errorf("the filter was refreshed %d times in %s", n, elapsed)
			}
		})
	}
}

// TestBrandNewSaleIsFoundAtOnce, by its id and by its code, although this instance has not heard of it.
func TestBrandNewSaleIsFoundAtOnce(t *testing.T) {
	for name, guessed := range map[string]bool{"nobody asked before": false, "somebody has just guessed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFakeSales(openOffer())
				c := refreshed(t, store)
				time.Sleep(time.Second) // of the bubble's clock
				if guessed {
					if known, err := c.Known(t.Context(), "GUESS"); known || err != nil {
						t.Fatal(known, err)
					}
				}
				fresh := openOffer()
				store.add(fresh)
				start := time.Now()
				got, ok, err := c.Sale(t.Context(), fresh.ID)
				if !ok || err != nil || got.ID != fresh.ID {
					t.Errorf("%+v, %t, %v", got, ok, err)
				}
				if known, err := c.Known(t.Context(), fresh.Code); !known || err != nil {
					t.Errorf("its code: %t, %v", known, err)
				}
				if waited := time.Since(start); waited > filterPause {
					t.Errorf("after %s", waited)
				}
			})
		})
	}
}

// TestSlowlyCommittedSaleIsFound: its time of making is older than that of a sale which the filter has seen.
func TestSlowlyCommittedSaleIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeSales(openOffer())
		c := refreshed(t, store)
		slow := openOffer()
		store.add(slow)
		store.change(func(f *fakeSales) { f.made[slow.ID] = time.Now().Add(1 - filterOverlap) })
		if known, err := c.Known(t.Context(), slow.ID); !known || err != nil {
			t.Errorf("%t, %v", known, err)
		}
	})
}

// TestOldSalesAreNotReadAgain for the filter, also when no newer one was made since.
func TestOldSalesAreNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOffer()
		store := newFakeSales(o, openOffer())
		c := refreshed(t, store)
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{filterOverlap, 2}, {1, 2}, {filterOverlap, 0}} {
			time.Sleep(step.after) // of the bubble's clock
			if err := c.Refresh(t.Context()); err != nil || store.codes != step.want {
				t.Errorf("%d sales were read, %v; want %d", store.codes, err, step.want)
			}
		}
		if known, err := c.Known(t.Context(), o.Code); !known || err != nil {
			t.Errorf("an old one: %t, %v", known, err)
		}
	})
}

// TestTroubleIsNotUnknown: an instance that can't look must not say that a sale does not exist.
func TestTroubleIsNotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOffer()
		store := newFakeSales(o)
		c := refreshed(t, store)
		store.change(func(f *fakeSales) { f.err = errAway })
		if _, ok, err := c.Sale(t.Context(), "GUESS"); ok || !errors.Is(err, errAway) {
			t.Errorf("an unknown one: %t, %v", ok, err)
		}
		if _, ok, err := c.Sale(t.Context(), o.ID); !ok || err != nil {
			t.Errorf("one in memory: %t, %v", ok, err)
		}
		if err := c.Refresh(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("refresh: %v", err)
		}
		if list, _ := c.Live(); len(list) != 1 {
			t.Errorf("a refresh in vain left %v", list)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		store.change(func(f *fakeSales) { f.err = nil })
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Known(ctx, "GUESS"); !errors.Is(err, context.Canceled) {
			t.Errorf("who has left: %v", err)
		}
	})
}

// TestPastSalesAreRemembered: what ended long ago is looked up once, what ended lately each time.
func TestPastSalesAreRemembered(t *testing.T) {
	tests := map[string]struct {
		ended time.Duration
		reads int
	}{
		"long ago": {Linger + time.Minute, 1},
		"lately":   {Linger - time.Minute, 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				past := openOffer()
				past.EndsAt = time.Now().Add(-tc.ended)
				store := newFakeSales()
				store.ended, store.made[past.ID] = []model.Offer{past}, past.StartsAt
				c := refreshed(t, store)
				for range 3 {
					if got, ok, err := c.Sale(t.Context(), past.ID); !ok || err != nil || got.ID != past.ID {
						t.Errorf("%+v, %t, %v", got, ok, err)
					}
				}
				if n := store.count("offer"); n != tc.reads {
					t.Errorf("%d look-ups, want %d", n, tc.reads)
				}
			})
		})
	}
}

// TestLatch is cleared by a refresh that sees units, and by a release.
func TestLatch(t *testing.T) {
	o, other := openOffer(), openOffer()
	o.Stock.Available = 0
	store := newFakeSales(o, other)
	c := refreshed(t, store)
	want := func(stage string, latched bool) {
		t.Helper()
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.Latched(o.ID) != latched || c.Latched(other.ID) {
			t.Errorf("%s: latched %t, the other %t", stage, c.Latched(o.ID), c.Latched(other.ID))
		}
	}
	want("at first", false)
	c.Latch(o.ID)
	want("sold out", true)
	c.Unlatch(o.ID)
	want("a unit came back", false)
	c.Latch(o.ID)
	want("sold out again", true)
	store.change(func(f *fakeSales) { f.offers[0].Stock.Available = 1 })
	want("a refresh saw a unit", false)
}

// TestWrongLocalClock: this machine's clock is an hour off, in either direction, and the window is judged right.
func TestWrongLocalClock(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"right": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := openOffer()
				o.StartsAt, o.EndsAt = time.Now().Add(10*time.Minute), time.Now().Add(20*time.Minute)
				store := newFakeSales(o)
				c := NewCatalog(store, func() time.Time { return time.Now().Add(wrong) })
				if err := c.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, step := range []struct {
					after time.Duration
					want  model.SaleState
				}{
					{0, model.StateUpcoming},
					{10*time.Minute - 1, model.StateUpcoming},
					{1, model.StateOpen},
					{10*time.Minute - 1, model.StateOpen},
					{1, model.StateEnded},
				} {
					time.Sleep(step.after) // of the bubble's clock, without a refresh
					if now := c.Now(); !now.Equal(time.Now()) || now.Location() != time.UTC {
						t.Errorf("by the database it is %s, the catalog says %s", time.Now(), now)
					}
					got, _, err := c.Sale(t.Context(), o.ID)
					if err != nil || got.State(c.Now(), got.Stock.Available) != step.want {
						t.Errorf("at %s: %s, %v; want %s", time.Now(), got.State(c.Now(), 1), err, step.want)
					}
				}
			})
		})
	}
}

// slowClock answers after a while with the time that it was in the middle of it.
type slowClock struct {
	*fakeSales
	takes time.Duration
}

func (s slowClock) Now(context.Context) (time.Time, error) {
	time.Sleep(s.takes / 2) // of the bubble's clock
	now := time.Now().Add(s.offset)
	time.Sleep(s.takes / 2)
	return now, nil
}

// TestSlowClockIsRight: the time that the question and the answer take is halved, not added.
func TestSlowClockIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := refreshed(t, slowClock{newFakeSales(openOffer()), 2 * time.Second})
		if off := time.Until(c.Now()); off != 0 {
			t.Errorf("off by %s", off)
		}
	})
}

func TestLive(t *testing.T) {
	first, second := openOffer(), openOffer()
	second.Stock.Epoch = 9
	store := newFakeSales(first, second)
	c := refreshed(t, store)
	list, changed := c.Live()
	if len(list) != 2 || list[0].ID != first.ID || list[1].ID != second.ID {
		t.Errorf("live are %v", list)
	}
	if ids := c.LiveIDs(); !slices.Equal(ids, []string{first.ID, second.ID}) {
		t.Errorf("live are %v", ids)
	}
	if c.Epoch(second.ID) != 9 || c.Epoch("NONE") != 0 {
		t.Errorf("epochs %d, %d", c.Epoch(second.ID), c.Epoch("NONE"))
	}
	told := func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	if err := c.Refresh(t.Context()); err != nil || told() {
		t.Errorf("nothing has changed: %v, told %t", err, told())
	}
	if _, again := c.Live(); again != changed {
		t.Error("another channel although nothing has changed")
	}
	store.change(func(f *fakeSales) { f.offers[1].Stock.Available-- })
	if err := c.Refresh(t.Context()); err != nil || !told() {
		t.Errorf("the stock has changed: %v, told %t", err, told())
	}
	if _, changed = c.Live(); told() {
		t.Error("the channel of the next change is closed already")
	}
}

// TestRefreshesTakeTurns: an operator's change and the controller refresh at the same time. An older reading must
// not win, and whoever waits for a change is told once.
func TestRefreshesTakeTurns(t *testing.T) {
	store := newFakeSales(openOffer())
	store.version = 1
	c := refreshed(t, store)
	start := make(chan struct{})
	var refreshes sync.WaitGroup
	for range 8 {
		refreshes.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("a refresh panics: %v", r)
				}
			}()
			<-start
			for range 50 {
				if err := c.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	refreshes.Wait()
	list, changed := c.Live()
	if got := list[0].Stock.Version; got != store.version {
		t.Errorf("the memory is of reading %d, the last one was %d", got, store.version)
	}
	select {
	case <-changed:
		t.Error("told of a change that has not come")
	default:
	}
}

// The machine's clock is set between two refreshes: what time it is by the database stays what it was.
func TestNowSurvivesAStepOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			stepped := time.Duration(0)
			store := newFakeSales(openOffer())
			store.offset = time.Minute
			c := NewCatalog(store, func() time.Time { return setClock(t, time.Now(), stepped) })
			if err := c.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			stepped = step
			if late := time.Since(c.Now().Add(-store.offset)); late.Abs() > time.Minute {
				t.Errorf("after a step of %s it is %s too early", step, late)
			}
		})
	}
}

// setClock gives a reading as it is after the machine's clock was set: the monotonic part stays.
func setClock(t *testing.T, at time.Time, step time.Duration) time.Time {
	t.Helper()
	set := at
	const secondsAt = 30 // of the field's bits, if there is a monotonic part
	(*struct{ wall uint64 })(unsafe.Pointer(&set)).wall += uint64(step/time.Second) << secondsAt
	if set.Sub(at) != 0 || set.Round(0).Sub(at.Round(0)) != step {
		t.Fatalf("%s is not %s after a step of %s", set, at, step)
	}
	return set
}
