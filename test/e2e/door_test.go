package e2e

import (
	"bufio"
	"bytes"
	"context"
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
	"flashsale/test/kit/shop"
)

// door is an nginx with the configuration of deploy/nginx.
type door struct {
	URL    string
	folder string
}

// choices are what an operator decides about a door.
type choices struct {
	balance   string   // the file with the way to balance
	front     string   // the file with or without TLS
	instances []string // lines of instances.conf
}

// A client on the visitor's address may say in a header which address it has instead: one that this machine has not.
const (
	visitor       = "127.250.0.1"
	visitorHeader = "X-Test-Address"
)

// openDoor starts nginx. The files of deploy/nginx are used as they are, but for ports and paths of this machine.
// more, if given, adds to the folder of nginx.conf.
func openDoor(t *testing.T, c choices, more ...func(folder string)) *door {
	t.Helper()
	source := filepath.Join(shop.Root(), "deploy", "nginx")
	d := &door{URL: "http://"}
	if c.front == "tls.conf" {
		d.URL = "https://"
	}
	server := kit.Nginx(t, func(folder string, port int) {
		d.folder = folder
		link(t, source, filepath.Join(folder, "flashsale"))
		link(t, filepath.Join(source, c.balance), filepath.Join(folder, "balance.conf"))
		write(t, filepath.Join(folder, "instances.conf"), strings.Join(c.instances, "\n"))
		for _, name := range []string{"log", "cache"} {
			if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
				t.Error(err)
			}
		}
		write(t, filepath.Join(folder, "nginx.conf"), fill(t, filepath.Join(source, "nginx.conf"),
			"user www-data;", "user root;", // else the workers may not look into the test's folder
			"pid /run/nginx.pid;", "pid nginx.pid;",
			"/var/log/nginx/error.log", "log/error.log",
			"/var/log/nginx/access.log", "log/access.log",
			"/var/cache/nginx/assets", "cache/assets",
			"/var/cache/nginx/pages", "cache/pages",
			"http {", "http {\nclient_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; scgi_temp_path scgi; "+
				"uwsgi_temp_path uwsgi;\nset_real_ip_from "+visitor+"; real_ip_header "+visitorHeader+";",
		))
		// The ports for everybody become one of the loopback. A door has one, so with TLS the other is a socket.
		plain, tls := fmt.Sprintf("listen 127.0.0.1:%d ", port), ""
		if c.front == "tls.conf" {
			plain, tls = "listen unix:"+d.socket()+" ", plain
		}
		listen := []string{"listen [::]:80 default_server backlog=4096;", "", "listen 80 ", plain}
		if tls != "" {
			listen = append(listen, "listen [::]:443 ssl http2 default_server backlog=4096;", "", "listen 443 ", tls)
		}
		write(t, filepath.Join(folder, "front.conf"), fill(t, filepath.Join(source, c.front), listen...))
		for _, add := range more {
			add(folder)
		}
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

// socket is where a door with TLS listens without it.
func (d *door) socket() string { return filepath.Join(d.folder, "plain.sock") }

// fill reads a configuration and replaces texts by others. Each must be there once, or the test would no longer do what
// it says.
func fill(t *testing.T, path string, replacements ...string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	text := string(raw)
	for i := 0; i < len(replacements); i += 2 {
		if n := strings.Count(text, replacements[i]); n != 1 {
			t.Errorf("%s: %q is there %d times", path, replacements[i], n)
		}
		text = strings.Replace(text, replacements[i], replacements[i+1], 1)
	}
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
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
	Upstream string `json:"upstream"` // all that were asked, comma-separated
}

// log gives the lines of the access log about requests with ids that begin so, once as many are there.
func (d *door) log(t *testing.T, ids string, want int) (lines []logged) {
	t.Helper()
	shop.Recovered(t, "the access log is written", func() error {
		raw, err := os.ReadFile(filepath.Join(d.folder, "log", "access.log"))
		if err != nil {
			return err
		}
		lines = nil
		for text := range bytes.Lines(raw) {
			if !bytes.Contains(text, []byte(`"request_id":"`+ids)) {
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
		t.Fatalf("%d lines for %d requests %s", len(lines), want, ids)
	}
	return lines
}

// from is a client on an address of this machine.
func from(t *testing.T, address string, change ...func(*http.Transport)) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext:        (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
		DisableCompression: true, // an Accept-Encoding is the test's own
	}
	for _, do := range change {
		do(transport)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 15 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// answer is what a client got.
type answer struct {
	status int
	proto  string
	header http.Header
	body   string
}

func (a answer) code() string {
	var doc struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &doc) // a body that isn't JSON has no code
	return doc.Code
}

// ask makes a request that has to be answered.
func ask(t *testing.T, client *http.Client, method, url, body string, headers ...string) answer {
	t.Helper()
	a, err := try(t.Context(), client, method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// try makes a request.
func try(ctx context.Context, client *http.Client, method, url, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Proto, res.Header, string(raw)}, err
}

// event waits for the next event of a stream and decodes its data.
func event(t *testing.T, stream *bufio.Reader) (doc shop.Document) {
	t.Helper()
	for {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &doc); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return doc
		}
	}
}
