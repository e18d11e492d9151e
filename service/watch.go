package service

import (
	"context"
	"sync"
	"sync/atomic"
)

// Newest is a value that many goroutines follow. A busy follower misses values, so there is no queue that could fill.
type Newest[T any] struct{ held atomic.Pointer[held[T]] }

type held[T any] struct {
	value    T
	replaced chan struct{}
}

// NewNewest creates a Newest that holds value.
func NewNewest[T any](value T) *Newest[T] {
	n := &Newest[T]{}
	n.held.Store(&held[T]{value, make(chan struct{})})
	return n
}

// Set replaces the value and wakes all followers.
func (n *Newest[T]) Set(value T) {
	old := n.held.Swap(&held[T]{value, make(chan struct{})})
	close(old.replaced)
}

// Get returns the value, and a channel that closes when the value is replaced.
func (n *Newest[T]) Get() (value T, replaced <-chan struct{}) {
	h := n.held.Load()
	return h.value, h.replaced
}

// Watches runs a source for each key that has followers, until the last follower leaves.
type Watches[T any] struct {
	source  func(ctx context.Context, key string, to *Newest[T])
	mu      sync.Mutex
	running map[string]*watch[T]
}

type watch[T any] struct {
	newest    *Newest[T]
	followers int
	cancel    context.CancelFunc // ends the source
	ended     sync.WaitGroup     // of the source
}

// NewWatches creates a Watches. A source must run until its ctx ends. It sets the followers' value, which is zero at first.
func NewWatches[T any](source func(ctx context.Context, key string, to *Newest[T])) *Watches[T] {
	return &Watches[T]{source: source, running: map[string]*watch[T]{}}
}

// Follow returns the value that the key's source sets. The caller must call "leave" once. The last follower's "leave" waits until
// the source has ended.
func (w *Watches[T]) Follow(key string) (newest *Newest[T], leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.running[key]
	if one == nil {
		var zero T
		ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // any follower may leave first; the last one cancels
		one = &watch[T]{newest: NewNewest(zero), cancel: cancel}
		one.ended.Go(func() { w.source(ctx, key, one.newest) })
		w.running[key] = one
	}
	one.followers++
	return one.newest, func() { w.leave(key, one) }
}

func (w *Watches[T]) leave(key string, one *watch[T]) {
	w.mu.Lock()
	one.followers--
	last := one.followers == 0
	if last {
		delete(w.running, key) // the next follower starts a new source
	}
	w.mu.Unlock()
	if last {
		one.cancel()
		one.ended.Wait()
	}
}
