package service

import (
	"maps"
	"sync"
	"sync/atomic"

	"flashsale/model"
)

// Tally counts how purchase requests ended, by sale. A count usually costs a look-up in a map that is never modified, and an
// atomic addition.
type Tally struct {
	catalog *Catalog
	mu      sync.Mutex // held while the map is replaced
	counts  atomic.Pointer[map[tallied]*atomic.Int64]
}

type tallied struct {
	saleID  string
	verdict model.Verdict
}

// NewTally creates an empty tally for the sales that catalog watches.
func NewTally(catalog *Catalog) *Tally {
	t := &Tally{catalog: catalog}
	t.counts.Store(&map[tallied]*atomic.Int64{})
	return t
}

// Count counts one request. A request for a sale that isn't watched is left out, because clients can invent ids.
func (t *Tally) Count(saleID string, verdict model.Verdict) {
	kind := tallied{saleID, verdict}
	count, ok := (*t.counts.Load())[kind]
	if !ok {
		if t.catalog.InMemory(saleID) == nil {
			return
		}
		count = t.add(kind)
	}
	count.Add(1)
}

// add creates the count of a kind that occurs for the first time.
func (t *Tally) add(kind tallied) *atomic.Int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := *t.counts.Load()
	if count, ok := counts[kind]; ok {
		return count // another goroutine was first
	}
	next := maps.Clone(counts)
	next[kind] = &atomic.Int64{}
	t.counts.Store(&next)
	return next[kind]
}

// Counts returns the counts of the watched sales by sale and verdict, and forgets those of other sales.
func (t *Tally) Counts() map[string]map[model.Verdict]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	watched := maps.Clone(*t.counts.Load())
	maps.DeleteFunc(watched, func(kind tallied, _ *atomic.Int64) bool { return t.catalog.InMemory(kind.saleID) == nil })
	t.counts.Store(&watched)
	bySale := map[string]map[model.Verdict]int64{}
	for kind, count := range watched {
		if bySale[kind.saleID] == nil {
			bySale[kind.saleID] = map[model.Verdict]int64{}
		}
		bySale[kind.saleID][kind.verdict] = count.Load()
	}
	return bySale
}
