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

var (
	//go:embed lua/frequency.lua
	frequencySource string
	//go:embed lua/here.lua
	hereSource string
	//go:embed lua/standing.lua
	standingSource string
	//go:embed lua/admit.lua
	admitSource string
	//go:embed lua/count.lua
	countSource string
	//go:embed lua/settled.lua
	settledSource string
	//go:embed lua/catchup.lua
	catchUpSource string
	//go:embed lua/close.lua
	closeSource string
	//go:embed lua/install.lua
	installSource string
	//go:embed lua/open.lua
	openSource string
	//go:embed lua/lend.lua
	lendSource string
	//go:embed lua/borrow.lua
	borrowSource string
	//go:embed lua/configure.lua
	configureSource string

	admitScript     = redis.NewScript(frequencySource + hereSource + standingSource + admitSource)
	countScript     = redis.NewScript(frequencySource + countSource)
	settledScript   = redis.NewScript(settledSource)
	catchUpScript   = redis.NewScript(catchUpSource)
	closeScript     = redis.NewScript(closeSource)
	installScript   = redis.NewScript(hereSource + installSource)
	openScript      = redis.NewScript(openSource)
	lendScript      = redis.NewScript(hereSource + lendSource)
	borrowScript    = redis.NewScript(borrowSource)
	configureScript = redis.NewScript(configureSource)
)

// Gate speaks to Redis for one instance of the engine. Its methods are safe for concurrent use.
type Gate struct {
	client   redis.UniversalClient
	instance string
	parts    Parts // nil: each is in one
	moves    *moves
}

// New makes the gate of one instance. The client is the caller's to close. Every sale's gate is in one part, unless parts
// tells otherwise.
func New(client redis.UniversalClient, instance string, parts ...Parts) *Gate {
	g := &Gate{client: client, instance: instance, moves: newMoves()}
	if len(parts) > 0 {
		g.parts = parts[0]
	}
	return g
}

// Ping asks Redis for an answer.
func (g *Gate) Ping(ctx context.Context) error { return g.client.Ping(ctx).Err() }

// Version is the server's, empty if it doesn't tell. The Redis in the process doesn't know the question.
func (g *Gate) Version(ctx context.Context) (string, error) {
	info, err := g.client.Info(ctx, "server").Result()
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.Contains(refusal.Error(), "not supported") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("ask Redis for its version: %w", err)
	}
	return infoField(info, "redis_version"), nil
}

// Count counts one request of a user to a sale; ok is false if there were too many within the window,
// and then retryAfter is when the next may come.
func (g *Gate) Count(ctx context.Context, saleID, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	line, err := g.Line(ctx, saleID, userID)
	if err != nil {
		return 0, false, fmt.Errorf("count a request: %w", err)
	}
	ms, err := countScript.Run(ctx, g.client, []string{counterKey(line, userID)}, f.Limit, f.Window.Milliseconds()).Int64()
	if err != nil {
		return 0, false, fmt.Errorf("count a request: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, ms == 0, nil
}

// Knows gives the request behind an order's id that the gate has admitted or was installed with. All parts are asked: an
// id doesn't say whose it is. Nothing is said of an id that is not found while one doesn't answer.
func (g *Gate) Knows(ctx context.Context, orderID string) (request model.Request, known bool, err error) {
	tags, err := g.parts.tags(ctx, model.SaleOf(orderID))
	if err != nil {
		return request, false, fmt.Errorf("ask for an id: %w", err)
	}
	values := make([]string, len(tags))
	err = each(len(tags), func(i int) (err error) {
		values[i], err = g.client.HGet(ctx, idsKey(tags[i]), orderID).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	for _, value := range values {
		if quantity, hash, found := strings.Cut(value, ":"); found {
			n, _ := strconv.Atoi(quantity)
			return model.Request{Quantity: n, Hash: hash}, true, nil
		}
	}
	if err != nil {
		return request, false, fmt.Errorf("ask for an id: %w", err)
	}
	return request, false, nil
}

// requestValue is what the gate keeps under an id.
func requestValue(r model.Request) string { return strconv.Itoa(r.Quantity) + ":" + r.Hash }

// CatchUp tells a sale's gate the changes behind the version after, up to upTo. Doing it twice is harmless, and so is a
// part of the gate that is missing or knows less than after: it is told when somebody looks at it next.
func (g *Gate) CatchUp(ctx context.Context, saleID string, after, upTo int64, changes []model.GateChange) error {
	tags, err := g.parts.tags(ctx, saleID)
	if err != nil {
		return fmt.Errorf("tell the gate of changes: %w", err)
	}
	return each(len(tags), func(part int) error {
		args := make([]any, 2, 2+5*len(changes))
		args[0], args[1] = after, upTo
		for _, c := range changes {
			if homeOf(c.UserID, len(tags)) != part {
				continue
			}
			request := ""
			if c.RequestHash != "" {
				request = requestValue(model.Request{Quantity: int(-c.Units), Hash: c.RequestHash})
			}
			args = append(args, c.Version, c.OrderID, c.UserID, c.Units, request)
		}
		tag := tags[part]
		if err := catchUpScript.Run(ctx, g.client, []string{gateKey(tag), unitsKey(tag), idsKey(tag)}, args...).Err(); err != nil {
			return fmt.Errorf("tell the gate of changes: %w", err)
		}
		return nil
	})
}
