package gate

import (
	"context"
	"sync/atomic"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

// keyLinger is how long the keys of a gate are kept after the end of the sale, to answer repeated idempotency keys.
const keyLinger = 24 * time.Hour

// Close closes the shards of older epochs, and stores this epoch as a mark, even without a gate. A shard of this epoch or a
// newer one, or closed for a newer one, stays as it is. ok is false if there is such a shard, and after an error.
func (g *Gate) Close(ctx context.Context, gate model.GateRef, epoch int64) (ok bool, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.CloseGate})
	defer func() { end(err) }()
	var newer atomic.Bool
	err = eachShard(gate, "close the gate", func(_ int, tag string) error {
		n, err := closeScript.Run(ctx, g.client, []string{gateKey(tag)}, epoch).Int()
		if err == nil && n == 0 {
			newer.Store(true)
		}
		return err
	})
	return err == nil && !newer.Load(), err
}

// Configure applies an operator's change of a sale to its gate. It changes nothing, without an error, if there is no gate or the
// gate has this revision or a later one.
func (g *Gate) Configure(ctx context.Context, sale model.Sale) error {
	args := append([]any{sale.Revision, expiry(sale)}, configuration(sale)...)
	return eachShard(sale.GateRef(), "configure the gate", func(_ int, tag string) error {
		return configureScript.Run(ctx, g.client, keysOf(tag), args...).Err()
	})
}

// Erase deletes a gate with its stream. It is for shadow sales.
func (g *Gate) Erase(ctx context.Context, gate model.GateRef) error {
	return eachShard(gate, "erase the gate", func(_ int, tag string) error { return g.client.Del(ctx, keysOf(tag)...).Err() })
}

// configuration returns the fields of a gate that change with the sale, and their values.
func configuration(sale model.Sale) []any {
	return []any{
		"revision", sale.Revision, "status", string(sale.Status), "starts_ms", sale.StartsAt.UnixMilli(),
		"ends_ms", sale.EndsAt.UnixMilli(), "limit", sale.LimitPerUser,
	}
}

func expiry(sale model.Sale) int64 { return sale.EndsAt.Add(keyLinger).UnixMilli() }
