// Package app makes the parts of the engine and connects them.
package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/gate"
	"flashsale/handler"
	"flashsale/internal/beacon"
	"flashsale/internal/config"
	"flashsale/internal/metrics"
	"flashsale/internal/observe"
	"flashsale/internal/tracing"
	"flashsale/internal/webhook"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/service/auth"
	"flashsale/strategy"
	"flashsale/web"
	"flashsale/worker"
)

// Bounds of the HTTP servers, against clients that are slow on purpose or send too much.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

const (
	queuedLinger = 20 * time.Millisecond  // SettlerNeeds.Linger with --ack queued
	ackPause     = 100 * time.Millisecond // SettlerNeeds.AckPause: far less than the age at which entries are taken over
)

// Options are what an instance gets besides its settings.
type Options struct {
	Version string    // of the binary
	Logs    io.Writer // where the log goes
}

// App is one instance of the engine.
type App struct {
	IDs      model.OrderIDs
	Catalog  *service.Catalog
	Sales    *service.Sales
	Waiters  *service.Waiters
	Strategy strategy.Strategy
	Settler  *worker.Settler
	Tokens   *auth.Tokens
	Paths    *auth.Paths
	Stores   *Stores
	Log      *slog.Logger

	kind     strategy.Kind // of Strategy
	called   *strategy.Called
	lines    *service.Lines
	settings config.Settings
	options  Options
	instance string
	secrets  string // the mark of this instance's secrets, see auth.Mark
	accounts *service.Accounts
	gate     *gate.Gate
	gates    *service.Gates
	streams  *handler.Streams
	lab      *handler.Lab
	metrics  *metrics.Metrics
	tracing  *tracing.Tracing // nil: tracing is off
	observe  observe.All      // metrics, failpoints if there are any, and tracing if it is on
	tally    *service.Tally
	workers  []func(context.Context)
	closing  chan struct{}

	server, ops           *http.Server
	listener, opsListener net.Listener
}

// New opens the stores, brings the database's schema up to date, listens on the addresses and makes the parts. The settings must
// be valid. No request is answered before Run. After an error, the stores are closed.
func New(ctx context.Context, settings config.Settings, options Options) (app *App, err error) {
	a := &App{
		settings: settings, options: options, Log: newLog(&settings, options.Logs),
		instance: strings.ToLower(rand.Text()[:12]), metrics: metrics.New(clock), closing: make(chan struct{}),
	}
	a.observe = append(observe.All{a.metrics}, failpoints()...)
	if settings.OTLPEndpoint != "" {
		if a.tracing, err = tracing.New(ctx, settings.OTLPEndpoint, settings.TraceRatio, a.instance, a.Log); err != nil {
			return nil, err
		}
		a.observe = append(a.observe, a.tracing)
	}
	if a.Stores, err = OpenStores(ctx, &settings, a.tracing); err != nil {
		return nil, errors.Join(err, a.tracing.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	a.Stores.Database.Follow(func(server string) { a.Log.Info("the database is used at", "server", server) })
	if err := a.Stores.Database.MigrateUp(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if a.settings.Secret, err = SecretOf(&settings, true); err != nil {
		return nil, err
	}
	a.settings.PaymentSecret = cmp.Or(settings.PaymentSecret, a.settings.Secret)
	if err := a.listen(ctx); err != nil {
		return nil, err
	}
	if err := a.wire(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *App) listen(ctx context.Context) (err error) {
	var lc net.ListenConfig
	if a.listener, err = lc.Listen(ctx, "tcp", a.settings.HTTPAddr); err != nil {
		return fmt.Errorf("--http-addr: %w", err)
	}
	if a.settings.OpsAddr != "" {
		if a.opsListener, err = lc.Listen(ctx, "tcp", a.settings.OpsAddr); err != nil {
			return fmt.Errorf("--ops-addr: %w", err)
		}
	}
	return nil
}

// URL returns the base URL of the server, without a slash at the end: --public-url, or else that of the listener.
func (a *App) URL() string {
	if a.settings.PublicURL != "" {
		return strings.TrimRight(a.settings.PublicURL, "/")
	}
	return "http://" + reachable(a.listener.Addr())
}

// reachable returns addr as host:port for connections from this machine. If addr is unspecified (0.0.0.0 or ::), the
// host is 127.0.0.1.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return addr.String()
}

// OpsURL returns the base URL of the operators' address, empty if there is none.
func (a *App) OpsURL() string {
	if a.opsListener == nil {
		return ""
	}
	return "http://" + reachable(a.opsListener.Addr())
}

func (a *App) wire(ctx context.Context) error {
	db := a.Stores.Database.Observed(a.observe...)
	idKey, err := db.DataKey(ctx, repository.OrderIDKey)
	if err != nil {
		return err
	}
	a.IDs = model.NewOrderIDs(idKey)
	secret, paymentSecret := []byte(a.settings.Secret), []byte(a.settings.PaymentSecret)
	a.secrets = auth.Mark(idKey, secret, paymentSecret)

	if err := a.Stores.OpenQueue(&a.settings, a.instance, a.Log); err != nil {
		return err
	}
	a.gate = gate.New(a.Stores.Redis, a.instance, a.observe...)
	live := repository.NewLiveSales(db)
	var shown service.CatalogStore = live
	if a.Stores.Replicas != nil {
		shown = &service.ReplicaCatalog{CatalogStore: live, Replicas: gate.NewReplicas(a.Stores.Replicas), Log: a.Log}
	}
	a.Catalog = service.NewCatalog(shown, clock)
	a.tally = service.NewTally(a.Catalog)
	a.Waiters = service.NewWaiters(clock)
	lock, truth := make(chan struct{}, 1), db
	if a.settings.Strategy == "mutex" {
		db = db.Exclusive(lock) // so that no release or settle of this process comes between the strategy's read and write
	}
	a.kind, _ = strategy.Of(a.settings.Strategy) // valid settings name a strategy
	a.gates = service.NewGates(db, a.gate, a.Catalog, !a.kind.UsesGate, a.Log, a.observe...)
	var units service.Peeker
	var counter middleware.Counter = a.gates
	if a.kind.UsesGate {
		units, counter = a.gate, nil // the gate's script that admits also counts the requests
	}
	soldOut := &service.SoldOut{Store: db, Gate: units, Catalog: a.Catalog, Now: clock}
	var linger time.Duration
	if a.settings.Ack == "queued" {
		linger = queuedLinger
	}
	a.Settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: a.gate, Ledger: db, Live: a.Catalog.LiveGates, Instance: a.instance, Batch: a.settings.Batch, Running: a.running,
		Queue: a.Stores.Queue, Grace: a.settings.PayGrace, Linger: linger, AckPause: ackPause,
		Apart: a.Waiters.Apart, Wake: a.Waiters.Wake, Now: clock, Log: a.Log,
		Lost: func(gate model.GateRef) {
			a.gates.ReplaceGate(gate.SaleID, a.Catalog.Epoch(gate.SaleID), model.RebuildLost)
		},
	})
	a.Strategy = a.kind.New(strategy.Needs{
		Gate: a.gate, Database: truth, Control: a.gates, Settler: a.Settler, Log: a.Log, Now: clock, Lock: lock, Batch: a.settings.Batch,
		LocalShare: a.settings.LocalShare, LocalBuffer: a.settings.LocalBuffer,
	})
	if a.kind.Oversells != strategy.Never {
		a.Log.Warn("this strategy oversells", "strategy", a.kind.Name, "when", a.kind.Oversells)
	}
	auditor := &service.Auditor{Store: live, Gate: a.gate}
	a.Sales = &service.Sales{
		Store: db, SaleHistory: db, Gate: a.gate, Gates: a.gates, Catalog: a.Catalog, IDs: a.IDs, Takes: Takes(a.settings), Log: a.Log,
	}
	a.Tokens, a.Paths = auth.NewTokens(secret, clock), auth.NewPaths(secret, a.Catalog.Now)
	login, err := a.trust(ctx)
	if err != nil {
		return err
	}
	assets, err := web.NewAssets()
	if err != nil {
		return err
	}
	builtIn := a.settings.BuiltIn()
	shop := service.NewShop(db)
	pages, err := web.NewPages(a.Catalog.Now, assets, a.URL, web.LogIn{Register: builtIn == "open", Issuer: login != nil}, shop.Shown, a.settings.Embedded())
	if err != nil {
		return err
	}
	a.accounts = &service.Accounts{
		Open: builtIn == "open", Off: builtIn == "off", Outside: login, Store: db, Passwords: auth.NewPasswords(), Tokens: a.Tokens,
	}
	staff := &service.Staff{Off: a.accounts.Off, Store: db, Passwords: a.accounts.Passwords, Tokens: a.Tokens, Now: clock}
	endpoints := &service.Endpoints{
		Store: db, Sender: webhook.NewSender(a.settings.WebhookPrivate, clock), Seals: auth.NewSeals(secret), IDs: a.IDs, Private: a.settings.WebhookPrivate,
		Kept: time.Duration(a.settings.EventDays) * 24 * time.Hour, Now: a.Catalog.Now, Observe: a.observe, Log: a.Log,
	}
	chain := beacon.QuicknetChain()
	if text := a.settings.BeaconChain; text != "" {
		err = json.Unmarshal([]byte(text), &chain)
	}
	rounds, invalid := beacon.NewSource(a.settings.Beacon, chain)
	if err := cmp.Or(err, invalid); err != nil {
		return fmt.Errorf("--beacon-chain: %w", err)
	}
	a.called, a.lines = strategy.NewCalled(db), service.NewLines(db, a.Catalog, auth.NewTickets(secret), auth.NewWorks(secret, a.Catalog.Now))
	offers, consoles := &handler.Offers{Catalog: a.Catalog, PublicURL: a.URL}, handler.NewConsoles(staff, a.closing)
	a.streams, a.lab = handler.NewStreams(offers, clock), &handler.Lab{Stores: labStores(&a.settings), Consoles: consoles}
	orders := &service.Orders{Desk: db, Ledger: db, IDs: a.IDs, Catalog: a.Catalog, Gate: a.gate, Gates: a.gates}
	payments, holds, err := a.takeMoney(db, pages, orders)
	if err != nil {
		return err
	}
	a.watch()
	var trace gin.HandlerFunc // nil without tracing
	if a.tracing != nil {
		trace = middleware.Trace(a.tracing.Tracer()) //nolint:contextcheck // each request has its own context
	}
	gin.SetMode(gin.ReleaseMode)
	router, err := handler.Router(&handler.API{ //nolint:contextcheck // each request has its own context
		Door: handler.Door{
			Limits: handler.Limits{
				Leaky: a.settings.LimitAlgorithm == "leaky-bucket", Rate: a.settings.LimitRate, Burst: a.settings.LimitBurst,
				Wait: a.settings.LimitWait, AddressRate: a.settings.IPRate,
				User:           model.Frequency{Limit: a.settings.UserRequests, Window: a.settings.UserWindow},
				TrustedProxies: a.settings.TrustedProxies, Origins: a.settings.AllowOrigins,
			},
			Counter: counter, Trace: trace, Requested: a.metrics.Request, Tally: a.tally, Observe: a.observe, Now: clock, Log: a.Log,
		},
		Health: handler.Health{Checks: a.checks(), Closing: a.closing, Now: clock},
		Purchases: handler.Purchases{Offers: offers, Paths: a.Paths, Lines: a.lines, Service: &service.Purchases{
			Catalog: a.Catalog, IDs: a.IDs, Strategy: a.Strategy, Called: a.called, Orders: db, Waiters: a.Waiters, SoldOut: soldOut,
			Observe: a.observe, AckQueued: a.settings.Ack == "queued", AckWait: a.settings.AckWait,
		}},
		Links: handler.Links{Service: a.Sales, PublicURL: a.URL},
		Lines: handler.Lines{
			Offers: offers, Service: a.lines, Proofs: service.NewProofs(db, a.Catalog, rounds.PublicKey()), Sales: a.Sales, Closing: a.closing,
		},
		Orders:   handler.Orders{Offers: offers, Consoles: consoles, Service: orders},
		Reports:  handler.Reports{Offers: offers, Service: service.NewReports(db, a.Catalog)},
		Payments: payments, Holds: holds, Accounts: handler.NewAccounts(a.accounts), Staff: handler.Staff{Service: staff}, Shop: handler.Shop{Service: shop},
		Sales:      handler.Sales{Offers: offers, Service: a.Sales, Auditor: auditor},
		Campaigns:  handler.Campaigns{Offers: offers, Service: &service.Campaigns{Store: db, Sales: a.Sales}},
		Operations: handler.Operations{Offers: offers, Service: a.Sales}, Endpoints: handler.Endpoints{Service: endpoints},
		Live: handler.Live{
			Offers: offers, Consoles: consoles, Instances: a.instances,
			Service: service.NewLive(a.Catalog, live, a.gate, a.instances, metrics.Latencies()),
		},
		Lab: a.lab, Rehearsals: handler.Rehearsals{Store: db, Version: a.options.Version},
		Pages: handler.Pages{Offers: offers, Home: pages, Shop: shop.Shown}, Assets: assets, Streams: a.streams,
	})
	if err != nil {
		return err
	}
	a.serve(router)

	var wakes <-chan struct{} // nil, and so never ready, if the queue can't wake the expirer
	if delayer, ok := a.Stores.Queue.(worker.Delayer); ok {
		wakes = delayer.Wakes()
	}
	lease := func(ctx context.Context, loop string, ttl time.Duration) (bool, error) {
		return db.Lease(ctx, loop, a.instance, ttl)
	}
	caller := &service.Caller{Store: db, Catalog: a.Catalog, IDs: a.IDs, Beacon: rounds, Observe: a.observe}
	lines := &worker.Lines{Lease: lease, Caller: caller, Log: a.Log}
	provider := payments.Service.Provider.Name()
	changed := make(chan struct{}, 1) // has a value after an announcement that a sale has changed
	hear := func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	a.workers = append(a.workers, a.Settler.Run, lines.Call, lines.AskBeacon,
		(&worker.Expirer{
			Store: db, Released: a.expired, Observe: a.observe, Grace: a.settings.PayGrace, Wake: wakes, Now: clock, Log: a.Log,
		}).Run,
		(&worker.Refunder{Store: db, Provider: provider, Refund: payments.Service.Refund, Observe: a.observe, Log: a.Log}).Run,
		(&worker.Deliverer{
			Feed: endpoints, Events: (&service.SaleEvents{Record: db.RecordOnce, Catalog: a.Catalog}).Look, Log: a.Log,
		}).Run,
		(&worker.Recorder{Counts: a.tally.Counts, Catalog: a.Catalog, Store: db.AddPoints, Log: a.Log}).Run,
		(&worker.Reconciler{Lease: lease, Store: db, Provider: provider, Check: payments.Service.Check, Log: a.Log}).Run,
		(&worker.Auditor{
			Lease: lease, Audits: auditor, AuditLog: db, Catalog: a.Catalog, Replace: a.gates.ReplaceGate, Observe: a.observe, Log: a.Log,
		}).Run,
		(&worker.Controller{
			Catalog: a.Catalog, Gates: a.gates, SoldOut: soldOut, Shop: shop, Changed: changed, Log: a.Log,
			Report: func(ctx context.Context) error { return a.gate.Report(ctx, a.figures()) },
		}).Run,
		func(ctx context.Context) { a.gate.Listen(ctx, hear, a.Waiters.Look) },
	)
	if err := cmp.Or(a.Catalog.Refresh(ctx), shop.Refresh(ctx)); err != nil {
		return err
	}
	if err := a.gates.Ensure(ctx); err != nil {
		a.Log.Warn("gates can't be installed yet", "error", err) // Redis may be down; the controller tries again
	}
	return nil
}

// Furnish makes the operator's account by EnsureOperator, unless built-in accounts are off. If the settings ask for a demo sale,
// and the database has no sales, Furnish creates it. It returns the password that EnsureOperator has generated, or "".
func (a *App) Furnish(ctx context.Context) (password string, err error) {
	if !a.accounts.Off {
		if password, err = a.accounts.EnsureOperator(ctx, a.settings.AdminPassword); err != nil {
			return "", fmt.Errorf("make the operator's account: %w", err)
		}
	}
	if !a.settings.DemoSale() {
		return password, nil
	}
	codes, _, err := a.Stores.Database.SaleCodes(ctx, time.Time{})
	if err != nil || len(codes) > 0 {
		return password, err
	}
	now := a.Catalog.Now()
	_, _, err = a.Sales.Create(ctx, model.Sale{
		Title:       "Demo: the last hundred teapots · 演示：最后一百把茶壶",
		Description: "A sale to try the engine on. Two for each buyer, ten minutes to pay.",
		PriceCents:  990, OriginalPriceCents: 4990, Currency: "CNY", LimitPerUser: 2, PayTimeoutSeconds: 600,
		StartsAt: now, EndsAt: now.AddDate(1, 0, 0), Shards: 1,
	}, 100, "engine")
	return password, err
}

// watch registers the metrics that are read from other parts.
func (a *App) watch() {
	for name, pool := range a.Stores.Database.Pools() {
		a.metrics.WatchPool(name, pool)
	}
	a.metrics.Watch(metrics.Sources{
		Build: func() (string, string) { return a.options.Version, a.settings.Strategy },
		Sales: a.Catalog.Live, Lines: a.Catalog.Lines, Requests: a.tally.Counts, Peek: a.gate.Peek, QueueAge: a.gate.QueueAge,
		Breaker: func() bool { return a.Strategy.Healthy() == nil }, Streams: a.streams.Open, Bypassed: a.Settler.Bypassed,
	})
}

func (a *App) checks() []handler.Check {
	checks := []handler.Check{
		{Name: "database", Needed: true, Ask: a.Stores.Database.Ping},
		{Name: "redis", Needed: a.kind.NeedsRedis, Ask: a.gate.Ping},
		{Name: "strategy", Ask: func(context.Context) error { return a.Strategy.Healthy() }},
	}
	if a.Stores.Queue != nil {
		checks = append(checks, handler.Check{Name: "queue", Ask: a.Settler.QueueHealthy})
	}
	return checks
}

// expired reports a sale's expired orders to the observers, and tells the gate about the released units.
func (a *App) expired(ctx context.Context, saleID string, releases []model.Release) {
	for _, r := range releases {
		a.observe.Note(observe.Event{Name: observe.Expired, N: int64(r.Units)})
	}
	a.gates.Changed(ctx, saleID)
}

func (a *App) serve(router http.Handler) {
	timeouts := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler: h, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
			IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
		}
	}
	a.server, a.ops = timeouts(router), timeouts(opsHandler(a.metrics))
	a.ops.WriteTimeout = 0 // a CPU profile takes as long as its request asks for
}

// Kill simulates a crash: it closes the server and the stores while they work.
func (a *App) Kill() {
	_ = a.server.Close()
	_ = a.Stores.Close()
}

// LostRaces returns how often another writer overtook an optimistic transaction.
func (a *App) LostRaces() int64 { return a.metrics.LostRaces() }

// Close closes the listeners, the strategy, the stores and the tracing. It returns the stores' error. Run need not have been
// called.
func (a *App) Close() error {
	for _, l := range []net.Listener{a.listener, a.opsListener} {
		if l != nil {
			_ = l.Close() // fails if a stop has closed it
		}
	}
	if a.Strategy != nil {
		a.Strategy.Close()
	}
	err := a.Stores.Close()
	if lost := a.tracing.Close(); lost != nil {
		a.Log.Warn("the last traces are lost", "error", lost)
	}
	return err
}
