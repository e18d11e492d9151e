package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/model"
)

// pessimisticTimeout ends a transaction that waits for the row, or anything else, longer than buyers would.
const pessimisticTimeout = 5 * time.Second

// Pessimistic locks the stock row by SELECT ... FOR UPDATE, checks it and takes the units, one transaction an attempt.
//
// Right: whoever holds the row's lock reads what nobody else can change before the commit, on any instance.
// Breaks: never oversells. A sale with more buyers than the database finishes in the time-out tells some of them
// to try again. SQLite knows no row locks and drops FOR UPDATE: there it is safe only because SQLite has a
// single writer.
// Costs: buyers pass the hot row one by one, each for as long as a commit takes, and each who waits keeps a
// connection; hence the order and the buyer are written first, and the row is locked last.
type Pessimistic struct{ needs Needs }

// NewPessimistic makes the strategy.
func NewPessimistic(n Needs) *Pessimistic { return &Pessimistic{needs: n} }

// Deduct runs the transaction; model.ErrUnavailable when it doesn't end in time.
func (p *Pessimistic) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, pessimisticTimeout)
	defer cancel()
	outcome, err := p.needs.Database.DeductLocked(limited, a)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}

// UsesGate is false.
func (*Pessimistic) UsesGate() bool { return false }

// Healthy is always so.
func (*Pessimistic) Healthy() error { return nil }

// Close has nothing to end.
func (*Pessimistic) Close() {}
