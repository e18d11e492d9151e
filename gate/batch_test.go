package gate

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"flashsale/model"
)

// TestBatchIsAsOneByOne: what a batch of attempts gets and leaves is what the same attempts get and leave one after the
// other: with users and ids that come twice, quantities of all kinds, and counters that run full.
func TestBatchIsAsOneByOne(t *testing.T) {
	eachRedis(t, func(b *bench) {
		for seed := range uint64(30) {
			random := rand.New(rand.NewPCG(seed, 1))
			together, alone := offer(), offer()
			for _, o := range []*model.Offer{&together, &alone} {
				o.Stock.Available, o.LimitPerUser = int64(5+seed), 3
				b.open(*o)
			}
			var batch []model.Attempt
			for range 1 + random.IntN(60) {
				a := attemptUnder(together, "u-"+strconv.Itoa(random.IntN(12)), random.IntN(5), "key-"+strconv.Itoa(random.IntN(20)))
				a.Frequency = model.Frequency{Limit: random.IntN(8), Window: time.Hour}
				batch = append(batch, a)
			}
			got, err := b.gate.Admit(b.Context(), together.ID, batch, 1)
			if err != nil {
				b.Fatal(err)
			}
			for i, a := range batch {
				a.ID, a.SaleID = ids.Derive(a.UserID, alone.ID, a.RequestKey), alone.ID
				want, err := admitOne(b.Context(), b.gate, a, 1)
				if err != nil {
					b.Fatal(err)
				}
				later := got[i].RetryAfter > 0 == (want.RetryAfter > 0) // the times differ by what passed in between
				got[i].RetryAfter = want.RetryAfter
				if got[i] != want || !later {
					b.Fatalf("seed %d, attempt %d, %+v: %+v, alone %+v", seed, i, a, got[i], want)
				}
			}
			states, err := b.gate.Peek(b.Context(), together.ID, alone.ID)
			if err != nil || states[0] != states[1] {
				b.Errorf("seed %d: the gates are %+v, %v", seed, states, err)
			}
			if a, c := b.units(together), b.units(alone); !maps.Equal(a, c) {
				b.Errorf("seed %d: the users hold %v, alone %v", seed, a, c)
			}
			queued := func(o model.Offer) (list []string) {
				for _, e := range b.read(b.gate, o.ID) {
					list = append(list, e.UserID+" "+e.RequestKey+" "+strconv.Itoa(e.Quantity)+" "+e.RequestHash)
				}
				return list
			}
			if a, c := queued(together), queued(alone); !slices.Equal(a, c) {
				b.Errorf("seed %d: queued are %q, alone %q", seed, a, c)
			}
		}
	})
}

// TestBatchWithoutGate: nobody is admitted, but requests are counted.
func TestBatchWithoutGate(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		f := model.Frequency{Limit: 1, Window: time.Hour}
		var batch []model.Attempt
		for _, user := range []string{"u-1", "u-1", "u-2"} {
			a := attempt(o, user, 1)
			a.Frequency = f
			batch = append(batch, a)
		}
		got, err := b.gate.Admit(b.Context(), o.ID, batch, 0)
		if err != nil || got[0].Verdict != model.NoGate || got[1].Verdict != model.TooFrequent || got[2].Verdict != model.NoGate {
			b.Errorf("%+v, %v", got, err)
		}
		if n := must(b, b.client.Exists(b.Context(), gateKey(o.ID), streamKey(o.ID), idsKey(o.ID), unitsKey(o.ID))); n != 0 {
			b.Errorf("%d keys were made", n)
		}
	})
}

// TestBatchOfTheLargest that callers make fits into one call.
func TestBatchOfTheLargest(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offer()
		o.Stock.Available = 1000
		b.open(o)
		batch := make([]model.Attempt, 512)
		for i := range batch {
			batch[i] = attemptUnder(o, "u-"+strconv.Itoa(i), 1, "key")
		}
		got, err := b.gate.Admit(b.Context(), o.ID, batch, 1)
		if err != nil || slices.ContainsFunc(got, func(o model.Outcome) bool { return !o.Queued() }) {
			b.Fatal(err)
		}
		if entries := b.read(b.gate, o.ID); len(entries) != len(batch) {
			b.Errorf("%d entries", len(entries))
		}
	})
}
