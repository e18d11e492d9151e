package gate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

func TestReadGivesEachEntryOnce(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		if got := b.read(b.gate, o.ID); len(got) != 0 {
			b.Fatalf("an empty stream gave %v", got)
		}
		var want []string
		for i := range 5 {
			a := attempt(o, fmt.Sprint("u-", i), 1)
			b.admit(a)
			want = append(want, a.ID)
		}
		var got []string
		for _, step := range []struct {
			gate  *Gate
			count int
		}{{b.gate, 2}, {b.instance("there"), 2}, {b.gate, 100}} {
			entries, _, err := step.gate.Read(b.Context(), o.ID, step.count)
			if err != nil || len(entries) > step.count {
				b.Fatalf("%d entries of at most %d, %v", len(entries), step.count, err)
			}
			for _, e := range entries {
				got = append(got, e.ID)
			}
		}
		if !slices.Equal(got, want) {
			b.Errorf("read %v, want %v", got, want)
		}
	})
}

// TestNoStreamIsNoError: a Redis that lost everything has nothing to settle.
func TestNoStreamIsNoError(t *testing.T) {
	eachRedis(t, func(b *bench) {
		id := model.NewSaleID()
		if entries, bad, err := b.gate.Read(b.Context(), id, 10); err != nil || len(entries)+len(bad) != 0 {
			b.Errorf("read: %v %v %v", entries, bad, err)
		}
		if entries, bad, err := b.gate.Claim(b.Context(), id, 0, 10); err != nil || len(entries)+len(bad) != 0 {
			b.Errorf("claim: %v %v %v", entries, bad, err)
		}
		if lengths, err := b.gate.StreamLengths(b.Context(), id); err != nil || !slices.Equal(lengths, []int64{0}) {
			b.Errorf("lengths: %v %v", lengths, err)
		}
	})
}

// TestStreamLostAlone: of a gate's keys only the stream is gone, by an eviction or by hand, and the next attempt
// makes a new one, that has no consumer group. To answer that there is nothing to settle would leave its buyer
// waiting for ever.
func TestStreamLostAlone(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		must(b, b.client.Del(b.Context(), streamKey(o.ID)))
		b.admit(attempt(o, "u-1", 1))
		if entries, _, err := b.gate.Read(b.Context(), o.ID, 10); err == nil && len(entries) == 0 {
			b.Error("an admitted attempt is neither read nor missed")
		}
	})
}

func TestClaimTakesWhatOthersLeft(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		for i := range 3 {
			b.admit(attempt(o, fmt.Sprint("u-", i), 1))
		}
		dead := b.instance("dead")
		left, _, err := dead.Read(ctx, o.ID, 2) // and it never comes back to them
		if err != nil || len(left) != 2 {
			b.Fatalf("the dead one read %v, %v", left, err)
		}
		if got, _, err := b.gate.Claim(ctx, o.ID, time.Hour, 10); err != nil || len(got) != 0 {
			b.Errorf("claimed before the time: %v, %v", got, err)
		}
		// Time passes for the first of them alone.
		b.idle(o, "dead", left[0].StreamID, 2*time.Hour)
		got, _, err := b.gate.Claim(ctx, o.ID, time.Hour, 10)
		if err != nil || len(got) != 1 || got[0].Attempt != left[0].Attempt {
			b.Fatalf("claimed %v, %v, want %v", got, err, left[0])
		}
		if again, _, err := b.gate.Claim(ctx, o.ID, time.Hour, 10); err != nil || len(again) != 0 {
			b.Errorf("what was just claimed is idle again: %v, %v", again, err)
		}
		if fresh := b.read(b.gate, o.ID); len(fresh) != 1 {
			b.Errorf("read %d entries that nobody had, want 1", len(fresh))
		}
	})
}

// idle makes an entry look as if its consumer had not touched it for so long.
func (b *bench) idle(o model.Offer, consumer, streamID string, d time.Duration) {
	b.Helper()
	args := []any{"XCLAIM", streamKey(o.ID), group, consumer, 0, streamID, "IDLE", d.Milliseconds(), "JUSTID"}
	if err := b.client.Do(b.Context(), args...).Err(); err != nil {
		b.Fatal(err)
	}
}

func TestDeliveriesAreCounted(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		b.admit(attempt(o, "u-1", 1))
		other := b.instance("there")
		entry := b.read(b.gate, o.ID)[0]
		for want := int64(1); want <= 4; want++ {
			if entry.Deliveries != want {
				b.Fatalf("delivery %d counts as %d", want, entry.Deliveries)
			}
			claimer := []*Gate{b.gate, other}[want%2]
			entries, _, err := claimer.Claim(b.Context(), o.ID, 0, 10)
			if err != nil || len(entries) != 1 {
				b.Fatalf("claimed %v, %v", entries, err)
			}
			entry = entries[0]
		}
	})
}

func TestClaimIsBounded(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		for i := range 5 {
			b.admit(attempt(o, fmt.Sprint("u-", i), 1))
		}
		b.read(b.instance("dead"), o.ID)
		if got, _, err := b.gate.Claim(b.Context(), o.ID, 0, 3); err != nil || len(got) != 3 {
			b.Errorf("claimed %d entries, %v, want 3", len(got), err)
		}
	})
}

// TestBadEntries come from a hand, a bug or another version: nobody can settle them.
func TestBadEntries(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		good := attempt(o, "u-1", 1)
		fields := func(change map[string]string) []any {
			all := map[string]string{
				"id": good.ID, "user": "u-1", "n": "1", "hash": good.RequestHash, "epoch": "1", "instance": "here", "key": good.RequestKey,
			}
			maps.Copy(all, change)
			var parts []string
			for _, name := range []string{"id", "user", "n", "hash", "epoch", "instance", "key"} {
				if all[name] != "-" {
					parts = append(parts, all[name])
				}
			}
			if len(parts) == 0 {
				return []any{"x", "y"}
			}
			return []any{"attempt", strings.Join(parts, " ")}
		}
		tests := map[string]map[string]string{
			"no id":                     {"id": "-"},
			"short id":                  {"id": o.ID},
			"id of another sale":        {"id": ids.Derive("u-1", model.NewSaleID(), "key")},
			"no user":                   {"user": "-"},
			"a user's id with a space":  {"user": "u 1"},
			"no quantity":               {"n": "-"},
			"quantity zero":             {"n": "0"},
			"negative quantity":         {"n": "-1"},
			"half a unit":               {"n": "1.5"},
			"quantity in words":         {"n": "one"},
			"quantity past any number":  {"n": "99999999999999999999"},
			"no epoch":                  {"epoch": "-"},
			"epoch in words":            {"epoch": "first"},
			"no request key":            {"key": ""},
			"no request hash":           {"hash": "-"},
			"nothing that an entry has": {"id": "-", "user": "-", "n": "-", "hash": "-", "key": "-", "instance": "-", "epoch": "-"},
		}
		for _, way := range []string{"read", "claimed", "found by a rebuild"} {
			for name, change := range tests {
				must(b, b.client.FlushAll(b.Context()))
				b.open(o)
				add := &redis.XAddArgs{Stream: streamKey(o.ID), Values: fields(change)}
				badID := must(b, b.client.XAdd(b.Context(), add))
				b.admit(good)
				var entries []model.Entry
				var bad []string
				var err error
				switch way {
				case "read":
					entries, bad, err = b.gate.Read(b.Context(), o.ID, 10)
				case "claimed":
					taken := &redis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{streamKey(o.ID), ">"}, Count: 10}
					must(b, b.client.XReadGroup(b.Context(), taken))
					entries, bad, err = b.gate.Claim(b.Context(), o.ID, 0, 10)
				default:
					bad, err = b.gate.Install(b.Context(), 2, []int64{2}, contents(o))
					entries = b.entries(o)
				}
				if err != nil || len(entries) != 1 || entries[0].Attempt != good {
					b.Errorf("%s, %s: entries %+v, %v, want the good one", name, way, entries, err)
				}
				if len(bad) != 1 || !strings.HasPrefix(bad[0], badID) {
					b.Errorf("%s, %s: bad %q, want %s", name, way, bad, badID)
				}
				if n := must(b, b.client.XLen(b.Context(), streamKey(o.ID))); n != 1 {
					b.Errorf("%s, %s: the stream has %d entries, want 1", name, way, n)
				}
			}
		}
	})
}

// TestEntryOfKeyWithSpaces: the fields of an entry have spaces between them, and a request key may contain spaces.
func TestEntryOfKeyWithSpaces(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		a := attemptUnder(o, "u-2", 2, " a key with spaces ")
		b.admit(a)
		entries := b.read(b.gate, o.ID)
		if len(entries) != 1 || entries[0].Attempt != a || entries[0].Instance != "here" || entries[0].Epoch != 1 {
			b.Fatalf("%+v, want %+v", entries, a)
		}
	})
}

// TestBadPackedEntries are deleted as those are that lack a field.
func TestBadPackedEntries(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		good := attempt(o, "u-1", 1)
		rest := " " + good.RequestHash + " 1 here key"
		for name, text := range map[string]string{
			"nothing":           "",
			"no quantity":       good.ID + " u-1",
			"quantity zero":     good.ID + " u-1 0" + rest,
			"quantity in words": good.ID + " u-1 one" + rest,
			"no user":           good.ID + "  1" + rest,
			"of another sale":   ids.Derive("u-1", model.NewSaleID(), "key") + " u-1 1" + rest,
			"epoch in words":    good.ID + " u-1 1 " + good.RequestHash + " first here key",
			"no request hash":   good.ID + " u-1 1  1 here key",
			"no request key":    good.ID + " u-1 1 " + good.RequestHash + " 1 here",
		} {
			must(b, b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: streamKey(o.ID), Values: []any{"attempt", text}}))
			if entries, bad, err := b.gate.Read(b.Context(), o.ID, 10); err != nil || len(entries) != 0 || len(bad) != 1 {
				b.Errorf("%s: entries %+v, bad %q, %v", name, entries, bad, err)
			}
		}
		if n := must(b, b.client.XLen(b.Context(), streamKey(o.ID))); n != 0 {
			b.Errorf("%d entries stay", n)
		}
	})
}

// TestHole53_InstallReadsEveryPage of a stream, of which the database knows some entries, and takes nothing from its consumers.
func TestHole53_InstallReadsEveryPage(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		o.Stock.Available, o.LimitPerUser = 3000, 3000
		b.open(o)
		pipe := b.client.Pipeline()
		const n = 2*page + 7
		for i := range n {
			a := attemptUnder(o, "u-1", 1, fmt.Sprint("key-", i))
			text := strings.Join([]string{a.ID, a.UserID, "1", a.RequestHash, "1", "here", a.RequestKey}, " ")
			pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: streamKey(o.ID), Values: []any{"attempt", text}})
			if i%100 == 0 || i == n-1 { // few enough for the time that one answer may take on a busy machine
				if _, err := pipe.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
		c := contents(o)
		for i, e := range b.entries(o) {
			if i%page == 2 {
				c.Requests[e.ID] = model.Request{Quantity: 1, Hash: e.RequestHash}
				c.Units["u-1"]++
				c.Of.Stock.Available--
			}
		}
		c.Units["u-2"] = 1
		if err := install(b.gate, 2, c); err != nil {
			b.Fatal(err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 3000 - n, Inflight: n - 3, Stream: n - 3})
		b.wantUnits(o, map[string]string{"u-1": strconv.Itoa(n), "u-2": "1"})
		if got := b.read(b.gate, o.ID); len(got) != 1000 || slices.ContainsFunc(got, func(e model.Entry) bool { return e.RequestKey == "key-2" }) {
			b.Errorf("then read %d entries, want 1000", len(got))
		}
	})
}

// TestSettledCredits shows for every outcome what the gate gets back, and that a second time gives nothing.
func TestSettledCredits(t *testing.T) {
	order := &model.Order{ID: "any"}
	tests := map[string]struct {
		outcome model.Outcome
		left    int64 // of 10, after 2 were admitted
		units   string
	}{
		"an order":                    {model.Outcome{Verdict: model.Accepted, Order: order}, 8, "2"},
		"an order made before":        {model.Outcome{Verdict: model.Accepted, Order: order, Repeated: true}, 8, "2"},
		"sold out":                    {model.Outcome{Verdict: model.SoldOut}, 8, ""},
		"sold out, told before":       {model.Outcome{Verdict: model.SoldOut, Repeated: true}, 8, ""},
		"limit reached":               {model.Outcome{Verdict: model.LimitReached}, 10, ""},
		"sale not found":              {model.Outcome{Verdict: model.NotFound}, 10, ""},
		"can't be settled":            {model.Outcome{Verdict: model.ReasonFailed}, 10, ""},
		"another request, other path": {model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}, 10, ""},
	}
	eachRedis(t, func(b *bench) {
		for name, tc := range tests {
			o := b.open(offer())
			b.admit(attempt(o, "u-1", 2))
			entries := b.read(b.gate, o.ID)
			for _, time := range []string{"once", "twice"} {
				b.settled(o, entries, tc.outcome)
				want := model.GateState{Exists: true, Open: true, Epoch: 1, Left: tc.left}
				if got := b.peek(o.ID); got != want {
					b.Errorf("%s, %s: %+v, want %+v", name, time, got, want)
				}
				if got := b.units(o)["u-1"]; got != tc.units {
					b.Errorf("%s, %s: the user has %q units, want %q", name, time, got, tc.units)
				}
			}
			if pending := must(b, b.client.XPending(b.Context(), streamKey(o.ID), group)); pending.Count != 0 {
				b.Errorf("%s: %d entries are not acknowledged", name, pending.Count)
			}
		}
	})
}

// TestSettledBatch settles many at once, of which some were acknowledged before.
func TestSettledBatch(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		for _, user := range []string{"u-1", "u-2", "u-2", "u-3"} {
			b.admit(attempt(o, user, 1))
		}
		entries := b.read(b.gate, o.ID)
		yes, full, limit := model.Outcome{Verdict: model.Accepted}, model.Outcome{Verdict: model.SoldOut}, model.Outcome{Verdict: model.LimitReached}
		b.settled(o, entries[1:2], yes)
		b.settled(o, entries, full, yes, limit, yes)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 7})
		b.wantUnits(o, map[string]string{"u-2": "1", "u-3": "1"})
		b.settled(o, nil)
	})
}

// TestSettledWithoutAGate: only the stream is left of a gate. Nothing else may come into being.
func TestSettledWithoutAGate(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		b.admit(attempt(o, "u-1", 1))
		entries := b.read(b.gate, o.ID)
		must(b, b.client.Del(b.Context(), gateKey(o.ID), unitsKey(o.ID)))
		b.settled(o, entries, model.Outcome{Verdict: model.LimitReached})
		b.want(o, model.GateState{})
		b.wantUnits(o, map[string]string{})
	})
}

// TestHole13_FailedAttemptGivesItsUnitBackOnce: the same refusal is brought to the gate again and again, by the
// consumer that settled it and by one that claimed it meanwhile.
func TestHole13_FailedAttemptGivesItsUnitBackOnce(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		b.admit(attempt(o, "u-1", 1))
		b.admit(attempt(o, "u-2", 1))
		entries := b.read(b.gate, o.ID)
		other := b.instance("there")
		claimed, _, err := other.Claim(b.Context(), o.ID, 0, 10)
		if err != nil || len(claimed) != 2 {
			b.Fatalf("claimed %v, %v", claimed, err)
		}
		refused := []model.Outcome{{Verdict: model.LimitReached}}
		for range 3 {
			b.settled(o, entries[:1], refused...)
			if err := other.Settled(b.Context(), o.ID, claimed[:1], refused); err != nil {
				b.Fatal(err)
			}
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1})
		b.wantUnits(o, map[string]string{"u-2": "1"})
	})
}

// TestUnsettled: of entries that came another way than by the stream, those count that the stream still has, each once,
// and nobody claims them meanwhile.
func TestUnsettled(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		for i := range 4 {
			b.admit(attempt(o, fmt.Sprint("u-", i), 1))
		}
		there := b.instance("there")
		entries, _, err := there.Read(ctx, o.ID, 3) // the fourth is new, and nobody's
		if err != nil || len(entries) != 3 {
			b.Fatalf("%v, %v", entries, err)
		}
		b.settled(o, entries[:1], model.Outcome{Verdict: model.Accepted})
		b.idle(o, "there", entries[1].StreamID, time.Hour)
		asked := slices.Concat(entries, b.entries(o)[2:], entries)
		got, err := b.gate.Unsettled(ctx, o.ID, asked)
		if err != nil || !slices.Equal(got, entries[1:]) {
			b.Errorf("unsettled are %v, %v; want %v", got, err, entries[1:])
		}
		if claimed, _, err := there.Claim(ctx, o.ID, time.Minute, 10); err != nil || len(claimed) != 0 {
			b.Errorf("claimed what is being settled: %v, %v", claimed, err)
		}
		b.settled(o, entries[1:], model.Outcome{Verdict: model.Accepted}, model.Outcome{Verdict: model.Accepted})
		if got, err := b.gate.Unsettled(ctx, o.ID, entries); err != nil || len(got) != 0 {
			b.Errorf("unsettled after all are settled: %v, %v", got, err)
		}
		must(b, b.client.Del(ctx, streamKey(o.ID)))
		if got, err := b.gate.Unsettled(ctx, o.ID, entries); err != nil || len(got) != 0 {
			b.Errorf("unsettled without a stream: %v, %v", got, err)
		}
	})
}

// TestOwn: an instance finds what it has taken and nobody has settled; not what is new, or another's.
func TestOwn(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		o := b.open(offer())
		if got, _, err := b.gate.Own(ctx, o.ID, 10); err != nil || len(got) != 0 {
			b.Errorf("own of an empty stream: %v, %v", got, err)
		}
		for i := range 5 {
			b.admit(attempt(o, fmt.Sprint("u-", i), 1))
		}
		mine, _, err := b.gate.Read(ctx, o.ID, 3)
		if err != nil {
			b.Fatal(err)
		}
		others, _, err := b.instance("there").Read(ctx, o.ID, 1)
		if err != nil || len(others) != 1 {
			b.Fatalf("%v, %v", others, err)
		}
		b.settled(o, mine[:1], model.Outcome{Verdict: model.Accepted})
		if got, bad, err := b.gate.Own(ctx, o.ID, 10); err != nil || len(bad) != 0 || !slices.Equal(got, mine[1:]) {
			b.Errorf("own are %v, %q, %v; want %v", got, bad, err, mine[1:])
		}
		if got, _, err := b.gate.Own(ctx, o.ID, 1); err != nil || !slices.Equal(got, mine[1:2]) {
			b.Errorf("the oldest of the own is %v, %v; want %v", got, err, mine[1])
		}
		if got, _, err := b.gate.Own(ctx, model.NewSaleID(), 10); err != nil || len(got) != 0 {
			b.Errorf("own without a stream: %v, %v", got, err)
		}
	})
}
