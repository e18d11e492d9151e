package preflight

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/app/trial"
	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/service"
)

const (
	// unitPerBuyers is the number of made-up buyers for each unit, so that the rehearsal has acceptances and
	// refusals.
	unitPerBuyers = 5
	// rehearsalCrowd is how many buyers ask at the same time.
	rehearsalCrowd = 100
	// rehearsalClear is how long before the start of a sale no rehearsal may begin any more: far longer than a
	// rehearsal and its clean-up take.
	rehearsalClear = 5 * time.Minute
	// rehearsalTime bounds the rush, clearTime the clean-up after it.
	rehearsalTime = 2 * time.Minute
	clearTime     = time.Minute
	rehearsalName = "rehearsal"
)

// Rehearsal is the result of a rush on a sale that no buyer can see.
type Rehearsal struct {
	Buyers            int                   `json:"buyers"`
	Units             int64                 `json:"units"`
	RequestsPerSecond float64               `json:"requests_per_second"`
	P50MS             float64               `json:"p50_ms"`
	P99MS             float64               `json:"p99_ms"`
	Verdicts          map[model.Verdict]int `json:"verdicts"`
}

// rehearse starts an instance of its own on the shop's stores, has made-up buyers buy a shadow sale out, and removes
// the sale.
func (p *preflight) rehearse(ctx context.Context) {
	if why, do := p.mayNotRehearse(ctx); why != "" {
		p.add(Fail.of(rehearsalName, do, "not run: %s", why))
		return
	}
	holder, db := rand.Text(), p.stores.Database
	const ttl = rehearsalTime + 2*clearTime
	if ours, err := db.Lease(ctx, rehearsalName, holder, ttl); err != nil || !ours {
		p.add(Fail.of(rehearsalName, "wait for it", "not run: another one runs, or ended without a word less than %s ago", ttl))
		return
	}
	if err := p.rehearseAlone(ctx); err != nil {
		p.add(Fail.of(rehearsalName, "see what it says; a further rehearsal removes what this one may have left", "%s", oneLine(err)))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	_, _ = db.Lease(ctx, rehearsalName, holder, 0) // if this fails, the lease expires by itself
}

// mayNotRehearse returns why no rehearsal may run, and what to do about it. Both are empty if a rehearsal may run.
func (p *preflight) mayNotRehearse(ctx context.Context) (why, do string) {
	if failed := p.count(Fail); failed > 0 {
		return fmt.Sprintf("%d checks failed", failed), "correct them first"
	}
	if p.settings.Redis == config.EmbeddedRedis {
		return "the embedded Redis is in the server's process", "flashsale lab, which has stores of its own"
	}
	for id, i := range p.running {
		if i.Version != p.version {
			return fmt.Sprintf("%s is of version %q, and might show the sale to buyers", id, i.Version), "the same version for all, and for this command"
		}
	}
	offers, err := p.stores.Database.LiveOffers(ctx, 0)
	if err != nil {
		return oneLine(err), "look at the database"
	}
	soon := p.now().Add(p.skew() + rehearsalClear)
	for _, o := range offers {
		if o.Status != model.SaleShadow && o.Status != model.SaleClosed && o.StartsAt.Before(soon) {
			return "the sale " + o.ID + " is open, or opens within " + rehearsalClear.String(), "wait for its end, or pick a quieter time"
		}
	}
	return "", ""
}

// rehearseAlone runs the rehearsal. Unless it returns an error, the sale is removed when it returns; the operations
// log keeps a line.
func (p *preflight) rehearseAlone(ctx context.Context) (err error) {
	db := p.stores.Database
	left, err := db.ShadowSales(ctx)
	if err != nil {
		return err
	}
	for _, id := range left {
		if err := errors.Join(db.EraseSale(ctx, id), p.gate.Erase(ctx, trial.OneGate(id))); err != nil {
			return err
		}
	}

	settings := p.settings
	settings.HTTPAddr, settings.OpsAddr, settings.PublicURL = "127.0.0.1:0", "", ""
	settings.LimitRate, settings.LimitBurst, settings.IPRate = 1e9, 1_000_000_000, 0 // all buyers have one address
	round, err := trial.NewRound(ctx, settings, &p.stores, p.gate, p.version, rehearsalCrowd)
	if err != nil {
		return err
	}
	defer func() {
		clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
		defer cancel()
		err = errors.Join(err, round.Stop(clearing))
		if round.SaleID != "" {
			err = errors.Join(err, db.Log(clearing, "preflight", "rehearse", round.SaleID, p.rehearsal.String()), p.gate.Announce(clearing, round.SaleID))
		}
	}()
	now := p.now().Add(p.skew())
	units := int64(p.options.RehearsalBuyers / unitPerBuyers)
	offer, invalid, err := round.Sales().Create(ctx, model.Sale{
		Title: "Rehearsal, never on sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 3600,
		StartsAt: now.Add(-time.Minute), EndsAt: now.Add(time.Hour), Status: model.SaleShadow, Shards: 1,
	}, units, "preflight")
	if err != nil || invalid != nil {
		return fmt.Errorf("make a sale: %w, %+v", err, invalid)
	}
	round.SaleID = offer.ID
	rushing, cancel := context.WithTimeout(ctx, rehearsalTime)
	defer cancel()
	p.rehearsal = rush(rushing, round, p.options.RehearsalBuyers)
	p.rehearsal.Units = units
	if err := errors.Join(rushing.Err(), round.Settled(ctx)); err != nil {
		return err
	}
	audit, _, err := (&service.Auditor{Store: db, Gate: p.gate}).AuditSettled(ctx, offer.ID)
	if err != nil {
		return err
	}
	p.add(p.rehearsal.judge(audit, settings.AckWait)...)
	return nil
}

// String returns the result in one line. Without a result (nil) it is "broken off".
func (r *Rehearsal) String() string {
	if r == nil {
		return "broken off"
	}
	return fmt.Sprintf("%d buyers for %d units: %.0f requests a second, p50 %.1f ms, p99 %.1f ms", r.Buyers, r.Units, r.RequestsPerSecond, r.P50MS, r.P99MS)
}

// The outcomes of attempts that end without a verdict.
const (
	verdictQueued = model.Verdict("queued")
	verdictFailed = model.Verdict("failed")
)

// rush sends one attempt of each buyer, rehearsalCrowd at a time, until all are sent or ctx ends.
func rush(ctx context.Context, round *trial.Round, buyers int) *Rehearsal {
	r := &Rehearsal{Buyers: buyers, Verdicts: map[model.Verdict]int{}}
	took := make([]time.Duration, buyers)
	verdicts := make([]model.Verdict, buyers)
	var next atomic.Int64
	var crowd sync.WaitGroup
	start := time.Now()
	for range rehearsalCrowd {
		crowd.Go(func() {
			for i := next.Add(1) - 1; i < int64(buyers) && ctx.Err() == nil; i = next.Add(1) - 1 {
				asked := time.Now()
				verdict, err := round.Buy(ctx, 0, fmt.Sprintf("%s-%d", rehearsalName, i))
				took[i] = time.Since(asked)
				switch {
				case errors.Is(err, trial.ErrUnsettled):
					verdict = verdictQueued
				case err != nil:
					verdict = verdictFailed
				}
				verdicts[i] = verdict
			}
		})
	}
	crowd.Wait()
	r.RequestsPerSecond = float64(buyers) / time.Since(start).Seconds()
	for _, v := range verdicts {
		r.Verdicts[v]++
	}
	slices.Sort(took)
	inMS := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.P50MS, r.P99MS = inMS(took[buyers/2]), inMS(took[buyers*99/100])
	return r
}

// judge compares the buyers' answers with the books: every unit must be sold, and no more orders may be confirmed
// than units were sold.
func (r *Rehearsal) judge(audit service.Audit, ackWait time.Duration) []Finding {
	held, confirmed, queued := audit.Books.Stock.Held, r.Verdicts[model.Accepted], r.Verdicts[verdictQueued]
	var list []Finding
	switch {
	case !audit.OK() || held != r.Units || int64(confirmed) > held || int64(confirmed+queued) < held:
		list = append(list, Fail.of("rehearsal.books", "don't sell before this is understood",
			"%d of %d units sold, %d confirmed, %d queued; drift %d %v", held, r.Units, confirmed, queued, audit.Drift, audit.Violations))
	case r.Verdicts[verdictFailed] > 0:
		list = append(list, Fail.of("rehearsal.books", "see the stores' logs", "%d attempts failed; the books balance", r.Verdicts[verdictFailed]))
	default:
		list = append(list, good("rehearsal.books", "%d of %d units sold, all books balance", held, r.Units))
	}
	if queued > 0 {
		return append(list, Warn.of("rehearsal.rate", "a faster database, fewer at once by --limit-rate, or a longer --ack-wait",
			"%s; %d buyers heard 'queued' after %s", r, queued, ackWait))
	}
	return append(list, good("rehearsal.rate", "%s", r))
}
