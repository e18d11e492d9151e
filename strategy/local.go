package strategy

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"flashsale/model"
)

const (
	// shareAge is how long an instance may refuse from memory after the gate was seen to have too few units.
	shareAge = 250 * time.Millisecond
	// maxLooks bounds an attempt's looks at the gate. After that the gate itself judges the attempt.
	maxLooks = 2
	// shareSales bounds the sales for which an instance keeps a share.
	shareSales = 10_000
)

var localLesson = model.Lesson{
	How: "Local takes the units from this instance's own share in memory first, then at the gate. Memory can only refuse an " +
		"attempt; only the gate admits one.",
	Right: "the gate and the database decide as they do for the strategy redis. Memory refuses an attempt only if at most a " +
		"quarter of a second ago the gate had too few units for it.",
	Breaks: "without Redis it sells nothing (503), as the strategy redis. An instance that dies loses no units, since a share is " +
		"only permission to ask the gate, not stock.",
	Costs: "a refusal from memory costs no call to Redis. Released units are offered up to a quarter of a second late, and each " +
		"instance looks at the gate when its share is used up.",
}

// Local is the strategy that localLesson describes.
type Local struct {
	*Redis
	needs  Needs
	shares *otter.Cache[string, *share]
	looks  singleflight.Group // at gates, by sale
}

// share has the units of a sale for which this instance may still ask the gate.
type share struct {
	mu     sync.Mutex
	units  int64
	left   int64     // upper bound of the units left at the gate at lookAt
	lookAt time.Time // of the last look at the gate, or of its last refusal as sold out
}

// NewLocal makes the strategy. A share is the fraction Needs.LocalShare of the units left at the gate, rounded up, and
// Needs.LocalBuffer more, but at most all. The buffer saves looks at the gate for the last few units.
func NewLocal(n Needs) *Local {
	return &Local{Redis: NewRedis(n), needs: n, shares: otter.Must(&otter.Options[string, *share]{MaximumSize: shareSales})}
}

// Deduct takes the units from the share, then at the gate as Redis.Deduct does. It returns them to the share unless they were
// sold. If share and gate have too few and the sale sells now, an attempt without a buyer's own key gets SoldOut from memory. An
// attempt with such a key asks the gate, since it may repeat an accepted one.
func (l *Local) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	s, _ := l.shares.ComputeIfAbsent(a.SaleID, func() (*share, bool) { return &share{}, false })
	taken, exhausted := l.take(ctx, s, a)
	if exhausted && a.Keyless && l.needs.Control.Judge(a.SaleID) == model.Accepted {
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	outcome, err := l.Redis.Deduct(ctx, a)
	sold := err == nil && (outcome.Verdict == model.Accepted || outcome.Verdict == model.Queued) && !outcome.Repeated
	if sold {
		return outcome, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken {
		s.units += int64(a.Quantity)
	}
	if err == nil && outcome.Verdict == model.SoldOut { // fewer units are left than the attempt wants
		s.left, s.lookAt = int64(a.Quantity)-1, l.needs.Now()
		s.units = min(s.units, s.left)
	}
	return outcome, err
}

// take takes the attempt's units from the share, after a look at the gate if needed. taken is true if the share had them.
// exhausted is true if the gate had too few units less than shareAge ago. If both are false, the gate has to judge the attempt.
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
		case looks == maxLooks || !l.look(ctx, s, a.GateRef()):
			return false, false
		}
	}
}

// look reads the number of units left at the gate, and takes a new share. Concurrent callers share a look. ok is false if the
// gate can't be read or is not open, or if ctx ends. The caller holds s.mu, which look releases meanwhile.
func (l *Local) look(ctx context.Context, s *share, gate model.GateRef) (ok bool) {
	s.mu.Unlock()
	defer s.mu.Lock()
	looked := l.looks.DoChan(gate.SaleID, func() (any, error) {
		asked := l.needs.Now()
		states, err := l.needs.Gate.Peek(ctx, gate)
		if err != nil || !states[0].Open {
			return false, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left, s.lookAt = states[0].Left, asked
		s.units = min(s.left, int64(math.Ceil(float64(s.left)*l.needs.LocalShare))+l.needs.LocalBuffer)
		return true, nil
	})
	select {
	case r := <-looked:
		return r.Val == true
	case <-ctx.Done():
		return false
	}
}
