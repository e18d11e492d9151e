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

// store is what a call goes to.
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

// patience is how long a caller waits for a store that is silent: the clients of the engine have such limits.
// They end between two milliseconds, and so never together with one of the engine's own.
var patience = map[store]time.Duration{
	inRedis: 990*time.Millisecond + 137*time.Microsecond, inDatabase: 9900*time.Millisecond + 137*time.Microsecond, nowhere: time.Hour,
}

// call is something that wants to happen. Its caller is parked until the scheduler decides what becomes of it.
type call struct {
	label  string // its kind, its caller and what it asks for; calls that are alike in all of it may change places
	store  store
	writes bool
	from   *instance
	run    func(context.Context) error // does it; only the scheduler runs it, so that stores are asked one thing at a time
	odd    []error                     // what the store may answer besides, having done nothing
	answer chan error                  // nil: what run has found; else the error that the caller hears instead
	stuck  bool                        // it hangs until its caller loses patience
	left   bool                        // its caller has gone; what was asked for may still happen
}

// turns has the calls of all that goes on in one simulated world, and lets them happen one at a time.
type turns struct {
	mu     sync.Mutex
	parked []*call
	asks   map[string]func()   // what instances ask of themselves, by what it is: they are done before the next call
	logged map[string]struct{} // what the engine logged since the last step; many speak at once, so it is sorted
}

// await parks a call. nil: the scheduler ran it; else what the caller hears.
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

// post parks a call that nobody waits for: a message on its way.
func (w *turns) post(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.answer, c.left = make(chan error, 1), true
	w.parked = append(w.parked, c)
}

// ask notes what an instance asks of itself. Those who ask for the same at once ask once, in whatever order they come.
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

// rest waits until nobody moves, and does what was asked for meanwhile.
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

// tellLog brings what the engine has logged into the trace.
func (s *sim) tellLog() {
	s.mu.Lock()
	logged := s.logged
	s.logged = map[string]struct{}{}
	s.mu.Unlock()
	for _, line := range sorted(logged) {
		s.note("  log: %s", line)
	}
}

// waiting are the calls that may happen now, in an order that depends on nothing but what they are.
func (s *sim) waiting() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = slices.DeleteFunc(s.parked, func(c *call) bool { return c.left && !c.writes }) // it would change nothing
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

func (s *sim) take(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = slices.DeleteFunc(s.parked, func(other *call) bool { return other == c })
}

// step lets one thing happen: what was planned for this time, a call, or the passing of a little time.
func (s *sim) step() {
	s.rest()
	s.look()
	if s.err != nil || s.happen() {
		return
	}
	calls := s.waiting()
	if len(calls) == 0 || s.rng.IntN(100) < s.plan.idle {
		// Never less than the pauses of a lost race, which are drawn by chance, can add up to.
		time.Sleep(time.Duration(25+s.rng.IntN(30)) * time.Millisecond) // of the bubble's clock
		return
	}
	s.decide(calls[s.rng.IntN(len(calls))])
}

// decide gives a call its fate.
func (s *sim) decide(c *call) {
	fate := s.fate(c)
	s.note("%s: %s", c.label, fate)
	switch fate {
	case happens:
		s.take(c)
		s.run(c)
		s.answer(c, nil)
	case fails:
		s.take(c)
		s.answer(c, silence(c.store))
	case loses:
		s.take(c)
		s.run(c)
		s.answer(c, silence(c.store))
	case hangs:
		c.stuck = true
	case late:
		// The caller hears of a failure at once; what it asked for stays, and may happen later.
		s.answer(c, silence(c.store))
		s.mu.Lock()
		c.left = true
		s.mu.Unlock()
	case odd:
		s.take(c)
		s.answer(c, c.odd[s.rng.IntN(len(c.odd))])
	case drops:
		s.take(c)
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

// run does a call. The stores themselves never fail here, so that what they say is the engine's doing.
func (s *sim) run(c *call) {
	if err := c.run(context.Background()); err != nil {
		s.fail("%s: %w", c.label, err)
	}
	if c.writes && c.store == inDatabase {
		s.known.forget()
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

// fate draws one. When the faults are over everything happens.
func (s *sim) fate(c *call) fate {
	switch {
	case c.store == nowhere:
		return happens
	case s.calm:
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
