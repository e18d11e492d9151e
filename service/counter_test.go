package service

import (
	"context"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// counted is a gate that notes where a request is counted.
type counted struct{ gate model.GateRef }

func (c *counted) Count(_ context.Context, gate model.GateRef, _ string, _ model.Frequency) (time.Duration, bool, error) {
	c.gate = gate
	return time.Second, false, nil
}

// A request is counted where the gate of its sale counts: with the sale's number of shards.
func TestCounterKnowsTheShards(t *testing.T) {
	o := openOffer()
	o.Shards = 3
	gate := &counted{}
	c := &Counter{Catalog: refreshed(t, newFakeStores(o)), Gate: gate}
	for id, shards := range map[string]int{o.ID: 3, "NONE": 1} {
		retryAfter, ok, err := c.Count(t.Context(), id, "u-1", model.Frequency{Limit: 1, Window: time.Second})
		if ok || err != nil || retryAfter != time.Second {
			t.Errorf("%s: %t, %v, retry after %s", id, ok, err, retryAfter)
		}
		check.Same(t, "the gate of "+id, gate.gate, model.GateRef{SaleID: id, Shards: shards})
	}
}
