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
	// settleWriters take batches at once: more make the database slower, not faster.
	settleWriters = 2
	// settleBatch entries go into one transaction: of a backlog, larger batches are cheaper; live ones are never that large.
	settleBatch = 512
	// sweepPeriod is how often all streams are looked at, for entries that nobody here was told of.
	sweepPeriod = time.Second
	// claimIdle is how long an entry may be with a consumer before another takes it: well above the time of
	// a transaction, well below the ten seconds in which every queued attempt ends.
	claimIdle = 3 * time.Second
	// maxDeliveries of an entry that can't be settled, before it is refused for good.
	maxDeliveries = 5
	// settleTimeout ends a transaction that the database doesn't finish; its entries are settled again.
	settleTimeout = 3 * time.Second
	// retryPause is the pause before the second try of a batch. It doubles with each try, up to retryMost: a sale whose
	// rows stay locked must not occupy a connection all the time, and a database that is back is noticed soon.
	retryPause = 200 * time.Millisecond
	retryMost  = 8 * retryPause
	// writerPatience is how long a writer waits for its batch before it goes on with other sales: well above the time of
	// a commit, and so short that few buyers of other sales notice.
	writerPatience = 100 * time.Millisecond
)

// Stream is what the settler needs of the gate.
type Stream interface {
	Read(ctx context.Context, saleID string, count int) (entries []model.Entry, bad []string, err error)
	Claim(ctx context.Context, saleID string, idle time.Duration, count int) (entries []model.Entry, bad []string, err error)
	Settled(ctx context.Context, saleID string, entries []model.Entry, outcomes []model.Outcome) error
	Wake(ctx context.Context, instance string, outcomes map[string]model.Outcome) error
}

// Ledger is what the settler needs of the database.
type Ledger interface {
	Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error)
	Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error)
	Log(ctx context.Context, actor, action, subject, detail string) error
}

// SettlerNeeds are the parts that a settler is made of.
type SettlerNeeds struct {
	Stream   Stream
	Ledger   Ledger
	Peek     func(ctx context.Context, saleIDs ...string) ([]model.GateState, error)
	LiveIDs  func() []string
	Queue    Queue // brings new entries to any instance's settler; nil: this one settles what it reads
	Outbox   Outbox
	Grace    time.Duration // how long after its deadline an order ends; for a Queue that can wake
	Instance string
	Batch    int                            // most entries in one transaction; 0: settleBatch
	Wake     func(map[string]model.Outcome) // buyers who wait on this instance
	Observe  func(entries int, d time.Duration)
	Now      func() time.Time
	Log      *slog.Logger
}

// Settler writes admitted attempts to the database in batches as they come: what gathers while one
// transaction runs is the next batch.
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

// Notify says that a sale's stream has an entry.
func (s *Settler) Notify(saleID string) { s.due.add(saleID, false) }

// Run settles until ctx ends; the batches under way are finished.
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
	ids := s.LiveIDs()
	if len(ids) == 0 {
		return nil
	}
	states, err := s.Peek(ctx, ids...)
	if err != nil {
		return err
	}
	for i, state := range states {
		if state.Stream > 0 {
			s.due.add(ids[i], true)
		}
	}
	return nil
}

// Drain settles until no stream of the live sales has an entry that is for this instance, or ctx ends: the last act
// before the stores go. With a Queue it follows Run: it ends the consumers, and settles as well what they have not got.
func (s *Settler) Drain(ctx context.Context) error {
	if s.relay != nil {
		if err := s.relay.end(ctx); err != nil {
			return err
		}
	}
	for _, id := range s.LiveIDs() {
		for {
			entries, bad, err := s.Stream.Read(ctx, id, s.Batch)
			if err == nil && len(entries)+len(bad) == 0 && s.relay != nil {
				entries, bad, err = s.Outbox.Own(ctx, id, s.Batch)
			}
			if err != nil {
				return err
			}
			if len(entries)+len(bad) == 0 {
				break
			}
			if err := s.direct(ctx, id, entries, bad); err != nil {
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
			saleID, claim, ok := s.due.take()
			if !ok {
				break
			}
			s.warn(ctx, saleID, s.turn(ctx, saleID, claim))
		}
	}
}

// turn settles one batch of a sale. Once it is read another writer may go on with the sale, so that one transaction
// works while the other waits for the disk; it comes behind the other sales that are due. A batch that takes long, as
// when another session has locked the stock row, leaves the writer to other sales.
func (s *Settler) turn(ctx context.Context, saleID string, claim bool) error {
	entries, bad, claimed, err := s.next(ctx, saleID, claim)
	if err != nil || len(entries)+len(bad) == 0 {
		return err
	}
	s.due.add(saleID, claimed) // what is more than a batch
	return s.patiently(ctx, saleID, writerPatience, &s.due.late, func() error {
		if s.relay != nil && !claimed {
			return s.relay.publish(ctx, saleID, entries, bad)
		}
		return s.direct(ctx, saleID, entries, bad)
	})
}

// patiently runs a batch of a sale and waits for its end, but not for longer than patience: then the batch goes on by
// itself, and until it ends the sale is late, so that no other batch of the sale begins.
func (s *Settler) patiently(ctx context.Context, saleID string, patience time.Duration, late *lateSales, batch func() error) error {
	done := make(chan error, 1)
	late.under.Go(func() { done <- batch() })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	late.begin(saleID)
	late.under.Go(func() {
		s.warn(ctx, saleID, <-done)
		late.end(saleID)
		s.due.again(saleID)
	})
	return nil
}

// warn logs that a batch failed, unless a stop has ended it.
func (s *Settler) warn(ctx context.Context, saleID string, err error) {
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("settle; the entries stay in the stream", "sale", saleID, "error", err)
	}
}

// direct settles entries that come from the stream itself. Where a queue should have brought them they are counted, once
// their batch has succeeded.
func (s *Settler) direct(ctx context.Context, saleID string, entries []model.Entry, bad []string) error {
	err := s.batch(ctx, saleID, entries, bad)
	if err == nil && s.relay != nil {
		s.relay.around.Add(int64(len(entries)))
	}
	return err
}

// next takes entries that another consumer, or the queue, has left, if they are wanted and there are any, else new ones.
func (s *Settler) next(ctx context.Context, saleID string, claim bool) (entries []model.Entry, bad []string, claimed bool, err error) {
	if claim {
		entries, bad, err = s.Stream.Claim(ctx, saleID, claimIdle, s.Batch)
		if err != nil || len(entries)+len(bad) > 0 {
			return entries, bad, true, err
		}
	}
	entries, bad, err = s.Stream.Read(ctx, saleID, s.Batch)
	return entries, bad, false, err
}

// batch brings entries to the database, wakes their buyers, and acknowledges them. Once read, a batch is finished although ctx may end meanwhile; only a database that is away makes it give up.
func (s *Settler) batch(ctx context.Context, saleID string, entries []model.Entry, bad []string) error {
	for _, text := range bad {
		s.Log.Error("an entry that nobody can read was deleted from the stream", "sale", saleID, "entry", text)
		if err := s.Ledger.Log(ctx, "engine", "delete_entry", saleID, text); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	start := s.Now()
	entries, outcomes, err := s.settle(ctx, saleID, entries)
	if errors.Is(err, model.ErrBroken) {
		entries, outcomes, err = s.oneByOne(ctx, saleID, entries)
	}
	if len(entries) == 0 {
		return err
	}
	s.Observe(len(entries), s.Now().Sub(start))
	s.wake(ctx, entries, outcomes)
	err = errors.Join(err, s.Stream.Settled(context.WithoutCancel(ctx), saleID, entries, outcomes))
	if s.relay != nil {
		s.relay.wakeLater(ctx, outcomes)
	}
	return err
}

// settle tries until the database answers, says that the entries are broken, or ctx ends. Before each further try the
// stream is asked which of the entries are still there: another instance may have settled them, and what was lost with
// Redis must not become an order after its buyer was told so. It gives the entries that it has settled, or that are broken.
func (s *Settler) settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Entry, []model.Outcome, error) {
	for try := 0; ; try++ {
		if try > 0 {
			if pause(ctx, s.retryAfter(saleID, try)); ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			there, err := s.Outbox.Unsettled(ctx, saleID, entries)
			if err != nil {
				continue
			}
			if entries = there; len(entries) == 0 {
				return nil, nil, nil
			}
		}
		outcomes, err := s.settleOnce(ctx, saleID, entries)
		switch {
		case err == nil || errors.Is(err, model.ErrBroken):
			return entries, outcomes, err
		case ctx.Err() != nil:
			return nil, nil, err
		case try == 0:
			s.Log.Error("settle; trying again", "sale", saleID, "entries", len(entries), "error", err)
		}
	}
}

// retryAfter is the pause before a try, 1 or later: from a half to the whole of its longest, by sale and instance, so that
// not all of them try together.
func (s *Settler) retryAfter(saleID string, try int) time.Duration {
	longest := min(retryPause<<min(try-1, 10), retryMost)
	part := crc32.ChecksumIEEE([]byte(saleID + s.Instance))
	return longest/2 + longest/2*time.Duration(part)/math.MaxUint32
}

// settleOnce finishes although ctx may end meanwhile, but not later than the time-out.
func (s *Settler) settleOnce(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return s.Ledger.Settle(ctx, saleID, entries)
}

// oneByOne settles each entry of a broken batch alone. One that is broken by itself is left to be delivered
// again, and refused for good when that has happened too often.
func (s *Settler) oneByOne(ctx context.Context, saleID string, entries []model.Entry) (done []model.Entry, outcomes []model.Outcome, err error) {
	for _, e := range entries {
		settled, outcome, oneErr := s.settle(ctx, saleID, []model.Entry{e})
		if errors.Is(oneErr, model.ErrBroken) && e.Deliveries >= maxDeliveries {
			s.Log.Error("refused an attempt that can't be settled", "sale", saleID, "order", e.ID, "error", oneErr)
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

// wake tells the buyers, here or on other instances. A wake-up that is lost costs a buyer the wait, no more.
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
			s.Log.Warn("wake buyers of another instance", "instance", instance, "error", err)
		}
	}
}
