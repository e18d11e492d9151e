package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// admitted sends attempts of one unit by n users.
func (b *bench) admitted(o model.Offer, n int) (attempts []model.Attempt) {
	b.Helper()
	for i := range n {
		attempts = append(attempts, attempt(o, fmt.Sprint("u-", i), 1))
	}
	b.admitAll(attempts)
	return attempts
}

// TestNoStreamIsNoError: a Redis that has lost its data has no entries.
func TestNoStreamIsNoError(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.offer()
		for name, entries := range map[string][]model.Entry{
			"read": b.read(o, all), "claim": b.claim(o, 0, all), "own": b.own(o, all),
			"unsettled": b.unsettled(o, []model.Entry{{Attempt: attempt(o, "u-1", 1), StreamID: "1-1"}}),
		} {
			check.Same(b, "the entries of "+name, len(entries), 0)
		}
		if lengths, err := b.gate.StreamLengths(b.Context(), o.GateRef()); err != nil || !slices.Equal(lengths, make([]int64, b.shards)) {
			b.Errorf("the lengths are %v, %v", lengths, err)
		}
	})
}

// TestStreamLostAlone: only the stream of a gate is lost, and the next attempt creates it again, without a consumer
// group. Its entry must be read all the same, since its buyer waits.
func TestStreamLostAlone(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		for _, tag := range tagsOf(o.GateRef()) {
			must(b, b.client.Del(b.Context(), streamKey(tag)))
		}
		a := attempt(o, "u-1", 1)
		b.admit(a)
		if got := b.read(o, all); len(got) != 1 || got[0].Attempt != a {
			b.Errorf("read %v, want %v", got, a)
		}
	})
}

// setIdle makes an entry look as if its consumer had not touched it for so long.
func (b *bench) setIdle(e model.Entry, consumer string, d time.Duration) {
	b.Helper()
	stream := streamKey(home(e.GateRef(), e.UserID))
	check.NoError(b, b.client.Do(b.Context(), "XCLAIM", stream, group, consumer, 0, e.StreamID, "IDLE", d.Milliseconds(), "JUSTID").Err())
}

func TestClaimTakesEntriesOfDeadInstances(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admitted(o, 3)
		left := b.as("dead").read(o, all)
		fresh := b.admitted(o, 1)
		if len(left) != 3 {
			b.Fatalf("the dead instance has read %v", left)
		}
		check.Same(b, "entries claimed too early", len(b.claim(o, time.Hour, all)), 0)
		b.setIdle(left[0], "dead", 2*time.Hour)
		got := b.claim(o, time.Hour, all)
		if len(got) != 1 || got[0].Attempt != left[0].Attempt {
			b.Fatalf("claimed %v, want %v", got, left[0])
		}
		check.Same(b, "entries claimed again at once", len(b.claim(o, time.Hour, all)), 0)
		if got := b.read(o, all); len(got) != 1 || got[0].Attempt != fresh[0] {
			b.Errorf("read %v, want the entry that no instance had", got)
		}
	})
}

func TestClaimIsBoundedAndCountsDeliveries(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.sale()
		b.admitted(o, 5)
		b.as("dead").read(o, all)
		for i, tc := range []struct {
			by    *bench
			count int
			want  []int64
		}{{b, 3, []int64{2, 2, 2}}, {b.as("there"), all, []int64{3, 3, 3, 2, 2}}, {b, all, []int64{4, 4, 4, 3, 3}}} {
			var deliveries []int64
			for _, e := range tc.by.claim(o, 0, tc.count) {
				deliveries = append(deliveries, e.Deliveries)
			}
			check.Same(b, fmt.Sprint("how often the entries of claim ", i, " were delivered"), deliveries, tc.want)
		}
	})
}

// TestBadEntries: an entry that can't be settled is deleted and reported, in every way in which entries are read.
func TestBadEntries(t *testing.T) {
	for _, way := range []string{"read", "claim", "rebuild"} {
		t.Run(way, func(t *testing.T) {
			eachGate(t, func(b *bench) {
				o := b.sale()
				good := attempt(o, "u-1", 1)
				stream, hash := streamKey(home(o.GateRef(), "u-1")), good.RequestHash
				foreign := ids.Derive("u-1", model.NewSaleID(), "key")
				fields := []string{good.ID, "u-1", "1", hash, "1", "here", "key"}
				texts := map[string]string{} // by stream id
				add := func(name string, fields ...string) {
					text := strings.Join(fields, " ")
					texts[must(b, b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream, Values: []string{name, text}}))] = text
				}
				add("x", fields...)
				for _, length := range []int{0, 1, 2, 6} {
					add("attempt", fields[:length]...)
				}
				for field, values := range map[int][]string{
					0: {"", o.ID, foreign},
					1: {"", "u 1"},
					2: {"0", "-1", "1.5", "one", "99999999999999999999"},
					3: {""},
					4: {"", "first"},
					6: {""},
				} {
					for _, value := range values {
						add("attempt", slices.Replace(slices.Clone(fields), field, field+1, value)...)
					}
				}
				b.admit(good)

				var entries []model.Entry
				var bad []string
				var err error
				switch way {
				case "read":
					entries, bad, err = b.gate.Read(b.Context(), o.GateRef(), all)
				case "claim":
					args := &redis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{stream, ">"}}
					must(b, b.client.XReadGroup(b.Context(), args))
					entries, bad, err = b.gate.Claim(b.Context(), o.GateRef(), 0, all)
				case "rebuild":
					var lengths []int64
					lengths, err = b.gate.StreamLengths(b.Context(), o.GateRef())
					check.NoError(b, err)
					bad, err = b.gate.Install(b.Context(), 2, lengths, kit.ContentsOf(o))
					entries = b.entries(o)
				}
				if err != nil || len(entries) != 1 || entries[0].Attempt != good {
					b.Errorf("the entries are %+v, %v, want the good one", entries, err)
				}
				for _, text := range bad {
					id, _, _ := strings.Cut(text, " ")
					delete(texts, id)
				}
				check.Same(b, "entries that are not reported", texts, map[string]string{})
				check.Same(b, "the length of the stream", must(b, b.client.XLen(b.Context(), stream)), 1)
			})
		})
	}
}

// An install reads every page of a stream of which the database knows some entries.
func TestHole53_InstallReadsEveryPage(t *testing.T) {
	eachRedis(t, func(b *bench) {
		const n = 2*page + 7
		o := offer()
		o.Stock.Available, o.LimitPerUser = 3000, 3000
		b.open(o)
		attempts := make([]model.Attempt, n)
		for i := range attempts {
			attempts[i] = attemptUnder(o, "u-1", 1, fmt.Sprint("key-", i))
		}
		b.admitAll(attempts)
		c := kit.ContentsOf(o)
		for i, a := range attempts {
			if i%page == 2 {
				c.Requests[a.ID] = request(a)
				c.Units["u-1"]++
				c.Of.Stock.Available--
			}
		}
		c.Units["u-2"] = 1
		b.install(2, c)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 3000 - n, Inflight: n - 3, Stream: n - 3})
		b.wantUnits(o, map[string]int{"u-1": n, "u-2": 1})
		settled := func(e model.Entry) bool { return e.IdempotencyKey == "key-2" }
		if got := b.read(o, all); len(got) != all || slices.ContainsFunc(got, settled) {
			b.Errorf("read %d entries, want %d without the settled one", len(got), all)
		}
	})
}

// TestSettledCredits shows what the gate gets back for each outcome, and that a second call gives nothing back.
func TestSettledCredits(t *testing.T) {
	order := &model.Order{ID: "any"}
	eachGate(t, func(b *bench) {
		for _, tc := range []struct {
			outcome model.Outcome
			left    int64 // of 10 units, after 2 were admitted
			units   map[string]int
		}{
			{model.Outcome{Verdict: model.Accepted, Order: order}, 8, map[string]int{"u-1": 2}},
			{model.Outcome{Verdict: model.Accepted, Order: order, Repeated: true}, 8, map[string]int{"u-1": 2}},
			{soldOut, 8, map[string]int{}},
			{model.Outcome{Verdict: model.SoldOut, Repeated: true}, 8, map[string]int{}},
			{limitReached, 10, map[string]int{}},
			{model.Outcome{Verdict: model.NotFound}, 10, map[string]int{}},
			{model.Outcome{Verdict: model.ReasonFailed}, 10, map[string]int{}},
			{mismatch, 10, map[string]int{}},
		} {
			o := b.sale()
			b.admit(attempt(o, "u-1", 2))
			entries := b.read(o, all)
			for _, times := range []string{"once", "twice"} {
				b.settle(o, entries, tc.outcome)
				want := model.GateState{Exists: true, Open: true, Epoch: 1, Left: tc.left}
				check.Same(b, fmt.Sprintf("the gate after %+v, %s", tc.outcome, times), b.peek(o), want)
				b.wantUnits(o, tc.units)
			}
			pending := must(b, b.client.XPending(b.Context(), streamKey(home(o.GateRef(), "u-1")), group))
			check.Same(b, fmt.Sprintf("unacknowledged entries after %+v", tc.outcome), pending.Count, 0)
		}
	})
}

// TestSettledBatch settles entries with several outcomes, of which one was settled before.
func TestSettledBatch(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		outcomes := map[string]model.Outcome{"a": soldOut, "b": accepted, "c": limitReached, "d": accepted}
		for _, user := range []string{"a", "b", "c", "d", "d"} {
			b.admit(attempt(o, user, 1))
		}
		var entries []model.Entry
		var list []model.Outcome
		for _, e := range b.read(o, all) {
			if e.UserID == "b" {
				b.settle(o, []model.Entry{e}, accepted)
			}
			entries, list = append(entries, e), append(list, outcomes[e.UserID])
		}
		b.settle(o, entries, list...)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 6})
		b.wantUnits(o, map[string]int{"b": 1, "d": 2})
		b.settle(o, nil)
	})
}

// TestSettledWithoutAGate: only the stream of a gate exists. To settle its entries creates no other key.
func TestSettledWithoutAGate(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admit(attempt(o, "u-1", 1))
		entries := b.read(o, all)
		for _, tag := range tagsOf(o.GateRef()) {
			must(b, b.client.Del(b.Context(), gateKey(tag), unitsKey(tag)))
		}
		b.settle(o, entries, limitReached)
		b.want(o, model.GateState{})
		b.wantUnits(o, map[string]int{})
	})
}

// TestUnsettled: of entries that a queue has delivered, those are settled that the stream still has, each once, and no
// other instance claims them meanwhile.
func TestUnsettled(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.sale()
		b.admitted(o, 4)
		there := b.as("there")
		entries := there.read(o, 3) // no instance has the fourth
		b.settle(o, entries[:1], accepted)
		b.setIdle(entries[1], "there", time.Hour)
		check.Same(b, "the unsettled entries", b.unsettled(o, slices.Concat(entries, b.entries(o)[2:], entries)), entries[1:])
		check.Same(b, "entries claimed although another instance settles them", len(there.claim(o, time.Minute, all)), 0)
		b.settle(o, entries[1:], accepted)
		check.Same(b, "unsettled entries after all are settled", len(b.unsettled(o, entries)), 0)
	})
}

// TestReadAndOwn: each entry is read once, in the order of the stream. An instance finds the entries that it has read and
// that are not settled.
func TestReadAndOwn(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.sale()
		attempts := b.admitted(o, 5)
		mine := b.read(o, 3)
		for i, e := range slices.Concat(mine, b.as("there").read(o, 1), b.as("elsewhere").read(o, all)) {
			check.Same(b, fmt.Sprint("entry ", i), e.Attempt, attempts[i])
		}
		check.Same(b, "entries of at most 3", len(mine), 3)
		b.settle(o, mine[:1], accepted)
		check.Same(b, "own entries", b.own(o, all), mine[1:])
		check.Same(b, "the oldest own entry", b.own(o, 1), mine[1:2])
	})
}
