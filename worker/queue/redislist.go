package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// listWait is how long a BLMOVE blocks on an empty list, and so about how long a stop waits for an idle consumer.
	listWait = time.Second
	// listTimeout bounds the calls by which a consumer takes or acknowledges messages.
	listTimeout = 2 * listWait
	// A consumer renews its alive key every beatPeriod. When the key has expired, the consumer counts as dead.
	beatPeriod = time.Second
	lifetime   = 5 * beatPeriod
	// listTTL is how long unused lists are kept.
	listTTL = time.Hour
	// deadTTL is how long dead letters are kept after the last one.
	deadTTL = 7 * 24 * time.Hour
)

// All keys have the same hash tag, since on a Redis Cluster LMOVE needs both lists in one slot.

func listKey() string                 { return "fs:{queue}:attempts" }
func deadListKey() string             { return "fs:{queue}:dead" }
func consumersKey() string            { return "fs:{queue}:consumers" }
func takenKey(consumer string) string { return "fs:{queue}:taken:" + consumer }
func aliveKey(consumer string) string { return "fs:{queue}:alive:" + consumer }

// RedisList is a worker.Queue on a Redis list. Publish pushes messages on the left. Each consumer moves messages from the right
// end to a list of its own, which it deletes when they are settled. The messages of a dead consumer are moved back.
type RedisList struct {
	client    redis.UniversalClient
	instance  string
	log       *slog.Logger
	consumers atomic.Int64 // how many consumers this instance has started
}

// NewRedisList returns the queue of one instance. The caller closes the client.
func NewRedisList(client redis.UniversalClient, instance string, log *slog.Logger) *RedisList {
	return &RedisList{client: client, instance: instance, log: log}
}

// Publish implements worker.Queue. The messages are as durable as Redis is configured to make them.
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

// Consume implements worker.Queue.
func (q *RedisList) Consume(ctx context.Context, settle settleFunc) error {
	me := q.instance + "-" + strconv.FormatInt(q.consumers.Add(1), 10)
	if err := q.beat(ctx, me); err != nil {
		return err
	}
	beating, stop := context.WithCancel(ctx)
	var heart sync.WaitGroup
	heart.Go(func() {
		for pause.For(beating, beatPeriod) {
			_ = q.beat(beating, me) // if Redis is away, the calls of Consume fail, too
		}
	})
	defer func() {
		stop()
		heart.Wait()
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), listWait)
		defer cancel()
		if err := q.giveBack(leaving, me); err != nil { // another consumer moves the messages later
			q.log.Debug("a consumer of the list stops", "error", err)
		}
	}()
	for ctx.Err() == nil {
		messages, err := q.take(ctx, me)
		if err != nil {
			return fmt.Errorf("take from the list: %w", err)
		}
		if len(messages) == 0 {
			continue
		}
		_, dead, err := handOn(ctx, messages, func(text string) []byte { return []byte(text) }, settle, q.log)
		if err != nil {
			return err
		}
		if err := q.done(ctx, me, dead); err != nil {
			return fmt.Errorf("acknowledge to the list: %w", err)
		}
	}
	return nil
}

// take moves up to batchMost messages to the consumer's own list and returns that list, the oldest message first. It waits up to
// listWait for a message, and may return none.
func (q *RedisList) take(ctx context.Context, me string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := q.client.BLMove(ctx, listKey(), takenKey(me), "RIGHT", "LEFT", listWait).Err(); errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
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
	taken := pipe.LRange(ctx, takenKey(me), 0, -1) // all: a move may be done although its reply was lost
	_, _ = pipe.Exec(ctx)                          // redis.Nil if another consumer was faster; taken has its own error
	messages, err := taken.Result()
	slices.Reverse(messages)
	return messages, err
}

// done deletes the consumer's own list, and keeps the unreadable messages as dead letters.
func (q *RedisList) done(ctx context.Context, me string, dead []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
	defer cancel()
	pipe := q.client.TxPipeline()
	if len(dead) > 0 {
		pipe.LPush(ctx, deadListKey(), dead)
		pipe.LTrim(ctx, deadListKey(), 0, deadMost-1)
		pipe.Expire(ctx, deadListKey(), deadTTL)
	}
	pipe.Del(ctx, takenKey(me))
	_, err := pipe.Exec(ctx)
	return err
}

// beat renews the consumer's alive key, and moves the messages of dead consumers back to the queue.
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

// giveBack moves the messages of a consumer back to the right end of the queue in their original order, so that they are taken
// next, and forgets the consumer.
func (q *RedisList) giveBack(ctx context.Context, consumer string) error {
	for { // until the list is empty
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

// Ping checks that Redis answers.
func (q *RedisList) Ping(ctx context.Context) error { return q.client.Ping(ctx).Err() }

// Close does nothing: the caller closes the client.
func (*RedisList) Close() error { return nil }
