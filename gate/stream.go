package gate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/observe"
	"flashsale/model"
)

// group is the consumer group of every stream.
const group = "settlers"

// Read takes at most count new entries of a gate's stream for this instance. An empty result is not an error. Entries
// that can't be parsed are deleted, and bad has their texts.
func (g *Gate) Read(ctx context.Context, gate model.GateRef, count int) (entries []model.Entry, bad []string, err error) {
	return fromShards(gate, count, func(tag string, count int) ([]model.Entry, []string, error) {
		return g.read(ctx, gate, tag, ">", count)
	})
}

// Own returns the oldest entries, at most count, that this instance has taken and that are not acknowledged yet.
func (g *Gate) Own(ctx context.Context, gate model.GateRef, count int) (entries []model.Entry, bad []string, err error) {
	return fromShards(gate, count, func(tag string, count int) (entries []model.Entry, bad []string, err error) {
		entries, bad, err = g.read(ctx, gate, tag, "0", count)
		return entries[:min(len(entries), count)], bad, err // the embedded Redis ignores COUNT here
	})
}

func (g *Gate) read(ctx context.Context, gate model.GateRef, tag, after string, count int) (entries []model.Entry, bad []string, err error) {
	args := &redis.XReadGroupArgs{
		Group: group, Consumer: g.instance, Streams: []string{streamKey(tag), after}, Count: int64(count), Block: -1,
	}
	streams, err := g.client.XReadGroup(ctx, args).Result()
	if noGroup(err) {
		if err = g.regroup(ctx, tag); err == nil {
			streams, err = g.client.XReadGroup(ctx, args).Result()
		}
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the stream: %w", err)
	}
	for _, s := range streams {
		entries, bad, err = g.parse(ctx, gate, tag, s.Messages)
	}
	return entries, bad, err
}

// regroup creates the consumer group of a stream that has none: the stream was lost, and an attempt has created it
// again since. It returns redis.Nil if there is no stream.
func (g *Gate) regroup(ctx context.Context, tag string) error {
	n, err := g.client.Exists(ctx, streamKey(tag)).Result()
	if err != nil {
		return err
	}
	if n == 0 {
		return redis.Nil
	}
	err = g.client.XGroupCreate(ctx, streamKey(tag), group, "0").Err()
	if redis.HasErrorPrefix(err, "BUSYGROUP") { // another instance has created it
		return nil
	}
	return err
}

// Claim takes over at most count entries that were delivered to any consumer, this instance included, more than idle
// ago and are not acknowledged yet. It counts their deliveries.
func (g *Gate) Claim(ctx context.Context, gate model.GateRef, idle time.Duration, count int) (entries []model.Entry, bad []string, err error) {
	return fromShards(gate, count, func(tag string, count int) ([]model.Entry, []string, error) {
		return g.claim(ctx, gate, tag, idle, count)
	})
}

func (g *Gate) claim(ctx context.Context, gate model.GateRef, tag string, idle time.Duration, count int) (entries []model.Entry, bad []string, err error) {
	messages, _, err := g.client.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: streamKey(tag), Group: group, Consumer: g.instance, MinIdle: idle, Start: "0-0", Count: int64(count),
	}).Result()
	if noGroup(err) || err == nil && len(messages) == 0 {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("claim entries: %w", err)
	}
	entries, bad, err = g.parse(ctx, gate, tag, messages)
	if err != nil || len(entries) == 0 {
		return entries, bad, err
	}
	pending, err := g.client.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: streamKey(tag), Group: group, Consumer: g.instance,
		Start: entries[0].StreamID, End: entries[len(entries)-1].StreamID, Count: int64(count),
	}).Result()
	if err != nil {
		return nil, bad, fmt.Errorf("count deliveries: %w", err)
	}
	deliveries := make(map[string]int64, len(pending))
	for _, p := range pending {
		deliveries[p.ID] = p.RetryCount
	}
	for i := range entries {
		entries[i].Deliveries = deliveries[entries[i].StreamID]
	}
	return entries, bad, nil
}

// Unsettled returns the entries that the stream still has, each once. The others are settled, or were lost with
// Redis. It also assigns the returned entries to this instance and resets their idle time, so that no other instance
// claims them meanwhile.
func (g *Gate) Unsettled(ctx context.Context, gate model.GateRef, entries []model.Entry) ([]model.Entry, error) {
	tags := tagsOf(gate)
	var mu sync.Mutex
	var rest []model.Entry
	err := atHome(len(tags), len(entries), func(i int) string { return entries[i].UserID }, func(home int, places []int) error {
		there, err := g.unsettled(ctx, tags[home], entries, places)
		mu.Lock()
		defer mu.Unlock()
		rest = append(rest, there...)
		return err
	})
	return rest, err
}

func (g *Gate) unsettled(ctx context.Context, tag string, entries []model.Entry, places []int) (rest []model.Entry, err error) {
	ids := make([]string, len(places))
	for at, place := range places {
		ids[at] = entries[place].StreamID
	}
	taken, err := g.client.XClaimJustID(ctx, &redis.XClaimArgs{
		Stream: streamKey(tag), Group: group, Consumer: g.instance, Messages: ids,
	}).Result()
	if noGroup(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for entries: %w", err)
	}
	there := make(map[string]bool, len(taken))
	for _, id := range taken {
		there[id] = true
	}
	for _, place := range places {
		if e := entries[place]; there[e.StreamID] {
			rest = append(rest, e)
			delete(there, e.StreamID)
		}
	}
	return rest, nil
}

// parse parses messages as entries. A message that is not a valid entry can't be settled, refused or credited. So
// parse deletes it and returns its text in bad, for the log.
func (g *Gate) parse(ctx context.Context, gate model.GateRef, tag string, messages []redis.XMessage) (entries []model.Entry, bad []string, err error) {
	entries = make([]model.Entry, 0, len(messages))
	for _, m := range messages {
		e, ok := parseEntry(gate, m)
		if ok {
			entries = append(entries, e)
			continue
		}
		bad = append(bad, fmt.Sprintf("%s %q", m.ID, fmt.Sprint(m.Values)))
		pipe := g.client.TxPipeline()
		pipe.XAck(ctx, streamKey(tag), group, m.ID)
		pipe.XDel(ctx, streamKey(tag), m.ID)
		if _, err := pipe.Exec(ctx); err != nil {
			return entries, bad, fmt.Errorf("delete a bad entry: %w", err)
		}
	}
	return entries, bad, nil
}

// entryFields is the number of fields of an entry as admit.lua writes them, separated by spaces: id, user, quantity,
// request hash, epoch, instance, idempotency key. The idempotency key is last because it may contain spaces itself.
const entryFields = 7

func parseEntry(gate model.GateRef, m redis.XMessage) (model.Entry, bool) {
	text, _ := m.Values["attempt"].(string)
	shards := strings.SplitN(text, " ", entryFields)
	if len(shards) != entryFields {
		return model.Entry{}, false
	}
	n, errN := strconv.Atoi(shards[2])
	epoch, errEpoch := strconv.ParseInt(shards[4], 10, 64)
	e := model.Entry{
		Attempt: model.Attempt{
			ID: shards[0], SaleID: gate.SaleID, UserID: shards[1], Quantity: n,
			IdempotencyKey: shards[6], RequestHash: shards[3], Shards: gate.Shards,
		},
		StreamID: m.ID, Epoch: epoch, Instance: shards[5], Deliveries: 1,
	}
	return e, errN == nil && errEpoch == nil && e.Valid()
}

// Settled acknowledges and deletes entries that the database has settled with these outcomes, and gives the units of
// refused attempts back to the gate.
func (g *Gate) Settled(ctx context.Context, gate model.GateRef, entries []model.Entry, outcomes []model.Outcome) (err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.Acknowledge, Items: len(entries)})
	defer func() { end(err) }()
	tags := tagsOf(gate)
	return atHome(len(tags), len(entries), func(i int) string { return entries[i].UserID }, func(home int, places []int) error {
		return g.settled(ctx, tags[home], entries, outcomes, places)
	})
}

func (g *Gate) settled(ctx context.Context, tag string, entries []model.Entry, outcomes []model.Outcome, places []int) error {
	args := make([]any, 2, 2*len(places)+2)
	var credits []any
	for _, i := range places {
		e := entries[i]
		if c := credit(outcomes[i]); c != "" {
			credits = append(credits, e.StreamID, e.UserID, e.Quantity, c)
			continue
		}
		args = append(args, e.StreamID, e.Quantity)
	}
	args[0], args[1] = group, (len(args)-2)/2
	args = append(args, credits...)
	keys := []string{gateKey(tag), unitsKey(tag), streamKey(tag)}
	if err := settledScript.Run(ctx, g.client, keys, args...).Err(); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}

// credit returns what settled.lua gives back for an entry with this outcome:
//   - "" for an order: nothing. If the order came into the database by another way, this entry is its deduction
//     at the gate.
//   - "user" for a refusal as sold out: only the user's units, since the gate had more units than the stock.
//   - "all" for any other refusal: the user's units and the gate's.
func credit(o model.Outcome) string {
	switch o.Verdict {
	case model.Accepted:
		return ""
	case model.SoldOut:
		return "user"
	default:
		return "all"
	}
}

// noGroup reports whether an error means that the stream or its group does not exist, as after a loss of Redis data.
func noGroup(err error) bool { return redis.HasErrorPrefix(err, "NOGROUP") }
