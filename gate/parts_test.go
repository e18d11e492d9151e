package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

// of reads a field of a part's gate.
func (b *bench) of(o model.Offer, part int, field string) int64 {
	b.Helper()
	return number(must(b, b.client.HGet(b.Context(), gateKey(tagOf(o.ID, part, o.Parts)), field)))
}

// lefts are the units left in each part.
func (b *bench) lefts(o model.Offer) []int64 {
	b.Helper()
	lefts := make([]int64, o.Parts)
	for i := range lefts {
		lefts[i] = b.of(o, i, "left")
	}
	return lefts
}

// at gives a user who is at home in a part of a sale's gate.
func at(o model.Offer, part, n int) string {
	for i := 0; ; i++ {
		if user := fmt.Sprint("u-", i); homeOf(user, o.Parts) == part {
			if n--; n < 0 {
				return user
			}
		}
	}
}

// verdict admits an attempt by itself, also where no gate is open.
func (b *bench) verdict(g *Gate, a model.Attempt) model.Verdict {
	b.Helper()
	got, err := g.Admit(b.Context(), a.SaleID, []model.Attempt{a}, 0)
	if err != nil {
		b.Fatal(err)
	}
	return got[0].Verdict
}

// Everything of a user lies in one part, and the parts together are what one gate would be.
func TestPartsHoldWhatOneGateWould(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx, o := b.Context(), offerIn(6)
		o.Stock.Available = 20
		c := contents(o)
		want := map[string]int{}
		var before []model.Attempt
		for i := range 12 {
			a := attempt(o, fmt.Sprint("u-", i), 1)
			c.Requests[a.ID], c.Owners[a.ID] = model.Request{Quantity: 1, Hash: a.RequestHash}, a.UserID
			c.Units[a.UserID], want[a.UserID] = 1, 1
			before = append(before, a)
		}
		if err := install(b.gate, 1, c); err != nil {
			b.Fatal(err)
		}
		if got := b.lefts(o); !slices.Equal(got, []int64{4, 4, 3, 3, 3, 3}) {
			b.Errorf("the units are %v", got)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 20})
		if got := b.unitsOf(o); !maps.Equal(got, want) {
			b.Errorf("the units of users are %v", got)
		}
		for _, key := range must(b, b.client.Keys(ctx, "*")) {
			b.ends(key, o)
		}
		if _, known, err := b.gate.Knows(ctx, ids.Derive("u-1", o.ID, "never")); known || err != nil {
			b.Errorf("an id that never was: %t, %v", known, err)
		}

		for i := range 12 { // one more each, which is their limit
			b.admit(attempt(o, fmt.Sprint("u-", i), 1))
			want[fmt.Sprint("u-", i)] = 2
			if got := b.verdict(b.gate, attempt(o, fmt.Sprint("u-", i), 1)); got != model.LimitReached {
				b.Errorf("a third unit: %s", got)
			}
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 8, Inflight: 12, Stream: 12})
		if got := b.unitsOf(o); !maps.Equal(got, want) {
			b.Errorf("the units of users are %v", got)
		}
		if pending := b.entries(o); len(pending) != 12 {
			b.Fatalf("%d entries wait", len(pending))
		}

		// What is settled, refused and released goes to the part that has it.
		entries := b.read(b.gate, o.ID)
		outcomes := make([]model.Outcome, len(entries))
		for i := range outcomes {
			outcomes[i].Verdict = model.Accepted
		}
		outcomes[3].Verdict, outcomes[4].Verdict = model.SoldOut, model.LimitReached
		b.settled(o, entries, outcomes...)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 9})
		release := model.GateChange{Version: o.Stock.Version + 1, OrderID: entries[5].ID, UserID: entries[5].UserID, Units: 1}
		quota := model.GateChange{Version: o.Stock.Version + 2, Units: 7}
		for range 2 {
			b.told(o, release, quota)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 17})
		for _, e := range entries[3:6] {
			want[e.UserID]--
		}
		if got := b.unitsOf(o); !maps.Equal(got, want) {
			b.Errorf("the units of users are %v, want %v", got, want)
		}

		sale := o.Sale
		sale.Revision, sale.LimitPerUser = 2, 5
		if err := b.gate.Configure(ctx, sale); err != nil {
			b.Fatal(err)
		}
		for part := range o.Parts {
			if limit, revision := b.of(o, part, "limit"), b.of(o, part, "revision"); limit != 5 || revision != 2 {
				b.Errorf("part %d has the limit %d of revision %d", part, limit, revision)
			}
		}
		for _, a := range before {
			if got, known, err := b.gate.Knows(ctx, a.ID); !known || err != nil || got != (model.Request{Quantity: 1, Hash: a.RequestHash}) {
				b.Errorf("%s is known as %+v, %t, %v", a.ID, got, known, err)
			}
			if got := b.verdict(b.gate, a); got != model.Accepted {
				b.Errorf("a known id is told %s", got)
			}
		}
	})
}

// Erase leaves nothing of any part.
func TestErasePartsToo(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(4))
		b.admit(attempt(o, "u-1", 1))
		if err := b.gate.Erase(b.Context(), o.ID); err != nil {
			b.Fatal(err)
		}
		if keys := must(b, b.client.Keys(b.Context(), "*")); len(keys) != 0 {
			b.Errorf("%v is left", keys)
		}
	})
}

// The parts are open together or not at all, and nothing is admitted by those that are there before the others.
func TestPartsOpenTogether(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx, o := b.Context(), b.open(offerIn(3))
		state := func() model.GateState { return b.peek(o.ID) }
		for part := range o.Parts {
			key := gateKey(tagOf(o.ID, part, o.Parts))
			must(b, b.client.HSet(ctx, key, "open", "0"))
			if state().Open {
				b.Errorf("open although part %d is closed", part)
			}
			must(b, b.client.HSet(ctx, key, "open", "1", "epoch", 2))
			if s := state(); s.Open || s.Epoch != 2 {
				b.Errorf("with part %d of another epoch: %+v", part, s)
			}
			must(b, b.client.HSet(ctx, key, "epoch", 1))
		}
		if ok, err := b.gate.Close(ctx, o.ID, 2); !ok || err != nil || state().Open {
			b.Fatalf("close: %t, %v, %+v", ok, err, state())
		}
		for part := range o.Parts {
			if got := b.verdict(b.gate, attempt(o, at(o, part, 0), 1)); got != model.NoGate {
				b.Errorf("part %d is closed and says %s", part, got)
			}
		}

		// The stream of one part moves: nothing is open, and it may be done again.
		if _, err := b.gate.Install(ctx, 2, []int64{0, 1, 0}, contents(o)); !errors.Is(err, model.ErrStreamMoved) {
			b.Errorf("install over another stream: %v", err)
		}
		for part := range o.Parts {
			if got := b.verdict(b.gate, attempt(o, at(o, part, 0), 1)); got != model.NoGate {
				b.Errorf("part %d of a gate that is not whole says %s", part, got)
			}
		}
		if err := install(b.gate, 2, contents(o)); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 10})
		if err := install(b.gate, 2, contents(o)); !errors.Is(err, model.ErrNewerGate) {
			b.Errorf("install over an open gate: %v", err)
		}

		// A newer rebuild has come as far as one part: the older one opens nothing any more, and closes nothing.
		if ok, err := b.gate.Close(ctx, o.ID, 3); !ok || err != nil {
			b.Fatal(ok, err)
		}
		must(b, b.client.HSet(ctx, gateKey(tagOf(o.ID, 2, 3)), "coming", 4))
		if ok, err := b.gate.Close(ctx, o.ID, 3); ok || err != nil {
			b.Errorf("closed for an epoch that is over: %t, %v", ok, err)
		}
		if err := install(b.gate, 3, contents(o)); !errors.Is(err, model.ErrNewerGate) || state().Open {
			b.Errorf("an overtaken rebuild: %v, %+v", err, state())
		}
		if err := install(b.gate, 4, contents(o)); err != nil || !state().Open {
			b.Errorf("the newer one: %v, %+v", err, state())
		}
	})
}

// A rebuild that was overtaken between its two steps opens none of its parts.
func TestPartsOvertakenBeforeTheyOpen(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offerIn(2)
		if _, err := installScript.Run(b.Context(), b.client, installKeys(o, 0), 1, 0, group, expiry(o.Sale), 0, 0).Result(); err != nil {
			b.Fatal(err)
		}
		open := func() bool {
			ok, err := openScript.Run(b.Context(), b.client, []string{gateKey(tagOf(o.ID, 0, 2))}, 1).Bool()
			if err != nil {
				b.Fatal(err)
			}
			return ok
		}
		if ok, err := b.gate.Close(b.Context(), o.ID, 2); !ok || err != nil {
			b.Fatal(ok, err)
		}
		if open() || b.of(o, 0, "open") != 0 {
			b.Error("a part was opened although a newer gate is coming")
		}
		must(b, b.client.Del(b.Context(), gateKey(tagOf(o.ID, 0, 2))))
		if open() {
			b.Error("a part was opened that is gone")
		}
	})
}

func installKeys(o model.Offer, part int) []string {
	tag := tagOf(o.ID, part, o.Parts)
	return []string{gateKey(tag), unitsKey(tag), idsKey(tag), streamKey(tag), stagedKey(unitsKey(tag), "1"), stagedKey(idsKey(tag), "1")}
}

// A rebuild finds the entries of every part and leaves each where it is, although the ids of two streams may be the same.
func TestRebuildOfParts(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx, o := b.Context(), b.open(offerIn(3))
		var made []model.Attempt
		for part := range o.Parts {
			a := attempt(o, at(o, part, 0), 1)
			made = append(made, a)
			text := fmt.Sprintf("%s %s 1 %s 1 here %s", a.ID, a.UserID, a.RequestHash, a.RequestKey)
			if err := b.client.Do(ctx, "XADD", streamKey(tagOf(o.ID, part, 3)), "7-7", "attempt", text).Err(); err != nil {
				b.Fatal(err)
			}
		}
		if ok, err := b.gate.Close(ctx, o.ID, 2); !ok || err != nil {
			b.Fatal(ok, err)
		}
		c := contents(o)
		c.Requests[made[1].ID] = model.Request{Quantity: 1, Hash: made[1].RequestHash} // settled
		c.Owners[made[1].ID] = made[1].UserID
		c.Units[made[1].UserID] = 1
		c.Of.Stock.Available = 9
		if err := install(b.gate, 2, c); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7, Inflight: 2, Stream: 2})
		left := b.read(b.gate, o.ID)
		if len(left) != 2 || slices.ContainsFunc(left, func(e model.Entry) bool { return e.ID == made[1].ID }) {
			b.Errorf("to be settled are %v", left)
		}
		b.settled(o, left, model.Outcome{Verdict: model.Accepted}, model.Outcome{Verdict: model.Accepted})
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7})
	})
}

// A gate that has to admit less than nothing says so, and admits nothing.
func TestPartsOfLessThanNothing(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offerIn(3)
		o.Stock.Available = -2
		b.open(o)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: -2})
		for part := range o.Parts {
			if got := b.verdict(b.gate, attempt(o, at(o, part, 0), 1)); got != model.SoldOut {
				b.Errorf("part %d says %s", part, got)
			}
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: -2})
	})
}

// Users who are all at home in one part buy the units of all parts, to the last one, and none too many.
func TestUnitsMoveToTheirBuyers(t *testing.T) {
	for _, n := range []int{1, 2} {
		eachRedis(t, func(b *bench) {
			o := b.open(offerIn(5)) // two units each
			sold := 0
			for i := 0; ; i++ {
				got := b.verdict(b.gate, attempt(o, at(o, 3, i), n))
				if got == model.SoldOut {
					break
				}
				if got != model.Accepted {
					b.Fatalf("%d sold, then %s", sold, got)
				}
				sold += n
			}
			if sold != 10 {
				b.Errorf("%d of 10 sold", sold)
			}
			b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Inflight: 10, Stream: int64(10 / n)})
			for _, home := range []int{0, 3} {
				if got := b.verdict(b.gate, attempt(o, at(o, home, 100), 1)); got != model.SoldOut {
					b.Errorf("of nothing: %s", got)
				}
			}
		})
	}
}

// One unit in each part is enough for one who wants them all, and not for one who wants more.
func TestUnitsAreGatheredFromSeveralParts(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offerIn(5)
		o.LimitPerUser, o.Stock.Available = 9, 5
		b.open(o)
		if got := b.verdict(b.gate, attempt(o, at(o, 2, 0), 6)); got != model.SoldOut {
			b.Errorf("six of five: %s", got)
		}
		if got := b.lefts(o); !slices.Equal(got, []int64{1, 1, 1, 1, 1}) {
			b.Errorf("for nothing units were moved: %v", got)
		}
		if got := b.verdict(b.gate, attempt(o, at(o, 2, 0), 5)); got != model.Accepted {
			b.Errorf("five of five: %s", got)
		}
	})
}

// The largest lends first, half of what it has, and no part is asked in vain.
func TestLargestLendsHalf(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(3))
		for part, left := range []int{0, 40, 100} {
			must(b, b.client.HSet(b.Context(), gateKey(tagOf(o.ID, part, 3)), "left", left))
		}
		b.admit(attempt(o, at(o, 0, 0), 1))
		if got := b.lefts(o); !slices.Equal(got, []int64{49, 40, 50}) {
			b.Errorf("the parts have %v", got)
		}
	})
}

// What the home has itself need not be brought.
func TestOnlyWhatIsMissingMoves(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offerIn(3)
		o.LimitPerUser = 9
		b.open(o)
		for part, left := range []int{3, 2, 2} {
			must(b, b.client.HSet(b.Context(), gateKey(tagOf(o.ID, part, 3)), "left", left))
		}
		b.admit(attempt(o, at(o, 0, 0), 5))
		if got := b.lefts(o); got[0] != 0 || got[1]+got[2] != 2 {
			b.Errorf("the parts have %v", got)
		}
	})
}

// A batch is judged as its attempts would be one by one: those of one home in their order, and requests count once.
func TestShortBatch(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2)) // five units each
		var batch []model.Attempt
		for i := range 14 {
			a := attemptUnder(o, at(o, 1, i), 1, "key")
			a.Frequency = model.Frequency{Limit: 1, Window: time.Minute}
			batch = append(batch, a)
		}
		got, err := b.gate.Admit(b.Context(), o.ID, batch, 0)
		if err != nil {
			b.Fatal(err)
		}
		for i, outcome := range got {
			if want := (model.Outcome{Verdict: model.SoldOut}); i < 10 && outcome != (model.Outcome{Verdict: model.Accepted}) || i >= 10 && outcome != want {
				b.Errorf("attempt %d: %+v", i, outcome)
			}
		}
	})
}

// A script that ran although its reply was lost, and so runs again, gives its units once.
func TestMoveIsGivenOnce(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2))
		give := func(epoch, n, number int64, by string) bool {
			b.Helper()
			ok, err := borrowScript.Run(b.Context(), b.client, []string{gateKey(tagOf(o.ID, 0, 2))}, epoch, n, by, number).Bool()
			if err != nil {
				b.Fatal(err)
			}
			return ok
		}
		for range 2 {
			if !give(1, 3, 7, "here") {
				b.Error("it was not given")
			}
		}
		if !give(1, 100, 6, "here") || !give(1, 4, 7, "there") || !give(1, 5, 8, "here") {
			b.Error("it was not given")
		}
		if give(2, 50, 9, "here") {
			b.Error("given to a gate of another epoch")
		}
		if left, borrowed := b.of(o, 0, "left"), b.of(o, 0, "borrowed"); left != 5+12 || borrowed != 12 {
			b.Errorf("the part has %d units and borrowed %d", left, borrowed)
		}
	})
}

// Units that a dead instance has taken and not given are missing: the gate has too few, never too many, and nobody hears
// that the sale is sold out, for the database still has them.
func TestUnitsLostOnTheirWay(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2))
		dead := b.instance("dead")
		if n, err := dead.lend(b.Context(), tagOf(o.ID, 0, 2), 1, 4); err != nil || n != 4 {
			b.Fatal(n, err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 6})
		for i := range 6 {
			if got := b.verdict(b.gate, attempt(o, at(o, i%2, i), 1)); got != model.Accepted && got != model.Unsure {
				b.Errorf("with units left: %s", got)
			}
		}
		for part := range o.Parts {
			for i := range 6 { // until nothing is left in this part
				if got := b.verdict(b.gate, attempt(o, at(o, part, 10+i), 1)); got == model.SoldOut {
					b.Error("sold out was said while units were on their way")
				}
			}
		}
		if ok, err := b.gate.Close(b.Context(), o.ID, 2); !ok || err != nil {
			b.Fatal(ok, err)
		}
		if _, err := dead.lend(b.Context(), tagOf(o.ID, 0, 2), 1, 1); !errors.Is(err, errClosed) {
			b.Errorf("a closed part lent: %v", err)
		}
		if err := install(b.gate, 2, contents(o)); err != nil {
			b.Fatal(err)
		}
		if state := b.peek(o.ID); state.Left+state.Inflight != 10 {
			b.Errorf("the new gate is %+v", state)
		}
		if err := dead.borrow(b.Context(), tagOf(o.ID, 1, 2), 1, 4); !errors.Is(err, errClosed) {
			b.Errorf("units of an older epoch were given: %v", err)
		}
	})
}

// A part that can't be asked may have units: who is short hears nothing of sold out. The others go on.
func TestPartThatIsClosed(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2))
		must(b, b.client.HSet(b.Context(), gateKey(tagOf(o.ID, 1, 2)), "open", "0"))
		got := map[model.Verdict]int{}
		for i := range 7 {
			got[b.verdict(b.gate, attempt(o, at(o, 0, i), 1))]++
		}
		if want := (map[model.Verdict]int{model.Accepted: 5, model.Unsure: 2}); !maps.Equal(got, want) {
			b.Errorf("told were %v, want %v", got, want)
		}
	})
}

// A move of others that does not end is waited for no longer than moveTime.
func TestMoveIsWaitedForNotForLong(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2))
		lane := b.gate.moves.lane(o.ID)
		lane <- struct{}{}
		got := map[model.Verdict]int{}
		for i := range 6 {
			got[b.verdict(b.gate, attempt(o, at(o, 0, i), 1))]++
		}
		if want := (map[model.Verdict]int{model.Accepted: 5, model.Unsure: 1}); !maps.Equal(got, want) {
			b.Errorf("told were %v, want %v", got, want)
		}
		<-lane
		if got := b.verdict(b.gate, attempt(o, at(o, 0, 6), 1)); got != model.Accepted {
			b.Errorf("when it has ended: %s", got)
		}
	})
}

// Two instances at once: as many buyers as units get one each, although most are at home in one part; of those who come
// after them nobody does; nobody gets two.
func TestPartsUnderARace(t *testing.T) {
	const quota, crowd = 120, 12
	eachRedis(t, func(b *bench) {
		o := offerIn(6)
		o.LimitPerUser, o.Stock.Quota, o.Stock.Available = 1, quota, quota
		b.open(o)
		gates := []*Gate{b.instance("a"), b.instance("b")}
		var buyers []string
		for i := range quota {
			buyers = append(buyers, at(o, []int{0, 0, 0, 1, 5}[i%5], i/5*2+i%5))
		}
		slices.Sort(buyers)
		buyers = slices.Compact(buyers)
		for i := 0; len(buyers) < quota; i++ {
			buyers = append(buyers, at(o, 2, i))
		}
		var next, accepted atomic.Int64
		var racing sync.WaitGroup
		start := make(chan struct{})
		for range crowd {
			racing.Go(func() {
				<-start
				for i := next.Add(1) - 1; i < 2*quota; i = next.Add(1) - 1 {
					// Each tries twice, under two keys and at both instances.
					a := attemptUnder(o, buyers[i/2], 1, fmt.Sprint("key-", i%2))
					for got := model.Unsure; got == model.Unsure; {
						got = b.verdict(gates[i%2], a)
						switch got {
						case model.Accepted:
							accepted.Add(1)
						case model.LimitReached, model.Unsure:
						default:
							b.Errorf("%s was told %s", a.UserID, got)
						}
					}
				}
			})
		}
		close(start)
		racing.Wait()
		if accepted.Load() != quota {
			b.Errorf("%d admitted of %d", accepted.Load(), quota)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Inflight: quota, Stream: quota})
		if got := b.verdict(b.gate, attempt(o, "late", 1)); got != model.SoldOut {
			b.Errorf("who comes late is told %s", got)
		}
	})
}

// Entries of all parts are read, by shares of what was asked for, and claimed.
func TestReadFromParts(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx, o := b.Context(), b.open(offerIn(3))
		for i := range 9 {
			b.admit(attempt(o, at(o, i%3, i/3), 1))
		}
		some, _, err := b.gate.Read(ctx, o.ID, 6)
		if err != nil || len(some) != 6 {
			b.Fatalf("%d entries of at most 6, %v", len(some), err)
		}
		rest, _, err := b.gate.Read(ctx, o.ID, 1)
		if err != nil || len(rest) != 3 {
			b.Errorf("%d entries, %v, want one of each part", len(rest), err)
		}
		if none, _, err := b.gate.Read(ctx, o.ID, 6); err != nil || len(none) != 0 {
			b.Errorf("%v, %v", none, err)
		}
		claimed, _, err := b.instance("there").Claim(ctx, o.ID, 0, 100)
		if err != nil || len(claimed) != 9 {
			b.Errorf("claimed %d, %v", len(claimed), err)
		}
		for _, e := range claimed {
			if e.Deliveries != 2 {
				b.Errorf("%s was delivered %d times", e.ID, e.Deliveries)
			}
		}
		there, err := b.gate.Unsettled(ctx, o.ID, claimed)
		if err != nil || len(there) != 9 {
			b.Errorf("%d are unsettled, %v", len(there), err)
		}
	})
}

// Nobody who can't say in how many parts a gate is takes it for one that lacks what it looks for.
func TestUnknownParts(t *testing.T) {
	errUnknown := errors.New("the database is away")
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	o := b.open(offer())
	g := New(b.client, "here", func(context.Context, string) (int, error) { return 0, errUnknown })
	a := attempt(o, "u-1", 1)
	_, errs := []any{nil}, map[string]error{}
	_, errs["admit"] = g.Admit(t.Context(), o.ID, []model.Attempt{a}, 0)
	_, errs["line"] = g.Line(t.Context(), o.ID, "u-1")
	_, errs["peek"] = g.Peek(t.Context(), o.ID)
	_, errs["units"] = g.Units(t.Context(), o.ID, []string{"u-1"})
	_, errs["buyers"] = g.Buyers(t.Context(), o.ID)
	_, errs["close"] = g.Close(t.Context(), o.ID, 2)
	_, errs["lengths"] = g.StreamLengths(t.Context(), o.ID)
	_, _, errs["read"] = g.Read(t.Context(), o.ID, 1)
	_, _, errs["claim"] = g.Claim(t.Context(), o.ID, 0, 1)
	_, _, errs["knows"] = g.Knows(t.Context(), a.ID)
	_, _, errs["count"] = g.Count(t.Context(), o.ID, "u-1", model.Frequency{})
	_, errs["unsettled"] = g.Unsettled(t.Context(), o.ID, []model.Entry{{Attempt: a}})
	errs["settled"] = g.Settled(t.Context(), o.ID, []model.Entry{{Attempt: a}}, []model.Outcome{{}})
	errs["catch up"] = g.CatchUp(t.Context(), o.ID, 0, 1, nil)
	errs["erase"] = g.Erase(t.Context(), o.ID)
	for name, err := range errs {
		if !errors.Is(err, errUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 10})
}

// FuzzParts plays one story to a gate in one part and to one in several: they answer alike all the way.
func FuzzParts(f *testing.F) {
	f.Add(uint8(6), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	f.Add(uint8(2), []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbb"))
	f.Add(uint8(16), []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add(uint8(3), []byte("\xff\xfe\x80\x81\xc0\xc1\xe0\xe1\x10\x90\x20\xa0\x30\xb0\xff\xfe\x80\x81\xc0\xc1\xe0\xe1\x10\x90\x20\xa0\x30\xb0"))
	server := kit.Redis(f)
	f.Fuzz(func(t *testing.T, parts uint8, story []byte) {
		b := newBench(t, server.URL())
		one, several := newTeller(b, 1), newTeller(b, 2+int(parts)%(model.MaxParts-1))
		for i, step := range story[:min(len(story), 60)] {
			a, c := one.tell(step), several.tell(step)
			if x, y := b.peek(one.offer.ID), b.peek(several.offer.ID); a != c || x != y {
				t.Fatalf("step %d (%#x): one part says %s and is %+v, %d parts say %s and are %+v", i, step, a, x, several.offer.Parts, c, y)
			}
		}
		if x, y := b.unitsOf(one.offer), b.unitsOf(several.offer); !maps.Equal(x, y) {
			t.Errorf("the units of users are %v in one part, %v in %d", x, y, several.offer.Parts)
		}
		if a, c := one.sellOut(), several.sellOut(); a != c {
			t.Errorf("one part sells %d more, %d parts %d", a, several.offer.Parts, c)
		}
		_ = b.gate.Erase(t.Context(), one.offer.ID)
		_ = b.gate.Erase(t.Context(), several.offer.ID)
	})
}

// teller plays a story to one gate.
type teller struct {
	*bench
	offer    model.Offer
	version  int64
	epoch    int64
	admitted []model.Attempt // in the stream
	orders   []model.Attempt // settled, and not released
	attempts int
}

func newTeller(b *bench, parts int) *teller {
	o := offerIn(parts)
	o.LimitPerUser = 3
	return &teller{bench: b, offer: b.open(o), version: o.Stock.Version, epoch: 1}
}

// tell does what a step says: its lowest bits what, the others to whom.
func (s *teller) tell(step byte) string {
	s.Helper()
	who := int(step >> 3)
	switch step % 8 {
	case 5:
		return s.settle(model.Accepted, who)
	case 6:
		if who%4 == 0 {
			return s.rebuild()
		}
		return s.settle([]model.Verdict{model.SoldOut, model.LimitReached}[who%2], who)
	case 7:
		return s.release(who)
	}
	s.attempts++
	a := attemptUnder(s.offer, fmt.Sprint("u-", who), 1+int(step%4), fmt.Sprint("key-", s.attempts))
	got := s.verdict(s.gate, a)
	if got == model.Accepted {
		s.admitted = append(s.admitted, a)
	}
	return string(got)
}

// settle ends an entry of the stream, whichever comes first of some.
func (s *teller) settle(v model.Verdict, which int) string {
	s.Helper()
	if len(s.admitted) == 0 {
		return "nothing to settle"
	}
	which %= len(s.admitted)
	a := s.admitted[which]
	s.admitted = slices.Delete(s.admitted, which, which+1)
	all := s.entries(s.offer)
	at := slices.IndexFunc(all, func(e model.Entry) bool { return e.ID == a.ID })
	if at < 0 {
		s.Fatalf("the entry of %s is gone", a.UserID)
	}
	if err := s.gate.Settled(s.Context(), s.offer.ID, all[at:at+1], []model.Outcome{{Verdict: v}}); err != nil {
		s.Fatal(err)
	}
	if v == model.Accepted {
		s.version++
		s.orders = append(s.orders, a)
	}
	return "settled"
}

func (s *teller) release(which int) string {
	s.Helper()
	if len(s.orders) == 0 {
		return "nothing to release"
	}
	which %= len(s.orders)
	a := s.orders[which]
	s.orders = slices.Delete(s.orders, which, which+1)
	s.version++
	s.told(s.offer, model.GateChange{Version: s.version, OrderID: a.ID, UserID: a.UserID, Units: int64(a.Quantity)})
	return "released"
}

// rebuild installs the next gate from what a database would know.
func (s *teller) rebuild() string {
	s.Helper()
	s.epoch++
	if ok, err := s.gate.Close(s.Context(), s.offer.ID, s.epoch); !ok || err != nil {
		s.Fatal(ok, err)
	}
	c := contents(s.offer)
	c.Of.Stock.Version = s.version
	for _, a := range s.orders {
		c.Of.Stock.Available -= int64(a.Quantity)
		c.Units[a.UserID] += a.Quantity
		c.Requests[a.ID], c.Owners[a.ID] = model.Request{Quantity: a.Quantity, Hash: a.RequestHash}, a.UserID
	}
	if err := install(s.gate, s.epoch, c); err != nil {
		s.Fatal(err)
	}
	return "rebuilt"
}

// sellOut sells single units to new users until there are none.
func (s *teller) sellOut() (sold int) {
	s.Helper()
	for {
		switch got := s.verdict(s.gate, attempt(s.offer, fmt.Sprint("new-", sold), 1)); got {
		case model.Accepted:
			sold++
		case model.SoldOut:
			return sold
		default:
			s.Fatalf("%d sold, then %s", sold, got)
		}
	}
}
