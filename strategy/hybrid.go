package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/sony/gobreaker/v2"

	"flashsale/model"
)

const (
	// breakerTrips is how many calls in a row must fail before Redis is left alone. A call has all the attempts that
	// gathered, and two are under way at once: a Redis that hangs holds buyers up for two time-outs.
	breakerTrips = 3
	// breakerRest is how long it is left alone before one attempt tries it again.
	breakerRest = time.Second
	// breakerNodes bounds the nodes of a Cluster that are told apart; it can't have more.
	breakerNodes = 1000
)

// Hybrid tries the gate first, behind a circuit breaker, and falls back to the database.
//
// Right: both ways draw on the same stock row, and an attempt has the same order id on both, so one that Redis
// admitted although its reply was lost meets the order that the fallback made for it.
// Breaks: when neither store can take it (503).
// Costs: with Redis as the strategy redis; without it the database alone, in batches by one writer a sale.
type Hybrid struct {
	needs     Needs
	breakers  *otter.Cache[string, *breaker] // by node: the others of a Cluster go on when one fails
	admission *admission
	fallback  *fallback
	requests  *localCounter
}

type breaker = gobreaker.CircuitBreaker[[]model.Outcome]

// NewHybrid makes the strategy.
func NewHybrid(n Needs) *Hybrid {
	h := &Hybrid{
		needs: n, fallback: newFallback(n), requests: newLocalCounter(),
		breakers: otter.Must(&otter.Options[string, *breaker]{MaximumSize: breakerNodes}),
	}
	h.admission = newAdmission(n, func(node string, call func() ([]model.Outcome, error)) ([]model.Outcome, error) {
		return h.breaker(node).Execute(call)
	})
	return h
}

// breaker is the one before a node of Redis.
func (h *Hybrid) breaker(node string) *breaker {
	if b, found := h.breakers.GetIfPresent(node); found {
		return b
	}
	b, _ := h.breakers.SetIfAbsent(node, gobreaker.NewCircuitBreaker[[]model.Outcome](gobreaker.Settings{
		Name:        node,
		MaxRequests: 1,
		Timeout:     breakerRest,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		// A call that a stop has cut off says nothing against Redis.
		IsSuccessful: func(err error) bool { return err == nil || errors.Is(err, context.Canceled) },
		OnStateChange: func(node string, from, to gobreaker.State) {
			h.needs.Log.Warn("circuit breaker before Redis", "node", node, "from", from.String(), "to", to.String())
		},
	}))
	return b
}

// Deduct admits the attempt at the gate, or takes its units in the database. Busy in both: model.ErrUnavailable.
func (h *Hybrid) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := h.admission.deduct(ctx, a)
	switch {
	case err == nil:
		return outcome, nil
	case ctx.Err() != nil:
		return model.Outcome{}, ctx.Err()
	case errors.Is(err, model.ErrUnavailable): // more wait for Redis than may; the database would not be faster
		return model.Outcome{}, err
	case errors.Is(err, errUnsure): // the gate doesn't know the attempt
		return h.fallback.deduct(ctx, a)
	case errors.Is(err, model.ErrNoGate):
		outcome, err = h.fallback.deduct(ctx, a)
		// A sale that has ended may never have a gate again.
		over := outcome.Verdict != model.SoldOut && outcome.Verdict != model.LimitReached
		return unlessAdmitted(outcome, err, a.Keyless || over)
	}
	asked := !errors.Is(err, gobreaker.ErrOpenState) && !errors.Is(err, gobreaker.ErrTooManyRequests)
	if retryAfter, ok := h.requests.count(a); !ok {
		return unlessAdmitted(model.Outcome{Verdict: model.TooFrequent, RetryAfter: retryAfter}, nil, !asked)
	}
	outcome, err = h.fallback.deduct(ctx, a)
	return unlessAdmitted(outcome, err, a.Keyless && !asked)
}

// unlessAdmitted gives the database's outcome, but no refusal unless it is sure that no gate has admitted the attempt.
// Redis may have done so although its answer was lost, or for an earlier try of the same key, here or on another instance.
// That entry is settled some time, perhaps with units that came back meanwhile: a refusal could turn out to be wrong.
// What the database has under the id is final.
func unlessAdmitted(outcome model.Outcome, err error, sure bool) (model.Outcome, error) {
	known := outcome.Order != nil || outcome.Verdict == model.IdempotencyMismatch
	if err != nil || sure || known {
		return outcome, err
	}
	return model.Outcome{}, fmt.Errorf("%w: %s, and perhaps admitted by Redis", model.ErrUnavailable, outcome.Verdict)
}

// UsesGate is true. While there is no Redis, requests are counted in memory.
func (*Hybrid) UsesGate() bool { return true }

// Healthy reports an open circuit: sales go on, those that this Redis has on the database alone.
func (h *Hybrid) Healthy() error {
	for _, b := range h.breakers.All() {
		if b.State() != gobreaker.StateClosed {
			return errors.New("the circuit to Redis is not closed; the database sells alone")
		}
	}
	return nil
}

// Close refuses new attempts and waits for those under way.
func (h *Hybrid) Close() {
	h.admission.close()
	h.fallback.close()
}
