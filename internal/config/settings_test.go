package config

import (
	"strings"
	"testing"
)

const mysqlURL, redisURL = "mysql://user:pass@host:3306/db", "redis://host:6379/0"

// outside are the settings of a server whose stores are outside, with all that it then needs.
func outside(args ...string) []string {
	return append([]string{"--database=" + mysqlURL, "--redis=" + redisURL, "--secret=" + strings.Repeat("s", 32), "--admin-password=12345678"}, args...)
}

// Every setting outside of its bounds is refused in one line that begins with its flag.
func TestValidateNamesTheSetting(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		setting string
	}{
		{"no database", []string{"--database="}, "--database"},
		{"SQLite without a path", []string{"--database=sqlite:"}, "--database"},
		{"SQLite with parameters", []string{"--database=sqlite:a.db?mode=memory"}, "--database"},
		{"another database", []string{"--database=postgres://user@host/db"}, "--database"},
		{"a bare path", []string{"--database=data/flashsale.db"}, "--database"},
		{"MySQL without a host", []string{"--database=mysql:///db"}, "--database"},
		{"MySQL without a database", []string{"--database=mysql://user@host:3306"}, "--database"},
		{"MySQL without a database but a slash", []string{"--database=mysql://user@host:3306/"}, "--database"},
		{"MySQL with a bad port", []string{"--database=mysql://user@host:x/db"}, "--database"},
		{"no Redis", []string{"--redis="}, "--redis"},
		{"a bare address for Redis", []string{"--redis=127.0.0.1:6379"}, "--redis"},
		{"another Redis", []string{"--redis=memcached://host"}, "--redis"},
		{"Redis without a host", []string{"--redis=redis:///0"}, "--redis"},
		{"a database of Redis that is no number", outside("--redis=redis://host:6379/first"), "--redis"},
		{"RabbitMQ nowhere", []string{"--queue=rabbitmq"}, "--queue-url"},
		{"RabbitMQ by another protocol", []string{"--queue=rabbitmq", "--queue-url=http://host"}, "--queue-url"},
		{"RabbitMQ without a host", []string{"--queue=rabbitmq", "--queue-url=amqp://:5672/"}, "--queue-url"},
		{"RabbitMQ with a bad port", []string{"--queue=rabbitmq", "--queue-url=amqp://user:pass@host:x/"}, "--queue-url"},
		{"Kafka nowhere", []string{"--queue=kafka"}, "--queue-url"},
		{"Kafka without a port", []string{"--queue=kafka", "--queue-url=host"}, "--queue-url"},
		{"Kafka without a host", []string{"--queue=kafka", "--queue-url=:9092"}, "--queue-url"},
		{"Kafka by a URL", []string{"--queue=kafka", "--queue-url=kafka://host:9092"}, "--queue-url"},
		{"one bad broker of two", []string{"--queue=kafka", "--queue-url=host:9092,other"}, "--queue-url"},
		{"a broker for the stream", []string{"--queue-url=amqp://host"}, "--queue-url"},
		{"a broker for the list", []string{"--queue=redis-list", "--queue-url=redis://host"}, "--queue-url"},
		{"too few connections", []string{"--db-max-conns=3"}, "--db-max-conns"},
		{"too many connections", []string{"--db-max-conns=10001"}, "--db-max-conns"},
		{"no address", []string{"--http-addr="}, "--http-addr"},
		{"an address without a port", []string{"--http-addr=127.0.0.1"}, "--http-addr"},
		{"a port out of range", []string{"--http-addr=127.0.0.1:65536"}, "--http-addr"},
		{"a port that is none", []string{"--http-addr=127.0.0.1:nope"}, "--http-addr"},
		{"an ops address without a port", []string{"--ops-addr=localhost"}, "--ops-addr"},
		{"an ops port out of range", []string{"--ops-addr=127.0.0.1:99999"}, "--ops-addr"},
		{"a public URL without a scheme", []string{"--public-url=shop.example"}, "--public-url"},
		{"a public URL of files", []string{"--public-url=file:///etc"}, "--public-url"},
		{"a public URL without a host", []string{"--public-url=https://"}, "--public-url"},
		{"a proxy by name", []string{"--trusted-proxies=proxy.example"}, "--trusted-proxies"},
		{"one bad proxy of two", []string{"--trusted-proxies=10.0.0.1,10.0.0.0/33"}, "--trusted-proxies"},
		{"a collector without a scheme", []string{"--otlp-endpoint=host:4318"}, "--otlp-endpoint"},
		{"a collector without a host", []string{"--otlp-endpoint=http://"}, "--otlp-endpoint"},
		{"a collector by another protocol", []string{"--otlp-endpoint=grpc://host:4317"}, "--otlp-endpoint"},
		{"fewer than no traces", []string{"--trace-ratio=-0.1"}, "--trace-ratio"},
		{"more than all", []string{"--trace-ratio=1.1"}, "--trace-ratio"},
		{"a ratio that is no number", []string{"--trace-ratio=NaN"}, "--trace-ratio"},
		{"naive by accident", []string{"--strategy=naive"}, "--strategy"},
		{"a share of nothing", []string{"--local-share=0"}, "--local-share"},
		{"a share of more than all", []string{"--local-share=1.01"}, "--local-share"},
		{"a share that is no number", []string{"--local-share=NaN"}, "--local-share"},
		{"a buffer below none", []string{"--local-buffer=-1"}, "--local-buffer"},
		{"too large a buffer", []string{"--local-buffer=1000001"}, "--local-buffer"},
		{"no batch", []string{"--batch=0"}, "--batch"},
		{"too large a batch", []string{"--batch=513"}, "--batch"},
		{"an ack wait below none", []string{"--ack-wait=-1ms"}, "--ack-wait"},
		{"too long an ack wait", []string{"--ack-wait=10001ms"}, "--ack-wait"},
		{"a grace below none", []string{"--pay-grace=-1s"}, "--pay-grace"},
		{"too long a grace", []string{"--pay-grace=24h1s"}, "--pay-grace"},
		{"no rate", []string{"--limit-rate=0"}, "--limit-rate"},
		{"a rate below none", []string{"--limit-rate=-1"}, "--limit-rate"},
		{"a rate that is no number", []string{"--limit-rate=NaN"}, "--limit-rate"},
		{"an endless rate", []string{"--limit-rate=Inf"}, "--limit-rate"},
		{"no burst", []string{"--limit-burst=0"}, "--limit-burst"},
		{"too large a burst", []string{"--limit-burst=1000000001"}, "--limit-burst"},
		{"a wait below none", []string{"--limit-wait=-1s"}, "--limit-wait"},
		{"too long a wait", []string{"--limit-wait=11s"}, "--limit-wait"},
		{"an address rate below none", []string{"--ip-rate=-1"}, "--ip-rate"},
		{"an address rate that is no number", []string{"--ip-rate=NaN"}, "--ip-rate"},
		{"requests below none", []string{"--user-requests=-1"}, "--user-requests"},
		{"too many requests", []string{"--user-requests=1000001"}, "--user-requests"},
		{"no window", []string{"--user-window=0s"}, "--user-window"},
		{"too long a window", []string{"--user-window=25h"}, "--user-window"},
		{"a short secret", []string{"--secret=short"}, "--secret"},
		{"a secret of 31 bytes", []string{"--secret=" + strings.Repeat("s", 31)}, "--secret"},
		{"no secret, MySQL", []string{"--database=" + mysqlURL, "--admin-password=12345678"}, "--secret"},
		{"no secret, Redis outside", []string{"--redis=" + redisURL, "--admin-password=12345678"}, "--secret"},
		{"a short payment secret", outside("--payment-secret=short"), "--payment-secret"},
		{"no password, stores outside", []string{"--database=" + mysqlURL, "--secret=" + strings.Repeat("s", 32)}, "--admin-password"},
		{"a short password", []string{"--admin-password=1234567"}, "--admin-password"},
		{"a long password", []string{"--admin-password=" + strings.Repeat("p", 129)}, "--admin-password"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cmd, _, _, err := parse(nil, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			err = cmd.Settings.Validate()
			if err == nil {
				t.Fatal("taken")
			}
			if line := err.Error(); strings.ContainsAny(line, "\n\r") || line != tc.setting && !strings.HasPrefix(line, tc.setting+":") && !strings.HasPrefix(line, tc.setting+" ") {
				t.Errorf("%q, want one line that begins with %s", line, tc.setting)
			}
		})
	}
}

// The bounds themselves are taken.
func TestValidateTakes(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing":                  nil,
		"stores outside":           outside(),
		"MySQL's own port":         outside("--database=mysql://host/db"),
		"Redis with TLS":           outside("--redis=rediss://user:pass@host:6380/15"),
		"all at their least":       {"--ack-wait=0s", "--pay-grace=0s", "--limit-rate=0.001", "--limit-burst=1", "--limit-wait=0s", "--ip-rate=0", "--user-requests=0", "--db-max-conns=4"},
		"all at their most":        {"--ack-wait=10s", "--pay-grace=24h", "--limit-rate=1e9", "--limit-burst=1000000000", "--limit-wait=10s", "--ip-rate=1e9", "--user-requests=1000000", "--user-window=24h", "--db-max-conns=10000"},
		"the list":                 {"--queue=redis-list"},
		"RabbitMQ":                 {"--queue=rabbitmq", "--queue-url=amqp://user:p%40ss@host:5672/shop"},
		"RabbitMQ with TLS":        {"--queue=rabbitmq", "--queue-url=amqps://host"},
		"Kafka":                    {"--queue=kafka", "--queue-url=one:9092,[::1]:9093"},
		"naive on purpose":         {"--strategy=naive", "--allow-oversell"},
		"all of the stock":         {"--strategy=local", "--local-share=1", "--local-buffer=0"},
		"all requests traced":      {"--otlp-endpoint=https://collector:4318", "--trace-ratio=1"},
		"the least share":          {"--local-share=0.001", "--local-buffer=1000000"},
		"each attempt alone":       {"--batch=1"},
		"the largest batch":        {"--batch=512"},
		"a leaky bucket":           {"--limit-algorithm=leaky-bucket", "--limit-wait=1s"},
		"no window without limit":  {"--user-requests=0", "--user-window=0s"},
		"the least window":         {"--user-window=1ms"},
		"all addresses":            {"--http-addr=:0", "--ops-addr=[::1]:0"},
		"a host's name":            {"--http-addr=localhost:8080"},
		"proxies":                  {"--trusted-proxies=10.0.0.1,10.0.0.0/8,::1,fd00::/8"},
		"a public URL with a path": {"--public-url=https://shop.example/flash"},
		"secrets of 32 bytes":      {"--secret=" + strings.Repeat("s", 32), "--payment-secret=" + strings.Repeat("p", 32)},
		"passwords of 8 bytes":     {"--admin-password=12345678"},
		"passwords of 128 bytes":   {"--admin-password=" + strings.Repeat("p", 128)},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, _, err := parse(nil, args...)
			if err == nil {
				err = cmd.Settings.Validate()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// What follows from other settings.
func TestDerivedSettings(t *testing.T) {
	secret := strings.Repeat("s", 32)
	for name, tc := range map[string]struct {
		args     []string
		embedded bool
		demo     bool
		payment  string
	}{
		"embedded":                       {nil, true, true, ""},
		"another SQLite file":            {[]string{"--database=sqlite:/tmp/x.db"}, true, true, ""},
		"embedded, no demo":              {[]string{"--demo=false"}, true, false, ""},
		"embedded, with a secret":        {[]string{"--secret=" + secret}, true, true, secret},
		"outside":                        {outside(), false, false, secret},
		"outside, with a demo":           {outside("--demo"), false, true, secret},
		"outside, its own payments' key": {outside("--payment-secret=" + strings.Repeat("p", 32)), false, false, strings.Repeat("p", 32)},
		"SQLite with Redis outside":      {[]string{"--redis=" + redisURL, "--secret=" + secret, "--admin-password=12345678"}, false, false, secret},
		"MySQL with Redis inside":        {[]string{"--database=" + mysqlURL, "--secret=" + secret, "--admin-password=12345678"}, false, false, secret},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, _, err := parse(nil, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			s := cmd.Settings
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			if s.Embedded() != tc.embedded || s.DemoSale() != tc.demo || s.PaymentSecret != tc.payment {
				t.Errorf("embedded %t, demo %t, payment secret %q", s.Embedded(), s.DemoSale(), s.PaymentSecret)
			}
			once := s
			if err := s.Validate(); err != nil || s.OpsAddr != once.OpsAddr || s.PaymentSecret != once.PaymentSecret {
				t.Errorf("validated twice: %v, %+v", err, s)
			}
		})
	}
}
