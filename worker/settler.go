package worker

import (
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	"math"
	"sync"
	"time"

	"flashsale/model"
)

const (
	// settleWriters is how many writers, goroutines that settle batches, an instance runs. With a Queue it runs as many
	// consumers. More of them make the database slower, not faster.
	settleWriters = 2
	// settleBatch is how many entries one transaction settles at most. Large batches make it cheaper to settle a backlog;
	// without a backlog, batches never get that large.
	settleBatch = 512
	// sweepPeriod is how often all streams are checked for entries that this instance was not notified of.
	sweepPeriod = time.Second
	// claimIdle is how long a consumer may hold an entry before another one claims it. It is well above the time of a
	// transaction, and well below the ten seconds in which every queued attempt ends.
	claimIdle = 3 * time.Second
	// maxDeliveries is the number of the delivery at which an entry that can't be settled is refused for good.
	maxDeliveries = 5
	// settleTimeout bounds a transaction. After that its entries are settled again.
	settleTimeout = 3 * time.Second
	// retryPause is the longest pause before the second try of a batch. It doubles with each try, up to retryMost. The
	// growth keeps a sale whose rows stay locked from occupying a connection all the time; the limit lets a batch succeed
	// soon after the database is back.
	retryPause = 200 * time.Millisecond
	retryMost  = 8 * retryPause
	// writerPatience is how long a writer waits for its batch before it goes on with other sales. It is well above the
	// time of a commit, and so short that few buyers of other sales notice.
	writerPatience = 100 * time.Millisecond
)

// Stream is what the settler needs of the gate.
type Stream interface {
	Read(ctx context.Context, gate model.GateRef, count int) (entries []model.Entry, bad []string, err error)
	Claim(ctx context.Context, gate model.GateRef, idle time.Duration, count int) (entries []model.Entry, bad []string, err error)
	Settled(ctx context.Context, gate model.GateRef, entries []model.Entry, outcomes []model.Outcome) error
	Wake(ctx context.Context, instance string, outcomes map[string]model.Outcome) error
}

// Ledger is what the settler needs of the database.
type Ledger interface {
	Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error)
	Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error)
	Log(ctx context.Context, actor, action, subject, detail string) error
}

// SettlerNeeds are the dependencies and settings of a settler.
type SettlerNeeds struct {
	Stream   Stream
	Ledger   Ledger
	Peek     func(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error)
	Live     func() []model.GateRef
	Queue    Queue // carries new entries to any instance's settler; nil: this one settles what it reads
	Outbox   Outbox
	Grace    time.Duration // how long after its deadline an order expires; for a Queue that is a Delayer
	Instance string
	Batch    int                            // most entries in one transaction; 0: settleBatch
	Wake     func(map[string]model.Outcome) // wakes buyers who wait on this instance
	Now      func() time.Time
	Log      *slog.Logger
}

// Settler writes admitted attempts to the database in batches. The entries that arrive while one transaction runs are
// the next batch.
type Settler struct {
	SettlerNeeds
	due   *dueSales
	relay *relay // nil without a Queue
}

// NewSettler makes a settler.
func NewSettler(n SettlerNeeds) *Settler {
	if n.Batch == 0 {
		n.Batch = settleBatch
	}
	s := &Settler{SettlerNeeds: n, due: newDueSales()}
	if n.Queue != nil {
		s.relay = newRelay(s)
	}
	return s
}

// Notify makes a sale due, because its stream has a new entry.
func (s *Settler) Notify(gate model.GateRef) { s.due.add(gate, false) }

// Run settles until ctx ends, and until the batches under way are finished.
func (s *Settler) Run(ctx context.Context) {
	var writers sync.WaitGroup
	for range settleWriters {
		writers.Go(func() { s.write(ctx) })
	}
	if s.relay != nil {
		writers.Go(func() { s.relay.run(ctx) })
	}
	every(ctx, "settler", sweepPeriod, nil, s.Log, s.sweep)
	writers.Wait()
	s.due.late.under.Wait()
}

// sweep makes every sale due whose stream is not empty.
func (s *Settler) sweep(ctx context.Context) error {
	gates := s.Live()
	if len(gates) == 0 {
		return nil
	}
	states, err := s.Peek(ctx, gates...)
	if err != nil {
		return err
	}
	for i, state := range states {
		if state.Stream > 0 {
			s.due.add(gates[i], true)
		}
	}
	return nil
}

// Drain settles until the streams of the live sales have no more entries for this instance, or until ctx ends. It is
// called at a stop, before the stores are closed. With a Queue, Run must have been called before: Drain ends Run's
// consumers, and also settles the entries that they did not get.
func (s *Settler) Drain(ctx context.Context) error {
	if s.relay != nil {
		if err := s.relay.end(ctx); err != nil {
			return err
		}
	}
	for _, gate := range s.Live() {
		for {
			entries, bad, err := s.Stream.Read(ctx, gate, s.Batch)
			if err == nil && len(entries)+len(bad) == 0 && s.relay != nil {
				entries, bad, err = s.Outbox.Own(ctx, gate, s.Batch)
			}
			if err != nil {
				return err
			}
			if len(entries)+len(bad) == 0 {
				break
			}
			if err := s.direct(ctx, gate, entries, bad); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

func (s *Settler) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.due.signal:
		}
		for ctx.Err() == nil {
			gate, claim, ok := s.due.take()
			if !ok {
				break
			}
			s.warn(ctx, gate, s.turn(ctx, gate, claim))
		}
	}
}

// turn settles one batch of a sale. As soon as the batch is read, the sale is due again, behind the other sales that
// are due, so that another writer may go on with it: one transaction works while the other waits for the disk. A batch
// that takes long, for example because another session has locked the stock row, goes on in the background, and the
// writer goes on with other sales.
func (s *Settler) turn(ctx context.Context, gate model.GateRef, claim bool) error {
	entries, bad, claimed, err := s.next(ctx, gate, claim)
	if err != nil || len(entries)+len(bad) == 0 {
		return err
	}
	s.due.add(gate, claimed) // the stream may have more than one batch
	return s.patiently(ctx, gate, writerPatience, &s.due.late, func() error {
		if s.relay != nil && !claimed {
			return s.relay.publish(ctx, gate, entries, bad)
		}
		return s.direct(ctx, gate, entries, bad)
	})
}

// patiently runs a batch of a sale and waits for its end, but not for longer than patience. After that the batch goes
// on in the background. The sale is late until the batch ends, so that no other batch of the sale begins.
func (s *Settler) patiently(ctx context.Context, gate model.GateRef, patience time.Duration, late *lateSales, batch func() error) error {
	done := make(chan error, 1)
	late.under.Go(func() { done <- batch() })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	late.begin(gate)
	late.under.Go(func() {
		s.warn(ctx, gate, <-done)
		late.end(gate)
		s.due.again(gate)
	})
	return nil
}

// warn logs that a batch failed, unless ctx has ended.
func (s *Settler) warn(ctx context.Context, gate model.GateRef, err error) {
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("a batch can't be settled; its entries stay in the stream", "sale", gate.SaleID, "error", err)
	}
}

// direct settles entries that come from the stream itself. With a Queue it counts them as bypassed after their batch
// has succeeded.
func (s *Settler) direct(ctx context.Context, gate model.GateRef, entries []model.Entry, bad []string) error {
	err := s.batch(ctx, gate, entries, bad)
	if err == nil && s.relay != nil {
		s.relay.around.Add(int64(len(entries)))
	}
	return err
}

// next returns a batch of entries. If claim is true, it first claims entries that another consumer, or the queue, has
// left for claimIdle. If there are none, or claim is false, it reads new entries.
func (s *Settler) next(ctx context.Context, gate model.GateRef, claim bool) (entries []model.Entry, bad []string, claimed bool, err error) {
	if claim {
		entries, bad, err = s.Stream.Claim(ctx, gate, claimIdle, s.Batch)
		if err != nil || len(entries)+len(bad) > 0 {
			return entries, bad, true, err
		}
	}
	entries, bad, err = s.Stream.Read(ctx, gate, s.Batch)
	return entries, bad, false, err
}

// batch settles entries in the database, wakes their buyers, and acknowledges the entries. If ctx ends, the batch is
// still finished, unless the database fails.
func (s *Settler) batch(ctx context.Context, gate model.GateRef, entries []model.Entry, bad []string) error {
	for _, text := range bad {
		s.Log.Error("an unreadable entry was deleted from the stream", "sale", gate.SaleID, "entry", text)
		if err := s.Ledger.Log(ctx, "engine", "delete_entry", gate.SaleID, text); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	entries, outcomes, err := s.settle(ctx, gate, entries)
	if errors.Is(err, model.ErrBroken) {
		entries, outcomes, err = s.oneByOne(ctx, gate, entries)
	}
	if len(entries) == 0 {
		return err
	}
	s.wake(ctx, entries, outcomes)
	err = errors.Join(err, s.Stream.Settled(context.WithoutCancel(ctx), gate, entries, outcomes))
	if s.relay != nil {
		s.relay.wakeLater(ctx, outcomes)
	}
	return err
}

// settle tries until the entries are settled or found to be broken (model.ErrBroken), or until ctx ends. Before each
// further try it asks the stream which of the entries are still there: another instance may have settled some of them,
// and entries that were lost with Redis must not become orders after their buyers were told that they are lost. It
// returns the entries that it has settled, or that are broken.
func (s *Settler) settle(ctx context.Context, gate model.GateRef, entries []model.Entry) ([]model.Entry, []model.Outcome, error) {
	for try := 0; ; try++ {
		if try > 0 {
			if pause(ctx, s.retryAfter(gate, try)); ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			there, err := s.Outbox.Unsettled(ctx, gate, entries)
			if err != nil {
				continue
			}
			if entries = there; len(entries) == 0 {
				return nil, nil, nil
			}
		}
		// The transaction goes on although ctx may end, but not for longer than settleTimeout.
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

// retryAfter returns the pause before a try, counted from 1: between half of the longest pause and the whole. The value
// depends on the sale and the instance, so that not all of them try at the same time.
func (s *Settler) retryAfter(gate model.GateRef, try int) time.Duration {
	longest := min(retryPause<<min(try-1, 10), retryMost)
	part := crc32.ChecksumIEEE([]byte(gate.SaleID + s.Instance))
	return longest/2 + longest/2*time.Duration(part)/math.MaxUint32
}

// oneByOne settles each entry of a broken batch in a transaction of its own. An entry that is broken by itself stays in
// the stream and is delivered again; at delivery number maxDeliveries it is refused for good.
func (s *Settler) oneByOne(ctx context.Context, gate model.GateRef, entries []model.Entry) (done []model.Entry, outcomes []model.Outcome, err error) {
	for _, e := range entries {
		settled, outcome, oneErr := s.settle(ctx, gate, []model.Entry{e})
		if errors.Is(oneErr, model.ErrBroken) && e.Deliveries >= maxDeliveries {
			s.Log.Error("refused an attempt that can't be settled", "sale", gate.SaleID, "order", e.ID, "error", oneErr)
			refused, refuseErr := s.Ledger.Refuse(ctx, e, model.ReasonFailed)
			outcome, oneErr = []model.Outcome{refused}, refuseErr
		}
		if oneErr != nil {
			err = errors.Join(err, oneErr)
			continue
		}
		done, outcomes = append(done, settled...), append(outcomes, outcome...)
	}
	return done, outcomes, err
}

// wake wakes the buyers who wait, on this instance or on others. If a wake-up is lost, its buyer only waits longer.
func (s *Settler) wake(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) {
	byInstance := map[string]map[string]model.Outcome{}
	for i, e := range entries {
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
