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

// errUnsure means that the gate did not admit the attempt, and that not all of its parts could be asked for units.
var errUnsure = errors.New("not all parts of the gate could be asked")

// admission brings attempts to the gate. Attempts of one line that gather while its calls are under way share the
// next call.
type admission struct {
	needs   Needs
	batcher *batch.Batcher[model.Attempt, model.Outcome]
}

// newAdmission makes an admission. guard may be nil. If it is not, it wraps every call to a node of Redis: it decides
// whether the call is made, and it receives the error of the call.
func newAdmission(n Needs, guard func(node string, call func() ([]model.Outcome, error)) ([]model.Outcome, error)) *admission {
	admit := func(ctx context.Context, line string, attempts []model.Attempt) ([]model.Outcome, error) {
		saleID := attempts[0].SaleID
		call := func() ([]model.Outcome, error) { return n.Gate.Admit(ctx, saleID, attempts, n.Control.Epoch(saleID)) }
		if guard == nil {
			return call()
		}
		return guard(n.Gate.Node(ctx, line), call)
	}
	return &admission{needs: n, batcher: batch.New(n.batched(admissionLimits), admit)}
}

// deduct returns the gate's outcome. It returns model.ErrNoGate if the sale has no open gate, after it has asked for
// one, errUnsure if not all parts of the gate could be asked for units, and model.ErrUnavailable if too many attempts
// wait for the gate or the strategy is closed. After any other error the attempt may have been admitted, unless guard
// did not make the call.
func (ad *admission) deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	line, err := ad.needs.Gate.Line(ctx, a.SaleID, a.UserID)
	if err != nil {
		return model.Outcome{}, err
	}
	outcome, err := ad.batcher.Do(ctx, line, a)
	switch {
	case errors.Is(err, batch.ErrFull) || errors.Is(err, batch.ErrClosed):
		return model.Outcome{}, fmt.Errorf("%w: admit: %w", model.ErrUnavailable, err)
	case err == nil && outcome.Verdict == model.NoGate:
		ad.needs.Control.NeedGate(a.SaleID, "missing at an attempt")
		return model.Outcome{}, model.ErrNoGate
	case err == nil && outcome.Verdict == model.Unsure:
		return model.Outcome{}, errUnsure
	}
	return outcome, err
}

func (ad *admission) close() { ad.batcher.Close(closeGrace) }
