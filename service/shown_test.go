package service

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// fakeReplicas say what they are told to, after a while.
type fakeReplicas struct {
	state model.GateState
	err   error
	while time.Duration
	asked int
}

func (r *fakeReplicas) Peek(ctx context.Context, sales []model.Offer) ([]model.GateState, error) {
	r.asked++
	select {
	case <-time.After(r.while):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	states := make([]model.GateState, len(sales))
	for i := range states {
		states[i] = r.state
	}
	return states, r.err
}

// Replicas lower the figure that pages show, of an open gate of the present epoch. They never raise it, and never say
// that nothing is left.
func TestShownStock(t *testing.T) {
	open := model.GateState{Exists: true, Open: true, Epoch: 1, Left: 7}
	with := func(change func(*model.GateState)) model.GateState {
		s := open
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		available int64
		gate      model.GateState
		want      int64
	}{
		"fresher than the database":     {10, open, 7},
		"behind the database":           {5, open, 5},
		"nothing left, says a replica":  {3, with(func(s *model.GateState) { s.Left = 0 }), 1},
		"less than nothing":             {3, with(func(s *model.GateState) { s.Left = -4 }), 1},
		"nothing left, says the other":  {0, open, 0},
		"a closed gate":                 {10, with(func(s *model.GateState) { s.Open = false }), 10},
		"an older epoch":                {10, with(func(s *model.GateState) { s.Epoch = 0 }), 10},
		"an epoch not yet heard of":     {10, with(func(s *model.GateState) { s.Epoch = 2 }), 10},
		"no gate":                       {10, model.GateState{}, 10},
		"a replica that doesn't answer": {10, model.GateState{Away: true}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			o := openOffer()
			o.Stock.Available = tc.available
			store := newFakeSales(o)
			c := refreshed(t, &Shown{CatalogStore: store, Replicas: &fakeReplicas{state: tc.gate}, Log: discard})
			shown, ok := c.InMemory(o.ID)
			if !ok || shown.Stock.Available != tc.want {
				t.Errorf("%d are shown, want %d", shown.Stock.Available, tc.want)
			}
			if other, _, err := store.Offer(t.Context(), o.ID); err != nil || other.Stock.Available != tc.available {
				t.Errorf("the store's own became %d, %v", other.Stock.Available, err)
			}
			if err := c.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again, _ := c.InMemory(o.ID); again.Stock.Available != tc.want {
				t.Errorf("then %d are shown", again.Stock.Available)
			}
		})
	}
}

// Replicas that are away hold a refresh up for a moment, then are left alone for a while; the log says so once.
func TestShownWithoutReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := openOffer()
		replicas := &fakeReplicas{state: model.GateState{Exists: true, Open: true, Epoch: 1, Left: 4}, while: time.Hour}
		s := &Shown{CatalogStore: newFakeSales(o), Replicas: replicas, Log: slog.New(slog.NewTextHandler(&log, nil))}
		refresh := func() (available int64, took time.Duration) {
			t.Helper()
			start := time.Now()
			list, err := s.LiveOffers(t.Context(), 0)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].Stock.Available, time.Since(start)
		}
		for range 2 {
			if shown, took := refresh(); shown != 10 || took != replicaTime {
				t.Errorf("%d shown after %s", shown, took)
			}
			for range replicaRest {
				if shown, took := refresh(); shown != 10 || took != 0 {
					t.Errorf("%d shown after %s", shown, took)
				}
			}
		}
		if replicas.asked != 2 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("asked %d times; the log: %s", replicas.asked, &log)
		}
		log.Reset()
		replicas.while = 0
		for range 3 {
			if shown, _ := refresh(); shown != 4 {
				t.Errorf("%d shown when they are back", shown)
			}
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=INFO") {
			t.Errorf("the log: %s", &log)
		}
		replicas.state = model.GateState{Away: true} // one of many
		for range 3 {
			if shown, _ := refresh(); shown != 10 {
				t.Errorf("%d shown", shown)
			}
		}
		if strings.Count(log.String(), "\n") != 2 || replicas.asked != 8 {
			t.Errorf("asked %d times; the log: %s", replicas.asked, &log)
		}
	})
}

// A refusal never comes from a replica: it may be behind.
func TestShownStockRefusesNobody(t *testing.T) {
	o := openOffer()
	replicas := &fakeReplicas{state: model.GateState{Exists: true, Open: true, Epoch: 1}}
	c := refreshed(t, &Shown{CatalogStore: newFakeSales(o), Replicas: replicas, Log: discard})
	shown, _ := c.InMemory(o.ID)
	if state := shown.State(c.Now(), shown.Stock.Available); state != model.StateOpen {
		t.Errorf("the page says %s", state)
	}
	c.Latch(o.ID)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Latched(o.ID) {
		t.Error("sold out stays although the database has units")
	}
	p := &Purchases{Catalog: c, Meter: deaf{}}
	if outcome, decided := p.FromMemory(Request{SaleID: o.ID, UserID: "u-1", Quantity: 1}); decided {
		t.Errorf("refused from memory: %+v", outcome)
	}
}

// deaf is a meter that notes nothing.
type deaf struct{}

func (deaf) Stage(string, time.Duration) {}

func (deaf) Verdict(model.Verdict) {}
