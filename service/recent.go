package service

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"
)

const (
	// recentReplies bounds each kind of replies that a catalog keeps. The least used replies are dropped first.
	recentReplies = 1000
	// recentTime bounds a question to the database. Several callers may wait for the reply.
	recentTime = 10 * time.Second
)

// recent keeps the database's reply about each key until the catalog's next refresh, also a reply that there is nothing. So a
// reply is never older than the catalog, and between two refreshes a key is read once, however many callers ask, unless its
// reply is dropped. Errors are not kept.
type recent[T any] struct {
	refreshes *atomic.Uint64 // of the catalog
	kept      *otter.Cache[string, reply[T]]
	asking    singleflight.Group
}

type reply[T any] struct {
	value   T
	refresh uint64 // the catalog's last refresh before the question
}

func newRecent[T any](refreshes *atomic.Uint64) *recent[T] {
	return &recent[T]{refreshes: refreshes, kept: otter.Must(&otter.Options[string, reply[T]]{MaximumSize: recentReplies})}
}

// get returns the reply about a key, which ask reads from the database.
func (r *recent[T]) get(ctx context.Context, key string, ask func(ctx context.Context, key string) (T, error)) (T, error) {
	refresh := r.refreshes.Load()
	if known, ok := r.kept.GetIfPresent(key); ok && known.refresh == refresh {
		return known.value, nil
	}
	// A caller after a refresh must not share a question from before it.
	said, err, _ := r.asking.Do(fmt.Sprint(refresh, " ", key), func() (any, error) {
		if known, ok := r.kept.GetIfPresent(key); ok && known.refresh == refresh {
			return known.value, nil // another question has just ended
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recentTime) // others wait as well
		defer cancel()
		value, err := ask(ctx, key)
		if err == nil {
			r.kept.Set(key, reply[T]{value, refresh})
		}
		return value, err
	})
	value, _ := said.(T)
	return value, err
}
