package worker

import (
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/service"
)

const (
	// auditPeriod is the time between two rounds. With many sales it is longer (pace).
	auditPeriod = time.Second
	// auditLease is how many rounds a lease lasts.
	auditLease = 3
	// driftsSeen is how many times in a row a drift or a miscount must be seen before the gate is replaced: a single sighting may
	// fall between a commit and its acknowledgement.
	driftsSeen = 3
	// booksEvery is how many rounds pass between two checks of a sale's books, since a check reads all its orders. With many sales
	// the number of rounds is doubled until at most about booksMost sales are checked in an auditPeriod.
	booksEvery = 30
	booksMost  = 10
)

// Auditor checks the sales and their gates. Every instance compares gates with the stock and has drifting ones replaced, so that
// this waits for no other instance. The sums over orders and buyers cost more, so the instance with the lease reads them.
type Auditor struct {
	Lease    Lease
	Audits   *service.Auditor
	AuditLog AuditLog
	Catalog  *service.Catalog
	Replace  func(saleID string, epoch int64, reason model.RebuildReason) // requests a gate of a newer epoch
	Observe  observe.All
	Log      *slog.Logger

	drifts    map[string]sighting
	lines     map[string]model.Books // by sale with a line, its books as last read
	miscounts map[string]sighting    // by sale, the sightings of wrong counts of users' units at its gate
	round     int
}

type sighting struct {
	service.Drift
	times int
}

// Run audits until ctx ends.
func (a *Auditor) Run(ctx context.Context) {
	a.drifts, a.miscounts, a.lines = map[string]sighting{}, map[string]sighting{}, map[string]model.Books{}
	everyPaced(ctx, "auditor", auditPeriod, a.Catalog.Watched, nil, a.Log, a.step)
}

func (a *Auditor) step(ctx context.Context) error {
	// An instance that can't read the gates returns here, and leaves the lease to others.
	drifts, err := a.Audits.Drifts(ctx)
	if err != nil {
		return err
	}
	for saleID, drift := range drifts {
		a.judge(saleID, drift)
	}
	a.round++
	live := a.Catalog.LiveIDs()
	periods := pace(len(live))
	if mine, err := a.Lease(ctx, "auditor", time.Duration(auditLease*periods)*auditPeriod); err != nil || !mine {
		clear(a.miscounts)
		return err
	}
	a.Observe.Note(observe.Event{Name: observe.Audited})
	for _, id := range live {
		due := booksDue(id, a.round, len(live)/periods)
		if due {
			err = errors.Join(err, a.checkBooks(ctx, id))
		}
		if due || a.miscounts[id].times > 0 {
			err = errors.Join(err, a.checkUnits(ctx, id))
		}
	}
	return err
}

// booksDue reports whether a sale's books are checked in this round. live is the number of watched sales, divided by the
// auditPeriods of a round. A sale is checked in every Nth round, as its id says. N is booksEvery, doubled while there are too
// many sales.
func booksDue(saleID string, round, live int) bool {
	every := booksEvery
	for live > every*booksMost {
		every *= 2
	}
	return int(crc32.ChecksumIEEE([]byte(saleID)))%every == round%every
}

// judge requests a new gate when the same drift was seen driftsSeen times in a row. Rounds without a comparison do not count.
func (a *Auditor) judge(saleID string, drift service.Drift) {
	a.Observe.Note(observe.Event{Name: observe.Drifted, Label: saleID, N: drift.Units})
	if drift.Units == 0 {
		delete(a.drifts, saleID)
		return
	}
	seen := a.drifts[saleID]
	if seen.Drift != drift {
		seen = sighting{Drift: drift}
	}
	seen.times++
	a.Log.Warn("the gate drifts from the database", "sale", saleID, "units", drift.Units, "times", seen.times)
	if seen.times == driftsSeen {
		a.Replace(saleID, drift.Epoch, model.RebuildDrift)
	}
	a.drifts[saleID] = seen
}

// checkUnits requests a new gate when a sale's gate was seen driftsSeen times in a row to count users' units wrong. A single
// sighting may come from a release that has not reached the gate yet.
func (a *Auditor) checkUnits(ctx context.Context, id string) error {
	if a.Catalog.Judge(id) == model.Ended {
		delete(a.miscounts, id)
		return nil
	}
	epoch, wrong, err := a.Audits.Miscounts(ctx, id)
	if err != nil {
		return err
	}
	if !wrong {
		delete(a.miscounts, id)
		return nil
	}
	seen := a.miscounts[id]
	if seen.Epoch != epoch {
		seen = sighting{Drift: service.Drift{Epoch: epoch}}
	}
	if seen.times++; seen.times >= driftsSeen {
		a.Replace(id, epoch, model.RebuildMiscounted)
		seen.times = 0
	}
	a.miscounts[id] = seen
	return nil
}

func (a *Auditor) checkBooks(ctx context.Context, saleID string) error {
	books, ok, err := a.Audits.Store.Books(ctx, saleID)
	if err != nil || !ok {
		return err
	}
	violations := append(books.Violations(), books.Since(a.lines[saleID])...)
	if books.Line.Phase != "" {
		a.lines[saleID] = books
	}
	if len(violations) == 0 {
		return nil
	}
	a.Observe.Note(observe.Event{Name: observe.Violated})
	a.Log.Error("the books don't balance", "sale", saleID, "violations", violations)
	for _, v := range violations {
		err = errors.Join(err, a.AuditLog.Log(ctx, "auditor", "violation", saleID, v))
	}
	return err
}
