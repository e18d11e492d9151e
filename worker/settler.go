package worker

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// settleWriters is how many batches an instance settles at once while a backlog waits, not counting late ones, and how many
	// consumers of a Queue it runs. More would make the database slower. Without a backlog there is one batch at a time, since a
	// larger batch costs less for each entry.
	settleWriters = 2
	// settleBatch is how many entries one transaction settles at most by default.
	settleBatch = 512
	// ackMost is how many entries one call of the gate deletes at most: Lua's unpack takes fewer than 8,000 values.
	ackMost = 4 * settleBatch
	// mostHeld is how many entries pending holds at most, some 2 KiB each. Others stay in their streams.
	mostHeld = 1 << 16
	// sweepPeriod is how often the streams are searched for entries that were left behind; longer with many sales (pace).
	sweepPeriod = time.Second
	// sweepMost is how many entries a sweep reads of each shard at most.
	sweepMost = 4096
	// leftAfter is the age at which an entry counts as left behind: well above the usual time of a transaction, and well below the
	// ten seconds in which queued attempts should end.
	leftAfter = 3 * time.Second
	// brokenTries is the number of the try at which an entry that can't be settled is refused for good.
	brokenTries = 5
	// settleTimeout bounds a transaction.
	settleTimeout = 3 * time.Second
	// retryPause is the longest pause before the second try of a batch. Each further try doubles it up to retryMost, so that a sale
	// whose rows stay locked does not always occupy a connection, and a batch succeeds soon after the database is back.
	retryPause = 200 * time.Millisecond
	retryMost  = 8 * retryPause
	// mixedTimeout bounds a transaction that settles several sales. After that each sale is settled alone: a row may be locked.
	mixedTimeout = 300 * time.Millisecond
	// writerPatience is how long a writer waits for its batch before it goes on with other sales: well above the time of a commit,
	// and hardly noticed by buyers.
	writerPatience = 100 * time.Millisecond
)

// Stream is what the settler needs of the gate.
type Stream interface {
	Leftovers(ctx context.Context, gates []model.GateRef, idle time.Duration, count int) (entries []model.Entry, bad map[string][]string, err error)
	Unsettled(ctx context.Context, entries []model.Entry) ([]model.Entry, error)
	Settled(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) (lost []model.GateRef, err error)
	Wake(ctx context.Context, instance string, outcomes map[string]model.Outcome) error
}

// Ledger is what the settler needs of the database.
type Ledger interface {
	Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error)
	SettleSales(ctx context.Context, entries []model.Entry) ([]model.Outcome, error)
	Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error)
	AuditLog
}

// SettlerNeeds are the dependencies and settings of a settler.
type SettlerNeeds struct {
	Stream   Stream
	Ledger   Ledger
	Live     func() []model.GateRef
	Running  func(ctx context.Context, within time.Duration) []string // the instances that have reported within this time
	Queue    Queue                                                    // nil: an instance settles what it has admitted
	Grace    time.Duration                                            // how long after its deadline an order expires
	Instance string
	Batch    int                            // most entries in one transaction; 0: settleBatch
	Linger   time.Duration                  // the wait for more entries if at most a batch waits
	AckPause time.Duration                  // the pause after a call that deletes fewer than Batch entries
	Apart    func(entries []model.Entry)    // lets Wake find the buyers of these entries
	Wake     func(map[string]model.Outcome) // tells outcomes to buyers, by their orders' ids
	Lost     func(gate model.GateRef)       // has a gate replaced that may lack an order
	Now      func() time.Time
	Log      *slog.Logger
}

// Settler writes admitted attempts to the database in batches. The entries that arrive while one transaction runs wait for a
// later one. The stream keeps each entry until it is settled, so that other instances can settle it if this one dies.
type Settler struct {
	SettlerNeeds
	pending *pending
	relay   *relay         // nil without a Queue
	age     time.Duration  // leftAfter, except in tests
	busy    atomic.Bool    // see Busy
	acks    sync.WaitGroup // the goroutine of acknowledge

	mu       sync.Mutex
	broken   map[string]int  // by order's id, the failed tries of entries that are broken even alone
	settled  []model.Entry   // wait to be deleted from their streams
	outcomes []model.Outcome // of the settled entries
	acking   bool
}

// NewSettler makes a settler.
func NewSettler(n SettlerNeeds) *Settler {
	if n.Batch == 0 {
		n.Batch = settleBatch
	}
	s := &Settler{SettlerNeeds: n, pending: newPending(), age: leftAfter, broken: map[string]int{}}
	if n.Queue != nil {
		s.relay = newRelay(s)
	}
	return s
}

// Add gives the settler entries that this instance has admitted. Those above mostHeld stay in their streams.
func (s *Settler) Add(entries []model.Entry) {
	if added := s.pending.add(entries); added < len(entries) {
		s.Apart(entries)
	}
}

// Run settles until ctx ends. Then it waits for the batches under way.
func (s *Settler) Run(ctx context.Context) {
	var writers sync.WaitGroup
	writers.Go(func() { s.write(ctx) })
	if s.relay != nil {
		writers.Go(func() { s.relay.run(ctx) })
	}
	everyPaced(ctx, "settler", sweepPeriod, func() int { return len(s.Live()) }, s.pending.room, s.Log, s.sweep)
	writers.Wait()
	s.pending.late.under.Wait()
}

// sweep adds entries that were left behind and that this instance has to settle: its own that it does not have in memory, for
// example because Redis's reply was lost or a batch failed, and those of instances that do not run any more.
func (s *Settler) sweep(ctx context.Context) error {
	s.pending.expect(false)
	entries, err := s.leftovers(ctx, s.age)
	if err != nil || len(entries) == 0 {
		return err
	}
	running, read := s.Running(ctx, leftAfter), len(entries)
	if s.adopt(entries, func(e model.Entry) bool { return s.heir(e, running) == s.Instance }) > 0 && read >= sweepMost {
		s.pending.expect(true)
	}
	return nil
}

// adopt adds those of the entries that are "ours", and returns how many were new.
func (s *Settler) adopt(entries []model.Entry, ours func(e model.Entry) bool) (added int) {
	entries = slices.DeleteFunc(entries, func(e model.Entry) bool { return !ours(e) })
	for i := range entries {
		entries[i].Swept = true
	}
	return s.pending.add(entries)
}

// heir returns the instance that settles an entry: the one that has admitted the attempt if that runs, or else a running one.
// Instances with the same list choose the same.
func (s *Settler) heir(e model.Entry, running []string) (heir string) {
	if e.Instance == s.Instance || slices.Contains(running, e.Instance) {
		return e.Instance
	}
	heir = s.Instance
	for _, name := range running {
		if crc32.ChecksumIEEE([]byte(e.SaleID+name)) < crc32.ChecksumIEEE([]byte(e.SaleID+heir)) {
			heir = name
		}
	}
	return heir
}

// leftovers returns the oldest entries of the streams that have at least this age. It also logs the unreadable entries, which
// were deleted, and records them in the audit log.
func (s *Settler) leftovers(ctx context.Context, age time.Duration) ([]model.Entry, error) {
	entries, bad, err := s.Stream.Leftovers(ctx, s.Live(), age, sweepMost)
	for saleID, texts := range bad {
		for _, text := range texts {
			s.Log.Error("an unreadable entry was deleted from the stream", "sale", saleID, "entry", text)
			err = errors.Join(err, s.Ledger.Log(ctx, "engine", "delete_entry", saleID, text))
		}
	}
	return entries, err
}

// Drain settles the unsettled entries that this instance has admitted, as far as the streams can be read. After an error some
// may be left. Call it at a stop, after the last admission and before the stores are closed. With a Queue, Run must have been
// called before: Drain ends its consumers.
func (s *Settler) Drain(ctx context.Context) error {
	if s.relay != nil {
		s.relay.stop() // from now on, entries are settled without the broker
		if err := ended(ctx, s.relay.stopped); err != nil {
			return err
		}
	}
	for {
		for ctx.Err() == nil {
			batches := s.pending.take(s.Batch)
			if len(batches) == 0 {
				break
			}
			for _, b := range batches {
				if err := s.dispatch(ctx, b); err != nil {
					return err
				}
			}
		}
		if err := s.pending.drained(ctx); err != nil {
			return err
		}
		acknowledged := make(chan struct{})
		go func() {
			s.acks.Wait()
			close(acknowledged)
		}()
		if err := ended(ctx, acknowledged); err != nil {
			return err
		}
		entries, err := s.leftovers(ctx, 0)
		if err != nil {
			return err
		}
		if s.adopt(entries, func(e model.Entry) bool { return e.Instance == s.Instance }) == 0 {
			return nil
		}
	}
}

func (s *Settler) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pending.signal:
		}
		for ctx.Err() == nil {
			if !s.pending.backlog(s.Batch) {
				pause.For(ctx, s.Linger)
			}
			batches := s.pending.take(s.Batch)
			if len(batches) == 0 {
				break
			}
			var turns sync.WaitGroup
			for range settleWriters - 1 {
				if s.pending.backlog(s.Batch) {
					more := s.pending.take(s.Batch)
					turns.Go(func() { s.warn(ctx, s.turn(ctx, more)) })
				}
			}
			s.busy.Store(true)
			s.warn(ctx, s.turn(ctx, batches))
			turns.Wait()
			s.busy.Store(false)
		}
	}
}

// Busy reports whether the writer has a batch under way.
func (s *Settler) Busy() bool { return s.busy.Load() }

// turn settles one batch. Without a queue, entries of several sales share a transaction; if that fails, each sale is settled by
// itself. A sale that takes long goes on in the background. turn returns the errors of the others.
func (s *Settler) turn(ctx context.Context, batches []saleBatch) error {
	if len(batches) > 1 && s.relay == nil && s.together(ctx, batches) {
		return nil
	}
	errs := make([]error, len(batches))
	var sales sync.WaitGroup
	for i, b := range batches {
		sales.Go(func() {
			errs[i] = s.patiently(ctx, b.gate, writerPatience, s.pending.late, func() error { return s.dispatch(ctx, b) })
		})
	}
	sales.Wait()
	return errors.Join(errs...)
}

// together settles entries of several sales in one transaction, and reports whether that succeeded.
func (s *Settler) together(ctx context.Context, batches []saleBatch) bool {
	var entries []model.Entry
	for _, b := range batches {
		entries = append(entries, b.entries...)
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), mixedTimeout)
	outcomes, err := s.Ledger.SettleSales(settling, entries)
	cancel()
	if err != nil {
		return false
	}
	s.finish(ctx, entries, outcomes)
	return true
}

func (s *Settler) dispatch(ctx context.Context, b saleBatch) error {
	if s.relay != nil {
		return s.relay.pass(ctx, b)
	}
	return s.settleSale(ctx, b.gate, b.entries)
}

// patiently settles a batch of a sale, and returns the error. If that takes longer than "patience", it returns nil, the batch
// goes on in the background, and the sale is in "late" until the batch ends.
func (s *Settler) patiently(
	ctx context.Context, gate model.GateRef, patience time.Duration, late *lateSales, settle func() error,
) error {
	done := make(chan error, 1)
	late.under.Go(func() { done <- settle() })
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
	}
	late.add(gate, 1)
	late.under.Go(func() {
		s.warn(ctx, <-done)
		late.add(gate, -1)
		s.pending.poke()
	})
	return nil
}

// warn logs that a batch failed, unless ctx has ended.
func (s *Settler) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("a batch can't be settled; its entries stay in the stream", "error", err)
	}
}

// settleSale settles entries of one sale, wakes their buyers, and has the entries deleted from the stream. If ctx ends, the
// transaction under way is still finished. After an error some entries may not be settled, and stay in the stream.
func (s *Settler) settleSale(ctx context.Context, gate model.GateRef, entries []model.Entry) error {
	settled, outcomes, err := s.settle(ctx, gate, entries)
	if errors.Is(err, model.ErrBroken) {
		settled, outcomes, err = s.oneByOne(ctx, gate, settled)
	}
	finished := make(map[string]bool, len(settled))
	for _, e := range settled {
		finished[e.ID] = true
	}
	// With an error, a sweep finds those of the others that are still in their streams. Otherwise the others have left the streams,
	// and their buyers have to look in the database.
	others := slices.DeleteFunc(slices.Clone(entries), func(e model.Entry) bool { return finished[e.ID] })
	s.Apart(others)
	for _, e := range others {
		if err == nil && e.Waiter != nil {
			e.Waiter.Tell(model.Outcome{Verdict: model.Queued}, nil)
		}
	}
	s.pending.done(others)
	if len(settled) > 0 {
		s.finish(ctx, settled, outcomes)
	}
	if err != nil {
		return fmt.Errorf("sale %s: %w", gate.SaleID, err)
	}
	return nil
}

// finish wakes the buyers of settled entries, and has the entries deleted from their streams.
func (s *Settler) finish(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) {
	s.wake(ctx, entries, outcomes)
	s.acknowledge(ctx, entries, outcomes)
	if s.relay != nil {
		s.relay.wakeLater(ctx, outcomes)
	}
}

// acknowledge deletes settled entries from their streams, in the background. Entries that gather meanwhile share later calls.
func (s *Settler) acknowledge(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled, s.outcomes = append(s.settled, entries...), append(s.outcomes, outcomes...)
	if s.acking {
		return
	}
	s.acking = true
	s.acks.Go(func() {
		for {
			entries, outcomes := s.nextAcks()
			if len(entries) == 0 {
				return
			}
			lost, err := s.Stream.Settled(context.WithoutCancel(ctx), entries, outcomes)
			for _, gate := range lost {
				s.Lost(gate)
			}
			if err != nil {
				s.Log.Warn("settled entries can't be deleted from the stream yet", "entries", len(entries), "error", err)
			}
			s.pending.done(entries)     // not before, or a sweep would settle them again
			if len(entries) < s.Batch { // otherwise there is a backlog
				pause.For(ctx, s.AckPause)
			}
		}
	})
}

// nextAcks removes and returns the entries of the next call, and their outcomes; none if the goroutine has to end.
func (s *Settler) nextAcks() ([]model.Entry, []model.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.settled), ackMost)
	s.acking = n > 0
	entries, outcomes := s.settled[:n:n], s.outcomes[:n:n]
	s.settled, s.outcomes = s.settled[n:], s.outcomes[n:]
	return entries, outcomes
}

// settle tries until the entries are settled or found to be broken, or until ctx ends. Before each further try it asks the
// stream which entries are still there: another instance may have settled some, and entries that were lost with Redis must not
// become orders after their buyers were told of the loss. It returns the entries that it has settled, with their outcomes; or
// those of a broken batch, with model.ErrBroken; or none, with an error if ctx has ended.
func (s *Settler) settle(ctx context.Context, gate model.GateRef, entries []model.Entry) ([]model.Entry, []model.Outcome, error) {
	for try := 0; ; try++ {
		if try > 0 {
			if !pause.For(ctx, s.retryAfter(gate, try)) {
				return nil, nil, ctx.Err()
			}
			there, err := s.Stream.Unsettled(ctx, entries)
			if err != nil {
				continue
			}
			if entries = there; len(entries) == 0 {
				return nil, nil, nil
			}
		}
		// The transaction goes on if ctx ends, but not for longer than settleTimeout.
		settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		outcomes, err := s.Ledger.Settle(settling, gate.SaleID, entries)
		cancel()
		switch {
		case err == nil || errors.Is(err, model.ErrBroken):
			return entries, outcomes, err
		case ctx.Err() != nil:
			return nil, nil, err
		case try == 0:
			s.Log.Error("a batch can't be settled; it is tried again", "sale", gate.SaleID, "entries", len(entries), "error", err)
		}
	}
}

// retryAfter returns the pause before a further try of a batch; "try" is 1 for the second try. The pause is between half of the
// longest one and the longest one, by sale and instance, so that not all batches are tried at once.
func (s *Settler) retryAfter(gate model.GateRef, try int) time.Duration {
	longest := min(retryPause<<min(try-1, 10), retryMost)
	part := crc32.ChecksumIEEE([]byte(gate.SaleID + s.Instance))
	return longest/2 + longest/2*time.Duration(part)/math.MaxUint32
}

// oneByOne settles each entry of a broken batch by itself. An entry that is broken even alone stays in the stream for a sweep;
// at the try brokenTries it is refused for good. done are the entries that were settled or refused, with their outcomes.
func (s *Settler) oneByOne(ctx context.Context, gate model.GateRef, entries []model.Entry) (done []model.Entry, outcomes []model.Outcome, err error) {
	for _, e := range entries {
		settled, outcome, oneErr := s.settle(ctx, gate, []model.Entry{e})
		if errors.Is(oneErr, model.ErrBroken) && s.tries(e) >= brokenTries {
			s.Log.Error("refused an attempt that can't be settled", "sale", gate.SaleID, "order", e.ID, "error", oneErr)
			refused, refuseErr := s.Ledger.Refuse(ctx, e, model.ReasonFailed)
			outcome, oneErr = []model.Outcome{refused}, refuseErr
		}
		if oneErr != nil {
			err = errors.Join(err, oneErr)
			continue
		}
		s.mu.Lock()
		delete(s.broken, e.ID)
		s.mu.Unlock()
		done, outcomes = append(done, settled...), append(outcomes, outcome...)
	}
	return done, outcomes, err
}

// tries counts a failed try of an entry, and returns how many there were.
func (s *Settler) tries(e model.Entry) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[e.ID]++
	return s.broken[e.ID]
}

// wake tells the outcomes to the buyers here, and wakes those on other instances, as far as possible.
func (s *Settler) wake(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) {
	byInstance := map[string]map[string]model.Outcome{}
	for i, e := range entries {
		if e.Waiter != nil {
			e.Waiter.Tell(outcomes[i], nil)
			continue
		}
		if byInstance[e.Instance] == nil {
			byInstance[e.Instance] = map[string]model.Outcome{}
		}
		byInstance[e.Instance][e.ID] = outcomes[i]
	}
	for instance, list := range byInstance {
		if instance == s.Instance {
			s.Wake(list)
			continue
		}
		if err := s.Stream.Wake(ctx, instance, list); err != nil {
			s.Log.Warn("can't wake buyers of another instance", "instance", instance, "error", err)
		}
	}
}
