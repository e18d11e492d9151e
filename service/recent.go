package service

import (
	"context"
	"sync"
	"time"
)

const (
	recentReplies = 1000             // of each kind; a snapshot of the catalog that would get more forgets them all
	recentTime    = 10 * time.Second // for a question to the database, for whose reply several callers may wait
)

// recent keeps the database's reply about each key, also that there is nothing, but no error. Each snapshot of the catalog has
// its own. So a reply is never older than the catalog, and between two refreshes a key is read once unless it is forgotten.
type recent[T any] struct {
	mu   sync.Mutex
	kept map[string]func() (T, error)
}

// get returns the reply about a key, which ask reads from the database.
func (r *recent[T]) get(ctx context.Context, key string, ask func(ctx context.Context, key string) (T, error)) (T, error) {
	r.mu.Lock()
	reply := r.kept[key]
	if reply == nil {
		if r.kept == nil || len(r.kept) == recentReplies {
			r.kept = map[string]func() (T, error){}
		}
		reply = sync.OnceValues(func() (T, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recentTime) // others wait as well
			defer cancel()
			value, err := ask(ctx, key)
			if err != nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.kept, key)
			}
			return value, err
		})
		r.kept[key] = reply
	}
	r.mu.Unlock()
	return reply()
}
