package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/gate"
	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit"
)

// patience bounds each wait for an event that has to come.
const patience = time.Minute

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and some are meant to happen
	kit.Main(m)
}

// gatehouse is the database and the Redis of gates, in one; it notes the steps of rebuilds.
type gatehouse struct {
	*fakeSales
	mu      sync.Mutex // gates are rebuilt side by side
	states  map[string]model.GateState
	lost    bool // another caller wins the epoch
	newer   bool // the gate there is newer than the one to come
	moves   int  // how often the stream moves under an install
	failing string
	steps   []string
	pause   time.Duration
	renewed chan int64                    // epochs, if anybody listens
	bad     []string                      // entries that can't be read
	changes map[string][]model.GateChange // by sale
}

func newGatehouse(offers ...model.Offer) *gatehouse {
	return &gatehouse{fakeSales: newFakeSales(offers...), states: map[string]model.GateState{}, changes: map[string][]model.GateChange{}}
}

// step notes a step, and fails if it is the one that is to fail.
func (h *gatehouse) step(name string) error {
	h.steps = append(h.steps, name)
	if h.failing == name {
		return errAway
	}
	return nil
}

func (h *gatehouse) Offer(ctx context.Context, id string) (model.Offer, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fakeSales.Offer(ctx, id)
}

func (h *gatehouse) NextEpoch(_ context.Context, id string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = pause
	for i := range h.offers {
		if h.offers[i].ID == id && !h.lost {
			h.offers[i].Stock.Epoch = max(seen, gates) + 1
		}
	}
	return max(seen, gates) + 1, !h.lost, h.step("epoch")
}

func (h *gatehouse) RenewEpoch(ctx context.Context, _ string, epoch int64) error {
	if h.renewed == nil {
		return nil
	}
	select {
	case h.renewed <- epoch:
	case <-ctx.Done(): // the rebuild has ended
	}
	return nil
}

func (h *gatehouse) GateContents(_ context.Context, id string) (model.GateContents, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.step("contents"); err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(h.offers, func(o model.Offer) bool { return o.ID == id })
	return openContents{kit.ContentsOf(h.offers[i]), h}, true, nil
}

// openContents have to be closed, which is a step.
type openContents struct {
	kit.Contents
	h *gatehouse
}

func (c openContents) Close() {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	_ = c.h.step("end")
}

// record notes a change of a sale for its gate.
func (h *gatehouse) record(id string, version int64) {
	for i := range h.offers {
		if h.offers[i].ID == id {
			h.offers[i].Stock.GateVersion = version
		}
	}
	h.changes[id] = append(h.changes[id], model.GateChange{Version: version, Units: 1})
}

// GateChanges gives one change at a time.
func (h *gatehouse) GateChanges(_ context.Context, id string, after int64, _ int) ([]model.GateChange, int64, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(h.changes[id]), func(c model.GateChange) bool { return c.Version <= after })
	if len(rest) == 0 {
		return nil, after, false, nil
	}
	return rest[:1], rest[0].Version, len(rest) > 1, h.step("changes")
}

func (h *gatehouse) ForgetGateChanges(_ context.Context, id string, upTo int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes[id] = slices.DeleteFunc(h.changes[id], func(c model.GateChange) bool { return c.Version <= upTo })
	return h.step(fmt.Sprint("forget ", upTo))
}

func (h *gatehouse) CatchUp(_ context.Context, id string, after, upTo int64, changes []model.GateChange) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.step(fmt.Sprintf("tell %d to %d", after, upTo)); err != nil {
		return err
	}
	state := h.states[id]
	for _, c := range changes {
		state.Left += c.Units
	}
	state.Version = upTo
	h.states[id] = state
	return nil
}

func (h *gatehouse) Log(_ context.Context, actor, action, subject, detail string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.step(strings.Join([]string{"log", actor, action, subject, detail}, " "))
}

func (h *gatehouse) Peek(_ context.Context, ids ...string) ([]model.GateState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := make([]model.GateState, len(ids))
	for i, id := range ids {
		states[i] = h.states[id]
	}
	if h.failing == "peek" {
		return nil, errAway
	}
	return states, nil
}

func (h *gatehouse) Close(_ context.Context, _ string, epoch int64) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.newer, h.step(fmt.Sprint("close for ", epoch))
}

func (h *gatehouse) StreamLengths(context.Context, string) ([]int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []int64{7}, h.step("measure")
}

func (h *gatehouse) Install(_ context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad, bad = nil, h.bad
	switch {
	case h.moves > 0:
		h.moves--
		_ = h.step("moved")
		return bad, model.ErrStreamMoved
	case h.newer:
		return bad, model.ErrNewerGate
	case !slices.Equal(lengths, []int64{7}):
		return bad, fmt.Errorf("the stream had %v entries", lengths)
	}
	o := c.Offer()
	h.states[o.ID] = model.GateState{Exists: true, Open: true, Epoch: epoch, Revision: o.Revision, Version: o.Stock.Version}
	return bad, h.step(fmt.Sprint("install ", epoch))
}

// TestRebuild shows every way through a rebuild of a gate whose sale is at epoch 3.
func TestRebuild(t *testing.T) {
	whole := []string{"epoch", "close for 4", "measure", "contents", "install 4", "end", "log"}
	open := func(epoch int64) model.GateState { return model.GateState{Exists: true, Open: true, Epoch: epoch} }
	tests := map[string]struct {
		state   model.GateState
		replace int64 // gates up to this epoch
		retired bool
		change  func(h *gatehouse)
		steps   []string
		err     error
	}{
		"no gate":                   {steps: whole},
		"an open one":               {state: open(3)},
		"an open one, to replace":   {state: open(3), replace: 3, steps: whole},
		"replaced by now":           {state: open(3), replace: 2},
		"an older one":              {state: open(2), steps: whole},
		"a closed one":              {state: model.GateState{Exists: true, Epoch: 3}, steps: whole},
		"one newer than known here": {state: open(9), replace: 9, steps: []string{"epoch", "close for 10", "measure", "contents", "install 10", "end", "log"}},
		"another caller won":        {change: func(h *gatehouse) { h.lost = true }, steps: whole[:1]},
		"overtaken at the close":    {change: func(h *gatehouse) { h.newer = true }, steps: whole[:2]},
		"entries that can't be read": {
			change: func(h *gatehouse) { h.bad = []string{"1-1 x", "1-2 y"} },
			steps:  slices.Concat(whole[:5], []string{"log engine delete_entry SALE 1-1 x", "log engine delete_entry SALE 1-2 y", "end", "log"}),
		},
		"entries that can't be read, and no more": {
			change: func(h *gatehouse) { h.bad, h.failing = []string{"1-1 x"}, "install 4" }, err: errAway,
			steps: slices.Concat(whole[:5], []string{"log engine delete_entry SALE 1-1 x", "end"}),
		},
		"the database sells meanwhile": {
			change: func(h *gatehouse) { h.record(h.offers[0].ID, 7); h.record(h.offers[0].ID, 8) },
			steps:  slices.Concat(whole[:6], []string{"changes", "tell 1 to 7", "changes", "tell 7 to 8", "log"}),
		},
		"the stream moves often": {
			change: func(h *gatehouse) { h.moves = 50 },
			steps:  slices.Concat(whole[:2], slices.Repeat([]string{"measure", "contents", "moved", "end"}, 50), whole[2:]),
		},
		"no Redis":                 {change: func(h *gatehouse) { h.failing = "peek" }, err: errAway},
		"no epoch":                 {change: func(h *gatehouse) { h.failing = "epoch" }, steps: whole[:1], err: errAway},
		"no close":                 {change: func(h *gatehouse) { h.failing = "close for 4" }, steps: whole[:2], err: errAway},
		"no stream":                {change: func(h *gatehouse) { h.failing = "measure" }, steps: whole[:3], err: errAway},
		"no contents":              {change: func(h *gatehouse) { h.failing = "contents" }, steps: whole[:4], err: errAway},
		"no install":               {change: func(h *gatehouse) { h.failing = "install 4" }, steps: whole[:6], err: errAway},
		"no such sale":             {change: func(h *gatehouse) { h.offers = nil }},
		"retired, none":            {retired: true, replace: 3},
		"retired, a closed one":    {retired: true, state: model.GateState{Exists: true, Epoch: 3}},
		"retired, but open":        {retired: true, state: open(3), steps: whole[:2]},
		"retired, and another won": {retired: true, state: open(3), change: func(h *gatehouse) { h.lost = true }, steps: whole[:1]},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := openOffer()
			o.Stock.Epoch = 3
			h := newGatehouse(o)
			h.states[o.ID] = tc.state
			g := NewGates(h, h, refreshed(t, h), discard)
			if tc.retired {
				g.Retire()
			}
			if tc.change != nil {
				tc.change(h)
			}
			err := g.Serve(t.Context(), GateRequest{SaleID: o.ID, Reason: "a test", Epoch: tc.replace})
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			steps := slices.Clone(h.steps)
			for i := range steps {
				if strings.HasPrefix(steps[i], "log engine delete_entry ") {
					steps[i] = strings.Replace(steps[i], o.ID, "SALE", 1)
				}
			}
			if n := len(steps); n > 0 && strings.HasPrefix(steps[n-1], "log engine install_gate "+o.ID+" epoch ") && strings.HasSuffix(steps[n-1], ": a test") {
				steps[n-1] = "log"
			}
			if !slices.Equal(steps, tc.steps) {
				t.Errorf("the steps are %q, want %q", steps, tc.steps)
			}
			if len(steps) > 0 && h.pause != rebuildPause {
				t.Errorf("rebuilds may follow each other after %s", h.pause)
			}
		})
	}
}

// TestHole53_LongRebuildIsRenewed: a rebuild of a large gate keeps other instances from starting a newer one, and stops doing so
// with its end.
func TestHole53_LongRebuildIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newGatehouse(openOffer())
		h.renewed = make(chan int64)
		g := NewGates(h, slowGate{h, 10 * rebuildPause}, refreshed(t, h), discard)
		done := make(chan error, 1)
		go func() { done <- g.Serve(t.Context(), GateRequest{SaleID: h.offers[0].ID}) }()
		for renewals, last := 0, time.Now(); ; renewals++ {
			select {
			case epoch := <-h.renewed:
				if epoch != 2 || time.Since(last) >= rebuildPause {
					t.Errorf("epoch %d is renewed after %s", epoch, time.Since(last))
				}
				last = time.Now()
				continue
			case err := <-done:
				if err != nil || renewals < 10 {
					t.Errorf("%v after %d renewals", err, renewals)
				}
			}
			return
		}
	})
}

// slowGate takes long to be installed.
type slowGate struct {
	*gatehouse
	time.Duration
}

func (g slowGate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	time.Sleep(g.Duration)
	return g.gatehouse.Install(ctx, epoch, lengths, c)
}

// TestRequestsAreAskedOnce: a thousand attempts that meet a missing gate ask for one.
func TestRequestsAreAskedOnce(t *testing.T) {
	o := openOffer()
	h := newGatehouse(o)
	g := NewGates(h, h, refreshed(t, h), discard)
	for range 1000 {
		g.NeedGate(o.ID, "missing")
	}
	if n := len(g.Requests()); n != 1 {
		t.Fatalf("%d requests, want 1", n)
	}
	if err := g.Serve(t.Context(), <-g.Requests()); err != nil {
		t.Error(err)
	}
	g.NeedGate(o.ID, "missing")
	if n := len(g.Requests()); n != 1 {
		t.Errorf("asked again after it was served: %d requests", n)
	}
	if g.Epoch(o.ID) != 1 {
		t.Errorf("epoch %d", g.Epoch(o.ID))
	}
}

// TestReplacementIsKept until it is done, however often Redis or the database fails meanwhile.
func TestReplacementIsKept(t *testing.T) {
	o := openOffer()
	h := newGatehouse(o)
	h.states[o.ID] = model.GateState{Exists: true, Open: true, Epoch: 1, Revision: o.Revision}
	g := NewGates(h, h, refreshed(t, h), discard)
	for range 1000 {
		g.ReplaceGate(o.ID, 1, "wrong")
	}
	for _, failing := range []string{"peek", "contents", ""} {
		h.failing = failing
		if err := g.Ensure(t.Context()); (err != nil) != (failing != "") {
			t.Errorf("failing %q: %v", failing, err)
		}
	}
	installed := func() (n int) {
		for _, s := range h.steps {
			if strings.HasSuffix(s, ": wrong") {
				n++
			}
		}
		return n
	}
	if err := g.Ensure(t.Context()); err != nil || installed() != 1 {
		t.Errorf("%v; the steps are %q", err, h.steps)
	}
}

// TestRequestsNeverBlock: more ask than anybody serves.
func TestRequestsNeverBlock(t *testing.T) {
	h := newGatehouse(openOffer())
	g := NewGates(h, h, refreshed(t, h), discard)
	for i := range 2 * gateRequests {
		g.NeedGate(fmt.Sprint("SALE-", i), "missing")
	}
	if n := len(g.Requests()); n != gateRequests {
		t.Errorf("%d requests wait, want %d", n, gateRequests)
	}
	<-g.Requests()
	g.NeedGate(fmt.Sprint("SALE-", 2*gateRequests-1), "missing") // what found no room was not marked as asked
	if n := len(g.Requests()); n != gateRequests {
		t.Errorf("%d requests wait, want %d", n, gateRequests)
	}
}

// TestEnsure looks at every sale that has not ended, and one that fails keeps no other from its gate.
func TestEnsure(t *testing.T) {
	fine, missing, older, closed, ended, broken := openOffer(), openOffer(), openOffer(), openOffer(), openOffer(), openOffer()
	older.Stock.Epoch = 5
	ended.EndsAt = time.Now().Add(-time.Minute)
	h := newGatehouse(fine, missing, older, closed, ended, broken)
	for i := range h.offers {
		h.offers[i].Revision = 0 // no change that a gate could have missed
	}
	catalog := refreshed(t, h)
	h.states[fine.ID] = model.GateState{Exists: true, Open: true, Epoch: 1}
	h.states[older.ID] = model.GateState{Exists: true, Open: true, Epoch: 4}
	h.states[closed.ID] = model.GateState{Exists: true, Epoch: 1}
	h.failing = "install 2"
	h.offers = slices.DeleteFunc(h.offers, func(o model.Offer) bool { return o.ID == broken.ID }) // gone meanwhile
	g := NewGates(h, h, catalog, discard)
	g.atOnce = 1 // the fake notes steps in their order
	if err := g.Ensure(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("%v", err)
	}
	var reasons []string
	for _, s := range h.steps {
		if _, reason, ok := strings.Cut(s, ": "); ok {
			reasons = append(reasons, reason)
		}
	}
	if !slices.Equal(reasons, []string{"of an older epoch"}) || h.states[older.ID].Epoch != 6 {
		t.Errorf("installed %q", reasons)
	}
	h.failing, h.steps = "", nil
	delete(h.states, missing.ID)
	h.states[closed.ID] = model.GateState{Exists: true, Epoch: 1}
	if err := g.Ensure(t.Context()); err != nil {
		t.Error(err)
	}
	for _, o := range []model.Offer{fine, missing, older, closed} {
		if !h.states[o.ID].Open {
			t.Errorf("the gate is %+v", h.states[o.ID])
		}
	}
	if _, there := h.states[ended.ID]; there {
		t.Error("a sale that has ended got a gate")
	}
	h.failing = "peek"
	if err := g.Ensure(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("without Redis: %v", err)
	}
	empty := newGatehouse()
	empty.failing = "peek"
	if err := NewGates(empty, empty, refreshed(t, empty), discard).Ensure(t.Context()); err != nil {
		t.Errorf("without a sale: %v", err)
	}
}

// A sale whose Redis doesn't answer is left alone, whatever was asked for, and the others are looked after.
func TestEnsureLeavesWhatIsAway(t *testing.T) {
	away, closed := openOffer(), openOffer()
	h := newGatehouse(away, closed)
	h.states[away.ID] = model.GateState{Away: true}
	g := NewGates(h, h, refreshed(t, h), discard)
	g.ReplaceGate(away.ID, 1, "it drifted")
	if err := g.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !h.states[closed.ID].Open || h.states[away.ID] != (model.GateState{Away: true}) {
		t.Errorf("the gates are %+v", h.states)
	}
	h.states[away.ID] = model.GateState{Exists: true, Open: true, Epoch: 1}
	h.steps = nil
	if err := g.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(h.steps, func(s string) bool { return strings.HasSuffix(s, away.ID+" epoch 2: it drifted") }) {
		t.Errorf("when it is back: %q", h.steps)
	}
}

// TestEnsureTellsGates what the database changed without them, whoever did so, and replaces those that a settle found
// wrong. What a gate knows is forgotten at the next look, once.
func TestEnsureTellsGates(t *testing.T) {
	behind, wrong, fine := openOffer(), openOffer(), openOffer()
	wrong.Stock.Epoch, wrong.Stock.WrongEpoch = 2, 2
	h := newGatehouse(behind, wrong, fine)
	h.record(behind.ID, 5)
	h.record(behind.ID, 6)
	for _, o := range h.offers {
		h.states[o.ID] = model.GateState{Exists: true, Open: true, Epoch: o.Stock.Epoch, Revision: o.Revision, Version: 4}
	}
	g := NewGates(h, h, refreshed(t, h), discard)
	if err := g.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.states[behind.ID]; s.Version != 6 || s.Left != 2 || s.Epoch != 1 {
		t.Errorf("the gate that was behind is %+v", s)
	}
	if s := h.states[wrong.ID]; s.Epoch != 3 {
		t.Errorf("the gate that was wrong is %+v", s)
	}
	h.steps = nil
	for range 3 {
		if err := g.catalog.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(h.steps, []string{"forget 6"}) || len(h.changes[behind.ID]) > 0 {
		t.Errorf("afterwards: %q, %v", h.steps, h.changes)
	}
}

// TestChangedTellsTheGate at once. If it can't be told, the next look does it; in either case a sale that was latched as
// sold out is looked at again.
func TestChangedTellsTheGate(t *testing.T) {
	for name, tc := range map[string]struct {
		state   model.GateState
		failing string
		told    bool
	}{
		"an open gate":      {state: model.GateState{Exists: true, Open: true, Version: 4}, told: true},
		"no gate":           {},
		"its Redis is away": {state: model.GateState{Away: true}},
		"no Redis":          {state: model.GateState{Exists: true, Open: true, Version: 4}, failing: "peek"},
		"no database":       {state: model.GateState{Exists: true, Open: true, Version: 4}, failing: "changes"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGatehouse(openOffer())
			id := h.offers[0].ID
			h.record(id, 5)
			h.states[id], h.failing = tc.state, tc.failing
			g := NewGates(h, h, refreshed(t, h), discard)
			g.catalog.Latch(id)
			g.Changed(t.Context(), id)
			if told := h.states[id].Version == 5; told != tc.told || g.catalog.Latched(id) {
				t.Errorf("told %t, latched %t", told, g.catalog.Latched(id))
			}
		})
	}
}

// realStores are a database and a gate over a Redis.
type realStores struct {
	*testing.T
	db      *repository.Store
	gate    *gate.Gate
	catalog *Catalog
	gates   *Gates
}

func eachPair(t *testing.T, run func(s realStores)) {
	t.Helper()
	start := func(t *testing.T, database, url string) realStores {
		t.Helper()
		db, err := repository.Open(t.Context(), database, 8)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if err := db.MigrateUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		opts, err := gate.Options(url)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		s := realStores{T: t, db: db, catalog: NewCatalog(db, time.Now)}
		s.gate = gate.New(client, "here", func(ctx context.Context, saleID string) (int, error) {
			offer, _, err := s.catalog.Sale(ctx, saleID)
			return offer.Parts, err
		})
		s.gates = NewGates(db, s.gate, s.catalog, discard)
		return s
	}
	t.Run("SQLite and embedded Redis", func(t *testing.T) {
		server, err := embedded.StartRedis()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		run(start(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"), server.URL()))
	})
	t.Run("MariaDB and redis-server", func(t *testing.T) {
		run(start(t, kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t).URL()))
	})
}

// sale opens a sale with its gate.
func (s realStores) sale(quota int64) model.Offer { return s.saleIn(1, quota) }

// saleIn opens a sale with its gate in parts.
func (s realStores) saleIn(parts int, quota int64) model.Offer {
	s.Helper()
	o := openOffer()
	o.Parts = parts
	if err := s.db.CreateSale(s.Context(), o.Sale, quota, "tester"); err != nil {
		s.Fatal(err)
	}
	if err := s.catalog.Refresh(s.Context()); err != nil {
		s.Fatal(err)
	}
	if err := s.gates.Preheat(s.Context(), o.ID); err != nil {
		s.Fatal(err)
	}
	return o
}

// TestChangeThatNobodyToldTheGate: an instance committed an operator's change and died before it told the gate.
// The next look at the gates brings it there, or a paused sale would sell on.
func TestChangeThatNobodyToldTheGate(t *testing.T) {
	eachPair(t, func(s realStores) {
		o := s.sale(10)
		_, verdict, err := s.db.ChangeSale(s.Context(), model.SaleChange{
			SaleID: o.ID, Actor: "tester", Action: "pause",
			Edit: func(sale *model.Sale) model.Verdict { sale.Status = model.SalePaused; return model.Accepted },
		})
		if verdict != model.Accepted || err != nil {
			s.Fatal(verdict, err)
		}
		if err := s.catalog.Refresh(s.Context()); err != nil {
			s.Fatal(err)
		}
		// A new gate may have to wait until the last one is a second old.
		deadline, ticker := time.After(patience), time.NewTicker(20*time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			if err := s.gates.Ensure(s.Context()); err != nil {
				s.Fatal(err)
			}
			user := fmt.Sprint("u-", i)
			a := model.Attempt{
				ID: purchaseIDs.Derive(user, o.ID, "key"), SaleID: o.ID, UserID: user, Quantity: 1,
				RequestKey: "key", RequestHash: model.HashRequest(1),
			}
			if got, err := admitOne(s.Context(), s.gate, a, 0); err == nil && got.Verdict == model.Paused {
				return
			}
			select {
			case <-ticker.C:
			case <-deadline:
				s.Fatalf("the gate of a paused sale admits still, after %d looks", i)
			}
		}
	})
}

// A rebuild of a gate in parts finds what was sold and what is on its way, and gives all of a user to the user's part.
func TestRebuildInParts(t *testing.T) {
	eachPair(t, func(s realStores) {
		const buyers = 30
		o := s.saleIn(4, 100)
		attempts := make([]model.Attempt, buyers)
		for i := range attempts {
			user := fmt.Sprint("u-", i)
			attempts[i] = model.Attempt{
				ID: purchaseIDs.Derive(user, o.ID, "key"), SaleID: o.ID, UserID: user, Quantity: 1 + i%2,
				RequestKey: "key", RequestHash: model.HashRequest(1 + i%2),
			}
		}
		if _, err := s.gate.Admit(s.Context(), o.ID, attempts, 0); err != nil {
			s.Fatal(err)
		}
		entries, _, err := s.gate.Read(s.Context(), o.ID, buyers)
		if err != nil || len(entries) == 0 {
			s.Fatal(entries, err)
		}
		settled := entries[:len(entries)/2] // in the database, and nobody told the gate
		if _, err := s.db.Settle(s.Context(), o.ID, settled); err != nil {
			s.Fatal(err)
		}
		pending, before := 0, s.look(o)
		for _, e := range settled {
			pending -= e.Quantity
		}
		for _, a := range attempts {
			pending += a.Quantity
		}
		s.replaced(o, before.Epoch)
		after := s.look(o)
		if after.Left != 100-45 || after.Inflight != int64(pending) || after.Stream != int64(buyers-len(settled)) {
			s.Errorf("the gate was %+v and is %+v; %d units are on their way", before, after, pending)
		}
		for _, a := range attempts {
			units, err := s.gate.Units(s.Context(), o.ID, []string{a.UserID})
			if err != nil || units[0] != a.Quantity {
				s.Errorf("%s has %d units at the gate, bought %d; %v", a.UserID, units, a.Quantity, err)
			}
			if request, known, err := s.gate.Knows(s.Context(), a.ID); !known || err != nil || request.Quantity != a.Quantity {
				s.Errorf("the gate knows of %s: %+v, %t, %v", a.UserID, request, known, err)
			}
			if got, err := admitOne(s.Context(), s.gate, a, 0); err != nil || got != (model.Outcome{Verdict: model.Accepted, Repeated: true}) {
				s.Errorf("again, %s: %+v, %v", a.UserID, got, err)
			}
		}
	})
}

func (s realStores) look(o model.Offer) model.GateState {
	s.Helper()
	states, err := s.gate.Peek(s.Context(), o.ID)
	if err != nil {
		s.Fatal(err)
	}
	return states[0]
}

// replaced has the gate of an epoch replaced, which may have to wait until it is a second old.
func (s realStores) replaced(o model.Offer, epoch int64) {
	s.Helper()
	deadline, ticker := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer ticker.Stop()
	for {
		s.gates.ReplaceGate(o.ID, epoch, "a test")
		if err := s.gates.Ensure(s.Context()); err != nil {
			s.Fatal(err)
		}
		if state := s.look(o); state.Open && state.Epoch > epoch {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			s.Fatal("the gate is not replaced")
		}
	}
}

// admitOne admits an attempt by itself.
func admitOne(ctx context.Context, g *gate.Gate, a model.Attempt, epoch int64) (model.Outcome, error) {
	outcomes, err := g.Admit(ctx, a.SaleID, []model.Attempt{a}, epoch)
	if err != nil {
		return model.Outcome{}, err
	}
	if outcomes[0].Verdict == model.NoGate {
		return model.Outcome{}, model.ErrNoGate
	}
	return outcomes[0], nil
}
