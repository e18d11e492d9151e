package service

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeReplicas return one state for every gate, after a while.
type fakeReplicas struct {
	state model.GateState
	while time.Duration
	asked int
}

func (r *fakeReplicas) Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	r.asked++
	select {
	case <-time.After(r.while):
		return slices.Repeat([]model.GateState{r.state}, len(gates)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Replicas only lower the units that pages show, by an open gate of the present epoch, and never to zero.
func TestShownStock(t *testing.T) {
	type test struct {
		available int64
		gate      model.GateState
		want      int64
	}
	check.Each(t, map[string]test{
		"the replica is ahead of the database": {10, openGate(1, 7), 7},
		"the replica is behind the database":   {5, openGate(1, 7), 5},
		"the replica has no unit":              {3, openGate(1, 0), 1},
		"the replica has less than no unit":    {3, openGate(1, -4), 1},
		"the database has no unit":             {0, openGate(1, 7), 0},
		"the gate is closed":                   {10, model.GateState{Exists: true, Epoch: 1, Left: 7}, 10},
		"the gate is of an older epoch":        {10, openGate(0, 7), 10},
		"the gate is of an epoch not yet read": {10, openGate(2, 7), 10},
		"there is no gate":                     {10, model.GateState{}, 10},
		"the replica does not answer":          {10, model.GateState{Away: true}, 10},
	}, func(t *testing.T, tc test) {
		o := openOffer()
		o.Stock.Available = tc.available
		store := newFakeStores(o)
		c := refreshed(t, &ReplicaCatalog{CatalogStore: store, Replicas: &fakeReplicas{state: tc.gate}, Log: discard})
		for range 2 {
			shown := c.InMemory(o.ID)
			check.Same(t, "units shown", shown.Stock.Available, tc.want)
			check.Same(t, "units in the store", store.offers[0].Stock.Available, tc.available)
			check.Done(c.Refresh(t.Context()))
		}
	})
}

// Replicas that are away delay one refresh, and then are not asked for a while. The log reports this once.
func TestShownWithoutReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &check.Log{}
		replicas := &fakeReplicas{state: openGate(1, 4), while: time.Hour}
		s := &ReplicaCatalog{CatalogStore: newFakeStores(openOffer()), Replicas: replicas, Log: slog.New(log)}
		refresh := func(want int64, wantTook time.Duration) {
			t.Helper()
			start := time.Now()
			list := check.Must(s.LiveOffers(t.Context(), 0))
			check.Same(t, "units shown", list[0].Stock.Available, want)
			check.Same(t, "duration", time.Since(start), wantTook)
		}
		logged := func(warnings, infos int) {
			t.Helper()
			check.Same(t, "warnings, infos", []int{log.Count("WARN "), log.Count("INFO ")}, []int{warnings, infos})
		}
		for range 2 {
			refresh(10, replicaTime)
			for range replicaRest {
				refresh(10, 0)
			}
		}
		check.Same(t, "calls while the replicas are away", replicas.asked, 2)
		logged(1, 0)
		replicas.while = 0
		for range 3 {
			refresh(4, 0)
		}
		logged(1, 1)
		replicas.state = model.GateState{Away: true} // one of several replicas is away
		for range 3 {
			refresh(10, 0)
		}
		logged(2, 1)
		check.Same(t, "calls in all", replicas.asked, 8)
	})
}

// A replica may be behind, so it never causes a refusal.
func TestShownStockRefusesNobody(t *testing.T) {
	o := openOffer()
	c := refreshed(t, &ReplicaCatalog{CatalogStore: newFakeStores(o), Replicas: &fakeReplicas{state: openGate(1, 0)}, Log: discard})
	shown := c.InMemory(o.ID)
	check.Same(t, "state on the page", shown.State(c.Now(), shown.Stock.Available), model.StateOpen)
	c.Latch(o.ID)
	check.Done(c.Refresh(t.Context()))
	check.Same(t, "latched although the database has units", c.Latched(o.ID), false)
	p := &Purchases{Catalog: c}
	if outcome, decided := p.fromMemory(Request{SaleID: o.ID, UserID: "u-1", Quantity: 1}, p.Catalog.InMemory(o.ID)); decided {
		t.Errorf("refused from memory: %+v", outcome)
	}
}
