package worker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

const (
	// expirePeriod is how often overdue orders are looked for, and so about how late orders expire at most if nothing is in the way.
	expirePeriod = 500 * time.Millisecond
	// expireBatch is how many overdue orders one query returns at most. Those of one sale are expired in one transaction.
	expireBatch = 256
	// expireTimeout bounds a transaction. After that the sale rests, and another transaction tries to expire its orders.
	expireTimeout = 3 * time.Second
	// expirePatience is how long the expirer waits for the orders of one sale before it goes on with the next.
	expirePatience = 100 * time.Millisecond
	// clockStep is how far the database's clock may gain on this instance's between two readings. A larger gain counts as a step.
	clockStep = 5 * time.Second
	// expireRest is how long the expirer leaves a sale alone after its orders could not expire: longer than expirePeriod, so that
	// the next query, which leaves this sale out, has room for others. Further failures in a row double it, up to expireRestMost.
	expireRest     = 3 * expirePeriod / 2
	expireRestMost = 8 * expirePeriod
)

// Expiry is what the expirer needs of the database.
type Expiry interface {
	Now(ctx context.Context) (time.Time, error)
	Overdue(ctx context.Context, grace time.Duration, step model.ClockStep, limit int, except []string) (bySale map[string][]string, err error)
	Expire(ctx context.Context, saleID string, orderIDs []string) ([]model.Release, error)
	AuditLog
}

// Expirer expires unpaid orders after deadline and grace, sale by sale, and releases their units. A sale with a locked stock row
// or with wrong books hardly delays the others. Several instances may run it: each skips the orders that another has locked.
type Expirer struct {
	Store    Expiry
	Released func(ctx context.Context, saleID string, releases []model.Release)
	Observe  observe.All
	Grace    time.Duration
	Wake     <-chan struct{} // receives a value when orders may have become overdue; nil: no such signal
	Now      func() time.Time
	Log      *slog.Logger

	clock clock
	sales apart
}

// Run expires orders until ctx ends. Then it cancels the transactions under way, and waits for their end.
func (e *Expirer) Run(ctx context.Context) {
	e.sales = apart{
		patience: expirePatience, rest: expireRest, restMost: expireRestMost, broken: e.violated, log: e.Log,
		fails: "the orders of a sale can't expire", works: "the orders of a sale expire again",
	}
	every(ctx, "expirer", expirePeriod, e.Wake, e.Log, e.step)
	e.sales.wait()
}

func (e *Expirer) step(ctx context.Context) error {
	if err := e.clock.look(ctx, e.Store.Now, e.Now); err != nil {
		return err
	}
	for {
		except := e.sales.busy()
		bySale, err := e.Store.Overdue(ctx, e.Grace, e.clock.step, expireBatch, except)
		if err != nil {
			return err
		}
		due, ended := 0, 0
		for _, saleID := range slices.Sorted(maps.Keys(bySale)) {
			due += len(bySale[saleID])
			ended += e.wait(ctx, saleID, bySale[saleID])
		}
		if due < expireBatch || ended == 0 { // if no order of a full batch has expired here, other instances may hold them
			if ended == due && len(except) == 0 {
				e.sales.allWell() // other instances may have expired the orders of a sale that failed here
				e.Observe.Note(observe.Event{Name: observe.NothingOverdue})
			}
			return nil
		}
	}
}

// clock compares the database's clock with this machine's to find steps forward of the database's clock.
type clock struct {
	shown time.Time // the last reading of the database's clock
	asked time.Time // this machine's time before that reading
	step  model.ClockStep
}

// look reads the database's clock and detects a step. The time that has passed on this machine is measured from before the
// previous query to after the answer of this one, so that a slow answer is not taken for a step.
func (c *clock) look(ctx context.Context, database func(context.Context) (time.Time, error), here func() time.Time) error {
	asked := here()
	shown, err := database(ctx)
	if err != nil {
		return err
	}
	by := shown.Sub(c.shown) - here().Sub(c.asked)
	if !c.shown.IsZero() && by > clockStep {
		c.step = model.ClockStep{At: shown.Add(-by / 2), By: c.step.By + by}
	}
	c.shown, c.asked = shown, asked
	return nil
}

// wait expires orders of one sale and returns how many have expired within expirePatience. It returns 0 if the transaction fails
// or finds no order to expire, or if the work takes longer; it then goes on in the background.
func (e *Expirer) wait(ctx context.Context, saleID string, orderIDs []string) (ended int) {
	var n int
	finished := e.sales.do(ctx, saleID, func() error {
		expiring, cancel := context.WithTimeout(ctx, expireTimeout)
		defer cancel()
		releases, err := e.Store.Expire(expiring, saleID, orderIDs)
		switch {
		case err != nil:
			return err
		case len(releases) == 0: // orders locked or no longer pending, or instances refuse from memory: the books may be wrong or right
			return errRest
		}
		n = len(releases)
		e.Released(ctx, saleID, releases)
		return nil
	})
	if !finished {
		return 0
	}
	return n
}

// violated reports that the books of a sale seem to be wrong: the database has rejected releases.
func (e *Expirer) violated(ctx context.Context, saleID string, err error) {
	e.Observe.Note(observe.Event{Name: observe.Violated})
	if err := e.Store.Log(ctx, "expirer", "violation", saleID, err.Error()); err != nil {
		e.Log.Error("the violation is not in the database's log", "sale", saleID, "error", err)
	}
}
