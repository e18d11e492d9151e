package gate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// TestBatchIsAsOneByOne sends random attempts in one batch to one gate, and one by one to another: with users and ids
// that occur twice, all kinds of quantities, and counters that reach their limit. Both gates answer and end alike, also if
// there is no gate.
func TestBatchIsAsOneByOne(t *testing.T) {
	eachRedis(t, func(b *bench) {
		for seed := range uint64(30) {
			random := rand.New(rand.NewPCG(seed, 1))
			together, alone := offer(), offer()
			for _, o := range []*model.Offer{&together, &alone} {
				o.Stock.Available, o.LimitPerUser = int64(5+seed), 3
				if seed%5 > 0 {
					b.open(*o)
				}
			}
			var batch []model.Attempt
			for range 1 + random.IntN(60) {
				a := attemptUnder(together, fmt.Sprint("u-", random.IntN(12)), random.IntN(5), fmt.Sprint("key-", random.IntN(20)))
				a.Frequency, a.LeastEpoch = model.Frequency{Limit: random.IntN(8), Window: time.Hour}, 1
				batch = append(batch, a)
			}
			got := b.judgeAll(batch)
			for i, a := range batch {
				a.ID, a.SaleID = ids.Derive(a.UserID, alone.ID, a.IdempotencyKey), alone.ID
				want := b.judge(a, 1)
				if (got[i].RetryAfter > 0) == (want.RetryAfter > 0) { // the time that passed in between differs
					got[i].RetryAfter = want.RetryAfter
				}
				if got[i] != want {
					b.Fatalf("seed %d, attempt %d, %+v: in a batch %+v, alone %+v", seed, i, a, got[i], want)
				}
			}
			check.Same(b, fmt.Sprint("the gate, seed ", seed), b.peek(together), b.peek(alone))
			check.Same(b, fmt.Sprint("the units of users, seed ", seed), b.units(together), b.units(alone))
			queued := func(o model.Offer) (list []string) {
				for _, e := range b.read(o, all) {
					list = append(list, fmt.Sprint(e.UserID, e.IdempotencyKey, e.Quantity))
				}
				return list
			}
			check.Same(b, fmt.Sprint("the entries, seed ", seed), queued(together), queued(alone))
		}
	})
}

// TestBatchOfSales: each sale judges the attempts of a mixed batch that are its own, also if Redis has lost the scripts.
// Damaged keys of one sale fail the attempts on this sale only.
func TestBatchOfSales(t *testing.T) {
	eachRedis(t, func(b *bench) {
		few, none := b.offer(), b.offer()
		few.Stock.Available = 1
		many, damaged := b.sale(), b.sale()
		b.open(few)
		must(b, b.client.Set(b.Context(), unitsKey(tag(damaged)), "no hash", 0))
		check.NoError(b, b.client.ScriptFlush(b.Context()).Err())
		first := attempt(many, "u-1", 1)
		batch := []model.Attempt{
			first, attempt(few, "u-1", 1), attempt(none, "u-1", 1), attempt(damaged, "u-1", 1),
			attempt(many, "u-2", 1), attempt(few, "u-2", 1), first,
		}
		var got []model.Outcome
		for i, answer := range b.gate.Admit(b.Context(), batch) {
			check.Same(b, fmt.Sprint("attempt ", i, " fails"), answer.Err != nil, i == 3)
			got = append(got, answer.Outcome)
		}
		noGate, again := model.Outcome{Verdict: model.NoGate}, model.Outcome{Verdict: model.Accepted, Repeated: true}
		check.Same(b, "the outcomes", got, []model.Outcome{accepted, accepted, noGate, {}, accepted, soldOut, again})
		check.Same(b, "the entries of a sale", len(b.read(many, all)), 2)
	})
}

// TestBatchOfShards: attempts of one shard are judged in their order, with the units of all shards, and each request is
// counted once.
func TestBatchOfShards(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2)) // 5 units in each shard
		var batch []model.Attempt
		for i := range 14 {
			a := attemptUnder(o, userAt(o, 1, i), 1, "key")
			a.Frequency = model.Frequency{Limit: 1, Window: time.Minute}
			batch = append(batch, a)
		}
		want := slices.Concat(slices.Repeat([]model.Outcome{accepted}, 10), slices.Repeat([]model.Outcome{soldOut}, 4))
		check.Same(b, "the outcomes", b.judgeAll(batch), want)
	})
}

// If a script fails at all of its gates, the client gets Redis's own error, by which it notices for example that the server has
// become a replica.
func TestErrorOfAllGates(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		must(b, b.client.Set(b.Context(), unitsKey(tag(o)), "damaged", 0))
		err := b.gate.Admit(b.Context(), []model.Attempt{attempt(o, "u-1", 1)})[0].Err
		if failed, ok := errors.AsType[redis.Error](err); !ok || !strings.Contains(failed.Error(), "WRONGTYPE") {
			b.Errorf("the error is %v, want Redis's own", err)
		}
	})
}
