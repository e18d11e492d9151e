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
	requests  *otter.Cache[string, *rate.Limiter] // by sale and user, see count
}

// localUsers bounds the counters of requests in memory, one for each user of a sale.
const localUsers = 100_000

// NewHybrid makes the strategy. The caller must close it.
func NewHybrid(n Needs) *Hybrid {
	return &Hybrid{
		admission: newAdmission(n, newBreakers(n.Log)), fallback: newFallback(n),
		requests: otter.Must(&otter.Options[string, *rate.Limiter]{MaximumSize: localUsers}),
	}
}

// Deduct admits the attempt at the gate, or takes its units in the database. It returns an order, a refusal, or Queued if the
// gate knew the attempt, or if the outcome is not known while the buyer waits. The error wraps model.ErrUnavailable if too many
// attempts wait, the strategy is closed, no store could take the attempt, or a refusal might be wrong (unlessAdmitted).
func (h *Hybrid) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := h.admission.deduct(ctx, a)
	switch {
	case err == nil && outcome.Verdict == model.Unsure: // the gate has not admitted the attempt
		return h.fallback.Do(ctx, a.SaleID, a)
	case err == nil && outcome.Verdict == model.NoGate:
		outcome, err = h.fallback.Do(ctx, a.SaleID, a)
		// Other refusals are returned in any case: a sale that has ended, for example, may get no gate any more.
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

// count counts one request in memory, while Redis does not answer. ok is false if the request came too soon. retryAfter is the
// pause in which one more request becomes allowed.
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

// unlessAdmitted returns an outcome that was found without the gate. But if "sure" is false, it replaces a refusal by
// model.ErrUnavailable: Redis may have admitted this try, whose reply was lost, or an earlier try of the same key. The settler
// then decides later, so the refusal might be wrong. An outcome that the database has under the attempt's id is final, and is
// returned.
func unlessAdmitted(outcome model.Outcome, err error, sure bool) (model.Outcome, error) {
	known := outcome.Order != nil || outcome.Verdict == model.IdempotencyMismatch
	if err != nil || sure || known {
		return outcome, err
	}
	return model.Outcome{}, fmt.Errorf("%w: %s, and perhaps admitted by Redis", model.ErrUnavailable, outcome.Verdict)
}

// Healthy returns an error if the circuit breaker of a Redis node is not closed.
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
