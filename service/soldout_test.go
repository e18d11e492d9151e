package service

import (
	"context"
	"iter"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// leaser is a database that gives leases.
type leaser struct {
	*fakeStores
	leases map[string]model.RefusalLease
	ids    []string
	read   int // how often the ids were read
	errIDs error
}

func (l *leaser) LeaseRefusals(context.Context, []string) (map[string]model.RefusalLease, error) {
	return maps.Clone(l.leases), l.err
}

func (l *leaser) KnownIDs(context.Context, string) iter.Seq2[[]string, error] {
	l.read++
	return func(yield func([]string, error) bool) { yield(l.ids, l.errIDs) }
}

func newSoldOut(t *testing.T) (*SoldOut, *leaser, string) {
	t.Helper()
	offer := openOffer()
	l := &leaser{fakeStores: newFakeStores(offer), leases: map[string]model.RefusalLease{offer.ID: {GateVersion: 1}}, ids: []string{"an order"}}
	l.states[offer.ID] = openGate(1, 0)
	return &SoldOut{Store: l, Gate: l, Catalog: refreshed(t, l), Now: time.Now}, l, offer.ID
}

// Memory refuses a new id only with a lease on a sale whose gate has no units, and none under way.
func TestSoldOutRefuses(t *testing.T) {
	type test struct {
		change  func(l *leaser, id string)
		refuses bool
		fails   bool
	}
	gateWith := func(change func(*model.GateState)) func(*leaser, string) {
		return func(l *leaser, id string) {
			state := l.states[id]
			change(&state)
			l.states[id] = state
		}
	}
	check.EachInBubble(t, map[string]test{
		"sold out":          {func(*leaser, string) {}, true, false},
		"no lease":          {func(l *leaser, _ string) { clear(l.leases) }, false, false},
		"units at the gate": {gateWith(func(s *model.GateState) { s.Left = 1 }), false, false},
		"units under way":   {gateWith(func(s *model.GateState) { s.Stream = 1 }), false, false},
		"a closed gate":     {gateWith(func(s *model.GateState) { s.Open = false }), false, false},
		"no Redis":          {func(l *leaser, _ string) { l.errGate = errAway }, false, true},
		"no database":       {func(l *leaser, _ string) { l.err = errAway }, false, true},
		"ids can't be read": {func(l *leaser, _ string) { l.errIDs = errAway }, false, true},
		"too many ids": {func(l *leaser, _ string) {
			for i := range mostRemembered + 1 {
				l.ids = append(l.ids, strconv.Itoa(i))
			}
		}, false, false},
		"no gates are used": {func(l *leaser, _ string) { l.errGate = errAway; l.calls["no gates"] = 1 }, true, false},
	}, func(t *testing.T, tc test) {
		s, l, id := newSoldOut(t)
		tc.change(l, id)
		if l.calls["no gates"] > 0 {
			s.Gate = nil
		}
		check.Same(t, "refused before the first lease", s.Refuses(id, "new"), false)
		if err := s.Refresh(t.Context()); (err != nil) != tc.fails {
			t.Errorf("Refresh returns %v", err)
		}
		check.Same(t, "refused", s.Refuses(id, "new"), tc.refuses)
		if len(l.ids) == 1 {
			check.Same(t, "the order refused", s.Refuses(id, "an order"), false)
		}
		time.Sleep(model.RefusalTime) // the bubble's clock
		check.Same(t, "refused after the lease", s.Refuses(id, "new"), false)
	})
}

// The ids are read again only if the lease differs, and a sale that nobody asks for is forgotten.
func TestSoldOutRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, id := newSoldOut(t)
		refresh := func() {
			s.Refuses(id, "new")
			check.NoError(t, s.Refresh(t.Context()))
		}
		refresh()
		refresh()
		check.Same(t, "reads of the ids, equal leases", l.read, 1)
		l.leases[id], l.ids = model.RefusalLease{GateVersion: 2}, []string{"new"}
		refresh()
		check.Same(t, "reads of the ids, another lease", l.read, 2)
		check.Same(t, "an order made meanwhile refused", s.Refuses(id, "new"), false)
		check.NoError(t, s.Refresh(t.Context())) // it was asked for once more
		check.NoError(t, s.Refresh(t.Context()))
		check.Same(t, "sales", len(maps.Collect(s.sales.Range)), 0)
	})
}
