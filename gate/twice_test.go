package gate

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
)

// twice sends every script a second time, as a client does whose first reply was lost, and tells what the second run
// answered.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(*redis.Cmd)
		if name := cmd.Name(); !ok || name != "evalsha" && name != "eval" {
			return next(ctx, cmd)
		}
		if err := next(ctx, redis.NewCmd(ctx, script.Args()...)); err != nil {
			script.SetErr(err)
			return err
		}
		return next(ctx, script)
	}
}

// TestHole54_ScriptsRunTwice plays one story of purchases, settles, releases and rebuilds to two gates. The scripts of one run
// twice each, and it answers and ends as the other.
func TestHole54_ScriptsRunTwice(t *testing.T) {
	for _, parts := range []int{1, 4} {
		t.Run(fmt.Sprint(parts, " parts"), func(t *testing.T) {
			b := newBench(t, kit.Redis(t).URL())
			again := &bench{T: t, url: b.url, client: b.client, gate: b.instance("again")}
			again.gate.client.AddHook(twice{})
			one, two := newTeller(b, parts), newTeller(again, parts)
			dice := rand.New(rand.NewPCG(1, uint64(parts)))
			for i := range 300 {
				step := byte(dice.IntN(256))
				x, y := one.tell(step), two.tell(step)
				if a, c := b.peek(one.offer.ID), b.peek(two.offer.ID); x != y || a != c {
					t.Fatalf("step %d (%#x): once says %s and is %+v, twice says %s and is %+v", i, step, x, a, y, c)
				}
			}
			if x, y := b.unitsOf(one.offer), b.unitsOf(two.offer); !maps.Equal(x, y) || len(x) == 0 {
				t.Errorf("the units of users are %v once, %v twice", x, y)
			}
			if x, y := one.sellOut(), two.sellOut(); x != y {
				t.Errorf("once sells %d more, twice %d", x, y)
			}
		})
	}
}

// TestAdmittedTwiceIsNotTooFrequent: a user's last allowed request is admitted, the reply is lost, and the client sends the
// script again. The user must not hear that the request came too soon, for there will be an order.
func TestAdmittedTwiceIsNotTooFrequent(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offer())
		g := b.instance("again")
		g.client.AddHook(twice{})
		a := attempt(o, "u-1", 1)
		a.Frequency = model.Frequency{Limit: 1, Window: time.Minute}
		if got, err := admitOne(b.Context(), g, a, 1); err != nil || got.Verdict != model.Accepted {
			b.Errorf("%+v, %v", got, err)
		}
		if got, err := admitOne(b.Context(), g, a, 1); err != nil || got.Verdict != model.TooFrequent {
			b.Errorf("again and again: %+v, %v", got, err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1})
	})
}
