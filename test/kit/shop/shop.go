// Package shop runs the built engine for tests, as in production, faults included: instances are processes beside real
// MariaDB and Redis servers, buyers use HTTP, and the answers are compared with the books. Only tests import it.
package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/service/auth"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

const (
	// Secret is the secret of every instance. Tests sign buyers' tokens and providers' callbacks with it.
	Secret = "scenario-secret-of-thirty-two-bytes!"
	// OperatorPassword is the password of the operator, whose name is admin.
	OperatorPassword = "scenario-operator"
	// Recovery is the longest time that a recovery from a fault may take.
	Recovery = 10 * time.Second
	// patience bounds requests and waits for a recovery on a machine that is busy with other tests. The drill measures
	// how long a recovery takes.
	patience = time.Minute
)

// Shop is a set of instances over the same stores. A method that cannot go on fails the test.
type Shop struct {
	Database string            // its URL
	Redis    *kit.RedisServer  // nil: the instance has its own
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

// Embedded makes a shop for one instance with embedded stores. Its DB is nil.
func Embedded(t testing.TB) *Shop {
	t.Helper()
	return newShop(t, kit.SQLite(t), nil)
}

// On makes a shop on stores that the test has started.
func On(t testing.TB, database string, redis *kit.RedisServer) *Shop {
	t.Helper()
	s := newShop(t, database, redis)
	db, err := repository.Open(t.Context(), database, 8)
	check.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s.DB = db
	return s
}

func newShop(t testing.TB, database string, redis *kit.RedisServer) *Shop {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &Shop{
		Database: database, Redis: redis, Binary: Build(t), t: t,
		client: &http.Client{Timeout: patience, Transport: transport},
	}
}

// Start runs an instance and waits until it serves. args follow the default arguments and override them.
func (s *Shop) Start(args ...string) *Instance {
	s.t.Helper()
	return s.StartWith(nil, args...)
}

// StartWith is Start with additional environment variables.
func (s *Shop) StartWith(env []string, args ...string) *Instance {
	s.t.Helper()
	own := []string{
		"serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "off", "--database", s.Database,
		"--secret", Secret, "--admin-password", OperatorPassword, "--accounts", "open", "--payment", "sandbox", "--ip-rate", "0", "--user-requests", "0",
		"--limit-rate", "1000000", "--ack-wait", "5s", "--limit-burst", "1000000", "--log-level", "warn",
	}
	if s.Redis != nil {
		own = append(own, "--redis", s.Redis.URL())
	}
	return Launch(s.t, s.Binary, env, append(own, args...)...)
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
	const text = "%s %s: status %d, want %d: %v %v"
	switch {
	case err != nil, status != want && (status == http.StatusAccepted || status >= http.StatusInternalServerError):
		pace.Fatalf(s.t, text, method, url, status, want, doc, err) // an answer of a machine that is late
	case status != want:
		s.t.Fatalf(text, method, url, status, want, doc, err)
	}
	return doc
}

// Operator signs the operator in and returns the token.
func (s *Shop) Operator(url string) string {
	s.t.Helper()
	if s.admin == "" {
		doc := s.Must(http.StatusOK, "POST", url+"/api/v1/sessions", "", Document{"name": "admin", "password": OperatorPassword})
		s.admin, _ = doc["token"].(string)
	}
	return s.admin
}

// Sale makes an open sale of quota units, one for each user, and returns its id.
func (s *Shop) Sale(url string, quota int) string {
	s.t.Helper()
	return s.SaleToPay(url, quota, 600)
}

// Token returns a buyer's token, signed with Secret as by any issuer that has it. It is also valid on an instance whose
// clock is an hour ahead.
func (s *Shop) Token(user string) string {
	token, _, err := auth.NewTokens([]byte(Secret), time.Now).Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, 24*time.Hour)
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
			pace.Fatalf(t, "%s: not within %s: %v", what, patience, err)
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

// AuditCommand runs `flashsale audit`, which must exit with 0. args override the addresses of the stores.
func (s *Shop) AuditCommand(args ...string) {
	s.t.Helper()
	args = append([]string{"audit", "--database", s.Database, "--redis", s.Redis.URL()}, args...)
	out, err := exec.CommandContext(s.t.Context(), s.Binary, args...).CombinedOutput()
	if err != nil {
		s.t.Errorf("audit: %v\n%s", err, out)
	}
}

// Rehearse runs `flashsale rehearse` with a shape's file against an address, and returns its report in JSON and what it printed.
func (s *Shop) Rehearse(url, shape string, args ...string) (report, said []byte) {
	s.t.Helper()
	out := s.t.TempDir()
	args = append([]string{
		"rehearse", "--url=" + url, "--shape=" + shape, "--out=" + out, "--database=" + s.Database, "--redis=" + s.Redis.URL(), "--secret=" + Secret,
	}, args...)
	said, err := exec.CommandContext(s.t.Context(), s.Binary, args...).CombinedOutput()
	report, missing := os.ReadFile(filepath.Join(out, "report.json"))
	if missing != nil {
		s.t.Fatalf("the rehearsal has no report: %v\n%s", err, said)
	}
	return report, said
}
