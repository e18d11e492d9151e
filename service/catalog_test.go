package service

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Guessed ids, also many at once, cause no look-up of a sale, and one small query in filterPause.
func TestUnknownIDsCostNothing(t *testing.T) {
	type test struct{ callers, guesses int }
	check.Each(t, map[string]test{"one after the other": {1, 10}, "all at once": {1000, 1}}, func(t *testing.T, tc test) {
		store := newFakeStores(openOffer())
		c := refreshed(t, store)
		before, start := store.count("codes"), time.Now()
		check.Together(tc.callers, func(i int) {
			for j := range tc.guesses {
				if _, ok, err := c.Sale(t.Context(), fmt.Sprint("GUESS-", i, "-", j)); ok || err != nil {
					t.Errorf("guess %d: %t, %v", i, ok, err)
				}
			}
		})
		check.Same(t, "look-ups of sales", store.count("offer"), 0)
		elapsed := time.Since(start)
		if n, most := store.count("codes")-before, int(elapsed/filterPause)+1; n < 1 || n > most {
			t.Errorf("the filter was refreshed %d times in %s", n, elapsed)
		}
	})
}

// A sale of which this instance has not heard is found by its id and by its code.
func TestBrandNewSaleIsFoundAtOnce(t *testing.T) {
	check.EachInBubble(t, map[string]bool{"the first look-up": false, "after a guess": true}, func(t *testing.T, guessed bool) {
		store := newFakeStores(openOffer())
		c := refreshed(t, store)
		time.Sleep(time.Second)
		if guessed {
			check.Same(t, "the guess is known", check.Must(c.Known(t.Context(), "GUESS")), false)
		}
		fresh := openOffer()
		store.add(fresh)
		start := time.Now()
		got, ok, err := c.Sale(t.Context(), fresh.ID)
		if !ok || err != nil || got.ID != fresh.ID {
			t.Errorf("the new sale: %+v, %t, %v", got, ok, err)
		}
		check.Same(t, "its code is known", check.Must(c.Known(t.Context(), fresh.Code)), true)
		if waited := time.Since(start); waited > filterPause {
			t.Errorf("the look-ups took %s", waited)
		}
	})
}

// A sale whose id passes for known by chance is found by its code too.
func TestCodeOfAnIDThatPassesForKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStores(openOffer())
		c := refreshed(t, store)
		fresh := openOffer()
		store.add(fresh)
		c.filter.Load().AddString(fresh.ID)
		check.Same(t, "its code is known", check.Must(c.Known(t.Context(), fresh.Code)), true)
	})
}

// A sale that was committed late has an earlier time of creation than a sale that the filter has seen.
func TestSlowlyCommittedSaleIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStores(openOffer())
		c := refreshed(t, store)
		slow := openOffer()
		store.add(slow)
		store.change(func(f *fakeStores) { f.created[slow.ID] = time.Now().Add(1 - filterOverlap) })
		check.Same(t, "the sale is known", check.Must(c.Known(t.Context(), slow.ID)), true)
	})
}

func TestOldSalesAreNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOffer()
		store := newFakeStores(o, openOffer())
		c := refreshed(t, store)
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{filterOverlap, 2}, {1, 2}, {filterOverlap, 0}} {
			time.Sleep(step.after)
			check.Done(c.Refresh(t.Context()))
			check.Same(t, "sales read for the filter", store.codes, step.want)
		}
		check.Same(t, "an old sale is known", check.Must(c.Known(t.Context(), o.Code)), true)
	})
}

// An instance that can't look must not report that a sale does not exist.
func TestTroubleIsNotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOffer()
		store := newFakeStores(o)
		c := refreshed(t, store)
		store.change(func(f *fakeStores) { f.err = errAway })
		_, _, err := c.Sale(t.Context(), "GUESS")
		check.Error(t, "unknown sale", err, errAway)
		if _, ok, err := c.Sale(t.Context(), o.ID); !ok || err != nil {
			t.Errorf("sale in memory: %t, %v", ok, err)
		}
		check.Error(t, "refresh", c.Refresh(t.Context()), errAway)
		check.Same(t, "live sales after a failed refresh", c.LiveIDs(), []string{o.ID})

		store.change(func(f *fakeStores) { f.err = nil })
		check.Done(c.Refresh(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Known(ctx, "GUESS")
		check.Error(t, "caller that has left", err, context.Canceled)
	})
}

// A sale that ended long ago is looked up once, and a sale that has just ended after each refresh.
func TestPastSalesAreRemembered(t *testing.T) {
	type test struct {
		ended   time.Duration
		lookUps int
	}
	check.EachInBubble(t, map[string]test{
		"long ago": {Linger + time.Minute, 1},
		"lately":   {Linger - time.Minute, 3},
	}, func(t *testing.T, tc test) {
		past := openOffer()
		past.EndsAt = time.Now().Add(-tc.ended)
		store := newFakeStores()
		store.ended, store.created[past.ID] = []model.Offer{past}, past.StartsAt
		c := refreshed(t, store)
		for range 3 {
			if got, ok, err := c.Sale(t.Context(), past.ID); !ok || err != nil || got.ID != past.ID {
				t.Errorf("%+v, %t, %v", got, ok, err)
			}
			check.Done(c.Refresh(t.Context()))
		}
		check.Same(t, "look-ups", store.count("offer"), tc.lookUps)
	})
}

// Whatever the database says of a sale, a campaign or a short link that is not watched is asked once between two refreshes,
// also if there is none. A change shows after the next refresh, and an error is not kept.
func TestUnwatchedIsReadOnce(t *testing.T) {
	o := openOffer()
	o.EndsAt, o.Campaign.ID, o.Status = time.Now().Add(time.Minute-Linger), "CAMPAIGN", model.SalePaused
	store := newFakeStores()
	store.ended, store.created[o.ID] = []model.Offer{o}, o.StartsAt
	c := refreshed(t, store)
	for _, id := range []string{"NONE", o.Campaign.ID, o.Code} { // NONE is one of the few in a thousand that the filter takes for known
		c.filter.Load().AddString(id)
	}
	links := &Sales{Store: store, Catalog: c}
	look := func() (seen []any) {
		sale, ok, err := c.Sale(t.Context(), o.ID)
		seen = append(seen, sale.Status, ok, err)
		_, ok, err = c.Sale(t.Context(), "NONE")
		seen = append(seen, ok, err)
		for _, id := range []string{o.Campaign.ID, "NONE"} {
			sales, err := c.Campaign(t.Context(), id)
			seen = append(seen, len(sales), err)
		}
		for _, code := range []string{o.Code, "NONE"} {
			id, err := links.ByCode(t.Context(), code)
			seen = append(seen, id, err)
		}
		return seen
	}
	asked := func() []int {
		return []int{store.count("offer"), store.count("campaign"), store.count("code")}
	}
	check.Together(100, func(int) {
		check.Same(t, "at first", look(), []any{model.SalePaused, true, nil, false, nil, 1, nil, 0, nil, o.ID, nil, "", nil})
	})
	check.Same(t, "look-ups", asked(), []int{2, 2, 2})
	store.change(func(f *fakeStores) { f.ended[0].Status, f.err = model.SaleClosed, errAway })
	check.Error(t, "refresh", c.Refresh(t.Context()), errAway)
	look()
	check.Same(t, "look-ups before a refresh", asked(), []int{2, 2, 2})
	store.change(func(f *fakeStores) { f.err = nil })
	check.Done(c.Refresh(t.Context()))
	store.change(func(f *fakeStores) { f.err = errAway })
	_, _, err := c.Sale(t.Context(), o.ID)
	check.Error(t, "while the database is away", err, errAway)
	store.change(func(f *fakeStores) { f.err = nil })
	check.Same(t, "after the change", look(), []any{model.SaleClosed, true, nil, false, nil, 1, nil, 0, nil, o.ID, nil, "", nil})
	check.Same(t, "look-ups after a refresh", asked(), []int{5, 4, 4})
}

// The latch is removed by a refresh that reads available units, and by a release.
func TestLatch(t *testing.T) {
	o, other := openOffer(), openOffer()
	o.Stock.Available = 0
	store := newFakeStores(o, other)
	c := refreshed(t, store)
	refreshedIs := func(stage string, latched bool) {
		t.Helper()
		check.Done(c.Refresh(t.Context()))
		check.Same(t, stage+": latched", []bool{c.Latched(o.ID), c.Latched(other.ID)}, []bool{latched, false})
	}
	refreshedIs("at first", false)
	c.Latch(o.ID)
	refreshedIs("sold out", true)
	c.Unlatch(o.ID)
	refreshedIs("a unit was released", false)
	c.Latch(o.ID)
	refreshedIs("sold out again", true)
	store.change(func(f *fakeStores) { f.offers[0].Stock.Available = 1 })
	refreshedIs("a refresh read a unit", false)
}

// The catalog judges by the database's clock, however wrong this machine's clock is, and needs no refresh for that.
func TestWrongLocalClock(t *testing.T) {
	clocks := map[string]time.Duration{"right": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour}
	check.EachInBubble(t, clocks, func(t *testing.T, wrong time.Duration) {
		o := openOffer()
		o.StartsAt, o.EndsAt = time.Now().Add(10*time.Minute), time.Now().Add(20*time.Minute)
		c := NewCatalog(newFakeStores(o), func() time.Time { return time.Now().Add(wrong) })
		check.Done(c.Refresh(t.Context()))
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
			time.Sleep(step.after)
			check.Same(t, "the database's time", c.Now(), time.Now().UTC())
			got, _, err := c.Sale(t.Context(), o.ID)
			check.Error(t, "sale", err, nil)
			check.Same(t, "state", got.State(c.Now(), got.Stock.Available), step.want)
		}
	})
}

// slowClock returns after a while the time at the middle of the call.
type slowClock struct {
	*fakeStores
	takes time.Duration
}

func (s slowClock) Now(context.Context) (time.Time, error) {
	time.Sleep(s.takes / 2)
	now := time.Now()
	time.Sleep(s.takes / 2)
	return now, nil
}

func TestSlowClockIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := refreshed(t, slowClock{newFakeStores(openOffer()), 2 * time.Second})
		check.Same(t, "error of the clock", time.Until(c.Now()), 0)
	})
}

func TestLive(t *testing.T) {
	first, second := openOffer(), openOffer()
	second.Stock.Epoch = 9
	store := newFakeStores(first, second)
	c := refreshed(t, store)
	list, changed := c.Live(), c.Changed()
	check.Same(t, "live sales", []string{list[0].ID, list[1].ID}, []string{first.ID, second.ID})
	check.Same(t, "live sales", c.LiveIDs(), []string{first.ID, second.ID})
	check.Same(t, "epochs", []int64{c.Epoch(second.ID), c.Epoch("NONE")}, []int64{9, 0})
	check.Done(c.Refresh(t.Context()))
	again := c.Changed()
	check.Same(t, "the channel stays while nothing changes", again == changed && !isClosed(changed), true)
	store.change(func(f *fakeStores) { f.offers[1].Stock.Available-- })
	check.Done(c.Refresh(t.Context()))
	next := c.Changed()
	check.Same(t, "a change closes the channel, and only that one", []bool{isClosed(changed), isClosed(next)}, []bool{true, false})
}

// Concurrent refreshes take turns: an older reading must not replace a newer one, and a change is announced once.
func TestRefreshesTakeTurns(t *testing.T) {
	store := newFakeStores(openOffer())
	store.version = 1
	c := refreshed(t, store)
	check.Together(8, func(int) {
		for range 50 {
			check.Done(c.Refresh(t.Context()))
		}
	})
	list, changed := c.Live(), c.Changed()
	check.Same(t, "version in memory", list[0].Stock.Version, store.version)
	check.Same(t, "a change is announced that has not come", isClosed(changed), false)
}

// The database's time stays right when the machine's clock is set between two refreshes.
func TestNowSurvivesAStepOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		stepped := time.Duration(0)
		store := newFakeStores(openOffer())
		store.offset = time.Minute
		c := NewCatalog(store, func() time.Time { return setClock(t, time.Now(), stepped) })
		check.Done(c.Refresh(t.Context()))
		stepped = step
		if late := time.Since(c.Now().Add(-store.offset)); late.Abs() > time.Minute {
			t.Errorf("after a step of %s the catalog is %s late", step, late)
		}
	}
}

// setClock returns a reading of the machine's clock after a step: the monotonic part stays.
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
