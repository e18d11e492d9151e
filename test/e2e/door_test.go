package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// A client on the address visitor may claim any other address in the header visitorHeader.
const (
	visitor       = "127.250.0.1"
	visitorHeader = "X-Test-Address"
)

// door is an nginx with the configuration of deploy/nginx.
type door struct{ *shop.Door }

// openDoor starts an nginx that balances by weight, without TLS. instances are lines of instances.conf.
func openDoor(t testing.TB, instances ...string) *door {
	t.Helper()
	return openDoorWith(t, "weighted.conf", "plain.conf", instances...)
}

func openDoorWith(t testing.TB, balance, front string, instances ...string) *door {
	t.Helper()
	return &door{shop.OpenDoor(t, visitor, visitorHeader, balance, front, instances...)}
}

// logged is a line of the access log.
type logged struct {
	ID       string `json:"request_id"`
	Client   string `json:"client"`
	Path     string `json:"path"`
	Status   int    `json:"status"`
	Upstream string `json:"upstream"` // all instances that were asked, comma-separated
	Cache    string `json:"cache"`    // nginx's word for how its cache took part
}

// log waits for the lines of the access log about requests whose ids begin with a prefix. Their number must be want.
func (d *door) log(t testing.TB, prefix string, want int) (lines []logged) {
	t.Helper()
	shop.Recovered(t, "the access log is written", func() error {
		raw, err := os.ReadFile(filepath.Join(d.Folder, "log", "access.log"))
		if err != nil {
			return err
		}
		lines = nil
		for text := range bytes.Lines(raw) {
			if !bytes.Contains(text, []byte(`"request_id":"`+prefix)) {
				continue
			}
			var line logged
			if err := json.Unmarshal(text, &line); err != nil {
				return fmt.Errorf("%q: %w", text, err)
			}
			lines = append(lines, line)
		}
		if len(lines) < want {
			return fmt.Errorf("%d lines of %d", len(lines), want)
		}
		return nil
	})
	if len(lines) != want {
		t.Fatalf("%d lines for %d requests %s", len(lines), want, prefix)
	}
	return lines
}

// client sends requests from one address of this machine. It does not follow redirects.
type client struct {
	t    testing.TB
	http *http.Client
}

func from(t testing.TB, address string, change ...func(*http.Transport)) client {
	t.Helper()
	transport := &http.Transport{
		DialContext:        (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
		DisableCompression: true, // only the tests set Accept-Encoding
	}
	for _, do := range change {
		do(transport)
	}
	t.Cleanup(transport.CloseIdleConnections)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client{t, &http.Client{Transport: transport, Timeout: check.Patience, CheckRedirect: stay}}
}

// onePerConnection makes a client send each request on a new connection.
func onePerConnection(transport *http.Transport) { transport.DisableKeepAlives = true }

// answer is a response that was read. It is zero if no answer came.
type answer struct {
	status int
	proto  string
	header http.Header
	body   string
}

func (c client) get(url string, headers ...string) answer {
	c.t.Helper()
	return c.do(http.MethodGet, url, "", headers...)
}

func (c client) post(url, body string, headers ...string) answer {
	c.t.Helper()
	return c.do(http.MethodPost, url, body, headers...)
}

// do makes a request. The test fails if no answer comes.
func (c client) do(method, url, body string, headers ...string) answer {
	c.t.Helper()
	res := c.send(method, url, body, headers...)
	if res == nil {
		return answer{}
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	check.Error(c.t, url, err, nil)
	return answer{res.StatusCode, res.Proto, res.Header, string(raw)}
}

// send makes a request and returns the response, whose body is not read yet, or nil.
func (c client) send(method, url, body string, headers ...string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return nil
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	return res
}

func (a answer) code() string {
	var doc struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &doc) // a body that is not JSON has no code
	return doc.Code
}

// is checks the status.
func (a answer) is(t testing.TB, status int) {
	t.Helper()
	if a.status != status {
		t.Errorf("status %d, want %d: %v %s", a.status, status, a.header, a.body)
	}
}

// refusal checks a refusal that nginx makes itself.
func (a answer) refusal(t *testing.T, status int, code string) {
	t.Helper()
	a.is(t, status)
	retry := status != http.StatusRequestEntityTooLarge // which another try does not change
	if a.code() != code || a.header.Get("Content-Type") != "application/problem+json" ||
		a.header.Get("Cache-Control") != "no-store" || retry != (a.header.Get("Retry-After") != "") ||
		!strings.Contains(a.body, `"request_id":"`+a.header.Get("X-Request-Id")+`"`) {
		t.Errorf("%v %s, want code %s", a.header, a.body, code)
	}
}

// stream is a response that does not end.
type stream struct {
	status int
	header http.Header
	body   io.Reader
}

// stream requests a stream as a browser does. The stream ends with the test, or with the client's timeout.
func (c client) stream(url string) stream {
	c.t.Helper()
	res := c.send(http.MethodGet, url, "", "Accept-Encoding", "gzip")
	if res == nil {
		c.t.FailNow()
	}
	c.t.Cleanup(func() { _ = res.Body.Close() })
	return stream{res.StatusCode, res.Header, res.Body}
}
