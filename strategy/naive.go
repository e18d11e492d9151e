package strategy

import (
	"context"

	"flashsale/model"
)

var naiveLesson = model.Lesson{
	How: "Naive reads the stock, checks it, and writes the new stock back in a separate step, without a lock. Most shops start " +
		"like this; the strategy is here to show how it fails.",
	Right: "only when one buyer comes at a time.",
	Breaks: "as soon as two buyers come at once. Both read the same stock, both find it large enough, and the later write " +
		"overwrites the earlier one, so that one unit is sold twice. No constraint in the database fails, since each row is valid " +
		"by itself; only the orders add up to more than the stock.",
	Costs: "one read and one transaction that writes, without waiting for a lock: fast, and wrong.",
}

// Naive is the strategy that naiveLesson describes.
type Naive struct {
	stateless
	needs Needs
}

// Deduct reads the stock, checks it and writes it. It returns an order or a refusal.
func (n *Naive) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	look, err := n.needs.Database.ReadStock(ctx, a)
	if err != nil {
		return model.Outcome{}, err
	}
	if look.Decided != nil {
		return *look.Decided, nil
	}
	return n.needs.Database.WriteStock(ctx, a, look)
}
