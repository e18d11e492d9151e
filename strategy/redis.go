package strategy

import (
	"context"
	"fmt"

	"flashsale/model"
)

// Redis takes the units at the gate by one Lua script and leaves the order to the settler.
//
// Right: the script checks, deducts and appends to the stream in one atomic step, so that no deduction is without
// its stream entry. The database makes the final decision when the entry is settled.
// Breaks: without Redis it sells nothing (503), but never oversells.
// Costs: one round trip for all attempts that gathered while the calls before were under way. The order is durable
// only when it is settled, some milliseconds later.
type Redis struct{ admission *admission }

// NewRedis makes the strategy.
func NewRedis(n Needs) *Redis { return &Redis{admission: newAdmission(n, nil)} }

// Deduct admits the attempt. The outcome is queued or a refusal. It returns model.ErrUnavailable for every error of
// the gate, or if too many attempts wait.
func (r *Redis) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := r.admission.deduct(ctx, a)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}

// UsesGate returns true: the script that admits an attempt also counts the request.
func (*Redis) UsesGate() bool { return true }

// Healthy returns nil. The readiness check pings Redis by itself.
func (*Redis) Healthy() error { return nil }

// Close refuses new attempts and waits for those under way.
func (r *Redis) Close() { r.admission.close() }
