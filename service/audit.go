package service

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

// AuditStore reads what the auditor needs from the database.
type AuditStore interface {
	LiveStore
	LiveOffers(ctx context.Context, linger time.Duration) ([]model.Offer, error)
	Buyers(ctx context.Context, saleID string) iter.Seq2[[]model.Buyer, error]
}

// AuditGate reads gates, and the users' units at them.
type AuditGate interface {
	Peeker
	Units(ctx context.Context, gate model.GateRef, users []string) ([]int, error)
	Buyers(ctx context.Context, gate model.GateRef) (int64, error)
}

// Auditor checks that no unit was lost or created: the database's sums must agree, and the gate's units must agree with them.
type Auditor struct {
	Store AuditStore
	Gate  AuditGate // nil: Audit checks only the database; Drifts and Miscounts need a Gate

	right sync.Map      // by sale, the sale's state when its gate was last found to count right
	last  []model.Offer // the sales as the last call of Drifts read them
}

// Audit is the result of an audit of one sale.
type Audit struct {
	Books      model.Books
	Gate       model.GateState
	Drift      int64    // see the function drift
	Moving     bool     // the stock still changes, so the drift may come from orders that the gate does not know yet
	Violations []string // the sums that disagree, in words
}

// Drifts reports whether the gate differs from the database. It is false while the audit is Moving.
func (a Audit) Drifts() bool { return a.Drift != 0 && !a.Moving }

// OK reports whether all sums agree and the gate does not drift.
func (a Audit) OK() bool { return len(a.Violations) == 0 && !a.Drifts() }

// Audit checks one sale; ok is false if it does not exist. The error wraps model.ErrUnavailable if the gate can't be read. While
// orders are being made, a drift may be temporary: the gate hears of a settled order after the commit.
func (a *Auditor) Audit(ctx context.Context, saleID string) (audit Audit, ok bool, err error) {
	if a.Gate != nil {
		offer, ok, err := a.Store.Offer(ctx, saleID)
		if err != nil || !ok {
			return audit, ok, err
		}
		states, err := a.Gate.Peek(ctx, offer.GateRef())
		if err != nil {
			return audit, false, fmt.Errorf("audit: %w: %w", model.ErrUnavailable, err)
		}
		audit.Gate = states[0]
	}
	if audit.Books, ok, err = a.Store.Books(ctx, saleID); err != nil || !ok {
		return audit, ok, err
	}
	audit.Violations = audit.Books.Violations()
	audit.Drift = drift(audit.Gate, audit.Books.Stock)
	return audit, true, nil
}

// auditTries is how often a failing audit is run, with pauses of auditPause, before its result counts: a look at the gate may
// fall between a commit and its acknowledgement.
const auditTries, auditPause = 10, 200 * time.Millisecond

// AuditSettled repeats the audit of a sale until it is OK, at most auditTries times, since orders may be under way. The
// audit of the last try is Moving if the stock has changed since the try before. ok and the errors are as with Audit;
// AuditSettled also returns ctx's error if ctx ends.
func (a *Auditor) AuditSettled(ctx context.Context, saleID string) (audit Audit, ok bool, err error) {
	for try := 1; ; try++ {
		before := audit.Books.Stock
		audit, ok, err = a.Audit(ctx, saleID)
		audit.Moving = try == auditTries && audit.Books.Stock != before
		if err != nil || !ok || audit.OK() || try == auditTries {
			return audit, ok, err
		}
		if !pause.For(ctx, auditPause) {
			return audit, ok, ctx.Err()
		}
	}
}

// Drift is how many more units the gate of an epoch has than the database, see the function drift.
type Drift struct{ Epoch, Units int64 }

// Drifts compares open gates with the database, for the sales that have not ended. It returns the drifts by sale, also those of 0
// units. It leaves out sales that it did not read in the call before. It also leaves out a drift other than 0 if the stock has
// changed since that call, because the gate hears of an order after the commit. Drifts returns an error if it can't read the
// database, or can read no gate.
func (a *Auditor) Drifts(ctx context.Context) (map[string]Drift, error) {
	before, states := a.last, []model.GateState(nil)
	if len(before) > 0 {
		var err error
		if states, err = a.Gate.Peek(ctx, model.GateRefs(before)...); err != nil {
			return nil, err
		}
	}
	live, err := a.Store.LiveOffers(ctx, 0) // after the gates: a stock that has not changed was the same when they were read
	if err != nil {
		return nil, err
	}
	a.last = live
	now := make(map[string]model.Offer, len(live))
	for _, o := range live {
		now[o.ID] = o
	}
	drifts := make(map[string]Drift, len(before))
	for i, o := range before {
		after, found := now[o.ID]
		units := drift(states[i], after.Stock)
		if found && states[i].Open && after.Status != model.SaleClosed && (units == 0 || after.Stock == o.Stock) {
			drifts[o.ID] = Drift{states[i].Epoch, units}
		}
	}
	return drifts, nil
}

// Miscounts reports whether a sale's gate counts other units for its users than the database does. If so, it returns the epoch of
// this gate. Two such errors may cancel out in the gate's left, so that no drift shows them. The result is also false if the sale
// is not quiet, or changes during the comparison. After its gate was found right, a sale is compared again only if its stock or
// epoch has changed.
func (a *Auditor) Miscounts(ctx context.Context, saleID string) (epoch int64, wrong bool, err error) {
	before, err := a.quiet(ctx, saleID)
	last, _ := a.right.Load(saleID)
	if err != nil || before == (still{}) || last == before {
		return 0, false, err
	}
	equal, err := a.countsEqual(ctx, before.gate)
	if err != nil {
		return 0, false, err
	}
	after, err := a.quiet(ctx, saleID)
	if err != nil || after != before {
		return 0, false, err
	}
	if equal {
		a.right.Store(saleID, after)
	}
	return after.epoch, !equal, nil
}

// countsEqual reports whether each buyer in the database has the same units at the gate, and the gate has no other buyers.
func (a *Auditor) countsEqual(ctx context.Context, gate model.GateRef) (bool, error) {
	rest, err := a.Gate.Buyers(ctx, gate)
	if err != nil {
		return false, err
	}
	for buyers, err := range a.Store.Buyers(ctx, gate.SaleID) {
		if err != nil {
			return false, err
		}
		users := make([]string, len(buyers))
		for i, b := range buyers {
			users[i] = b.UserID
		}
		units, err := a.Gate.Units(ctx, gate, users)
		if err != nil {
			return false, err
		}
		if !slices.EqualFunc(buyers, units, func(b model.Buyer, units int) bool { return b.Units == units }) {
			return false, nil
		}
		rest -= int64(len(buyers))
	}
	return rest == 0, nil
}

// still is the state of a sale whose gate is open and whose stream is empty.
type still struct {
	gate  model.GateRef
	stock model.Stock
	epoch int64 // of its open gate
}

// quiet returns the state of a sale that is not closed, if its gate is open and its stream is empty, and else a zero still.
func (a *Auditor) quiet(ctx context.Context, saleID string) (still, error) {
	offer, ok, err := a.Store.Offer(ctx, saleID)
	if err != nil || !ok || offer.Status == model.SaleClosed {
		return still{}, err
	}
	states, err := a.Gate.Peek(ctx, offer.GateRef())
	if err != nil || !states[0].Open || states[0].Stream != 0 {
		return still{}, err
	}
	return still{offer.GateRef(), offer.Stock, states[0].Epoch}, nil
}

// drift returns the gate's left + inflight minus the database's available. It returns 0 for a gate that is not open, since that
// admits nothing. Units in flight count only while the stream has entries: without entries, nothing is left to settle.
func drift(gate model.GateState, stock model.Stock) int64 {
	switch {
	case !gate.Open:
		return 0
	case gate.Stream == 0:
		return gate.Left - stock.Available
	}
	return gate.Left + gate.Inflight - stock.Available
}
