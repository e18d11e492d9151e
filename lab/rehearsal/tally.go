package rehearsal

import (
	"cmp"
	"math"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Stage is a step of a buyer's walk.
type Stage string

// The stages, in the order of the report. Bots have stages of their own, so that they do not change the figures of people.
const (
	pageStage    Stage = "page"
	timeStage    Stage = "time"
	streamStage  Stage = "stream"
	pathStage    Stage = "path"
	orderStage   Stage = "order"
	pollStage    Stage = "poll"
	paymentStage Stage = "payment"
	sandboxStage Stage = "sandbox"
	lookStage    Stage = "look"
	botPathStage Stage = "bot path"
	botBuyStage  Stage = "bot order"
)

var stages = []Stage{
	pageStage, timeStage, streamStage, pathStage, orderStage, pollStage, paymentStage, sandboxStage, lookStage, botPathStage, botBuyStage,
}

const (
	// onTime is the delay up to which an arrival, or the p99 of Report.SendLag, counts as on time.
	onTime = 10 * time.Millisecond
	// longest is the longest time of a histogram. A longer time is recorded as this one.
	longest = 2 * time.Minute
	// digits is the number of significant digits of the histograms.
	digits = 2
)

// counter counts answers, and collects how long each took. It is safe for concurrent use.
type counter struct {
	mu      sync.Mutex
	took    *hdrhistogram.Histogram // in microseconds
	answers map[string]int
}

func newCounter() *counter {
	return &counter{took: hdrhistogram.New(1, longest.Microseconds(), digits), answers: map[string]int{}}
}

func (c *counter) add(answer string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[answer]++
	_ = c.took.RecordValue(min(max(took.Microseconds(), 1), longest.Microseconds())) // no error within the bounds
}

// figures returns what was collected, without a stage.
func (c *counter) figures() StageFigures {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(percent float64) float64 { return float64(c.took.ValueAtQuantile(percent)) / 1000 }
	return StageFigures{Requests: int(c.took.TotalCount()), Latency: Latency{at(50), at(99), at(100)}, Answers: counts(c.answers)}
}

// Latency has the figures of a distribution of times.
type Latency struct {
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

// tally collects the figures of a run. Its methods other than perSecond are safe for concurrent use.
type tally struct {
	stages  map[Stage]*counter
	lag     *counter // how late requests were sent
	seconds []Second // the fields of its elements are changed by atomic additions

	waited     atomic.Int64 // requests that waited for a connection
	unsent     atomic.Int64 // buyers who did not come, because too many were under way
	unstreamed atomic.Int64 // buyers without a stream, because too many streams were open
}

// newTally makes a tally with seconds for a run of this length.
func newTally(lasts time.Duration) *tally {
	t := &tally{stages: map[Stage]*counter{}, lag: newCounter(), seconds: make([]Second, int(lasts/time.Second)+1)}
	for _, s := range stages {
		t.stages[s] = newCounter()
	}
	return t
}

// second returns the figures of the second at this time after the start, or of the nearest second of the run.
func (t *tally) second(sinceStart time.Duration) *Second {
	return &t.seconds[min(max(int(sinceStart/time.Second), 0), len(t.seconds)-1)]
}

// arrived counts a buyer who was due at this time after the start. "lag" is how much later the buyer began the walk.
func (t *tally) arrived(due, lag time.Duration) {
	s := t.second(due)
	atomic.AddInt64(&s.Arrived, 1)
	if lag > onTime {
		atomic.AddInt64(&s.Late, 1)
	}
}

// done counts a buyer who had an answer, or gave up, at this time after the start.
func (t *tally) done(at time.Duration) { atomic.AddInt64(&t.second(at).Done, 1) }

// Second is what happened in a second of the run.
type Second struct {
	Arrived int64 `json:"arrived"` // by the second in which they were due
	Late    int64 `json:"late"`    // those of Arrived who began their walk more than onTime late
	Done    int64 `json:"done"`    // buyers who had their answer, or gave up
}

// perSecond returns the seconds up to the last one in which something happened. It may only be called after the run.
func (t *tally) perSecond() []Second {
	last := len(t.seconds)
	for last > 1 && t.seconds[last-1] == (Second{}) {
		last--
	}
	return t.seconds[:last]
}

// sustained returns the largest number of arrivals in a second in which at least 99 of 100 were on time.
func sustained(seconds []Second) (most int64) {
	for _, s := range seconds {
		if s.Late*100 <= s.Arrived {
			most = max(most, s.Arrived)
		}
	}
	return most
}

// StageFigures are the figures of a stage. The latency counts from the time at which the request was due.
type StageFigures struct {
	Stage    Stage `json:"stage"`
	Requests int   `json:"requests"`
	Latency
	Answers []Count `json:"answers"`
}

// Count says how often something happened.
type Count struct {
	What string `json:"what"`
	N    int    `json:"n"`
}

// counts lists the entries of a map, the largest count first.
func counts(m map[string]int) []Count {
	list := make([]Count, 0, len(m))
	for what, n := range m {
		list = append(list, Count{what, n})
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.What, b.What)) })
	return list
}

// stageFigures lists the stages that had requests.
func (t *tally) stageFigures() (list []StageFigures) {
	for _, name := range stages {
		f := t.stages[name].figures()
		if f.Stage = name; f.Requests > 0 {
			list = append(list, f)
		}
	}
	return list
}

// schedulerWait is the name of the runtime's histogram of how long goroutines that are ready to run wait for a processor.
const schedulerWait = "/sched/latencies:seconds"

// processorWait begins to measure how long goroutines wait for a processor. "p99" returns an upper bound of the 99th percentile.
func processorWait() (p99 func() time.Duration) {
	read := func() *metrics.Float64Histogram {
		sample := []metrics.Sample{{Name: schedulerWait}}
		metrics.Read(sample)
		return sample[0].Value.Float64Histogram()
	}
	before := slices.Clone(read().Counts)
	return func() time.Duration {
		now := read()
		total := uint64(0)
		for i := range now.Counts {
			total += now.Counts[i] - before[i]
		}
		seen := uint64(0)
		for i := range now.Counts {
			if seen += now.Counts[i] - before[i]; seen*100 >= total*99 {
				return time.Duration(min(now.Buckets[i+1], math.MaxInt32) * float64(time.Second))
			}
		}
		return 0
	}
}
