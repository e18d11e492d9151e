package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// standIn answers in the place of an instance. A broken one reads a request and closes the connection, like an instance
// that is killed during its work.
type standIn struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func newStandIn(t *testing.T, broken bool) *standIn {
	s := &standIn{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.mu.Unlock()
		if broken {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s
}

// take returns the requests since the last call.
func (s *standIn) take() (requests []*http.Request, bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, bodies = s.requests, s.bodies
	s.requests, s.bodies = nil, nil
	return requests, bodies
}

const purchasePath = "/api/v1/sales/S/0123456789abcdef0123456789abcdef/orders"

// A request whose instance broke is repeated on another instance only if the repetition is safe.
func TestNginxRepeatsWhatIsSafe(t *testing.T) {
	broken, sound := newStandIn(t, true), newStandIn(t, false)
	d := openDoor(t, line(broken.URL, "max_fails=0"), line(sound.URL, "backup"))
	c := from(t, shop.Address(1))
	type test struct {
		method, path, key string
		repeated          bool
	}
	check.Each(t, map[string]test{
		"orders":                     {"GET", "/api/v1/orders", "", true},
		"path":                       {"POST", "/api/v1/sales/S/path", "", true},
		"purchase with a key":        {"POST", purchasePath, "key", true},
		"purchase without a key":     {"POST", purchasePath, "", false},
		"payment":                    {"POST", "/api/v1/orders/O/payments", "", false},
		"payment with a key":         {"POST", "/api/v1/orders/O/payments", "key", false},
		"an operator's change":       {"PATCH", "/api/v1/admin/sales/S", "", false},
		"registration":               {"POST", "/api/v1/users", "", false},
		"the provider's callback":    {"POST", "/api/v1/payments/callback", "", false},
		"purchase with a short path": {"POST", "/api/v1/sales/S/0123/orders", "key", false},
	}, func(t *testing.T, tc test) {
		const body = `{"quantity":1}`
		headers := []string{"Authorization", "Bearer token"}
		if tc.key != "" {
			headers = append(headers, "Idempotency-Key", tc.key)
		}
		a := c.do(tc.method, d.URL+tc.path, body, headers...)
		first, _ := broken.take()
		second, bodies := sound.take()
		check.Same(t, "requests to the broken instance", len(first), 1)
		if !tc.repeated {
			a.refusal(t, http.StatusServiceUnavailable, "unavailable")
			check.Same(t, "requests that were repeated", len(second), 0)
			return
		}
		a.is(t, http.StatusCreated)
		check.Same(t, "bodies at the other instance", bodies, []string{body})
		r := second[0]
		got := []string{r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization")}
		check.Same(t, "repeated request", got, []string{tc.method, tc.path, tc.key, "Bearer token"})
	})
	broken.Close() // if nobody listens, no request was sent, so any request may be sent elsewhere
	c.post(d.URL+purchasePath, "{}").is(t, http.StatusCreated)
	sound.Close()
	for _, headers := range [][]string{nil, {"Idempotency-Key", "key"}} {
		c.post(d.URL+purchasePath, "{}", headers...).refusal(t, http.StatusServiceUnavailable, "unavailable")
	}
}

// During an update, an asset that one instance lacks is looked for on the others.
func TestNginxLooksForAnAssetElsewhere(t *testing.T) {
	version := func(asset string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/assets/"+asset {
				http.NotFound(w, r)
			}
		}))
		t.Cleanup(server.Close)
		return line(server.URL, "")
	}
	d := openDoor(t, version("old.js"), version("new.js"))
	c := from(t, shop.Address(1))
	for range 4 { // so that each instance is asked first
		for asset, want := range map[string]int{"old.js": http.StatusOK, "new.js": http.StatusOK, "none.js": http.StatusNotFound} {
			c.get(d.URL+"/assets/"+asset).is(t, want)
		}
	}
}
