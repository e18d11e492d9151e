package gate

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestQueueAge: the age is that of the oldest entry in all shards of all sales, by Redis's clock.
func TestQueueAge(t *testing.T) {
	eachRedis(t, func(b *bench) {
		old, young := b.open(offerIn(3)), b.sale()
		wantAge := func(of string, least, most time.Duration) {
			b.Helper()
			age, err := b.gate.QueueAge(b.Context(), young.GateRef(), old.GateRef())
			if err != nil || age < least || age > most {
				b.Errorf("the age of %s is %s, %v", of, age, err)
			}
		}
		wantAge("an empty queue", 0, 0)
		b.admit(attempt(young, "ann", 1))
		wantAge("a new entry", 0, time.Minute)
		id := fmt.Sprintf("%d-0", must(b, b.client.Time(b.Context())).Add(-time.Hour).UnixMilli())
		stream := streamKey(tagsOf(old.GateRef())[2])
		must(b, b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: []string{"attempt", "x"}}))
		wantAge("an entry of an hour ago", time.Hour, time.Hour+time.Minute)
		_ = b.client.Close()
		if _, err := b.gate.QueueAge(b.Context(), old.GateRef()); err == nil {
			b.Error("no error without Redis")
		}
	})
}
