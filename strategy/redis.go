package strategy

import (
	"context"
	"fmt"

	"flashsale/model"
)

// Redis takes the units at the gate by one Lua script and leaves the order to the settler.
//
// Right: the script checks and deducts at one instant, and appends to the stream in the same step, so that no
// deduction is without its message. The database still decides when the entry is settled.
// Breaks: without Redis it sells nothing (503), but nothing wrong either.
// Costs: one round trip for as many attempts as gathered while the one before was under way; the order is durable
// only when it is settled, some milliseconds later.
type Redis struct{ admission *admission }

// NewRedis makes the strategy.
func NewRedis(n Needs) *Redis { return &Redis{admission: newAdmission(n, nil)} }

// Deduct admits the attempt: the outcome is queued, or a refusal. Any trouble with Redis is model.ErrUnavailable.
func (r *Redis) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := r.admission.deduct(ctx, a)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}

// UsesGate is true: the script that admits also counts.
func (*Redis) UsesGate() bool { return true }

// Healthy is always so; Redis itself is asked elsewhere.
func (*Redis) Healthy() error { return nil }

// Close refuses new attempts and waits for those under way.
func (r *Redis) Close() { r.admission.close() }
