package gate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

const (
	// keyLinger is how long a gate outlives its sale: repeats of a request key are answered from it.
	keyLinger = 24 * time.Hour
	// stagingTTL ends what a rebuild that died has gathered.
	stagingTTL = time.Minute
	// stagingChunk fields go in one command, so that no single one holds Redis up.
	stagingChunk = 1000
)

// Peek reads the gates of sales, those of one Redis in one round trip and each part of a gate at one instant. A gate that
// was installed on another Redis is not open here. A sale is Away if the Redis of any part of its gate does not answer;
// an error means that all of them are.
func (g *Gate) Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error) {
	gates := make([][]string, len(saleIDs))
	for i, id := range saleIDs {
		var err error
		if gates[i], err = g.parts.tags(ctx, id); err != nil {
			return nil, fmt.Errorf("look at the gates: %w", err)
		}
	}
	return looker{client: g.client}.peek(ctx, gates)
}

// Units reads the live units that a sale's gate counts for each user, in pages, so that no single command holds Redis up.
func (g *Gate) Units(ctx context.Context, saleID string) (map[string]int, error) {
	tags, err := g.parts.tags(ctx, saleID)
	if err != nil {
		return nil, fmt.Errorf("read the units of users at the gate: %w", err)
	}
	units := map[string]int{}
	for _, tag := range tags {
		pages := g.client.HScan(ctx, unitsKey(tag), 0, "", stagingChunk).Iterator()
		for pages.Next(ctx) {
			user := pages.Val()
			if pages.Next(ctx) && user != "" { // install.lua's field is nobody's
				units[user] = int(number(pages.Val()))
			}
		}
		if err := pages.Err(); err != nil {
			return nil, fmt.Errorf("read the units of users at the gate: %w", err)
		}
	}
	return units, nil
}

// Close stops an older gate from admitting. ok is false if the gate there, or a part of it, is of this epoch or a newer one.
func (g *Gate) Close(ctx context.Context, saleID string, epoch int64) (ok bool, err error) {
	tags, err := g.parts.tags(ctx, saleID)
	if err != nil {
		return false, fmt.Errorf("close the gate: %w", err)
	}
	var newer atomic.Bool
	err = each(len(tags), func(i int) error {
		n, err := closeScript.Run(ctx, g.client, []string{gateKey(tags[i])}, epoch).Int()
		if err != nil {
			return fmt.Errorf("close the gate: %w", err)
		}
		if n == 0 {
			newer.Store(true)
		}
		return nil
	})
	return err == nil && !newer.Load(), err
}

// Install opens a gate of a new epoch with the contents. entries are all those that the stream had before
// the contents were read. model.ErrStreamMoved, model.ErrNewerGate: nothing was opened.
func (g *Gate) Install(ctx context.Context, epoch int64, c model.GateContents, entries []model.Entry) error {
	if c.Owners == nil {
		c.Owners = map[string]string{}
	}
	for _, e := range c.Pending {
		c.Units[e.UserID] += e.Quantity
		c.Known[e.ID] = model.Request{Quantity: e.Quantity, Hash: e.RequestHash}
		c.Owners[e.ID] = e.UserID
	}
	tags := tagsOf(c.Offer.ID, max(c.Offer.Parts, 1))
	err := each(len(tags), func(i int) error { return g.install(ctx, epoch, c, entries, i, tags) })
	if err != nil || len(tags) == 1 {
		return err
	}
	// Each part is opened when all are there: while none admits, the streams only shrink, and what one of them finds
	// changed may be read again for all.
	return each(len(tags), func(i int) error {
		ok, err := openScript.Run(ctx, g.client, []string{gateKey(tags[i])}, epoch).Bool()
		if err != nil {
			return fmt.Errorf("open the gate: %w", err)
		}
		if !ok {
			return model.ErrNewerGate
		}
		return nil
	})
}

// install puts one part of a gate in its place, and opens it if it is the only one: its users' units, ids and entries, and
// its share of the units left.
func (g *Gate) install(ctx context.Context, epoch int64, c model.GateContents, entries []model.Entry, part int, tags []string) error {
	tag := tags[part]
	here := func(userID string) bool { return homeOf(userID, len(tags)) == part }
	left, inflight := c.Offer.Stock.Available, int64(0)
	unsettled := make(map[string]bool, len(c.Pending))
	for _, e := range c.Pending {
		left -= int64(e.Quantity)
		if here(e.UserID) {
			inflight += int64(e.Quantity)
			unsettled[e.StreamID] = true
		}
	}
	length, settled := 0, []any(nil)
	for _, e := range entries {
		if !here(e.UserID) {
			continue
		}
		length++
		if !unsettled[e.StreamID] {
			settled = append(settled, e.StreamID)
		}
	}
	stagedUnits, stagedIDs := stagedKey(unitsKey(tag), epoch), stagedKey(idsKey(tag), epoch)
	units := func(user string, n int) (value any, mine bool) { return n, here(user) }
	if err := stage(ctx, g.client, stagedUnits, c.Units, units); err != nil {
		return err
	}
	known := func(id string, r model.Request) (value any, mine bool) { return requestValue(r), here(c.Owners[id]) }
	if err := stage(ctx, g.client, stagedIDs, c.Known, known); err != nil {
		return err
	}
	fields := append(configuration(c.Offer.Sale), "left", evenly(left, part, len(tags)), "inflight", inflight, "version", c.Offer.Stock.Version)
	open := 0
	if len(tags) == 1 {
		open = 1
	}
	args := append([]any{epoch, length, group, expiry(c.Offer.Sale), open, len(fields) / 2}, fields...)
	args = append(args, settled...)
	keys := []string{gateKey(tag), unitsKey(tag), idsKey(tag), streamKey(tag), stagedUnits, stagedIDs}
	code, err := installScript.Run(ctx, g.client, keys, args...).Int()
	switch {
	case err != nil:
		return fmt.Errorf("install the gate: %w", err)
	case code == 0:
		return model.ErrNewerGate
	case code == 2:
		return model.ErrStreamMoved
	}
	return nil
}

// evenly gives a part its share of units. What is missing is missing in the first.
func evenly(units int64, part, parts int) int64 {
	n := int64(parts)
	switch {
	case units < 0 && part == 0:
		return units
	case units < 0:
		return 0
	case int64(part) < units%n:
		return units/n + 1
	}
	return units / n
}

// stage writes a hash in chunks beside the one that it will replace: of the values those that choose wants, as it gives them.
func stage[V any](ctx context.Context, client redis.UniversalClient, key string, values map[string]V, choose func(field string, value V) (any, bool)) error {
	if err := client.Del(ctx, key).Err(); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	// Nobody's field: the hash is never empty, so it is there to be installed, and keeps its end.
	chunk := append(make([]any, 0, 2*stagingChunk), "", 0)
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, chunk...)
			p.Expire(ctx, key, stagingTTL)
			return nil
		})
		chunk = chunk[:0]
		if err != nil {
			return fmt.Errorf("stage: %w", err)
		}
		return nil
	}
	for field, v := range values {
		value, wanted := choose(field, v)
		if !wanted {
			continue
		}
		if chunk = append(chunk, field, value); len(chunk) == cap(chunk) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// Configure brings an operator's change of a sale to its gate. An older revision changes nothing.
func (g *Gate) Configure(ctx context.Context, sale model.Sale) error {
	tags := tagsOf(sale.ID, max(sale.Parts, 1))
	return each(len(tags), func(i int) error {
		tag := tags[i]
		keys := []string{gateKey(tag), unitsKey(tag), idsKey(tag), streamKey(tag)}
		err := configureScript.Run(ctx, g.client, keys, sale.Revision, string(sale.Status), sale.StartsAt.UnixMilli(),
			sale.EndsAt.UnixMilli(), sale.LimitPerUser, expiry(sale)).Err()
		if err != nil {
			return fmt.Errorf("configure the gate: %w", err)
		}
		return nil
	})
}

// Erase removes a sale's gate; the counters of its users' requests end by themselves. It is for sales that no buyer was ever offered.
func (g *Gate) Erase(ctx context.Context, saleID string) error {
	tags, err := g.parts.tags(ctx, saleID)
	if err != nil {
		return fmt.Errorf("erase the gate: %w", err)
	}
	return each(len(tags), func(i int) error {
		tag := tags[i]
		keys := []string{gateKey(tag), unitsKey(tag), idsKey(tag), streamKey(tag)}
		if err := g.client.Del(ctx, keys...).Err(); err != nil {
			return fmt.Errorf("erase the gate: %w", err)
		}
		return nil
	})
}

func configuration(sale model.Sale) []any {
	return []any{
		"revision", sale.Revision, "status", string(sale.Status), "starts_ms", sale.StartsAt.UnixMilli(),
		"ends_ms", sale.EndsAt.UnixMilli(), "limit", sale.LimitPerUser,
	}
}

func expiry(sale model.Sale) int64 { return sale.EndsAt.Add(keyLinger).UnixMilli() }
