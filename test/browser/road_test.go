package browser

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// road is a proxy in front of the server that can lose requests and answers.
type road struct {
	*httptest.Server
	mu   sync.Mutex
	rule func(*http.Request) fate
	to   http.Handler
}

// fate is what happens to a request on the road.
type fate struct {
	lost    bool            // the request is lost
	unheard bool            // the server's answer is lost
	held    <-chan struct{} // the answer waits until this is closed
	status  int             // the road itself answers with this status
	repeats *atomic.Int64   // a stream's first event comes again after each other one; counts how often
}

// roadTo starts a server with a road in front of it, whose address replaces the server's own.
func roadTo(t testing.TB, args ...string) (*server, *road) {
	t.Helper()
	s := serve(t, args...)
	to, err := url.Parse(s.url)
	check.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	r := &road{to: proxy}
	r.free()
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

// free lets all requests pass from now on.
func (r *road) free() { r.obey(func(*http.Request) fate { return fate{} }) }

// meet sets the fate of the requests that a function chooses, from now on. Other requests pass.
func (r *road) meet(f fate, chosen func(*http.Request) bool) {
	r.obey(func(req *http.Request) fate {
		if chosen(req) {
			return f
		}
		return fate{}
	})
}

// closed answers the chosen requests with 503 from now on, and breaks all connections.
func (r *road) closed(chosen func(*http.Request) bool) {
	r.meet(fate{status: http.StatusServiceUnavailable}, chosen)
	r.CloseClientConnections()
}

// brokenRoad are parts of the messages that Chromium writes when it does not reach the server.
var brokenRoad = []string{"status of 503", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONTENT_LENGTH_MISMATCH"}

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
	case what.repeats != nil:
		r.to.ServeHTTP(&repeater{ResponseWriter: w, times: what.repeats}, req)
	default:
		r.to.ServeHTTP(w, req)
	}
}

// repeater sends the first event of a stream again after each other one, as if they had overtaken it.
type repeater struct {
	http.ResponseWriter
	first []byte
	times *atomic.Int64
}

func (r *repeater) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *repeater) Write(event []byte) (int, error) {
	n, err := r.ResponseWriter.Write(event)
	switch {
	case err != nil || !bytes.Contains(event, []byte("data:")):
	case r.first == nil:
		r.first = bytes.Clone(event)
	default:
		_, err = r.ResponseWriter.Write(r.first)
		r.times.Add(1)
	}
	return n, err
}

func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func isPost(r *http.Request) bool { return r.Method == http.MethodPost }

func isPurchase(r *http.Request) bool { return isPost(r) && strings.HasSuffix(r.URL.Path, "/orders") }

// The page repeats a purchase without an answer under the same key, so there is one order.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(fields{"limit_per_user": 5})
	w := s.open(phone, "/sales/"+sale, brokenRoad...)
	w.signUp("ann")
	var keys []string
	fates := []fate{{unheard: true}, {lost: true}, {status: http.StatusServiceUnavailable}, {}}
	road.obey(func(r *http.Request) fate {
		if !isPurchase(r) {
			return fate{}
		}
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		return fates[min(len(keys), len(fates))-1]
	})
	w.click("#button")
	w.see("#hold-title", "You are in line")
	w.see("#hold-more", "asked for again in")
	w.sees(texts{"#yours-title": "Yours until", "#left": "9 of 10 left"})
	s.hasOrders("ann", 1)
	check.Same(t, "keys", keys, slices.Repeat(keys[:1], 4))
	check.Same(t, "there is a key", keys[0] != "", true)
}

// A buyer without a connection is told so. What was asked for is asked again when the connection is back: a purchase, and an entry.
func TestOffline(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	w := s.open(phone, "/sales/"+s.sale(nil), append(slices.Clip(brokenRoad), "status of 404")...)
	w.signUp("ann")
	online := func(is bool) {
		w.must(chromedp.Call(w.ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: !is, DownloadThroughput: -1, UploadThroughput: -1}))
	}
	lose := func() {
		road.meet(fate{lost: true}, isPost)
		online(false)
	}
	find := func() {
		road.free()
		online(true)
	}
	lose()
	w.click("#button")
	w.sees(texts{"#hold-title": "No connection", "#hold-more": "as soon as you are online"})
	find()
	w.see("#yours-title", "Yours until")
	s.hasOrders("ann", 1)

	sale := s.queue("line", nil)
	w.visit("/sales/" + sale)
	w.wakes("#button") // before the page's script has run, a click does nothing
	lose()
	w.click("#button")
	w.see("#notice", "as soon as you are online")
	find()
	w.see("#place-title", "You are entered")
}

// A buyer who reloads the page before or after the answer finds the same order.
func TestReloadWhileWaiting(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(fields{"limit_per_user": 5})
	w := s.open(phone, "/sales/"+sale)
	w.signUp("ann")
	never := make(chan struct{})
	defer close(never)
	road.meet(fate{held: never}, isPurchase)
	w.click("#button")
	w.see("#hold-title", "You are in line")
	w.show("hold")
	w.see("#left", "9 of 10 left") // the server has sold the unit
	road.free()
	for range 2 {
		w.visit("/sales/" + sale)
		w.see("#yours-title", "Yours until")
		s.hasOrders("ann", 1)
	}
}

// A queued attempt is followed until it is an order.
func TestQueued(t *testing.T) {
	t.Parallel()
	s := serve(t, "--ack=queued")
	w := s.open(phone, "/sales/"+s.sale(nil))
	w.buyAs("ann")
	w.see("#yours-title", "Yours until")
	s.hasOrders("ann", 1)
}

// When no answer comes at all, the buyer can try again.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	w := s.open(phone, "/sales/"+s.sale(fields{"limit_per_user": 5}), "status of 503")
	w.signUp("ann")
	road.meet(fate{status: http.StatusServiceUnavailable}, isPurchase)
	w.click("#button")
	w.see("#hold-more", "still no answer")
	road.free()
	w.click("#hold-again")
	w.see("#yours-title", "Yours until")
}

// The page says when its figures are no longer live, and connects again.
func TestStreamHeals(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s, road := roadTo(t)
		sale := s.sale(nil)
		w := s.open(phone, "/sales/"+sale, brokenRoad...)
		w.see("#line", "Live")
		road.closed(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/events") })
		w.see("#line", "Connection lost")
		s.buy(sale, s.buyer("ben"), 1)
		w.see("#left", "9 of 10 left") // read without the stream
		road.free()
		w.see("#line", "Live")
		s.buy(sale, s.buyer("eve"), 1)
		began := time.Now()
		w.see("#left", "8 of 10 left")
		if took := time.Since(began); took > 4*time.Second { // without a stream the page reads every five seconds
			t.Slowf("the stream took %s", took)
		}
	})
}
