package strategy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"flashsale/model"
)

// nodeGate is a gate in two parts on two nodes, one of which may fail. Users whose names begin alike share a part.
type nodeGate struct {
	fakeGate
	down  map[string]bool
	asked []string // the line of each call
}

func (nodeGate) Line(_ context.Context, saleID, userID string) (string, error) {
	return saleID + "." + userID[:1], nil
}

func (nodeGate) Node(_ context.Context, line string) string { return "node " + line[len(line)-1:] }

func (g *nodeGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, _ int64) ([]model.Outcome, error) {
	line, _ := g.Line(ctx, saleID, attempts[0].UserID)
	g.asked = append(g.asked, line)
	if g.down[line[len(line)-1:]] {
		return nil, errors.New("connection refused")
	}
	return slices.Repeat([]model.Outcome{{Verdict: model.Accepted}}, len(attempts)), nil
}

// A node that fails is left alone, and its part's attempts go to the database; those of the other part go on to theirs.
func TestOneNodeFails(t *testing.T) {
	const sale = "sale"
	db, control := newFakeDatabase(), &fakeControl{}
	g := &nodeGate{down: map[string]bool{"a": true}}
	h := NewHybrid(Needs{Gate: g, Database: db, Control: control, Log: discard, Retried: func() {}, Now: time.Now})
	t.Cleanup(h.Close)
	deduct := func(user string) model.Outcome {
		t.Helper()
		a := model.Attempt{ID: user, SaleID: sale, UserID: user, Quantity: 1, RequestKey: user}
		got, err := h.Deduct(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for i := range 2 * breakerTrips {
		if got := deduct("a" + string(rune('0'+i))); got.Queued() {
			t.Errorf("queued by a node that is down: %+v", got)
		}
		if got := deduct("b" + string(rune('0'+i))); !got.Queued() {
			t.Errorf("the other node was not asked: %+v", got)
		}
	}
	calls := map[string]int{}
	for _, line := range g.asked {
		calls[line]++
	}
	if calls["sale.a"] != breakerTrips || calls["sale.b"] != 2*breakerTrips {
		t.Errorf("the nodes were asked %v", calls)
	}
	if h.Healthy() == nil {
		t.Error("an open circuit is not told")
	}
}

// Who is short while not all parts can be asked is judged by the database, which may have units.
func TestUnsureAsksTheDatabase(t *testing.T) {
	unsure := fakeGate(func(model.Attempt, int64) (model.Outcome, error) { return model.Outcome{Verdict: model.Unsure}, nil })
	a := model.Attempt{ID: "order", SaleID: "sale", UserID: "user", Quantity: 1, RequestKey: "key"}
	for name, db := range map[string]Database{"it has": newFakeDatabase(), "it has none": emptyDatabase{newFakeDatabase()}} {
		control, want := &fakeControl{}, model.Accepted
		if name == "it has none" {
			want = model.SoldOut
		}
		h := NewHybrid(Needs{Gate: unsure, Database: db, Control: control, Log: discard, Retried: func() {}, Now: time.Now})
		t.Cleanup(h.Close)
		got, err := h.Deduct(t.Context(), a)
		if err != nil || got.Verdict != want || got.Queued() {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if len(control.need) != 0 {
			t.Errorf("%s: asked to install %v", name, control.need)
		}
		if err := h.Healthy(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r := NewRedis(Needs{Gate: unsure, Control: control, Log: discard})
		t.Cleanup(r.Close)
		if got, err := r.Deduct(t.Context(), a); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("without a database: %+v, %v", got, err)
		}
	}
}

// emptyDatabase has no units.
type emptyDatabase struct{ *fakeDatabase }

func (emptyDatabase) Deduct(_ context.Context, _ string, attempts []model.Attempt) ([]model.Outcome, error) {
	return slices.Repeat([]model.Outcome{{Verdict: model.SoldOut}}, len(attempts)), nil
}

// A sale of which nobody can say how its gate is divided is the database's.
func TestLineUnknown(t *testing.T) {
	db, control := newFakeDatabase(), &fakeControl{}
	h := NewHybrid(Needs{Gate: lineless{}, Database: db, Control: control, Log: discard, Retried: func() {}, Now: time.Now})
	t.Cleanup(h.Close)
	a := model.Attempt{ID: "order", SaleID: "sale", UserID: "user", Quantity: 1, RequestKey: "key"}
	if got, err := h.Deduct(t.Context(), a); err != nil || got.Verdict != model.Accepted || got.Queued() {
		t.Errorf("%+v, %v", got, err)
	}
}

type lineless struct{ fakeGate }

func (lineless) Line(context.Context, string, string) (string, error) {
	return "", errors.New("the database is away")
}
