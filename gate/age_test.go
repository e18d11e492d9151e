package gate

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The age is that of the oldest entry of all sales, taken or not, and by Redis's clock.
func TestQueueAge(t *testing.T) {
	eachRedis(t, func(b *bench) {
		old, young := b.open(offerIn(3)), b.open(offer())
		age := func() time.Duration {
			b.Helper()
			age, err := b.gate.QueueAge(b.Context(), young.ID, old.ID)
			if err != nil {
				b.Fatal(err)
			}
			return age
		}
		if got := age(); got != 0 {
			b.Errorf("of an empty queue %s", got)
		}
		b.admit(attempt(young, "ann", 1))
		if got := age(); got < 0 || got > patience {
			b.Errorf("of a new entry %s", got)
		}
		now, err := b.client.Time(b.Context()).Result()
		if err != nil {
			b.Fatal(err)
		}
		hour := &redis.XAddArgs{Stream: streamKey(tagOf(old.ID, 2, 3)), ID: fmt.Sprintf("%d-0", now.Add(-time.Hour).UnixMilli()), Values: []string{"attempt", "x"}}
		if err := b.client.XAdd(b.Context(), hour).Err(); err != nil {
			b.Fatal(err)
		}
		if got := age(); got < time.Hour || got > time.Hour+patience {
			b.Errorf("of an entry of an hour ago %s", got)
		}
		_ = b.client.Close()
		if _, err := b.gate.QueueAge(b.Context(), old.ID); err == nil {
			b.Error("no error without a Redis")
		}
	})
}
