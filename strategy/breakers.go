package strategy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/sony/gobreaker/v2"

	"flashsale/model"
)

const (
	// breakerTrips is how many calls in a row must fail before the breaker opens.
	breakerTrips = 3
	// breakerRest is how long a breaker stays open before it lets one call through.
	breakerRest = time.Second
	// breakerNodes bounds the breakers. Redis recommends at most 1000 nodes for a Cluster.
	breakerNodes = 1000
)

// breakers are the circuit breakers of the nodes of Redis, so that a failing node does not stop the others.
type breakers struct {
	byNode *otter.Cache[string, *breaker]
	log    *slog.Logger
}

type breaker = gobreaker.CircuitBreaker[[]model.Admission]

func newBreakers(log *slog.Logger) *breakers {
	return &breakers{byNode: otter.Must(&otter.Options[string, *breaker]{MaximumSize: breakerNodes}), log: log}
}

func (bs *breakers) of(node string) *breaker {
	if b, found := bs.byNode.GetIfPresent(node); found {
		return b
	}
	b, _ := bs.byNode.SetIfAbsent(node, gobreaker.NewCircuitBreaker[[]model.Admission](gobreaker.Settings{
		Name: node, MaxRequests: 1, Timeout: breakerRest,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		// A call that was cancelled does not count as a failure of Redis.
		IsSuccessful: func(err error) bool { return err == nil || errors.Is(err, context.Canceled) },
		OnStateChange: func(node string, from, to gobreaker.State) {
			bs.log.Warn("the circuit breaker of Redis changed", "node", node, "from", from.String(), "to", to.String())
		},
	}))
	return b
}

// execute makes a call of a node. If the node's breaker keeps the call back, kept reports true for the error. If bs is nil,
// there are no breakers.
func (bs *breakers) execute(node string, call func() ([]model.Admission, error)) ([]model.Admission, error) {
	if bs == nil {
		return call()
	}
	return bs.of(node).Execute(call)
}

// closed reports whether all breakers let all calls through.
func (bs *breakers) closed() bool {
	for _, b := range bs.byNode.All() {
		if b.State() != gobreaker.StateClosed {
			return false
		}
	}
	return true
}

// kept reports whether err means that a breaker did not let the call through.
func kept(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}
