package gate

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// condition is a reason to refuse an attempt, or to answer it again.
type condition struct {
	name  string
	want  model.Outcome // without RetryAfter
	field string        // of two conditions of one field, only one can hold
	epoch int64         // that the caller has read
	make  func(b *bench, a *model.Attempt)
}

// conditions returns them in the order in which admit.lua must judge them.
func conditions() []condition {
	set := func(field string, value any) func(*bench, *model.Attempt) {
		return func(b *bench, a *model.Attempt) {
			for _, tag := range tagsOf(a.GateRef()) {
				must(b, b.client.HSet(b.Context(), gateKey(tag), field, value))
			}
		}
	}
	know := func(more int) func(*bench, *model.Attempt) {
		return func(b *bench, a *model.Attempt) {
			must(b, b.client.HSet(b.Context(), unitsKey(home(a.GateRef(), a.UserID)), idField(a.ID), a.Quantity+more))
		}
	}
	refused := func(v model.Verdict) model.Outcome { return model.Outcome{Verdict: v} }
	hour, now := time.Hour.Milliseconds(), time.Now().UnixMilli()
	return []condition{
		{name: "too frequent", want: refused(model.TooFrequent), make: func(b *bench, a *model.Attempt) {
			a.Frequency = model.Frequency{Limit: 1, Window: time.Minute}
			for i := range 2 { // a known id is too frequent only beyond twice the limit
				check.Same(b, "whether only the first request is allowed", b.count(a.GateRef(), a.UserID, a.Frequency) == 0, i == 0)
			}
		}},
		{name: "no gate", want: refused(model.NoGate), make: func(b *bench, a *model.Attempt) {
			must(b, b.client.Del(b.Context(), gateKey(home(a.GateRef(), a.UserID))))
		}},
		{name: "closed gate", want: refused(model.NoGate), make: set("open", "0")},
		{name: "older epoch", want: refused(model.NoGate), epoch: 2, make: func(*bench, *model.Attempt) {}},
		{name: "known id", field: "id", want: repeated, make: know(0)},
		{name: "known id, another quantity", field: "id", want: mismatch, make: know(1)},
		{name: "closed sale", field: "status", want: refused(model.Ended), make: set("status", "closed")},
		{name: "not started", want: refused(model.NotStarted), make: set("starts_ms", now+hour)},
		{name: "ended", want: refused(model.Ended), make: set("ends_ms", now-hour)},
		{name: "paused", field: "status", want: refused(model.Paused), make: set("status", "paused")},
		{name: "bad quantity", want: refused(model.BadRequest), make: func(_ *bench, a *model.Attempt) { a.Quantity = 3 }},
		{name: "limit reached", want: limitReached, make: func(b *bench, a *model.Attempt) {
			must(b, b.client.HSet(b.Context(), unitsKey(home(a.GateRef(), a.UserID)), a.UserID, 2))
		}},
		{name: "sold out", want: soldOut, make: set("left", 0)},
	}
}

// TestAdmitRefusals checks every pair of conditions: the earlier one decides, and nothing is written.
func TestAdmitRefusals(t *testing.T) {
	eachGate(t, func(b *bench) {
		list := conditions()
		for i, first := range list {
			for _, second := range list[i:] {
				if first.field != "" && first.field == second.field && first.name != second.name {
					continue
				}
				must(b, b.client.FlushAll(b.Context()))
				a := attempt(b.sale(), "u-1", 1)
				second.make(b, &a)
				if second.name != first.name {
					first.make(b, &a)
				}
				b.unchanged(func() {
					got := b.judge(a, max(first.epoch, second.epoch))
					if late := got.RetryAfter; (late > 0) != (got.Verdict == model.TooFrequent) || late > time.Minute {
						b.Errorf("%s and %s: retry after %s", first.name, second.name, late)
					}
					got.RetryAfter = 0
					check.Same(b, fmt.Sprintf("%s and %s", first.name, second.name), got, first.want)
				})
			}
		}
	})
}

// A sale starts and ends in the very millisecond that its times name.
func TestAdmitAtTheEdges(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		at := func(field string) {
			now := must(b, b.client.Time(b.Context())).UnixMilli()
			for _, tag := range tagsOf(o.GateRef()) {
				must(b, b.client.HSet(b.Context(), gateKey(tag), field, now))
			}
		}
		at("starts_ms")
		b.admit(attempt(o, "u-1", 1))
		at("ends_ms")
		check.Same(b, "at the end", b.judge(attempt(o, "u-2", 1), 1), model.Outcome{Verdict: model.Ended})
	})
}

func TestAdmitTakesUnitsAndQueues(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		a := attemptUnder(o, "u-1", 2, " a key with spaces ")
		b.admit(a)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 8, Inflight: 2, Stream: 1})
		b.wantUnits(o, map[string]int{"u-1": 2})
		b.wantKnown(a, true)
		b.wantKnown(attemptUnder(o, "u-1", 2, "never sent"), false)
		b.unchanged(func() { // the reply was lost, and the client sends the request again
			check.Same(b, "the answer to the same attempt", b.judge(a, 1), repeated)
		})
		entries := b.read(o, all)
		if len(entries) != 1 {
			b.Fatalf("%d entries", len(entries))
		}
		want := model.Entry{Attempt: a, StreamID: entries[0].StreamID, Epoch: 1, Instance: "here"}
		check.Same(b, "the entry", entries[0], want)

		b.admit(attempt(o, "u-2", 1))
		b.admit(attempt(o, "u-2", 1))
		check.Same(b, "the third unit of a user who may have two", b.judge(attempt(o, "u-2", 1), 1), limitReached)
	})
}

// TestAdmitQuantities gives the script quantities that Go's types exclude.
func TestAdmitQuantities(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		o.LimitPerUser = 10_000
		b.open(o)
		a := attempt(o, "u-1", 1)
		keys := append([]string{b.counters(tag(o))}, keysOf(tag(o))...)
		code := func(quantity any) int64 {
			script := admitScript.Run(b.Context(), b.client, keys, "here", 1, 0, o.ID, 0, 0, 1, idField(a.ID), a.UserID, quantity, "key", 0)
			return must(b, script).([]any)[0].([]any)[1].(int64)
		}
		b.unchanged(func() {
			for _, quantity := range []any{
				-5, -1, 0, "-0", "1.5", "0.5", 10_001, 1 << 31, int64(1) << 53, "9223372036854775808",
				"1e309", "-1e309", "inf", "-inf", "nan", "NaN", "-nan", "one", "", " ", "1;2",
			} {
				check.Same(b, fmt.Sprintf("the verdict of quantity %q", quantity), verdicts[code(quantity)].Verdict, model.BadRequest)
			}
		})
		check.Same(b, "the code of quantity 10", code(10), 0)
	})
}

// TestAdmitUsersAreText uses users whom Lua would take for each other if it read them as numbers.
func TestAdmitUsersAreText(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o, want := b.sale(), map[string]int{}
		for _, user := range []string{"9007199254740992", "9007199254740993", "1", "01", "1.0", "a", "A"} {
			b.admit(attempt(o, user, 1))
			want[user] = 1
		}
		b.wantUnits(o, want)
	})
}

// TestUsersNamedLikeOrders: two users have the ids of orders of others as their own. Neither counts for the other, also after a
// rebuild.
func TestUsersNamedLikeOrders(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.sale()
		first, last := attempt(o, "u-1", 2), attempt(o, "u-2", 2)
		list := []model.Attempt{first, attempt(o, first.ID, 1), attempt(o, last.ID, 1), last}
		for _, a := range list {
			b.admit(a)
		}
		counted := func(epoch int64) {
			for _, a := range list {
				check.Same(b, "an admitted attempt again", b.judge(a, epoch), repeated)
				b.wantKnown(a, true)
			}
			b.wantUnits(o, map[string]int{"u-1": 2, "u-2": 2, first.ID: 1, last.ID: 1})
			check.Same(b, "a third unit", b.judge(attempt(o, last.ID, 2), epoch), limitReached)
			if n, err := b.gate.Buyers(b.Context(), o.GateRef()); n != 4 || err != nil {
				b.Errorf("%d buyers, %v", n, err)
			}
		}
		counted(1)
		c := kit.ContentsOf(o) // the database has settled the first attempt, and not the others
		c.Of.Stock.Available, c.Units["u-1"], c.Quantities[first.ID], c.Owners[first.ID] = 8, 2, 2, "u-1"
		b.install(2, c)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 4, Inflight: 4, Stream: 3})
		counted(2)
	})
}

// TestCountAndAdmitShareACounter also shows that each user has a counter for each sale.
func TestCountAndAdmitShareACounter(t *testing.T) {
	eachGate(t, func(b *bench) {
		o, other := b.sale(), b.sale()
		limit := model.Frequency{Limit: 2, Window: time.Minute}
		check.Same(b, "the wait after the first request", b.count(o.GateRef(), "u-1", limit), 0)
		a := attempt(o, "u-1", 1)
		a.Frequency = limit
		b.admit(a)
		if after := b.count(o.GateRef(), "u-1", limit); after <= 0 || after > time.Minute {
			b.Errorf("retry after %s", after)
		}
		for user, sale := range map[string]model.Offer{"u-2": o, "u-1": other} {
			check.Same(b, "the wait after the first request of "+user, b.count(sale.GateRef(), user, limit), 0)
		}
		check.Same(b, "the wait without a limit", b.count(o.GateRef(), "u-3", model.Frequency{}), 0)
		counted := must(b, b.client.HExists(b.Context(), b.counters(home(o.GateRef(), "u-3")), o.ID+" u-3"))
		check.Same(b, "whether a request without a limit is counted", counted, false)
	})
}

// TestHole37_CounterAlwaysExpires looks at the counter after every request, and after its expiry was removed.
func TestHole37_CounterAlwaysExpires(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx, o := b.Context(), b.sale()
		limit := model.Frequency{Limit: 2, Window: time.Minute}
		key := b.counters(tag(o))
		expires := func(when string) {
			b.Helper()
			if left := must(b, b.client.PTTL(ctx, key)); left <= 0 || left > time.Minute {
				b.Errorf("%s the counter expires in %s", when, left)
			}
		}
		for i := range 4 {
			check.Same(b, fmt.Sprint("whether request ", i, " is allowed"), b.count(o.GateRef(), "u-1", limit) == 0, i < 2)
			expires(fmt.Sprintf("after request %d", i))
		}

		check.Same(b, "the expiry is removed", must(b, b.client.Persist(ctx, key)), true)
		a := attempt(o, "u-1", 1)
		a.Frequency = limit
		check.Same(b, "a request over the limit", b.judge(a, 1), model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Minute})
		expires("after a request when it had no expiry")

		must(b, b.client.PExpireAt(ctx, key, time.Now().Add(-time.Second)))
		check.Same(b, "the wait in the next window", b.count(o.GateRef(), "u-1", limit), 0)
		check.Same(b, "the counter of the next window", must(b, b.client.HGet(ctx, key, o.ID+" u-1")), "1")
		expires("in the next window")

		must(b, b.client.Set(ctx, key, "damaged", 0))
		check.Same(b, "a request when the counters are damaged", b.judge(a, 1).Verdict, model.Accepted)
		expires("after that request")
	})
}
