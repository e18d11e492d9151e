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
		check.Same(b, "the entries", len(b.read(o, all)), 0)
		check.Same(b, "the unsettled entries", len(b.unsettled([]model.Entry{{Attempt: attempt(o, "u-1", 1), StreamID: "1-1"}})), 0)
		if lengths, err := b.gate.StreamLengths(b.Context(), o.GateRef()); err != nil || !slices.Equal(lengths, make([]int64, b.shards)) {
			b.Errorf("the lengths are %v, %v", lengths, err)
		}
	})
}

// TestLeftovers: the oldest entries are found, in their order and at most so many of each shard, if they are old enough by
// Redis's clock. An attempt that is admitted comes with the same entry.
func TestLeftovers(t *testing.T) {
	eachGate(t, func(b *bench) {
		o, other := b.sale(), b.sale()
		old := attempt(o, "u-1", 1)
		text := fmt.Sprintf("%s u-1 1 1 dead %s", old.ID, old.IdempotencyKey)
		stream := streamKey(home(o.GateRef(), "u-1"))
		check.NoError(b, b.client.Do(b.Context(), "XADD", stream, "7-7", "attempt", text).Err())
		want := []model.Entry{{Attempt: old, StreamID: "7-7", Epoch: 1, Instance: "dead"}}
		for range 2 {
			answer := b.gate.Admit(b.Context(), []model.Attempt{attempt(o, "u-1", 1)})[0]
			check.NoError(b, answer.Err)
			want = append(want, *answer.Entry)
		}
		b.admit(attempt(other, "u-1", 1))
		check.Same(b, "the old entries", b.leftovers(time.Hour, all, o, other), want[:1])
		check.Same(b, "the oldest two", b.leftovers(0, 2, o), want[:2])
		check.Same(b, "the entries", b.leftovers(0, all, o), want)
		check.Same(b, "the number of entries of both sales", len(b.leftovers(0, all, o, other)), 4)
		check.Same(b, "the entries of no sale", len(b.leftovers(0, all)), 0)
	})
}

// TestBadEntries: an entry that can't be settled is deleted and reported, in every way in which entries are read.
func TestBadEntries(t *testing.T) {
	for _, way := range []string{"sweep", "rebuild"} {
		t.Run(way, func(t *testing.T) {
			eachGate(t, func(b *bench) {
				o := b.sale()
				good := attempt(o, "u-1", 1)
				stream := streamKey(home(o.GateRef(), "u-1"))
				foreign := ids.Derive("u-1", model.NewSaleID(), "key")
				fields := []string{good.ID, "u-1", "1", "1", "here", "key"}
				texts := map[string]string{} // by stream id
				add := func(name string, fields ...string) {
					text := strings.Join(fields, " ")
					texts[must(b, b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream, Values: []string{name, text}}))] = text
				}
				add("x", fields...)
				for _, length := range []int{0, 1, 2, 5} {
					add("attempt", fields[:length]...)
				}
				for field, values := range map[int][]string{
					0: {"", o.ID, foreign},
					1: {"", "ü"},
					2: {"0", "-1", "1.5", "one", "99999999999999999999"},
					3: {"", "first"},
					5: {""},
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
				case "sweep":
					var unread map[string][]string
					entries, unread, err = b.gate.Leftovers(b.Context(), []model.GateRef{o.GateRef()}, 0, all)
					bad = unread[o.ID]
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
				c.Quantities[a.ID] = a.Quantity
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
				b.settle(entries, tc.outcome)
				want := model.GateState{Exists: true, Open: true, Epoch: 1, Left: tc.left}
				check.Same(b, fmt.Sprintf("the gate after %+v, %s", tc.outcome, times), b.peek(o), want)
				b.wantUnits(o, tc.units)
			}
			check.Same(b, fmt.Sprintf("entries left after %+v", tc.outcome), len(b.entries(o)), 0)
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
				b.settle([]model.Entry{e}, accepted)
			}
			entries, list = append(entries, e), append(list, outcomes[e.UserID])
		}
		b.settle(entries, list...)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 6})
		b.wantUnits(o, map[string]int{"b": 1, "d": 2})
		b.settle(nil)
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
		b.settle(entries, limitReached)
		b.want(o, model.GateState{})
		b.wantUnits(o, map[string]int{})
	})
}

// TestUnsettled: of entries in memory, those are settled that the stream still has, each once.
func TestUnsettled(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		b.admitted(o, 4)
		entries := b.read(o, all)
		b.settle(entries[:1], accepted)
		check.Same(b, "the unsettled entries", len(b.unsettled(slices.Concat(entries, entries))), 3)
		b.settle(entries[1:], accepted)
		check.Same(b, "unsettled entries after all are settled", len(b.unsettled(entries)), 0)
	})
}
