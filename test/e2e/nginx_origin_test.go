package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

const (
	shopOrigin    = "https://shop.example"
	partnerOrigin = "https://partner.example"
)

// readable checks that a page of an origin may read an answer, and how long to wait if it is a refusal.
func (a answer) readable(t testing.TB, what, origin string) {
	t.Helper()
	allowed := a.header.Values("Access-Control-Allow-Origin")
	if origin != "" && (len(allowed) != 1 || allowed[0] != "*" && allowed[0] != origin) {
		t.Errorf("%s: a page of %s may not read it: %d %v", what, origin, a.status, a.header)
	}
	exposed := a.header.Values("Access-Control-Expose-Headers")
	if origin != "" && (len(exposed) != 1 || !strings.Contains(strings.ToLower(exposed[0]), "retry-after")) {
		t.Errorf("%s: a page of %s may read the headers %q", what, origin, exposed)
	}
}

// Whoever asks first, what nginx has in its cache can be read by pages of every allowed origin, also while it is being renewed.
func TestNginxCachesForEveryOrigin(t *testing.T) {
	s := shop.New(t)
	instance := s.Start("--trusted-proxies", "127.0.0.1", "--allow-origin", shopOrigin, "--allow-origin", partnerOrigin)
	// In front of the instance the test can hold requests back.
	var holds atomic.Bool
	var asked atomic.Int64
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	target := check.Must(url.Parse(instance.URL))
	pass := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if holds.Load() {
			asked.Add(1)
			<-goOn
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		release() // Close waits for the requests that are held
		front.Close()
	})
	d := openDoor(t, line(front.URL, ""))
	c := from(t, shop.Address(1))
	ask := func(id, path, origin string, headers ...string) answer {
		if origin != "" {
			headers = append(headers, "Origin", origin)
		}
		a := c.get(d.URL+path, append(headers, "X-Request-Id", id)...)
		a.is(t, http.StatusOK)
		a.readable(t, id+" of "+path, origin)
		return a
	}
	turns := [][]string{
		{"", shopOrigin, partnerOrigin},
		{"", partnerOrigin, shopOrigin},
		{shopOrigin, "", partnerOrigin},
		{shopOrigin, partnerOrigin, ""},
		{partnerOrigin, "", shopOrigin},
		{partnerOrigin, shopOrigin, ""},
	}
	sales := make([]string, len(turns))
	for n, origins := range turns {
		sales[n] = "/api/v1/sales/" + s.Sale(instance.URL, 10) // which nginx does not have
		for i, origin := range origins {
			a := ask([]string{"first", "later", "later"}[i], sales[n], origin)
			small := ask("small", sales[n], origin, "Accept-Encoding", "gzip")
			check.Same(t, "encodings", a.header.Get("Content-Encoding")+small.header.Get("Content-Encoding"), "gzip")
			for encoding, tag := range map[string]string{"": a.header.Get("Etag"), "gzip": small.header.Get("Etag")} {
				c.get(d.URL+sales[n], "Accept-Encoding", encoding, "If-None-Match", tag).is(t, http.StatusNotModified)
			}
		}
	}
	// When an answer is too old, the next request renews it, and the others get the old one meanwhile.
	holds.Store(true)
	var renewing sync.WaitGroup
	for n, sale := range sales {
		renewing.Go(func() {
			shop.Recovered(t, sale+" is renewed", func() error {
				before := asked.Load()
				ask("renew", sale, turns[n][0])
				if asked.Load() == before {
					return errors.New("it is not old enough")
				}
				return nil
			})
		})
	}
	shop.Recovered(t, "all are being renewed", func() error {
		if n := asked.Load(); n < int64(len(sales)) {
			return fmt.Errorf("only %d are", n)
		}
		return nil
	})
	for n, origins := range turns {
		for _, origin := range origins {
			ask("stale", sales[n], origin)
		}
	}
	release()
	renewing.Wait()
	for _, l := range slices.Concat(d.log(t, "first", len(turns)), d.log(t, "stale", 3*len(turns))) {
		check.Same(t, "an answer is kept", l.Cache == "UPDATING", l.ID == "stale")
	}
}

// What nginx says itself can be read by pages of other origins, and nothing of the operators' part.
func TestNginxRefusesEveryOriginReadably(t *testing.T) {
	instance := newStandIn(t, false)
	d := openDoor(t, line(instance.URL, ""))
	c := from(t, shop.Address(1))
	post := func(path, body string) answer {
		return c.post(d.URL+path, body, "Origin", shopOrigin)
	}
	limited := post("/api/v1/sessions", "{}")
	for limited.status == http.StatusCreated {
		limited = post("/api/v1/sessions", "{}")
	}
	limited.refusal(t, http.StatusTooManyRequests, "rate_limited")
	limited.readable(t, "too many", shopOrigin)
	large := post("/api/v1/orders", strings.Repeat(" ", 1<<16))
	large.refusal(t, http.StatusRequestEntityTooLarge, "too_large")
	large.readable(t, "too large", shopOrigin)
	check.Same(t, "of an instance's answer", len(post("/api/v1/orders", "{}").header.Values("Access-Control-Allow-Origin")), 0)
	instance.Close()
	away := post("/api/v1/orders", "{}")
	away.refusal(t, http.StatusServiceUnavailable, "unavailable")
	away.readable(t, "away", shopOrigin)
	for _, path := range []string{"/api/v1/admin/sales", "/", "/console"} {
		a := c.get(d.URL+path, "Origin", shopOrigin)
		a.is(t, http.StatusServiceUnavailable)
		check.Same(t, path+": who may read it", a.header.Values("Access-Control-Allow-Origin"), nil)
	}
}
