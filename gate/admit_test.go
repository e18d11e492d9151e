package gate

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/model"
)

// condition is a reason to refuse an attempt, made directly in Redis.
type condition struct {
	name  string
	code  int64
	epoch int64 // that the caller knows
	make  func(b *bench, a *model.Attempt)
}

// conditions stand in the order in which admit.lua must judge them.
func conditions() []condition {
	set := func(values ...any) func(*bench, *model.Attempt) {
		return func(b *bench, a *model.Attempt) { must(b, b.client.HSet(b.Context(), gateKey(a.SaleID), values...)) }
	}
	remember := func(b *bench, a *model.Attempt, r model.Request) {
		must(b, b.client.HSet(b.Context(), idsKey(a.SaleID), a.ID, requestValue(r)))
	}
	hour := time.Hour.Milliseconds()
	now := time.Now().UnixMilli()
	return []condition{
		{name: "too frequent", code: codeTooFrequent, make: func(b *bench, a *model.Attempt) {
			a.Frequency = model.Frequency{Limit: 1, Window: time.Minute}
			for i := range 2 { // a known id has to come more than twice as often as is allowed
				if _, ok, err := b.gate.Count(b.Context(), a.SaleID, a.UserID, a.Frequency); err != nil || ok != (i == 0) {
					b.Fatalf("request %d: %t, %v", i, ok, err)
				}
			}
		}},
		{name: "no gate", code: codeNoGate, make: func(b *bench, a *model.Attempt) {
			must(b, b.client.Del(b.Context(), gateKey(a.SaleID)))
		}},
		{name: "closed gate", code: codeClosed, make: set("open", "0")},
		{name: "older epoch", code: codeClosed, epoch: 2, make: func(*bench, *model.Attempt) {}},
		{name: "known id", code: codeKnown, make: func(b *bench, a *model.Attempt) {
			remember(b, a, model.Request{Quantity: a.Quantity, Hash: a.RequestHash})
		}},
		{name: "known id, another request", code: codeMismatch, make: func(b *bench, a *model.Attempt) {
			remember(b, a, model.Request{Quantity: a.Quantity, Hash: model.HashRequest(99)})
		}},
		{name: "closed sale", code: codeEnded, make: set("status", "closed")},
		{name: "not started", code: codeNotStarted, make: set("starts_ms", now+hour)},
		{name: "ended", code: codeEnded, make: set("ends_ms", now-hour)},
		{name: "paused", code: codePaused, make: set("status", "paused")},
		{name: "bad quantity", code: codeBadQuantity, make: func(_ *bench, a *model.Attempt) { a.Quantity = 3 }},
		{name: "limit reached", code: codeLimitReached, make: func(b *bench, a *model.Attempt) {
			must(b, b.client.HSet(b.Context(), unitsKey(a.SaleID), a.UserID, 2))
		}},
		{name: "sold out", code: codeSoldOut, make: set("left", 0)},
	}
}

// exclusive are conditions that one field holds, so that both can't be true.
var exclusive = map[string]string{
	"known id, another request": "known id",
	"paused":                    "closed sale",
}

// TestAdmitRefusals pins which refusal wins when two apply, for every pair, and that a refusal writes nothing.
func TestAdmitRefusals(t *testing.T) {
	eachRedis(t, func(b *bench) {
		list := conditions()
		for i, first := range list {
			for _, second := range list[i:] {
				name := first.name
				if second.name != first.name {
					name += " and " + second.name
				}
				if exclusive[second.name] == first.name {
					continue
				}
				must(b, b.client.FlushAll(b.Context()))
				o := b.open(offer())
				a := attempt(o, "u-1", 1)
				second.make(b, &a)
				if second.name != first.name {
					first.make(b, &a)
				}
				b.unchanged(func() {
					if got := b.code(a, a.Quantity, max(first.epoch, second.epoch)); got != first.code {
						b.Errorf("%s: code %d, want %d", name, got, first.code)
					}
				})
			}
		}
	})
}

func TestAdmitTellsTheOutcome(t *testing.T) {
	want := map[string]model.Outcome{
		"too frequent":              {Verdict: model.TooFrequent},
		"known id":                  {Verdict: model.Accepted, Repeated: true},
		"known id, another request": {Verdict: model.IdempotencyMismatch, Repeated: true},
		"closed sale":               {Verdict: model.Ended},
		"not started":               {Verdict: model.NotStarted},
		"ended":                     {Verdict: model.Ended},
		"paused":                    {Verdict: model.Paused},
		"bad quantity":              {Verdict: model.BadRequest},
		"limit reached":             {Verdict: model.LimitReached},
		"sold out":                  {Verdict: model.SoldOut},
	}
	eachRedis(t, func(b *bench) {
		for _, c := range conditions() {
			o := b.open(offer())
			a := attempt(o, "u-1", 1)
			c.make(b, &a)
			got, err := admitOne(b.Context(), b.gate, a, c.epoch)
			if c.code == codeNoGate || c.code == codeClosed {
				if !errors.Is(err, model.ErrNoGate) {
					b.Errorf("%s: %+v, %v, want ErrNoGate", c.name, got, err)
				}
				continue
			}
			if c.code == codeTooFrequent {
				if got.RetryAfter <= 0 || got.RetryAfter > time.Minute {
					b.Errorf("%s: again after %s", c.name, got.RetryAfter)
				}
				got.RetryAfter = 0
			}
			if err != nil || got != want[c.name] {
				b.Errorf("%s: %+v, %v, want %+v", c.name, got, err, want[c.name])
			}
		}
	})
}

func TestAdmitTakesUnitsAndQueues(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		a := attempt(o, "u-1", 2)
		b.admit(a)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 8, Inflight: 2, Stream: 1})
		b.wantUnits(o, map[string]string{"u-1": "2"})
		request, known, err := b.gate.Knows(b.Context(), a.ID)
		if err != nil || !known || request != (model.Request{Quantity: 2, Hash: a.RequestHash}) {
			b.Errorf("the gate knows %+v, %t, %v", request, known, err)
		}
		entries := b.read(b.gate, o.ID)
		if len(entries) != 1 {
			b.Fatalf("%d entries", len(entries))
		}
		want := model.Entry{Attempt: a, StreamID: entries[0].StreamID, Epoch: 1, Instance: "here", Deliveries: 1}
		if entries[0] != want {
			b.Errorf("the entry is %+v, want %+v", entries[0], want)
		}
		if request, known, err := b.gate.Knows(b.Context(), ids.Derive("u-2", o.ID, "never")); err != nil || known {
			b.Errorf("an id that was never admitted: %+v, %t, %v", request, known, err)
		}
	})
}

// TestAdmitTwice is a script that ran although its reply was lost, and runs again.
func TestAdmitTwice(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		a := attempt(o, "u-1", 1)
		b.admit(a)
		b.unchanged(func() {
			for name, tc := range map[string]struct {
				change func(*model.Attempt)
				want   model.Outcome
			}{
				"the same":         {func(*model.Attempt) {}, model.Outcome{Verdict: model.Accepted, Repeated: true}},
				"another quantity": {func(a *model.Attempt) { a.Quantity = 2 }, model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}},
				"another hash":     {func(a *model.Attempt) { a.RequestHash = "other" }, model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}},
			} {
				again := a
				tc.change(&again)
				if got, err := admitOne(b.Context(), b.gate, again, 1); err != nil || got != tc.want {
					b.Errorf("%s: %+v, %v, want %+v", name, got, err, tc.want)
				}
			}
		})
	})
}

// TestAdmitQuantities gives the script what Go's types would not let through.
func TestAdmitQuantities(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		o.LimitPerUser = 10_000
		b.open(o)
		for _, quantity := range []any{
			-5, -1, 0, "-0", "1.5", "0.5", 10_001, 1 << 31, int64(1) << 53, "9223372036854775808",
			"1e309", "-1e309", "inf", "-inf", "nan", "NaN", "-nan", "one", "", " ", "1;2",
		} {
			b.unchanged(func() {
				if got := b.code(attempt(o, "u-1", 1), quantity, 0); got != codeBadQuantity {
					b.Errorf("quantity %q: code %d, want %d", quantity, got, codeBadQuantity)
				}
			})
		}
		if got := b.code(attempt(o, "u-1", 10), 10, 0); got != codeAdmitted {
			b.Errorf("quantity 10: code %d", got)
		}
	})
}

// TestAdmitUsersAreText keeps apart what a double could not.
func TestAdmitUsersAreText(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		for _, user := range []string{"9007199254740992", "9007199254740993", "1", "01", "1.0", "a", "A"} {
			if got := b.code(attempt(o, user, 1), 1, 0); got != codeAdmitted {
				b.Errorf("user %s: code %d", user, got)
			}
		}
		if got := len(b.units(o)); got != 7 {
			b.Errorf("%d users, want 7", got)
		}
	})
}

// TestHole01_NPlusOneAttemptsOnN lets exactly N through the gate, however many come at once.
func TestHole01_NPlusOneAttemptsOnN(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		start := make(chan struct{})
		var admitted, soldOut atomic.Int64
		var buyers sync.WaitGroup
		for i := range 11 {
			buyers.Go(func() {
				<-start
				got, err := admitOne(b.Context(), b.gate, attempt(o, fmt.Sprint("u-", i), 1), 1)
				switch {
				case err == nil && got.Queued():
					admitted.Add(1)
				case err == nil && got.Verdict == model.SoldOut:
					soldOut.Add(1)
				default:
					b.Errorf("%+v, %v", got, err)
				}
			})
		}
		close(start)
		buyers.Wait()
		if admitted.Load() != 10 || soldOut.Load() != 1 {
			b.Errorf("%d admitted and %d sold out, want 10 and 1", admitted.Load(), soldOut.Load())
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 0, Inflight: 10, Stream: 10})
	})
}

func TestAdmitTakesTheLastUnits(t *testing.T) {
	tests := map[string]struct {
		left     int64
		quantity int
		want     model.Verdict
	}{
		"more than left":      {1, 2, model.SoldOut},
		"exactly what's left": {2, 2, model.Accepted},
		"none left":           {0, 1, model.SoldOut},
		"over by one":         {-1, 1, model.SoldOut},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := offer()
			o.Stock.Available = tc.left
			b.open(o)
			if got, err := admitOne(b.Context(), b.gate, attempt(o, "u-1", tc.quantity), 1); err != nil || got.Verdict != tc.want {
				b.Errorf("%s: %+v, %v, want %s", name, got, err, tc.want)
			}
		}
	})
}

// TestCountAndAdmitShareACounter also shows that the counter is one sale's and one user's.
func TestCountAndAdmitShareACounter(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o, other := b.open(offer()), b.open(offer())
		f := model.Frequency{Limit: 2, Window: time.Minute}
		if after, ok, err := b.gate.Count(b.Context(), o.ID, "u-1", f); after != 0 || !ok || err != nil {
			b.Fatalf("the first request: %s, %t, %v", after, ok, err)
		}
		a := attempt(o, "u-1", 1)
		a.Frequency = f
		b.admit(a)
		after, ok, err := b.gate.Count(b.Context(), o.ID, "u-1", f)
		if ok || err != nil || after <= 0 || after > time.Minute {
			b.Errorf("the third request: %s, %t, %v", after, ok, err)
		}
		for name, who := range map[string]struct{ sale, user string }{
			"another user": {o.ID, "u-2"}, "another sale": {other.ID, "u-1"},
		} {
			if _, ok, err := b.gate.Count(b.Context(), who.sale, who.user, f); !ok || err != nil {
				b.Errorf("%s: %t, %v", name, ok, err)
			}
		}
		for range 5 {
			if _, ok, err := b.gate.Count(b.Context(), o.ID, "u-3", model.Frequency{}); !ok || err != nil {
				b.Errorf("without a limit: %t, %v", ok, err)
			}
		}
		if n := must(b, b.client.Exists(b.Context(), counterKey(o.ID, "u-3"))); n != 0 {
			b.Error("a request without a limit left a counter")
		}
	})
}

// TestHole37_CounterAlwaysExpires looks at the counter after every request, and at one that a crash has left
// without an end.
func TestHole37_CounterAlwaysExpires(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		f := model.Frequency{Limit: 2, Window: time.Minute}
		key := counterKey(o.ID, "u-1")
		ttl := func() time.Duration { return must(b, b.client.PTTL(ctx, key)) }
		for i := range 4 {
			if _, ok, err := b.gate.Count(ctx, o.ID, "u-1", f); err != nil || ok != (i < 2) {
				b.Errorf("request %d: %t, %v", i, ok, err)
			}
			if left := ttl(); left <= 0 || left > time.Minute {
				b.Errorf("after request %d the counter ends in %s", i, left)
			}
		}

		if !must(b, b.client.Persist(ctx, key)) || ttl() > 0 {
			b.Fatal("the counter has an end still")
		}
		a := attempt(o, "u-1", 1)
		a.Frequency = f
		if got, err := admitOne(ctx, b.gate, a, 1); err != nil || got.Verdict != model.TooFrequent || got.RetryAfter != time.Minute {
			b.Errorf("%+v, %v", got, err)
		}
		if left := ttl(); left <= 0 || left > time.Minute {
			b.Errorf("the counter that had no end ends in %s", left)
		}

		must(b, b.client.PExpireAt(ctx, key, time.Now().Add(-time.Second))) // the window is over
		if _, ok, err := b.gate.Count(ctx, o.ID, "u-1", f); err != nil || !ok {
			b.Errorf("in the next window: %t, %v", ok, err)
		}
		if got := must(b, b.client.Get(ctx, key)); got != strconv.Itoa(1) || ttl() <= 0 {
			b.Errorf("the new counter is %s and ends in %s", got, ttl())
		}
	})
}
