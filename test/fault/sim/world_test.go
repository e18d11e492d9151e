package sim

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
)

const (
	// recovery is the time after the last fault within which everything must be right again.
	recovery = 10 * time.Second
	// audit is how long the auditor takes to find an error although all sums agree.
	audit = 45 * time.Second
	// payTimeout and payGrace are short, so that orders expire while faults last.
	payTimeout = 3 * time.Second
	payGrace   = 500 * time.Millisecond
	// mostSteps is the longest trace: a world that doesn't come to rest fails there.
	mostSteps = 30_000
	// everywhere stands for the places of all instances.
	everywhere = -1
)

// sim is one simulated world: real parts of the engine over a real SQLite file and the scripts of the gate, in a bubble
// whose clock advances only when all goroutines are blocked. All chance comes from the seed.
type sim struct {
	turns
	seed     uint64
	plan     plan
	rng      *rand.Rand // the scheduler's own
	mutation mutation

	ctx      context.Context
	work     sync.WaitGroup // all goroutines of the world, except people
	began    time.Time
	db       *repository.Store
	live     *repository.LiveSales
	redis    *miniredis.Miniredis
	client   *redis.Client
	gate     *gate.Gate // for the scheduler's own checks
	ids      model.OrderIDs
	books    books
	careless *sql.DB // the connection of a careless ledger
	sales    []string

	places    []*instance // the instance in each place; nil: none
	starts    []int       // number of starts in each place
	ahead     []happening // planned events, in the order of their times
	awayUntil map[store]map[int]time.Time
	known     struct {
		sync.Mutex
		list []model.Offer // the live sales; nil: something was written since they were read
	}
	calm     bool // the faults are over
	snapshot *snapshot

	people sync.WaitGroup // buyers and the operator
	memory memory         // what they were told

	trace []string
	err   error
}

// plan holds what a seed decides about a world beforehand.
type plan struct {
	places, sales, crowd, limit int
	quota                       int64
	span                        time.Duration // of the faults
	idle                        int           // percentage of steps in which time passes although calls wait
	drop, silent                int           // percentages: late calls that never arrive; calls to an absent store that hang
	faults                      map[store][]chance
	happenings                  []happening
}

// chance is how many of a thousand calls have a fate.
type chance struct {
	fate     fate
	perMille int
}

// happening is an event at a time after the world's beginning.
type happening struct {
	at   time.Duration
	what string
	do   func(*sim)
}

// draw makes a plan. Each kind of fault occurs only in some worlds, so that none hides another.
func draw(rng *rand.Rand) plan {
	p := plan{
		places: 1 + rng.IntN(3), sales: 1 + b2i(rng.IntN(4) == 0), limit: 1 + b2i(rng.IntN(3) == 0),
		crowd: 14 + rng.IntN(14), span: time.Duration(3000+rng.IntN(4000)) * time.Millisecond,
		idle: 2 + rng.IntN(15), drop: rng.IntN(80), silent: rng.IntN(60), faults: map[store][]chance{},
	}
	p.quota = int64(p.crowd/(2*p.sales) + rng.IntN(3))
	for _, s := range []store{inRedis, inDatabase} {
		for _, f := range []fate{fails, loses, hangs, late, odd} {
			if rng.IntN(2) == 0 {
				p.faults[s] = append(p.faults[s], chance{f, 1 + rng.IntN(60)})
			}
		}
	}
	at := func() time.Duration { return time.Duration(rng.Int64N(int64(p.span))) }
	for range rng.IntN(6) {
		p.happenings = append(p.happenings, misfortunes[rng.IntN(len(misfortunes))](rng, p, at())...)
	}
	slices.SortStableFunc(p.happenings, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	return p
}

// misfortunes are the kinds of events that a plan may have.
var misfortunes = []func(rng *rand.Rand, p plan, at time.Duration) []happening{
	func(rng *rand.Rand, p plan, at time.Duration) []happening {
		place, rest := rng.IntN(p.places), time.Duration(rng.IntN(3000))*time.Millisecond
		return []happening{{at, fmt.Sprintf("the instance in place %d is killed", place), func(s *sim) {
			s.kill(place)
			s.later(rest, "it starts again", func(s *sim) { s.start(place) })
		}}}
	},
	absence(inRedis),
	absence(inDatabase),
	func(_ *rand.Rand, _ plan, at time.Duration) []happening {
		return []happening{{at, "redis is emptied", func(s *sim) { s.redis.FlushAll() }}}
	},
	func(rng *rand.Rand, _ plan, at time.Duration) []happening {
		before := time.Duration(rng.Int64N(int64(at) + 1))
		return []happening{
			{before, "redis is copied", func(s *sim) { s.snapshot = s.copyRedis() }},
			{at, "redis goes back to its last copy", func(s *sim) { s.putBack(s.snapshot) }},
		}
	},
	func(_ *rand.Rand, _ plan, at time.Duration) []happening {
		return []happening{{at, "redis forgets the scripts", func(s *sim) { s.must(s.client.ScriptFlush(context.Background()).Err()) }}}
	},
}

// absence makes a store unreachable for a while, for all instances or for those in one place.
func absence(from store) func(rng *rand.Rand, p plan, at time.Duration) []happening {
	return func(rng *rand.Rand, p plan, at time.Duration) []happening {
		place, long := rng.IntN(p.places+1)-1, time.Duration(50+rng.IntN(2500))*time.Millisecond
		return []happening{{at, fmt.Sprintf("%s is away from place %d for %s", from, place, long), func(s *sim) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.awayUntil[from][place] = time.Now().Add(long)
		}}}
	}
}

// simulate runs the world of a seed to its end. It returns the trace, and the first error.
func simulate(t *testing.T, seed uint64, m mutation) (trace []string, err error) {
	t.Helper()
	template := m.template(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, seed, m, template)
		defer func() {
			s.end()
			trace, err = s.trace, s.err
		}()
		s.play()
	})
	return trace, err
}

func newSim(t *testing.T, seed uint64, m mutation, template []byte) *sim {
	// Stores round times to milliseconds. In the middle of a millisecond none of them rounds the other way.
	time.Sleep(500 * time.Microsecond) // of the bubble's clock
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &sim{
		seed: seed, rng: rng, plan: draw(rng), mutation: m, began: time.Now(),
		turns:     turns{asks: map[string]func(){}, logged: map[string]struct{}{}},
		awayUntil: map[store]map[int]time.Time{inRedis: {}, inDatabase: {}},
		ids:       model.NewOrderIDs([]byte("a key that only the server has")),
		memory:    memory{names: map[string]string{}, attempts: map[string]*attempt{}, charges: map[string]*charge{}},
	}
	s.ahead = s.plan.happenings
	s.places, s.starts = make([]*instance, s.plan.places), make([]int, s.plan.places)
	var stop context.CancelFunc
	s.ctx, stop = context.WithCancel(context.Background())
	t.Cleanup(stop)

	path := filepath.Join(t.TempDir(), "world.db")
	s.must(os.WriteFile(path, template, 0o600))
	var err error
	s.db, err = repository.Open(context.Background(), "sqlite:"+path, 1)
	s.must(err)
	s.live = repository.NewLiveSales(s.db)
	for _, db := range []**sql.DB{&s.books.db, &s.careless} {
		*db, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
		s.must(err)
	}
	s.books.db.SetMaxOpenConns(1)

	s.redis = miniredis.NewMiniRedis()
	s.client = redis.NewClient(pipe(s.redis))
	s.gate = gate.New(s.client, "scheduler")
	return s
}

// must panics on an error that can't occur in a bubble.
func (s *sim) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("seed %d: %v", s.seed, err))
	}
}

// play runs the world: sales open, faults happen, the faults end, everything becomes right, and the rest is sold.
func (s *sim) play() {
	for n := range s.plan.sales {
		s.sales = append(s.sales, s.openSale(n))
	}
	for place := range s.places {
		s.start(place)
	}
	s.gather()
	for s.err == nil && (time.Since(s.began) < s.plan.span || len(s.ahead) > 0) {
		s.step()
	}
	s.endFaults()
	over := time.Now()
	s.pass(recovery)
	s.allEnded(over)
	s.until("everybody has gone home", time.Minute, s.everybodyHome)
	// Unpaid orders expire, and the gates get the last releases.
	s.pass(payTimeout + payGrace + time.Second)
	s.until("the gates count every user's units right", audit, s.sameUnits)
	s.agreement()
	s.sellTheRest()
}

// until runs steps until the function so returns true. It fails the world after most.
func (s *sim) until(what string, most time.Duration, so func() bool) {
	start := time.Now()
	for s.rest(); s.err == nil && !so(); s.rest() {
		if time.Since(start) > most || len(s.trace) > mostSteps {
			s.fail("not in %s: %s", most, what)
			return
		}
		s.step()
	}
}

func (s *sim) pass(d time.Duration) {
	start := time.Now()
	s.until("time passes", d+time.Second, func() bool { return time.Since(start) >= d })
}

// happen runs the next planned event if its time has come, and reports whether it did.
func (s *sim) happen() bool {
	if len(s.ahead) == 0 || time.Since(s.began) < s.ahead[0].at {
		return false
	}
	h := s.ahead[0]
	s.ahead = s.ahead[1:]
	s.note("*** %s", h.what)
	h.do(s)
	return true
}

func (s *sim) later(after time.Duration, what string, do func(*sim)) {
	s.ahead = append(s.ahead, happening{time.Since(s.began) + after, what, do})
	slices.SortStableFunc(s.ahead, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
}

// endFaults ends all faults: the stores can be reached, no call is lost, and an instance runs in every place.
func (s *sim) endFaults() {
	if s.err != nil {
		return
	}
	s.rest()
	s.note("*** the faults are over")
	s.mu.Lock()
	s.calm = true
	clear(s.awayUntil[inRedis])
	clear(s.awayUntil[inDatabase])
	s.mu.Unlock()
	for place, i := range s.places {
		if i == nil {
			s.start(place)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.parked {
		c.stuck = false
	}
}

func (s *sim) end() {
	for place := range s.places {
		s.kill(place)
	}
	s.people.Wait()
	s.work.Wait()
	s.must(s.client.Close())
	s.redis.Close()
	s.must(s.books.db.Close())
	s.must(s.careless.Close())
	s.must(s.db.Close())
}

// openSale makes a sale that is open for as long as any world lasts.
func (s *sim) openSale(n int) string {
	id := strings.Repeat("S", model.IDLength-1) + string(rune('A'+n))
	sale := model.Sale{
		ID: id, Code: fmt.Sprint("code", n), Title: "simulated", PriceCents: 100, Currency: "EUR", LimitPerUser: s.plan.limit,
		PayTimeoutSeconds: int(payTimeout.Seconds()), StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour),
	}
	s.must(s.db.CreateSale(context.Background(), sale, s.plan.quota, "operator"))
	s.memory.names[id] = string(rune('A' + n))
	return id
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// logger stores the messages of warnings and errors for the trace. It omits the attributes, which may differ by chance.
type logger struct {
	s    *sim
	from string
}

func (logger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l logger) WithAttrs([]slog.Attr) slog.Handler             { return l }
func (l logger) WithGroup(string) slog.Handler                  { return l }

func (l logger) Handle(_ context.Context, r slog.Record) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.logged[l.from+" "+r.Message] = struct{}{}
	return nil
}
