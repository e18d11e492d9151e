package worker

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeFeed is a feed with two endpoints: one takes its time, the other is fast and has three full batches to come.
type fakeFeed struct {
	sent      map[string]int
	forgotten int
}

func (f *fakeFeed) Due(context.Context) ([]model.Endpoint, error) {
	defer locked()()
	due := []model.Endpoint{{ID: "slow"}}
	if f.sent["fast"] < 3 {
		due = append(due, model.Endpoint{ID: "fast"})
	}
	return due, nil
}

func (f *fakeFeed) Deliver(ctx context.Context, id string) (wait time.Duration, more bool, err error) {
	if id == "slow" {
		pause.For(ctx, time.Minute)
	}
	defer locked()()
	f.sent[id]++
	return 10 * time.Millisecond, id == "fast" && f.sent[id] < 3, nil
}

func (f *fakeFeed) Forget(context.Context) error {
	defer locked()()
	f.forgotten++
	return nil
}

// Each endpoint is sent to by itself: a slow one delays no other, and gets one message at a time. Full batches follow each
// other after the pause that the rate asks for. Old events are deleted each minute.
func TestDeliverer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, looked := &fakeFeed{sent: map[string]int{}}, 0
		d := &Deliverer{Feed: f, Events: func(context.Context) error { with(func() { looked++ }); return nil }, Log: slog.New(slog.DiscardHandler)}
		during(t, d.Run, func() {
			pass(25 * time.Millisecond)
			check.Same(t, "sent at first", f.sent, map[string]int{"fast": 3})
			pass(2*time.Minute + 30*time.Second)
			check.Same(t, "sent", f.sent, map[string]int{"fast": 3, "slow": 2})
			check.Same(t, "deletions", f.forgotten, 2)
		})
		if looked < 100 {
			t.Errorf("the sales were looked at %d times", looked)
		}
	})
}

// crowdedFeed is a feed of many endpoints that hang, and of one that takes what it gets.
type crowdedFeed struct {
	fakeFeed
	hanging int
	at      time.Time // when the good endpoint got its message
}

func (f *crowdedFeed) Due(context.Context) (due []model.Endpoint, err error) {
	for i := range f.hanging {
		due = append(due, model.Endpoint{ID: fmt.Sprint("hangs ", i)})
	}
	return append(due, model.Endpoint{ID: "good"}), nil
}

func (f *crowdedFeed) Deliver(ctx context.Context, id string) (wait time.Duration, more bool, err error) {
	if id != "good" {
		<-ctx.Done()
		return 0, false, ctx.Err()
	}
	defer locked()()
	if f.at.IsZero() {
		f.at = time.Now()
	}
	return 0, false, nil
}

// As many endpoints as there may be that never answer stand before one that does: it gets its message at once.
func TestDelivererBesideEndpointsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := &crowdedFeed{hanging: 100}, time.Now()
		d := &Deliverer{Feed: f, Events: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler)}
		during(t, d.Run, func() {
			pass(time.Minute)
			defer locked()()
			if took := f.at.Sub(began); f.at.IsZero() || took > deliverPeriod {
				t.Errorf("the message came after %s", took)
			}
		})
	})
}
