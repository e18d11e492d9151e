package preflight

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/repository"
)

// worst returns the worst level of a check's findings, empty if the check was not made.
func worst(list []Finding, check string) (worst Level) {
	for _, f := range list {
		if f.Check == check && (worst == "" || worst == OK || f.Level == Fail) {
			worst = f.Level
		}
	}
	return worst
}

// replicated makes a server a primary with a replica that is in the address, too. The names of the variables begin alike.
func replicated(prefix, enabled, wait string) func(*repository.Server) {
	return func(d *repository.Server) {
		d.Servers = []repository.ServerState{{Host: "a:3306"}, {Host: "b:3306", Err: errors.New("read-only"), ReadOnly: true}}
		d.Variables[prefix+"_enabled"], d.Variables[prefix+"_timeout"] = enabled, wait
	}
}

// Findings for servers that the tests can't start. Each case changes some values of a server in which all is right.
func TestPreflightJudges(t *testing.T) {
	t.Parallel()
	cmd, err := config.Parse([]string{"preflight", "--database=mysql://u:p@h/db", "--redis=redis://h/0"}, func(string) string { return "" }, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	settings := cmd.Settings
	for _, tc := range []struct {
		change func(*repository.Server)
		check  string
		want   Level
	}{
		{func(d *repository.Server) { d.Version = "MySQL 8.4.3" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MySQL 8.0.16" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MySQL 8.0.15-log" }, "database.version", Fail},
		{func(d *repository.Server) { d.Version = "MySQL 5.7.44" }, "database.version", Fail},
		{func(d *repository.Server) { d.Version = "MariaDB 10.6.1" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MariaDB 10.5.29" }, "database.version", Fail},
		{func(d *repository.Server) { d.Version = "MariaDB 11.4.2" }, "database.version", ""},
		{func(d *repository.Server) { d.Version = "MySQL" }, "database.version", Fail},
		{func(*repository.Server) {}, "database.idle", Warn}, // MySQL can't end idle transactions
		{func(d *repository.Server) { d.Version = "MariaDB 10.11.1" }, "database.idle", Fail},
		{func(d *repository.Server) { d.Applied = 4 }, "database.schema", Fail},
		{func(d *repository.Server) { d.Applied = 2 }, "database.schema", Fail},
		{func(d *repository.Server) { d.RoundTrip = 6 * time.Millisecond }, "database.reach", Warn},
		{func(d *repository.Server) { d.RoundTrip = 101 * time.Millisecond }, "database.reach", Fail},
		{func(d *repository.Server) { d.Variables = nil }, "database.kind", Fail}, // SQLite for two instances
		{variable("innodb_doublewrite", "OFF"), "database.flush", Warn},
		{variable("log_bin", "OFF"), "database.binlog", Warn},
		{variable("innodb_buffer_pool_size", "134217728"), "database.buffer", Warn},
		{variable("max_user_connections", "60"), "database.connections", Fail},
		{variable("max_user_connections", "64"), "database.connections", OK},
		{variable("transaction_isolation", "REPEATABLE-READ"), "database.session", Fail},
		{variable("sql_mode", "ONLY_FULL_GROUP_BY"), "database.session", Fail},
		{variable("time_zone", "SYSTEM"), "database.session", Fail},
		{func(*repository.Server) {}, "database.session", OK},
		{variable("innodb_read_only", "ON"), "database.writable", Fail},
		{func(*repository.Server) {}, "database.encryption", Fail},
		{func(d *repository.Server) { d.Encrypted = true }, "database.encryption", OK},
		{func(*repository.Server) {}, "database.servers", ""}, // there is one
		{replicated("rpl_semi_sync_master", "OFF", "3600000"), "database.servers", Warn},
		{replicated("rpl_semi_sync_master", "ON", "10000"), "database.servers", Warn},
		{replicated("rpl_semi_sync_master", "ON", "3600000"), "database.servers", OK},
		{replicated("rpl_semi_sync_source", "ON", "3600000"), "database.servers", OK},
		{func(d *repository.Server) {
			replicated("rpl_semi_sync_master", "ON", "3600000")(d)
			d.Servers[1] = repository.ServerState{Host: "b:3306", Err: errors.New("connection refused")}
		}, "database.servers", Warn},
		{func(d *repository.Server) { d.Nodes = 3 }, "database.servers", OK},
		{func(d *repository.Server) { d.Nodes = 2 }, "database.servers", Warn},
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
		want   Level
	}{
		{nil, usualConfig, "redis.version", ""},
		{map[string]string{"redis_version": "6.0.16"}, usualConfig, "redis.version", Fail},
		{map[string]string{"redis_version": ""}, usualConfig, "redis.version", Fail},
		{map[string]string{"loading": "1"}, usualConfig, "redis.role", Fail},
		{map[string]string{"cluster_enabled": "1"}, usualConfig, "redis.role", Fail},
		{map[string]string{"cluster_enabled": "1", "cluster_state": "fail"}, usualConfig, "redis.role", Fail},
		{map[string]string{"cluster_enabled": "1", "cluster_state": "ok"}, usualConfig, "redis.role", OK},
		{replica("online", "0"), usualConfig, "redis.role", OK},
		{replica("online", "9"), usualConfig, "redis.role", Warn},
		{replica("wait_bgsave", "0"), usualConfig, "redis.role", Warn},
		{map[string]string{"aof_last_write_status": "err"}, usualConfig, "redis.persistence", Fail},
		{map[string]string{"rdb_last_bgsave_status": "err"}, map[string]string{"save": "3600 1"}, "redis.persistence", Fail},
		{map[string]string{"rdb_last_bgsave_status": "err"}, usualConfig, "redis.persistence", OK}, // no snapshots any more
		{nil, nil, "redis.config", Warn},
		{map[string]string{"maxclients": "20"}, nil, "redis.clients", Fail},
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
	if list := judgeRedis(gate.Server{RoundTrip: 6 * time.Millisecond}, settings, 2, 1000); worst(list, "redis.reach") != Warn {
		t.Errorf("a slow Redis: %+v", list)
	}
	for _, tc := range []struct {
		found Finding
		want  Level
	}{
		{judgeRedisClock("h", -400*time.Millisecond), OK},
		{judgeRedisClock("h", -600*time.Millisecond), Warn},
		{judgeRedisClock("h", 6*time.Second), Fail},
		{judgeMachineClock(-4 * time.Second), OK},
		{judgeMachineClock(-6 * time.Second), Warn},
	} {
		if tc.found.Level != tc.want || !strings.HasSuffix(tc.found.Check, ".clock") {
			t.Errorf("%+v, want %s", tc.found, tc.want)
		}
	}
	closed := judgeInstances(map[string]model.Instance{"a": {Version: "v", Strategy: "hybrid"}}, 1, "v", "hybrid", "")
	differ := judgeInstances(map[string]model.Instance{"a": {Version: "v"}, "b": {Version: "w"}}, 2, "v", "", "")
	if worst(closed, "instances.gate") != Fail || worst(differ, "instances.version") != Warn {
		t.Errorf("an instance without its gate: %+v; two versions: %+v", closed, differ)
	}
}

var usualConfig = map[string]string{"appendfsync": "everysec", "maxclients": "10000"}

// variable changes a variable of a database.
func variable(name, value string) func(*repository.Server) {
	return func(d *repository.Server) { d.Variables[name] = value }
}

// Each answer of a peer to /readyz leads to one finding.
func TestPeers(t *testing.T) {
	for body, want := range map[string]Level{ // the answers of other peers to /readyz
		`200 {"status":"ready","dependencies":{"database":"ok","redis":"ok"}}`:   OK,
		`200 {"status":"ready","dependencies":{"database":"ok","redis":"down"}}`: Fail,
		`503 {"status":"not ready","dependencies":{"database":"down"}}`:          Fail,
		`503 {"status":"stopping","dependencies":{}}`:                            Fail,
		`200 <html>`: Fail,
		`200 {}`:     Fail,
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
}

func TestValidate(t *testing.T) {
	good := config.Preflight{Buyers: 1, Connections: 1}
	if err := Validate(good); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		change func(*config.Preflight)
		says   string
	}{
		{func(p *config.Preflight) { p.Instances = -1 }, "--instances"},
		{func(p *config.Preflight) { p.Buyers = 0 }, "--buyers"},
		{func(p *config.Preflight) { p.Connections = 0 }, "--connections"},
		{func(p *config.Preflight) { p.Peers = []string{"one"} }, "--peers"},
		{func(p *config.Preflight) { p.Peers = []string{"http://one:80"} }, "--peers"},
		{func(p *config.Preflight) { p.Peers = []string{":80"} }, "--peers"},
	} {
		p := good
		tc.change(&p)
		if err := Validate(p); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, want %s", p, err, tc.says)
		}
	}
}

// Each check is a line with its level, what was found, and what to do.
func TestText(t *testing.T) {
	p := preflight{findings: []Finding{good("a.b", "%d units", 3), Warn.of("c", "mend it", "broken")}}
	p.add(Fail.of("d", "end it", "dead"))
	var out bytes.Buffer
	if err := p.printText(&out); err != nil {
		t.Fatal(err)
	}
	want := "ok    a.b: 3 units\nwarn  c: broken  do: mend it\nfail  d: dead  do: end it\nchecks: 3, warnings: 1, failed: 1\n"
	if out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
