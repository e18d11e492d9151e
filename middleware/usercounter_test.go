package middleware

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// counts is a counter whose windows never end. With err it can't count.
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
	type test struct {
		freq    model.Frequency
		counter Counter
		third   string // the answer to the third request; the first two pass
		left    model.Frequency
		errs    int
	}
	counter := &counts{seen: map[[2]string]int{}}
	check.Each(t, map[string]test{
		"counted here":     {twice, counter, "too_frequent after 3s", model.Frequency{}, 0},
		"left to the gate": {twice, nil, "ok", twice, 0},
		"off":              {model.Frequency{}, &counts{err: down}, "ok", model.Frequency{}, 0},
		"can't count":      {twice, &counts{err: down}, "ok", model.Frequency{}, 3},
	}, func(t *testing.T, tc test) {
		var left model.Frequency
		errs := []error{}
		engine := newEngine(as(buyer), UserCounter(tc.freq, tc.counter, func(err error) { errs = append(errs, err) }),
			func(c *gin.Context) { left = FrequencyOf(c) })
		for i, want := range []string{"ok", "ok", tc.third} {
			check.Same(t, fmt.Sprint("request ", i+1), answer(t, engine), want)
		}
		check.Same(t, "left to the gate", left, tc.left)
		check.Same(t, "errors", errs, []error{down, down, down}[:tc.errs])
	})
	check.Same(t, "counted by sale and user", counter.seen, map[[2]string]int{{"S1", "u-1"}: 3})
}
