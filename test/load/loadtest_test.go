// Package load holds the kits for testers, and runs them against the built server as docs/loadtest.md tells.
package load

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
	"syscall"
	"testing"
	"time"

	"flashsale/test/kit/shop"
)

const (
	operatorPassword = "the operator of the kits"
	// stopWithin is the time that the server has to stop in; then it is killed.
	stopWithin = 10 * time.Second
	// kitTimeout is several times what the longest run of a kit takes on a slow machine.
	kitTimeout = 3 * time.Minute
)

func TestMain(m *testing.M) { shop.Main(m) }

// server is a running server with embedded stores and no sale.
type server struct {
	t        *testing.T
	url      string
	operator string // a token
	binary   string
	database string
}

type fields = map[string]any

// serve starts a server, which ends with the test. The arguments come after, and so over, those that all have.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, binary: shop.Build(t), database: "sqlite:" + filepath.Join(t.TempDir(), "flashsale.db")}
	args = append([]string{
		"serve", "--http-addr=127.0.0.1:0", "--ops-addr=off", "--demo=false", "--log-level=warn", "--ack-wait=10s",
		"--database=" + s.database, "--admin-password=" + operatorPassword,
	}, args...)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopWithin
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
		stop()
		_ = cmd.Wait() // it always tells of the context
		if code := cmd.ProcessState.ExitCode(); code != 0 || t.Failed() {
			t.Errorf("the server ended with %d\n%s", code, &log)
		}
	})
	for lines := bufio.NewScanner(out); s.url == ""; {
		if !lines.Scan() {
			t.Fatal("the server did not start")
		}
		_, s.url, _ = strings.Cut(lines.Text(), " is at ")
	}
	s.operator, _ = s.call("POST", "/sessions", "", fields{"name": "admin", "password": operatorPassword}, http.StatusOK)["token"].(string)
	return s
}

// call makes a request and gives what the answer's JSON says. It must be answered with this status.
func (s *server) call(method, path, token string, body any, want int) fields {
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
	if err != nil || res.StatusCode != want {
		s.t.Fatalf("%s %s: %d %s, %v, want %d", method, path, res.StatusCode, raw, err, want)
	}
	var doc fields
	if err := json.Unmarshal(raw, &doc); err != nil {
		s.t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
	return doc
}

// sale makes a sale that is open from an hour before to an hour after a moment, and gives its id.
func (s *server) sale(quota, limitPerUser int, middle time.Time) string {
	s.t.Helper()
	id, _ := s.call("POST", "/admin/sales", s.operator, fields{
		"title": "Kits", "price_cents": 990, "quota": quota, "limit_per_user": limitPerUser,
		"starts_at": middle.Add(-time.Hour).UTC().Format(time.RFC3339), "ends_at": middle.Add(time.Hour).UTC().Format(time.RFC3339),
	}, http.StatusCreated)["id"].(string)
	return id
}

// page is the address that a person opens, as the server prints it.
func (s *server) page(saleID string) string { return s.url + "/sales/" + saleID }

// tokens has the command of that name sign buyers, and gives the file with the CSV.
func (s *server) tokens(users int) (file string) {
	s.t.Helper()
	csv, err := exec.CommandContext(s.t.Context(), s.binary, "tokens", "--users", fmt.Sprint(users), "--database", s.database).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	file = filepath.Join(s.t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, csv, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// audited checks that the books of a sale balance and say this of its units.
func (s *server) audited(saleID string, held, paid int) {
	s.t.Helper()
	books := s.call("GET", "/admin/sales/"+saleID+"/audit", s.operator, nil, http.StatusOK)
	if books["ok"] != true || books["held"] != float64(held) || books["paid"] != float64(paid) {
		s.t.Errorf("the books say %v, want %d units held and %d paid", books, held, paid)
	}
}

// runKit runs a command of a kit, with more in its environment, and gives what it printed and how it ended. What a
// command of these tests prints is what testers will see, so -v shows it.
func runKit(t *testing.T, env []string, name string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = stopWithin // also for its children
	raw, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	t.Logf("%s: %v\n%s", cmd, err, raw)
	return string(raw), cmd.ProcessState.ExitCode()
}
