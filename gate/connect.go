package gate

import (
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/address"
)

const (
	dialTimeout = time.Second
	// ioTimeout is far longer than a script runs (a few milliseconds) and far shorter than a buyer waits.
	ioTimeout = 500 * time.Millisecond
	// retries is low because each retry lengthens the wait. A script that runs again after a lost reply moves no units twice.
	retries = 1
	// redirects bounds the further tries of a Cluster's client: one redirect, to the node that has the slot, and the retries there.
	redirects = 1 + retries
	// poolSize connections, in a Cluster to each node, are enough for thousands of attempts: up to 256 attempts share a command.
	poolSize = 64
	// noPool keeps the client from having a second pool for pipelines, so that Connections is right.
	noPool = -1
	// poolTimeout is how long a command waits for a connection before Redis counts as unreachable.
	poolTimeout = 2 * time.Second
)

// Connect makes a client for the Redis at an address, which has one of the forms of address.Redis. It does not dial yet. The
// caller closes the client. No error contains a password.
func Connect(text string) (redis.UniversalClient, error) { return connect(text, false) }

// ConnectReplicas makes a client for reads, as Connect does. With a Cluster or sentinels, the client prefers replicas.
func ConnectReplicas(text string) (redis.UniversalClient, error) { return connect(text, true) }

func connect(text string, replicas bool) (redis.UniversalClient, error) {
	single, opts, err := address.Redis(text)
	if err != nil {
		return nil, err
	}
	if single != nil {
		single.DialTimeout, single.ReadTimeout, single.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
		single.MaxRetries, single.DialerRetries = retries, retries
		single.PoolSize, single.PipelinePoolSize, single.PoolTimeout = poolSize, noPool, poolTimeout
		single.ContextTimeoutEnabled = true
		return redis.NewClient(single), nil
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	opts.MaxRetries, opts.MaxRedirects, opts.DialerRetries = retries, redirects, retries
	if opts.MasterName == "" { // the client of a Cluster retries within MaxRedirects
		opts.MaxRetries = -1
	}
	opts.PoolSize, opts.PipelinePoolSize, opts.PoolTimeout = poolSize, noPool, poolTimeout
	opts.ContextTimeoutEnabled = true
	opts.ReadOnly = replicas
	return redis.NewUniversalClient(opts), nil // a client of sentinels if there is a MasterName, else of a Cluster
}
