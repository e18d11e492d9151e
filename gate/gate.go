// Package gate is Redis: it says no fast and lets about as many attempts through as there is stock. What it
// holds may be wiped, rolled back or cut off at any moment; the database decides, and a new gate is installed.
package gate

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

const (
	dialTimeout = time.Second
	// ioTimeout is far above a script's microseconds and far below a buyer's patience.
	ioTimeout = 500 * time.Millisecond
	// retries are few: a script that ran although its reply was lost is harmless, but waiting is not.
	retries = 1
	// poolSize connections serve thousands of attempts, each for well under a millisecond.
	poolSize = 64
	// poolTimeout is how long an attempt waits for a connection before the gate counts as unreachable.
	poolTimeout = 2 * time.Second
)

var (
	//go:embed lua/frequency.lua
	frequencySource string
	//go:embed lua/standing.lua
	standingSource string
	//go:embed lua/admit.lua
	admitSource string
	//go:embed lua/count.lua
	countSource string
	//go:embed lua/settled.lua
	settledSource string
	//go:embed lua/release.lua
	releaseSource string
	//go:embed lua/close.lua
	closeSource string
	//go:embed lua/install.lua
	installSource string
	//go:embed lua/configure.lua
	configureSource string

	admitScript     = redis.NewScript(frequencySource + standingSource + admitSource)
	countScript     = redis.NewScript(frequencySource + countSource)
	settledScript   = redis.NewScript(settledSource)
	releaseScript   = redis.NewScript(releaseSource)
	closeScript     = redis.NewScript(closeSource)
	installScript   = redis.NewScript(installSource)
	configureScript = redis.NewScript(configureSource)
)

// Gate speaks to Redis for one instance of the engine. Its methods are safe for concurrent use.
type Gate struct {
	client   redis.UniversalClient
	instance string
	servers  *servers
}

// Options turns a redis:// URL into a client's settings.
func Options(url string) (*redis.Options, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis: want embedded or redis://host:port/db: %w", err)
	}
	return bounded(opts), nil
}

// bounded sets every wait and the pool.
func bounded(opts *redis.Options) *redis.Options {
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	opts.MaxRetries, opts.DialerRetries = retries, retries
	opts.PoolSize, opts.PoolTimeout = poolSize, poolTimeout
	opts.ContextTimeoutEnabled = true
	return opts
}

// New makes the gate of one instance. The client is the caller's to close.
func New(client redis.UniversalClient, instance string) *Gate {
	return &Gate{client: client, instance: instance, servers: newServers(client)}
}

// Ping asks Redis for an answer.
func (g *Gate) Ping(ctx context.Context) error { return g.client.Ping(ctx).Err() }

// Version is the server's, empty if it doesn't tell. The Redis in the process doesn't know the question.
func (g *Gate) Version(ctx context.Context) (string, error) {
	return serverInfo(ctx, g.client, "redis_version")
}

// Count counts one request of a user to a sale; ok is false if there were too many within the window,
// and then retryAfter is when the next may come.
func (g *Gate) Count(ctx context.Context, saleID, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	ms, err := countScript.Run(ctx, g.client, []string{counterKey(saleID, userID)}, f.Limit, f.Window.Milliseconds()).Int64()
	if err != nil {
		return 0, false, fmt.Errorf("count a request: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, ms == 0, nil
}

// Knows gives the request behind an order's id that the gate has admitted or was installed with.
func (g *Gate) Knows(ctx context.Context, orderID string) (request model.Request, known bool, err error) {
	value, err := g.client.HGet(ctx, idsKey(model.SaleOf(orderID)), orderID).Result()
	if errors.Is(err, redis.Nil) {
		return request, false, nil
	}
	if err != nil {
		return request, false, fmt.Errorf("ask for an id: %w", err)
	}
	quantity, hash, _ := strings.Cut(value, ":")
	n, _ := strconv.Atoi(quantity)
	return model.Request{Quantity: n, Hash: hash}, true, nil
}

// requestValue is what the gate keeps under an id.
func requestValue(r model.Request) string { return strconv.Itoa(r.Quantity) + ":" + r.Hash }

// Release brings units of orders on one sale, given back or taken again by the database, to the gate.
// Doing it twice is harmless; what never arrives, the auditor repairs.
func (g *Gate) Release(ctx context.Context, saleID string, releases []model.Release) error {
	if len(releases) == 0 {
		return nil
	}
	args := make([]any, 0, 4*len(releases))
	for _, r := range releases {
		args = append(args, r.OrderID, r.UserID, r.Units, r.Version)
	}
	if err := releaseScript.Run(ctx, g.client, []string{gateKey(saleID), unitsKey(saleID), doneKey(saleID)}, args...).Err(); err != nil {
		return fmt.Errorf("release at the gate: %w", err)
	}
	return nil
}
