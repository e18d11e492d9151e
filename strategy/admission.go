package strategy

import (
	"context"
	"slices"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// admissionLimits bounds the calls of the gate. Batch: a script with a few hundred attempts takes a millisecond or two, and Redis
// serves no other client meanwhile. Calls: the second one keeps Redis busy while the reply to the first is on its way.
var admissionLimits = batch.Limits{Batch: 256, Queue: 8192, Calls: 2, Time: 2 * time.Second}

// gatherTime is how long a call of the gate waits for more attempts while a settle is under way, if its first buyer waits for
// the settler. Its attempts usually have to wait for the end of that settle anyway, and larger calls cost less.
const gatherTime = time.Millisecond

// admission brings attempts to the gate, in batches by the keys of Gate.Batch.
type admission struct {
	needs    Needs
	breakers *breakers // nil: no call is kept back
	batcher  *batch.Batcher[model.Attempt, struct{}]
}

func newAdmission(n Needs, b *breakers) *admission {
	ad := &admission{needs: n, breakers: b}
	ad.batcher = batch.New(n.batched(admissionLimits), ad.admit)
	ad.batcher.Gather = ad.gather
	return ad
}

func (ad *admission) gather(first model.Attempt) time.Duration {
	if first.Waiter.Hurried() || !ad.needs.Settler.Busy() {
		return 0
	}
	return gatherTime
}

// deduct returns the settled outcome of an attempt that the gate admits, or the gate's refusal. The verdict is Queued if the
// outcome was not told while the buyer waited, or the gate knew the attempt; NoGate if no gate could judge, and then deduct has
// asked for one; or Unsure. deduct returns model.ErrUnavailable if too many attempts wait or the strategy is closed. After
// another error the attempt may have been admitted, unless ctx had ended before or the breaker kept the call back.
func (ad *admission) deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return model.Outcome{}, err
	}
	if a.Waiter == nil {
		a.Waiter = model.NewWaiter(ctx.Done())
		a.Waiter.Hurry()
	}
	if err := ad.batcher.Put(ad.needs.Gate.Batch(ctx, a), a, nil); err != nil {
		return model.Outcome{}, err
	}
	outcome, err := a.Waiter.Told()
	if outcome.Verdict == model.NoGate {
		ad.needs.Control.NeedGate(a.SaleID)
	}
	return outcome, err
}

// admit sends a batch to the gate, unless the circuit breaker of its node keeps it back. The settler gets the admitted attempts,
// and tells their buyers the outcomes. Buyers whose attempts the gate knew get Queued, and the others the gate's answers or the
// error. A call fails for the breaker if all its attempts fail: the damaged keys of one sale must not stop the others.
func (ad *admission) admit(ctx context.Context, _ string, attempts []model.Attempt) ([]struct{}, error) {
	ask := func() ([]model.Admission, error) {
		answers := ad.needs.Gate.Admit(ctx, attempts)
		if slices.ContainsFunc(answers, func(a model.Admission) bool { return a.Err == nil }) {
			return answers, nil
		}
		return answers, answers[0].Err
	}
	answers, err := ad.breakers.execute(ad.needs.Gate.Node(ctx, attempts[0]), ask)
	now, admitted := ad.needs.Now(), []model.Entry(nil)
	for i, a := range attempts {
		var answer model.Admission
		if answer.Err = err; err == nil {
			answer = answers[i]
		}
		switch {
		case answer.Entry != nil:
			admitted = append(admitted, *answer.Entry)
			a.Waiter.Admit(now)
		case answer.Verdict == model.Accepted:
			a.Waiter.Tell(model.Outcome{Verdict: model.Queued, Repeated: answer.Repeated}, nil)
		default:
			a.Waiter.Tell(answer.Outcome, answer.Err)
		}
	}
	if len(admitted) > 0 {
		ad.needs.Settler.Add(admitted)
	}
	return nil, nil //nolint:nilnil // the buyers have the answers
}
