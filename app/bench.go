package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/strategy"
)

const (
	// labPatience is how long a buyer of the lab waits for the order, and how long a round waits for the last entry.
	// It is longer than three seconds, after which another instance settles what a dead instance has read.
	labPatience = 10 * time.Second
	// labLook is how often a wait polls the database or the gate for what no message announces.
	labLook = 20 * time.Millisecond
	// labStoresPrefix begins the names of the folders for a run's own SQLite file.
	labStoresPrefix = "lab-stores-"
	// labAbandoned is how long such a folder must be unchanged before it counts as left behind by a crash.
	labAbandoned = 5 * time.Minute
)

// bench runs each strategy on fresh instances of the engine, on the stores that the settings name.
type bench struct {
	settings config.Settings // for the instances
	stores   *stores         // the lab's own connections, to read the results
	gate     *gate.Gate
	folder   string // of the SQLite file, empty if there is none
}

// openBench opens the stores. If the settings name a SQLite file, openBench creates a new one in a folder beside that
// file instead, since a server may be running on it. openBench returns an error if an instance reports to the same
// Redis.
func openBench(ctx context.Context, settings config.Settings) (b *bench, err error) {
	b = &bench{settings: settings}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if path, isFile := settings.SQLitePath(); isFile {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return b, fmt.Errorf("--database: %w", err)
		}
		if err := removeLeftovers(filepath.Dir(path)); err != nil {
			return b, fmt.Errorf("--database: %w", err)
		}
		if b.folder, err = os.MkdirTemp(filepath.Dir(path), labStoresPrefix); err != nil {
			return b, fmt.Errorf("--database: %w", err)
		}
		b.settings.Database = "sqlite:" + filepath.Join(b.folder, "lab.db")
	}
	if b.stores, err = openStores(ctx, &b.settings, nil); err != nil {
		return b, err
	}
	if b.stores.embedded != nil {
		b.settings.Redis = b.stores.embedded.URL() // the instances share it
	}
	if err := b.stores.database.MigrateUp(ctx); err != nil {
		return b, fmt.Errorf("migrate: %w", err)
	}
	b.gate = gate.New(b.stores.redis, "lab")
	now, err := b.stores.database.Now(ctx)
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
	b.settings.Secret, b.settings.PaymentSecret = rand.Text()+rand.Text(), ""
	// AckWait is within the time limit of a request. The limits are out of reach, since all buyers have one address.
	b.settings.AllowOversell, b.settings.Ack, b.settings.AckWait = true, "confirmed", labPatience/2
	b.settings.LimitRate, b.settings.LimitBurst, b.settings.IPRate = 1e9, 1_000_000_000, 0
	return b, nil
}

// removeLeftovers deletes the folders of runs that crashed. A run in progress keeps writing to its folder, so that
// folder is never old enough.
func removeLeftovers(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if entry.IsDir() && strings.HasPrefix(entry.Name(), labStoresPrefix) && time.Since(lastWrite(path)) > labAbandoned {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// lastWrite returns when a file in a folder was last modified.
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

func (b *bench) close() (err error) {
	if b.stores != nil {
		err = b.stores.close()
	}
	if b.folder != "" {
		err = errors.Join(err, os.RemoveAll(b.folder))
	}
	return err
}

// setting describes the conditions of the run for the report.
func (b *bench) setting(ctx context.Context, p model.LabPlan, version string) (lab.Setting, error) {
	database, err := b.stores.database.Version(ctx)
	if err != nil {
		return lab.Setting{}, err
	}
	redis := "in this process (miniredis)"
	if b.stores.embedded == nil {
		if redis, err = b.gate.Version(ctx); err != nil {
			return lab.Setting{}, err
		}
		redis = "Redis " + redis
	}
	lessons := map[string]model.Lesson{}
	for _, name := range p.Strategies {
		lessons[name] = strategy.LessonOf(name)
	}
	command := fmt.Sprintf("flashsale lab --strategies %s --buyers %d --stock %d --concurrency %d --instances %d --seed %d",
		strings.Join(p.Strategies, ","), p.Buyers, p.Stock, p.Concurrency, p.Instances, p.Seed)
	if p.OverHTTP {
		command += " --over-http"
	}
	if p.Kill {
		command += " --kill"
	}
	return lab.Setting{
		Machine: lab.ThisMachine(), Database: database, Redis: redis, Lessons: lessons, Command: command, Version: version,
		Options: map[string]string{
			"--db-max-conns": fmt.Sprint(b.settings.DBMaxConns),
			"--local-share":  fmt.Sprint(b.settings.LocalShare),
			"--local-buffer": fmt.Sprint(b.settings.LocalBuffer),
		},
	}, nil
}

// Start runs instances of a strategy and creates a sale for them.
func (b *bench) Start(ctx context.Context, name string, p model.LabPlan) (_ lab.Round, err error) {
	r := &labRound{bench: b, overHTTP: p.OverHTTP, keyed: p.Kill}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop(context.WithoutCancel(ctx)))
		}
	}()
	settings := b.settings
	settings.Strategy = name
	for range p.Instances {
		a, err := newApp(ctx, settings, io.Discard)
		if err != nil {
			return nil, err
		}
		r.instances = append(r.instances, runInstance(ctx, a, p.Concurrency))
	}
	now := r.instances[0].app.catalog.Now()
	offer, invalid, err := r.instances[0].app.sales.Create(ctx, model.Sale{
		Title: "Strategy lab: " + name, PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 24 * 3600,
		StartsAt: now.Add(-time.Minute), EndsAt: now.Add(24 * time.Hour), Shards: 1,
	}, int64(p.Stock), "lab")
	if err != nil || invalid != nil {
		return nil, fmt.Errorf("make a sale: %w, %+v", err, invalid)
	}
	r.saleID = offer.ID
	for _, i := range r.instances {
		if err := i.app.catalog.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// labRound is the round of one strategy.
type labRound struct {
	bench     *bench
	saleID    string
	instances []*labInstance
	overHTTP  bool
	keyed     bool // a buyer whose instance dies repeats the attempt under the same key
}

// labInstance is one running instance of the engine.
type labInstance struct {
	app    *App
	dead   chan struct{}
	stop   func() error // an orderly stop
	tokens *auth.Tokens
	paths  *auth.Paths
	client *http.Client
}

// runInstance runs an app until stop is called. The end of ctx does not stop the app, because the round's last orders
// must still be settled.
func runInstance(ctx context.Context, a *App, connections int) *labInstance {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	secret := []byte(a.settings.Secret)
	return &labInstance{
		app: a, dead: make(chan struct{}), tokens: auth.NewTokens(secret, time.Now), paths: auth.NewPaths(secret, a.catalog.Now),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: 2 * labPatience},
		stop: func() error {
			cancel()
			return errors.Join(<-done, a.Close())
		},
	}
}

// errUnsettled means that an attempt was admitted, but that no order came of it in time.
var errUnsettled = fmt.Errorf("queued, and not settled within %s", labPatience)

// errDead means that the instance of an attempt was killed.
var errDead = errors.New("the instance is dead")

func (i *labInstance) isDead() bool {
	select {
	case <-i.dead:
		return true
	default:
		return false
	}
}

// Kill closes an instance's connections to buyers and stores in the middle of its work. To buyers and stores this
// looks like a crash.
func (r *labRound) Kill(instance int) {
	i := r.instances[instance]
	close(i.dead)
	_ = i.app.server.Close()
	_ = i.app.stores.close() // statements under way may fail or succeed, as in a crash
}

// Buy sends a buyer's attempt to an instance. The order's id is derived from the buyer's name, so a second attempt at
// another instance makes no second order.
func (r *labRound) Buy(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
	i := r.instances[instance]
	if i.isDead() {
		return "", errDead
	}
	if r.overHTTP {
		return i.post(ctx, r.saleID, buyer)
	}
	verdict, err := i.deduct(ctx, model.Attempt{
		ID: i.app.ids.Derive(buyer, r.saleID, buyer), SaleID: r.saleID, UserID: buyer, Quantity: 1,
		IdempotencyKey: buyer, RequestHash: model.HashRequest(1), Keyless: !r.keyed,
	})
	if i.isDead() {
		return "", errDead // a dead instance sends no answer
	}
	return verdict, err
}

// deduct runs the strategy and waits until the attempt is settled in the database. It returns errDead if the instance
// is killed meanwhile, and errUnsettled after labPatience.
func (i *labInstance) deduct(ctx context.Context, a model.Attempt) (model.Verdict, error) {
	settled, done := i.app.waiters.Wait(a.ID)
	defer done()
	outcome, err := i.app.strategy.Deduct(ctx, a)
	if err != nil || !outcome.Queued() {
		return outcome.Verdict, err
	}
	i.app.settler.Notify(a.GateRef())
	ctx, cancel := context.WithTimeoutCause(ctx, labPatience, errUnsettled)
	defer cancel()
	var looks <-chan time.Time
	if outcome.Repeated { // its wake-up goes to a dead instance, or was sent before
		ticker := time.NewTicker(labLook)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		select {
		case outcome := <-settled:
			if outcome.Verdict != "" {
				return outcome.Verdict, nil
			}
		case <-looks:
		case <-i.dead:
			return "", errDead
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		// Another instance has announced that the attempt is settled, or the next poll is due.
		order, ok, err := i.app.stores.database.Order(ctx, a.ID)
		switch {
		case err != nil:
			return "", err
		case ok && order.Status == model.OrderRejected:
			return order.Reason, nil
		case ok:
			return model.Accepted, nil
		}
	}
}

// post sends the request that a browser would send.
func (i *labInstance) post(ctx context.Context, saleID, buyer string) (model.Verdict, error) {
	token, _, err := i.tokens.Sign(model.Identity{UserID: buyer, Role: model.RoleBuyer}, time.Hour)
	if err != nil {
		return "", err
	}
	path, _ := i.paths.Issue(buyer, saleID, time.Hour)
	url := i.app.URL() + "/api/v1/sales/" + saleID + "/" + path + "/orders"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(`{"quantity":1}`)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", buyer)
	resp, err := i.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ Code model.Verdict }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusCreated:
		return model.Accepted, nil
	case resp.StatusCode == http.StatusAccepted:
		return "", errUnsettled
	case resp.StatusCode >= http.StatusInternalServerError:
		return "", fmt.Errorf("%d %s", resp.StatusCode, answer.Code)
	}
	return answer.Code, nil
}

// Finish waits until the sale's stream is empty, reads the books, stops the instances and removes the sale.
func (r *labRound) Finish(ctx context.Context) (tally lab.Tally, err error) {
	err = r.settled(ctx)
	books, _, booksErr := r.bench.stores.database.Books(ctx, r.saleID)
	tally.Sold = books.Units[model.OrderPending] + books.Units[model.OrderPaid]
	tally.Left = books.Stock.Available
	for _, i := range r.instances {
		tally.Retries += i.app.metrics.LostRaces()
	}
	return tally, errors.Join(err, booksErr, r.stop(ctx))
}

// settled waits until the sale's stream is empty.
func (r *labRound) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, labPatience)
	defer cancel()
	ticker := time.NewTicker(labLook)
	defer ticker.Stop()
	for {
		states, err := r.bench.gate.Peek(ctx, oneGate(r.saleID))
		if err != nil || states[0].Stream == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d entries are not settled", states[0].Stream)
		}
	}
}

// oneGate names the gate of a sale of the lab or of a rehearsal, which has one shard.
func oneGate(saleID string) model.GateRef { return model.GateRef{SaleID: saleID, Shards: 1} }

// stop ends the instances, then removes the round's sale from the stores.
func (r *labRound) stop(ctx context.Context) error {
	errs := make([]error, len(r.instances))
	var stopping sync.WaitGroup
	for n, i := range r.instances {
		stopping.Go(func() {
			if err := i.stop(); !i.isDead() {
				errs[n] = err
			}
			i.client.CloseIdleConnections()
		})
	}
	stopping.Wait()
	if r.saleID == "" {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, r.bench.stores.database.EraseSale(ctx, r.saleID), r.bench.gate.Erase(ctx, oneGate(r.saleID)))...)
}
