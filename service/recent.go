package service

import (
	"context"
	"sync"
	"time"
)

const (
	recentReplies = 1000             // in one recent, which then forgets all of them
	recentTime    = 10 * time.Second // for a question to the database
)

// recent keeps the database's replies by key, also the reply that there is nothing, but no errors. Each snapshot of the catalog
// has its own replies, so no reply is older than the snapshot.
type recent[T any] struct {
	mu   sync.Mutex
	kept map[string]*reply[T]
}

type reply[T any] struct {
	said  chan struct{} // closed when value and err are set
	value T
	err   error
}

// get returns the reply about a key. If there is none yet, the function "ask" reads the reply from the database.
func (r *recent[T]) get(ctx context.Context, key string, ask func(ctx context.Context, key string) (T, error)) (T, error) {
	r.mu.Lock()
	known := r.kept[key]
	if known != nil {
		r.mu.Unlock()
		<-known.said
		return known.value, known.err
	}
	if r.kept == nil || len(r.kept) == recentReplies {
		r.kept = map[string]*reply[T]{}
	}
	mine := &reply[T]{said: make(chan struct{})}
	r.kept[key] = mine
	r.mu.Unlock()
	defer close(mine.said)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recentTime) // others wait as well
	defer cancel()
	if mine.value, mine.err = ask(ctx, key); mine.err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.kept[key] == mine {
			delete(r.kept, key)
		}
	}
	return mine.value, mine.err
}
