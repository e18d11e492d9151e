// Package scenario tests the running binary as its users and its bad luck do: instances are processes beside
// real MariaDB and Redis servers, buyers come over HTTP, and what they were told is held against the books.
package scenario

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

	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/testkit"
)

const (
	secret        = "scenario-secret-of-thirty-two-bytes!"
	adminPassword = "scenario-operator"
	// startTimeout and recovery bound the waits for events: a start, and what must be right after a fault.
	startTimeout = 20 * time.Second
	recovery     = 10 * time.Second
)

func TestMain(m *testing.M) {
	testkit.Main(m, func() { _ = os.RemoveAll(binaryFolder) })
}

// binaryFolder holds the program; it is empty until a test needs it.
var binaryFolder string

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (path string, err error) {
	if binaryFolder, err = os.MkdirTemp("", "flashsale-scenario-"); err != nil {
		return "", err
	}
	path = filepath.Join(binaryFolder, "flashsale")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, "flashsale").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return path, nil
})

// shop is a set of instances over the same stores.
type shop struct {
	t        *testing.T
	database string
	redis    *testkit.RedisServer
	db       *repository.Store // the test's own look at the truth
	admin    string
	client   *http.Client
}

// instance is one process of the engine.
type instance struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	log  *logBuffer
	done chan struct{}
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newShop makes fresh stores: a database on the shared MariaDB, and a Redis of its own.
func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{
		t: t, database: testkit.SharedMariaDB(t).NewDatabase(t), redis: testkit.Redis(t),
		client: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	db, err := repository.Open(t.Context(), s.database, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s.db = db
	return s
}

// start runs an instance and waits until it serves.
func (s *shop) start(args ...string) *instance {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	args = append([]string{
		"serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "off", "--database", s.database, "--redis", s.redis.URL(),
		"--secret", secret, "--admin-password", adminPassword, "--ip-rate", "0", "--user-requests", "0",
		"--limit-rate", "1000000", "--ack-wait", "5s", "--limit-burst", "1000000", "--log-level", "warn",
	}, args...)
	i := &instance{t: s.t, cmd: exec.CommandContext(context.Background(), path, args...), log: &logBuffer{}, done: make(chan struct{})}
	i.cmd.Stderr = i.log
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(i.kill)
	served := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), " is at "); ok {
				served <- url
			}
		}
		_ = i.cmd.Wait()
		close(i.done)
	}()
	select {
	case i.url = <-served:
	case <-i.done:
		s.t.Fatalf("the instance ended at its start: %s", i.log)
	case <-time.After(startTimeout):
		s.t.Fatalf("the instance did not start: %s", i.log)
	}
	return i
}

// kill ends the instance without warning.
func (i *instance) kill() {
	select {
	case <-i.done:
		return
	default:
	}
	_ = i.cmd.Process.Kill()
	<-i.done
}

// stop ends the instance in order, which must take less than ten seconds and exit with 0.
func (i *instance) stop() {
	i.t.Helper()
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		i.t.Fatal(err)
	}
	select {
	case <-i.done:
	case <-time.After(recovery):
		i.t.Fatalf("the instance did not stop in %s: %s", recovery, i.log)
	}
	if code := i.cmd.ProcessState.ExitCode(); code != 0 {
		i.t.Errorf("exit code %d: %s", code, i.log)
	}
}

type document = map[string]any

// call makes one request. An error means that nothing is known of its effect.
func (s *shop) call(method, url, token string, body any, headers ...string) (status int, doc document, err error) {
	var payload io.Reader = http.NoBody
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, url, payload)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for j := 0; j+1 < len(headers); j += 2 {
		req.Header.Set(headers[j], headers[j+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return res.StatusCode, nil, fmt.Errorf("status %d, body %.100q: %w", res.StatusCode, raw, err)
	}
	return res.StatusCode, doc, nil
}

// must makes a request that has to succeed with a status.
func (s *shop) must(want int, method, url, token string, body any, headers ...string) document {
	s.t.Helper()
	status, doc, err := s.call(method, url, token, body, headers...)
	if err != nil || status != want {
		s.t.Fatalf("%s %s: status %d, want %d: %v %v", method, url, status, want, doc, err)
	}
	return doc
}

func (s *shop) operator(url string) string {
	s.t.Helper()
	if s.admin == "" {
		doc := s.must(http.StatusOK, "POST", url+"/api/v1/sessions", "", document{"name": "admin", "password": adminPassword})
		s.admin, _ = doc["token"].(string)
	}
	return s.admin
}

// sale makes an open sale and gives its id.
func (s *shop) sale(url string, quota int) string {
	s.t.Helper()
	body := document{
		"title": "scenario", "price_cents": 100, "quota": quota, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}
	doc := s.must(http.StatusCreated, "POST", url+"/api/v1/admin/sales", s.operator(url), body)
	id, _ := doc["id"].(string)
	return id
}

// token signs a buyer in, as any issuer with the secret may.
func (s *shop) token(user string) string {
	token, _, err := service.NewTokens([]byte(secret), time.Now).Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, time.Hour)
	if err != nil {
		s.t.Error(err)
	}
	return token
}

// books reads a sale's sums in the database and fails the test if they don't add up.
func (s *shop) books(saleID string) model.Books {
	s.t.Helper()
	books, ok, err := s.db.Books(context.Background(), saleID)
	if err != nil || !ok {
		s.t.Fatalf("books of %s: found %t, %v", saleID, ok, err)
	}
	if v := books.Violations(); len(v) > 0 {
		s.t.Fatalf("the books don't balance: %v", v)
	}
	return books
}

// recovered calls check until it is content, which must be within the time of a recovery.
func recovered(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(recovery)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, recovery, err)
		}
		<-ticker.C
	}
}

// audited waits until the gate agrees with the database and nothing is on its way.
func (s *shop) audited(url, saleID string) {
	s.t.Helper()
	recovered(s.t, "the gate agrees with the database", func() error {
		status, doc, err := s.call("GET", url+"/api/v1/admin/sales/"+saleID+"/audit", s.operator(url), nil)
		if err != nil {
			return err
		}
		gate, _ := doc["gate"].(document)
		if status != http.StatusOK || doc["ok"] != true || gate["stream"] != 0.0 || gate["inflight"] != 0.0 || gate["epoch"] == 0.0 {
			return fmt.Errorf("status %d: %v", status, doc)
		}
		return nil
	})
}

// auditCommand runs `flashsale audit`, which must exit with 0.
func (s *shop) auditCommand() {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := exec.CommandContext(s.t.Context(), path, "audit", "--database", s.database, "--redis", s.redis.URL()).CombinedOutput()
	if err != nil {
		s.t.Errorf("audit: %v\n%s", err, out)
	}
}
