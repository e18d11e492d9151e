package browser

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// road is a way to the server that a test can break.
type road struct {
	*httptest.Server
	mu   sync.Mutex
	rule func(*http.Request) fate
	to   http.Handler
}

// fate is what becomes of a request on the road.
type fate struct {
	lost    bool            // it never reaches the server
	unheard bool            // the server's answer is lost
	held    <-chan struct{} // the answer waits for this to be closed
	status  int             // it is answered on the way
}

// roadTo starts a server, and a road to it that is taken instead of the server's own address.
func roadTo(t *testing.T, args ...string) (*server, *road) {
	t.Helper()
	s := serve(t, args...)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	r := &road{rule: func(*http.Request) fate { return fate{} }, to: proxy}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	s.url = r.URL
	return s, r
}

// obey sets the rule for all requests from now on.
func (r *road) obey(rule func(*http.Request) fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rule = rule
}

func (r *road) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	what := r.rule(req)
	r.mu.Unlock()
	switch {
	case what.lost:
		hangUp(w)
	case what.status != 0:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(what.status)
	case what.unheard || what.held != nil:
		answer := httptest.NewRecorder()
		r.to.ServeHTTP(answer, req)
		if what.unheard {
			hangUp(w)
			return
		}
		select {
		case <-what.held:
		case <-req.Context().Done():
			return
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	default:
		r.to.ServeHTTP(w, req)
	}
}

func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func isPurchase(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/orders")
}

// An answer that is lost on its way makes no second order: the page asks again under the same key.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(fields{"limit_per_user": 5})
	w := s.open(phone)
	w.allow("ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "status of 503")
	w.visit("/sales/" + sale)
	w.see("#button", "Buy")
	w.click("#account-button")
	w.register("ann")
	w.see("#account-button", "ann")

	var keys []string
	road.obey(func(r *http.Request) fate {
		if !isPurchase(r) {
			return fate{}
		}
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		switch len(keys) {
		case 1:
			return fate{unheard: true}
		case 2:
			return fate{lost: true}
		case 3:
			return fate{status: http.StatusServiceUnavailable}
		}
		return fate{}
	})
	w.click("#button")
	w.see("#hold-title", "You are in line")
	w.see("#hold-more", "asked for again in")
	w.see("#yours-title", "Yours until")
	w.see("#left", "9 of 10 left")
	if orders := s.orders("ann"); len(orders) != 1 {
		t.Errorf("%d orders", len(orders))
	}
	if len(keys) != 4 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] || keys[3] != keys[0] {
		t.Errorf("keys %q", keys)
	}
}

// Who reloads the page while the answer is under way finds the same order.
func TestReloadWhileWaiting(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(fields{"limit_per_user": 5})
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.see("#button", "Buy")
	w.click("#account-button")
	w.register("ann")
	w.see("#account-button", "ann")

	never := make(chan struct{})
	defer close(never)
	road.obey(func(r *http.Request) fate {
		if isPurchase(r) {
			return fate{held: never}
		}
		return fate{}
	})
	w.click("#button")
	w.see("#hold-title", "You are in line")
	w.screens("hold")
	w.see("#left", "9 of 10 left") // the server has sold it
	road.obey(func(*http.Request) fate { return fate{} })
	w.visit("/sales/" + sale)
	w.see("#yours-title", "Yours until")
	if orders := s.orders("ann"); len(orders) != 1 {
		t.Errorf("%d orders", len(orders))
	}
	// And once it is known, a reload shows it again.
	w.visit("/sales/" + sale)
	w.see("#yours-title", "Yours until")
}

// A queued attempt is followed until it is an order.
func TestQueued(t *testing.T) {
	t.Parallel()
	s := serve(t, "--ack=queued")
	sale := s.sale(nil)
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.wakes("#button")
	w.click("#button")
	w.register("ann")
	w.see("#yours-title", "Yours until")
	if orders := s.orders("ann"); len(orders) != 1 {
		t.Errorf("%d orders", len(orders))
	}
}

// When no answer comes at all, the buyer decides, and it is still one attempt.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(fields{"limit_per_user": 5})
	w := s.open(phone)
	w.allow("status of 503")
	w.visit("/sales/" + sale)
	w.see("#button", "Buy")
	w.click("#account-button")
	w.register("ann")
	w.see("#account-button", "ann")
	road.obey(func(r *http.Request) fate {
		if isPurchase(r) {
			return fate{status: http.StatusServiceUnavailable}
		}
		return fate{}
	})
	w.click("#button")
	w.see("#hold-more", "still no answer")
	road.obey(func(*http.Request) fate { return fate{} })
	w.click("#hold-again")
	w.see("#yours-title", "Yours until")
}

// The page says when its figures are no longer live, and mends that by itself.
func TestStreamHeals(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(nil)
	w := s.open(phone)
	w.allow("status of 503", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")
	w.visit("/sales/" + sale)
	w.see("#line", "Live")
	isStream := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/events") }
	road.obey(func(r *http.Request) fate {
		if isStream(r) {
			return fate{status: http.StatusServiceUnavailable}
		}
		return fate{}
	})
	road.CloseClientConnections()
	w.see("#line", "Connection lost")
	s.buy(sale, s.buyer("ben"), 1)
	w.see("#left", "9 of 10 left") // read without the stream
	road.obey(func(*http.Request) fate { return fate{} })
	w.see("#line", "Live")
	s.buy(sale, s.buyer("eve"), 1)
	began := time.Now()
	w.see("#left", "8 of 10 left")
	if took := time.Since(began); took > 4*time.Second { // without a stream the page looks every five seconds
		t.Errorf("the stream took %s", took)
	}
}
