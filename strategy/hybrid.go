package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

	"flashsale/internal/batch"
	"flashsale/model"
)

var hybridLesson = model.Lesson{
	How: "Hybrid tries the gate first, behind a circuit breaker, and falls back to the database.",
	Right: "on both ways the units finally come from the same stock row, and an attempt has the same order id. If Redis admitted " +
		"an attempt but its reply was lost, and the fallback then made the order, the settler finds that order under the id of the " +
		"stream entry and makes no second one.",
	Breaks: "when neither store can take the attempt, or when the database refuses an attempt that Redis may have admitted (503).",
	Costs: "with Redis, the same as the strategy redis; without Redis, transactions of the database alone, in batches, with one " +
		"writer per sale on each instance.",
}

// Hybrid is the strategy that hybridLesson describes.
type Hybrid struct {
	admission *admission
	fallback  *batch.Batcher[model.Attempt, model.Outcome]
	requests  *otter.Cache[string, *rate.Limiter] // the users' frequencies, see count
}

// localUsers bounds the frequencies in memory, one for each user of a sale. The cache evicts those used neither lately nor often.
const localUsers = 100_000

// NewHybrid makes the strategy.
func NewHybrid(n Needs) *Hybrid {
	return &Hybrid{
		admission: newAdmission(n, newBreakers(n.Log)), fallback: newFallback(n),
		requests: otter.Must(&otter.Options[string, *rate.Limiter]{MaximumSize: localUsers}),
	}
}

// Deduct admits the attempt at the gate, or takes its units in the database. It returns an order, a refusal, or Queued for an
// attempt that the gate knew before, or that it admits now and that is not settled while the buyer waits. It returns
// model.ErrUnavailable if too many attempts wait, if the strategy is closed, if neither store could take the attempt, or if an
// attempt that Redis may have admitted was refused. It returns the error of ctx if ctx ends first.
func (h *Hybrid) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := h.admission.deduct(ctx, a)
	switch {
	case err == nil && outcome.Verdict == model.Unsure: // the gate has not admitted the attempt
		return h.fallback.Do(ctx, a.SaleID, a)
	case err == nil && outcome.Verdict == model.NoGate:
		outcome, err = h.fallback.Do(ctx, a.SaleID, a)
		// All refusals but these two are returned in any case: a sale that has ended, for example, may never have a gate again.
		over := outcome.Verdict != model.SoldOut && outcome.Verdict != model.LimitReached
		return unlessAdmitted(outcome, err, a.Keyless || over)
	case err == nil:
		return outcome, nil
	case ctx.Err() != nil:
		return model.Outcome{}, ctx.Err()
	case errors.Is(err, model.ErrUnavailable): // closed, or too many attempts wait for Redis: the database would not be faster
		return model.Outcome{}, err
	}
	asked := !kept(err)
	if retryAfter, ok := h.count(a); !ok {
		return unlessAdmitted(model.Outcome{Verdict: model.TooFrequent, RetryAfter: retryAfter}, nil, !asked)
	}
	outcome, err = h.fallback.Do(ctx, a.SaleID, a)
	return unlessAdmitted(outcome, err, a.Keyless && !asked)
}

// count counts one request, while Redis, which counts for all instances, does not answer. ok is false if the request came too
// soon; the next one is allowed after retryAfter at the latest.
func (h *Hybrid) count(a model.Attempt) (retryAfter time.Duration, ok bool) {
	f := a.Frequency
	if f.Limit <= 0 {
		return 0, true
	}
	pause := f.Window / time.Duration(f.Limit)
	limiter, _ := h.requests.ComputeIfAbsent(a.SaleID+"/"+a.UserID, func() (*rate.Limiter, bool) {
		return rate.NewLimiter(rate.Every(pause), f.Limit), false
	})
	return pause, limiter.Allow()
}

// unlessAdmitted returns the outcome that was found without the gate. But if "sure" is false, it replaces a refusal by
// model.ErrUnavailable: Redis may have admitted the attempt although its reply was lost, or may have admitted an earlier try of
// the same key, on this instance or another one. The entry of that admission is settled later, perhaps with units that were
// released meanwhile, so the refusal might be wrong. An outcome that the database has stored under the attempt's id is final and
// is always returned.
func unlessAdmitted(outcome model.Outcome, err error, sure bool) (model.Outcome, error) {
	known := outcome.Order != nil || outcome.Verdict == model.IdempotencyMismatch
	if err != nil || sure || known {
		return outcome, err
	}
	return model.Outcome{}, fmt.Errorf("%w: %s, and perhaps admitted by Redis", model.ErrUnavailable, outcome.Verdict)
}

// Healthy returns an error if the circuit breaker of a Redis node is not closed. The database then sells the sales of that node.
func (h *Hybrid) Healthy() error {
	if !h.admission.breakers.closed() {
		return errors.New("the circuit to Redis is not closed; the database sells alone")
	}
	return nil
}

// Close refuses new attempts and waits for those under way, up to closeGrace for each store. Then it cancels them.
func (h *Hybrid) Close() {
	h.admission.batcher.Close(closeGrace)
	h.fallback.Close(closeGrace)
}
