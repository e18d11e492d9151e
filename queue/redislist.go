package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

const (
	// listWait is how long Redis is asked to wait for a message: a stop waits no longer either.
	listWait = time.Second
	// listTimeout bounds that call on a Redis that hangs.
	listTimeout = 2 * listWait
	// beatPeriod and lifetime: a consumer that has been silent for several beats is dead.
	beatPeriod = time.Second
	lifetime   = 5 * beatPeriod
	// listTTL ends lists that nobody comes to any more. What they held has been settled without them long before.
	listTTL = time.Hour
	// deadTTL leaves time to look at the dead letters.
	deadTTL = 7 * 24 * time.Hour
)

// The keys have one hash tag, since messages move from list to list.

func listKey() string                 { return "fs:{queue}:attempts" }
func deadListKey() string             { return "fs:{queue}:dead" }
func consumersKey() string            { return "fs:{queue}:consumers" }
func takenKey(consumer string) string { return "fs:{queue}:taken:" + consumer }
func aliveKey(consumer string) string { return "fs:{queue}:alive:" + consumer }

// RedisList is a list: LPUSH at one end, and from the other each consumer moves messages to a list of its own, which it
// deletes when they are settled. The list of a consumer that died goes back to the queue. A plain BRPOP would lose what
// its consumer had in hand.
type RedisList struct {
	client    redis.UniversalClient
	instance  string
	log       *slog.Logger
	consumers atomic.Int64 // that this instance has had
}

// NewRedisList makes the queue of one instance. The client is the caller's to close.
func NewRedisList(client redis.UniversalClient, instance string, log *slog.Logger) *RedisList {
	return &RedisList{client: client, instance: instance, log: log}
}

// Publish appends entries. They are as safe as Redis keeps them.
func (q *RedisList) Publish(ctx context.Context, _ string, entries []model.Entry) error {
	messages := make([]any, len(entries))
	for i, e := range entries {
		messages[i] = encode(e)
	}
	pipe := q.client.Pipeline()
	pipe.LPush(ctx, listKey(), messages...)
	pipe.Expire(ctx, listKey(), listTTL)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("publish to the list: %w", err)
	}
	return nil
}

// Consume is that of worker.Queue.
func (q *RedisList) Consume(ctx context.Context, settle settleFunc) error {
	me := q.instance + "-" + strconv.FormatInt(q.consumers.Add(1), 10)
	if err := q.beat(ctx, me); err != nil {
		return err
	}
	beating, stop := context.WithCancel(ctx)
	var heart sync.WaitGroup
	heart.Go(func() { q.keepBeating(beating, me) })
	defer func() {
		stop()
		heart.Wait()
		q.leave(ctx, me)
	}()
	for ctx.Err() == nil {
		messages, err := q.take(ctx, me)
		if err != nil {
			return fmt.Errorf("take from the list: %w", err)
		}
		if len(messages) == 0 {
			continue
		}
		dead, err := handOn(ctx, messages, settle, q.log)
		if err != nil {
			return err
		}
		if err := q.done(ctx, me, messages, dead); err != nil {
			return fmt.Errorf("acknowledge to the list: %w", err)
		}
	}
	return nil
}

// take moves what is there to the consumer's own list, oldest first, and waits if there is nothing. None is no error.
func (q *RedisList) take(ctx context.Context, me string) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	err := q.client.BLMove(ctx, listKey(), takenKey(me), "RIGHT", "LEFT", listWait).Err()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	waiting, err := q.client.LLen(ctx, listKey()).Result()
	if err != nil {
		return nil, err
	}
	pipe := q.client.Pipeline()
	for range min(waiting, batchMost-1) {
		pipe.LMove(ctx, listKey(), takenKey(me), "RIGHT", "LEFT")
	}
	pipe.Expire(ctx, takenKey(me), listTTL)
	taken := pipe.LRange(ctx, takenKey(me), 0, -1) // and not what the moves say: a reply may be lost, and the move done
	_, _ = pipe.Exec(ctx)                          // gives the first error, which may be that another consumer was quicker
	texts, err := taken.Result()
	messages := make([][]byte, len(texts))
	for i, text := range texts {
		messages[len(texts)-1-i] = []byte(text)
	}
	return messages, err
}

// done forgets what was taken, and keeps the dead letters.
func (q *RedisList) done(ctx context.Context, me string, messages [][]byte, dead []int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
	defer cancel()
	pipe := q.client.TxPipeline()
	for _, i := range dead {
		pipe.LPush(ctx, deadListKey(), messages[i])
	}
	if len(dead) > 0 {
		pipe.LTrim(ctx, deadListKey(), 0, deadMost-1)
		pipe.Expire(ctx, deadListKey(), deadTTL)
	}
	pipe.Del(ctx, takenKey(me))
	_, err := pipe.Exec(ctx)
	return err
}

func (q *RedisList) keepBeating(ctx context.Context, me string) {
	ticker := time.NewTicker(beatPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = q.beat(ctx, me) // the consumer itself meets the same trouble, and tells of it
		}
	}
}

// beat shows that a consumer lives, and gives back what dead ones have left.
func (q *RedisList) beat(ctx context.Context, me string) error {
	pipe := q.client.Pipeline()
	pipe.Set(ctx, aliveKey(me), 1, lifetime)
	pipe.SAdd(ctx, consumersKey(), me)
	pipe.Expire(ctx, consumersKey(), listTTL)
	all := pipe.SMembers(ctx, consumersKey())
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("show that a consumer lives: %w", err)
	}
	for _, other := range all.Val() {
		alive, err := q.client.Exists(ctx, aliveKey(other)).Result()
		if err == nil && alive == 0 {
			err = q.giveBack(ctx, other)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// giveBack moves a consumer's list to the end of the queue that is taken from, in the order in which it came, and
// forgets the consumer.
func (q *RedisList) giveBack(ctx context.Context, consumer string) error {
	for { // nobody adds to it any more
		err := q.client.LMove(ctx, takenKey(consumer), listKey(), "LEFT", "RIGHT").Err()
		if errors.Is(err, redis.Nil) {
			break
		}
		if err != nil {
			return fmt.Errorf("give messages back to the list: %w", err)
		}
	}
	return q.client.SRem(ctx, consumersKey(), consumer).Err()
}

// leave gives back what is not settled. If Redis is away, others do it.
func (q *RedisList) leave(ctx context.Context, me string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listWait)
	defer cancel()
	if err := q.giveBack(ctx, me); err != nil {
		q.log.Debug("a consumer of the list leaves", "error", err)
	}
}

// Ping asks Redis for an answer.
func (q *RedisList) Ping(ctx context.Context) error { return q.client.Ping(ctx).Err() }

// Close does nothing: the client is the caller's.
func (*RedisList) Close() error { return nil }
