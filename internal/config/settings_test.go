package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

const mysqlURL, redisURL = "mysql://user:pass@host:3306/db", "redis://host:6379/0"

// outside are the settings of a server whose stores are outside of the process, with all that it then requires.
func outside(args ...string) []string {
	return append([]string{"--database=" + mysqlURL, "--redis=" + redisURL, "--secret=" + strings.Repeat("s", 32), "--admin-password=12345678", "--payment=sandbox"}, args...)
}

// settingsOf parses the settings of a server.
func settingsOf(t *testing.T, args ...string) *Settings {
	t.Helper()
	cmd, _, _, err := parse(nil, args...)
	check.NoError(t, err)
	return &cmd.Settings
}

// wantVerdict fails the test unless err is nil for an empty flag, and otherwise one line that begins with the flag.
func wantVerdict(t *testing.T, err error, flag string) {
	t.Helper()
	if flag == "" || err == nil {
		check.Same(t, fmt.Sprintf("accepted (%v)", err), err == nil, flag == "")
		return
	}
	begin, _, _ := strings.Cut(err.Error(), " ")
	if strings.ContainsAny(err.Error(), "\n\r") || strings.TrimSuffix(begin, ":") != flag {
		t.Errorf("%q, want one line that begins with %s", err, flag)
	}
}

// A value outside of the bounds of its flag is refused. The bounds themselves are accepted.
func TestBounds(t *testing.T) {
	bytes := func(n int) string { return strings.Repeat("s", n) }
	for _, tc := range []struct {
		flag              string
		with              []string // the other settings
		refused, accepted []string
	}{
		{"--database", outside(), []string{
			"", "sqlite:", "sqlite:a.db?mode=memory", "postgres://user@host/db", "data/flashsale.db",
			"mysql:///db", "mysql://user@host:3306", "mysql://user@host:3306/", "mysql://user@host:x/db",
		}, []string{"sqlite:a.db", "mysql://host/db"}},
		{"--queue-url", nil, []string{"amqp://host"}, []string{""}},
		{"--queue-url", []string{"--queue=redis-list"}, []string{"redis://host"}, []string{""}},
		{
			"--queue-url",
			[]string{"--queue=rabbitmq"},
			[]string{"", "http://host", "amqp://:5672/", "amqp://user:pass@host:x/"},
			[]string{"amqp://user:p%40ss@host:5672/shop", "amqps://host"},
		},
		{
			"--queue-url",
			[]string{"--queue=kafka"},
			[]string{"", "host", ":9092", "kafka://host:9092", "host:9092,other"},
			[]string{"one:9092,[::1]:9093"},
		},
		{"--db-max-conns", nil, []string{"3", "10001"}, []string{"4", "10000"}},
		{"--http-addr", nil, []string{"", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:nope"}, []string{":0", "localhost:8080"}},
		{"--ops-addr", nil, []string{"localhost", "127.0.0.1:99999"}, []string{"[::1]:0"}},
		{"--public-url", nil, []string{"shop.example", "file:///etc", "https://", "https://shop.example/flash", "https://shop.example/?a"}, []string{"https://shop.example", "https://shop.example:8443/"}},
		{"--trusted-proxies", nil, []string{"proxy.example", "10.0.0.1,10.0.0.0/33"}, []string{"10.0.0.1,10.0.0.0/8,::1,fd00::/8"}},
		{"--otlp-endpoint", nil, []string{"host:4318", "http://", "grpc://host:4317"}, []string{"https://collector:4318"}},
		{"--trace-ratio", nil, []string{"-0.1", "1.1", "NaN"}, []string{"0", "1"}},
		{"--strategy", nil, []string{"naive"}, []string{"local"}},
		{"--strategy", []string{"--allow-oversell"}, nil, []string{"naive"}},
		{"--local-share", nil, []string{"0", "1.01", "NaN"}, []string{"0.001", "1"}},
		{"--local-buffer", nil, []string{"-1", "1000001"}, []string{"0", "1000000"}},
		{"--batch", nil, []string{"0", "513"}, []string{"1", "512"}},
		{"--ack-wait", nil, []string{"-1ms", "10001ms"}, []string{"0s", "10s"}},
		{"--pay-grace", nil, []string{"-1s", "24h1s"}, []string{"0s", "24h"}},
		{"--limit-rate", nil, []string{"0", "-1", "NaN", "Inf"}, []string{"0.001", "1e9"}},
		{"--limit-burst", nil, []string{"0", "1000000001"}, []string{"1", "1000000000"}},
		{"--limit-wait", nil, []string{"-1s", "11s"}, []string{"0s", "10s"}},
		{"--limit-algorithm", []string{"--limit-wait=1s"}, nil, []string{"leaky-bucket"}},
		{"--ip-rate", nil, []string{"-1", "NaN"}, []string{"0", "1e9"}},
		{"--user-requests", nil, []string{"-1", "1000001"}, []string{"0", "1000000"}},
		{"--user-window", nil, []string{"0s", "25h"}, []string{"1ms", "24h"}},
		{"--user-window", []string{"--user-requests=0"}, nil, []string{"0s"}},
		{"--secret", nil, []string{"short", bytes(31)}, []string{"", bytes(32)}},
		{"--secret", []string{"--database=" + mysqlURL, "--admin-password=12345678", "--payment=sandbox"}, []string{""}, []string{bytes(32)}},
		{"--secret", []string{"--redis=" + redisURL, "--admin-password=12345678", "--payment=sandbox"}, []string{""}, []string{bytes(32)}},
		{"--payment-secret", outside(), []string{"short", bytes(31)}, []string{bytes(32)}},
		{"--payment", nil, []string{"stripe"}, []string{"auto", "sandbox"}},
		{"--payment", []string{"--database=" + mysqlURL, "--secret=" + bytes(32), "--admin-password=12345678"}, []string{"auto"}, []string{"sandbox"}},
		{"--payment", []string{"--stripe-key=sk", "--stripe-webhook-secret=whsec"}, nil, []string{"stripe"}},
		{"--stripe-key", []string{"--payment=handoff", "--checkout-url=https://shop/pay"}, []string{"sk"}, []string{""}},
		{"--checkout-url", []string{"--payment=handoff"}, []string{"", "shop/pay", "ftp://shop/pay", "https://"}, []string{"https://shop/pay?lang=en"}},
		{"--checkout-url", nil, []string{"https://shop/pay"}, []string{""}},
		{"--allow-origin", nil, []string{"*", "null", "shop.example", "https://shop.example/", "https://*.example", "https://Shop.example", "ftp://shop.example", "https://u@shop.example"}, []string{"https://shop.example", "http://127.0.0.1:8090"}},
		{"--beacon", nil, []string{"", "api.drand.sh", "ftp://api.drand.sh"}, []string{"https://api.drand.sh", "http://127.0.0.1:8081/relay"}},
		{"--event-days", nil, []string{"1", "3651"}, []string{"2", "3650"}},
		{"--admin-password", nil, []string{"1234567", bytes(129)}, []string{"12345678", bytes(128)}},
		{"--admin-password", []string{"--database=" + mysqlURL, "--secret=" + bytes(32), "--payment=sandbox"}, []string{""}, []string{bytes(8)}},
	} {
		for wanted, values := range map[string][]string{tc.flag: tc.refused, "": tc.accepted} {
			for _, value := range values {
				setting := tc.flag + "=" + value
				t.Run(strings.Join(append(tc.with[:len(tc.with):len(tc.with)], setting), " "), func(t *testing.T) {
					wantVerdict(t, settingsOf(t, append(tc.with, setting)...).Validate(), wanted)
				})
			}
		}
	}
}

func TestRedisAddresses(t *testing.T) {
	good := []string{
		"redis://host:6379/0", "redis://host", "rediss://user:pass@host:6379", "rediss://user:pass@host:6380/15",
		"redis://:pass@[::1]:6379/15",
		"redis://a:1,redis://b:2", "a:1,b:2,c:3", "rediss://u:p%40%2C@a:1,b:2", "redis://a:1/0,redis://b:2/", "[::1]:1,[::1]:2",
		"redis+sentinel://a:26379/shop", "redis+sentinel://a:1,b:2,c:3/shop/3", "rediss+sentinel://u:p@a:1,b:2/shop/0",
		"redis+sentinel://a:1/shop?sentinel_password=p%26", "redis+sentinel://a:1/shop?sentinel_username=u&sentinel_password=p",
	}
	bad := []string{
		"", "127.0.0.1:6379", "memcached://host", "redis:///0", "redis://host/first", "redis://host:port/0",
		"a:1,", ",a:1", "a:1,b", "a:1,b:2/3", "a:1,redis+sentinel://b:2/shop", "a:1, b:2", "http://a:1,b:2", "redis://u:p/@a:1,b:2",
		"redis+sentinel://a:1", "redis+sentinel://a:1/", "redis+sentinel:///shop", "redis+sentinel://a/shop",
		"redis+sentinel://a:1,b/shop", "redis+sentinel://a:1/shop/x", "redis+sentinel://a:1/shop/0/1",
		"redis+sentinel://a:1/shop?other=1", "redis+sentinel://a:1/shop?sentinel_username=u", "http+sentinel://a:1/shop",
	}
	for _, flag := range []string{"--redis", "--redis-replicas"} {
		for wanted, addresses := range map[string][]string{"": good, flag: bad} {
			for _, address := range addresses {
				if address == "" && flag == "--redis-replicas" {
					continue // means that there are no replicas
				}
				t.Run(flag+"="+address, func(t *testing.T) {
					wantVerdict(t, settingsOf(t, "--redis=redis://host:6379", flag+"="+address).ValidateStores(), wanted)
				})
			}
		}
	}
	t.Run("the embedded Redis has no replicas", func(t *testing.T) {
		wantVerdict(t, settingsOf(t, "--redis-replicas=redis://host:6379").ValidateStores(), "--redis-replicas")
	})
}

// The lab's stores are never the shop's, however they are written.
func TestLabStoresAreNotTheShops(t *testing.T) {
	const database, redis = "--lab-database", "--lab-redis"
	folder := t.TempDir()
	shop, link := filepath.Join(folder, "shop.db"), filepath.Join(folder, "link.db")
	check.Done(errors.Join(
		os.WriteFile(shop, nil, 0o600), os.Symlink(folder, filepath.Join(folder, "link")), os.Symlink(shop, link),
	))
	file, missing := "sqlite:"+shop, "sqlite:"+filepath.Join(folder, "missing.db")
	type test struct {
		shop, lab string // MySQL and SQLite as --database, Redis as --redis
		refused   string // the flag; empty: accepted
	}
	check.Each(t, map[string]test{
		"no database of the lab":             {mysqlURL, "", ""},
		"the same database":                  {mysqlURL, mysqlURL, database},
		"another user":                       {mysqlURL, "mysql://lab:word@host:3306/db", database},
		"the default port":                   {mysqlURL, "mysql://host/db", database},
		"capitals":                           {mysqlURL, "mysql://HOST/DB", database},
		"a dot at the end":                   {mysqlURL, "mysql://host./db/", database},
		"this machine by another name":       {"mysql://localhost/db", "mysql://127.0.0.1:3306/db", database},
		"this machine by an IPv6 address":    {"mysql://127.0.0.1/db", "mysql://[::1]:3306/db", database},
		"another database":                   {mysqlURL, "mysql://user:pass@host:3306/lab", ""},
		"another port":                       {mysqlURL, "mysql://user:pass@host:3307/db", ""},
		"another host":                       {mysqlURL, "mysql://user:pass@other:3306/db", ""},
		"SQLite instead of MySQL":            {mysqlURL, file, ""},
		"another file":                       {file, "sqlite:" + filepath.Join(folder, "lab.db"), ""},
		"the same file":                      {file, file, database},
		"the same file by a longer path":     {file, "sqlite:" + folder + "/./nowhere/../shop.db", database},
		"the same file by a linked folder":   {file, "sqlite:" + filepath.Join(folder, "link", "shop.db"), database},
		"a file to be made, by that folder":  {missing, "sqlite:" + filepath.Join(folder, "link", "missing.db"), database},
		"the same file by a link":            {file, "sqlite:" + link, database},
		"a database of another kind":         {mysqlURL, "postgres://host/db", database},
		"the Redis in the process":           {redisURL, "embedded", ""},
		"the same Redis":                     {redisURL, redisURL, redis},
		"another number of the same Redis":   {redisURL, "redis://host:6379/7", redis},
		"the default port of Redis":          {redisURL, "redis://host", redis},
		"the same Redis with TLS and a user": {redisURL, "rediss://user:pass@host:6379/0", redis},
		"a Redis at another port":            {redisURL, "redis://host:6380/0", ""},
		"a Redis beside the embedded one":    {"embedded", "redis://host:6379/0", ""},
		"two in the same process":            {"embedded", "embedded", ""},
		"no Redis of the lab":                {redisURL, "", redis},
		"a store that is no Redis":           {redisURL, "memcached://host", redis},
		"a node of the shop's Cluster":       {"redis://a:1,redis://b:2", "redis://b:2", redis},
		"a node in capitals with TLS":        {"redis://u:p@a:1,b:2", "rediss://B:2/3", redis},
		"Clusters with a common node":        {"a:1,b:2", "b:2,c:3", redis},
		"Clusters with common ports":         {"a:1,b:2", "c:1,a:2", ""},
		"this machine as a node":             {"redis://localhost", "127.0.0.1:6379,a:1", redis},
		"a common sentinel":                  {"redis+sentinel://a:1,b:2/shop", "redis+sentinel://b:2,c:3/other", redis},
		"a password like a sentinel":         {"redis+sentinel://a:1,b:2/shop?sentinel_password=c:3", "redis+sentinel://c:3/shop", ""},
	}, func(t *testing.T, tc test) {
		args := outside("--redis="+tc.shop, redis+"="+tc.lab)
		if strings.HasPrefix(tc.shop, "mysql:") || strings.HasPrefix(tc.shop, "sqlite:") {
			args = outside("--database="+tc.shop, database+"="+tc.lab)
		}
		wantVerdict(t, settingsOf(t, args...).Validate(), tc.refused)
	})
}

func TestLabFolder(t *testing.T) {
	for args, want := range map[string]string{
		"--redis=embedded":                              filepath.Join("data", "lab"),
		"--database=sqlite:/var/lib/shop/a.db":          "/var/lib/shop/lab",
		"--database=" + mysqlURL:                        filepath.Join("data", "lab"),
		"--database=sqlite:a.db --lab-reports=/srv/lab": "/srv/lab",
	} {
		check.Same(t, args, settingsOf(t, strings.Fields(args)...).LabFolder(), want)
	}
}

// Some settings follow from others.
func TestDerivedSettings(t *testing.T) {
	secret, payment := strings.Repeat("s", 32), strings.Repeat("p", 32)
	type test struct {
		args     []string
		embedded bool
		demo     bool
		payment  string
	}
	check.Each(t, map[string]test{
		"embedded":                       {nil, true, true, ""},
		"another SQLite file":            {[]string{"--database=sqlite:/tmp/x.db"}, true, true, ""},
		"embedded, no demo":              {[]string{"--demo=false"}, true, false, ""},
		"embedded, with a secret":        {[]string{"--secret=" + secret}, true, true, secret},
		"outside":                        {outside(), false, false, secret},
		"outside, with a demo":           {outside("--demo"), false, true, secret},
		"outside, with a payment secret": {outside("--payment-secret=" + payment), false, false, payment},
		"SQLite with Redis outside":      {[]string{"--redis=" + redisURL, "--secret=" + secret, "--admin-password=12345678", "--payment=sandbox"}, false, false, secret},
		"MySQL with Redis inside":        {[]string{"--database=" + mysqlURL, "--secret=" + secret, "--admin-password=12345678", "--payment=sandbox"}, false, false, secret},
	}, func(t *testing.T, tc test) {
		s := settingsOf(t, tc.args...)
		for range 2 { // validating twice changes nothing more
			wantVerdict(t, s.Validate(), "")
			check.Same(t, "embedded, with a demo", []bool{s.Embedded(), s.DemoSale()}, []bool{tc.embedded, tc.demo})
			check.Same(t, "payment secret, --ops-addr", []string{s.PaymentSecret, s.OpsAddr}, []string{tc.payment, "127.0.0.1:9090"})
		}
	})
}

// An error may be logged, so no error contains a password or a secret.
func TestErrorsKeepSecrets(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, args := range [][]string{
		{"--database=mysql://user:" + secret + "@host:x/db"},
		{"--database=postgres://user:" + secret + "@host/db"},
		{"--redis=redis://:" + secret + "@host:x/0"},
		{"--redis=http://:" + secret + "@host/0"},
		{"--redis=redis://user:1/2?" + secret + "@host:6379/0"},
		{"--database=mysql://user:1/2?" + secret + "@host/db"},
		{"--redis=redis://user:" + secret + "@a:1,b"},
		{"--redis=redis+sentinel://user:" + secret + "@a:1"},
		{"--redis=redis://host:1", "--redis-replicas=redis://user:" + secret + "@a:1,b"},
		{"--secret=" + secret},
		{"--payment-secret=" + secret},
		{"--admin-password=" + strings.Repeat(secret, 10)},
	} {
		if err := settingsOf(t, args...).Validate(); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", args, err)
		}
	}
	broken := writeFile(t, "secret: "+secret+"\n  admin-password: \""+secret+"\n")
	if _, _, _, err := parse(nil, "--config="+broken); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a broken file: %v", err)
	}
}
