package strategy

import (
	"context"

	"flashsale/model"
)

// Naive reads the stock, checks it, and writes back what follows, each on its own: the way that most shops start
// with, kept here to be seen failing.
//
// Right: only when one buyer comes at a time.
// Breaks: as soon as two come at once. Both read the same number, both find it large enough, and the later write
// covers the earlier, so that one unit is sold twice. No constraint in the database notices, since each row is
// right by itself; only the orders outnumber the stock.
// Costs: two trips to the database and nothing that waits: fast, and wrong.
type Naive struct {
	needs   Needs
	between func() // a test's way in between the read and the write
}

// NewNaive makes the strategy.
func NewNaive(n Needs) *Naive { return &Naive{needs: n, between: func() {}} }

// Deduct reads, checks and writes.
func (n *Naive) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	look, err := n.needs.Database.Look(ctx, a)
	if err != nil {
		return model.Outcome{}, err
	}
	if look.Decided != nil {
		return *look.Decided, nil
	}
	n.between()
	return n.needs.Database.Overwrite(ctx, a, look)
}

// UsesGate is false.
func (*Naive) UsesGate() bool { return false }

// Healthy is always so; that it oversells, the operator has allowed.
func (*Naive) Healthy() error { return nil }

// Close has nothing to end.
func (*Naive) Close() {}
