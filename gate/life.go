package gate

import (
	"context"
	"fmt"
	"strconv"
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

// Peek reads the gates of sales in one round trip, each gate at one instant. The streams' lengths are of their own. A
// gate that was installed on another Redis is not open here.
func (g *Gate) Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error) {
	server, err := g.servers.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the gates: %w", err)
	}
	hashes, lengths := make([]*redis.SliceCmd, len(saleIDs)), make([]*redis.IntCmd, len(saleIDs))
	_, err = g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range saleIDs {
			hashes[i] = p.HMGet(ctx, gateKey(id), "epoch", "open", "left", "inflight", "revision", "server")
			lengths[i] = p.XLen(ctx, streamKey(id))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at the gates: %w", err)
	}
	states := make([]model.GateState, len(saleIDs))
	for i := range saleIDs {
		v := hashes[i].Val()
		states[i] = model.GateState{
			Exists: v[0] != nil, Open: v[1] == "1" && v[5] == server,
			Epoch: number(v[0]), Left: number(v[2]), Inflight: number(v[3]), Revision: number(v[4]), Stream: lengths[i].Val(),
		}
	}
	return states, nil
}

// Units reads the live units that a sale's gate counts for each user, in pages, so that no single command holds Redis up.
func (g *Gate) Units(ctx context.Context, saleID string) (map[string]int, error) {
	units := map[string]int{}
	pages := g.client.HScan(ctx, unitsKey(saleID), 0, "", stagingChunk).Iterator()
	for pages.Next(ctx) {
		user := pages.Val()
		if pages.Next(ctx) && user != "" { // install.lua's field is nobody's
			units[user] = int(number(pages.Val()))
		}
	}
	if err := pages.Err(); err != nil {
		return nil, fmt.Errorf("read the units of users at the gate: %w", err)
	}
	return units, nil
}

func number(v any) int64 {
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// Close stops an older gate from admitting. ok is false if the gate there is of this epoch or a newer one.
func (g *Gate) Close(ctx context.Context, saleID string, epoch int64) (ok bool, err error) {
	n, err := closeScript.Run(ctx, g.client, []string{gateKey(saleID)}, epoch).Int()
	if err != nil {
		return false, fmt.Errorf("close the gate: %w", err)
	}
	return n == 1, nil
}

// Install opens a gate of a new epoch with the contents. entries are all those that the stream had before
// the contents were read. model.ErrStreamMoved, model.ErrNewerGate: nothing was changed.
func (g *Gate) Install(ctx context.Context, epoch int64, c model.GateContents, entries []model.Entry) error {
	id := c.Offer.ID
	server, err := g.servers.current(ctx)
	if err != nil {
		return fmt.Errorf("install the gate: %w", err)
	}
	left, inflight := c.Offer.Stock.Available, int64(0)
	unsettled := make(map[string]bool, len(c.Pending))
	for _, e := range c.Pending {
		n := int64(e.Quantity)
		left, inflight = left-n, inflight+n
		c.Units[e.UserID] += e.Quantity
		c.Known[e.ID] = model.Request{Quantity: e.Quantity, Hash: e.RequestHash}
		unsettled[e.StreamID] = true
	}
	stagedUnits, stagedIDs := stagedKey(unitsKey(id), epoch), stagedKey(idsKey(id), epoch)
	if err := stage(ctx, g.client, stagedUnits, c.Units); err != nil {
		return err
	}
	known := make(map[string]string, len(c.Known))
	for id, r := range c.Known {
		known[id] = requestValue(r)
	}
	if err := stage(ctx, g.client, stagedIDs, known); err != nil {
		return err
	}
	fields := append(configuration(c.Offer.Sale), "left", left, "inflight", inflight, "version", c.Offer.Stock.Version, "server", server)
	args := append([]any{epoch, len(entries), group, expiry(c.Offer.Sale), len(fields) / 2}, fields...)
	for _, e := range entries {
		if !unsettled[e.StreamID] {
			args = append(args, e.StreamID)
		}
	}
	keys := []string{gateKey(id), unitsKey(id), idsKey(id), streamKey(id), doneKey(id), stagedUnits, stagedIDs}
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

// stage writes a hash in chunks beside the one that it will replace.
func stage[V any](ctx context.Context, client redis.UniversalClient, key string, values map[string]V) error {
	if err := client.Del(ctx, key).Err(); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	chunk := make([]any, 0, 2*stagingChunk)
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
	for field, value := range values {
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
	keys := []string{gateKey(sale.ID), unitsKey(sale.ID), idsKey(sale.ID), streamKey(sale.ID)}
	err := configureScript.Run(ctx, g.client, keys, sale.Revision, string(sale.Status), sale.StartsAt.UnixMilli(),
		sale.EndsAt.UnixMilli(), sale.LimitPerUser, expiry(sale)).Err()
	if err != nil {
		return fmt.Errorf("configure the gate: %w", err)
	}
	return nil
}

// Erase removes a sale's gate; the counters of its users' requests end by themselves. It is for sales that no buyer was ever offered.
func (g *Gate) Erase(ctx context.Context, saleID string) error {
	keys := []string{gateKey(saleID), unitsKey(saleID), idsKey(saleID), streamKey(saleID), doneKey(saleID)}
	if err := g.client.Del(ctx, keys...).Err(); err != nil {
		return fmt.Errorf("erase the gate: %w", err)
	}
	return nil
}

func configuration(sale model.Sale) []any {
	return []any{
		"revision", sale.Revision, "status", string(sale.Status), "starts_ms", sale.StartsAt.UnixMilli(),
		"ends_ms", sale.EndsAt.UnixMilli(), "limit", sale.LimitPerUser,
	}
}

func expiry(sale model.Sale) int64 { return sale.EndsAt.Add(keyLinger).UnixMilli() }
