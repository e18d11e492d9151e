package service

import (
	"context"
	"sync"
	"sync/atomic"
)

// Newest is a value that many follow. A follower sees the newest one and misses what came and went while it was busy:
// there is no queue that a slow one could fill.
type Newest[T any] struct{ held atomic.Pointer[held[T]] }

type held[T any] struct {
	value    T
	replaced chan struct{}
}

// NewNewest begins with a value.
func NewNewest[T any](value T) *Newest[T] {
	n := &Newest[T]{}
	n.held.Store(&held[T]{value, make(chan struct{})})
	return n
}

// Set replaces the value and wakes all who follow.
func (n *Newest[T]) Set(value T) {
	old := n.held.Swap(&held[T]{value, make(chan struct{})})
	close(old.replaced)
}

// Get gives the value, and a channel that closes when there is a newer one.
func (n *Newest[T]) Get() (value T, replaced <-chan struct{}) {
	h := n.held.Load()
	return h.value, h.replaced
}

// Watches has one source for each key that somebody follows, however many they are. A source begins with the first
// follower and ends with the last.
type Watches[T any] struct {
	source  func(ctx context.Context, key string, to *Newest[T])
	mu      sync.Mutex
	running map[string]*watch[T]
}

type watch[T any] struct {
	newest    *Newest[T]
	followers int
	stop      func() // ends the source and waits for it
}

// NewWatches takes what a source does until its ctx ends: it sets what its followers see, at first the zero value.
func NewWatches[T any](source func(ctx context.Context, key string, to *Newest[T])) *Watches[T] {
	return &Watches[T]{source: source, running: map[string]*watch[T]{}}
}

// Follow gives what the key's source says. leave must be called once; the last one waits until the source has ended.
func (w *Watches[T]) Follow(key string) (newest *Newest[T], leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.running[key]
	if one == nil {
		one = w.start(key)
		w.running[key] = one
	}
	one.followers++
	return one.newest, func() { w.leave(key, one) }
}

func (w *Watches[T]) start(key string) *watch[T] {
	var zero T
	one := &watch[T]{newest: NewNewest(zero)}
	ctx, cancel := context.WithCancel(context.Background()) // no follower's own: any of them may leave first
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.source(ctx, key, one.newest)
	}()
	one.stop = func() {
		cancel()
		<-done
	}
	return one
}

func (w *Watches[T]) leave(key string, one *watch[T]) {
	w.mu.Lock()
	one.followers--
	last := one.followers == 0
	if last {
		delete(w.running, key) // whoever comes now starts another
	}
	w.mu.Unlock()
	if last {
		one.stop()
	}
}

// Changed gives a channel that closes when a watched sale has changed.
func (c *Catalog) Changed() <-chan struct{} { return c.live.Load().changed }
