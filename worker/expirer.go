package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"flashsale/model"
)

const (
	// expirePeriod is how late an order may expire.
	expirePeriod = 500 * time.Millisecond
	// expireBatch orders go into one transaction.
	expireBatch = 256
)

// Expiry is what the expirer needs of the database.
type Expiry interface {
	ExpireDue(ctx context.Context, grace time.Duration, limit int) (map[string][]model.Release, error)
}

// Expirer gives the units of unpaid orders back when their time is over. Instances may run it side by side:
// each takes the rows that no other has locked.
type Expirer struct {
	Store    Expiry
	Released func(ctx context.Context, saleID string, releases []model.Release) error
	Grace    time.Duration
	Wake     <-chan struct{} // orders may be over just now; nil: nobody says so
	Log      *slog.Logger
}

// Run expires orders until ctx ends.
func (e *Expirer) Run(ctx context.Context) {
	every(ctx, "expirer", expirePeriod, e.Wake, e.Log, e.step)
}

func (e *Expirer) step(ctx context.Context) error {
	var err error
	for {
		bySale, dueErr := e.Store.ExpireDue(ctx, e.Grace, expireBatch)
		if dueErr != nil {
			return errors.Join(err, dueErr)
		}
		total := 0
		for saleID, releases := range bySale {
			total += len(releases)
			err = errors.Join(err, e.Released(ctx, saleID, releases))
		}
		if total < expireBatch {
			return err
		}
	}
}
