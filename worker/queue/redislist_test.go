package queue

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// list is a queue on its own Redis, with a client for the test.
func list(t *testing.T) (*RedisList, *redis.Client) {
	t.Helper()
	client := kit.RedisClient(t, kit.Redis(t).URL())
	return NewRedisList(client, "here", slog.New(slog.DiscardHandler)), client
}

func must[T any](t *testing.T, cmd interface{ Result() (T, error) }) T {
	t.Helper()
	value, err := cmd.Result()
	check.NoError(t, err)
	return value
}

// The messages of a dead consumer go back in their order, in front of those that nobody has taken. Those of a living
// consumer stay with it.
func TestListsOfTheDeadGoBack(t *testing.T) {
	q, client := list(t)
	ctx := t.Context()
	saleID := model.NewSaleID()
	all := make([]model.Entry, 4)
	for i := range all {
		all[i] = entry(saleID, "u-1", fmt.Sprint("key-", i), i)
		check.NoError(t, q.Publish(ctx, saleID, all[i:i+1]))
	}
	for _, consumer := range []string{"dead", "dead", "living"} {
		check.NoError(t, q.beat(ctx, consumer))
		must(t, client.LMove(ctx, listKey(), takenKey(consumer), "RIGHT", "LEFT"))
	}
	must(t, client.Del(ctx, aliveKey("dead"))) // as when its lifetime is over
	check.NoError(t, q.beat(ctx, "living"))
	var order []string
	for _, message := range must(t, client.LRange(ctx, listKey(), 0, -1)) {
		e, err := decode([]byte(message))
		check.NoError(t, err)
		order = append(order, e.IdempotencyKey)
	}
	check.Same(t, "the queue from its head", order, []string{"key-3", "key-1", "key-0"})
	check.Same(t, "messages of the living consumer", must(t, client.LLen(ctx, takenKey("living"))), 1)
	check.Same(t, "the consumers", must(t, client.SMembers(ctx, consumersKey())), []string{"living"})
}

// A consumer renews its alive key while it settles, however long that takes.
func TestConsumersBeat(t *testing.T) {
	q, client := list(t)
	saleID := model.NewSaleID()
	check.NoError(t, q.Publish(t.Context(), saleID, []model.Entry{entry(saleID, "u-1", "key", 1)}))
	consumeUntil(t, q, func(string, []model.Entry) bool {
		must(t, client.PExpire(t.Context(), aliveKey("here-1"), lifetime/2))
		check.Eventually(t, "the key is renewed", func() bool { return must(t, client.PTTL(t.Context(), aliveKey("here-1"))) > lifetime/2 })
		return true
	})
	check.Same(t, "the consumers after their end", len(must(t, client.SMembers(t.Context(), consumersKey()))), 0)
}

// A message is in the consumer's own list, but the reply of the move was lost. The message is settled with the next ones,
// and not deleted with them unsettled.
func TestMovedUnseen(t *testing.T) {
	q, client := list(t)
	saleID := model.NewSaleID()
	unseen, next := entry(saleID, "u-1", "unseen", 1), entry(saleID, "u-1", "next", 2)
	must(t, client.LPush(t.Context(), takenKey("here-1"), encode(unseen)))
	check.NoError(t, q.Publish(t.Context(), saleID, []model.Entry{next}))
	var got []model.Entry
	consumeUntil(t, q, func(_ string, entries []model.Entry) bool {
		got = entries
		return true
	})
	check.Same(t, "the settled entries", got, []model.Entry{unseen, next})
}

// The list of dead letters has a maximum length, and every key that the queue writes expires.
func TestDeadLettersAreCapped(t *testing.T) {
	q, client := list(t)
	for i := range deadMost + batchMost {
		must(t, client.LPush(t.Context(), listKey(), fmt.Sprint("bad ", i)))
	}
	saleID := model.NewSaleID()
	check.NoError(t, q.Publish(t.Context(), saleID, []model.Entry{entry(saleID, "u-1", "key", 1)}))
	var taken time.Duration
	consumeUntil(t, q, func(string, []model.Entry) bool {
		taken = must(t, client.TTL(t.Context(), takenKey("here-1")))
		return true
	})
	dead := must(t, client.LRange(t.Context(), deadListKey(), 0, -1))
	if want := fmt.Sprint("bad ", deadMost+batchMost-1); len(dead) != deadMost || dead[0] != want {
		t.Errorf("%d dead letters, the last is %q, want %q", len(dead), dead[0], want)
	}
	if taken <= 0 || taken > listTTL {
		t.Errorf("a consumer's list ends in %s", taken)
	}
	for _, key := range must(t, client.Keys(t.Context(), "*")) {
		if ttl := must(t, client.TTL(t.Context(), key)); ttl < 0 {
			t.Errorf("%s does not expire", key)
		}
	}
}
