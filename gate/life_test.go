package gate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

func TestPeek(t *testing.T) {
	eachRedis(t, func(b *bench) {
		first, second := b.open(offer()), b.open(offer())
		b.admit(attempt(second, "u-1", 2))
		states, err := b.gate.Peek(b.Context(), first.ID, model.NewSaleID(), second.ID)
		if err != nil {
			b.Fatal(err)
		}
		want := []model.GateState{
			{Exists: true, Open: true, Epoch: 1, Left: 10},
			{},
			{Exists: true, Open: true, Epoch: 1, Left: 8, Inflight: 2, Stream: 1},
		}
		for i := range want {
			if core(states[i]) != want[i] {
				b.Errorf("gate %d is %+v, want %+v", i, states[i], want[i])
			}
		}
	})
}

func TestInstallSetsEverything(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		c := contents(o)
		const users = 7 // more than a page
		for i := range users {
			c.Units[fmt.Sprint("u-", i)] = 1
		}
		known := attempt(o, "u-1", 1)
		c.Requests[known.ID] = model.Request{Quantity: 1, Hash: known.RequestHash}
		if err := install(b.gate, 3, c); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 3, Left: 10})
		if got := len(b.units(o)); got != users {
			b.Errorf("%d users, want %d", got, users)
		}
		if got, err := admitOne(b.Context(), b.gate, known, 3); err != nil || got != (model.Outcome{Verdict: model.Accepted, Repeated: true}) {
			b.Errorf("a known id: %+v, %v", got, err)
		}
		if got, err := admitOne(b.Context(), b.gate, attempt(o, "u-2", 2), 3); err != nil || got.Verdict != model.LimitReached {
			b.Errorf("a user over the limit: %+v, %v", got, err)
		}
		for _, key := range must(b, b.client.Keys(b.Context(), "*")) {
			if strings.Contains(key, ":staged-") {
				b.Errorf("%s is left over", key)
			}
			b.ends(key, o)
		}
		if n := must(b, b.client.Exists(b.Context(), gateKey(o.ID), unitsKey(o.ID), idsKey(o.ID), streamKey(o.ID))); n != 4 {
			b.Errorf("%d keys of 4", n)
		}
	})
}

// TestEveryKeyOfASaleEnds uses every door to a sale's keys and looks for one that would stay for ever.
func TestEveryKeyOfASaleEnds(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		a := attempt(o, "u-1", 1)
		a.Frequency = model.Frequency{Limit: 5, Window: time.Minute}
		b.admit(a)
		b.settled(o, b.read(b.gate, o.ID), model.Outcome{Verdict: model.Accepted})
		b.told(o, model.GateChange{Version: 6, OrderID: a.ID, UserID: "u-1", Units: 1})
		b.admit(attempt(o, "u-2", 1)) // the hash of units had been emptied
		keys := must(b, b.client.Keys(ctx, "*"))
		if len(keys) != 5 {
			b.Errorf("the keys are %v", keys)
		}
		for _, key := range keys {
			if ttl := must(b, b.client.PTTL(ctx, key)); ttl <= 0 {
				b.Errorf("%s never ends", key)
			}
		}
	})
}

// TestKeysEndAlsoWhenTheyCameLater: the first unit and the first id come after an install that knew of none.
func TestKeysEndAlsoWhenTheyCameLater(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		b.admit(attempt(o, "u-1", 1))
		for _, key := range []string{unitsKey(o.ID), idsKey(o.ID)} {
			b.ends(key, o)
		}
	})
}

func TestInstallOnlyOverAnOlderGate(t *testing.T) {
	tests := map[string]struct {
		epoch int64
		want  error
	}{
		"older":    {4, model.ErrNewerGate},
		"the same": {5, model.ErrNewerGate},
		"newer":    {6, nil},
		"far":      {600, nil},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := offer()
			if err := install(b.gate, 5, contents(o)); err != nil {
				b.Fatal(err)
			}
			c := contents(o)
			c.Of.Stock.Available, c.Units["u-1"] = 7, 1
			before := b.gateOf(o)
			err := install(b.gate, tc.epoch, c)
			if !errors.Is(err, tc.want) {
				b.Errorf("%s: %v, want %v", name, err, tc.want)
			}
			if tc.want != nil {
				if after := b.gateOf(o); after != before {
					b.Errorf("%s: the gate was %s and is %s", name, before, after)
				}
				continue
			}
			b.want(o, model.GateState{Exists: true, Open: true, Epoch: tc.epoch, Left: 7})
			b.wantUnits(o, map[string]string{"u-1": "1"})
		}
	})
}

// gateOf is a sale's gate and units in words.
func (b *bench) gateOf(o model.Offer) string {
	b.Helper()
	return fmt.Sprint(must(b, b.client.HGetAll(b.Context(), gateKey(o.ID))), b.units(o))
}

// TestInstallLeavesNothingOfTheOldGate: what an older gate counted and the database doesn't is forgotten.
func TestInstallLeavesNothingOfTheOldGate(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		a := attempt(o, "u-1", 2)
		b.admit(a)
		b.settled(o, b.read(b.gate, o.ID), model.Outcome{Verdict: model.Accepted})
		release := model.GateChange{Version: 9, OrderID: "some", UserID: "u-1", Units: 1}
		b.told(o, release)
		if err := install(b.gate, 2, contents(o)); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 10})
		b.wantUnits(o, map[string]string{})
		if _, known, err := b.gate.Knows(ctx, a.ID); known || err != nil {
			b.Errorf("the id is known: %t, %v", known, err)
		}
		// The changes done to the old gate may come again to the new one, which does not have them.
		b.told(o, release)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 11})
	})
}

// TestInstallKeepsTheStream rebuilds over a stream of which the database knows some entries and not others.
func TestInstallKeepsTheStream(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		made, pending := attempt(o, "u-1", 2), attempt(o, "u-2", 1)
		b.admit(made)
		b.admit(pending)
		b.read(b.instance("dead"), o.ID) // it committed the first one, and died before it said so
		entries := b.entries(o)

		c := contents(o)
		c.Of.Stock.Available, c.Of.Stock.Held, c.Of.Stock.Version = 8, 2, 6
		c.Units["u-1"] = 2
		c.Requests[made.ID] = model.Request{Quantity: 2, Hash: made.RequestHash}
		if err := install(b.gate, 2, c); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7, Inflight: 1, Stream: 1})
		b.wantUnits(o, map[string]string{"u-1": "2", "u-2": "1"})
		for _, a := range []model.Attempt{made, pending} {
			if got, err := admitOne(ctx, b.gate, a, 2); err != nil || !got.Repeated {
				b.Errorf("an attempt that was admitted: %+v, %v", got, err)
			}
		}
		claimed, _, err := b.gate.Claim(ctx, o.ID, 0, 10)
		if err != nil || len(claimed) != 1 || claimed[0].Attempt != pending {
			b.Fatalf("claimed %v, %v, want the pending one", claimed, err)
		}
		// The late acknowledgement of the dead one's commit meets an entry that is gone.
		b.settled(o, entries[:1], model.Outcome{Verdict: model.Accepted})
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7, Inflight: 1, Stream: 1})
		b.settled(o, claimed, model.Outcome{Verdict: model.Accepted})
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7})
	})
}

// TestInstallRefusesAMovedStream: an entry was settled after the stream was read, so what the database was asked
// about it is old.
func TestInstallRefusesAMovedStream(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		b.admit(attempt(o, "u-1", 1))
		b.admit(attempt(o, "u-2", 1))
		if ok, err := b.gate.Close(ctx, o.ID, 2); !ok || err != nil {
			b.Fatal(ok, err)
		}
		lengths, err := b.gate.StreamLengths(ctx, o.ID)
		if err != nil {
			b.Fatal(err)
		}
		b.settled(o, b.read(b.gate, o.ID)[:1], model.Outcome{Verdict: model.Accepted})
		before := b.gateOf(o)
		c := contents(o)
		if _, err := b.gate.Install(ctx, 2, lengths, c); !errors.Is(err, model.ErrStreamMoved) {
			b.Errorf("%v, want ErrStreamMoved", err)
		}
		if after := b.gateOf(o); after != before {
			b.Errorf("the gate was %s and is %s", before, after)
		}
		if keys := must(b, b.client.Keys(ctx, "*:staged-*")); len(keys) > 0 {
			b.Errorf("staged in vain, and left over: %v", keys)
		}

		c = contents(o)
		c.Of.Stock.Available = 9
		c.Units["u-1"] = 1
		if err := install(b.gate, 2, c); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 8, Inflight: 1, Stream: 1})
		b.wantUnits(o, map[string]string{"u-1": "1", "u-2": "1"})
	})
}

// TestInstallOfWhatHasEnded: what was staged has ended while the rest was gathered, so it is not whole.
func TestInstallOfWhatHasEnded(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		for _, staged := range []func(string) string{unitsKey, idsKey} {
			c := vanishing{contents(o), func() {
				for _, key := range must(b, b.client.Keys(b.Context(), staged(o.ID)+":*")) {
					must(b, b.client.Del(b.Context(), key))
				}
			}}
			c.Units["u-1"], c.Requests["known"] = 1, model.Request{Quantity: 1}
			if _, err := b.gate.Install(b.Context(), 1, []int64{0}, c); !errors.Is(err, model.ErrStreamMoved) {
				b.Errorf("%v, want ErrStreamMoved", err)
			}
			b.want(o, model.GateState{})
		}
	})
}

// vanishing contents call vanish when the buyers are staged and the known attempts are not.
type vanishing struct {
	kit.Contents
	vanish func()
}

func (v vanishing) Known(ctx context.Context) iter.Seq2[[]model.Known, error] {
	v.vanish()
	return v.Contents.Known(ctx)
}

// TestGateSaysLessThanNothing: more is in the stream than the database has, since the database sold meanwhile.
func TestGateSaysLessThanNothing(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		b.admit(attempt(o, "u-1", 2))
		c := contents(o)
		c.Of.Stock.Available = 1
		if err := install(b.gate, 2, c); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: -1, Inflight: 2, Stream: 1})
		if got, err := admitOne(ctx, b.gate, attempt(o, "u-2", 1), 2); err != nil || got.Verdict != model.SoldOut {
			b.Errorf("%+v, %v", got, err)
		}
	})
}

// TestClose says it twice each time, as the client does when a reply was lost.
func TestClose(t *testing.T) {
	tests := map[string]struct {
		epoch int64
		ok    bool
	}{
		"for an older gate": {4, false},
		"for its own epoch": {5, false},
		"for a newer gate":  {6, true},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := offer()
			if err := install(b.gate, 5, contents(o)); err != nil {
				b.Fatal(err)
			}
			for _, time := range []string{"once", "twice"} {
				if ok, err := b.gate.Close(b.Context(), o.ID, tc.epoch); ok != tc.ok || err != nil {
					b.Errorf("%s, %s: %t, %v, want %t", name, time, ok, err, tc.ok)
				}
			}
			if state := b.peek(o.ID); state.Open == tc.ok || !state.Exists || state.Epoch != 5 {
				b.Errorf("%s: the gate is %+v", name, state)
			}
			_, err := admitOne(b.Context(), b.gate, attempt(o, "u-1", 1), 5)
			if errors.Is(err, model.ErrNoGate) != tc.ok {
				b.Errorf("%s: admit says %v", name, err)
			}
		}
	})
}

// TestCloseOfNoGate leaves a mark that keeps older rebuilds out, counts as no gate, and ends by itself.
func TestCloseOfNoGate(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := offer()
		if ok, err := b.gate.Close(ctx, o.ID, 5); !ok || err != nil {
			b.Fatal(ok, err)
		}
		b.want(o, model.GateState{})
		if ttl := must(b, b.client.PTTL(ctx, gateKey(o.ID))); ttl <= 0 || ttl > time.Minute {
			b.Errorf("the mark ends in %s", ttl)
		}
		if _, err := admitOne(ctx, b.gate, attempt(o, "u-1", 1), 0); !errors.Is(err, model.ErrNoGate) {
			b.Errorf("admit: %v", err)
		}
		if err := b.gate.Configure(ctx, o.Sale); err != nil {
			b.Error(err)
		}
		b.told(o, model.GateChange{Version: 6, OrderID: "a", UserID: "u-1", Units: 1})
		b.settled(o, []model.Entry{{Attempt: attempt(o, "u-1", 1), StreamID: "1-1"}}, model.Outcome{Verdict: model.LimitReached})
		b.want(o, model.GateState{})
		b.wantUnits(o, map[string]string{})
		if ok, err := b.gate.Close(ctx, o.ID, 4); ok || err != nil {
			b.Errorf("an older rebuild: %t, %v", ok, err)
		}
		if err := install(b.gate, 4, contents(o)); !errors.Is(err, model.ErrNewerGate) {
			b.Errorf("an older install: %v", err)
		}
		if err := install(b.gate, 5, contents(o)); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 5, Left: 10})
		b.ends(gateKey(o.ID), o)
	})
}

// TestOvertakenRebuild: a rebuild was slow, and a newer one has closed the gate meanwhile; neither order of their
// last steps may leave the older gate.
func TestOvertakenRebuild(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		for _, epoch := range []int64{2, 3} {
			if ok, err := b.gate.Close(ctx, o.ID, epoch); !ok || err != nil {
				b.Fatal(epoch, ok, err)
			}
		}
		old, fresh := contents(o), contents(o)
		old.Of.Stock.Available, fresh.Of.Stock.Available = 9, 7
		if err := install(b.gate, 2, old); !errors.Is(err, model.ErrNewerGate) {
			b.Errorf("before the newer one: %v", err)
		}
		if state := b.peek(o.ID); state.Open {
			b.Errorf("the overtaken rebuild opened %+v", state)
		}
		if err := install(b.gate, 3, fresh); err != nil {
			b.Fatal(err)
		}
		if err := install(b.gate, 2, old); !errors.Is(err, model.ErrNewerGate) {
			b.Errorf("after the newer one: %v", err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 3, Left: 7})
	})
}

func TestConfigureByRevision(t *testing.T) {
	tests := map[string]struct {
		revision int64
		changes  bool
	}{
		"an older change":   {4, false},
		"a change it knows": {5, false},
		"a newer change":    {6, true},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := offer()
			o.Revision = 5
			b.open(o)
			b.admit(attempt(o, "u-1", 1))
			changed := o
			changed.Revision, changed.Status = tc.revision, model.SalePaused
			changed.EndsAt = o.EndsAt.Add(3 * time.Hour)
			for range 2 {
				if err := b.gate.Configure(b.Context(), changed.Sale); err != nil {
					b.Fatal(err)
				}
			}
			want, ends := model.Accepted, o
			if tc.changes {
				want, ends = model.Paused, changed
			}
			for _, key := range []string{gateKey(o.ID), unitsKey(o.ID), idsKey(o.ID), streamKey(o.ID)} {
				b.ends(key, ends)
			}
			if got, err := admitOne(b.Context(), b.gate, attempt(o, "u-2", 1), 1); err != nil || got.Verdict != want {
				b.Errorf("%s: %+v, %v, want %s", name, got, err, want)
			}
		}
		b.unchanged(func() {
			if err := b.gate.Configure(b.Context(), offer().Sale); err != nil {
				b.Errorf("no gate: %v", err)
			}
		})
	})
}

func TestConfigureChangesTheRules(t *testing.T) {
	hour := time.Hour
	tests := map[string]struct {
		change func(*model.Sale)
		want   model.Verdict
	}{
		"closed":        {func(s *model.Sale) { s.Status = model.SaleClosed }, model.Ended},
		"put off":       {func(s *model.Sale) { s.StartsAt = time.Now().Add(hour); s.EndsAt = time.Now().Add(2 * hour) }, model.NotStarted},
		"cut short":     {func(s *model.Sale) { s.EndsAt = time.Now().Add(-time.Minute) }, model.Ended},
		"lower limit":   {func(s *model.Sale) { s.LimitPerUser = 1 }, model.BadRequest},
		"nothing of it": {func(*model.Sale) {}, model.Accepted},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := b.open(offer())
			sale := o.Sale
			sale.Revision++
			tc.change(&sale)
			if err := b.gate.Configure(b.Context(), sale); err != nil {
				b.Fatal(err)
			}
			if got, err := admitOne(b.Context(), b.gate, attempt(o, "u-1", 2), 1); err != nil || got.Verdict != tc.want {
				b.Errorf("%s: %+v, %v, want %s", name, got, err, tc.want)
			}
		}
	})
}

// TestCatchUp: the gate was installed with the stock's version 5, and admitted two units of u-1 under the id "known".
func TestCatchUp(t *testing.T) {
	one := func(version int64, user string, units int64) model.GateChange {
		return model.GateChange{Version: version, OrderID: "a", UserID: user, Units: units}
	}
	sold := func(id string) model.GateChange {
		return model.GateChange{Version: 6, OrderID: id, UserID: "u-2", Units: -1, RequestHash: "hash"}
	}
	tests := map[string]struct {
		after, upTo int64
		changes     []model.GateChange
		left        int64
		units       map[string]string
		version     int64
	}{
		"nothing":                    {5, 6, nil, 8, map[string]string{"u-1": "2"}, 6},
		"before the install":         {3, 4, []model.GateChange{one(4, "u-1", 1)}, 8, map[string]string{"u-1": "2"}, 5},
		"with the install":           {4, 5, []model.GateChange{one(5, "u-1", 1)}, 8, map[string]string{"u-1": "2"}, 5},
		"after the install":          {5, 6, []model.GateChange{one(6, "u-1", 1)}, 9, map[string]string{"u-1": "1"}, 6},
		"partly known":               {3, 7, []model.GateChange{one(4, "u-1", 1), one(7, "u-1", 1)}, 9, map[string]string{"u-1": "1"}, 7},
		"behind what it lacks":       {6, 7, []model.GateChange{one(7, "u-1", 1)}, 8, map[string]string{"u-1": "2"}, 5},
		"all of a user's":            {5, 6, []model.GateChange{one(6, "u-1", 2)}, 10, map[string]string{}, 6},
		"of a user whom it forgot":   {5, 6, []model.GateChange{one(6, "u-9", 1)}, 9, map[string]string{"u-1": "2"}, 6},
		"an added quota":             {5, 6, []model.GateChange{{Version: 6, Units: 5}}, 13, map[string]string{"u-1": "2"}, 6},
		"taken again by a payment":   {5, 6, []model.GateChange{one(6, "u-1", -1)}, 7, map[string]string{"u-1": "3"}, 6},
		"given back and taken again": {5, 7, []model.GateChange{one(6, "u-1", 2), one(7, "u-1", -2)}, 8, map[string]string{"u-1": "2"}, 7},
		"two of one transaction":     {5, 6, []model.GateChange{one(6, "u-1", 1), one(6, "u-1", 1)}, 10, map[string]string{}, 6},
		"sold by the database":       {5, 6, []model.GateChange{sold("new")}, 7, map[string]string{"u-1": "2", "u-2": "1"}, 6},
		"sold and admitted as well":  {5, 6, []model.GateChange{sold("known")}, 8, map[string]string{"u-1": "2"}, 6},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := b.open(offer())
			a := attempt(o, "u-1", 2)
			b.admit(a)
			changes := slices.Clone(tc.changes)
			for i := range changes {
				if changes[i].OrderID == "known" {
					changes[i].OrderID = a.ID
				}
			}
			for _, time := range []string{"once", "twice"} {
				if err := b.gate.CatchUp(b.Context(), o.ID, tc.after, tc.upTo, changes); err != nil {
					b.Fatal(err)
				}
				states, err := b.gate.Peek(b.Context(), o.ID)
				if err != nil {
					b.Fatal(err)
				}
				if got := states[0]; got.Left != tc.left || got.Version != tc.version {
					b.Errorf("%s, %s: %d left at version %d, want %d at %d", name, time, got.Left, got.Version, tc.left, tc.version)
				}
				b.wantUnits(o, tc.units)
			}
		}
		b.unchanged(func() { b.told(model.Offer{Sale: model.Sale{ID: model.NewSaleID()}}, one(6, "u-1", 1)) })
	})
}

// TestSoldByTheDatabaseIsKnown: an order that the database made by itself answers its request key at the gate.
func TestSoldByTheDatabaseIsKnown(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		a := attempt(o, "u-1", 2)
		b.told(o, model.GateChange{Version: 6, OrderID: a.ID, UserID: "u-1", Units: -2, RequestHash: a.RequestHash})
		if got, err := admitOne(b.Context(), b.gate, a, 1); err != nil || got != (model.Outcome{Verdict: model.Accepted, Repeated: true}) {
			b.Errorf("%+v, %v", got, err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 8})
	})
}

// TestHole12_UnitReturnedAfterSoldOut: ninety attempts meet an empty gate, one unit comes back, one more is sold.
func TestHole12_UnitReturnedAfterSoldOut(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		o.Stock.Available = 1
		b.open(o)
		a := attempt(o, "u-0", 1)
		b.admit(a)
		b.settled(o, b.read(b.gate, o.ID), model.Outcome{Verdict: model.Accepted})
		try := func(from, n int) (sold int) {
			for i := range n {
				got, err := admitOne(b.Context(), b.gate, attempt(o, fmt.Sprint("u-", from+i), 1), 1)
				if err != nil {
					b.Fatal(err)
				}
				if got.Verdict == model.Accepted {
					sold++
				}
			}
			return sold
		}
		if sold := try(1, 90); sold != 0 {
			b.Errorf("%d sold of nothing", sold)
		}
		if left := b.peek(o.ID).Left; left != 0 {
			b.Errorf("%d left after attempts in vain", left)
		}
		for range 2 {
			b.told(o, model.GateChange{Version: 7, OrderID: a.ID, UserID: "u-0", Units: 1})
		}
		if sold := try(100, 10); sold != 1 {
			b.Errorf("%d sold of the one unit that came back", sold)
		}
	})
}

// TestUnits are those of the users who are asked for, and of no other sale.
func TestUnits(t *testing.T) {
	for parts := range 3 {
		eachRedis(t, func(b *bench) {
			o := offerIn(parts + 1)
			c := contents(o)
			c.Units = map[string]int{"u-1": 1, "u-2": 2, "u-3": 3}
			if err := install(b.gate, 1, c); err != nil {
				b.Fatal(err)
			}
			got, err := b.gate.Units(b.Context(), o.ID, []string{"u-3", "nobody", "u-1"})
			if err != nil || !slices.Equal(got, []int{3, 0, 1}) {
				b.Errorf("%v, %v", got, err)
			}
			for id, want := range map[string]int64{o.ID: 3, model.NewSaleID(): 0} {
				if n, err := b.gate.Buyers(b.Context(), id); err != nil || n != want {
					b.Errorf("%d buyers, %v, want %d", n, err, want)
				}
			}
		})
	}
}
