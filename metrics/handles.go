package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// request is what HTTP requests are told apart by.
type request struct {
	method, route string
	status        int
}

// handles keeps the collectors of one vector by their labels. Prometheus finds them too, by hashing every label
// under a lock, which costs more than to count; this is one look-up in a map that is only read. A label that
// comes for the first time copies the map.
type handles[K comparable, V any] struct {
	find func(K) V

	mu    sync.Mutex // one who copies at a time
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
	handle := h.find(labels) // the same for the same labels, whoever asks first
	next := maps.Clone(*h.known.Load())
	next[labels] = handle
	h.known.Store(&next)
	return handle
}

// all gives every collector that there is by now. The map is not the caller's to change.
func (h *handles[K, V]) all() map[K]V { return *h.known.Load() }
