package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/model"
)

// pessimisticTimeout bounds a transaction, which may wait for the row lock.
const pessimisticTimeout = 5 * time.Second

var pessimisticLesson = model.Lesson{
	How: "Pessimistic locks the stock row by SELECT ... FOR UPDATE, checks it and takes the units, in one transaction per attempt.",
	Right: "while a transaction holds the lock of the row, no other transaction, on any instance, can change the stock that it " +
		"has read.",
	Breaks: "it never oversells. If more buyers come than the database serves within the timeout, some of them are told to try " +
		"again. SQLite has no row locks, and FOR UPDATE is left out there: the strategy is safe on SQLite only because SQLite has " +
		"a single writer.",
	Costs: "transactions lock the hot row one after another, each until its commit, and each transaction that waits occupies a " +
		"connection. Therefore the order and the buyer are written first, and the row is locked last.",
}

// Pessimistic is the strategy that pessimisticLesson describes.
type Pessimistic struct {
	stateless
	needs Needs
}

// Deduct returns an order or a refusal, or model.ErrUnavailable if the transaction exceeds pessimisticTimeout.
func (p *Pessimistic) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, pessimisticTimeout)
	defer cancel()
	outcome, err := p.needs.Database.DeductLocked(limited, a)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}
