// Package rehearsal sends a crowd of made-up buyers to a running shop, where they buy from a hidden sale. Then it compares what
// the buyers were told with the books.
package rehearsal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"flashsale/app"
	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/service/auth"
)

// ErrFailed means that a rehearsal did not pass.
var ErrFailed = errors.New("the rehearsal has not passed")

// longWait is the wait for a processor above which a late report names the processors as a limit.
const longWait = time.Millisecond

// gcPercent lets the heap grow to five times the live memory, because a garbage collection makes the crowd late.
const gcPercent = 400

// minConnections is the least number of connections. Streams, slow buyers and quick buyers need some each.
const minConnections = 16

// spareFiles is room for open files besides connections of buyers.
const spareFiles = 128

// Validate checks the options of the command, the shape, and the secret. The error names the setting.
func Validate(o config.Rehearse, s *config.Settings) error {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "":
		return errors.New("--url: want http(s)://host, without a path")
	case o.Connections < minConnections || o.Connections > 60_000:
		return fmt.Errorf("--connections: must be %d to 60000", minConnections)
	case o.Out == "":
		return errors.New("--out: needs a folder")
	}
	if limit, known := app.OpenFiles(); known && uint64(o.Connections+spareFiles) > limit {
		return fmt.Errorf("--connections: needs %d open files, and this process may have %d (ulimit -n)", o.Connections+spareFiles, limit)
	}
	shape, err := ReadShape(o.Shape)
	if err != nil {
		return err
	}
	if shape.Pay > 0 && s.Provider() != "sandbox" {
		return fmt.Errorf("--shape: %s: pay: only with --payment sandbox, where no money moves", o.Shape)
	}
	return s.ValidateSecret()
}

// Run rehearses, prints the report, and writes it to a folder and to the database. It returns nil if the verdict is Passed,
// lab.ErrInterrupted if Interrupted, ErrFailed if Failed or Late, and ErrNotNow if no rehearsal may run now.
func Run(ctx context.Context, cmd config.Command, version string, stdout io.Writer) (err error) {
	if err := os.MkdirAll(cmd.Rehearse.Out, 0o750); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	r, err := open(ctx, cmd, version, time.Now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stores.Close()) }()
	ctx, release, err := r.alone(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := r.mayRehearse(ctx); err != nil {
		return err
	}
	report, err := r.rehearse(ctx)
	if report != nil {
		err = errors.Join(err, r.keep(ctx, report, stdout))
	}
	if err != nil {
		return err
	}
	switch report.Verdict {
	case Passed:
		return nil
	case Interrupted:
		return lab.ErrInterrupted
	default:
		return ErrFailed
	}
}

// run is one rehearsal on the stores of a shop.
type run struct {
	options  config.Rehearse
	settings config.Settings
	shape    *Shape
	tokens   *auth.Tokens
	stores   *app.Stores
	gate     *gate.Gate // nil: Redis is embedded in the server
	version  string
	database string        // the name and version of the database server
	holder   string        // of the lease that keeps rehearsals apart
	skew     time.Duration // how far the database's clock is ahead of this machine's
	now      func() time.Time
}

// open reads the shape and the secret, opens the stores of a running shop, and measures the skew.
func open(ctx context.Context, cmd config.Command, version string, now func() time.Time) (r *run, err error) {
	r = &run{options: cmd.Rehearse, settings: cmd.Settings, version: version, holder: rand.Text(), now: now}
	if r.shape, err = ReadShape(r.options.Shape); err != nil {
		return nil, err
	}
	secret, err := app.SecretOf(&r.settings, false)
	if err != nil {
		return nil, err
	}
	r.tokens = auth.NewTokens([]byte(secret), now)
	if r.stores, r.gate, err = app.OpenRunning(ctx, r.settings, actor); err != nil {
		return nil, err
	}
	server, err := r.stores.Database.Server(ctx, now)
	if err != nil {
		return nil, errors.Join(err, r.stores.Close())
	}
	r.database, r.skew = server.Version, server.Clock.Sub(server.At)
	return r, nil
}

// rehearse makes the sale, sends the crowd, compares, and removes the sale.
func (r *run) rehearse(ctx context.Context) (report *Report, err error) {
	c, err := newCrowd(r.options.URL, r.options.Connections, r.shape, r.tokens, r.now)
	if err != nil {
		return nil, err
	}
	defer c.close()
	sale, err := r.offer(ctx)
	if sale.ID != "" {
		defer func() { err = errors.Join(err, r.erase(ctx, sale.ID)) }()
	}
	if err != nil {
		return nil, err
	}
	c.saleID, c.startsAt = sale.ID, sale.StartsAt.Add(-r.skew)
	if err := r.ready(ctx, c); err != nil {
		return nil, err
	}
	report = &Report{
		Shape: r.shape, Crowd: r.shape.String(), URL: c.base, Version: r.version, StartedAt: sale.StartsAt,
		Machine: lab.ThisMachine(), Database: r.database,
	}
	if now := r.now(); now.After(c.startsAt) {
		c.startsAt = now // the shop was not ready in time, which does not make the buyers late
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	waited := processorWait()
	c.run(ctx)
	report.measure(c, waited())
	if err := r.judge(context.WithoutCancel(ctx), report, sale.ID, c.told, ctx.Err() != nil); err != nil {
		return nil, err
	}
	return report, nil
}

// measure fills in the figures of a crowd that is done. processorWait is the p99 of the waits for a processor.
func (r *Report) measure(c *crowd, processorWait time.Duration) {
	t := c.tally
	r.Seconds, r.Stages, r.SendLag = t.perSecond(), t.stageFigures(), t.lag.figures().Latency
	for _, s := range r.Seconds {
		r.Peak = max(r.Peak, s.Arrived)
	}
	r.Sustained, r.Unsent, r.NoStream = sustained(r.Seconds), t.unsent.Load(), t.unstreamed.Load()
	requests := 0
	for _, s := range r.Stages {
		requests += s.Requests
	}
	var limits []string
	if waited := t.waited.Load(); waited*100 > int64(requests) {
		limits = append(limits, fmt.Sprintf("the connections: %d of %d requests waited for one (--connections)", waited, requests))
	}
	if processorWait > longWait {
		limits = append(limits, fmt.Sprintf("the %d processors: p99 of the wait for one is %s", r.Machine.Cores, processorWait.Round(10*time.Microsecond)))
	}
	if r.Unsent > 0 {
		limits = append(limits, fmt.Sprintf("the %d buyers who may be under way at once", mostUnderWay))
	}
	if r.Unsent > 0 || r.SendLag.P99MS > float64(onTime.Milliseconds()) {
		r.Limit = cmp.Or(strings.Join(limits, "; "), "other work on this machine")
	}
	people, bots, gaveUp := map[string]int{}, map[string]int{}, map[string]int{}
	for _, t := range c.told {
		switch {
		case t.bot:
			bots[t.String()]++
		default:
			people[t.String()]++
			if t.gaveUp != "" {
				gaveUp[string(t.gaveUp)]++
			}
		}
	}
	r.People, r.Bots, r.GaveUp = counts(people), counts(bots), counts(gaveUp)
}

// judge compares what buyers were told with the books, and gives the verdict.
func (r *run) judge(ctx context.Context, report *Report, saleID string, list []told, interrupted bool) error {
	unsettled, err := r.settled(ctx, saleID, list)
	if err != nil {
		return err
	}
	books, err := r.books(ctx, saleID)
	if err != nil {
		return err
	}
	people := 0
	for _, c := range report.People {
		people += c.N
	}
	stock := books.audit.Books.Stock
	report.Books = Books{Quota: stock.Quota, Left: stock.Free(), Held: stock.Held, Paid: stock.Paid, Orders: int64(len(books.orders))}
	gaveUp := report.GaveUp
	if interrupted {
		gaveUp = nil // an interrupt makes people give up
	}
	report.Findings = slices.Concat(compare(list, books), unsettled, judgeAnswers(report.Stages, gaveUp, people))
	switch {
	case len(report.Findings) > 0:
		report.Verdict = Failed
	case interrupted:
		report.Verdict = Interrupted
	case report.Limit != "":
		report.Verdict = Late
	default:
		report.Verdict = Passed
	}
	return nil
}

// keep writes the report to files, to stdout and to the database.
func (r *run) keep(ctx context.Context, report *Report, stdout io.Writer) error {
	page, _, err := lab.WriteFiles(r.options.Out, report.WriteHTML, report)
	if err != nil {
		return err
	}
	if err := report.WriteText(stdout); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s has charts\n", page); err != nil {
		return err
	}
	stored := *report
	stored.Seconds = nil // those of a long run may not fit into a statement
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	return r.stores.Database.SaveRehearsal(context.WithoutCancel(ctx), model.Rehearsal{
		Version: report.Version, Verdict: string(report.Verdict), Buyers: int64(report.Shape.Buyers), Units: report.Shape.Units,
		PerSecond: report.Peak, Report: text,
	})
}
