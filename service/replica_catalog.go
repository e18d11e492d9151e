package service

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"flashsale/model"
)

const (
	replicaTime = 100 * time.Millisecond // for a look at the replicas
	replicaRest = 8                      // how many refreshes pass before replicas that did not answer are asked again
)

// ReplicaCatalog reads the live sales for a catalog. It lowers available to the units that are left at the gate, as a replica of
// Redis has them, since units that were admitted may not be in the database yet. It does not lower available to zero: a replica
// lags behind.
type ReplicaCatalog struct {
	CatalogStore
	Replicas Peeker // of Redis
	Log      *slog.Logger

	rest   atomic.Int64 // refreshes until the replicas are asked again
	passed atomic.Bool  // some replicas were passed over at the last look
}

// LiveOffers reads the live sales. Replicas that do not answer or lag behind are passed over; the log says when this begins.
func (s *ReplicaCatalog) LiveOffers(ctx context.Context, linger time.Duration) ([]model.Offer, error) {
	list, err := s.CatalogStore.LiveOffers(ctx, linger)
	if err != nil || len(list) == 0 || s.rest.Add(-1) >= 0 {
		return list, err
	}
	s.rest.Store(0)
	asking, cancel := context.WithTimeout(ctx, replicaTime)
	defer cancel()
	states, err := s.Replicas.Peek(asking, model.GateRefs(list)...)
	if err != nil {
		s.rest.Store(replicaRest)
	}
	passed := err != nil || slices.ContainsFunc(states, func(gate model.GateState) bool { return gate.Away })
	switch before := s.passed.Swap(passed); {
	case passed && !before:
		s.Log.WarnContext(ctx, "replicas of Redis are away or behind; pages show the database's stock", "error", err)
	case before && !passed:
		s.Log.InfoContext(ctx, "replicas of Redis are back")
	}
	for i, gate := range states {
		if stock := &list[i].Stock; gate.Open && gate.Epoch == stock.Epoch && stock.Available > 0 {
			stock.Available = min(stock.Available, max(gate.Left, 1))
		}
	}
	return list, nil
}
