package app

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

	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
)

// paymentSecret is another one than testSecret, which a preflight wants.
const paymentSecret = "a secret of the tests for payments alone"

// report is what the command prints.
type report struct {
	OK        bool       `json:"ok"`
	Version   string     `json:"version"`
	Findings  []finding  `json:"findings"`
	Rehearsal *rehearsal `json:"rehearsal"`
}

// level is the gravest of a check's findings, empty if it was not made.
func (r report) level(check string) level { return gravest(r.Findings, check) }

func gravest(list []finding, check string) (worst level) {
	for _, f := range list {
		if f.Check == check && (worst == "" || worst == isOK || f.Level == isFail) {
			worst = f.Level
		}
	}
	return worst
}

// parsed reads arguments as the command line does.
func parsed(t testing.TB, args ...string) config.Command {
	t.Helper()
	cmd, err := config.Parse(args, func(string) string { return "" }, io.Discard, io.Discard)
	if err == nil {
		err = Validate(&cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// preflighted runs the command. It must fail exactly if a check has failed, and show no secret.
func preflighted(t testing.TB, args ...string) report {
	t.Helper()
	cmd := parsed(t, append([]string{
		"preflight", "--json", "--http-addr=127.0.0.1:0", "--ops-addr=off", "--public-url=https://shop.example",
		"--ip-rate=0", "--secret=" + testSecret, "--payment-secret=" + paymentSecret, "--admin-password=" + adminPassword, "--connections=100",
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
			t.Errorf("says too little, or in more than one line: %+v", f)
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
	if err == nil {
		err = db.MigrateUp(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return &fit{
		t: t, args: []string{"--database=" + database, "--redis=" + server.URL(), "--buyers=100000"}, name: path.Base(database),
		root: mariadb.Root(t), db: db, server: server, redis: client,
	}
}

// instance runs an engine on the fit's stores.
func (f *fit) instance(changes ...func(*config.Settings)) *server {
	f.t.Helper()
	cmd := parsed(f.t, append([]string{"preflight"}, f.args...)...)
	return start(f.t, append([]func(*config.Settings){func(s *config.Settings) {
		s.Database, s.Redis, s.PaymentSecret = cmd.Settings.Database, cmd.Settings.Redis, paymentSecret
	}}, changes...)...)
}

// sale writes a sale of ten units as an operator would make it, opening in an hour, and installs its gate.
func (f *fit) sale(change func(*model.Sale)) string {
	f.t.Helper()
	now := time.Now()
	s := model.Sale{
		ID: model.NewSaleID(), Title: "Teapot", Currency: "CNY", LimitPerUser: 2, PayTimeoutSeconds: 600,
		StartsAt: now.Add(time.Hour), EndsAt: now.Add(2 * time.Hour),
	}
	s.Code = s.ID[:8]
	change(&s)
	if err := f.db.CreateSale(f.t.Context(), s, 10, "op"); err != nil {
		f.t.Fatal(err)
	}
	catalog := service.NewCatalog(f.db, time.Now)
	gates := service.NewGates(f.db, gate.New(f.redis, "test"), catalog, newLog(&config.Settings{LogLevel: "error"}, f.t.Output()))
	if err := gates.Preheat(f.t.Context(), s.ID); err != nil {
		f.t.Fatal(err)
	}
	return s.ID
}

// do runs statements and commands: what begins with "redis " goes there.
func (f *fit) do(lines ...string) {
	f.t.Helper()
	for _, line := range lines {
		var err error
		if command, ok := strings.CutPrefix(line, "redis "); ok {
			words := []any{}
			for word := range strings.FieldsSeq(command) {
				words = append(words, strings.Trim(word, `"`))
			}
			err = f.redis.Do(f.t.Context(), words...).Err()
		} else {
			_, err = f.root.ExecContext(f.t.Context(), line)
		}
		if err != nil {
			f.t.Fatalf("%s: %v", line, err)
		}
	}
}

// timed says that a finding warns of a round trip or of clocks, which a busy machine is enough for.
func (f finding) timed() bool {
	return f.Level != isFail && (strings.HasSuffix(f.Check, ".reach") || strings.HasSuffix(f.Check, ".clock"))
}

// Every setting of the stores that is wrong for a sale turns its own line, and none does when all are right.
func TestPreflightOfStores(t *testing.T) {
	t.Parallel()
	f := newFitOn(t, kit.MariaDB(t, "--log-bin", "--sync-binlog=1", "--innodb-buffer-pool-size=1G"))
	f.sale(func(*model.Sale) {})
	good := preflighted(t, f.args...)
	for _, finding := range good.Findings {
		if finding.Level != isOK && finding.Check != "instances.running" && !finding.timed() { // none runs here
			t.Errorf("all is right, and yet %+v", finding)
		}
	}
	for name, tc := range map[string]struct {
		break_, mend []string
		args         []string
		check        string
		want         level
	}{
		"commits are flushed each second": {
			[]string{"SET GLOBAL innodb_flush_log_at_trx_commit=0"},
			[]string{"SET GLOBAL innodb_flush_log_at_trx_commit=1"},
			nil, "database.flush", isFail,
		},
		"commits are left to the kernel": {
			[]string{"SET GLOBAL innodb_flush_log_at_trx_commit=2"},
			[]string{"SET GLOBAL innodb_flush_log_at_trx_commit=1"},
			nil, "database.flush", isWarn,
		},
		"the binary log is left to the kernel": {
			[]string{"SET GLOBAL sync_binlog=0"}, []string{"SET GLOBAL sync_binlog=1"}, nil, "database.binlog", isWarn,
		},
		"fewer connections than the pools have": {
			[]string{"SET GLOBAL max_connections=60"},
			[]string{"SET GLOBAL max_connections=500"},
			[]string{"--instances=2"},
			"database.connections", isFail,
		},
		"more instances than the database can serve": {nil, nil, []string{"--instances=16"}, "database.connections", isFail},
		"small packets": {
			[]string{"SET GLOBAL max_allowed_packet=65536"}, []string{"SET GLOBAL max_allowed_packet=16777216"}, nil, "database.packet", isFail,
		},
		"a database that is read-only": {
			[]string{"SET GLOBAL read_only=1"}, []string{"SET GLOBAL read_only=0"}, nil, "database.writable", isFail,
		},
		"gates may be evicted": {
			[]string{"redis CONFIG SET maxmemory-policy allkeys-lru"},
			[]string{"redis CONFIG SET maxmemory-policy noeviction"},
			nil, "redis.policy", isFail,
		},
		"gates may be evicted, since they expire": {
			[]string{"redis CONFIG SET maxmemory-policy volatile-ttl"},
			[]string{"redis CONFIG SET maxmemory-policy noeviction"},
			nil, "redis.policy", isFail,
		},
		"no bound of Redis's memory": {
			[]string{"redis CONFIG SET maxmemory 0"}, []string{"redis CONFIG SET maxmemory 256mb"}, nil, "redis.memory", isWarn,
		},
		"more buyers than Redis has room for": {nil, nil, []string{"--buyers=2000000"}, "redis.memory", isFail},
		"nothing on Redis's disk":             {[]string{"redis CONFIG SET appendonly no"}, []string{"redis CONFIG SET appendonly yes"}, nil, "redis.persistence", isOK},
		"nothing on Redis's disk, and nobody waits": {
			[]string{"redis CONFIG SET appendonly no"},
			[]string{"redis CONFIG SET appendonly yes"},
			[]string{"--ack=queued"},
			"redis.persistence", isWarn,
		},
		"each command waits for the disk": {
			[]string{"redis CONFIG SET appendfsync always"}, []string{"redis CONFIG SET appendfsync everysec"}, nil, "redis.persistence", isWarn,
		},
		"the disk is left to the kernel": {
			[]string{"redis CONFIG SET appendfsync no"}, []string{"redis CONFIG SET appendfsync everysec"}, nil, "redis.persistence", isWarn,
		},
		"too few replicas to write": {
			[]string{"redis CONFIG SET min-replicas-to-write 1"}, []string{"redis CONFIG SET min-replicas-to-write 0"}, nil, "redis.role", isFail,
		},
		"a replica for a primary": {
			[]string{"redis REPLICAOF 127.0.0.1 1"}, []string{"redis REPLICAOF NO ONE"}, nil, "redis.role", isFail,
		},
		"fewer clients than the pools have": {
			[]string{"redis CONFIG SET maxclients 70"}, []string{"redis CONFIG SET maxclients 10000"}, nil, "redis.clients", isFail,
		},
		"instances that don't run":      {nil, nil, []string{"--instances=1"}, "instances.running", isFail},
		"more files than are allowed":   {nil, nil, []string{"--connections=1000000"}, "machine.files", isFail},
		"a secret that can be guessed":  {nil, nil, []string{"--secret=" + strings.Repeat("x", 40)}, "settings.secret", isFail},
		"a secret that is too short":    {nil, nil, []string{"--secret=short"}, "settings", isFail},
		"one secret for both":           {nil, nil, []string{"--payment-secret=" + testSecret}, "settings.secret", isWarn},
		"links to nowhere":              {nil, nil, []string{"--public-url="}, "settings.public_url", isWarn},
		"all buyers behind one address": {nil, nil, []string{"--ip-rate=200"}, "settings.trusted_proxies", isWarn},
		"figures for everybody":         {nil, nil, []string{"--ops-addr=0.0.0.0:0"}, "settings.ops_addr", isWarn},
		"a strategy that oversells":     {nil, nil, []string{"--strategy=naive", "--allow-oversell"}, "settings.strategy", isFail},
		"a strategy without a fallback": {nil, nil, []string{"--strategy=redis"}, "settings.strategy", isWarn},
		"an address of somebody else's": {nil, nil, []string{"--http-addr=192.0.2.1:80"}, "machine.http_addr", isFail},
		"a sale that is not there":      {nil, nil, []string{"--sale=NOSUCHSALEATALL1"}, "sale", isFail},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want == good.level(tc.check) && tc.want != isOK {
				t.Fatalf("%s is %s also when all is right", tc.check, tc.want)
			}
			f.do(tc.break_...)
			r := preflighted(t, append(slices.Clone(f.args), tc.args...)...)
			f.do(tc.mend...)
			if got := r.level(tc.check); got != tc.want {
				t.Errorf("%s is %q, want %q, among %+v", tc.check, got, tc.want, r.Findings)
			}
		})
	}
	same := func(a, b finding) bool {
		return a.Check == b.Check && (a.Level == b.Level || a.timed() && b.timed())
	}
	if again := preflighted(t, f.args...); !slices.EqualFunc(good.Findings, again.Findings, same) {
		t.Errorf("something was changed: %+v, and before %+v", again.Findings, good.Findings)
	}
}

// What is asked of one store is asked also when the other one is away.
func TestPreflightWithoutAStore(t *testing.T) {
	t.Parallel()
	database := kit.SharedMariaDB(t).NewDatabase(t)
	away := kit.Redis(t)
	away.Kill()
	r := preflighted(t, "--database="+database, "--redis="+away.URL())
	if r.level("redis.reach") != isFail || r.level("database.reach") == isFail || r.level("database.schema") != isFail {
		t.Errorf("Redis is away and the schema is missing: %+v", r.Findings)
	}
	here := kit.Redis(t)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = away.Addr() // where nobody listens any more
	r = preflighted(t, "--database="+u.String(), "--redis="+here.URL())
	if r.level("database.reach") != isFail || r.level("redis.reach") == isFail || r.level("sale.window") != "" {
		t.Errorf("the database is away: %+v", r.Findings)
	}
}

// The broker of the queue is asked, whichever it is.
func TestPreflightOfQueues(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	away := kit.Redis(t)
	away.Kill()
	f := newFit(t)
	for name, tc := range map[string]struct {
		args []string
		want level
	}{
		"Redis's stream":   {nil, isOK},
		"Redis's lists":    {[]string{"--queue=redis-list"}, isOK},
		"Kafka":            {[]string{"--queue=kafka", "--queue-url=" + cluster.ListenAddrs()[0]}, isOK},
		"Kafka is away":    {[]string{"--queue=kafka", "--queue-url=" + away.Addr()}, isFail},
		"RabbitMQ is away": {[]string{"--queue=rabbitmq", "--queue-url=amqp://guest:guest@" + away.Addr() + "/"}, isFail},
		"no broker named":  {[]string{"--queue=rabbitmq"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := preflighted(t, append(slices.Clone(f.args), tc.args...)...)
			if r.level("queue.reach") != tc.want || tc.want == "" && r.level("settings") != isFail {
				t.Errorf("want %q, among %+v", tc.want, r.Findings)
			}
		})
	}
}

// Replicas that pages would not be shown from turn a line, and stop nobody.
func TestPreflightOfReplicas(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	alone, lost, gone := kit.Redis(t), kit.Redis(t, "--replicaof", "127.0.0.1 1"), kit.Redis(t)
	gone.Kill()
	look := func(server *kit.RedisServer) report {
		return preflighted(t, append(slices.Clone(f.args), "--redis-replicas="+server.URL())...)
	}
	if r := look(kit.ReplicaOf(t, f.server)); r.level("replica") != isOK {
		t.Errorf("a replica that is well: %+v", r.Findings)
	}
	for name, server := range map[string]*kit.RedisServer{"a primary": alone, "one that has lost its primary": lost, "one that is gone": gone} {
		if r := look(server); r.level("replica") != isWarn || !r.OK {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// Sales that buyers would not get, or would get on odd terms, turn a line.
func TestPreflightOfSales(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	soon := func(*model.Sale) {}
	for name, tc := range map[string]struct {
		sale  func(*model.Sale)
		then  string // is done to the sale SALE in the database SHOP
		args  []string
		check string
		want  level
	}{
		"one to come":      {soon, "", nil, "sale.window", isOK},
		"its gate":         {soon, "", nil, "sale.gate", isOK},
		"its books":        {soon, "", nil, "sale.books", isOK},
		"its terms":        {soon, "", nil, "sale.terms", isOK},
		"one that is open": {func(s *model.Sale) { s.StartsAt = time.Now().Add(-time.Minute) }, "", nil, "sale.window", isOK},
		"one that ended": {func(s *model.Sale) {
			s.StartsAt, s.EndsAt = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}, "", nil, "sale.window", isFail},
		"a closed one":              {func(s *model.Sale) { s.Status = model.SaleClosed }, "", nil, "sale.window", isFail},
		"a paused one":              {func(s *model.Sale) { s.Status = model.SalePaused }, "", nil, "sale.window", isWarn},
		"no gate":                   {soon, `redis DEL fs:{SALE}:gate`, nil, "sale.gate", isFail},
		"a closed gate":             {soon, `redis HSET fs:{SALE}:gate open 0`, nil, "sale.gate", isFail},
		"a gate of another Redis":   {soon, `redis HSET fs:{SALE}:gate server another`, nil, "sale.gate", isFail},
		"a gate of an older epoch":  {soon, `UPDATE SHOP.stock SET epoch = epoch + 1 WHERE sale_id = 'SALE'`, nil, "sale.gate", isFail},
		"no gate, and none wanted":  {soon, `redis DEL fs:{SALE}:gate`, []string{"--strategy=optimistic"}, "sale.gate", ""},
		"a gate that has too much":  {soon, `redis HINCRBY fs:{SALE}:gate left 1`, nil, "sale.books", isFail},
		"a unit that nobody has":    {soon, `UPDATE SHOP.stock SET available = 9, held = 1 WHERE sale_id = 'SALE'`, nil, "sale.books", isFail},
		"a limit above the quota":   {func(s *model.Sale) { s.LimitPerUser = 11 }, "", nil, "sale.terms", isWarn},
		"less to pay than grace":    {soon, "", []string{"--pay-grace=11m"}, "sale.terms", isWarn},
		"hardly time to pay":        {func(s *model.Sale) { s.PayTimeoutSeconds = 59 }, "", nil, "sale.terms", isWarn},
		"units come back too late":  {func(s *model.Sale) { s.PayTimeoutSeconds = 3600 }, "", nil, "sale.terms", isWarn},
		"nothing left to be bought": {soon, `UPDATE SHOP.stock SET quota = 0, available = 0 WHERE sale_id = 'SALE'`, nil, "sale.terms", isWarn},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.sale(tc.sale)
			if tc.then != "" {
				f.do(strings.NewReplacer("SALE", id, "SHOP", f.name).Replace(tc.then))
			}
			r := preflighted(t, slices.Concat(f.args, tc.args, []string{"--sale=" + id})...)
			if got := r.level(tc.check); got != tc.want {
				t.Errorf("%s is %q, want %q, among %+v", tc.check, got, tc.want, r.Findings)
			}
		})
	}
}

// Without a name all sales are looked at that buyers may still come for.
func TestPreflightOfAllSales(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	want := []string{f.sale(func(*model.Sale) {}), f.sale(func(s *model.Sale) { s.Status = model.SalePaused })}
	for _, status := range []model.SaleStatus{model.SaleClosed, model.SaleShadow} {
		f.sale(func(s *model.Sale) { s.Status = status })
	}
	f.sale(func(s *model.Sale) { s.StartsAt, s.EndsAt = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute) })
	var got []string
	for _, finding := range preflighted(t, f.args...).Findings {
		if finding.Check == "sale.window" {
			got = append(got, finding.Found[:model.IDLength])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("looked at %v, want %v", got, want)
	}
}

// The instances that run are held against each other, and against what the command was told.
func TestPreflightOfInstances(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	first := f.instance()
	first.app.version = "test"
	address := strings.TrimPrefix(first.url, "http://")
	first.eventually("the instance reports", func() bool {
		r := preflighted(t, f.args...)
		return r.level("instances.running") == isOK && r.level("instances.version") == isOK
	})
	alone := preflighted(t, append(slices.Clone(f.args), "--peers="+address)...)
	for _, check := range []string{"instances.running", "instances.version", "instances.strategy", "instances.secrets", "peer"} {
		if alone.level(check) != isOK {
			t.Errorf("%s is %q: %+v", check, alone.level(check), alone.Findings)
		}
	}
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	closed := kit.Redis(t)
	closed.Kill()
	for name, tc := range map[string]struct {
		arg, check string
		want       level
	}{
		"another secret":             {"--secret=" + strings.Repeat("another secret ", 3), "instances.secrets", isFail},
		"another one for payments":   {"--payment-secret=" + strings.Repeat("another secret ", 3), "instances.secrets", isFail},
		"another strategy":           {"--strategy=optimistic", "instances.strategy", isFail},
		"one that is missing":        {"--instances=2", "instances.running", isFail},
		"a peer that is not there":   {"--peers=" + closed.Addr(), "peer", isFail},
		"a peer that is no instance": {"--peers=" + stranger.Listener.Addr().String(), "peer", isFail},
		"its port":                   {"--http-addr=" + address, "machine.http_addr", isOK},
		"a port of another's":        {"--http-addr=" + stranger.Listener.Addr().String(), "machine.http_addr", isFail},
	} {
		t.Run(name, func(t *testing.T) {
			r := preflighted(t, append(slices.Clone(f.args), tc.arg)...)
			if got := r.level(tc.check); got != tc.want {
				t.Errorf("%s is %q, want %q, among %+v", tc.check, got, tc.want, r.Findings)
			}
		})
	}
	t.Run("two that differ", func(t *testing.T) {
		second := f.instance(func(s *config.Settings) { s.Secret = strings.Repeat("another secret ", 3) })
		second.in(t).eventually("it reports", func() bool {
			r := preflighted(t, append(slices.Clone(f.args), "--instances=2")...)
			return r.level("instances.running") == isOK && r.level("instances.secrets") == isFail && r.level("instances.version") == isWarn
		})
	})
}

// A peer that is not ready, or ready without Redis, is told from one that is well.
func TestPreflightOfPeers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
		want   level
	}{
		"well":          {200, `{"status":"ready","dependencies":{"database":"ok","redis":"ok"}}`, isOK},
		"without Redis": {200, `{"status":"ready","dependencies":{"database":"ok","redis":"down"}}`, isFail},
		"not ready":     {503, `{"status":"not ready","dependencies":{"database":"down"}}`, isFail},
		"stopping":      {503, `{"status":"stopping","dependencies":{}}`, isFail},
		"no instance":   {200, `<html>`, isFail},
		"other JSON":    {200, `{}`, isFail},
	} {
		t.Run(name, func(t *testing.T) {
			peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					t.Errorf("asked for %s", r.URL)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer peer.Close()
			if got := lookAtPeer(t.Context(), peer.Listener.Addr().String()); got.Level != tc.want || got.Found == "" {
				t.Errorf("%+v, want %s", got, tc.want)
			}
		})
	}
}

// What no server at hand can be made to say.
func TestPreflightJudges(t *testing.T) {
	t.Parallel()
	cmd := parsed(t, "preflight", "--database=mysql://u:p@h/db", "--redis=redis://h/0")
	database := func(change func(*repository.Server)) func() []finding {
		return func() []finding {
			d := repository.Server{Version: "MySQL 8.4.3", Applied: 3, Newest: 3, Variables: map[string]string{
				"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "max_connections": "500", "max_allowed_packet": "67108864",
				"innodb_buffer_pool_size": "4294967296", "transaction_isolation": "READ-COMMITTED", "sql_mode": "STRICT_ALL_TABLES", "time_zone": "+00:00",
			}}
			change(&d)
			return judgeDatabase(d, cmd.Settings, 2)
		}
	}
	variable := func(name, value string) func() []finding {
		return database(func(d *repository.Server) { d.Variables[name] = value })
	}
	redisSays := func(change func(*gate.Server)) func() []finding {
		return func() []finding {
			r := gate.Server{Addr: "h:6379", Info: map[string]string{
				"redis_version": "7.2.4", "role": "master", "maxmemory": "1000000000", "used_memory": "1000000", "maxmemory_policy": "noeviction",
				"aof_enabled": "1", "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok",
			}, Config: map[string]string{"appendfsync": "everysec", "maxclients": "10000"}}
			change(&r)
			return judgeRedis(r, cmd.Settings, 2, 1000)
		}
	}
	info := func(name, value string) func() []finding {
		return redisSays(func(r *gate.Server) { r.Info[name] = value })
	}
	one := func(f finding) func() []finding { return func() []finding { return []finding{f} } }
	for name, tc := range map[string]struct {
		judge func() []finding
		check string
		want  level
	}{
		"MySQL 8.4":              {database(func(*repository.Server) {}), "database.version", ""},
		"MySQL 8.0.16":           {database(func(d *repository.Server) { d.Version = "MySQL 8.0.16" }), "database.version", ""},
		"MySQL 8.0.15":           {database(func(d *repository.Server) { d.Version = "MySQL 8.0.15-log" }), "database.version", isFail},
		"MySQL 5.7":              {database(func(d *repository.Server) { d.Version = "MySQL 5.7.44" }), "database.version", isFail},
		"MariaDB 10.6":           {database(func(d *repository.Server) { d.Version = "MariaDB 10.6.1" }), "database.version", ""},
		"MariaDB 10.5":           {database(func(d *repository.Server) { d.Version = "MariaDB 10.5.29" }), "database.version", isFail},
		"MariaDB 11":             {database(func(d *repository.Server) { d.Version = "MariaDB 11.4.2" }), "database.version", ""},
		"no version":             {database(func(d *repository.Server) { d.Version = "MySQL" }), "database.version", isFail},
		"MySQL that can't idle":  {database(func(*repository.Server) {}), "database.idle", isWarn},
		"MariaDB that can't":     {database(func(d *repository.Server) { d.Version = "MariaDB 10.11.1" }), "database.idle", isFail},
		"a newer schema":         {database(func(d *repository.Server) { d.Applied = 4 }), "database.schema", isFail},
		"an older schema":        {database(func(d *repository.Server) { d.Applied = 2 }), "database.schema", isFail},
		"a slow database":        {database(func(d *repository.Server) { d.RoundTrip = 6 * time.Millisecond }), "database.reach", isWarn},
		"a far database":         {database(func(d *repository.Server) { d.RoundTrip = 101 * time.Millisecond }), "database.reach", isFail},
		"SQLite for two":         {database(func(d *repository.Server) { d.Variables = nil }), "database.kind", isFail},
		"torn pages":             {variable("innodb_doublewrite", "OFF"), "database.flush", isWarn},
		"no binary log":          {variable("log_bin", "OFF"), "database.binlog", isWarn},
		"a small buffer pool":    {variable("innodb_buffer_pool_size", "134217728"), "database.buffer", isWarn},
		"a user with few":        {variable("max_user_connections", "60"), "database.connections", isFail},
		"a user with enough":     {variable("max_user_connections", "64"), "database.connections", isOK},
		"a lost isolation":       {variable("transaction_isolation", "REPEATABLE-READ"), "database.session", isFail},
		"a lost sql_mode":        {variable("sql_mode", "ONLY_FULL_GROUP_BY"), "database.session", isFail},
		"a lost time zone":       {variable("time_zone", "SYSTEM"), "database.session", isFail},
		"a session of ours":      {database(func(*repository.Server) {}), "database.session", isOK},
		"InnoDB is read-only":    {variable("innodb_read_only", "ON"), "database.writable", isFail},
		"Redis 7.2":              {redisSays(func(*gate.Server) {}), "redis.version", ""},
		"Redis 6.0":              {info("redis_version", "6.0.16"), "redis.version", isFail},
		"Redis without a number": {info("redis_version", ""), "redis.version", isFail},
		"Redis that loads":       {info("loading", "1"), "redis.role", isFail},
		"a node by itself":       {info("cluster_enabled", "1"), "redis.role", isFail},
		"a broken Cluster": {redisSays(func(r *gate.Server) {
			r.Info["cluster_enabled"], r.Info["cluster_state"] = "1", "fail"
		}), "redis.role", isFail},
		"a whole Cluster": {redisSays(func(r *gate.Server) {
			r.Info["cluster_enabled"], r.Info["cluster_state"] = "1", "ok"
		}), "redis.role", isOK},
		"a good replica": {redisSays(func(r *gate.Server) {
			r.Info["connected_slaves"], r.Info["slave0"] = "1", "ip=1.2.3.4,port=6379,state=online,offset=1,lag=0"
		}), "redis.role", isOK},
		"a lagging replica": {redisSays(func(r *gate.Server) {
			r.Info["connected_slaves"], r.Info["slave0"] = "1", "ip=1.2.3.4,port=6379,state=online,offset=1,lag=9"
		}), "redis.role", isWarn},
		"a replica on its way": {redisSays(func(r *gate.Server) {
			r.Info["connected_slaves"], r.Info["slave0"] = "1", "ip=1.2.3.4,port=6379,state=wait_bgsave,offset=0,lag=0"
		}), "redis.role", isWarn},
		"a disk that was full":   {info("aof_last_write_status", "err"), "redis.persistence", isFail},
		"a snapshot that failed": {redisSays(func(r *gate.Server) { r.Info["rdb_last_bgsave_status"], r.Config["save"] = "err", "3600 1" }), "redis.persistence", isFail},
		"a snapshot of old":      {info("rdb_last_bgsave_status", "err"), "redis.persistence", isOK},
		"a configuration hidden": {redisSays(func(r *gate.Server) { r.Config = nil }), "redis.config", isWarn},
		"clients by INFO alone":  {redisSays(func(r *gate.Server) { r.Config, r.Info["maxclients"] = nil, "20" }), "redis.clients", isFail},
		"no word of clients":     {redisSays(func(r *gate.Server) { r.Config = nil }), "redis.clients", ""},
		"a slow Redis":           {redisSays(func(r *gate.Server) { r.RoundTrip = 6 * time.Millisecond }), "redis.reach", isWarn},
		"clocks that agree":      {one(judgeRedisClock("h", -400*time.Millisecond)), "redis.clock", isOK},
		"clocks that differ":     {one(judgeRedisClock("h", -600*time.Millisecond)), "redis.clock", isWarn},
		"clocks that are wrong":  {one(judgeRedisClock("h", 6*time.Second)), "redis.clock", isFail},
		"a machine's clock":      {one(judgeMachineClock(-4 * time.Second)), "machine.clock", isOK},
		"a wrong machine's":      {one(judgeMachineClock(-6 * time.Second)), "machine.clock", isWarn},
		"an open circuit": {func() []finding {
			return judgeInstances(map[string]model.Instance{"a": {Version: "v", Strategy: "hybrid"}}, 1, "v", "hybrid", "")
		}, "instances.gate", isFail},
		"two versions": {func() []finding {
			return judgeInstances(map[string]model.Instance{"a": {Version: "v"}, "b": {Version: "w"}}, 2, "v", "", "")
		}, "instances.version", isWarn},
	} {
		t.Run(name, func(t *testing.T) {
			if list := tc.judge(); gravest(list, tc.check) != tc.want {
				t.Errorf("%s is %q, want %q, in %+v", tc.check, gravest(list, tc.check), tc.want, list)
			}
		})
	}
}

// Marks are alike if the secrets are, and say nothing of them to who has no key.
func TestMarks(t *testing.T) {
	key, secret, payment := []byte("key"), []byte("secret"), []byte("payment")
	mark := markOf(key, secret, payment)
	if mark != markOf(key, secret, payment) || len(mark) != 16 {
		t.Errorf("%q", mark)
	}
	for name, other := range map[string]string{
		"another key": markOf([]byte("other"), secret, payment), "another secret": markOf(key, payment, payment),
		"another one for payments": markOf(key, secret, secret), "both the other way round": markOf(key, payment, secret),
		"moved by a letter": markOf(key, []byte("secretp"), []byte("ayment")),
	} {
		if other == mark {
			t.Errorf("%s: the same mark", name)
		}
	}
}

func TestValidatePreflight(t *testing.T) {
	good := config.Preflight{Buyers: 1, Connections: 1, RehearsalBuyers: 5}
	if err := validatePreflight(good); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*config.Preflight)
		says   string
	}{
		"instances":        {func(p *config.Preflight) { p.Instances = -1 }, "--instances"},
		"no buyers":        {func(p *config.Preflight) { p.Buyers = 0 }, "--buyers"},
		"no connections":   {func(p *config.Preflight) { p.Connections = 0 }, "--connections"},
		"a lonely buyer":   {func(p *config.Preflight) { p.RehearsalBuyers = 4 }, "--rehearsal-buyers"},
		"too many":         {func(p *config.Preflight) { p.RehearsalBuyers = 100_001 }, "--rehearsal-buyers"},
		"a peer by name":   {func(p *config.Preflight) { p.Peers = []string{"one"} }, "--peers"},
		"a peer by URL":    {func(p *config.Preflight) { p.Peers = []string{"http://one:80"} }, "--peers"},
		"a peer of nobody": {func(p *config.Preflight) { p.Peers = []string{":80"} }, "--peers"},
	} {
		t.Run(name, func(t *testing.T) {
			p := good
			tc.change(&p)
			if err := validatePreflight(p); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %s", err, tc.says)
			}
		})
	}
}

// One line a check: its level, what was found, and what to do.
func TestPreflightInText(t *testing.T) {
	p := preflight{findings: []finding{good("a.b", "%d units", 3), isWarn.of("c", "mend it", "broken")}}
	var out bytes.Buffer
	if err := p.printText(&out); err != nil {
		t.Fatal(err)
	}
	want := "ok    a.b: 3 units\nwarn  c: broken  do: mend it\nchecks: 2, warnings: 1, failed: 0\n"
	if out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
	p.add(isFail.of("d", "end it", "dead"))
	out.Reset()
	if err := p.printText(&out); err != nil || !strings.Contains(out.String(), "\nfail  d: dead  do: end it\n") {
		t.Errorf("%v, %q", err, &out)
	}
}

// A command that is told to stop gives no verdict.
func TestPreflightIsStopped(t *testing.T) {
	hangs, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hangs.Close() }()
	cmd := parsed(t, "preflight", "--database=mysql://u:p@"+hangs.Addr().String()+"/db", "--redis=redis://"+hangs.Addr().String()+"/0")
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- Execute(ctx, cmd, "test", &out, io.Discard) }()
	conn, err := hangs.Accept() // it is being asked
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v, printed %q", err, &out)
	}
}
