package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// store is the target of a call.
type store string

const (
	inRedis    store = "redis"
	inDatabase store = "database"
	nowhere    store = "" // a buyer's own step
)

var (
	errRedis    = errors.New("redis: no answer")
	errDatabase = errors.New("database: no answer")
	errGone     = errors.New("this instance was killed")
)

// patience is how long a caller waits for a silent store; the engine's clients have such limits. The waits have a
// fraction of a millisecond, so that none ends at the same time as a timer of the engine.
var patience = map[store]time.Duration{
	inRedis: 990*time.Millisecond + 137*time.Microsecond, inDatabase: 9900*time.Millisecond + 137*time.Microsecond, nowhere: time.Hour,
}

// call is a pending action. Its caller is parked until the scheduler decides its fate.
type call struct {
	label  string // kind, caller and subject; calls with the same label are interchangeable
	store  store
	writes bool
	from   *instance
	run    func() error // executes the call; only the scheduler runs it, so that a store gets one at a time
	odd    []error      // errors that the store may return instead, without an effect
	answer chan error   // nil: run was executed; otherwise the error for the caller
	stuck  bool         // hangs until its caller gives up
	left   bool         // its caller has gone, but the call may still happen
}

// turns holds the parked calls of one simulated world, which happen one at a time.
type turns struct {
	mu     sync.Mutex
	parked []*call
	asks   map[string]func()   // requests of instances to themselves, by text; they run before the next call
	logged map[string]struct{} // the engine's messages since the last step; a set, since their order depends on chance
}

// await parks a call. It returns nil if the scheduler ran the call, otherwise the error for the caller.
func (w *turns) await(ctx context.Context, c *call) error {
	c.answer = make(chan error, 1)
	w.mu.Lock()
	if c.from.dead {
		w.mu.Unlock()
		return errGone
	}
	w.parked = append(w.parked, c)
	w.mu.Unlock()
	timer := time.NewTimer(patience[c.store])
	defer timer.Stop()
	var err error
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.from.gone:
		err = errGone
	case <-timer.C:
		err = silence(c.store)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.left = true
	return err
}

// post parks a call without a caller that waits: a message in flight.
func (w *turns) post(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.answer, c.left = make(chan error, 1), true
	w.parked = append(w.parked, c)
}

// ask stores a request of an instance to itself. Concurrent requests for the same become one, so their order does not
// matter.
func (w *turns) ask(what string, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks[what] = do
}

func silence(s store) error {
	if s == inDatabase {
		return errDatabase
	}
	return errRedis
}

// rest waits until all goroutines are blocked, and runs the stored requests until there are none.
func (s *sim) rest() {
	for {
		synctest.Wait()
		s.mu.Lock()
		asks := s.asks
		s.asks = map[string]func(){}
		s.mu.Unlock()
		s.tellLog()
		if len(asks) == 0 {
			return
		}
		for _, what := range sorted(asks) {
			asks[what]()
			synctest.Wait()
		}
	}
}

// tellLog adds the engine's log messages to the trace.
func (s *sim) tellLog() {
	s.mu.Lock()
	logged := s.logged
	s.logged = map[string]struct{}{}
	s.mu.Unlock()
	for _, line := range sorted(logged) {
		s.note("  log: %s", line)
	}
}

// waiting returns the calls that may happen now. Their order depends on the calls alone.
func (s *sim) waiting() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = slices.DeleteFunc(s.parked, func(c *call) bool { return c.left && !c.writes }) // a read whose caller has gone changes nothing
	var list []*call
	for _, c := range s.parked {
		if !c.stuck || c.left {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.label, b.label), cmp.Compare(b2i(a.left), b2i(b.left)))
	})
	return list
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// step lets one thing happen: a planned event, a call, or the passing of a little time.
func (s *sim) step() {
	s.rest()
	s.look()
	if s.err != nil || s.happen() {
		return
	}
	calls := s.waiting()
	if len(calls) == 0 || s.rng.IntN(100) < s.plan.idle {
		// The pause is at least as long as the random pauses after lost races can be together.
		time.Sleep(time.Duration(25+s.rng.IntN(30)) * time.Millisecond) // of the bubble's clock
		return
	}
	s.decide(calls[s.rng.IntN(len(calls))])
}

// decide draws the fate of a call and carries it out.
func (s *sim) decide(c *call) {
	fate, gathering := s.fate(c), ""
	if c.store == inDatabase && strings.Contains(c.label, " settler: settle ") && c.from.gathers.Swap(false) {
		gathering = whileGathering
	}
	s.note("%s: %s%s", c.label, fate, gathering)
	if fate == hangs {
		c.stuck = true
		return
	}
	if fate == late { // the caller gets an error at once; the call stays parked and may happen later
		s.answer(c, silence(c.store))
		s.mu.Lock()
		c.left = true
		s.mu.Unlock()
		return
	}
	s.mu.Lock()
	s.parked = slices.DeleteFunc(s.parked, func(other *call) bool { return other == c })
	s.mu.Unlock()
	if fate == happens || fate == loses {
		s.run(c)
	}
	switch fate {
	case fails, loses:
		s.answer(c, silence(c.store))
	case odd:
		s.answer(c, c.odd[s.rng.IntN(len(c.odd))])
	default: // happens; or drops, when nobody waits for the answer
		s.answer(c, nil)
	}
}

func (s *sim) answer(c *call, err error) {
	s.mu.Lock()
	left := c.left
	s.mu.Unlock()
	if !left {
		c.answer <- err
	}
}

// run executes a call. The stores themselves never fail here, so an unexpected error is the engine's fault.
func (s *sim) run(c *call) {
	if err := c.run(); err != nil {
		s.fail("%s: %w", c.label, err)
	}
	if c.writes && c.store == inDatabase {
		s.known.Lock()
		s.known.list = nil
		s.known.Unlock()
	}
}

// fate is what becomes of a call.
type fate string

const (
	happens fate = "done"
	fails   fate = "failed"
	loses   fate = "done, its answer lost"
	hangs   fate = "hangs"
	late    fate = "given up, and still on its way"
	odd     fate = "refused by the store"
	drops   fate = "never arrives"
)

// whileGathering follows, in the trace, the fate of a settle if the gate has waited for more attempts while it was under way.
const whileGathering = ", while attempts gather"

// fate draws the fate of a call. When the faults are over, every call happens.
func (s *sim) fate(c *call) fate {
	switch {
	case c.store == nowhere || s.calm:
		return happens
	case c.left:
		if s.away(c.store, c.from.place) || s.rng.IntN(100) < s.plan.drop {
			return drops
		}
		return happens
	case s.away(c.store, c.from.place):
		if s.rng.IntN(100) < s.plan.silent {
			return hangs
		}
		return fails
	}
	draw := s.rng.IntN(1000)
	for _, p := range s.plan.faults[c.store] {
		if draw -= p.perMille; draw >= 0 {
			continue
		}
		if p.fate == odd && len(c.odd) == 0 || !c.writes && (p.fate == loses || p.fate == late) {
			return fails
		}
		return p.fate
	}
	return happens
}

// away reports whether a store can't be reached from a place now.
func (s *sim) away(from store, place int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.awayUntil[from]
	return time.Now().Before(until[everywhere]) || time.Now().Before(until[place])
}

func (s *sim) note(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%7.3f  ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
		s.note("WRONG: %v", s.err)
	}
}
