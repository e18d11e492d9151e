package handler

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// However many ask for /readyz, the dependencies are asked once for a while, also by a client that has left.
func TestReadinessIsShared(t *testing.T) {
	api, now, asked := benchAPI(t, false), time.Now(), 0
	var broken error
	api.Now = func() time.Time { return now }
	api.Checks = []Check{{Name: "database", Needed: true, Ask: func(ctx context.Context) error {
		asked++
		return errors.Join(broken, ctx.Err())
	}}}
	router, err := Router(api)
	if err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	all := func(want int) {
		t.Helper()
		var crowd sync.WaitGroup
		for range 100 {
			crowd.Go(func() {
				w := httptest.NewRecorder()
				router.ServeHTTP(w, httptest.NewRequestWithContext(left, http.MethodGet, "/readyz", nil))
				if w.Code != want {
					t.Errorf("%d %s, want %d", w.Code, w.Body, want)
				}
			})
		}
		crowd.Wait()
	}
	all(http.StatusOK)
	broken = errors.New("down")
	now = now.Add(readyAge - 1)
	all(http.StatusOK)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	now = now.Add(1)
	all(http.StatusServiceUnavailable)
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
