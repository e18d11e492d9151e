package service

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"flashsale/model"
)

// Each request is counted once under its sale and verdict, whoever of many came first; ids that nobody made aren't.
func TestTally(t *testing.T) {
	const callers, each = 8, 100
	one, other := openOffer(), openOffer()
	tally := NewTally(refreshed(t, newFakeSales(one, other)))
	want := map[string]map[model.Verdict]int64{one.ID: {model.SoldOut: callers * each}, other.ID: {}}
	begin := make(chan struct{})
	var counting sync.WaitGroup
	for i := range callers {
		counting.Go(func() {
			<-begin
			for j := range each {
				tally.Count(one.ID, model.SoldOut)
				tally.Count(other.ID, model.Verdict(fmt.Sprint("kind ", j))) // of which all come first
				tally.Count(fmt.Sprint("GUESS-", i, "-", j), model.RateLimited)
			}
		})
	}
	for j := range each {
		want[other.ID][model.Verdict(fmt.Sprint("kind ", j))] = callers
	}
	close(begin)
	counting.Wait()
	if n := len(*tally.counts.Load()); n != each+1 {
		t.Errorf("%d counts are kept, want %d", n, each+1)
	}
	if tally.add(tallied{one.ID, model.SoldOut}) != (*tally.counts.Load())[tallied{one.ID, model.SoldOut}] {
		t.Error("who was overtaken begins a count of its own")
	}
	for range 2 { // to ask changes nothing
		if got := tally.Counts(); !reflect.DeepEqual(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	}
}

// A sale that is no longer watched is forgotten; the others keep their counts.
func TestTallyForgets(t *testing.T) {
	over, open := openOffer(), openOffer()
	store := newFakeSales(over, open)
	catalog := refreshed(t, store)
	tally := NewTally(catalog)
	tally.Count(over.ID, model.Accepted)
	tally.Count(open.ID, model.Accepted)
	store.change(func(f *fakeSales) { f.offers[0].EndsAt = time.Now().Add(-2 * Linger) })
	if err := catalog.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := tally.Counts(), (map[string]map[model.Verdict]int64{open.ID: {model.Accepted: 1}}); !reflect.DeepEqual(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if n := len(*tally.counts.Load()); n != 1 {
		t.Errorf("%d counts are kept", n)
	}
	tally.Count(over.ID, model.Ended)
	tally.Count(open.ID, model.Accepted)
	if got, want := tally.Counts(), (map[string]map[model.Verdict]int64{open.ID: {model.Accepted: 2}}); !reflect.DeepEqual(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func BenchmarkTally(b *testing.B) {
	offers := []model.Offer{openOffer(), openOffer(), openOffer()}
	catalog := NewCatalog(newFakeSales(offers...), time.Now)
	if err := catalog.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	tally := NewTally(catalog)
	for _, o := range offers {
		for _, v := range []model.Verdict{model.Accepted, model.SoldOut, model.RateLimited} {
			tally.Count(o.ID, v)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		tally.Count(offers[1].ID, model.SoldOut)
	}
}
