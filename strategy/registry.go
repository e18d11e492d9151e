// Package strategy holds the strategies, which are ways to take units from stock. Each has its own file, and all have
// the same method:
//
//	Deduct(ctx, attempt) (model.Outcome, error)
//
// A refusal is an outcome. An error means that something broke; after model.ErrUnavailable the attempt may be tried again. The
// strategies refuse in the same order: not_found, not_started, ended, paused, limit_reached, sold_out. Only Local may refuse as
// sold_out from memory instead of limit_reached. A sale that was closed before its start has ended. Before these checks, an
// attempt whose id is known to the store that judges it gets its outcome or Queued, or idempotency_mismatch for another quantity.
package strategy

import (
	"context"
	"log/slog"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// Gate is the part of the gate in Redis that strategies use.
type Gate interface {
	// Admit takes the units of attempts and queues the attempts, or refuses them. The answers are in the order of the attempts. The
	// verdict is model.NoGate if no gate of the epoch LeastEpoch or a newer one is open, and model.Unsure if the database has to
	// decide. After an error in an answer the attempt may have been admitted.
	Admit(ctx context.Context, attempts []model.Attempt) []model.Admission
	// Peek reads the present state of gates, in the order of the arguments. It returns an error only if none can be read.
	Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error)
	// Batch returns the key under which an attempt is batched. If the node is known, the batch is judged on one node.
	Batch(ctx context.Context, a model.Attempt) string
	// Node returns the name of the Redis node that judges an attempt, or "" if there is one Redis only or the node is not known.
	Node(ctx context.Context, a model.Attempt) string
}

// Database is the part of the database that strategies use.
type Database interface {
	// Deduct writes orders for attempts on one sale, or refuses them. The outcomes are in the order of the attempts. Deduct
	// returns model.ErrLostRace, and writes nothing, if another transaction has changed the stock row after Deduct read it.
	Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
	// DeductLocked takes an attempt's units under a lock on the stock row and writes the order, or refuses the attempt.
	DeductLocked(ctx context.Context, a model.Attempt) (model.Outcome, error)
	// ReadStock reads the sale and its stock, and also the outcome of an attempt that is known or that the sale refuses.
	ReadStock(ctx context.Context, a model.Attempt) (model.StockView, error)
	// WriteStock writes an attempt's order and the stock computed from "look", even if it has changed since, or refuses the attempt.
	WriteStock(ctx context.Context, a model.Attempt, look model.StockView) (model.Outcome, error)
}

// Control is the part of service.Gates that strategies use.
type Control interface {
	// Judge returns model.Accepted if the sale sells now according to the memory of this instance, or else a refusal.
	Judge(saleID string) model.Verdict
	// NeedGate asks for an open gate for a sale that has none, and does not wait for it.
	NeedGate(saleID string)
}

// Settler is the part of worker.Settler that strategies use.
type Settler interface {
	// Add hands over entries that this instance has admitted. The settler tells their buyers the outcomes.
	Add(admitted []model.Entry)
	// Busy reports whether the settler writes a batch just now. What goes on beside that does not count.
	Busy() bool
}

// Needs are the dependencies and settings of strategies.
type Needs struct {
	Gate     Gate
	Database Database
	Control  Control
	Settler  Settler
	Log      *slog.Logger
	Now      func() time.Time
	Batch    int           // most attempts in one call of a store; it only lowers the default limit; 0: the default
	Lock     chan struct{} // of capacity 1; the lock of the strategy mutex
	// LocalShare, a fraction of 1, and LocalBuffer, in units, set how much of what is left at the gate a Local takes as its share.
	LocalShare  float64
	LocalBuffer int64
}

// callsAlone is how many calls of one key of a Batcher are under way at once if each attempt has a call of its own: as
// many as a Redis client has connections. The key is a node, a shard or a sale.
const callsAlone = 64

// batched returns l with batches of at most n.Batch attempts. If a batch has one attempt only, more calls run at once.
func (n Needs) batched(l batch.Limits) batch.Limits {
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
	// Deduct takes an attempt's units, or refuses the attempt. With model.Accepted the outcome has the durable order. The verdict is
	// model.Queued if a gate knew the attempt before, or admits it now and it is not settled while its buyer waits.
	Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error)
	// Healthy returns an error that names what the strategy lacks, or nil.
	Healthy() error
	// Close ends what the strategy has started, and waits until that has ended. A strategy with batches then refuses new attempts.
	Close()
}

// stateless has the methods of a strategy that starts nothing. The checks of the stores report what such a strategy lacks.
type stateless struct{}

func (stateless) Healthy() error { return nil }
func (stateless) Close()         {}

// Kind describes a strategy: its name, how to make it, and what other packages have to know of it.
type Kind struct {
	Name   string
	Lesson model.Lesson
	New    func(n Needs) Strategy
	// UsesGate is true if Deduct admits at the gate, and counts the user's requests (Attempt.Frequency) there.
	UsesGate bool
	// NeedsRedis is true if Deduct returns model.ErrUnavailable while Redis is away.
	NeedsRedis bool
	Oversells  Oversells
}

// Oversells says when a strategy sells units twice.
type Oversells string

// The values of Oversells.
const (
	Never            Oversells = ""
	WithTwoBuyers    Oversells = "two buyers come at once"
	WithTwoInstances Oversells = "there are two instances"
)

// Kinds returns all strategies.
func Kinds() []Kind {
	return []Kind{
		{Name: "naive", Lesson: naiveLesson, New: func(n Needs) Strategy { return &Naive{needs: n} }, Oversells: WithTwoBuyers},
		{Name: "mutex", Lesson: mutexLesson, New: func(n Needs) Strategy { return &Mutex{Naive{needs: n}} }, Oversells: WithTwoInstances},
		{Name: "pessimistic", Lesson: pessimisticLesson, New: func(n Needs) Strategy { return &Pessimistic{needs: n} }},
		{Name: "optimistic", Lesson: optimisticLesson, New: func(n Needs) Strategy { return &Optimistic{needs: n} }},
		{Name: "redis", Lesson: redisLesson, New: func(n Needs) Strategy { return NewRedis(n) }, UsesGate: true, NeedsRedis: true},
		{Name: "local", Lesson: localLesson, New: func(n Needs) Strategy { return NewLocal(n) }, UsesGate: true, NeedsRedis: true},
		{Name: "hybrid", Lesson: hybridLesson, New: func(n Needs) Strategy { return NewHybrid(n) }, UsesGate: true},
	}
}

// Of returns the strategy with this name; ok is false if there is none.
func Of(name string) (kind Kind, ok bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Names returns the names of all strategies.
func Names() (names []string) {
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
}
