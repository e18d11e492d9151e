package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// admissionLimits bounds the calls of the gate. Batch: a script with a few hundred attempts takes a millisecond or
// two, and Redis serves no other client meanwhile. Calls: the second call keeps Redis busy while the reply to the
// first one is on its way.
var admissionLimits = batch.Limits{Batch: 256, Queue: 8192, Calls: 2, Time: 2 * time.Second}

// admission brings attempts to the gate. Attempts of one line that gather while its calls are under way share the
// next call.
type admission struct {
	needs    Needs
	breakers *breakers // nil: every call is made
	batcher  *batch.Batcher[model.Attempt, model.Outcome]
}

func newAdmission(n Needs, b *breakers) *admission {
	ad := &admission{needs: n, breakers: b}
	ad.batcher = batch.New(n.batched(admissionLimits), ad.admit)
	return ad
}

// deduct returns the gate's outcome. The verdict is also model.NoGate, after deduct has asked for a gate, or
// model.Unsure. deduct returns model.ErrUnavailable if too many attempts wait for the gate or the strategy is closed.
// After any other error the attempt may have been admitted, unless the breaker was open.
func (ad *admission) deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := ad.batcher.Do(ctx, ad.needs.Gate.Line(a.GateRef(), a.UserID), a)
	if errors.Is(err, batch.ErrFull) || errors.Is(err, batch.ErrClosed) {
		return model.Outcome{}, fmt.Errorf("%w: admit: %w", model.ErrUnavailable, err)
	}
	if outcome.Verdict == model.NoGate {
		ad.needs.Control.NeedGate(a.SaleID)
	}
	return outcome, err
}

// admit sends a batch for one shard to the gate, unless the circuit breaker of the shard's node is open.
func (ad *admission) admit(ctx context.Context, line string, attempts []model.Attempt) ([]model.Outcome, error) {
	gate := attempts[0].GateRef()
	call := func() ([]model.Outcome, error) {
		return ad.needs.Gate.Admit(ctx, gate, attempts, ad.needs.Control.Epoch(gate.SaleID))
	}
	if ad.breakers == nil {
		return call()
	}
	return ad.breakers.of(ad.needs.Gate.Node(ctx, line)).Execute(call)
}

func (ad *admission) close() { ad.batcher.Close(closeGrace) }
