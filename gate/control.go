package gate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"flashsale/model"
)

// instanceTTL is how long an instance counts as running after its last report. A few reports may fail meanwhile.
const instanceTTL = 5 * time.Second

// Announce publishes that a sale has changed.
func (g *Gate) Announce(ctx context.Context, saleID string) error {
	return wrap("announce a change", g.client.Publish(ctx, controlChannel, saleID).Err())
}

// Wake publishes the order ids of settled attempts to an instance on which their buyers may wait. It does not publish the
// outcomes, because anybody with access to Redis could publish false ones.
func (g *Gate) Wake(ctx context.Context, instance string, outcomes map[string]model.Outcome) error {
	payload, err := json.Marshal(slices.Collect(maps.Keys(outcomes)))
	if err == nil {
		err = g.client.Publish(ctx, wakeChannel(instance), payload).Err()
	}
	return wrap("wake "+instance, err)
}

// Listen receives the messages of Announce and Wake until ctx ends. It passes the ids of changed sales to "changed", and the
// order ids of Wake to "woken". Messages are lost while the connection is lost, so the caller must also poll.
func (g *Gate) Listen(ctx context.Context, changed func(saleID string), woken func(orderIDs []string)) {
	sub := g.client.Subscribe(ctx, controlChannel, wakeChannel(g.instance))
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // ends the loop
	for m := range sub.Channel() {
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

// Report stores this instance's figures in Redis.
func (g *Gate) Report(ctx context.Context, figures model.Instance) error {
	payload, err := json.Marshal(figures)
	if err == nil {
		err = g.client.HSet(ctx, instancesKey, g.instance, payload).Err()
	}
	return wrap("report", err)
}

// Leave deletes the figures of this instance.
func (g *Gate) Leave(ctx context.Context) error {
	return g.client.HDel(ctx, instancesKey, g.instance).Err()
}

// Instances returns the figures of the running instances by id, and deletes those of the others. An instance counts as running
// if its last report is at most instanceTTL before "now".
func (g *Gate) Instances(ctx context.Context, now time.Time) (map[string]model.Instance, error) {
	running, stopped, err := g.reports(ctx, now)
	if len(stopped) > 0 {
		err = wrap("forget instances", g.client.HDel(ctx, instancesKey, stopped...).Err())
	}
	return running, err
}

// Running returns the figures of the running instances, and deletes none.
func (g *Gate) Running(ctx context.Context, now time.Time) (map[string]model.Instance, error) {
	running, _, err := g.reports(ctx, now)
	return running, err
}

// reports returns the figures of the running instances, and the ids of the others.
func (g *Gate) reports(ctx context.Context, now time.Time) (running map[string]model.Instance, stopped []string, err error) {
	all, err := g.client.HGetAll(ctx, instancesKey).Result()
	if err != nil {
		return nil, nil, wrap("read the instances", err)
	}
	running = make(map[string]model.Instance, len(all))
	for id, payload := range all {
		var figures model.Instance
		_ = json.Unmarshal([]byte(payload), &figures) // without a time of report, the instance has stopped
		if now.Sub(time.UnixMilli(figures.ReportedAtMs)) > instanceTTL {
			stopped = append(stopped, id)
			continue
		}
		running[id] = figures
	}
	return running, stopped, nil
}
