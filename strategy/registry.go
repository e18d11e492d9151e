// Package strategy holds the strategies, which are ways to take units from stock. Each has its own file, and this method:
//
//	Deduct(ctx, attempt) (model.Outcome, error)
//
// A refusal is an outcome. An error means that something broke; after model.ErrUnavailable the attempt may be tried again. The
// strategies refuse in this order: not_found, not_started, ended, paused, limit_reached, sold_out. But Local may refuse as
// sold_out from memory. A sale that was closed counts as ended, even before its start.
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
	// verdict is model.NoGate if no open gate can judge, and model.Unsure if the database has to decide. After an error in an
	// answer the attempt may have been admitted.
	Admit(ctx context.Context, attempts []model.Attempt) []model.Admission
	// Peek reads the state of gates, in the order of the arguments. It returns an error only if none can be read.
	Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error)
	// Batch returns the key under which an attempt is batched.
	Batch(ctx context.Context, a model.Attempt) string
	// Node returns the name of the Redis node that judges an attempt, or "" without a Cluster or if the node is not known.
	Node(ctx context.Context, a model.Attempt) string
}

// Database is the part of the database that strategies use.
type Database interface {
	// Deduct writes orders for attempts on one sale, or refuses them. The outcomes are in the order of the attempts. Deduct returns
	// model.ErrLostRace, and has written nothing, if it has lost a race for the stock row.
	Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
	// DeductLocked takes an attempt's units under a lock on the stock row, or refuses the attempt.
	DeductLocked(ctx context.Context, a model.Attempt) (model.Outcome, error)
	// ReadStock reads the sale and its stock, and also the outcome of an attempt that is known or refused.
	ReadStock(ctx context.Context, a model.Attempt) (model.StockView, error)
	// WriteStock writes an attempt's order and the stock computed from "look", even if it has changed since, or refuses.
	WriteStock(ctx context.Context, a model.Attempt, look model.StockView) (model.Outcome, error)
}

// Control tells strategies about sales, and gets their requests for gates.
type Control interface {
	// Judge returns model.Accepted if the sale sells now by the memory of this instance, or else a refusal.
	Judge(saleID string) model.Verdict
	// NeedGate asks for an open gate for a sale, and does not wait for it.
	NeedGate(saleID string)
}

// Settler settles admitted attempts.
type Settler interface {
	// Add hands over entries that this instance has just admitted. The settler tells their buyers the outcomes.
	Add(admitted []model.Entry)
	// Busy reports whether the settler's writer has a batch under way.
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
	Batch    int           // most attempts in one call of a store, if that is less than the default; 0: the default
	Lock     chan struct{} // of capacity 1; the lock of the strategy mutex
	// LocalShare, a fraction of 1, and LocalBuffer, in units, set how large a share of Local is.
	LocalShare  float64
	LocalBuffer int64
}

// callsAlone is how many calls of one key of a Batcher may be under way at once if each attempt has a call of its own.
const callsAlone = 64

// batched returns l with batches of at most n.Batch attempts, and with more calls if a batch has one attempt.
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
	// Deduct takes an attempt's units, or refuses the attempt. With model.Accepted the outcome has the order. The verdict is
	// model.Queued if a gate knows the attempt, and its outcome is not known while the buyer waits.
	Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error)
	// Healthy returns an error that says what the strategy lacks, or nil.
	Healthy() error
	// Close ends what the strategy has started, and waits for that.
	Close()
}

// stateless has a Healthy and a Close that do nothing.
type stateless struct{}

func (stateless) Healthy() error { return nil }
func (stateless) Close()         {}

// Kind describes a strategy.
type Kind struct {
	Name   string
	Lesson model.Lesson
	New    func(n Needs) Strategy
	// UsesGate is true if Deduct asks the gate, which also counts the user's requests.
	UsesGate bool
	// NeedsRedis is true if the strategy sells nothing while Redis is away.
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
