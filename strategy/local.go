package strategy

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"flashsale/model"
)

const (
	// shareAge is how old an instance's knowledge of an empty gate may be: within it a no costs nothing, and
	// after it units that came back, or that a dead instance never sold, are seen.
	shareAge = 250 * time.Millisecond
	// maxLooks bounds an attempt's looks at the gate: others may take what a look has brought, and then the gate
	// itself has to say.
	maxLooks = 2
	// shareSales bounds the sales that an instance keeps a share of; one that is forgotten is looked up again.
	shareSales = 10_000
)

// Local takes a unit from this instance's own share in memory first, then at the gate: both must say yes.
//
// Right: the gate and the database decide as they do for Redis; memory only says no, and only if a look at
// the gate, not older than a quarter of a second, has found too few units for the attempt.
// Breaks: as Redis does. An instance that dies takes nothing along, since a share is a leave to ask, not stock.
// Costs: a no from memory is the cheapest there is; units that come back are offered up to a quarter of a second
// late, and each instance looks at the gate when its share is used up.
type Local struct {
	redis  *Redis
	needs  Needs
	shares *otter.Cache[string, *share]
}

// share is what this instance may still ask the gate for on one sale.
type share struct {
	mu      sync.Mutex
	units   int64
	left    int64     // at the gate when it was last looked at
	lookAt  time.Time // when that was
	looking *look     // under way; nil if none is
}

// look is one question to the gate, for all who want to know at that moment.
type look struct {
	over chan struct{}
	ok   bool // set before over is closed
}

// NewLocal makes the strategy. Of what the gate has left, an instance takes LocalShare, a part of 1, and LocalBuffer
// units more, so that it does not look again for each of the last few.
func NewLocal(n Needs) *Local {
	return &Local{
		redis: NewRedis(n), needs: n,
		shares: otter.Must(&otter.Options[string, *share]{MaximumSize: shareSales}),
	}
}

// Deduct takes the units here, then at the gate, and gives them back here if the gate did not sell them. An attempt
// with a key of its buyer's asks the gate even if memory says no: it may repeat one that was accepted.
func (l *Local) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	s, found := l.shares.GetIfPresent(a.SaleID)
	if !found {
		s, _ = l.shares.SetIfAbsent(a.SaleID, &share{})
	}
	taken, exhausted := l.take(ctx, s, a)
	if exhausted && a.Keyless && l.needs.Control.Judge(a.SaleID) == model.Accepted {
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	outcome, err := l.redis.Deduct(ctx, a)
	sold := err == nil && outcome.Verdict == model.Accepted && !outcome.Repeated
	if taken && !sold {
		s.giveBack(int64(a.Quantity))
	}
	if err == nil && outcome.Verdict == model.SoldOut {
		s.learn(int64(a.Quantity)-1, l.needs.Now())
	}
	return outcome, err
}

// take takes units from the share, after a look at the gate if they don't suffice. exhausted: that look, or one
// shortly before, found too few. Neither: nobody knows, and the gate has to say.
func (l *Local) take(ctx context.Context, s *share, a model.Attempt) (taken, exhausted bool) {
	n := int64(a.Quantity)
	s.mu.Lock()
	defer s.mu.Unlock()
	for looks := 0; ; looks++ {
		switch {
		case s.units >= n:
			s.units -= n
			return true, false
		case s.left < n && l.needs.Now().Sub(s.lookAt) < shareAge:
			return false, true
		case looks == maxLooks || !l.look(ctx, s, a.SaleID):
			return false, false
		}
	}
}

// look asks the gate how many units are left and takes a new share. One caller does it for all who want it at that
// moment. The caller holds s.mu, which is free while the gate is asked.
func (l *Local) look(ctx context.Context, s *share, saleID string) (ok bool) {
	if other := s.looking; other != nil {
		s.mu.Unlock()
		defer s.mu.Lock()
		select {
		case <-other.over:
			return other.ok
		case <-ctx.Done():
			return false
		}
	}
	mine := &look{over: make(chan struct{})}
	s.looking = mine
	s.mu.Unlock()
	asked := l.needs.Now()
	states, err := l.needs.Gate.Peek(ctx, saleID)
	s.mu.Lock()
	defer close(mine.over)
	s.looking = nil
	if err != nil || !states[0].Open {
		return false
	}
	mine.ok = true
	s.left, s.lookAt = states[0].Left, asked
	s.units = min(s.left, int64(math.Ceil(float64(s.left)*l.needs.LocalShare))+l.needs.LocalBuffer)
	return true
}

func (s *share) giveBack(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units += n
}

// learn notes that the gate had no more than left units at an instant.
func (s *share) learn(left int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.lookAt = left, now
	s.units = min(s.units, left)
}

// UsesGate is true: the script that admits also counts.
func (*Local) UsesGate() bool { return true }

// Healthy is always so; Redis itself is asked elsewhere.
func (*Local) Healthy() error { return nil }

// Close refuses new attempts and waits for those under way.
func (l *Local) Close() { l.redis.Close() }
