package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/gather"
	"flashsale/model"
)

// admissionLimits: a few hundred attempts cost a script a millisecond or two, during which Redis serves nobody else; the
// second call keeps Redis busy while the first one's answer is on its way.
var admissionLimits = gather.Limits{Batch: 256, Queue: 8192, Calls: 2, Time: 2 * time.Second}

// errUnsure: the gate is open, but could not look everywhere for units.
var errUnsure = errors.New("not all parts of the gate could be asked")

// admission brings attempts to the gate, those of one line that gathered in one call.
type admission struct {
	needs    Needs
	gatherer *gather.Gatherer[model.Attempt, model.Outcome]
}

// newAdmission makes one; guard, if any, decides whether a call to a node is made, and hears of its error.
func newAdmission(n Needs, guard func(node string, call func() ([]model.Outcome, error)) ([]model.Outcome, error)) *admission {
	admit := func(ctx context.Context, line string, attempts []model.Attempt) ([]model.Outcome, error) {
		saleID := attempts[0].SaleID
		call := func() ([]model.Outcome, error) { return n.Gate.Admit(ctx, saleID, attempts, n.Control.Epoch(saleID)) }
		if guard == nil {
			return call()
		}
		return guard(n.Gate.Node(ctx, line), call)
	}
	return &admission{needs: n, gatherer: gather.New(n.batched(admissionLimits), admit)}
}

// deduct gives the gate's outcome. model.ErrNoGate: it has none, and a gate was asked for. errUnsure: it can't say.
// model.ErrUnavailable: too many wait for it. Any other error leaves open whether the attempt was admitted.
func (ad *admission) deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	line, err := ad.needs.Gate.Line(ctx, a.SaleID, a.UserID)
	if err != nil {
		return model.Outcome{}, err
	}
	outcome, err := ad.gatherer.Do(ctx, line, a)
	switch {
	case errors.Is(err, gather.ErrFull) || errors.Is(err, gather.ErrClosed):
		return model.Outcome{}, fmt.Errorf("%w: admit: %w", model.ErrUnavailable, err)
	case err == nil && outcome.Verdict == model.NoGate:
		ad.needs.Control.NeedGate(a.SaleID, "missing at an attempt")
		return model.Outcome{}, model.ErrNoGate
	case err == nil && outcome.Verdict == model.Unsure:
		return model.Outcome{}, errUnsure
	}
	return outcome, err
}

func (ad *admission) close() { ad.gatherer.Close(closeGrace) }
