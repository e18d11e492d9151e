package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"flashsale/model"
)

// instanceTTL is how long an instance that no longer reports counts as running.
const instanceTTL = 5 * time.Second

// Announce tells every instance that a sale has changed.
func (g *Gate) Announce(ctx context.Context, saleID string) error {
	if err := g.client.Publish(ctx, controlChannel, saleID).Err(); err != nil {
		return fmt.Errorf("announce a change: %w", err)
	}
	return nil
}

// Wake tells another instance which attempts are settled whose buyers wait there: only their orders' ids, since it asks
// the database what became of them. Whoever can publish could say anything.
func (g *Gate) Wake(ctx context.Context, instance string, outcomes map[string]model.Outcome) error {
	payload, err := json.Marshal(slices.Collect(maps.Keys(outcomes)))
	if err != nil {
		return fmt.Errorf("wake %s: %w", instance, err)
	}
	if err := g.client.Publish(ctx, wakeChannel(instance), payload).Err(); err != nil {
		return fmt.Errorf("wake %s: %w", instance, err)
	}
	return nil
}

// Listen hears what other instances announce until ctx ends: changed is called with a sale's id, woken with
// the ids of orders whose buyers wait here. The client connects again by itself; what was said meanwhile is lost,
// so polling stands behind both.
func (g *Gate) Listen(ctx context.Context, changed func(saleID string), woken func(orderIDs []string)) {
	sub := g.client.Subscribe(ctx, controlChannel, wakeChannel(g.instance))
	defer func() { _ = sub.Close() }()
	messages := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			if m.Channel == controlChannel {
				changed(m.Payload)
				continue
			}
			var ids []string
			if json.Unmarshal([]byte(m.Payload), &ids) == nil {
				woken(ids)
			}
		}
	}
}

// Report publishes this instance's figures.
func (g *Gate) Report(ctx context.Context, figures model.Instance) error {
	payload, err := json.Marshal(figures)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := g.client.HSet(ctx, instancesKey, g.instance, payload).Err(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Leave takes this instance off the list of running ones.
func (g *Gate) Leave(ctx context.Context) error {
	return g.client.HDel(ctx, instancesKey, g.instance).Err()
}

// Instances reads the figures of the running instances by their ids, and forgets those that stopped reporting.
func (g *Gate) Instances(ctx context.Context, now time.Time) (map[string]model.Instance, error) {
	all, err := g.client.HGetAll(ctx, instancesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read the instances: %w", err)
	}
	running := make(map[string]model.Instance, len(all))
	for id, payload := range all {
		var figures model.Instance
		_ = json.Unmarshal([]byte(payload), &figures) // what can't be read has no time, and is over
		if now.Sub(time.UnixMilli(figures.ReportedAtMs)) > instanceTTL {
			if err := g.client.HDel(ctx, instancesKey, id).Err(); err != nil {
				return nil, fmt.Errorf("forget an instance: %w", err)
			}
			continue
		}
		running[id] = figures
	}
	return running, nil
}
