package app

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"maps"
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

	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
)

// paymentSecret differs from testSecret, as a preflight demands.
const paymentSecret = "a secret of the tests for payments alone"

// report is what the command prints.
type report struct {
	OK        bool       `json:"ok"`
	Version   string     `json:"version"`
	Findings  []finding  `json:"findings"`
	Rehearsal *rehearsal `json:"rehearsal"`
}

// level is the worst level of a check's findings, empty if the check was not made.
func (r report) level(check string) level { return worst(r.Findings, check) }

func worst(list []finding, check string) (worst level) {
	for _, f := range list {
		if f.Check == check && (worst == "" || worst == isOK || f.Level == isFail) {
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
		"--secret=" + testSecret, "--payment-secret=" + paymentSecret, "--admin-password=" + adminPassword, "--connections=100",
	}, args...)...)
	var out bytes.Buffer
	err := Execute(t.Context(), cmd, "test", &out, io.Discard)
	var r report
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		t.Fatalf("%v, %v in %s", err, jsonErr, &out)
	}
	failed := slices.ContainsFunc(r.Findings, func(f finding) bool { return f.Level == isFail })
	if errors.Is(err, ErrNotFit) != failed || r.OK == failed || !failed && err != nil {
		t.Errorf("ended with %v, ok %t, of %+v", err, r.OK, r.Findings)
	}
	for _, f := range r.Findings {
		if f.Found == "" || f.Level != isOK && f.Do == "" || strings.ContainsAny(f.Found+f.Do, "\n\r") {
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
	db, err := repository.Open(t.Context(), database, preflightConns)
	noError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	noError(t, db.MigrateUp(t.Context()))
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
func (f *fit) wants(t *testing.T, check string, want level, args ...string) {
	t.Helper()
	if r := f.preflighted(t, args...); r.level(check) != want {
		t.Errorf("%s is %q, want %q, among %+v", check, r.level(check), want, r.Findings)
	}
}

// instance runs an engine on the fit's stores.
func (f *fit) instance(changes ...func(*config.Settings)) *server {
	f.t.Helper()
	stores := parsed(f.t, append([]string{"preflight"}, f.args...)...).Settings
	return start(f.t, append([]func(*config.Settings){func(s *config.Settings) {
		s.Database, s.Redis, s.PaymentSecret = stores.Database, stores.Redis, paymentSecret
	}}, changes...)...)
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
	noError(f.t, f.db.CreateSale(f.t.Context(), s, 10, "op"))
	catalog := service.NewCatalog(f.db, time.Now)
	gates := service.NewGates(f.db, gate.New(f.redis, "test"), catalog, newLog(&config.Settings{LogLevel: "error"}, f.t.Output()))
	noError(f.t, gates.Preheat(f.t.Context(), s.ID))
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
func (f finding) timed() bool {
	return f.Level != isFail && (strings.HasSuffix(f.Check, ".reach") || strings.HasSuffix(f.Check, ".clock"))
}

// Each setting that is wrong for a sale changes its own finding, and nothing else does.
func TestPreflightOfStores(t *testing.T) {
	t.Parallel()
	f := newFitOn(t, kit.MariaDB(t, "--log-bin", "--sync-binlog=1", "--innodb-buffer-pool-size=1G"))
	f.sale(func(*model.Sale) {})
	good := f.preflighted(t)
	for _, finding := range good.Findings {
		if finding.Level != isOK && finding.Check != "instances.running" && !finding.timed() { // no instance runs
			t.Errorf("everything is right, but %+v", finding)
		}
	}
	for _, tc := range []struct {
		wrong, right string // values of a variable of MariaDB or, with the prefix "redis ", of a setting of Redis
		args         string
		check        string
		want         level
	}{
		{"innodb_flush_log_at_trx_commit=0", "innodb_flush_log_at_trx_commit=1", "", "database.flush", isFail},
		{"innodb_flush_log_at_trx_commit=2", "innodb_flush_log_at_trx_commit=1", "", "database.flush", isWarn},
		{"sync_binlog=0", "sync_binlog=1", "", "database.binlog", isWarn},
		{"max_connections=60", "max_connections=500", "--instances=2", "database.connections", isFail},
		{"", "", "--instances=16", "database.connections", isFail},
		{"max_allowed_packet=65536", "max_allowed_packet=16777216", "", "database.packet", isFail},
		{"read_only=1", "read_only=0", "", "database.writable", isFail},
		{"redis maxmemory-policy allkeys-lru", "redis maxmemory-policy noeviction", "", "redis.policy", isFail},
		{"redis maxmemory-policy volatile-ttl", "redis maxmemory-policy noeviction", "", "redis.policy", isFail},
		{"redis maxmemory 0", "redis maxmemory 256mb", "", "redis.memory", isWarn},
		{"", "", "--buyers=2000000", "redis.memory", isFail},
		{"redis appendonly no", "redis appendonly yes", "", "redis.persistence", isOK},
		{"redis appendonly no", "redis appendonly yes", "--ack=queued", "redis.persistence", isWarn},
		{"redis appendfsync always", "redis appendfsync everysec", "", "redis.persistence", isWarn},
		{"redis appendfsync no", "redis appendfsync everysec", "", "redis.persistence", isWarn},
		{"redis min-replicas-to-write 1", "redis min-replicas-to-write 0", "", "redis.role", isFail},
		{"redis replicaof 127.0.0.1 1", "redis replicaof no one", "", "redis.role", isFail},
		{"redis maxclients 70", "redis maxclients 10000", "", "redis.clients", isFail},
		{"", "", "--instances=1", "instances.running", isFail},
		{"", "", "--connections=1000000", "machine.files", isFail},
		{"", "", "--secret=" + strings.Repeat("x", 40), "settings.secret", isFail},
		{"", "", "--secret=short", "settings", isFail},
		{"", "", "--payment-secret=" + testSecret, "settings.secret", isWarn},
		{"", "", "--public-url=", "settings.public_url", isWarn},
		{"", "", "--ip-rate=200", "settings.trusted_proxies", isWarn},
		{"", "", "--ops-addr=0.0.0.0:0", "settings.ops_addr", isWarn},
		{"", "", "--strategy=naive\n--allow-oversell", "settings.strategy", isFail},
		{"", "", "--strategy=redis", "settings.strategy", isWarn},
		{"", "", "--http-addr=192.0.2.1:80", "machine.http_addr", isFail},
		{"", "", "--sale=NOSUCHSALEATALL1", "sale", isFail},
	} {
		t.Run(tc.wrong+" "+tc.args, func(t *testing.T) {
			if tc.want == good.level(tc.check) && tc.want != isOK {
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
	same := func(a, b finding) bool {
		return a.Check == b.Check && (a.Level == b.Level || a.timed() && b.timed())
	}
	if again := f.preflighted(t); !slices.EqualFunc(good.Findings, again.Findings, same) {
		t.Errorf("the checks have changed something: %+v, and before %+v", again.Findings, good.Findings)
	}
}

// While one store is away, the checks of the other one are made.
func TestPreflightWithoutAStore(t *testing.T) {
	t.Parallel()
	stores, away := kit.ServerStores(t), kit.Redis(t)
	away.Kill()
	r := preflighted(t, "--database="+stores.Database, "--redis="+away.URL())
	if r.level("redis.reach") != isFail || r.level("database.reach") == isFail || r.level("database.schema") != isFail {
		t.Errorf("Redis is away and the schema is missing: %+v", r.Findings)
	}
	u, err := url.Parse(stores.Database)
	noError(t, err)
	u.Host = away.Addr() // where nobody listens
	r = preflighted(t, "--database="+u.String(), "--redis="+stores.Redis)
	if r.level("database.reach") != isFail || r.level("redis.reach") == isFail || r.level("sale.window") != "" {
		t.Errorf("the database is away: %+v", r.Findings)
	}
}

// The broker of the queue must answer, and replicas must be fit for pages; a bad replica is a warning.
func TestPreflightOfQueuesAndReplicas(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	noError(t, err)
	t.Cleanup(cluster.Close)
	f, away := newFit(t), kit.Redis(t)
	away.Kill()
	f.wants(t, "queue.reach", isOK)
	f.wants(t, "queue.reach", isOK, "--queue=redis-list")
	f.wants(t, "queue.reach", isOK, "--queue=kafka", "--queue-url="+cluster.ListenAddrs()[0])
	f.wants(t, "queue.reach", isFail, "--queue=kafka", "--queue-url="+away.Addr())
	f.wants(t, "queue.reach", isFail, "--queue=rabbitmq", "--queue-url=amqp://guest:guest@"+away.Addr()+"/")
	f.wants(t, "settings", isFail, "--queue=rabbitmq") // without a URL

	f.wants(t, "replica", isOK, "--redis-replicas="+kit.ReplicaOf(t, f.server).URL())
	for name, server := range map[string]*kit.RedisServer{
		"a primary": kit.Redis(t), "a replica without its primary": kit.Redis(t, "--replicaof", "127.0.0.1 1"), "a dead replica": away,
	} {
		if r := f.preflighted(t, "--redis-replicas="+server.URL()); r.level("replica") != isWarn || !r.OK {
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
		then  string // is done to the sale SALE in the database SHOP
		arg   string
		check string
		want  level
	}{
		"open":                     {func(s *model.Sale) { s.StartsAt = time.Now().Add(-time.Minute) }, "", "", "sale.window", isOK},
		"ended":                    {ended, "", "", "sale.window", isFail},
		"closed":                   {func(s *model.Sale) { s.Status = model.SaleClosed }, "", "", "sale.window", isFail},
		"paused":                   {func(s *model.Sale) { s.Status = model.SalePaused }, "", "", "sale.window", isWarn},
		"no gate":                  {soon, "redis DEL fs:{SALE}:gate", "", "sale.gate", isFail},
		"a closed gate":            {soon, "redis HSET fs:{SALE}:gate open 0", "", "sale.gate", isFail},
		"a gate of another Redis":  {soon, "redis HSET fs:{SALE}:gate server another", "", "sale.gate", isFail},
		"a gate of an older epoch": {soon, "UPDATE SHOP.stock SET epoch = epoch + 1 WHERE sale_id = 'SALE'", "", "sale.gate", isFail},
		"no gate, and none needed": {soon, "redis DEL fs:{SALE}:gate", "--strategy=optimistic", "sale.gate", ""},
		"a gate with a unit more":  {soon, "redis HINCRBY fs:{SALE}:gate left 1", "", "sale.books", isFail},
		"a held unit without order": {
			soon, "UPDATE SHOP.stock SET available = 9, held = 1 WHERE sale_id = 'SALE'", "", "sale.books",
			isFail,
		},
		"a limit above the quota":    {func(s *model.Sale) { s.LimitPerUser = 11 }, "", "", "sale.terms", isWarn},
		"less to pay than the grace": {soon, "", "--pay-grace=11m", "sale.terms", isWarn},
		"59 seconds to pay":          {func(s *model.Sale) { s.PayTimeoutSeconds = 59 }, "", "", "sale.terms", isWarn},
		"to pay until the end":       {func(s *model.Sale) { s.PayTimeoutSeconds = 3600 }, "", "", "sale.terms", isWarn},
		"no units": {
			soon, "UPDATE SHOP.stock SET quota = 0, available = 0 WHERE sale_id = 'SALE'", "", "sale.terms",
			isWarn,
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
		f.wants(t, check, isOK, "--sale="+want[0])
	}
	for _, status := range []model.SaleStatus{model.SaleClosed, model.SaleShadow} {
		f.sale(func(s *model.Sale) { s.Status = status })
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
	first.app.version = "test"
	address := strings.TrimPrefix(first.url, "http://")
	first.eventually("the instance reports", func() bool {
		r := f.preflighted(t)
		return r.level("instances.running") == isOK && r.level("instances.version") == isOK
	})
	alone := f.preflighted(t, "--peers="+address)
	for _, check := range []string{"instances.running", "instances.version", "instances.strategy", "instances.secrets", "peer"} {
		if alone.level(check) != isOK {
			t.Errorf("%s is %q: %+v", check, alone.level(check), alone.Findings)
		}
	}
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	closed := kit.Redis(t)
	closed.Kill()
	other := strings.Repeat("another secret ", 3)
	f.wants(t, "instances.secrets", isFail, "--secret="+other)
	f.wants(t, "instances.secrets", isFail, "--payment-secret="+other)
	f.wants(t, "instances.strategy", isFail, "--strategy=optimistic")
	f.wants(t, "instances.running", isFail, "--instances=2")
	f.wants(t, "peer", isFail, "--peers="+closed.Addr())
	f.wants(t, "peer", isFail, "--peers="+stranger.Listener.Addr().String())
	f.wants(t, "machine.http_addr", isOK, "--http-addr="+address) // which the instance itself has
	f.wants(t, "machine.http_addr", isFail, "--http-addr="+stranger.Listener.Addr().String())

	for body, want := range map[string]level{ // the answers of other peers to /readyz
		`200 {"status":"ready","dependencies":{"database":"ok","redis":"ok"}}`:   isOK,
		`200 {"status":"ready","dependencies":{"database":"ok","redis":"down"}}`: isFail,
		`503 {"status":"not ready","dependencies":{"database":"down"}}`:          isFail,
		`503 {"status":"stopping","dependencies":{}}`:                            isFail,
		`200 <html>`: isFail,
		`200 {}`:     isFail,
	} {
		peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("asked for %s", r.URL)
			}
			if strings.HasPrefix(body, "503") {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, body[4:])
		}))
		if got := lookAtPeer(t.Context(), peer.Listener.Addr().String()); got.Level != want || got.Found == "" {
			t.Errorf("%s: %+v, want %s", body, got, want)
		}
		peer.Close()
	}

	second := f.instance(func(s *config.Settings) { s.Secret = other })
	second.eventually("the second instance reports", func() bool {
		r := f.preflighted(t, "--instances=2")
		return r.level("instances.running") == isOK && r.level("instances.secrets") == isFail && r.level("instances.version") == isWarn
	})
}

// Findings for servers that the tests can't start. Each case changes some values of a server in which all is right.
func TestPreflightJudges(t *testing.T) {
	t.Parallel()
	settings := parsed(t, "preflight", "--database=mysql://u:p@h/db", "--redis=redis://h/0").Settings
	for _, tc := range []struct {
		change func(*repository.Server)
		check  string
		want   level
	}{
		{func(d *repository.Server) { d.Version = "MySQL 8.4.3" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MySQL 8.0.16" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MySQL 8.0.15-log" }, "database.version", isFail},
		{func(d *repository.Server) { d.Version = "MySQL 5.7.44" }, "database.version", isFail},
		{func(d *repository.Server) { d.Version = "MariaDB 10.6.1" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MariaDB 10.5.29" }, "database.version", isFail},
		{func(d *repository.Server) { d.Version = "MariaDB 11.4.2" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MySQL" }, "database.version", isFail},
		{func(*repository.Server) {}, "database.idle", isWarn}, // MySQL can't end idle transactions
		{func(d *repository.Server) { d.Version = "MariaDB 10.11.1" }, "database.idle", isFail},
		{func(d *repository.Server) { d.Applied = 4 }, "database.schema", isFail},
		{func(d *repository.Server) { d.Applied = 2 }, "database.schema", isFail},
		{func(d *repository.Server) { d.RoundTrip = 6 * time.Millisecond }, "database.reach", isWarn},
		{func(d *repository.Server) { d.RoundTrip = 101 * time.Millisecond }, "database.reach", isFail},
		{func(d *repository.Server) { d.Variables = nil }, "database.kind", isFail}, // SQLite for two instances
		{variable("innodb_doublewrite", "OFF"), "database.flush", isWarn},
		{variable("log_bin", "OFF"), "database.binlog", isWarn},
		{variable("innodb_buffer_pool_size", "134217728"), "database.buffer", isWarn},
		{variable("max_user_connections", "60"), "database.connections", isFail},
		{variable("max_user_connections", "64"), "database.connections", isOK},
		{variable("transaction_isolation", "REPEATABLE-READ"), "database.session", isFail},
		{variable("sql_mode", "ONLY_FULL_GROUP_BY"), "database.session", isFail},
		{variable("time_zone", "SYSTEM"), "database.session", isFail},
		{func(*repository.Server) {}, "database.session", isOK},
		{variable("innodb_read_only", "ON"), "database.writable", isFail},
	} {
		d := repository.Server{Version: "MySQL 8.4.3", Applied: 3, Newest: 3, Variables: map[string]string{
			"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "max_connections": "500",
			"max_allowed_packet":      "67108864",
			"innodb_buffer_pool_size": "4294967296", "transaction_isolation": "READ-COMMITTED", "sql_mode": "STRICT_ALL_TABLES",
			"time_zone": "+00:00",
		}}
		tc.change(&d)
		if list := judgeDatabase(d, settings, 2); worst(list, tc.check) != tc.want {
			t.Errorf("%s of %+v is %q, want %q", tc.check, d, worst(list, tc.check), tc.want)
		}
	}
	replica := func(state, lag string) map[string]string {
		return map[string]string{"connected_slaves": "1", "slave0": "ip=1.2.3.4,port=6379,state=" + state + ",offset=1,lag=" + lag}
	}
	for _, tc := range []struct {
		info   map[string]string
		config map[string]string // nil: the configuration is hidden
		check  string
		want   level
	}{
		{nil, usualConfig, "redis.version", ""},
		{map[string]string{"redis_version": "6.0.16"}, usualConfig, "redis.version", isFail},
		{map[string]string{"redis_version": ""}, usualConfig, "redis.version", isFail},
		{map[string]string{"loading": "1"}, usualConfig, "redis.role", isFail},
		{map[string]string{"cluster_enabled": "1"}, usualConfig, "redis.role", isFail},
		{map[string]string{"cluster_enabled": "1", "cluster_state": "fail"}, usualConfig, "redis.role", isFail},
		{map[string]string{"cluster_enabled": "1", "cluster_state": "ok"}, usualConfig, "redis.role", isOK},
		{replica("online", "0"), usualConfig, "redis.role", isOK},
		{replica("online", "9"), usualConfig, "redis.role", isWarn},
		{replica("wait_bgsave", "0"), usualConfig, "redis.role", isWarn},
		{map[string]string{"aof_last_write_status": "err"}, usualConfig, "redis.persistence", isFail},
		{map[string]string{"rdb_last_bgsave_status": "err"}, map[string]string{"save": "3600 1"}, "redis.persistence", isFail},
		{map[string]string{"rdb_last_bgsave_status": "err"}, usualConfig, "redis.persistence", isOK}, // no snapshots any more
		{nil, nil, "redis.config", isWarn},
		{map[string]string{"maxclients": "20"}, nil, "redis.clients", isFail},
		{nil, nil, "redis.clients", ""},
	} {
		r := gate.Server{Addr: "h:6379", Config: tc.config, Info: map[string]string{
			"redis_version": "7.2.4", "role": "master", "maxmemory": "1000000000", "used_memory": "1000000",
			"maxmemory_policy": "noeviction",
			"aof_enabled":      "1", "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok",
		}}
		maps.Copy(r.Info, tc.info)
		if list := judgeRedis(r, settings, 2, 1000); worst(list, tc.check) != tc.want {
			t.Errorf("%s of %v, %v is %q, want %q", tc.check, tc.info, tc.config, worst(list, tc.check), tc.want)
		}
	}
	if list := judgeRedis(gate.Server{RoundTrip: 6 * time.Millisecond}, settings, 2, 1000); worst(list, "redis.reach") != isWarn {
		t.Errorf("a slow Redis: %+v", list)
	}
	for _, tc := range []struct {
		found finding
		want  level
	}{
		{judgeRedisClock("h", -400*time.Millisecond), isOK},
		{judgeRedisClock("h", -600*time.Millisecond), isWarn},
		{judgeRedisClock("h", 6*time.Second), isFail},
		{judgeMachineClock(-4 * time.Second), isOK},
		{judgeMachineClock(-6 * time.Second), isWarn},
	} {
		if tc.found.Level != tc.want || !strings.HasSuffix(tc.found.Check, ".clock") {
			t.Errorf("%+v, want %s", tc.found, tc.want)
		}
	}
	closed := judgeInstances(map[string]model.Instance{"a": {Version: "v", Strategy: "hybrid"}}, 1, "v", "hybrid", "")
	differ := judgeInstances(map[string]model.Instance{"a": {Version: "v"}, "b": {Version: "w"}}, 2, "v", "", "")
	if worst(closed, "instances.gate") != isFail || worst(differ, "instances.version") != isWarn {
		t.Errorf("an instance without its gate: %+v; two versions: %+v", closed, differ)
	}
}

var usualConfig = map[string]string{"appendfsync": "everysec", "maxclients": "10000"}

// variable changes a variable of a database.
func variable(name, value string) func(*repository.Server) {
	return func(d *repository.Server) { d.Variables[name] = value }
}

// Two instances have the same mark exactly if their secrets are the same.
func TestMarks(t *testing.T) {
	key, secret, payment := []byte("key"), []byte("secret"), []byte("payment")
	mark := markOf(key, secret, payment)
	if mark != markOf(key, secret, payment) || len(mark) != 16 {
		t.Errorf("the mark %q", mark)
	}
	for _, other := range []string{
		markOf([]byte("other"), secret, payment), markOf(key, payment, payment), markOf(key, secret, secret),
		markOf(key, payment, secret),
		markOf(key, []byte("secretp"), []byte("ayment")),
	} {
		if other == mark {
			t.Error("other secrets have the same mark")
		}
	}
}

func TestValidatePreflight(t *testing.T) {
	good := config.Preflight{Buyers: 1, Connections: 1, RehearsalBuyers: 5}
	noError(t, validatePreflight(good))
	for _, tc := range []struct {
		change func(*config.Preflight)
		says   string
	}{
		{func(p *config.Preflight) { p.Instances = -1 }, "--instances"},
		{func(p *config.Preflight) { p.Buyers = 0 }, "--buyers"},
		{func(p *config.Preflight) { p.Connections = 0 }, "--connections"},
		{func(p *config.Preflight) { p.RehearsalBuyers = 4 }, "--rehearsal-buyers"},
		{func(p *config.Preflight) { p.RehearsalBuyers = 100_001 }, "--rehearsal-buyers"},
		{func(p *config.Preflight) { p.Peers = []string{"one"} }, "--peers"},
		{func(p *config.Preflight) { p.Peers = []string{"http://one:80"} }, "--peers"},
		{func(p *config.Preflight) { p.Peers = []string{":80"} }, "--peers"},
	} {
		p := good
		tc.change(&p)
		if err := validatePreflight(p); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, want %s", p, err, tc.says)
		}
	}
}

// Each check is a line with its level, what was found, and what to do.
func TestPreflightInText(t *testing.T) {
	p := preflight{findings: []finding{good("a.b", "%d units", 3), isWarn.of("c", "mend it", "broken")}}
	p.add(isFail.of("d", "end it", "dead"))
	var out bytes.Buffer
	noError(t, p.printText(&out))
	want := "ok    a.b: 3 units\nwarn  c: broken  do: mend it\nfail  d: dead  do: end it\nchecks: 3, warnings: 1, failed: 1\n"
	if out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

// A command that is stopped gives no verdict.
func TestPreflightIsStopped(t *testing.T) {
	hangs, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	noError(t, err)
	defer func() { _ = hangs.Close() }()
	cmd := parsed(t, "preflight", "--database=mysql://u:p@"+hangs.Addr().String()+"/db",
		"--redis=redis://"+hangs.Addr().String()+"/0")
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- Execute(ctx, cmd, "test", &out, io.Discard) }()
	conn, err := hangs.Accept() // the command waits for an answer
	noError(t, err)
	defer func() { _ = conn.Close() }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v, printed %q", err, &out)
	}
}
