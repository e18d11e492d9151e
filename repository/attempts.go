package repository

import (
	"slices"
	"time"

	"flashsale/model"
)

// attemptBatch has attempts, their outcomes, and which of the attempts are still open.
type attemptBatch struct {
	attempts []model.Attempt
	outcomes []model.Outcome
	open     []int // indexes of attempts that are neither known nor refused, and repeat no earlier attempt of the batch
	closed   []int // indexes of attempts that this batch refused
	first    map[string]int
}

// newBatch makes a batch. An attempt whose id is in "known" gets its answer now, see Attempt.Replay. Of several other attempts
// with the same id, the first is open; the method "answered" gives the others their outcomes.
func newBatch(attempts []model.Attempt, known map[string]model.Outcome) *attemptBatch {
	b := &attemptBatch{
		attempts: attempts, outcomes: make([]model.Outcome, len(attempts)),
		open: make([]int, 0, len(attempts)), first: make(map[string]int, len(attempts)),
	}
	for i, a := range attempts {
		outcome, isKnown := known[a.ID]
		_, twice := b.first[a.ID]
		switch {
		case isKnown:
			b.outcomes[i] = a.Replay(outcome)
		case !twice:
			b.first[a.ID] = i
			b.open = append(b.open, i)
		}
	}
	return b
}

func (b *attemptBatch) users() []string {
	return each(b.unitsByUser(), func(u userUnits) string { return u.user })
}

// unitsByUser adds up the units of the open attempts by sale and user, in the order of byUser.
func (b *attemptBatch) unitsByUser() []userUnits {
	return byUser(each(b.open, func(i int) userUnits {
		return userUnits{b.attempts[i].SaleID, b.attempts[i].UserID, b.attempts[i].Quantity}
	}))
}

func (b *attemptBatch) units() (n int64) {
	for _, i := range b.open {
		n += int64(b.attempts[i].Quantity)
	}
	return n
}

// userLimit is the limit per user of a sale or campaign, with the units that users have.
type userLimit struct {
	limit int
	units map[string]int
}

// decide judges the open attempts in their order. The refusal is LimitReached if an attempt exceeds one of the limits, or else
// SoldOut if it wants more units than are left. Other attempts stay open, and their units count when the next ones are judged.
func (b *attemptBatch) decide(limits []userLimit, available int64) {
	b.open = slices.DeleteFunc(b.open, func(i int) bool {
		a := b.attempts[i]
		switch {
		case slices.ContainsFunc(limits, func(l userLimit) bool { return l.units[a.UserID]+a.Quantity > l.limit }):
			b.refuse(i, model.LimitReached)
		case int64(a.Quantity) > available:
			b.refuse(i, model.SoldOut)
		default:
			for _, l := range limits {
				l.units[a.UserID] += a.Quantity
			}
			available -= int64(a.Quantity)
			return false
		}
		return true
	})
}

func (b *attemptBatch) refuse(i int, verdict model.Verdict) {
	b.outcomes[i] = model.Outcome{Verdict: verdict}
	b.closed = append(b.closed, i)
}

func (b *attemptBatch) refuseRest(verdict model.Verdict) {
	for _, i := range b.open {
		b.refuse(i, verdict)
	}
	b.open = nil
}

// accept makes an order as the outcome of each open attempt, and returns the orders. It does not write to the database.
func (b *attemptBatch) accept(from supply) []*model.Order {
	orders := make([]*model.Order, len(b.open))
	for at, i := range b.open {
		a := b.attempts[i]
		offer := from.terms[a.SaleID].offer
		orders[at] = &model.Order{
			ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity,
			AmountCents: int64(a.Quantity) * offer.PriceCents, Currency: offer.Currency,
			Status: model.OrderPending, Source: from.source, Epoch: offer.Stock.Epoch, IdempotencyKey: a.IdempotencyKey,
			CreatedAt: from.now, ExpiresAt: from.now.Add(time.Duration(offer.PayTimeoutSeconds) * time.Second),
		}
		if from.epochs != nil {
			orders[at].Epoch = from.epochs[i]
		}
		b.outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: orders[at]}
	}
	return orders
}

// answered returns the outcomes of a decided batch, after it has answered the attempts that newBatch has left to it.
func (b *attemptBatch) answered() []model.Outcome {
	for i, a := range b.attempts {
		if first, ok := b.first[a.ID]; ok && first != i {
			b.outcomes[i] = a.Replay(b.outcomes[first])
		}
	}
	return b.outcomes
}

func attemptsOf(entries []model.Entry) []model.Attempt {
	return each(entries, func(e model.Entry) model.Attempt { return e.Attempt })
}

func idsOf(attempts []model.Attempt) []string {
	return each(attempts, func(a model.Attempt) string { return a.ID })
}
