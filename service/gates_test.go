package service

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// Every course of a rebuild of a gate whose sale is at epoch 3.
func TestRebuild(t *testing.T) {
	steps := func(epoch int) []string {
		return []string{
			"epoch", fmt.Sprint("close for ", epoch), "measure", "contents", fmt.Sprint("install ", epoch), "end",
			fmt.Sprintf("log engine install_gate SALE epoch %d: a test", epoch),
		}
	}
	whole := steps(4)
	type test struct {
		state   model.GateState
		replace int64 // gates up to this epoch
		retired bool
		change  func(h *gatehouse)
		steps   []string
		err     error
	}
	closed := model.GateState{Exists: true, Epoch: 3}
	failing := func(step string) func(*gatehouse) { return func(h *gatehouse) { h.failing = step } }
	lost := func(h *gatehouse) { h.lost = true }
	check.Each(t, map[string]test{
		"no gate":                  {steps: whole},
		"an open gate":             {state: openGate(3, 0)},
		"an open gate, to replace": {state: openGate(3, 0), replace: 3, steps: whole},
		"replaced meanwhile":       {state: openGate(3, 0), replace: 2},
		"an older gate":            {state: openGate(2, 0), steps: whole},
		"a closed gate":            {state: closed, steps: whole},
		"a newer gate than known":  {state: openGate(9, 0), replace: 9, steps: steps(10)},
		"another caller wins":      {change: lost, steps: whole[:1]},
		"overtaken at the close":   {change: func(h *gatehouse) { h.newer = true }, steps: whole[:2]},
		"entries that can't be read": {
			change: func(h *gatehouse) { h.bad = []string{"1-1 x", "1-2 y"} },
			steps:  slices.Insert(steps(4), 5, "log engine delete_entry SALE 1-1 x", "log engine delete_entry SALE 1-2 y"),
		},
		"an entry that can't be read, and no install": {
			change: func(h *gatehouse) { h.bad, h.failing = []string{"1-1 x"}, "install 4" }, err: errAway,
			steps: slices.Concat(whole[:5], []string{"log engine delete_entry SALE 1-1 x", "end"}),
		},
		"the database sells meanwhile": {
			change: func(h *gatehouse) { h.record(h.offers[0].ID, 7); h.record(h.offers[0].ID, 8) },
			steps:  slices.Insert(steps(4), 6, "changes", "tell 1 to 7", "changes", "tell 7 to 8"),
		},
		"the stream moves often": {
			change: func(h *gatehouse) { h.moves = 50 },
			steps:  slices.Concat(whole[:2], slices.Repeat([]string{"measure", "contents", "moved", "end"}, 50), whole[2:]),
		},
		"no Redis":              {change: failing("peek"), err: errAway},
		"no epoch":              {change: failing("epoch"), steps: whole[:1], err: errAway},
		"no close":              {change: failing("close for 4"), steps: whole[:2], err: errAway},
		"no stream":             {change: failing("measure"), steps: whole[:3], err: errAway},
		"no contents":           {change: failing("contents"), steps: whole[:4], err: errAway},
		"no install":            {change: failing("install 4"), steps: whole[:6], err: errAway},
		"no sale":               {change: func(h *gatehouse) { h.offers = nil }},
		"no sale any longer":    {change: func(h *gatehouse) { h.gone = true }, steps: whole[:4]},
		"retired, no gate":      {retired: true, replace: 3},
		"retired, a closed one": {retired: true, state: closed},
		"retired, an open one":  {retired: true, state: openGate(3, 0), steps: whole[:2]},
		"retired, and another caller wins": {
			retired: true, state: openGate(3, 0), change: lost, steps: whole[:1],
		},
	}, func(t *testing.T, tc test) {
		o := openOffer()
		o.Stock.Epoch = 3
		g, h := newGates(t, o)
		h.states[o.ID] = tc.state
		g.retired = tc.retired
		if tc.change != nil {
			tc.change(h)
		}
		check.Error(t, "rebuild", g.Serve(t.Context(), GateRequest{SaleID: o.ID, Reason: "a test", Epoch: tc.replace}), tc.err)
		var steps []string
		for _, step := range h.steps {
			steps = append(steps, strings.ReplaceAll(step, o.ID, "SALE"))
		}
		check.Same(t, "steps", steps, tc.steps)
		if len(steps) > 0 {
			check.Same(t, "pause between rebuilds", h.pause, rebuildPause)
		}
	})
}

// The rebuild of a large gate keeps other instances from starting a newer one, until the rebuild ends.
func TestHole53_LongRebuildIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newGatehouse(openOffer())
		h.renewed = make(chan int64)
		g := NewGates(h, slowGate{h, 10 * rebuildPause}, refreshed(t, h), false, discard)
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(t.Context(), GateRequest{SaleID: h.offers[0].ID}) }()
		for renewals, last := 0, time.Now(); ; renewals++ {
			select {
			case epoch := <-h.renewed:
				if epoch != 2 || time.Since(last) >= rebuildPause {
					t.Errorf("epoch %d is renewed after %s", epoch, time.Since(last))
				}
				last = time.Now()
				continue
			case err := <-ended:
				if err != nil || renewals < 10 {
					t.Errorf("%v after %d renewals", err, renewals)
				}
			}
			return
		}
	})
}

// slowGate takes a while to be installed.
type slowGate struct {
	*gatehouse
	time.Duration
}

func (g slowGate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	time.Sleep(g.Duration)
	return g.gatehouse.Install(ctx, epoch, lengths, c)
}

// A thousand attempts that meet a missing gate cause one request.
func TestRequestsAreAskedOnce(t *testing.T) {
	o := openOffer()
	g, _ := newGates(t, o)
	for range 1000 {
		g.NeedGate(o.ID)
	}
	check.Same(t, "requests", len(g.Requests()), 1)
	check.Done(g.Serve(t.Context(), <-g.Requests()))
	g.NeedGate(o.ID)
	check.Same(t, "requests after the first was served", len(g.Requests()), 1)
	check.Same(t, "epoch", g.catalog.Epoch(o.ID), 1)
}

// A replacement is done once, after all failures of Redis and the database.
func TestReplacementIsKept(t *testing.T) {
	o := openOffer()
	g, h := newGates(t, o)
	h.states[o.ID] = model.GateState{Exists: true, Open: true, Epoch: 1, Revision: o.Revision}
	for range 1000 {
		g.ReplaceGate(o.ID, 1, "wrong")
	}
	for _, failing := range []string{"peek", "contents", "", ""} {
		h.failing = failing
		if err := g.Ensure(t.Context()); (err != nil) != (failing != "") {
			t.Errorf("failing %q: %v", failing, err)
		}
	}
	check.Same(t, "installed for", h.installed(), []string{"wrong"})
}

// installed returns the reasons of the gates that were installed.
func (h *gatehouse) installed() (reasons []string) {
	for _, step := range h.steps {
		if _, reason, ok := strings.Cut(step, ": "); ok {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// Requests that find no room are dropped, and may be asked again.
func TestRequestsNeverBlock(t *testing.T) {
	g, _ := newGates(t, openOffer())
	for i := range 2 * gateRequests {
		g.NeedGate(fmt.Sprint("SALE-", i))
	}
	check.Same(t, "requests", len(g.Requests()), gateRequests)
	<-g.Requests()
	g.NeedGate(fmt.Sprint("SALE-", 2*gateRequests-1))
	check.Same(t, "requests", len(g.Requests()), gateRequests)
}

// Ensure checks every sale that has not ended. A sale that fails keeps no other from its gate.
func TestEnsure(t *testing.T) {
	fine, missing, older, closed, ended, broken := openOffer(), openOffer(), openOffer(), openOffer(), openOffer(), openOffer()
	older.Stock.Epoch = 5
	ended.EndsAt = time.Now().Add(-time.Minute)
	h := newGatehouse(fine, missing, older, closed, ended, broken)
	for i := range h.offers {
		h.offers[i].Revision = 0 // no change that a gate could have missed
	}
	g := NewGates(h, h, refreshed(t, h), false, discard)
	g.atOnce = 1 // the fake notes steps in their order
	h.states[fine.ID] = openGate(1, 0)
	h.states[older.ID] = openGate(4, 0)
	h.states[closed.ID] = model.GateState{Exists: true, Epoch: 1}
	h.failing = "install 2"
	h.offers = slices.DeleteFunc(h.offers, func(o model.Offer) bool { return o.ID == broken.ID }) // after the catalog has read it
	check.Error(t, "while some installs fail", g.Ensure(t.Context()), errAway)
	check.Same(t, "installed gates", h.installed(), []string{"old_epoch"})
	check.Same(t, "epoch of the gate that was older", h.states[older.ID].Epoch, 6)

	h.failing, h.steps = "", nil
	delete(h.states, missing.ID)
	h.states[closed.ID] = model.GateState{Exists: true, Epoch: 1}
	check.Done(g.Ensure(t.Context()))
	for name, o := range map[string]model.Offer{"fine": fine, "missing": missing, "older": older, "closed": closed} {
		check.Same(t, name+": open", h.states[o.ID].Open, true)
	}
	check.Same(t, "gate of a sale that has ended", h.states[ended.ID], model.GateState{})
	h.failing = "peek"
	check.Error(t, "without Redis", g.Ensure(t.Context()), errAway)
	empty, h := newGates(t)
	h.failing = "peek"
	check.Error(t, "without a sale", empty.Ensure(t.Context()), nil)
}

// A gate whose Redis does not answer is left alone, also if it is to be replaced, and the other gates are checked.
func TestEnsureLeavesWhatIsAway(t *testing.T) {
	away, closed := openOffer(), openOffer()
	g, h := newGates(t, away, closed)
	h.states[away.ID] = model.GateState{Away: true}
	g.ReplaceGate(away.ID, 1, "it drifted")
	check.Done(g.Ensure(t.Context()))
	check.Same(t, "the other gate is open", h.states[closed.ID].Open, true)
	check.Same(t, "the gate that is away", h.states[away.ID], model.GateState{Away: true})
	h.states[away.ID] = openGate(1, 0)
	h.steps = nil
	check.Done(g.Ensure(t.Context()))
	if !slices.ContainsFunc(h.steps, func(s string) bool { return strings.HasSuffix(s, away.ID+" epoch 2: it drifted") }) {
		t.Errorf("the steps when the gate is back are %q", h.steps)
	}
}

// Ensure applies to a gate the changes that the database made without it, replaces a gate that a settlement found wrong, and
// deletes once, at the next look, the changes that a gate has.
func TestEnsureTellsGates(t *testing.T) {
	behind, wrong, fine := openOffer(), openOffer(), openOffer()
	wrong.Stock.Epoch, wrong.Stock.WrongEpoch = 2, 2
	h := newGatehouse(behind, wrong, fine)
	h.record(behind.ID, 5)
	h.record(behind.ID, 6)
	for _, o := range h.offers {
		h.states[o.ID] = model.GateState{Exists: true, Open: true, Epoch: o.Stock.Epoch, Revision: o.Revision, Version: 4}
	}
	g := NewGates(h, h, refreshed(t, h), false, discard)
	check.Done(g.Ensure(t.Context()))
	want := model.GateState{Exists: true, Open: true, Epoch: 1, Revision: behind.Revision, Version: 6, Left: 2}
	check.Same(t, "the gate that was behind", h.states[behind.ID], want)
	check.Same(t, "epoch of the gate that was wrong", h.states[wrong.ID].Epoch, 3)
	h.steps = nil
	for range 3 {
		check.Done(g.catalog.Refresh(t.Context()))
		check.Done(g.Ensure(t.Context()))
	}
	check.Same(t, "later steps", h.steps, []string{"forget 6"})
	check.Same(t, "changes left", len(h.changes[behind.ID]), 0)
}

// A change reaches the gate at once, or at the next look. In either case the sale's latch is removed.
func TestChangedTellsTheGate(t *testing.T) {
	type test struct {
		state   model.GateState
		failing string
		told    bool
	}
	open := model.GateState{Exists: true, Open: true, Version: 4}
	check.Each(t, map[string]test{
		"an open gate":      {open, "", true},
		"no gate":           {model.GateState{}, "", false},
		"its Redis is away": {model.GateState{Away: true}, "", false},
		"no Redis":          {open, "peek", false},
		"no database":       {open, "changes", false},
	}, func(t *testing.T, tc test) {
		h := newGatehouse(openOffer())
		id := h.offers[0].ID
		h.record(id, 5)
		h.states[id], h.failing = tc.state, tc.failing
		g := NewGates(h, h, refreshed(t, h), false, discard)
		g.catalog.Latch(id)
		g.Changed(t.Context(), id)
		check.Same(t, "the gate is told", h.states[id].Version == 5, tc.told)
		check.Same(t, "latched", g.catalog.Latched(id), false)
	})
}

// The gate of a sale in line is closed for good, so nobody looks at it, whether its Redis answers or not.
func TestChangedLeavesALineAlone(t *testing.T) {
	h := newGatehouse(openOffer())
	h.offers[0].Stock.Lined, h.failing = model.InLine, "peek"
	log := &check.Log{}
	g := NewGates(h, h, refreshed(t, h), false, slog.New(log))
	g.Changed(t.Context(), h.offers[0].ID)
	check.Same(t, "lines in the log", log.Count(""), 0)
}

// realStores are a database and a gate in Redis.
type realStores struct {
	*testing.T
	db      *repository.Store
	gate    *gate.Gate
	catalog *Catalog
	gates   *Gates
}

func openStores(t *testing.T, stores kit.Stores) realStores {
	t.Helper()
	db := check.Must(repository.Open(t.Context(), stores.Database, 8))
	t.Cleanup(func() { _ = db.Close() })
	check.Done(db.MigrateUp(t.Context()))
	s := realStores{T: t, db: db, catalog: NewCatalog(db, time.Now)}
	s.gate = gate.New(kit.RedisClient(t, stores.Redis), "here")
	s.gates = NewGates(db, s.gate, s.catalog, false, discard)
	return s
}

// sale creates a sale with its gate in shards.
func (s realStores) sale(shards int, quota int64) model.Offer {
	o := openOffer()
	o.Shards = shards
	check.Done(s.db.CreateSale(s.Context(), o.Sale, quota, "tester"))
	check.Done(s.catalog.Refresh(s.Context()))
	check.Done(s.gates.Preheat(s.Context(), o.ID))
	return o
}

// ensureUntil checks the gates until a condition holds: a new gate may have to wait until the last one is a second old.
func (s realStores) ensureUntil(what string, holds func() bool) {
	s.Helper()
	check.Eventually(s, what, func() bool {
		check.Done(s.gates.Ensure(s.Context()))
		return holds()
	})
}

func attempt(o model.Offer, user string, quantity int) model.Attempt {
	return model.Attempt{
		ID: purchaseIDs.Derive(user, o.ID, "key"), SaleID: o.ID, UserID: user, Quantity: quantity,
		IdempotencyKey: "key", Shards: o.Shards,
	}
}

// An instance committed an operator's change and died before it told the gate. The next look at the gates applies the change.
func TestChangeThatNobodyToldTheGate(t *testing.T) {
	kit.EachStores(t, func(t *testing.T, stores kit.Stores) {
		s := openStores(t, stores)
		o := s.sale(1, 10)
		_, verdict, err := s.db.ChangeSale(s.Context(), model.SaleChange{
			SaleID: o.ID, Actor: "tester", Action: "pause",
			Edit: func(sale *model.Sale) model.Verdict { sale.Status = model.SalePaused; return model.Accepted },
		})
		check.Error(t, "pause", err, nil)
		check.Same(t, "pause", verdict, model.Accepted)
		check.Done(s.catalog.Refresh(s.Context()))
		tries := 0
		s.ensureUntil("the gate refuses as paused", func() bool {
			tries++
			return s.gate.Admit(s.Context(), []model.Attempt{attempt(o, fmt.Sprint("u-", tries), 1)})[0].Verdict == model.Paused
		})
	})
}

// A rebuild of a gate in shards finds what was sold and what is queued, and gives all units of a user to the user's shard.
func TestRebuildInParts(t *testing.T) {
	kit.EachStores(t, func(t *testing.T, stores kit.Stores) {
		s := openStores(t, stores)
		const buyers = 30
		o := s.sale(4, 100)
		attempts := make([]model.Attempt, buyers)
		pending := 0
		for i := range attempts {
			attempts[i] = attempt(o, fmt.Sprint("u-", i), 1+i%2)
			pending += attempts[i].Quantity
		}
		var settled []model.Entry // in the database, and nobody told the gate
		for i, answer := range s.gate.Admit(s.Context(), attempts) {
			check.NoError(t, answer.Err)
			if i%2 == 0 {
				settled = append(settled, *answer.Entry)
			}
		}
		check.Must(s.db.Settle(s.Context(), o.ID, settled))
		for _, e := range settled {
			pending -= e.Quantity
		}
		look := func() model.GateState { return check.Must(s.gate.Peek(s.Context(), o.GateRef()))[0] }
		before := look()
		s.gates.ReplaceGate(o.ID, before.Epoch, "a test")
		s.ensureUntil("the gate is replaced", func() bool { return look().Open && look().Epoch > before.Epoch })
		after := look()
		got, want := []int64{after.Left, after.Inflight, after.Stream}, []int64{100 - 45, int64(pending), int64(buyers - len(settled))}
		check.Same(t, "units left, units in flight, entries", got, want)
		for _, a := range attempts {
			check.Same(t, a.UserID+": units", check.Must(s.gate.Units(s.Context(), o.GateRef(), []string{a.UserID})), []int{a.Quantity})
			quantity, known, err := s.gate.Knows(s.Context(), o.GateRef(), a.UserID, a.ID)
			if !known || err != nil || quantity != a.Quantity {
				t.Errorf("%s: the gate knows %d units, %t, %v", a.UserID, quantity, known, err)
			}
			again := s.gate.Admit(s.Context(), []model.Attempt{a})
			check.Same(t, a.UserID+": again", again, []model.Admission{{Outcome: model.Outcome{Verdict: model.Accepted, Repeated: true}}})
		}
	})
}

// counted is a gate that notes where a request is counted.
type counted struct {
	*gatehouse
	gate model.GateRef
}

func (c *counted) Count(_ context.Context, gate model.GateRef, _ string, _ model.Frequency) (time.Duration, bool, error) {
	c.gate = gate
	return time.Second, false, nil
}

// A request is counted where the gate of its sale counts: with the sale's number of shards.
func TestCountKnowsTheShards(t *testing.T) {
	o := openOffer()
	o.Shards = 3
	h := newGatehouse(o)
	gate := &counted{gatehouse: h}
	g := NewGates(h, gate, refreshed(t, h), true, discard)
	for id, shards := range map[string]int{o.ID: 3, "NONE": 1} {
		retryAfter, ok, err := g.Count(t.Context(), id, "u-1", model.Frequency{Limit: 1, Window: time.Second})
		if ok || err != nil || retryAfter != time.Second {
			t.Errorf("%s: %t, %v, retry after %s", id, ok, err, retryAfter)
		}
		check.Same(t, "the gate of "+id, gate.gate, model.GateRef{SaleID: id, Shards: shards})
	}
}
