package app

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/config"
)

// door is a registered route: a path of it that leads somewhere, and the token that it asks for.
type door struct{ method, path, token string }

// doors are all registered routes, so that a new one is tested without being named anywhere.
func (s *server) doors() []door {
	s.t.Helper()
	made := s.createSale(nil)
	ann, operator := s.buyer("ann"), s.operator()
	anns := ann.buy(made.ID, 1)
	s.eventually("pages show the purchase, and so stay as they are", func() bool { return s.sale(made.ID).Available == made.Quota-1 })
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
	if s.app.opsListener != nil {
		for path := range opsRoutes(s.app.metrics) {
			seconds := "0.01"
			if path == "/debug/pprof/profile" {
				seconds = "1" // it knows whole ones only
			}
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				all = append(all, door{method, s.app.OpsURL() + path + "?seconds=" + seconds, ""})
			}
		}
	}
	return all
}

func (d door) request(ctx context.Context, t *testing.T, method string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, d.path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// push sends a request on a connection of its own, and gives the answer's status, which may come long before the end of
// the body. A length is announced if the body is an io.LimitedReader.
func (d door) push(t *testing.T, body io.Reader, headers ...string) int {
	t.Helper()
	req := d.request(t.Context(), t, d.method, body, headers...)
	if limited, ok := body.(*io.LimitedReader); ok {
		req.ContentLength = limited.N
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", req.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	writing.Go(func() { _ = req.Write(conn) }) // fails as soon as the server has said enough
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatalf("%s %s %q: %v", d.method, d.path, headers, err)
	}
	_ = conn.Close() // before the body, which may have no end
	_ = res.Body.Close()
	return res.StatusCode
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
		get, err := gets.Do(d.request(t.Context(), t, http.MethodGet, nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = get.Body.Close() // of a stream, too
		head, err := heads.Do(d.request(t.Context(), t, http.MethodHead, nil))
		if err != nil {
			t.Fatalf("%s: %v", d.path, err)
		}
		_ = head.Body.Close()
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

// endless gives the head and then, without end, the filling.
func endless(head, filling string) io.Reader {
	return io.MultiReader(strings.NewReader(head), &repeat{text: filling})
}

// repeat is a text over and over.
type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[(r.at+i)%len(r.text)]
	}
	r.at = (r.at + len(p)) % len(r.text)
	return len(p), nil
}

// Whatever form a body has, and whatever route it comes to, the answer comes in time, little of the body is kept in
// memory and nothing in a file.
func TestHole58_BodiesOfEveryForm(t *testing.T) { // not parallel: it counts what the whole process allocates
	const (
		large = 64 << 20
		most  = 8 << 20 // client, connection and answer together
		end   = "\r\n--b--\r\n"
		part  = "--b\r\nContent-Disposition: form-data; name=\"choice\"; filename=\"f\"\r\n\r\n"
	)
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	s := start(t, func(c *config.Settings) { c.OpsAddr = "127.0.0.1:0" })
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := io.Copy(w, io.LimitReader(endless(`{"quantity":1`, " "), large)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	whole := func() io.Reader { // a body of parts that ends as it should, of which a file would be left
		return io.MultiReader(io.LimitReader(endless(part, "x"), large-int64(len(end))), strings.NewReader(end))
	}
	forms := map[string]struct {
		contentType, encoding string
		body                  func() io.Reader
		announced             int64 // 0: in chunks
	}{
		"parts":                    {"multipart/form-data; boundary=b", "", whole, large},
		"parts without end":        {"multipart/form-data; boundary=b", "", func() io.Reader { return endless(part, "x") }, 0},
		"small parts without end":  {"multipart/form-data; boundary=b", "", func() io.Reader { return endless("", part+"x\r\n") }, 0},
		"a form without end":       {"application/x-www-form-urlencoded", "", func() io.Reader { return endless("choice=pay", "&a=b") }, 0},
		"a JSON text without end":  {"application/json", "", func() io.Reader { return endless(`{"quantity":"`, "1") }, 0},
		"a large JSON object":      {"application/json", "", func() io.Reader { return endless(`{"quantity":1`, " ") }, large},
		"a compressed JSON object": {"application/json", "gzip", func() io.Reader { return bytes.NewReader(bomb.Bytes()) }, int64(bomb.Len())},
	}
	for _, d := range s.doors() {
		d.push(t, nil) // prepares what is prepared once
		for name, form := range forms {
			body := form.body()
			if form.announced > 0 {
				body = io.LimitReader(body, form.announced)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			status := d.push(t, body, "Content-Type", form.contentType, "Content-Encoding", form.encoding)
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > most {
				t.Errorf("%s %s, %s: %d MiB", d.method, d.path, name, grown>>20)
			}
			if status >= http.StatusInternalServerError {
				t.Errorf("%s %s, %s: %d", d.method, d.path, name, status)
			}
			if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
				t.Fatalf("%s %s, %s: left %v, %v", d.method, d.path, name, files, err)
			}
		}
	}
}

// Strangers who empty the instance's bucket and that of an address, and who knock at the doors of payments and of operators
// without a proof, take the turn of nobody who has one.
func TestHole59_FloodOfStrangers(t *testing.T) {
	t.Parallel()
	const setUp, flood = 100, 6_000 // more than any bucket holds
	s := start(t, func(c *config.Settings) { c.LimitRate, c.LimitBurst, c.IPRate = 0.001, setUp, setUp })
	made := s.createSale(nil)
	ann := s.buyer("ann")
	bought := ann.buy(made.ID, 1)
	paid := ann.startPayment(bought.ID)
	word := fields{"payment_id": paid.PaymentID, "provider_txn_id": "txn-1", "status": "succeeded", "amount_cents": bought.AmountCents}

	const callback, stats = "/api/v1/payments/callback", "/api/v1/admin/stats"
	buyer := "Bearer " + s.buyer("ben").token
	for _, stranger := range []struct{ method, path, token string }{
		{http.MethodGet, "/api/v1/time", ""},
		{http.MethodGet, "/", ""},
		{http.MethodGet, "/readyz", ""},
		{http.MethodPost, callback, ""},
		{http.MethodGet, stats, ""},
		{http.MethodGet, stats, "Bearer forged"},
		{http.MethodGet, stats, buyer},
	} {
		for range flood {
			r := httptest.NewRequestWithContext(t.Context(), stranger.method, stranger.path, strings.NewReader("{}"))
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", stranger.token)
			s.app.server.Handler.ServeHTTP(httptest.NewRecorder(), r) // no connection: it is quicker than any client
		}
	}
	s.anyone().call("GET", "/api/v1/time", nil).refused(429, "rate_limited")
	for range 60 {
		s.callback(word).want(200)
		s.setStatus(made.ID, "pause")
		s.setStatus(made.ID, "resume")
		for _, path := range []string{"/readyz", "/healthz", "/console"} {
			s.anyone().call("GET", path, nil).want(200)
		}
	}
	s.anyone().call("GET", "/api/v1/time", nil).refused(429, "rate_limited")
	if books := s.balanced(made.ID); books.Paid != 1 {
		t.Errorf("books %+v", books)
	}
}
