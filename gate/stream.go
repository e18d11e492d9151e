package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/observe"
	"flashsale/model"
)

// QueueAge returns the age, by Redis's clock, of the oldest entry in the streams of gates; 0 if there is none.
func (g *Gate) QueueAge(ctx context.Context, gates ...model.GateRef) (time.Duration, error) {
	tags := tagsOf(gates...)
	firsts := make([]*redis.XMessageSliceCmd, len(tags))
	var now *redis.TimeCmd
	_, err := g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, tag := range tags {
			firsts[i] = p.XRangeN(ctx, streamKey(tag), "-", "+", 1)
		}
		now = p.Time(ctx) // on a single Redis, entries that were read are not newer
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the age of the queue: %w", err)
	}
	var oldest time.Duration
	for _, first := range firsts {
		for _, entry := range first.Val() {
			ms, _, _ := strings.Cut(entry.ID, "-")
			admitted, err := strconv.ParseInt(ms, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("ask for the age of the queue: entry %q: %w", entry.ID, err)
			}
			oldest = max(oldest, now.Val().Sub(time.UnixMilli(admitted)))
		}
	}
	return oldest, nil
}

// Leftovers returns entries that have at least this age, by Redis's clock: the oldest of each shard, at most "count" of each.
// Entries that can't be parsed are deleted, and bad has their texts, by sale. If one shard is read without an error, Leftovers
// returns no error.
func (g *Gate) Leftovers(ctx context.Context, gates []model.GateRef, age time.Duration, count int) (entries []model.Entry, bad map[string][]string, err error) {
	tags := tagsOf(gates...)
	replies := g.scripts(ctx, leftoversScript, len(tags), func(i int) ([]string, []any) {
		return []string{streamKey(tags[i])}, []any{age.Milliseconds(), count}
	})
	bad = map[string][]string{}
	answered, at := len(tags) == 0, 0
	for _, gate := range gates {
		for range gate.Shards {
			reply, failed := replies[at].Slice()
			some, unread, unparsed := g.parse(ctx, gate, tags[at], messagesOf(reply)) // nothing without an answer
			if entries = append(entries, some...); len(unread) > 0 {
				bad[gate.SaleID] = append(bad[gate.SaleID], unread...)
			}
			if failed = cmp.Or(failed, unparsed); failed != nil {
				err = fmt.Errorf("read the stream: %w", failed)
			}
			answered = answered || failed == nil
			at++
		}
	}
	if answered {
		err = nil
	}
	return entries, bad, err
}

// messagesOf converts entries from the form in which a script returns them: an id, then a list of fields and values.
func messagesOf(reply []any) []redis.XMessage {
	messages := make([]redis.XMessage, 0, len(reply))
	for _, entry := range reply {
		pair, _ := entry.([]any)
		if len(pair) != 2 {
			continue
		}
		fields, _ := pair[1].([]any)
		m := redis.XMessage{ID: fmt.Sprint(pair[0]), Values: map[string]any{}}
		for i := 0; i+1 < len(fields); i += 2 {
			m.Values[fmt.Sprint(fields[i])] = fields[i+1]
		}
		messages = append(messages, m)
	}
	return messages
}

// Unsettled returns those entries that their streams still have, each once.
func (g *Gate) Unsettled(ctx context.Context, entries []model.Entry) (rest []model.Entry, err error) {
	shards := shardsOf(entries)
	replies := g.scripts(ctx, presentScript, len(shards), func(i int) ([]string, []any) {
		return []string{streamKey(shards[i].tag)}, shards[i].streamIDs(entries)
	})
	for i, s := range shards {
		present, err := replies[i].Int64Slice()
		if err != nil {
			return nil, fmt.Errorf("look for entries: %w", err)
		}
		for at, place := range s.places {
			if present[at] == 1 {
				rest = append(rest, entries[place])
			}
		}
	}
	return rest, nil
}

// shardEntries are the entries of a list that belong to one shard, by their places in the list.
type shardEntries struct {
	tag    string
	places []int
}

func (s *shardEntries) streamIDs(entries []model.Entry) []any {
	ids := make([]any, len(s.places))
	for at, place := range s.places {
		ids[at] = entries[place].StreamID
	}
	return ids
}

// shardsOf divides entries by their shards. An entry that occurs twice is listed once.
func shardsOf(entries []model.Entry) (shards []*shardEntries) {
	byTag, seen := map[string]*shardEntries{}, make(map[[2]string]bool, len(entries))
	for place, e := range entries {
		tag := homeTag(e.GateRef(), e.UserID)
		if seen[[2]string{tag, e.StreamID}] {
			continue
		}
		seen[[2]string{tag, e.StreamID}] = true
		s := byTag[tag]
		if s == nil {
			s = &shardEntries{tag: tag}
			byTag[tag], shards = s, append(shards, s)
		}
		s.places = append(s.places, place)
	}
	return shards
}

// parse converts messages of a shard's stream into entries. A message that is not a valid entry can't be settled, so parse
// deletes it, and returns its text in bad. If a deletion fails, parse stops with an error.
func (g *Gate) parse(ctx context.Context, gate model.GateRef, tag string, messages []redis.XMessage) (entries []model.Entry, bad []string, err error) {
	entries = make([]model.Entry, 0, len(messages))
	for _, m := range messages {
		if e, ok := parseEntry(gate, m); ok {
			entries = append(entries, e)
			continue
		}
		text := fmt.Sprintf("%s %q", m.ID, fmt.Sprint(m.Values))
		if err := g.client.XDel(ctx, streamKey(tag), m.ID).Err(); err != nil {
			return entries, bad, fmt.Errorf("delete the bad entry %s: %w", text, err)
		}
		bad = append(bad, text)
	}
	return entries, bad, nil
}

// entryFields is the number of fields in an entry's text, separated by spaces: id, user, quantity, epoch, instance, and
// idempotency key, which may contain spaces itself.
const entryFields = 6

func parseEntry(gate model.GateRef, m redis.XMessage) (model.Entry, bool) {
	text, _ := m.Values["attempt"].(string)
	fields := strings.SplitN(text, " ", entryFields)
	if len(fields) != entryFields {
		return model.Entry{}, false
	}
	n, errN := strconv.Atoi(fields[2])
	epoch, errEpoch := strconv.ParseInt(fields[3], 10, 64)
	e := model.Entry{
		Attempt: model.Attempt{
			ID: fields[0], SaleID: gate.SaleID, UserID: fields[1], Quantity: n,
			IdempotencyKey: fields[5], Shards: gate.Shards, CampaignID: gate.CampaignID,
		},
		StreamID: m.ID, Epoch: epoch, Instance: fields[4],
	}
	return e, errN == nil && errEpoch == nil && e.Valid()
}

// Settled deletes settled entries from their streams, and gives units of refused attempts back to their gates (credit). lost has
// gates that may lack an order, because fewer entries were found than orders were made. After an error some entries may still be
// in their streams. It is harmless to repeat Settled.
func (g *Gate) Settled(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) (lost []model.GateRef, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.Acknowledge, Items: len(entries)})
	defer func() { end(err) }()
	var ordered, other []*shardEntries
	for _, s := range shardsOf(entries) {
		if slices.ContainsFunc(s.places, func(i int) bool { return entries[i].Quantity != 1 || credit(outcomes[i]) != "" }) {
			other = append(other, s)
			continue
		}
		ordered = append(ordered, s)
	}
	common := func(int, int) ([]string, []any) { return nil, nil }
	replies := g.scriptOnGates(ctx, orderedScript, len(ordered), common, func(i int) ([]string, []any) {
		return []string{streamKey(ordered[i].tag)}, append([]any{len(ordered[i].places)}, ordered[i].streamIDs(entries)...)
	})
	replies = append(replies, g.scriptOnGates(ctx, settledScript, len(other), common, func(i int) ([]string, []any) {
		return keysOf(other[i].tag), settledArgs(other[i].places, entries, outcomes)
	})...)
	for i, s := range slices.Concat(ordered, other) {
		if replies[i].err != nil {
			err = fmt.Errorf("acknowledge: %w", replies[i].err)
			continue
		}
		found, _ := replies[i].value.(int64)
		made := int64(0)
		for _, place := range s.places {
			if outcomes[place].Verdict == model.Accepted && !outcomes[place].Repeated {
				made++
			}
		}
		if found < made && !g.admittedAll(ctx, s, entries) {
			lost = append(lost, entries[s.places[0]].GateRef())
		}
	}
	return lost, err
}

// admittedAll reports whether a shard is open and has the epoch of all these entries, so that it has admitted them.
func (g *Gate) admittedAll(ctx context.Context, s *shardEntries, entries []model.Entry) bool {
	shards, err := g.look(ctx, []string{s.tag})
	return err == nil && shards[0].Open && !slices.ContainsFunc(s.places, func(place int) bool { return entries[place].Epoch != shards[0].Epoch })
}

func settledArgs(places []int, entries []model.Entry, outcomes []model.Outcome) []any {
	orders, credits := map[int][]any{}, []any(nil) // orders: stream ids by units
	for _, i := range places {
		e := entries[i]
		if c := credit(outcomes[i]); c != "" {
			credits = append(credits, e.StreamID, e.UserID, e.Quantity, c)
			continue
		}
		orders[e.Quantity] = append(orders[e.Quantity], e.StreamID)
	}
	args := append([]any{0, len(credits) / 4}, credits...)
	for units, ids := range orders {
		args = append(append(args, units, len(ids)), ids...)
	}
	args[0] = len(args) - 1
	return args
}

// credit returns what settled.lua gives back for an entry with this outcome:
//   - "" for an order: nothing.
//   - "user" for a refusal as sold out: the user's units, but not the gate's, since the gate had more units than the stock.
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
