package gate

import (
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/address"
)

const (
	dialTimeout = time.Second
	// ioTimeout is far longer than the few milliseconds that a script usually runs.
	ioTimeout = 500 * time.Millisecond
	// retries is low because each retry lengthens the wait. If a script runs again after a lost reply, it moves no units twice.
	retries = 1
	// redirects is for the client of a Cluster. It allows one redirect, to the node that has the slot, and the retries.
	redirects = 1 + retries
	// poolSize bounds the connections to a Redis, in a Cluster to each node. Usually many attempts share a command.
	poolSize = 64
	// noPool makes the client use one pool for pipelines and other commands.
	noPool = -1
	// poolTimeout is how long a command waits for a connection before it fails.
	poolTimeout = 2 * time.Second
)

// Connect makes a client for the Redis at an address in one of the forms of address.Redis. It does not dial yet. The caller
// closes the client.
func Connect(text string) (redis.UniversalClient, error) { return connect(text, false) }

// ConnectReplicas makes a client for reads. With a Cluster or sentinels, the client prefers replicas.
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
	return redis.NewUniversalClient(opts), nil // for sentinels if there is a MasterName, else for a Cluster
}
