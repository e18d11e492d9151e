package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

type request struct {
	method, route string
	status        int
}

// handles caches the collectors of one vector by their labels, because a look-up in the vector costs more than counting. It reads
// a map that does not change: new labels are added to a copy, which takes the map's place.
type handles[K comparable, V any] struct {
	find func(K) V

	mu    sync.Mutex // held while the map is copied
	known atomic.Pointer[map[K]V]
}

func newHandles[K comparable, V any](find func(K) V) *handles[K, V] {
	h := &handles[K, V]{find: find}
	h.known.Store(&map[K]V{})
	return h
}

func (h *handles[K, V]) of(labels K) V {
	if handle, ok := (*h.known.Load())[labels]; ok {
		return handle
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	handle := h.find(labels) // the same collector for equal labels
	next := maps.Clone(*h.known.Load())
	next[labels] = handle
	h.known.Store(&next)
	return handle
}

// all returns the collectors made so far. The caller must not change the map.
func (h *handles[K, V]) all() map[K]V { return *h.known.Load() }
