package strategy

import (
	"cmp"
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

// admission brings attempts to the gate. Attempts that gather while the calls of their node are under way share the next
// call, whatever their sales.
type admission struct {
	needs    Needs
	breakers *breakers // nil: every call is made
	batcher  *batch.Batcher[model.Attempt, model.Admission]
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
	a.LeastEpoch = ad.needs.Control.Epoch(a.SaleID)
	answer, err := ad.batcher.Do(ctx, ad.needs.Gate.Batch(ctx, a), a)
	if errors.Is(err, batch.ErrFull) || errors.Is(err, batch.ErrClosed) {
		return model.Outcome{}, fmt.Errorf("%w: admit: %w", model.ErrUnavailable, err)
	}
	if answer.Verdict == model.NoGate {
		ad.needs.Control.NeedGate(a.SaleID)
	}
	return answer.Outcome, cmp.Or(err, answer.Err)
}

// admit sends a batch to the gate, unless the circuit breaker of its node is open, and hands what the gate admits over to
// the settler. The breaker counts a failure if every attempt has failed, so that a sale whose keys are damaged does not
// keep others from the gate.
func (ad *admission) admit(ctx context.Context, _ string, attempts []model.Attempt) ([]model.Admission, error) {
	call := func() (answers []model.Admission, failed error) {
		answers = ad.needs.Gate.Admit(ctx, attempts)
		failed = answers[0].Err
		var admitted []model.Entry
		for _, answer := range answers {
			if answer.Err == nil {
				failed = nil
			}
			if answer.Entry != nil {
				admitted = append(admitted, *answer.Entry)
			}
		}
		if len(admitted) > 0 {
			ad.needs.Settle(admitted)
		}
		return answers, failed
	}
	if ad.breakers == nil {
		return call()
	}
	return ad.breakers.of(ad.needs.Gate.Node(ctx, attempts[0])).Execute(call)
}

func (ad *admission) close() { ad.batcher.Close(closeGrace) }
