package strategy

import (
	"context"
	"fmt"

	"flashsale/model"
)

var redisLesson = model.Lesson{
	How: "Redis takes the units at the gate by one Lua script and leaves the order to the settler.",
	Right: "the script checks, deducts and appends to the stream in one atomic step, so that no deduction is without its stream " +
		"entry. The database makes the final decision when the entry is settled.",
	Breaks: "without Redis it sells nothing (503), but never oversells.",
	Costs: "one round trip for all attempts that gathered while the calls before were under way. The order is durable only when " +
		"it is settled, some milliseconds later.",
}

// Redis is the strategy that redisLesson describes.
type Redis struct {
	stateless
	admission *admission
}

// NewRedis makes the strategy. The caller must close it.
func NewRedis(n Needs) *Redis { return &Redis{admission: newAdmission(n, nil)} }

// Deduct admits the attempt, and waits until it is settled. It returns an order, a refusal, or Queued if the gate knew the
// attempt, or if the outcome is not known while the buyer waits. The error wraps model.ErrUnavailable if the gate can't judge or
// fails, too many attempts wait, or the strategy is closed.
func (r *Redis) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := r.admission.deduct(ctx, a)
	switch {
	case err == nil && (outcome.Verdict == model.NoGate || outcome.Verdict == model.Unsure):
		return model.Outcome{}, fmt.Errorf("%w: the gate can't judge: %s", model.ErrUnavailable, outcome.Verdict)
	case err != nil && ctx.Err() == nil:
		return model.Outcome{}, fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}

// Close refuses new attempts and waits for those under way, up to closeGrace. Then it cancels them.
func (r *Redis) Close() { r.admission.batcher.Close(closeGrace) }
