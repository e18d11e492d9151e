// Package shop runs the built engine for tests, as in production, faults included: instances are processes beside real
// MariaDB and Redis servers, buyers use HTTP, and the answers are compared with the books. Only tests import it.
package shop

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/service/auth"
	"flashsale/test/kit"
)

const (
	// Secret is the secret of every instance. Tests sign buyers' tokens and providers' callbacks with it.
	Secret        = "scenario-secret-of-thirty-two-bytes!"
	adminPassword = "scenario-operator"
	// startTimeout bounds the start of an instance. Recovery is the longest time that a recovery from a fault may take.
	startTimeout = time.Minute
	Recovery     = 10 * time.Second
	// patience bounds requests and waits for a recovery on a machine that is busy with other tests. The drill measures
	// how long a recovery takes.
	patience = time.Minute
)

// Shop is a set of instances over the same stores. A method that cannot go on fails the test.
type Shop struct {
	Database string // its URL
	Redis    *kit.RedisServer
	DB       *repository.Store // the test's own connection to the database
	Binary   string            // the program that the instances run

	t      testing.TB
	admin  string
	client *http.Client
}

// Document is a JSON object, of a request or an answer.
type Document = map[string]any

// New makes a shop on fresh stores: a database on the shared MariaDB, and a Redis of its own.
func New(t testing.TB) *Shop {
	t.Helper()
	return On(t, kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t))
}

// On makes a shop on stores that the test has started.
func On(t testing.TB, database string, redis *kit.RedisServer) *Shop {
	t.Helper()
	s := &Shop{
		Database: database, Redis: redis, Binary: Build(t), t: t,
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	db, err := repository.Open(t.Context(), database, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s.DB = db
	return s
}

// Instance is one process of the engine.
type Instance struct {
	URL string
	Log *Log

	t    testing.TB
	cmd  *exec.Cmd
	ops  chan string
	done chan struct{}
}

// Log keeps what an instance writes to its standard error.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Start runs an instance and waits until it serves. args follow the default arguments and override them.
func (s *Shop) Start(args ...string) *Instance {
	s.t.Helper()
	return s.StartWith(nil, args...)
}

// StartWith is Start with additional environment variables.
func (s *Shop) StartWith(env []string, args ...string) *Instance {
	s.t.Helper()
	args = append([]string{
		"serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "off", "--database", s.Database, "--redis", s.Redis.URL(),
		"--secret", Secret, "--admin-password", adminPassword, "--ip-rate", "0", "--user-requests", "0",
		"--limit-rate", "1000000", "--ack-wait", "5s", "--limit-burst", "1000000", "--log-level", "warn",
	}, args...)
	i := &Instance{t: s.t, cmd: exec.CommandContext(context.Background(), s.Binary, args...), Log: &Log{}, ops: make(chan string, 1), done: make(chan struct{})}
	i.cmd.Env = append(os.Environ(), env...)
	i.cmd.Stderr = i.Log
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(i.Kill)
	served := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), " is at "); ok {
				i.URL = url
				close(served)
			}
			if url, ok := strings.CutPrefix(lines.Text(), "figures for operators: "); ok {
				i.ops <- strings.TrimSuffix(url, "/metrics")
			}
		}
		_ = i.cmd.Wait()
		close(i.done)
	}()
	select {
	case <-served:
	case <-i.done:
		s.t.Fatalf("the instance ended at its start: %s", i.Log)
	case <-time.After(startTimeout):
		s.t.Fatalf("the instance did not start: %s", i.Log)
	}
	return i
}

// OpsURL returns the address at which an instance with an --ops-addr serves its figures. It may be called once.
func (i *Instance) OpsURL() string {
	i.t.Helper()
	select {
	case url := <-i.ops:
		return url
	case <-i.done:
	case <-time.After(startTimeout):
	}
	i.t.Fatalf("the instance shows no figures: %s", i.Log)
	return ""
}

// Exited returns a channel that is closed when the process is gone.
func (i *Instance) Exited() <-chan struct{} { return i.done }

// Signal sends a signal to the process.
func (i *Instance) Signal(sig os.Signal) {
	i.t.Helper()
	if err := i.cmd.Process.Signal(sig); err != nil {
		i.t.Fatal(err)
	}
}

// PID returns the process id.
func (i *Instance) PID() int { return i.cmd.Process.Pid }

// Kill ends the instance with SIGKILL.
func (i *Instance) Kill() {
	select {
	case <-i.done:
		return
	default:
	}
	_ = i.cmd.Process.Kill()
	<-i.done
}

// Stop ends the instance with SIGTERM. The process must exit with 0 within Recovery, ten seconds.
func (i *Instance) Stop() {
	i.t.Helper()
	i.Signal(syscall.SIGTERM)
	select {
	case <-i.done:
	case <-time.After(Recovery):
		i.t.Fatalf("the instance did not stop in %s: %s", Recovery, i.Log)
	}
	if code := i.cmd.ProcessState.ExitCode(); code != 0 {
		i.t.Errorf("exit code %d: %s", code, i.Log)
	}
}

// Call makes one request. After an error the request's effect is unknown.
func (s *Shop) Call(method, url, token string, body any, headers ...string) (status int, doc Document, err error) {
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

// Must makes a request and fails the test unless the answer has the wanted status.
func (s *Shop) Must(want int, method, url, token string, body any, headers ...string) Document {
	s.t.Helper()
	status, doc, err := s.Call(method, url, token, body, headers...)
	if err != nil || status != want {
		s.t.Fatalf("%s %s: status %d, want %d: %v %v", method, url, status, want, doc, err)
	}
	return doc
}

// Operator signs the operator in and returns the token.
func (s *Shop) Operator(url string) string {
	s.t.Helper()
	if s.admin == "" {
		doc := s.Must(http.StatusOK, "POST", url+"/api/v1/sessions", "", Document{"name": "admin", "password": adminPassword})
		s.admin, _ = doc["token"].(string)
	}
	return s.admin
}

// Sale makes an open sale of quota units, one for each user, and returns its id.
func (s *Shop) Sale(url string, quota int) string {
	s.t.Helper()
	body := Document{
		"title": "scenario", "price_cents": 100, "quota": quota, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}
	doc := s.Must(http.StatusCreated, "POST", url+"/api/v1/admin/sales", s.Operator(url), body)
	id, _ := doc["id"].(string)
	return id
}

// Token returns a buyer's token, signed with Secret as by any issuer that has it.
func (s *Shop) Token(user string) string {
	token, _, err := auth.NewTokens([]byte(Secret), time.Now).Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, time.Hour)
	if err != nil {
		s.t.Error(err)
	}
	return token
}

// Books reads a sale's sums in the database and fails the test if they don't add up.
func (s *Shop) Books(saleID string) model.Books {
	s.t.Helper()
	books, ok, err := s.DB.Books(context.Background(), saleID)
	if err != nil || !ok {
		s.t.Fatalf("books of %s: found %t, %v", saleID, ok, err)
	}
	if v := books.Violations(); len(v) > 0 {
		s.t.Fatalf("the books don't balance: %v", v)
	}
	return books
}

// Recovered polls check until it returns nil. It fails the test after patience.
func Recovered(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		<-ticker.C
	}
}

// Audited waits until the gate agrees with the database, its stream is empty and no attempt is in flight.
func (s *Shop) Audited(url, saleID string) {
	s.t.Helper()
	Recovered(s.t, "the gate agrees with the database", func() error {
		status, doc, err := s.Call("GET", url+"/api/v1/admin/sales/"+saleID+"/audit", s.Operator(url), nil)
		if err != nil {
			return err
		}
		gate, _ := doc["gate"].(Document)
		if status != http.StatusOK || doc["ok"] != true || gate["stream"] != 0.0 || gate["inflight"] != 0.0 || gate["epoch"] == 0.0 {
			return fmt.Errorf("status %d: %v", status, doc)
		}
		return nil
	})
}

// AuditCommand runs `flashsale audit`, which must exit with 0.
func (s *Shop) AuditCommand() {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), s.Binary, "audit", "--database", s.Database, "--redis", s.Redis.URL()).CombinedOutput()
	if err != nil {
		s.t.Errorf("audit: %v\n%s", err, out)
	}
}
