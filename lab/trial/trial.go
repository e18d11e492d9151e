// Package trial runs instances of the engine, on real or embedded stores, for the rounds of the strategy lab.
package trial

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flashsale/app"
	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/internal/pause"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/strategy"
)

const (
	// patience bounds the waits for an order and for the last entry. It is longer than the three seconds after which another
	// instance settles what a dead instance has admitted.
	patience = 10 * time.Second
	// look is the pause between two looks at the database or the gate.
	look = 20 * time.Millisecond
	// storesPrefix begins the names of the folders for a run's own SQLite file.
	storesPrefix = "lab-stores-"
	// A run's folder that has not changed for longer than "abandoned" counts as left behind by a crash.
	abandoned = 5 * time.Minute
)

// Bench runs each strategy on fresh instances of the engine. It implements lab.Bench.
type Bench struct {
	settings config.Settings // for the instances
	stores   *app.Stores     // the lab's own connections, to read the results and to remove the sales
	gate     *gate.Gate
	folder   string // of the SQLite file, empty if there is none
}

// Open opens the stores. If the settings name a SQLite file, a server may be running on it, so Open creates another file in
// a folder beside it. Open also returns an error if an instance reports to the same Redis.
func Open(ctx context.Context, settings config.Settings) (b *Bench, err error) {
	b = &Bench{settings: settings}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if path, isFile := settings.SQLitePath(); isFile {
		parent := filepath.Dir(path)
		if err = errors.Join(os.MkdirAll(parent, 0o750), removeLeftovers(parent)); err == nil {
			b.folder, err = os.MkdirTemp(parent, storesPrefix)
		}
		if err != nil {
			return b, fmt.Errorf("--database: %w", err)
		}
		b.settings.Database = "sqlite:" + filepath.Join(b.folder, "lab.db")
	}
	if b.stores, err = app.OpenStores(ctx, &b.settings, nil); err != nil {
		return b, err
	}
	if b.stores.Embedded != nil {
		b.settings.Redis = b.stores.Embedded.URL() // the instances share it
	}
	if err := b.stores.Database.MigrateUp(ctx); err != nil {
		return b, fmt.Errorf("migrate: %w", err)
	}
	b.gate = gate.New(b.stores.Redis, "lab")
	now, err := b.stores.Database.Now(ctx)
	if err != nil {
		return b, err
	}
	running, err := b.gate.Instances(ctx, now)
	if err != nil {
		return b, err
	}
	for _, figures := range running {
		return b, fmt.Errorf("an instance at %s serves from this Redis; the lab wants stores of its own", figures.URL)
	}
	b.settings.HTTPAddr, b.settings.OpsAddr = "127.0.0.1:0", ""
	b.settings.Secret, b.settings.PaymentSecret, b.settings.Payment = rand.Text()+rand.Text(), "", "sandbox"
	b.settings.AllowOversell, b.settings.Ack, b.settings.AckWait = true, "confirmed", patience/2
	b.settings.LimitRate, b.settings.LimitBurst, b.settings.IPRate = 1e9, 1_000_000_000, 0
	return b, nil
}

// removeLeftovers deletes the folders of runs that have been unchanged for longer than "abandoned".
func removeLeftovers(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if entry.IsDir() && strings.HasPrefix(entry.Name(), storesPrefix) && time.Since(lastWrite(path)) > abandoned {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// lastWrite returns when a folder or a file in it was last modified.
func lastWrite(folder string) (last time.Time) {
	_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that is gone meanwhile is left out
		}
		if info, err := entry.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return nil
	})
	return last
}

// Close closes the stores, and deletes the SQLite file that Open has created.
func (b *Bench) Close() (err error) {
	if b.stores != nil {
		err = b.stores.Close()
	}
	if b.folder != "" {
		err = errors.Join(err, os.RemoveAll(b.folder))
	}
	return err
}

// Run compares the strategies of a plan, see lab.Run. It returns no report if the versions of the stores can't be read.
func (b *Bench) Run(ctx context.Context, p model.LabPlan, version string, progress func(lab.Progress)) (*lab.Report, error) {
	database, err := b.stores.Database.Version(ctx)
	if err != nil {
		return nil, err
	}
	redis := "in this process (miniredis)"
	if b.stores.Embedded == nil {
		if redis, err = b.gate.Version(ctx); err != nil {
			return nil, err
		}
		redis = "Redis " + redis
	}
	lessons := map[string]model.Lesson{}
	for _, name := range p.Strategies {
		kind, _ := strategy.Of(name)
		lessons[name] = kind.Lesson
	}
	command := fmt.Sprintf("flashsale lab --strategies %s --buyers %d --stock %d --concurrency %d --instances %d --seed %d",
		strings.Join(p.Strategies, ","), p.Buyers, p.Stock, p.Concurrency, p.Instances, p.Seed)
	if p.Kill {
		command += " --kill"
	}
	return lab.Run(ctx, b, p, lab.Setting{
		Machine: lab.ThisMachine(), Stores: lab.Stores{Database: database, Redis: redis}, Lessons: lessons, Command: command, Version: version,
		Options: map[string]string{
			"--db-max-conns": fmt.Sprint(b.settings.DBMaxConns),
			"--local-share":  fmt.Sprint(b.settings.LocalShare),
			"--local-buffer": fmt.Sprint(b.settings.LocalBuffer),
		},
	}, time.Now, progress)
}

// andThen returns both errors as one. If neither is nil, errors.Is finds only "end", since an interrupt must not hide a failure.
func andThen(err, end error) error {
	if err == nil || end == nil {
		return errors.Join(err, end)
	}
	return fmt.Errorf("%s; then: %w", err.Error(), end)
}

// Start starts the plan's instances with a strategy, and creates a sale with the plan's stock.
func (b *Bench) Start(ctx context.Context, name string, p model.LabPlan) (_ lab.Round, err error) {
	r := &Round{bench: b, keyed: p.Kill}
	defer func() {
		if err != nil {
			err = andThen(err, r.Stop(context.WithoutCancel(ctx)))
		}
	}()
	settings := b.settings
	settings.Strategy = name
	for range p.Instances {
		if err := r.start(ctx, settings); err != nil {
			return nil, err
		}
	}
	now := r.instances[0].app.Catalog.Now()
	offer, invalid, err := r.instances[0].app.Sales.Create(ctx, model.Sale{
		ID: model.NewShadowID(), Status: model.SaleShadow, Title: "Strategy lab: " + name, PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 24 * 3600,
		StartsAt: now.Add(-time.Minute), EndsAt: now.Add(24 * time.Hour), Shards: 1,
	}, int64(p.Stock), "lab")
	if err != nil || invalid != nil {
		return nil, fmt.Errorf("make a sale: %w, %+v", err, invalid)
	}
	r.sale = offer.Sale
	for _, i := range r.instances {
		if err := i.app.Catalog.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Round runs one strategy on instances and a sale of its own. It implements lab.Round.
type Round struct {
	bench     *Bench
	sale      model.Sale // without an ID until there is a sale
	instances []*instance
	keyed     bool // attempts may be repeated under their keys
}

// instance is one running instance of the engine.
type instance struct {
	app  *app.App
	dead chan struct{}
	stop func() error // an orderly stop
}

// start adds an instance. It runs on after the end of ctx, because the last orders must still be settled.
func (r *Round) start(ctx context.Context, settings config.Settings) error {
	a, err := app.New(ctx, settings, app.Options{Logs: io.Discard})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.instances = append(r.instances, &instance{
		app: a, dead: make(chan struct{}),
		stop: func() error {
			cancel()
			return errors.Join(<-done, a.Close())
		},
	})
	return nil
}

// ErrUnsettled means that an attempt was admitted, but was not settled in time.
var ErrUnsettled = fmt.Errorf("queued, and not settled within %s", patience)

// errDead means that the instance of an attempt was killed.
var errDead = errors.New("the instance is dead")

func (i *instance) isDead() bool {
	select {
	case <-i.dead:
		return true
	default:
		return false
	}
}

// Kill closes an instance's server and stores in the middle of its work, as a crash would.
func (r *Round) Kill(instance int) {
	i := r.instances[instance]
	close(i.dead)
	i.app.Kill()
}

// Buy makes a buyer's attempt at an instance. The order's id is derived from the buyer, so a repetition makes no second order.
func (r *Round) Buy(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
	i := r.instances[instance]
	if i.isDead() {
		return "", errDead
	}
	verdict, err := i.deduct(ctx, model.Attempt{
		ID: i.app.IDs.Derive(buyer, r.sale.ID, buyer), SaleID: r.sale.ID, UserID: buyer, Quantity: 1,
		IdempotencyKey: buyer, Keyless: !r.keyed,
	})
	if i.isDead() {
		return "", errDead // a dead instance sends no answer
	}
	return verdict, err
}

// deduct runs the strategy and waits until the attempt is settled. It returns ErrUnsettled if an admitted attempt is not settled
// within "patience".
func (i *instance) deduct(ctx context.Context, a model.Attempt) (model.Verdict, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrUnsettled)
	defer cancel()
	a.Waiter = i.app.Waiters.Waiter(i.dead, a.ID, patience, patience)
	outcome, err := i.app.Strategy.Deduct(ctx, a)
	queued := outcome.Verdict == model.Queued
	if err != nil || !queued && (a.Keyless || outcome.Verdict == model.Accepted) {
		return outcome.Verdict, err
	}
	// After Queued, the outcome is in the database or still to come. If the strategy refuses an attempt with a key, the database
	// may have an order from an earlier try that the strategy does not know.
	for {
		order, ok, err := i.app.Stores.Database.Order(ctx, a.ID)
		switch {
		case err != nil:
			return "", cmp.Or(context.Cause(ctx), err)
		case ok && order.Status == model.OrderRejected:
			return order.Reason, nil
		case ok:
			return model.Accepted, nil
		case !queued:
			return outcome.Verdict, nil
		case !pause.For(ctx, look):
			return "", context.Cause(ctx)
		}
	}
}

// Finish implements lab.Round. The attempts are settled when the sale's stream is empty.
func (r *Round) Finish(ctx context.Context) (tally lab.Tally, err error) {
	err = r.settled(ctx)
	books, _, booksErr := r.bench.stores.Database.Books(ctx, r.sale.ID)
	tally.Sold = books.Units[model.OrderPending] + books.Units[model.OrderPaid]
	tally.Left = books.Stock.Free()
	for _, i := range r.instances {
		tally.Retries += i.app.LostRaces()
	}
	return tally, errors.Join(err, booksErr, r.Stop(ctx))
}

// settled waits until the sale's stream is empty. It returns an error after "patience".
func (r *Round) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		states, err := r.bench.gate.Peek(ctx, r.sale.GateRef())
		if err != nil || states[0].Stream == 0 {
			return err
		}
		if !pause.For(ctx, look) {
			return fmt.Errorf("%d entries are not settled", states[0].Stream)
		}
	}
}

// Stop ends the instances, then removes the round's sale from the stores. Errors of instances that were killed are left out.
func (r *Round) Stop(ctx context.Context) error {
	var stopping errgroup.Group
	for _, i := range r.instances {
		stopping.Go(func() error {
			if err := i.stop(); !i.isDead() {
				return err
			}
			return nil
		})
	}
	err := stopping.Wait()
	if r.sale.ID != "" {
		err = errors.Join(err, r.bench.stores.Database.EraseSale(ctx, r.sale.ID), r.bench.gate.Erase(ctx, r.sale.GateRef()))
	}
	return err
}
