package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// twice sends every script two times, like a client whose first reply was lost, and returns the second answer.
func twice(ctx context.Context, script *redis.Cmd, run redis.ProcessHook) error {
	if err := run(ctx, redis.NewCmd(ctx, script.Args()...)); err != nil {
		script.SetErr(err)
		return err
	}
	return run(ctx, script)
}

// TestHole54_ScriptsRunTwice plays one story to two gates. The scripts of one run twice: it answers and ends as the other.
func TestHole54_ScriptsRunTwice(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			b := newBench(t, kit.Redis(t).URL())
			b.shards = shards
			again := b.as("again")
			again.client.AddHook(scriptHook(twice))
			dice, steps := rand.New(rand.NewPCG(1, uint64(shards))), make([]byte, 300)
			for i := range steps {
				steps[i] = byte(dice.IntN(256))
			}
			once := newStory(b, b.offer())
			compare(t, once, newStory(again, b.offer()), steps)
			if len(b.units(once.offer)) == 0 {
				t.Error("no user has units in the end")
			}
		})
	}
}

// TestAdmittedTwiceIsNotTooFrequent: a user's last allowed request is admitted, and the script runs again because its
// reply was lost. The answer must not be too_frequent, since the user will have an order.
func TestAdmittedTwiceIsNotTooFrequent(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.sale()
		again := b.as("again")
		again.client.AddHook(scriptHook(twice))
		a := attempt(o, "u-1", 1)
		a.Frequency = model.Frequency{Limit: 1, Window: time.Minute}
		check.Same(b, "the first request, sent twice", again.judge(a, 1).Verdict, model.Accepted)
		check.Same(b, "the second request, sent twice", again.judge(a, 1).Verdict, model.TooFrequent)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1})
	})
}

// TestSettledTwiceIsNotLost: the second run of the script finds no entry, because the first run has deleted the entry. So
// the gate is not reported, since it has admitted the entry. A gate that was installed later may not know the order.
func TestSettledTwiceIsNotLost(t *testing.T) {
	eachGate(t, func(b *bench) {
		o := b.sale()
		again := b.as("again")
		again.client.AddHook(scriptHook(twice))
		for _, user := range []string{"u-1", "u-2", "u-3"} {
			b.admit(attempt(o, user, 1))
		}
		entries := b.read(o, all)
		for _, e := range entries {
			lost, err := again.gate.Settled(b.Context(), []model.Entry{e}, []model.Outcome{accepted})
			if len(lost) != 0 || err != nil {
				b.Errorf("the gates of lost entries are %v, %v", lost, err)
			}
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 7})
		for epoch := int64(2); epoch <= 3; epoch++ { // closed for a newer gate, then with the newer gate
			check.Same(b, "closed", b.close(o, epoch), true)
			if epoch == 3 {
				b.install(epoch, kit.ContentsOf(o))
			}
			lost, err := again.gate.Settled(b.Context(), entries[:1], []model.Outcome{accepted})
			if len(lost) != 1 || err != nil {
				b.Errorf("without its entry, the gates of lost entries are %v, %v", lost, err)
			}
		}
	})
}
