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
	// expirePeriod is how often overdue orders are looked for.
	expirePeriod = 500 * time.Millisecond
	// expireBatch is how many overdue orders one query returns at most.
	expireBatch = 256
	// expireTimeout bounds a transaction.
	expireTimeout = 3 * time.Second
	// expirePatience is how long the expirer waits for the orders of one sale before it goes on with the next.
	expirePatience = 100 * time.Millisecond
	// clockStep is how far the database's clock may gain on this instance's between two readings. More is a step.
	clockStep = 5 * time.Second
	// expireRest is how long a sale rests after its orders could not expire: longer than expirePeriod, so that the next query has
	// room for other sales. Further failures in a row double it, up to expireRestMost.
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

// Expirer expires unpaid orders after deadline and grace, sale by sale, and releases their units. Several instances may run it:
// each skips the orders that another has locked.
type Expirer struct {
	Store    Expiry
	Released func(ctx context.Context, saleID string, releases []model.Release)
	Observe  observe.All
	Grace    time.Duration
	Wake     <-chan struct{} // has a value when orders may be overdue; may be nil
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
		if due < expireBatch || ended == 0 { // if none has ended, other instances may hold the orders
			if ended == due && len(except) == 0 {
				e.sales.allWell() // others may have expired what failed here
				e.Observe.Note(observe.Event{Name: observe.NothingOverdue})
			}
			return nil
		}
	}
}

// clock finds steps forward of the database's clock, by comparison with this machine's.
type clock struct {
	shown time.Time // the last reading of the database's clock
	asked time.Time // this machine's time before that reading
	step  model.ClockStep
}

// look reads the database's clock and detects a step. The time on this machine is taken from before the previous query to after
// the answer of this one, so that a slow answer does not look like a step.
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

// wait expires orders of one sale, and returns how many have expired within expirePatience. It returns 0 if that fails, finds no
// order to expire, or takes longer. In the last case the work goes on in the background.
func (e *Expirer) wait(ctx context.Context, saleID string, orderIDs []string) (ended int) {
	var n int
	finished := e.sales.do(ctx, saleID, func() error {
		expiring, cancel := context.WithTimeout(ctx, expireTimeout)
		defer cancel()
		releases, err := e.Store.Expire(expiring, saleID, orderIDs)
		switch {
		case err != nil:
			return err
		case len(releases) == 0: // orders locked or no longer pending, or units can't come back yet
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

// violated reports that the books of a sale seem to be wrong, since the database has rejected releases.
func (e *Expirer) violated(ctx context.Context, saleID string, err error) {
	e.Observe.Note(observe.Event{Name: observe.Violated})
	if err := e.Store.Log(ctx, "expirer", "violation", saleID, err.Error()); err != nil {
		e.Log.Error("the violation is not in the database's log", "sale", saleID, "error", err)
	}
}
