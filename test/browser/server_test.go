// Package browser drives the pages of the built server in Chromium, as people do: by clicks and keys. It is a
// module of its own, so that the engine doesn't depend on what drives a browser.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	operatorPassword = "the operator of the tests"
	// patience is how long a test waits for what must come: far above what a slow machine needs.
	patience = time.Minute
)

// build builds the server once and gives the path of its binary.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "flashsale")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".") // no test reads the symbols, and linking them takes as long again
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is shipped
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return path, nil
})

// scratch is a folder of this run.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "flashsale-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	closeBrowser()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// server is a running server with embedded stores and no sale.
type server struct {
	t        *testing.T
	url      string
	operator string // a token
	process  *os.Process
}

type fields = map[string]any

// serve starts a server, which ends with the test. The arguments come after, and so over, those that all have.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"serve", "--http-addr=127.0.0.1:0", "--ops-addr=off", "--demo=false", "--log-level=warn", "--user-requests=0",
		"--database=sqlite:" + filepath.Join(t.TempDir(), "flashsale.db"), "--admin-password=" + operatorPassword,
	}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("the server: %v\n%s", err, &log)
		}
	})
	s := &server{t: t, process: cmd.Process}
	for lines := bufio.NewScanner(out); s.url == ""; {
		if !lines.Scan() {
			t.Fatalf("the server did not start: %s", &log)
		}
		_, s.url, _ = strings.Cut(lines.Text(), " is at ")
	}
	s.operator = s.logIn("admin", operatorPassword)
	return s
}

// call makes a request and gives what the answer's JSON says. It must be answered with this status.
func (s *server) call(method, path, token string, body any, want int) fields {
	s.t.Helper()
	status, doc := s.try(method, path, token, body)
	if status != want {
		s.t.Fatalf("%s %s: %d %v, want %d", method, path, status, doc, want)
	}
	return doc
}

// try makes a request, however it may be answered.
func (s *server) try(method, path, token string, body any) (status int, doc fields) {
	s.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+"/api/v1"+path, bytes.NewReader(raw))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err = io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		s.t.Fatalf("%s %s: %s: %v", method, path, raw, err)
	}
	return res.StatusCode, doc
}

func (s *server) logIn(name, password string) (token string) {
	s.t.Helper()
	return text(s.call("POST", "/sessions", "", fields{"name": name, "password": password}, http.StatusOK)["token"])
}

// buyer makes an account and gives its token.
func (s *server) buyer(name string) (token string) {
	s.t.Helper()
	return text(s.call("POST", "/users", "", fields{"name": name, "password": buyersPassword}, http.StatusCreated)["token"])
}

const buyersPassword = "correct horse"

// sale makes a sale that is open for an hour, with these changes, and gives its id.
func (s *server) sale(changes fields) string {
	s.t.Helper()
	sale := fields{
		"title": "Teapot", "description": "Cast iron, 800 ml, with a sieve.\nKeeps tea warm for an hour.", "price_cents": 990, "original_price_cents": 4990, "currency": "CNY",
		"quota": 10, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano), "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano),
	}
	for name, value := range changes {
		sale[name] = value
	}
	return text(s.call("POST", "/admin/sales", s.operator, sale, http.StatusCreated)["id"])
}

// buy buys without a browser, and gives the order's id.
func (s *server) buy(saleID, token string, quantity int) string {
	s.t.Helper()
	path := text(s.call("POST", "/sales/"+saleID+"/path", token, fields{}, http.StatusOK)["path"])
	return text(s.call("POST", "/sales/"+saleID+"/"+path+"/orders", token, fields{"quantity": quantity}, http.StatusCreated)["id"])
}

func text(value any) string {
	s, _ := value.(string)
	return s
}
