// Package strategy holds the ways to take units from stock, one a file, all behind one method:
//
//	Deduct(ctx, attempt) (model.Outcome, error)
//
// A refusal is an outcome; an error means that something broke, and model.ErrUnavailable that the attempt
// may be tried again. Every strategy refuses in the same order: not_found, not_started, ended, paused,
// limit_reached, sold_out. An attempt whose id was accepted or queued before gets that answer first.
package strategy

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"time"

	"flashsale/gather"
	"flashsale/model"
)

// Gate is what strategies need of Redis.
type Gate interface {
	// Admit takes the units of attempts on one sale and queues them, or refuses them; model.NoGate where no gate of
	// this epoch is open, model.Unsure where the database has to say.
	Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error)
	// Peek reads the gates of sales as they stand, in the order of the sales.
	Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error)
	// Line names the attempts that one script judges together: a sale's, or those of the users of one part of its gate.
	Line(ctx context.Context, saleID, userID string) (string, error)
	// Node names the Redis that judges a line, if there are several.
	Node(ctx context.Context, line string) string
}

// Database is what strategies need of the truth.
type Database interface {
	// Deduct writes orders for attempts on one sale if no other writer comes between, else model.ErrLostRace.
	Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
	// DeductLocked writes an attempt's order while it holds a lock on the stock row.
	DeductLocked(ctx context.Context, a model.Attempt) (model.Outcome, error)
	// Look reads what there is to know of an attempt.
	Look(ctx context.Context, a model.Attempt) (model.Look, error)
	// Overwrite writes an attempt's order and the stock as they follow from a look, whoever wrote in between.
	Overwrite(ctx context.Context, a model.Attempt, look model.Look) (model.Outcome, error)
}

// Control is what strategies need of the instance's control module.
type Control interface {
	// Epoch is the newest generation of a sale's gate that this instance has heard of.
	Epoch(saleID string) int64
	// Judge says whether a sale sells now, as far as this instance knows.
	Judge(saleID string) model.Verdict
	// NeedGate asks for an open gate of a sale that has none; it doesn't wait for it.
	NeedGate(saleID, reason string)
}

// Needs are the parts that strategies are made of.
type Needs struct {
	Gate     Gate
	Database Database
	Control  Control
	Log      *slog.Logger
	Retried  func() // counts a transaction that lost its race
	Now      func() time.Time
	Batch    int           // most attempts in one call of a store, if the store's own limit is not lower; 0: that one
	Lock     chan struct{} // with room for one; mutex holds it
	// LocalShare and LocalBuffer are how much of the gate's units local may take in memory: a part of 1, and units.
	LocalShare  float64
	LocalBuffer int64
}

// callsAlone are under way at once when each attempt has a call of its own: as many as there are connections.
const callsAlone = 64

// batched keeps limits within the batch that was asked for; calls of single attempts need more of them at once.
func (n Needs) batched(l gather.Limits) gather.Limits {
	if n.Batch > 0 {
		l.Batch = min(l.Batch, n.Batch)
	}
	if l.Batch == 1 {
		l.Calls = callsAlone
	}
	return l
}

// Strategy takes units from stock for attempts.
type Strategy interface {
	// Deduct takes an attempt's units, or refuses it. The outcome carries an order when one is durable.
	Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error)
	// UsesGate reports whether Deduct admits at the gate, and counts the user's requests (Attempt.Frequency) there.
	UsesGate() bool
	// Healthy reports what the strategy lacks, or nil.
	Healthy() error
	// Close ends what the strategy started and waits for it.
	Close()
}

// sources are the strategies' files, for what their comments say.
//
//go:embed naive.go mutex.go pessimistic.go optimistic.go redis.go local.go hybrid.go
var sources embed.FS

// Names lists the strategies that New makes.
func Names() []string {
	return []string{"naive", "mutex", "pessimistic", "optimistic", "redis", "local", "hybrid"}
}

// New makes the strategy of a name.
func New(name string, n Needs) (Strategy, error) {
	switch name {
	case "naive":
		return NewNaive(n), nil
	case "mutex":
		return NewMutex(n), nil
	case "pessimistic":
		return NewPessimistic(n), nil
	case "optimistic":
		return NewOptimistic(n), nil
	case "redis":
		return NewRedis(n), nil
	case "local":
		return NewLocal(n), nil
	case "hybrid":
		return NewHybrid(n), nil
	}
	return nil, fmt.Errorf("unknown strategy %q", name)
}
