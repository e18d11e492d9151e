package app_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/test/kit/check"
)

// HEAD gets the answer of GET without the body, and at once: all HEAD requests share one connection, which each of them
// must leave to the next.
func TestHead(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(nil)
	ann, operator := s.buyer("ann"), s.operator()
	bought := ann.buy(made.ID, 1)
	s.eventually("pages show the purchase, and so stay as they are", func() bool { return s.sale(made.ID).Available == 9 })
	asset := regexp.MustCompile(`/assets/([^"]+)`).FindSubmatch(s.anyone().get("/").body)
	fill := strings.NewReplacer(
		":sale", made.ID, ":id", bought.ID, ":payment", ann.startPayment(bought.ID).PaymentID,
		":code", made.ShortURL[strings.LastIndex(made.ShortURL, "/")+1:], ":name", string(asset[1]), ":report", "none",
	)
	gets := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	heads := &http.Transport{DisableCompression: true, MaxConnsPerHost: 1}
	t.Cleanup(heads.CloseIdleConnections)
	send := func(through *http.Transport, method, path string) *http.Response {
		t.Helper()
		who := ann
		if strings.HasPrefix(path, "/api/v1/admin/") {
			who = operator
		}
		req, err := who.request(t.Context(), method, path, nil)
		check.NoError(t, err)
		res, err := through.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		_ = res.Body.Close() // a stream's body has no end
		return res
	}
	routes := 0
	for _, route := range s.app.Handler().(*gin.Engine).Routes() {
		if route.Method != http.MethodGet {
			continue
		}
		routes++
		path := fill.Replace(route.Path)
		get, head := send(gets, http.MethodGet, path), send(heads, http.MethodHead, path)
		if head.StatusCode != get.StatusCode || head.ContentLength >= 0 && head.ContentLength != get.ContentLength {
			t.Errorf("%s: HEAD %d of %d bytes, GET %d of %d", path, head.StatusCode, head.ContentLength, get.StatusCode, get.ContentLength)
		}
		for _, name := range []string{"Date", "X-Request-Id", "Content-Length", "Connection"} { // which differ between two requests
			get.Header.Del(name)
			head.Header.Del(name)
		}
		if !maps.EqualFunc(head.Header, get.Header, slices.Equal) {
			t.Errorf("%s: HEAD %v, GET %v", path, head.Header, get.Header)
		}
	}
	if routes < 30 {
		t.Errorf("only %d routes", routes)
	}
	s.eventually("no stream is left", func() bool { return s.app.OpenStreams() == 0 })
}
