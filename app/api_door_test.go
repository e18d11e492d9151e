package app

import (
	"context"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// door is a registered route: a path of it that leads somewhere, and the token that it asks for.
type door struct{ method, path, token string }

// doors are all registered routes, so that a new one is tested without being named anywhere.
func (s *server) doors() []door {
	s.t.Helper()
	made := s.createSale(nil)
	ann, operator := s.buyer("ann"), s.operator()
	anns := ann.buy(made.ID, 1)
	asset := regexp.MustCompile(`/assets/([^"]+)`).FindSubmatch(s.anyone().call("GET", "/", nil).want(200).body)
	fill := strings.NewReplacer(
		":sale", made.ID, ":path", ann.path(made.ID), ":id", anns.ID, ":payment", ann.startPayment(anns.ID).PaymentID,
		":code", made.ShortURL[strings.LastIndex(made.ShortURL, "/")+1:], ":name", string(asset[1]), ":report", "none",
	)
	var all []door
	for _, route := range s.app.server.Handler.(*gin.Engine).Routes() {
		token := ann.token
		if strings.HasPrefix(route.Path, "/api/v1/admin/") {
			token = operator.token
		}
		all = append(all, door{route.Method, s.url + fill.Replace(route.Path), token})
	}
	return all
}

// knock makes a request of nobody's description: openapi.yaml tells neither of HEAD nor of bodies that no route takes.
func (d door) knock(ctx context.Context, t *testing.T, client *http.Client, method string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, d.path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, d.path, err)
	}
	_ = res.Body.Close() // of a stream, too
	return res
}

// HEAD is answered as GET is, and at once: all HEADs have one connection, which each must leave to the next.
func TestHead(t *testing.T) {
	t.Parallel()
	s := start(t)
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	gets := &http.Client{Timeout: patience, CheckRedirect: noRedirect, Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	heads := &http.Client{Timeout: patience, CheckRedirect: noRedirect, Transport: &http.Transport{DisableCompression: true, MaxConnsPerHost: 1}}
	t.Cleanup(heads.CloseIdleConnections)
	// What tells one request from another, or is known at the end of a body alone.
	own := []string{"Date", "X-Request-Id", "Content-Length", "Connection"}
	tried := 0
	for _, d := range s.doors() {
		if d.method != http.MethodGet {
			continue
		}
		tried++
		get, head := d.knock(t.Context(), t, gets, http.MethodGet, nil), d.knock(t.Context(), t, heads, http.MethodHead, nil)
		if head.StatusCode != get.StatusCode || head.ContentLength >= 0 && head.ContentLength != get.ContentLength {
			t.Errorf("%s: HEAD %d of %d bytes, GET %d of %d", d.path, head.StatusCode, head.ContentLength, get.StatusCode, get.ContentLength)
		}
		for _, name := range own {
			get.Header.Del(name)
			head.Header.Del(name)
		}
		if !maps.EqualFunc(head.Header, get.Header, slices.Equal) {
			t.Errorf("%s: HEAD %v, GET %v", d.path, head.Header, get.Header)
		}
	}
	if tried < 30 {
		t.Errorf("%d routes", tried)
	}
	s.eventually("no stream is left", func() bool { return s.app.streams.Open() == 0 })
}
