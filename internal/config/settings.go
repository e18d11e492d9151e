// Package config has the commands and their settings. Flags come before the environment, a YAML file and defaults, in this order.
package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"flashsale/internal/address"
)

// EmbeddedRedis is the value of Settings.Redis that selects the Redis inside the process.
const EmbeddedRedis = "embedded"

// MinSecret is the least length in bytes of a secret that signs tokens or callbacks.
const MinSecret = 32

// Settings are the settings of the server. Every command accepts them. The tags have the flags' help texts and defaults.
type Settings struct {
	HTTPAddr  string `default:"127.0.0.1:8080" help:"Address of the API and the pages."`
	OpsAddr   string `default:"127.0.0.1:9090" help:"Address of /metrics and /debug/pprof; empty or off: none."`
	PublicURL string `help:"URL under which buyers reach the server, for links; default: http:// and the address."`

	Database         string `default:"sqlite:data/flashsale.db" help:"sqlite:PATH, or mysql://user:pass@host:3306/db, with commas between the hosts of a cluster or of a primary and its replicas; with ?tls=true (or skip-verify, preferred), tls-ca=FILE, tls-cert=FILE and tls-key=FILE for encryption, or without a host and with ?socket=PATH."`
	DatabasePassword string `help:"Password of MySQL, if --database has only a user."`
	DBMaxConns       int    `name:"db-max-conns" default:"32" help:"Maximum number of connections to MySQL."`
	Redis            string `default:"embedded" help:"embedded (in this process), redis://host:6379/0, a Cluster: several with commas between them, or redis+sentinel://host:26379,host:26379/name."`
	RedisPassword    string `help:"Password of Redis and its replicas, if their addresses have none."`
	RedisReplicas    string `help:"Redis replicas that supply the stock shown on pages, in the same forms; default: the database."`
	Queue            string `default:"redis-stream" enum:"redis-stream,redis-list,rabbitmq,kafka" help:"Queue between the gate and the settlers: ${enum}."`
	QueueURL         string `name:"queue-url" help:"Address of the queue's broker: amqp://user:pass@host:5672/vhost or amqps:// for rabbitmq; host:port,host:port for kafka."`

	Strategy      string        `default:"hybrid" enum:"hybrid,naive,mutex,pessimistic,optimistic,redis,local" help:"How units are taken from stock: ${enum}."`
	AllowOversell bool          `help:"Allow the strategy naive, which sells units twice."`
	LocalShare    float64       `default:"0.5" help:"Strategy local: the fraction of the units left that an instance takes as its share, above 0 and at most 1."`
	LocalBuffer   int64         `default:"64" help:"Strategy local: units that an instance takes in addition."`
	Batch         int           `default:"512" help:"Maximum number of attempts in one transaction and, up to 256, in one call of Redis; 1: no batches."`
	Ack           string        `default:"confirmed" enum:"confirmed,queued" help:"Answer when the order is in the database, or as soon as it is queued: ${enum}."`
	AckWait       time.Duration `default:"800ms" help:"Longest wait for the database before the answer is 'queued'."`
	PayGrace      time.Duration `default:"30s" help:"How long an order may still be paid after its payment deadline."`

	LimitAlgorithm string        `default:"token-bucket" enum:"token-bucket,leaky-bucket" help:"Limiter of the whole instance: ${enum}."`
	LimitRate      float64       `default:"20000" help:"Requests per second that an instance accepts."`
	LimitBurst     int           `default:"20000" help:"Requests that are accepted at once or, with leaky-bucket, that may wait."`
	LimitWait      time.Duration `default:"0s" help:"Longest time that a request waits for the limiter; 0s: refuse at once."`
	IPRate         float64       `name:"ip-rate" default:"200" help:"Requests per second from one address; 0: no limit."`
	UserRequests   int           `default:"10" help:"Purchase requests of one user to one sale within --user-window; 0: no limit."`
	UserWindow     time.Duration `default:"1s" help:"Window of --user-requests."`
	TrustedProxies []string      `help:"Addresses or networks whose X-Forwarded-For is trusted; default: none."`
	AllowOrigins   []string      `name:"allow-origin" placeholder:"ORIGIN" help:"Origins, as https://shop.example, whose pages may call the API from a browser; default: none."`

	Secret              string `help:"Key that signs buyers' tokens and path tokens, at least 32 bytes. Embedded: generated and kept beside the database; else required."`
	PaymentSecret       string `help:"Key that signs payment callbacks, at least 32 bytes; default: the value of --secret."`
	Payment             string `default:"auto" enum:"auto,sandbox,stripe,handoff" help:"Who takes the buyers' money: ${enum}. sandbox pretends to; handoff is the shop's own checkout at --checkout-url; auto: sandbox when embedded, else one has to be named."`
	StripeKey           string `help:"Secret key of the account at Stripe."`
	StripeWebhookSecret string `help:"Secret of the webhook endpoint at Stripe, which sends to /api/v1/payments/notices."`
	StripeURL           string `name:"stripe-url" hidden:"" help:"Address of Stripe's API, for tests."`
	CheckoutURL         string `name:"checkout-url" placeholder:"URL" help:"The shop's own checkout. Buyers come with a hold token in the parameter hold."`

	Beacon      string `default:"https://api.drand.sh" placeholder:"URL" help:"Source of drand's rounds, for lines and draws with a beacon. Answers are checked, so it need not be trusted."`
	BeaconChain string `hidden:"" help:"Chain of the beacon, as the JSON of its page /info, for tests; default: drand's quicknet."`

	WebhookPrivate bool `help:"Events may be sent to endpoints on this machine and in private networks, and without encryption."`
	EventDays      int  `default:"30" help:"Days for which events and deliveries are kept."`

	AdminPassword string `help:"Password of the operator admin. Embedded: generated and printed once; else required."`
	Accounts      string `default:"auto" enum:"auto,open,closed,off" help:"Built-in accounts: open lets everybody register, closed has those of the staff only, off has none; auto: open when embedded, else closed."`
	Demo          *bool  `help:"Create a demo sale when the database is empty; default: when embedded."`

	Issuers       []string `name:"issuer" placeholder:"[PREFIX=]URL" help:"OpenID Connect issuers whose tokens are accepted, by their discovery documents. Ids of their users begin with the prefix; default: the URL's host."`
	JWKS          string   `name:"jwks" placeholder:"URL" help:"JSON Web Key Set of an issuer that has no discovery document; with --issuer-name."`
	IssuerName    string   `placeholder:"[PREFIX=]NAME" help:"The claim iss of the tokens that --jwks is for."`
	Audience      string   `help:"The claim aud that tokens of issuers must have."`
	ClientID      string   `name:"client-id" help:"Client at the first --issuer by which the pages log people in; default: they don't."`
	ClientSecret  string   `help:"Secret of the client, if it has one."`
	Scopes        string   `help:"Scopes that the pages ask the first --issuer for; default: openid profile, and email with --user-claim email."`
	UserClaim     string   `default:"sub" help:"The claim of issuers' tokens that names the user."`
	ViewerClaim   string   `placeholder:"CLAIM=VALUE" help:"Users of issuers whose tokens have this value, or have it in a list, may look at everything."`
	SupportClaim  string   `placeholder:"CLAIM=VALUE" help:"The same for those who may also refund and cancel orders."`
	OperatorClaim string   `placeholder:"CLAIM=VALUE" help:"The same for those who may do everything."`

	LabDatabase string `help:"Database of the console's lab, in the form of --database but another one; default: a new SQLite file for each run."`
	LabRedis    string `default:"embedded" help:"Redis of the console's lab, in the form of --redis but another one."`
	LabReports  string `placeholder:"DIR" help:"Folder of the lab's reports, of which the newest 50 are kept; default: lab beside the SQLite file, else data/lab."`

	OTLPEndpoint string  `name:"otlp-endpoint" placeholder:"URL" help:"OpenTelemetry collector for traces, as http://host:4318; default: none."`
	TraceRatio   float64 `default:"0.01" help:"Fraction of the requests that is traced, 0 to 1; a client's traceparent header takes precedence."`

	LogFormat string `default:"auto" enum:"auto,text,json" help:"${enum}; auto: text on a terminal, else json."`
	LogLevel  string `default:"info" enum:"debug,info,warn,error" help:"Lowest level that is logged: ${enum}."`
}

// Embedded reports whether both stores are in the process: SQLite and the embedded Redis.
func (s *Settings) Embedded() bool {
	_, isFile := s.SQLitePath()
	return isFile && s.Redis == EmbeddedRedis
}

// SQLitePath returns the path of the SQLite file; ok is false for another database.
func (s *Settings) SQLitePath() (path string, ok bool) {
	return strings.CutPrefix(s.Database, "sqlite:")
}

// BuiltIn returns which built-in accounts there are: open, closed or off, see Accounts.
func (s *Settings) BuiltIn() string { return s.choice(s.Accounts, "open", "closed") }

// Provider returns who takes the buyers' money: sandbox, stripe or handoff; empty if the settings still have to name one.
func (s *Settings) Provider() string { return s.choice(cmp.Or(s.Payment, "auto"), "sandbox", "") }

// choice returns the value of a setting, but replaces "auto" by the value for embedded stores, or by that for other stores.
func (s *Settings) choice(value, embedded, outside string) string {
	switch {
	case value != "auto":
		return value
	case s.Embedded():
		return embedded
	}
	return outside
}

// DatabaseIsNear reports whether the address of the database names only localhost, a socket or a file. It must be valid.
func (s *Settings) DatabaseIsNear() bool {
	servers, _ := databaseServers(s.Database) // SQLite has none
	return !slices.ContainsFunc(servers, func(server string) bool { return !isNear(server) })
}

// PlainRedis returns the host:port of a Redis or sentinel that is used without encryption and is not localhost; empty: none.
func (s *Settings) PlainRedis() string {
	for _, server := range redisServers(s.Redis) {
		if !isNear(server) && !strings.HasPrefix(s.Redis, "rediss") {
			return server
		}
	}
	return ""
}

// DemoSale reports whether a demo sale is to be created in an empty database.
func (s *Settings) DemoSale() bool {
	if s.Demo != nil {
		return *s.Demo
	}
	return s.Embedded()
}

// LabFolder returns the folder of the reports of the console's lab.
func (s *Settings) LabFolder() string {
	if s.LabReports != "" {
		return s.LabReports
	}
	if path, isFile := s.SQLitePath(); isFile {
		return filepath.Join(filepath.Dir(path), "lab")
	}
	return filepath.Join("data", "lab")
}

// Refuse returns an error with this text if "bad" is true, else nil. So cmp.Or of several calls returns the first error.
func Refuse(bad bool, text string, values ...any) error {
	if !bad {
		return nil
	}
	return fmt.Errorf(text, values...)
}

// ValidateStores checks the settings of the stores. An error is one line that names the setting.
func (s *Settings) ValidateStores() error {
	_, _, badReplicas := address.Redis(s.RedisReplicas)
	return cmp.Or(
		validateDatabase("--database", s.Database),
		validateRedis("--redis", s.Redis),
		Refuse(s.RedisReplicas != "" && badReplicas != nil, "--redis-replicas: %w", badReplicas),
		Refuse(s.RedisReplicas != "" && s.Redis == EmbeddedRedis, "--redis-replicas: the embedded Redis has no replicas"),
		Refuse(s.DBMaxConns < 4 || s.DBMaxConns > 10_000, "--db-max-conns: must be 4 to 10000"),
	)
}

func validateDatabase(flag, database string) error {
	if path, isFile := strings.CutPrefix(database, "sqlite:"); isFile {
		return Refuse(path == "" || strings.ContainsRune(path, '?'), "%s: sqlite: needs a path without '?'", flag)
	}
	if _, _, err := address.MySQL(database); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

func validateRedis(flag, redis string) error {
	_, _, err := address.Redis(redis)
	return Refuse(redis != EmbeddedRedis && err != nil, "%s: want embedded, or an address: %w", flag, err)
}

// ValidateStrategies checks the settings of the stores and of the strategies. An error is one line that names the setting.
func (s *Settings) ValidateStrategies() error {
	return cmp.Or(
		s.ValidateStores(),
		Refuse(!(s.LocalShare > 0) || s.LocalShare > 1, "--local-share: must be above 0 and at most 1"),
		Refuse(s.LocalBuffer < 0 || s.LocalBuffer > 1_000_000, "--local-buffer: must be 0 to 1000000 units"),
	)
}

// Validate checks the settings of a server. An error is one line that names the setting. Validate also sets an empty
// PaymentSecret to Secret, and an OpsAddr of "off" to an empty one.
func (s *Settings) Validate() error {
	if s.OpsAddr == "off" {
		s.OpsAddr = ""
	}
	s.PaymentSecret = cmp.Or(s.PaymentSecret, s.Secret)
	_, badIssuers := s.Outside()
	return cmp.Or(
		s.ValidateStrategies(),
		s.ValidateSecret(),
		s.validateLab(),
		badIssuers,
		s.validateQueue(),
		s.validatePayment(),
		s.validateAddresses(),
		Refuse(s.Strategy == "naive" && !s.AllowOversell, "--strategy: naive sells units twice; it starts only with --allow-oversell"),
		Refuse(s.Batch < 1 || s.Batch > 512, "--batch: must be 1 to 512"),
		Refuse(s.AckWait < 0 || s.AckWait > 10*time.Second, "--ack-wait: must be 0s to 10s"),
		Refuse(s.PayGrace < 0 || s.PayGrace > 24*time.Hour, "--pay-grace: must be 0s to 24h"),
		Refuse(!(s.LimitRate > 0) || s.LimitRate > 1e9, "--limit-rate: must be above 0 and at most 1e9 a second"),
		Refuse(s.LimitBurst < 1 || s.LimitBurst > 1_000_000_000, "--limit-burst: must be 1 to 1000000000"),
		Refuse(s.LimitWait < 0 || s.LimitWait > 10*time.Second, "--limit-wait: must be 0s to 10s"),
		Refuse(!(s.IPRate >= 0) || s.IPRate > 1e9, "--ip-rate: must be 0 to 1e9 a second"),
		Refuse(s.UserRequests < 0 || s.UserRequests > 1_000_000, "--user-requests: must be 0 to 1000000"),
		Refuse(s.UserRequests > 0 && (s.UserWindow < time.Millisecond || s.UserWindow > 24*time.Hour), "--user-window: must be 1ms to 24h"),
		longEnough("--payment-secret (FLASHSALE_PAYMENT_SECRET)", s.PaymentSecret),
		Refuse(!httpURL(s.Beacon), "--beacon: want http(s)://host"),
		Refuse(s.EventDays < 2 || s.EventDays > 3650, "--event-days: must be 2 to 3650"),
		Refuse(!(s.TraceRatio >= 0) || s.TraceRatio > 1, "--trace-ratio: must be 0 to 1"),
		Refuse(s.BuiltIn() == "off" && len(s.Issuers) == 0 && s.JWKS == "" && s.Embedded(), "--accounts: off needs an --issuer, or nobody can log in"),
		Refuse(s.AdminPassword == "" && !s.Embedded() && s.BuiltIn() != "off", "--admin-password (FLASHSALE_ADMIN_PASSWORD): required"),
		Refuse(s.AdminPassword != "" && (len(s.AdminPassword) < 8 || len(s.AdminPassword) > 128), "--admin-password (FLASHSALE_ADMIN_PASSWORD): must be 8 to 128 bytes"),
	)
}

func (s *Settings) validatePayment() error {
	provider := s.Provider()
	return cmp.Or(
		Refuse(provider == "", "--payment: required: stripe, handoff or, for trials, sandbox"),
		Refuse(provider == "stripe" && (s.StripeKey == "" || s.StripeWebhookSecret == ""), "--payment: stripe needs --stripe-key and --stripe-webhook-secret, from the environment or files"),
		Refuse(provider == "handoff" && !httpURL(s.CheckoutURL), "--checkout-url: handoff wants http(s)://host/path"),
		Refuse(provider != "stripe" && s.StripeKey+s.StripeWebhookSecret != "", "--stripe-key: is for --payment stripe"),
		Refuse(provider != "handoff" && s.CheckoutURL != "", "--checkout-url: is for --payment handoff"),
	)
}

func httpURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// QueueBrokers returns the addresses of the Kafka brokers.
func (s *Settings) QueueBrokers() []string { return strings.Split(s.QueueURL, ",") }

func (s *Settings) validateQueue() error {
	switch s.Queue {
	case "rabbitmq":
		u, err := url.Parse(s.QueueURL)
		return Refuse(err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "", "--queue-url: rabbitmq wants amqp://user:pass@host:5672/vhost, or amqps://")
	case "kafka":
		return Refuse(slices.ContainsFunc(s.QueueBrokers(), func(broker string) bool {
			return !validAddress(broker) || strings.HasPrefix(broker, ":") || strings.Contains(broker, "/")
		}), "--queue-url: kafka wants host:port, or several with commas between them")
	}
	return Refuse(s.QueueURL != "", "--queue-url: %s has no broker of its own", s.Queue)
}

// ValidateSecret checks the secret that signs tokens: it may be missing only if Embedded, and must not be too short.
func (s *Settings) ValidateSecret() error {
	return cmp.Or(
		Refuse(s.Secret == "" && !s.Embedded(), "--secret (FLASHSALE_SECRET): required, at least 32 bytes"),
		longEnough("--secret (FLASHSALE_SECRET)", s.Secret),
	)
}

func longEnough(flag, secret string) error {
	return Refuse(secret != "" && len(secret) < MinSecret, "%s: has %d bytes, needs at least %d", flag, len(secret), MinSecret)
}

func validAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func (s *Settings) validateAddresses() error {
	u, err := url.Parse(s.PublicURL)
	badURL := s.PublicURL != "" && (err != nil || !httpURL(s.PublicURL) || strings.TrimRight(s.PublicURL, "/") != u.Scheme+"://"+u.Host)
	checks := []error{
		Refuse(!validAddress(s.HTTPAddr), "--http-addr: want host:port"),
		Refuse(s.OpsAddr != "" && !validAddress(s.OpsAddr), "--ops-addr: want host:port, or off"),
		Refuse(badURL, "--public-url: want http(s)://host, without a path: the pages are at the root of a host of their own"),
		Refuse(s.OTLPEndpoint != "" && !httpURL(s.OTLPEndpoint), "--otlp-endpoint: want http(s)://host:4318"),
	}
	for _, origin := range s.AllowOrigins {
		u, err := url.Parse(origin)
		bad := err != nil || !httpURL(origin) || u.Scheme+"://"+u.Host != origin || u.Hostname() == "" || strings.ContainsAny(u.Host, "*") || strings.ToLower(origin) != origin
		checks = append(checks, Refuse(bad, "--allow-origin: %q: want an exact origin in small letters, as https://shop.example", origin))
	}
	for _, proxy := range s.TrustedProxies {
		_, noNetwork := netip.ParsePrefix(proxy)
		_, noAddress := netip.ParseAddr(proxy)
		checks = append(checks, Refuse(noNetwork != nil && noAddress != nil, "--trusted-proxies: %q is neither an address nor a network", proxy))
	}
	return cmp.Or(checks...)
}
