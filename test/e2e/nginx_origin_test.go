package e2e

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

const (
	shopOrigin    = "https://shop.example"
	partnerOrigin = "https://partner.example"
)

// hold keeps requests back until goOn ends. It calls asked for each of them.
type hold struct {
	asked func()
	goOn  context.Context
}

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
	// In front of the instance the test can hold the requests of a path back.
	var held sync.Map // path: hold
	target := check.Must(url.Parse(instance.URL))
	pass := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := held.Load(r.URL.Path); ok {
			h.(hold).asked()
			<-h.(hold).goOn.Done()
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close) // after the test's context has ended, so that nothing is held any more
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
	var running sync.WaitGroup
	for _, origins := range turns {
		sale := "/api/v1/sales/" + s.Sale(instance.URL, 10) // which nginx does not have
		running.Go(func() {
			for i, origin := range origins {
				a := ask([]string{"first", "later", "later"}[i], sale, origin)
				small := ask("small", sale, origin, "Accept-Encoding", "gzip")
				check.Same(t, "encodings", a.header.Get("Content-Encoding")+small.header.Get("Content-Encoding"), "gzip")
				for encoding, tag := range map[string]string{"": a.header.Get("Etag"), "gzip": small.header.Get("Etag")} {
					c.get(d.URL+sale, "Accept-Encoding", encoding, "If-None-Match", tag).is(t, http.StatusNotModified)
				}
			}
			// When an answer is too old, the next request renews it, and the others get the old one meanwhile.
			asked, renews := context.WithCancel(t.Context())
			goOn, release := context.WithCancel(t.Context())
			held.Store(sale, hold{renews, goOn})
			var renewing sync.WaitGroup
			renewing.Go(func() {
				shop.Recovered(t, sale+" is renewed", func() error {
					ask("renew", sale, origins[0])
					if asked.Err() == nil {
						return errors.New("it is not old enough")
					}
					return nil
				})
			})
			<-asked.Done()
			for _, origin := range origins {
				ask("stale", sale, origin)
			}
			release()
			renewing.Wait()
		})
	}
	running.Wait()
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
