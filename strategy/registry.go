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
	"fmt"
	"log/slog"

	"flashsale/model"
)

// Gate is what strategies need of Redis.
type Gate interface {
	// Admit takes an attempt's units and queues it, or refuses it. model.ErrNoGate: no open gate of this epoch.
	Admit(ctx context.Context, a model.Attempt, epoch int64) (model.Outcome, error)
}

// Database is what strategies need of the truth.
type Database interface {
	// Deduct writes orders for attempts on one sale if no other writer comes between, else model.ErrLostRace.
	Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
}

// Control is what strategies need of the instance's control module.
type Control interface {
	// Epoch is the newest generation of a sale's gate that this instance has heard of.
	Epoch(saleID string) int64
	// NeedGate asks for an open gate of a sale that has none; it doesn't wait for it.
	NeedGate(saleID, reason string)
	// ReplaceGate asks for a new gate in place of one that is wrong; it doesn't wait for it.
	ReplaceGate(saleID, reason string)
}

// Needs are the parts that strategies are made of.
type Needs struct {
	Gate     Gate
	Database Database
	Control  Control
	Log      *slog.Logger
	Retried  func() // counts a transaction that lost its race
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

// Names lists the strategies that New makes.
func Names() []string { return []string{"hybrid", "redis", "optimistic"} }

// New makes the strategy of a name.
func New(name string, n Needs) (Strategy, error) {
	switch name {
	case "hybrid":
		return NewHybrid(n), nil
	case "redis":
		return NewRedis(n), nil
	case "optimistic":
		return NewOptimistic(n), nil
	}
	return nil, fmt.Errorf("unknown strategy %q", name)
}
