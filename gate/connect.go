package gate

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	dialTimeout = time.Second
	// ioTimeout is far longer than a script runs (a few milliseconds) and far shorter than a buyer waits.
	ioTimeout = 500 * time.Millisecond
	// retries is low because each retry lengthens the wait. Running a script again after a lost reply is harmless.
	retries = 1
	// redirects is for a Cluster: one redirect, to the node that has the slot, and the retries there.
	redirects = 1 + retries
	// poolSize connections are enough for thousands of attempts, since up to 256 attempts share a call. For a Cluster this is
	// the number for each node.
	poolSize = 64
	// poolTimeout is how long a call waits for a connection before the gate counts as unreachable.
	poolTimeout = 2 * time.Second
)

// Connect makes a client for the Redis at an address:
//   - redis://host:6379/0 is a single Redis.
//   - Several of these, or of host:port, separated by commas, are nodes of a Cluster.
//   - redis+sentinel://host:26379,host:26379/name is the primary called name, which the sentinels report.
//
// The scheme rediss, or rediss+sentinel, uses TLS. Connect does not dial yet. The caller must close the client. No
// error contains a password.
func Connect(address string) (redis.UniversalClient, error) { return connect(address, false) }

// ConnectReplicas makes a client for reads. With a Cluster or sentinels, the client prefers replicas. Addresses and errors are
// those of Connect, and here too the caller must close the client.
func ConnectReplicas(address string) (redis.UniversalClient, error) { return connect(address, true) }

func connect(address string, replicas bool) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	var opts *redis.UniversalOptions
	var err error
	switch secure, sentinels := strings.CutSuffix(scheme, "+sentinel"); {
	case sentinels:
		opts, err = sentinelOptions(secure, rest)
	case strings.Contains(address, ","):
		opts, err = clusterOptions(address)
	default:
		single, err := Options(address)
		if err != nil {
			return nil, err
		}
		return redis.NewClient(single), nil
	}
	if err != nil {
		return nil, err
	}
	opts.ReadOnly = replicas
	return redis.NewUniversalClient(opts), nil // of sentinels if there is a MasterName, else of a Cluster
}

// Options turns the URL of a single Redis into a client's settings. No error contains a password.
func Options(address string) (*redis.Options, error) {
	opts, err := redis.ParseURL(address)
	var withAddress *url.Error
	switch {
	case errors.As(err, &withAddress):
		return nil, errors.New("not a URL")
	case err != nil:
		return nil, fmt.Errorf("want redis://host:port/db: %w", err)
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	opts.MaxRetries, opts.DialerRetries = retries, retries
	opts.PoolSize, opts.PoolTimeout = poolSize, poolTimeout
	opts.ContextTimeoutEnabled = true
	return opts, nil
}

// bounded returns options for a Cluster or sentinels with the same timeouts, retries and pool size as Options.
func bounded() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		DialTimeout: dialTimeout, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
		MaxRetries: retries, MaxRedirects: redirects, DialerRetries: retries,
		PoolSize: poolSize, PoolTimeout: poolTimeout,
		ContextTimeoutEnabled: true,
	}
}

// clusterOptions parses the nodes of a Cluster: [redis://][user:password@]host:port, separated by commas. User,
// password and scheme of the first node apply to all nodes; another node may omit them, but not change them.
func clusterOptions(address string) (*redis.UniversalOptions, error) {
	opts := bounded()
	opts.MaxRetries = -1 // the client of a Cluster retries within MaxRedirects
	for i, node := range strings.Split(address, ",") {
		scheme, rest, named := strings.Cut(node, "://")
		if !named {
			scheme, rest = "redis", node
		}
		user, password, rest, err := credentials(rest)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			opts.Username, opts.Password, opts.TLSConfig = user, password, secured(scheme)
		} else if password != "" && (user != opts.Username || password != opts.Password) || named && (scheme == "rediss") != (opts.TLSConfig != nil) {
			return nil, errors.New("the nodes of a Cluster have one user, one password and one scheme")
		}
		host, db, _ := strings.Cut(rest, "/")
		if db != "" && db != "0" {
			return nil, errors.New("a Cluster has the database 0 only")
		}
		opts.Addrs = append(opts.Addrs, host)
	}
	return opts, nil
}

// sentinelOptions parses [user:password@]host:26379,host:26379/name[/db][?sentinel_username=...&sentinel_password=...].
func sentinelOptions(scheme, address string) (*redis.UniversalOptions, error) {
	opts := bounded()
	opts.TLSConfig = secured(scheme)
	address, query, _ := strings.Cut(address, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("what follows '?' can't be read")
	}
	opts.SentinelUsername, opts.SentinelPassword = values.Get("sentinel_username"), values.Get("sentinel_password")
	var rest string
	if opts.Username, opts.Password, rest, err = credentials(address); err != nil {
		return nil, err
	}
	hosts, path, _ := strings.Cut(rest, "/")
	name, db, _ := strings.Cut(path, "/")
	if name == "" {
		return nil, errors.New("want redis+sentinel://host:26379/name")
	}
	if db != "" {
		if opts.DB, err = strconv.Atoi(db); err != nil {
			return nil, errors.New("the database behind the name is no number")
		}
	}
	opts.MasterName, opts.Addrs = name, strings.Split(hosts, ",")
	return opts, nil
}

// credentials splits user:password@ off an address, and decodes both.
func credentials(address string) (user, password, rest string, err error) {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return "", "", address, nil
	}
	user, password, _ = strings.Cut(address[:at], ":")
	user, errUser := url.PathUnescape(user)
	password, errPassword := url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return "", "", "", errors.New("user and password need %25 for %, %40 for @, %2C for a comma")
	}
	return user, password, address[at+1:], nil
}

// secured returns the TLS settings of a scheme, or nil if the scheme is without TLS. The certificate of each server
// is checked against the host name in its address.
func secured(scheme string) *tls.Config {
	if scheme != "rediss" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}
