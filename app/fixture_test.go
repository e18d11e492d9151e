package app_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/app"
	"flashsale/app/command"
	"flashsale/internal/config"
	"flashsale/lab/trial"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

func TestMain(m *testing.M) { kit.Main(m, endShared) }

const (
	testSecret    = "a secret of the tests, long enough to sign"
	adminPassword = "correct horse battery"
	// patience bounds every wait of a test: far above what a slow machine needs.
	patience = 3 * time.Minute
	// slowGate replaces the gate's own time limits for Redis, so that a busy machine does not change answers.
	slowGate = 10 * time.Second
	// stopTime is the time within which a stop should end.
	stopTime = 10 * time.Second
)

// server is a running app.
type server struct {
	t    testing.TB
	app  *app.App
	url  string
	http *http.Client
	stop func() // stops the app before the end of the test; nil if other tests use the server too

	operatorToken string
}

// parsed reads arguments as the command line does.
func parsed(t testing.TB, args ...string) config.Command {
	t.Helper()
	cmd, err := config.Parse(args, func(string) string { return "" }, io.Discard, io.Discard)
	check.NoError(t, err)
	check.NoError(t, command.Validate(&cmd))
	return cmd
}

// settingsOf returns the settings of a server under test: a free port, an empty SQLite file, Redis in the process, no
// request limits, a wait for orders that is long enough on a busy machine, no demo sale, no ops address. The changes are
// made to these settings.
func settingsOf(t testing.TB, changes ...func(*config.Settings)) config.Settings {
	t.Helper()
	s := parsed(t,
		"--http-addr=127.0.0.1:0", "--ops-addr=off", "--demo=false", "--database="+kit.SQLite(t),
		"--secret="+testSecret, "--admin-password="+adminPassword, "--accounts=open", "--payment=sandbox",
		"--limit-rate=1e6", "--limit-burst=1000000", "--ip-rate=0", "--user-requests=0", "--ack-wait=10s",
		"--log-format=text", "--log-level=error").Settings
	for _, change := range changes {
		change(&s)
	}
	check.NoError(t, s.Validate())
	return s
}

// asTheyAre, withFigures and withStores are changes of the settings.
func asTheyAre(*config.Settings)     {}
func withFigures(s *config.Settings) { s.OpsAddr = "127.0.0.1:0" }

func withStores(stores kit.Stores) func(*config.Settings) {
	return func(s *config.Settings) { s.Database, s.Redis = stores.Database, stores.Redis }
}

// start boots an app of the test's own. See settingsOf for its settings.
func start(t testing.TB, changes ...func(*config.Settings)) *server {
	t.Helper()
	return boot(t, settingsOf(t, changes...), app.Options{Logs: t.Output()})
}

// boot runs an app with exactly these settings until the test ends.
func boot(t testing.TB, settings config.Settings, options app.Options) *server {
	t.Helper()
	s, end, err := run(settings, options)
	check.NoError(t, err)
	s.t, s.http = t, s.in(t).newHTTP()
	s.stop = sync.OnceFunc(func() {
		began := time.Now()
		if err := end(); err != nil {
			t.Errorf("the app did not stop in order: %v", err)
		}
		if took := time.Since(began); took > stopTime {
			pace.Errorf(t, "the app stopped after %v", took)
		}
		s.http.CloseIdleConnections()
	})
	t.Cleanup(s.stop)
	return s
}

// run runs an app, which can compare strategies. A Redis that a busy machine slows down still counts as reachable. end stops
// the app; it returns an error if the app fails or does not stop.
func run(settings config.Settings, options app.Options) (s *server, end func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, settings, options)
	if err == nil {
		_, err = a.Furnish(ctx)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	a.OpenLab(trial.NewDesk(a, settings, options.Version))
	if client, ok := a.Stores.Redis.(*redis.Client); ok {
		o := client.Options()
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = slowGate, slowGate, slowGate, false
	}
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	end = func() error {
		cancel()
		select {
		case err := <-ran:
			return errors.Join(err, a.Close())
		case <-time.After(check.Patience):
			return errors.New("the app still runs")
		}
	}
	token, err := operatorTokenOf(a)
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return &server{app: a, url: "http://" + a.Address(), operatorToken: token}, end, nil
}

// shared holds the servers that many tests use.
var shared = struct {
	sync.Mutex
	byStrategy map[string]*server
	ends       []func() error
}{byStrategy: map[string]*server{}}

// usual returns a server of the default strategy that other tests use at the same time. A test may use it that makes its
// own sales, and neither stops the server, nor holds its database, nor counts what others do as well.
func usual(t testing.TB) *server {
	t.Helper()
	return usualOf(t, "hybrid")
}

// usualOf is usual for another strategy.
func usualOf(t testing.TB, strategyName string) *server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.byStrategy[strategyName] == nil {
		folder, err := os.MkdirTemp("", "flashsale-app-") //nolint:usetesting // the folder outlives the test
		check.NoError(t, err)
		s, end, err := run(settingsOf(t, func(c *config.Settings) {
			c.Strategy, c.AllowOversell, c.Database = strategyName, true, "sqlite:"+filepath.Join(folder, "shared.db")
		}), app.Options{Logs: os.Stderr})
		check.NoError(t, err)
		shared.byStrategy[strategyName] = s
		shared.ends = append(shared.ends, func() error { return errors.Join(end(), os.RemoveAll(folder)) })
	}
	s := shared.byStrategy[strategyName].in(t)
	s.http = s.newHTTP()
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

func endShared() {
	for _, end := range shared.ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "a shared server did not stop in order:", err)
		}
	}
}

// eachStrategy runs a test on a shared server of each strategy but those left out.
func eachStrategy(t *testing.T, test func(t *testing.T, s *server), leftOut ...string) {
	t.Helper()
	for _, name := range strategy.Names() {
		if slices.Contains(leftOut, name) {
			continue
		}
		t.Run(name, func(t *testing.T) { test(t, usualOf(t, name)) })
	}
}

// in is the same server for a subtest, which then fails by itself.
func (s *server) in(t testing.TB) *server {
	other := *s
	other.t = t
	return &other
}

// newHTTP makes a client that follows no redirect. Its requests and answers must agree with openapi.yaml.
func (s *server) newHTTP() *http.Client {
	return &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     inspect(s.t, s.url, &http.Transport{MaxIdleConnsPerHost: 256}),
	}
}

// eventually waits until ok returns true.
func (s *server) eventually(what string, ok func() bool) {
	s.t.Helper()
	check.Eventually(s.t, what, ok)
}

// database opens the server's database beside the server.
func (s *server) database() *sql.DB {
	s.t.Helper()
	return kit.OpenSQL(s.t, s.app.Settings().Database)
}

// exec changes the server's database without the server's knowledge.
func (s *server) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.database().ExecContext(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// refunded waits until the sandbox provider has refunded its transaction of a payment.
func (s *server) refunded(paymentID string) {
	s.t.Helper()
	db := s.database()
	s.eventually("the provider has sent the money back", func() bool {
		var n int
		row := db.QueryRowContext(s.t.Context(),
			"SELECT COUNT(*) FROM sandbox_transactions WHERE payment_id = ? AND status = 'refunded'", paymentID)
		check.NoError(s.t, row.Scan(&n))
		return n == 1
	})
}

// overdue ends an order's time to pay, including the grace, and waits until the order has expired and its gate knows.
func (c *client) overdue(id string) {
	c.t.Helper()
	c.exec("UPDATE orders SET expires_at_ms = created_at_ms - 100000000 WHERE id = ?", id)
	c.becomes(id, "expired")
	if kind, _ := strategy.Of(c.app.Settings().Strategy); !kind.UsesGate {
		return
	}
	c.eventually("the gate is told of the expiry", func() bool {
		offer, _, err := c.app.Stores.Database.Offer(c.t.Context(), model.SaleOf(id))
		if err != nil {
			return false
		}
		states, err := c.app.Gate().Peek(c.t.Context(), offer.GateRef())
		return err == nil && states[0].Version >= offer.Stock.GateVersion
	})
}

// hold keeps the server from writing to its SQLite file until letGo is called; the server can still read. Attempts that
// the gate admits meanwhile stay queued.
func (s *server) hold() (letGo func()) {
	s.t.Helper()
	conn, err := s.database().Conn(s.t.Context())
	check.NoError(s.t, err)
	_, err = conn.ExecContext(s.t.Context(), "BEGIN IMMEDIATE")
	check.NoError(s.t, err)
	letGo = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.WithoutCancel(s.t.Context()), "ROLLBACK")
		if err = errors.Join(err, conn.Close()); err != nil {
			s.t.Errorf("let the database go: %v", err)
		}
	})
	s.t.Cleanup(letGo)
	return letGo
}
