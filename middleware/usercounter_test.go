package middleware

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// counts is a counter whose windows never end; once err is set it can't count.
type counts struct {
	seen map[[2]string]int
	err  error
}

func (k *counts) Count(_ context.Context, saleID, userID string, f model.Frequency) (time.Duration, bool, error) {
	if k.err != nil {
		return 0, false, k.err
	}
	k.seen[[2]string{saleID, userID}]++
	return f.Window, k.seen[[2]string{saleID, userID}] <= f.Limit, nil
}

func TestUserCounter(t *testing.T) {
	down := errors.New("down")
	twice := model.Frequency{Limit: 2, Window: 3 * time.Second}
	tests := map[string]struct {
		freq    model.Frequency
		counter Counter
		want    []string // of one request after the other
		left    model.Frequency
		errs    int
	}{
		"counted here":     {freq: twice, counter: &counts{seen: map[[2]string]int{}}, want: []string{"ok", "ok", "too_frequent after 3s"}},
		"left to the gate": {freq: twice, want: []string{"ok", "ok", "ok"}, left: twice},
		"off":              {counter: &counts{err: down}, want: []string{"ok", "ok", "ok"}},
		"can't count":      {freq: twice, counter: &counts{err: down}, want: []string{"ok", "ok", "ok"}, errs: 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var left model.Frequency
			errs := 0
			onError := func(err error) {
				if !errors.Is(err, down) {
					t.Errorf("told of %v, want %v", err, down)
				}
				errs++
			}
			engine := newEngine(t, as(model.Identity{UserID: "u-1"}), UserCounter(tc.freq, tc.counter, onError),
				func(c *gin.Context) { left = FrequencyOf(c) })
			for i, want := range tc.want {
				if got := serve(engine, newRequest(t)).Body.String(); got != want {
					t.Errorf("request %d: %q, want %q", i+1, got, want)
				}
			}
			if left != tc.left {
				t.Errorf("left to the gate: %+v, want %+v", left, tc.left)
			}
			if errs != tc.errs {
				t.Errorf("told of %d errors, want %d", errs, tc.errs)
			}
		})
	}
}

func TestUserCounterKeepsUsersApart(t *testing.T) {
	counter := &counts{seen: map[[2]string]int{}}
	once := model.Frequency{Limit: 1, Window: time.Second}
	for _, user := range []string{"u-1", "u-2"} {
		engine := newEngine(t, as(model.Identity{UserID: user}), UserCounter(once, counter, nil))
		if got := serve(engine, newRequest(t)).Body.String(); got != "ok" {
			t.Errorf("the first request of %s: %q", user, got)
		}
	}
}
