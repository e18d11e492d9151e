package handler

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// The dependencies are asked once in readyAge for all clients, also for a client that has disconnected.
func TestReadinessIsShared(t *testing.T) {
	s, now, asked := newShop(t), time.Now(), 0
	var broken error
	s.api.Health.Now = func() time.Time { return now }
	s.api.Health.Checks = []Check{{Name: "database", Needed: true, Ask: func(ctx context.Context) error {
		asked++
		return errors.Join(broken, ctx.Err())
	}}}
	left, leave := context.WithCancel(t.Context())
	leave()
	s.handler()
	crowd := func(wantStatus, wantAsked int) {
		t.Helper()
		check.Together(100, func(int) {
			check.Same(t, "status", s.serve(s.request(http.MethodGet, "/readyz", "").WithContext(left)).Code, wantStatus) //nolint:contextcheck // the context of the request has ended
		})
		check.Same(t, "checks", asked, wantAsked)
	}
	crowd(http.StatusOK, 1)
	broken = errors.New("down")
	now = now.Add(readyAge - 1)
	crowd(http.StatusOK, 1)
	now = now.Add(1)
	crowd(http.StatusServiceUnavailable, 2)
}
