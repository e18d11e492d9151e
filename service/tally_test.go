package service

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Each request of a known sale is counted once, also while many requests are the first of their verdict.
func TestTally(t *testing.T) {
	const callers, requests = 8, 100
	one, other := openOffer(), openOffer()
	tally := NewTally(refreshed(t, newFakeStores(one, other)))
	want := map[string]map[model.Verdict]int64{one.ID: {model.SoldOut: callers * requests}, other.ID: {}}
	check.Together(callers, func(i int) {
		for j := range requests {
			tally.Count(one.ID, model.SoldOut)
			tally.Count(other.ID, model.Verdict(fmt.Sprint("verdict ", j)))
			tally.Count(fmt.Sprint("GUESS-", i, "-", j), model.RateLimited)
		}
	})
	for j := range requests {
		want[other.ID][model.Verdict(fmt.Sprint("verdict ", j))] = callers
	}
	check.Same(t, "stored counts", len(*tally.counts.Load()), requests+1)
	if tally.add(tallied{one.ID, model.SoldOut}) != (*tally.counts.Load())[tallied{one.ID, model.SoldOut}] {
		t.Error("a second add replaced a count")
	}
	for range 2 { // reading changes nothing
		check.Same(t, "counts", tally.Counts(), want)
	}
}

// Counts of a sale that is no longer watched are deleted, and the other sales keep theirs.
func TestTallyForgets(t *testing.T) {
	over, open := openOffer(), openOffer()
	store := newFakeStores(over, open)
	catalog := refreshed(t, store)
	tally := NewTally(catalog)
	tally.Count(over.ID, model.Accepted)
	tally.Count(open.ID, model.Accepted)
	store.change(func(f *fakeStores) { f.offers[0].EndsAt = time.Now().Add(-2 * Linger) })
	check.Done(catalog.Refresh(t.Context()))
	check.Same(t, "counts", tally.Counts(), map[string]map[model.Verdict]int64{open.ID: {model.Accepted: 1}})
	check.Same(t, "stored counts", len(*tally.counts.Load()), 1)
	tally.Count(over.ID, model.Ended)
	tally.Count(open.ID, model.Accepted)
	check.Same(t, "counts", tally.Counts(), map[string]map[model.Verdict]int64{open.ID: {model.Accepted: 2}})
}
