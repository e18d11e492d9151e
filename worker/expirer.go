package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"flashsale/model"
)

const (
	// expirePeriod is how late an order may expire.
	expirePeriod = 500 * time.Millisecond
	// expireBatch orders are looked for at once; those of one sale go into one transaction.
	expireBatch = 256
	// expireTimeout ends a transaction that the database doesn't finish.
	expireTimeout = 3 * time.Second
	// expirePatience is how long the orders of one sale may hold up those of others.
	expirePatience = 100 * time.Millisecond
	// clockStep is by how much the database's clock may gain on this instance's between two looks.
	clockStep = 5 * time.Second
	// expireRest is how long a sale is left alone whose orders could not expire. It doubles with each failure, up to
	// expireRestMost.
	expireRest     = expirePeriod
	expireRestMost = 8 * expireRest
)

// Expiry is what the expirer needs of the database.
type Expiry interface {
	Now(ctx context.Context) (time.Time, error)
	Overdue(ctx context.Context, grace time.Duration, step model.ClockStep, limit int, except []string) (bySale map[string][]string, err error)
	Expire(ctx context.Context, saleID string, orderIDs []string) ([]model.Release, error)
	Log(ctx context.Context, actor, action, subject, detail string) error
}

// Expirer gives the units of unpaid orders back when their time is over, sale by sale: one whose stock row is locked,
// or whose books are wrong, does not hold up the others. Instances may run it side by side: each takes the rows that no
// other has locked.
type Expirer struct {
	Store    Expiry
	Released func(ctx context.Context, saleID string, releases []model.Release) error
	Emptied  func() // nothing overdue is left
	Violated func() // the books of a sale don't let its orders expire
	Grace    time.Duration
	Wake     <-chan struct{} // orders may be over just now; nil: nobody says so
	Now      func() time.Time
	Log      *slog.Logger

	clock    clock
	mu       sync.Mutex
	taken    map[string]bool // sales that are worked on, or rest after a failure
	failures map[string]int  // in a row, by sale
	running  sync.WaitGroup
}

// Run expires orders until ctx ends.
func (e *Expirer) Run(ctx context.Context) {
	e.taken, e.failures = map[string]bool{}, map[string]int{}
	every(ctx, "expirer", expirePeriod, e.Wake, e.Log, e.step)
	e.running.Wait()
}

func (e *Expirer) step(ctx context.Context) error {
	err := e.clock.look(ctx, e.Store.Now, e.Now)
	if err != nil {
		return err
	}
	for {
		except := e.busy()
		bySale, dueErr := e.Store.Overdue(ctx, e.Grace, e.clock.step, expireBatch, except)
		if dueErr != nil {
			return errors.Join(err, dueErr)
		}
		due, ended := 0, 0
		for _, saleID := range slices.Sorted(maps.Keys(bySale)) {
			due += len(bySale[saleID])
			n, saleErr := e.wait(ctx, saleID, bySale[saleID])
			ended += n
			err = errors.Join(err, saleErr)
		}
		if due < expireBatch || ended == 0 { // a full batch of none: other instances are at it
			if ended == due && len(except) == 0 {
				e.noneFails()
				e.Emptied()
			}
			return err
		}
	}
}

// clock compares the database's clock with this machine's, and finds steps forward.
type clock struct {
	shown time.Time // by the database's clock
	asked time.Time // by this machine's clock, before the database was asked
	step  model.ClockStep
}

// look reads the database's clock. The time on this machine is measured from before the last question to after the answer
// to this one, so that a slow answer is not taken for a step.
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

// wait expires orders of one sale and counts them. If that takes long it goes on by itself. The error is the gate's.
func (e *Expirer) wait(ctx context.Context, saleID string, orderIDs []string) (ended int, err error) {
	type end struct {
		n   int
		err error
	}
	done := make(chan end, 1)
	e.mark(saleID, true)
	e.running.Go(func() {
		releases, err := e.expire(ctx, saleID, orderIDs)
		if err != nil {
			done <- end{}
			e.failed(ctx, saleID, err)
			e.mark(saleID, false)
			return
		}
		if len(releases) > 0 { // else another instance has locked the orders, and nothing is known of this sale
			e.works(saleID)
			err = e.Released(ctx, saleID, releases)
		}
		e.mark(saleID, false)
		done <- end{len(releases), err}
	})
	timer := time.NewTimer(expirePatience)
	defer timer.Stop()
	select {
	case end := <-done:
		return end.n, end.err
	case <-timer.C:
		return 0, nil
	}
}

func (e *Expirer) expire(ctx context.Context, saleID string, orderIDs []string) ([]model.Release, error) {
	ctx, cancel := context.WithTimeout(ctx, expireTimeout)
	defer cancel()
	return e.Store.Expire(ctx, saleID, orderIDs)
}

// failed lets a sale rest, and tells when that begins.
func (e *Expirer) failed(ctx context.Context, saleID string, err error) {
	e.mu.Lock()
	e.failures[saleID]++
	failures := e.failures[saleID]
	e.mu.Unlock()
	if failures == 1 && ctx.Err() == nil {
		e.Log.Error("the orders of a sale can't expire", "sale", saleID, "error", err)
		if errors.Is(err, model.ErrBroken) {
			e.Violated()
			if err := e.Store.Log(ctx, "expirer", "violation", saleID, err.Error()); err != nil {
				e.Log.Error("the violation is not in the database's log", "sale", saleID, "error", err)
			}
		}
	}
	pause(ctx, min(expireRest<<min(failures-1, 10), expireRestMost))
}

// works ends a sale's failures in a row.
func (e *Expirer) works(saleID string) {
	e.mu.Lock()
	failures := e.failures[saleID]
	delete(e.failures, saleID)
	e.mu.Unlock()
	if failures > 0 {
		e.Log.Info("the orders of a sale expire again", "sale", saleID)
	}
}

// noneFails ends the failures of all sales, since no order is overdue: other instances may have ended some.
func (e *Expirer) noneFails() {
	e.mu.Lock()
	failing := slices.Sorted(maps.Keys(e.failures))
	e.mu.Unlock()
	for _, saleID := range failing {
		e.works(saleID)
	}
}

func (e *Expirer) mark(saleID string, taken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if taken {
		e.taken[saleID] = true
	} else {
		delete(e.taken, saleID)
	}
}

func (e *Expirer) busy() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.taken))
}
