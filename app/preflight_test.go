package app_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"flashsale/app"
	"flashsale/app/command"
	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/lab/preflight"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// paymentSecret differs from testSecret, as a preflight demands.
const paymentSecret = "a secret of the tests for payments alone"

// report is what the command prints.
type report struct {
	OK       bool                `json:"ok"`
	Version  string              `json:"version"`
	Findings []preflight.Finding `json:"findings"`
}

// level is the worst level of a check's findings, empty if the check was not made.
func (r report) level(check string) preflight.Level { return worst(r.Findings, check) }

func worst(list []preflight.Finding, check string) (worst preflight.Level) {
	for _, f := range list {
		if f.Check == check && (worst == "" || worst == preflight.OK || f.Level == preflight.Fail) {
			worst = f.Level
		}
	}
	return worst
}

// preflighted runs the command. The command must fail exactly if a check has failed, and show no secret.
func preflighted(t testing.TB, args ...string) report {
	t.Helper()
	cmd := parsed(t, append([]string{
		"preflight", "--json", "--http-addr=127.0.0.1:0", "--ops-addr=off", "--public-url=https://shop.example", "--ip-rate=0",
		"--secret=" + testSecret, "--payment-secret=" + paymentSecret, "--admin-password=" + adminPassword, "--payment=handoff", "--checkout-url=https://shop.example/pay", "--connections=100",
	}, args...)...)
	var out bytes.Buffer
	err := command.Execute(t.Context(), cmd, "test", &out, io.Discard)
	var r report
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		t.Fatalf("%v, %v in %s", err, jsonErr, &out)
	}
	failed := slices.ContainsFunc(r.Findings, func(f preflight.Finding) bool { return f.Level == preflight.Fail })
	if errors.Is(err, preflight.ErrNotFit) != failed || r.OK == failed || !failed && err != nil {
		t.Errorf("ended with %v, ok %t, of %+v", err, r.OK, r.Findings)
	}
	for _, f := range r.Findings {
		if f.Found == "" || f.Level != preflight.OK && f.Do == "" || strings.ContainsAny(f.Found+f.Do, "\n\r") {
			t.Errorf("the finding is incomplete or has several lines: %+v", f)
		}
	}
	secrets := []string{testSecret, paymentSecret, adminPassword}
	if u, err := url.Parse(cmd.Settings.Database); err == nil && u.User != nil {
		password, _ := u.User.Password()
		secrets = append(secrets, password)
	}
	for _, secret := range secrets {
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret was printed: %s", &out)
		}
	}
	return r
}

// fit is a shop in which no check fails, with a Redis of its own.
type fit struct {
	t    *testing.T
	args []string
	name string // of the database
	root *sql.DB
	db   *repository.Store

	server *kit.RedisServer
	redis  *redis.Client
}

func newFit(t *testing.T) *fit {
	t.Helper()
	return newFitOn(t, kit.SharedMariaDB(t))
}

func newFitOn(t *testing.T, mariadb *kit.MariaDBServer) *fit {
	t.Helper()
	server := kit.Redis(t, "--maxmemory", "256mb", "--maxmemory-policy", "noeviction", "--appendonly", "yes")
	database := mariadb.NewDatabase(t)
	db, err := repository.Open(t.Context(), database, 4)
	check.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	check.NoError(t, db.MigrateUp(t.Context()))
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return &fit{
		t: t, args: []string{"--database=" + database, "--redis=" + server.URL(), "--buyers=100000"}, name: path.Base(database),
		root: mariadb.Root(t), db: db, server: server, redis: client,
	}
}

// preflighted runs the command on the fit's stores.
func (f *fit) preflighted(t testing.TB, args ...string) report {
	t.Helper()
	return preflighted(t, slices.Concat(f.args, args)...)
}

// wants checks the level of one finding of the command.
func (f *fit) wants(t *testing.T, check string, want preflight.Level, args ...string) {
	t.Helper()
	if r := f.preflighted(t, args...); r.level(check) != want {
		t.Errorf("%s is %q, want %q, among %+v", check, r.level(check), want, r.Findings)
	}
}

// instance runs an engine on the fit's stores. Its version is "test", as that of the commands.
func (f *fit) instance(changes ...func(*config.Settings)) *server {
	f.t.Helper()
	return f.versioned("test", changes...)
}

func (f *fit) versioned(version string, changes ...func(*config.Settings)) *server {
	f.t.Helper()
	stores := parsed(f.t, append([]string{"preflight"}, f.args...)...).Settings
	settings := settingsOf(f.t, append([]func(*config.Settings){func(s *config.Settings) {
		s.Database, s.Redis, s.PaymentSecret = stores.Database, stores.Redis, paymentSecret
	}}, changes...)...)
	return boot(f.t, settings, app.Options{Logs: f.t.Output(), Version: version})
}

// sale writes a sale of ten units that opens in an hour, as an operator would make it, and installs its gate.
func (f *fit) sale(change func(*model.Sale)) string {
	f.t.Helper()
	now := time.Now()
	s := model.Sale{
		ID: model.NewSaleID(), Title: "Teapot", Currency: "CNY", LimitPerUser: 2, PayTimeoutSeconds: 600,
		StartsAt: now.Add(time.Hour), EndsAt: now.Add(2 * time.Hour),
	}
	s.Code = s.ID[:8]
	change(&s)
	check.NoError(f.t, f.db.CreateSale(f.t.Context(), s, 10, "op"))
	catalog := service.NewCatalog(f.db, time.Now)
	gates := service.NewGates(f.db, gate.New(f.redis, "test"), catalog, false, app.NewLog(&config.Settings{LogLevel: "error"}, f.t.Output()))
	check.NoError(f.t, gates.Preheat(f.t.Context(), s.ID))
	return s.ID
}

// do runs a statement, or a command of Redis after "redis ". An empty line does nothing.
func (f *fit) do(line string) {
	f.t.Helper()
	var err error
	if command, ok := strings.CutPrefix(line, "redis "); ok {
		words := []any{}
		for word := range strings.FieldsSeq(command) {
			words = append(words, word)
		}
		err = f.redis.Do(f.t.Context(), words...).Err()
	} else if line != "" {
		_, err = f.root.ExecContext(f.t.Context(), line)
	}
	if err != nil {
		f.t.Fatalf("%s: %v", line, err)
	}
}

// timed reports whether a finding warns of a round trip or of clocks, which a busy machine may cause.
func timed(f preflight.Finding) bool {
	return f.Level != preflight.Fail && (strings.HasSuffix(f.Check, ".reach") || strings.HasSuffix(f.Check, ".clock"))
}

// Each setting that is wrong for a sale changes its own finding, and nothing else does.
func TestPreflightOfStores(t *testing.T) {
	t.Parallel()
	f := newFitOn(t, kit.MariaDB(t, "--log-bin", "--sync-binlog=1", "--innodb-buffer-pool-size=1G"))
	f.sale(func(*model.Sale) {})
	check.NoError(t, f.db.SaveRehearsal(t.Context(), model.Rehearsal{Version: "test", Verdict: model.RehearsalPassed, Buyers: 100_000, Units: 10}))
	good := f.preflighted(t)
	for _, finding := range good.Findings {
		if finding.Level != preflight.OK && finding.Check != "instances.running" && !timed(finding) { // no instance runs
			t.Errorf("everything is right, but %+v", finding)
		}
	}
	for _, tc := range []struct {
		wrong, right string // values of a variable of MariaDB or, with the prefix "redis ", of a setting of Redis
		args         string
		check        string
		want         preflight.Level
	}{
		{"innodb_flush_log_at_trx_commit=0", "innodb_flush_log_at_trx_commit=1", "", "database.flush", preflight.Fail},
		{"innodb_flush_log_at_trx_commit=2", "innodb_flush_log_at_trx_commit=1", "", "database.flush", preflight.Warn},
		{"sync_binlog=0", "sync_binlog=1", "", "database.binlog", preflight.Warn},
		{"max_connections=60", "max_connections=500", "--instances=2", "database.connections", preflight.Fail},
		{"", "", "--instances=16", "database.connections", preflight.Fail},
		{"max_allowed_packet=65536", "max_allowed_packet=16777216", "", "database.packet", preflight.Fail},
		{"read_only=1", "read_only=0", "", "database.writable", preflight.Fail},
		{"redis maxmemory-policy allkeys-lru", "redis maxmemory-policy noeviction", "", "redis.policy", preflight.Fail},
		{"redis maxmemory-policy volatile-ttl", "redis maxmemory-policy noeviction", "", "redis.policy", preflight.Fail},
		{"redis maxmemory 0", "redis maxmemory 256mb", "", "redis.memory", preflight.Warn},
		{"", "", "--buyers=2000000", "redis.memory", preflight.Fail},
		{"", "", "--buyers=100001", "rehearsal", preflight.Warn},
		{"redis appendonly no", "redis appendonly yes", "", "redis.persistence", preflight.OK},
		{"redis appendonly no", "redis appendonly yes", "--ack=queued", "redis.persistence", preflight.Warn},
		{"redis appendfsync always", "redis appendfsync everysec", "", "redis.persistence", preflight.Warn},
		{"redis appendfsync no", "redis appendfsync everysec", "", "redis.persistence", preflight.Warn},
		{"redis min-replicas-to-write 1", "redis min-replicas-to-write 0", "", "redis.role", preflight.Fail},
		{"redis replicaof 127.0.0.1 1", "redis replicaof no one", "", "redis.role", preflight.Fail},
		{"redis maxclients 70", "redis maxclients 10000", "", "redis.clients", preflight.Fail},
		{"", "", "--instances=1", "instances.running", preflight.Fail},
		{"", "", "--connections=1000000", "machine.files", preflight.Fail},
		{"", "", "--secret=" + strings.Repeat("x", 40), "settings.secret", preflight.Fail},
		{"", "", "--secret=short", "settings", preflight.Fail},
		{"", "", "--payment=sandbox\n--checkout-url=", "settings.payment", preflight.Fail},
		{"", "", "--public-url=", "settings.public_url", preflight.Warn},
		{"", "", "--ip-rate=200", "settings.trusted_proxies", preflight.Warn},
		{"", "", "--ops-addr=0.0.0.0:0", "settings.ops_addr", preflight.Warn},
		{"", "", "--ops-addr=:0", "settings.ops_addr", preflight.Warn},
		{"", "", "--strategy=naive\n--allow-oversell", "settings.strategy", preflight.Fail},
		{"", "", "--strategy=redis", "settings.strategy", preflight.Warn},
		{"", "", "--http-addr=192.0.2.1:80", "machine.http_addr", preflight.Fail},
		{"", "", "--sale=NOSUCHSALEATALL1", "sale", preflight.Fail},
	} {
		t.Run(tc.wrong+" "+tc.args, func(t *testing.T) {
			if tc.want == good.level(tc.check) && tc.want != preflight.OK {
				t.Fatalf("%s is %s although everything is right", tc.check, tc.want)
			}
			set := func(setting string) {
				if command, ok := strings.CutPrefix(setting, "redis "); ok && !strings.HasPrefix(command, "replicaof") {
					setting = "redis config set " + command
				} else if setting != "" && !ok {
					setting = "SET GLOBAL " + setting
				}
				f.do(setting)
			}
			set(tc.wrong)
			r := f.preflighted(t, strings.FieldsFunc(tc.args, func(r rune) bool { return r == '\n' })...)
			set(tc.right)
			if got := r.level(tc.check); got != tc.want {
				t.Errorf("%s is %q, want %q, among %+v", tc.check, got, tc.want, r.Findings)
			}
		})
	}
	same := func(a, b preflight.Finding) bool {
		return a.Check == b.Check && (a.Level == b.Level || timed(a) && timed(b))
	}
	if again := f.preflighted(t); !slices.EqualFunc(good.Findings, again.Findings, same) {
		t.Errorf("the checks have changed something: %+v, and before %+v", again.Findings, good.Findings)
	}
}

// Only a rehearsal of this version that has passed counts, and only if it was as large as the plan.
func TestPreflightOfRehearsals(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	f.sale(func(*model.Sale) {}) // of ten units
	save := func(version, verdict string, buyers, units int64) {
		check.NoError(t, f.db.SaveRehearsal(t.Context(), model.Rehearsal{Version: version, Verdict: verdict, Buyers: buyers, Units: units}))
	}
	f.wants(t, "rehearsal", preflight.Warn)
	save("older", model.RehearsalPassed, 100_000, 10)
	save("test", "failed", 100_000, 10)
	save("test", "late", 100_000, 10)
	f.wants(t, "rehearsal", preflight.Warn)
	save("test", model.RehearsalPassed, 99_999, 10)
	f.wants(t, "rehearsal", preflight.Warn)
	save("test", model.RehearsalPassed, 100_000, 9)
	f.wants(t, "rehearsal", preflight.Warn)
	save("test", model.RehearsalPassed, 100_000, 10)
	f.wants(t, "rehearsal", preflight.OK)
}

// While one store is away, the checks of the other one are made.
func TestPreflightWithoutAStore(t *testing.T) {
	t.Parallel()
	stores, away := kit.ServerStores(t), kit.Redis(t)
	away.Kill()
	r := preflighted(t, "--database="+stores.Database, "--redis="+away.URL())
	if r.level("redis.reach") != preflight.Fail || r.level("redis.version") != "" || r.level("database.reach") == preflight.Fail || r.level("database.schema") != preflight.Fail {
		t.Errorf("Redis is away and the schema is missing: %+v", r.Findings)
	}
	u, err := url.Parse(stores.Database)
	check.NoError(t, err)
	u.Host = away.Addr() // where nobody listens
	r = preflighted(t, "--database="+u.String(), "--redis="+stores.Redis)
	if r.level("database.reach") != preflight.Fail || r.level("redis.reach") == preflight.Fail || r.level("sale.window") != "" {
		t.Errorf("the database is away: %+v", r.Findings)
	}
}

// The broker of the queue must answer, and replicas must be fit for pages; a bad replica is a warning.
func TestPreflightOfQueuesAndReplicas(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	check.NoError(t, err)
	t.Cleanup(cluster.Close)
	f, away := newFit(t), kit.Redis(t)
	away.Kill()
	f.wants(t, "queue.reach", preflight.OK)
	f.wants(t, "queue.reach", preflight.OK, "--queue=redis-list")
	f.wants(t, "queue.reach", preflight.OK, "--queue=kafka", "--queue-url="+cluster.ListenAddrs()[0])
	f.wants(t, "queue.reach", preflight.Fail, "--queue=kafka", "--queue-url="+away.Addr())
	f.wants(t, "queue.reach", preflight.Fail, "--queue=rabbitmq", "--queue-url=amqp://guest:guest@"+away.Addr()+"/")
	f.wants(t, "settings", preflight.Fail, "--queue=rabbitmq") // without a URL

	f.wants(t, "replica", preflight.OK, "--redis-replicas="+kit.ReplicaOf(t, f.server).URL())
	for name, server := range map[string]*kit.RedisServer{
		"a primary": kit.Redis(t), "a replica without its primary": kit.Redis(t, "--replicaof", "127.0.0.1 1"), "a dead replica": away,
	} {
		if r := f.preflighted(t, "--redis-replicas="+server.URL()); r.level("replica") != preflight.Warn || !r.OK {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// Each defect of a sale changes its own finding.
func TestPreflightOfSales(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	soon := func(*model.Sale) {}
	ended := func(s *model.Sale) { s.StartsAt, s.EndsAt = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute) }
	for name, tc := range map[string]struct {
		sale  func(*model.Sale)
		then  string // a change of the sale SALE in the database SHOP
		arg   string
		check string
		want  preflight.Level
	}{
		"open":                     {func(s *model.Sale) { s.StartsAt = time.Now().Add(-time.Minute) }, "", "", "sale.window", preflight.OK},
		"ended":                    {ended, "", "", "sale.window", preflight.Fail},
		"closed":                   {func(s *model.Sale) { s.Status = model.SaleClosed }, "", "", "sale.window", preflight.Fail},
		"paused":                   {func(s *model.Sale) { s.Status = model.SalePaused }, "", "", "sale.window", preflight.Warn},
		"no gate":                  {soon, "redis DEL fs:{SALE}:gate", "", "sale.gate", preflight.Fail},
		"a closed gate":            {soon, "redis HSET fs:{SALE}:gate open 0", "", "sale.gate", preflight.Fail},
		"a gate of another Redis":  {soon, "redis HSET fs:{SALE}:gate run_id another", "", "sale.gate", preflight.Fail},
		"a gate of an older epoch": {soon, "UPDATE SHOP.stock SET epoch = epoch + 1 WHERE sale_id = 'SALE'", "", "sale.gate", preflight.Fail},
		"in line, with no gate": {
			soon, "UPDATE SHOP.stock SET lined = 2, reserved = available, available = 0 WHERE sale_id = 'SALE'", "", "sale.gate", "",
		},
		"no gate, and none needed": {soon, "redis DEL fs:{SALE}:gate", "--strategy=optimistic", "sale.gate", ""},
		"a gate with a unit more":  {soon, "redis HINCRBY fs:{SALE}:gate left 1", "", "sale.books", preflight.Fail},
		"a held unit without order": {
			soon, "UPDATE SHOP.stock SET available = 9, held = 1 WHERE sale_id = 'SALE'", "", "sale.books",
			preflight.Fail,
		},
		"a limit above the quota":    {func(s *model.Sale) { s.LimitPerUser = 11 }, "", "", "sale.terms", preflight.Warn},
		"less to pay than the grace": {soon, "", "--pay-grace=11m", "sale.terms", preflight.Warn},
		"59 seconds to pay":          {func(s *model.Sale) { s.PayTimeoutSeconds = 59 }, "", "", "sale.terms", preflight.Warn},
		"to pay until the end":       {func(s *model.Sale) { s.PayTimeoutSeconds = 3600 }, "", "", "sale.terms", preflight.Warn},
		"no units": {
			soon, "UPDATE SHOP.stock SET quota = 0, available = 0 WHERE sale_id = 'SALE'", "", "sale.terms",
			preflight.Warn,
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.sale(tc.sale)
			f.do(strings.NewReplacer("SALE", id, "SHOP", f.name).Replace(tc.then))
			f.wants(t, tc.check, tc.want, append(strings.Fields(tc.arg), "--sale="+id)...)
		})
	}

	// Without --sale the command checks all sales to which buyers may still come.
	f = newFit(t)
	want := []string{f.sale(soon), f.sale(func(s *model.Sale) { s.Status = model.SalePaused })}
	for _, check := range []string{"sale.window", "sale.gate", "sale.books", "sale.terms"} {
		f.wants(t, check, preflight.OK, "--sale="+want[0])
	}
	for _, status := range []model.SaleStatus{model.SaleClosed, model.SaleShadow} {
		f.sale(func(s *model.Sale) {
			if s.Status = status; status == model.SaleShadow {
				s.ID = model.NewShadowID()
			}
		})
	}
	f.sale(ended)
	var got []string
	for _, finding := range f.preflighted(t).Findings {
		if finding.Check == "sale.window" {
			got = append(got, finding.Found[:model.IDLength])
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("checked %v, want %v", got, want)
	}
}

// The running instances must agree with each other and with the command's settings.
func TestPreflightOfInstances(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	first := f.instance()
	address := strings.TrimPrefix(first.url, "http://")
	first.eventually("the instance reports", func() bool {
		r := f.preflighted(t)
		return r.level("instances.running") == preflight.OK && r.level("instances.version") == preflight.OK
	})
	alone := f.preflighted(t, "--peers="+address)
	for _, check := range []string{"instances.running", "instances.version", "instances.strategy", "instances.secrets", "peer"} {
		if alone.level(check) != preflight.OK {
			t.Errorf("%s is %q: %+v", check, alone.level(check), alone.Findings)
		}
	}
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	closed := kit.Redis(t)
	closed.Kill()
	other := strings.Repeat("another secret ", 3)
	f.wants(t, "instances.secrets", preflight.Fail, "--secret="+other)
	f.wants(t, "instances.secrets", preflight.Fail, "--payment-secret="+other)
	f.wants(t, "instances.strategy", preflight.Fail, "--strategy=optimistic")
	f.wants(t, "instances.running", preflight.Fail, "--instances=2")
	f.wants(t, "peer", preflight.Fail, "--peers="+closed.Addr())
	f.wants(t, "peer", preflight.Fail, "--peers="+stranger.Listener.Addr().String())
	f.wants(t, "machine.http_addr", preflight.OK, "--http-addr="+address) // which the instance itself has
	f.wants(t, "machine.http_addr", preflight.Fail, "--http-addr="+stranger.Listener.Addr().String())

	second := f.versioned("older", func(s *config.Settings) { s.Secret = other })
	second.eventually("the second instance reports", func() bool {
		r := f.preflighted(t, "--instances=2")
		return r.level("instances.running") == preflight.OK && r.level("instances.secrets") == preflight.Fail && r.level("instances.version") == preflight.Warn
	})
}

// A command that is stopped gives no verdict.
func TestPreflightIsStopped(t *testing.T) {
	hangs, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	defer func() { _ = hangs.Close() }()
	cmd := parsed(t, "preflight", "--database=mysql://u:p@"+hangs.Addr().String()+"/db",
		"--redis=redis://"+hangs.Addr().String()+"/0")
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- command.Execute(ctx, cmd, "test", &out, io.Discard) }()
	conn, err := hangs.Accept() // the command waits for an answer
	check.NoError(t, err)
	defer func() { _ = conn.Close() }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v, printed %q", err, &out)
	}
}
