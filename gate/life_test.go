package gate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

func TestInstallSetsEverything(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.offer()
		c := kit.ContentsOf(o)
		known := attempt(o, "u-1", 1)
		c.Quantities[known.ID], c.Owners[known.ID] = known.Quantity, "u-1"
		want := map[string]int{}
		for i := range 7 { // several pages
			user := fmt.Sprint("u-", i)
			c.Units[user], want[user] = 1, 1
		}
		b.install(3, c)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 3, Left: 10})
		b.wantUnits(o, want)
		b.wantKnown(known, true)
		check.Same(b, "a known request", b.judge(known, 3), repeated)
		for user := range want {
			check.Same(b, "two units more for "+user, b.judge(attempt(o, user, 2), 3), limitReached)
		}
		keys := b.keys("*")
		if len(keys) != 3*b.shards { // so no staged key is left over
			b.Errorf("the keys are %q", keys)
		}
		b.ends(o, keys...)
	})
}

// TestEveryKeyOfASaleEnds: no change of a gate makes a key that never expires.
func TestEveryKeyOfASaleEnds(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admit(attempt(o, "u-1", 1)) // the first unit and the first id after an install that had none
		b.ends(o, b.keys("*")...)
		a := attempt(o, "u-1", 1)
		a.Frequency = model.Frequency{Limit: 5, Window: time.Minute}
		b.admit(a)
		b.settle(b.read(o, all), accepted)
		b.catchUp(o, model.GateChange{Version: 6, OrderID: a.ID, UserID: "u-1", Units: 2}) // no user has units now
		b.admit(attempt(o, "u-2", 1))
		check.Same(b, "number of keys", len(b.keys("*")), 3*b.shards+1)
		for _, kind := range []string{"gate", "units", "stream"} {
			b.ends(o, b.keys("*:"+kind)...)
		}
		if ttl := must(b, b.client.PTTL(b.Context(), b.counters(home(o.GateRef(), "u-1")))); ttl <= 0 {
			b.Error("the counter of requests never expires")
		}
	})
}

// TestInstallOnlyOverAnOlderGate: a newer gate has nothing of the old one that the database does not contain.
func TestInstallOnlyOverAnOlderGate(t *testing.T) {
	eachGate(t, func(b *bench) {
		for epoch, want := range map[int64]error{4: model.ErrNewerGate, 5: model.ErrNewerGate, 6: nil, 600: nil} {
			o := b.offer()
			b.install(5, kit.ContentsOf(o))
			a, release := attempt(o, "u-2", 2), model.GateChange{Version: 9, OrderID: "some", UserID: "u-2", Units: 1}
			b.admit(a)
			b.settle(b.read(o, all), accepted)
			b.catchUp(o, release)
			c := kit.ContentsOf(o)
			c.Of.Stock.Available, c.Units["u-1"] = 7, 1
			if want == nil {
				b.install(epoch, c)
				b.want(o, model.GateState{Exists: true, Open: true, Epoch: epoch, Left: 7})
				b.wantUnits(o, map[string]int{"u-1": 1})
				b.wantKnown(a, false)
				b.catchUp(o, release) // the new gate does not have the change
				b.want(o, model.GateState{Exists: true, Open: true, Epoch: epoch, Left: 8})
				continue
			}
			b.unchanged(func() {
				check.Error(b, fmt.Sprintf("epoch %d over 5", epoch), b.tryInstall(epoch, c), want)
			})
		}
	})
}

// TestInstallKeepsTheStream rebuilds a gate over a stream of which the database knows one entry and not the other.
func TestInstallKeepsTheStream(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		made, pending := attempt(o, "u-1", 2), attempt(o, "u-2", 1)
		b.admit(made)
		b.admit(pending)
		entries := b.read(o, all) // this instance committed the first entry and died before the acknowledgement

		c := kit.ContentsOf(o)
		c.Of.Stock.Available, c.Of.Stock.Held, c.Of.Stock.Version = 8, 2, 6
		c.Units["u-1"], c.Quantities[made.ID], c.Owners[made.ID] = 2, made.Quantity, "u-1"
		b.install(2, c)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7, Inflight: 1, Stream: 1})
		b.wantUnits(o, map[string]int{"u-1": 2, "u-2": 1})
		for _, a := range []model.Attempt{made, pending} {
			check.Same(b, "an admitted attempt again", b.judge(a, 2), repeated)
		}
		left := b.read(o, all)
		if len(left) != 1 || left[0].Attempt != pending {
			b.Fatalf("the stream has %v, want the pending entry", left)
		}
		// The dead instance's acknowledgement arrives late: its entry was deleted by the rebuild.
		late := slices.DeleteFunc(entries, func(e model.Entry) bool { return e.ID != made.ID })
		b.settle(late, accepted)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7, Inflight: 1, Stream: 1})
		b.settle(left, accepted)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7})
	})
}

// TestInstallRefusesAMovedStream: an entry was settled after the stream was measured, so the contents may lack its order.
func TestInstallRefusesAMovedStream(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admit(attempt(o, "u-1", 1))
		b.admit(attempt(o, "u-2", 1))
		check.Same(b, "closed", b.close(o, 2), true)
		lengths, err := b.gate.StreamLengths(b.Context(), o.GateRef())
		check.NoError(b, err)
		entries := b.read(o, all)
		b.settle(entries[:1], accepted)
		b.unchanged(func() { // nor is a staged key left over
			if _, err := b.gate.Install(b.Context(), 2, lengths, kit.ContentsOf(o)); !errors.Is(err, model.ErrStreamMoved) {
				b.Errorf("%v, want ErrStreamMoved", err)
			}
		})
		c := kit.ContentsOf(o)
		c.Of.Stock.Available, c.Units[entries[0].UserID] = 9, 1
		b.install(2, c)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 8, Inflight: 1, Stream: 1})
		b.wantUnits(o, map[string]int{"u-1": 1, "u-2": 1})
	})
}

// TestInstallRefusesExpiredStaging: a staged hash expires between two pages, so the contents would be incomplete.
func TestInstallRefusesExpiredStaging(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.offer()
		c := expiring{kit.ContentsOf(o), func() {
			for _, key := range b.keys("*:units:staged-*") {
				must(b, b.client.Del(b.Context(), key))
			}
		}}
		c.Units["u-1"], c.Quantities["known"] = 1, 1
		if _, err := b.gate.Install(b.Context(), 1, make([]int64, b.shards), c); !errors.Is(err, model.ErrStreamMoved) {
			b.Errorf("%v, want ErrStreamMoved", err)
		}
		b.want(o, model.GateState{})
	})
}

// expiring contents call expire when the buyers are staged and the known attempts are not.
type expiring struct {
	kit.Contents
	expire func()
}

func (c expiring) Known(ctx context.Context) iter.Seq2[[]model.Known, error] {
	c.expire()
	return c.Contents.Known(ctx)
}

// TestInstallAfterASettle: an entry is settled after the last look at the stream and before the install, so the contents lack
// its order.
func TestInstallAfterASettle(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admit(attempt(o, "u-1", 1))
		entries := b.read(o, all)
		lengths, err := b.gate.StreamLengths(b.Context(), o.GateRef())
		check.NoError(b, err)
		late := b.as("late")
		late.client.AddHook(scriptHook(func(ctx context.Context, script *redis.Cmd, run redis.ProcessHook) error {
			_, err := b.gate.Settled(ctx, entries, []model.Outcome{accepted})
			check.NoError(b, err)
			return run(ctx, script)
		}))
		check.Same(b, "closed", b.close(o, 2), true)
		_, err = late.gate.Install(b.Context(), 2, lengths, kit.ContentsOf(o))
		check.Error(b, "the install", err, model.ErrStreamMoved)
	})
}

// TestGateOfLessThanNothing: the database has sold units that entries of the stream need as well.
func TestGateOfLessThanNothing(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admit(attempt(o, "u-1", 2))
		c := kit.ContentsOf(o)
		c.Of.Stock.Available = 1
		b.install(2, c)
		short := model.GateState{Exists: true, Open: true, Epoch: 2, Left: -1, Inflight: 2, Stream: 1}
		b.want(o, short)
		for shard := range b.shards {
			check.Same(b, fmt.Sprint("shard ", shard), b.verdict(attempt(o, userAt(o, shard, 5), 1)), model.SoldOut)
		}
		b.want(o, short)
	})
}

// TestClose closes each gate twice: a client that loses the first reply repeats the call.
func TestClose(t *testing.T) {
	eachGate(t, func(b *bench) {
		for epoch, want := range map[int64]bool{4: false, 5: false, 6: true} {
			o := b.offer()
			b.install(5, kit.ContentsOf(o))
			for range 2 {
				check.Same(b, fmt.Sprint("whether a gate of epoch 5 is closed for ", epoch), b.close(o, epoch), want)
			}
			b.want(o, model.GateState{Exists: true, Open: !want, Epoch: 5, Left: 10})
			for shard := range b.shards {
				got := b.verdict(attempt(o, userAt(o, shard, 0), 1))
				check.Same(b, fmt.Sprint("whether shard ", shard, " is closed for ", epoch), got == model.NoGate, want)
			}
		}
	})
}

// TestCloseOfNoGate leaves a mark that refuses older rebuilds, is not a gate, and expires. TestShardsOpenTogether closes a
// gate for a newer rebuild.
func TestCloseOfNoGate(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.offer()
		check.Same(b, "closed", b.close(o, 5), true)
		b.want(o, model.GateState{})
		for _, key := range b.keys("*") {
			if ttl := must(b, b.client.PTTL(b.Context(), key)); ttl <= 0 || ttl > time.Minute {
				b.Errorf("%s expires in %s", key, ttl)
			}
		}
		check.Same(b, "the verdict without a gate", b.judge(attempt(o, "u-1", 1), 0).Verdict, model.NoGate)
		check.NoError(b, b.gate.Configure(b.Context(), o.Sale))
		b.catchUp(o, model.GateChange{Version: 6, OrderID: "a", UserID: "u-1", Units: 1})
		b.settle([]model.Entry{{Attempt: attempt(o, "u-1", 1), StreamID: "1-1"}}, limitReached)
		b.want(o, model.GateState{})
		b.wantUnits(o, map[string]int{})
		check.Same(b, "closed for an older epoch", b.close(o, 4), false)
		check.Error(b, "an older install", b.tryInstall(4, kit.ContentsOf(o)), model.ErrNewerGate)
		b.install(5, kit.ContentsOf(o))
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 5, Left: 10})
		b.ends(o, b.keys("*:gate")...)
	})
}

// TestConfigure applies each change twice to a gate that has revision 5.
func TestConfigure(t *testing.T) {
	pause := func(s *model.Sale) { s.Status, s.EndsAt = model.SalePaused, s.EndsAt.Add(3*time.Hour) }
	tests := map[string]struct {
		revision int64
		change   func(*model.Sale)
		want     model.Verdict // to an attempt of two units
	}{
		"an older change":    {4, pause, model.Accepted},
		"the present change": {5, pause, model.Accepted},
		"a newer change":     {6, pause, model.Paused},
		"closed":             {6, func(s *model.Sale) { s.Status = model.SaleClosed }, model.Ended},
		"postponed": {6, func(s *model.Sale) {
			s.StartsAt, s.EndsAt = s.EndsAt.Add(time.Hour), s.EndsAt.Add(2*time.Hour)
		}, model.NotStarted},
		"shortened":       {6, func(s *model.Sale) { s.EndsAt = time.Now().Add(-time.Minute) }, model.Ended},
		"a lower limit":   {6, func(s *model.Sale) { s.LimitPerUser = 1 }, model.BadRequest},
		"no changed rule": {6, func(*model.Sale) {}, model.Accepted},
	}
	eachGate(t, func(b *bench) {
		for name, tc := range tests {
			must(b, b.client.FlushAll(b.Context()))
			o := b.offer()
			o.Revision = 5
			b.open(o)
			changed, ends := o, o
			tc.change(&changed.Sale)
			changed.Revision = tc.revision
			check.NoError(b, b.gate.Configure(b.Context(), changed.Sale))
			check.NoError(b, b.gate.Configure(b.Context(), changed.Sale))
			if tc.revision > o.Revision {
				ends = changed
			}
			b.ends(ends, b.keys("*")...)
			for shard := range b.shards {
				check.Same(b, fmt.Sprintf("%s, shard %d", name, shard), b.verdict(attempt(o, userAt(o, shard, 0), 2)), tc.want)
			}
		}
		b.unchanged(func() { check.NoError(b, b.gate.Configure(b.Context(), offer().Sale)) }) // no gate
	})
}

// TestCatchUp: the gate was installed with version 5 of the stock, and has admitted two units of u-1 under the id "known".
func TestCatchUp(t *testing.T) {
	one := func(version int64, user string, units int64) model.GateChange {
		return model.GateChange{Version: version, OrderID: "a", UserID: user, Units: units}
	}
	sold := func(id string) model.GateChange {
		return model.GateChange{Version: 6, OrderID: id, UserID: "u-2", Units: -1, Sold: true}
	}
	two := map[string]int{"u-1": 2}
	tests := map[string]struct {
		after, upTo int64
		changes     []model.GateChange
		left        int64
		units       map[string]int
		version     int64
	}{
		"no change":                {5, 6, nil, 8, two, 6},
		"before the install":       {3, 4, []model.GateChange{one(4, "u-1", 1)}, 8, two, 5},
		"with the install":         {4, 5, []model.GateChange{one(5, "u-1", 1)}, 8, two, 5},
		"after the install":        {5, 6, []model.GateChange{one(6, "u-1", 1)}, 9, map[string]int{"u-1": 1}, 6},
		"the first is known":       {3, 7, []model.GateChange{one(4, "u-1", 1), one(7, "u-1", 1)}, 9, map[string]int{"u-1": 1}, 7},
		"an earlier one is missed": {6, 7, []model.GateChange{one(7, "u-1", 1)}, 8, two, 5},
		"all units of a user":      {5, 6, []model.GateChange{one(6, "u-1", 2)}, 10, map[string]int{}, 6},
		"an unknown user":          {5, 6, []model.GateChange{one(6, "u-9", 1)}, 9, two, 6},
		"an added quota":           {5, 6, []model.GateChange{{Version: 6, Units: 5}}, 13, two, 6},
		"taken again by a payment": {5, 6, []model.GateChange{one(6, "u-1", -1)}, 7, map[string]int{"u-1": 3}, 6},
		"released and taken again": {5, 7, []model.GateChange{one(6, "u-1", 2), one(7, "u-1", -2)}, 8, two, 7},
		"two of one transaction":   {5, 6, []model.GateChange{one(6, "u-1", 1), one(6, "u-1", 1)}, 10, map[string]int{}, 6},
		"sold by the database":     {5, 6, []model.GateChange{sold("new")}, 7, map[string]int{"u-1": 2, "u-2": 1}, 6},
		"sold and admitted":        {5, 6, []model.GateChange{sold("known")}, 8, two, 6},
	}
	eachGate(t, func(b *bench) {
		for name, tc := range tests {
			o := b.sale()
			a := attempt(o, "u-1", 2)
			b.admit(a)
			changes := slices.Clone(tc.changes)
			for i := range changes {
				if changes[i].OrderID == "known" {
					// The database's order has the id of the admitted attempt, and so its user.
					changes[i].OrderID, changes[i].UserID = a.ID, a.UserID
				}
			}
			for _, times := range []string{"once", "twice"} {
				check.NoError(b, b.gate.CatchUp(b.Context(), o.GateRef(), tc.after, tc.upTo, changes))
				states, err := b.gate.Peek(b.Context(), o.GateRef())
				check.NoError(b, err)
				if got := states[0]; got.Left != tc.left || got.Version != tc.version {
					b.Errorf("%s, %s: %d left at version %d, want %d at %d", name, times, got.Left, got.Version, tc.left, tc.version)
				}
				b.wantUnits(o, tc.units)
			}
		}
		b.unchanged(func() { b.catchUp(b.offer(), one(6, "u-1", 1)) }) // no gate
	})
}

// TestSoldByTheDatabaseIsKnown: the gate answers the idempotency key of an order that the database sold without the gate.
func TestSoldByTheDatabaseIsKnown(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		a := attempt(o, "u-1", 2)
		b.catchUp(o, model.GateChange{Version: 6, OrderID: a.ID, UserID: "u-1", Units: -2, Sold: true})
		check.Same(b, "the answer to the key of the order", b.judge(a, 1), repeated)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 8})
	})
}

func TestUnitsAndBuyers(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.offer()
		c := kit.ContentsOf(o)
		c.Units = map[string]int{"u-1": 1, "u-2": 2, "u-3": 3}
		c.Quantities["known"] = 1
		b.install(1, c)
		more := map[string]any{} // several pages
		for i := range 2 * page {
			more[fmt.Sprint("more-", i)], more[idField(fmt.Sprint(i))] = 1, 1
		}
		must(b, b.client.HSet(b.Context(), unitsKey(tag(o)), more))
		got, err := b.gate.Units(b.Context(), o.GateRef(), []string{"u-3", "unknown", "u-1"})
		check.NoError(b, err)
		check.Same(b, "units", got, []int{3, 0, 1})
		for gate, want := range map[model.GateRef]int64{o.GateRef(): 3 + 2*page, b.offer().GateRef(): 0} {
			if n, err := b.gate.Buyers(b.Context(), gate); err != nil || n != want {
				b.Errorf("%d buyers, %v, want %d", n, err, want)
			}
		}
	})
}

// TestErase: an erased gate leaves no key, and the gates of other sales stay as they are.
func TestErase(t *testing.T) {
	eachGate(t, func(b *bench) {
		inUse := func() model.Offer {
			o := b.sale()
			b.admit(attempt(o, "buyer", 1))
			b.admit(attempt(o, "other", 2))
			entries := b.read(o, 1)
			b.settle(entries[:1], accepted)
			return o
		}
		kept := inUse()
		var o model.Offer
		b.unchanged(func() {
			o = inUse()
			for range 2 { // the second call changes nothing
				check.NoError(b, b.gate.Erase(b.Context(), o.GateRef()))
			}
			b.want(o, model.GateState{})
			check.Same(b, "an attempt after Erase", b.judge(attempt(o, "late", 1), 0).Verdict, model.NoGate)
			check.Same(b, "entries of the stream", len(b.read(o, all)), 0)
		})
		b.admit(attempt(kept, "late", 1))
		b.open(o)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 10})
		b.admit(attempt(o, "buyer", 2))
	})
}
