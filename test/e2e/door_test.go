package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// door is an nginx with the configuration of deploy/nginx.
type door struct {
	URL    string
	folder string
	roots  *x509.CertPool // with TLS: what a client has to trust
}

// A client on the address visitor may claim any other address in the header visitorHeader.
const (
	visitor       = "127.250.0.1"
	visitorHeader = "X-Test-Address"
)

// openDoor starts an nginx that balances by weight, without TLS. instances are lines of instances.conf.
func openDoor(t *testing.T, instances ...string) *door {
	t.Helper()
	return openDoorWith(t, "weighted.conf", "plain.conf", instances...)
}

// openDoorWith starts an nginx with one of the files for balancing, and the file with or without TLS. The files of
// deploy/nginx are used as they are, except for ports and paths of this machine.
func openDoorWith(t *testing.T, balance, front string, instances ...string) *door {
	t.Helper()
	source := filepath.Join(shop.Root(), "deploy", "nginx")
	d := &door{URL: "http://"}
	server := kit.Nginx(t, func(folder string, port int) {
		d.folder = folder
		link(t, source, filepath.Join(folder, "flashsale"))
		link(t, filepath.Join(source, balance), filepath.Join(folder, "balance.conf"))
		write(t, filepath.Join(folder, "instances.conf"), strings.Join(instances, "\n"))
		for _, name := range []string{"log", "cache", "tls"} {
			check.Error(t, name, os.MkdirAll(filepath.Join(folder, name), 0o700), nil)
		}
		write(t, filepath.Join(folder, "nginx.conf"), fill(t, filepath.Join(source, "nginx.conf"),
			"user www-data;", "user root;", // other users may not read the test's folder
			"pid /run/nginx.pid;", "pid nginx.pid;",
			"/var/log/nginx/error.log", "log/error.log",
			"/var/log/nginx/access.log", "log/access.log",
			"/var/cache/nginx/assets", "cache/assets",
			"/var/cache/nginx/pages", "cache/pages",
			"http {", "http {\nclient_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; "+
				"scgi_temp_path scgi; uwsgi_temp_path uwsgi;\n"+
				"set_real_ip_from "+visitor+"; real_ip_header "+visitorHeader+";",
		))
		// kit.Nginx gives one port. With TLS, that port is the one for TLS, and the other one becomes a socket.
		listen := []string{"listen [::]:80 default_server backlog=4096;", ""}
		address := fmt.Sprintf("listen 127.0.0.1:%d ", port)
		if front == "tls.conf" {
			d.URL = "https://"
			d.roots = kit.Certificate(t, filepath.Join(folder, "tls"))
			listen = append(listen, "listen 80 ", "listen unix:"+d.socket()+" ",
				"listen [::]:443 ssl http2 default_server backlog=4096;", "", "listen 443 ", address)
		} else {
			listen = append(listen, "listen 80 ", address)
		}
		write(t, filepath.Join(folder, "front.conf"), fill(t, filepath.Join(source, front), listen...))
	})
	d.URL += server.Addr()
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(d.folder, "log", "error.log"))
			t.Logf("nginx: %.4000s", log)
		}
	})
	return d
}

// socket is the address without TLS of a door with TLS.
func (d *door) socket() string { return filepath.Join(d.folder, "plain.sock") }

// fill reads a configuration and replaces texts. Each text must occur once; otherwise the test has to be updated.
func fill(t *testing.T, path string, replacements ...string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	check.Error(t, "read "+path, err, nil)
	text := string(raw)
	for i := 0; i < len(replacements); i += 2 {
		if n := strings.Count(text, replacements[i]); n != 1 {
			t.Errorf("%s: %q occurs %d times", path, replacements[i], n)
		}
		text = strings.Replace(text, replacements[i], replacements[i+1], 1)
	}
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	check.Error(t, "write "+path, os.WriteFile(path, []byte(text), 0o600), nil)
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil && !errors.Is(err, fs.ErrExist) { // from the first port that was tried
		t.Error(err)
	}
}

// logged is a line of the access log.
type logged struct {
	Client   string `json:"client"`
	Path     string `json:"path"`
	Status   int    `json:"status"`
	Upstream string `json:"upstream"` // all instances that were asked, comma-separated
}

// log waits for the lines of the access log about requests whose ids begin with a prefix. Their number must be want.
func (d *door) log(t *testing.T, prefix string, want int) (lines []logged) {
	t.Helper()
	shop.Recovered(t, "the access log is written", func() error {
		raw, err := os.ReadFile(filepath.Join(d.folder, "log", "access.log"))
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
	t    *testing.T
	http *http.Client
}

func from(t *testing.T, address string, change ...func(*http.Transport)) client {
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
	return client{t, &http.Client{Transport: transport, Timeout: 15 * time.Second, CheckRedirect: stay}}
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
func (a answer) is(t *testing.T, status int) {
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
