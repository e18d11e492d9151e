// Package load holds the kits for testers, and runs them against the built server as docs/loadtest.md describes.
package load

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// kitTimeout is several times what the longest run of a kit takes on a slow machine.
const kitTimeout = 3 * time.Minute

func TestMain(m *testing.M) { shop.Main(m) }

// server is a running server with embedded stores and no sale.
type server struct {
	*shop.Shop
	t   *testing.T
	url string
}

// serve starts a server. args follow the default arguments and override them.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := shop.On(t, kit.SQLite(t), nil)
	instance := s.Start(append([]string{"--demo=false", "--ack-wait=10s"}, args...)...)
	t.Cleanup(func() {
		if instance.Stop(); t.Failed() {
			t.Logf("the server's log:\n%s", instance.Log)
		}
	})
	return &server{s, t, instance.URL}
}

// sale makes a sale that is open from an hour before to an hour after a moment, and returns its id.
func (s *server) sale(quota, limitPerUser int, middle time.Time) string {
	s.t.Helper()
	id, _ := s.Must(http.StatusCreated, "POST", s.url+"/api/v1/admin/sales", s.Operator(s.url), shop.Document{
		"title": "Kits", "price_cents": 990, "quota": quota, "limit_per_user": limitPerUser,
		"starts_at": middle.Add(-time.Hour).UTC().Format(time.RFC3339), "ends_at": middle.Add(time.Hour).UTC().Format(time.RFC3339),
	})["id"].(string)
	return id
}

// page returns the address of a sale's page, as the server prints it.
func (s *server) page(saleID string) string { return s.url + "/sales/" + saleID }

// tokens signs buyers in with the command of that name, and returns the file with the CSV.
func (s *server) tokens(users int) (file string) {
	s.t.Helper()
	csv, err := exec.CommandContext(s.t.Context(), s.Binary, "tokens", "--users", fmt.Sprint(users),
		"--database", s.Database, "--secret", shop.Secret).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	file = filepath.Join(s.t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, csv, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// audited checks that the books of a sale balance and have these units.
func (s *server) audited(saleID string, held, paid int) {
	s.t.Helper()
	books := s.Must(http.StatusOK, "GET", s.url+"/api/v1/admin/sales/"+saleID+"/audit", s.Operator(s.url), nil)
	if books["ok"] != true || books["held"] != float64(held) || books["paid"] != float64(paid) {
		s.t.Errorf("the books are %v, want %d units held and %d paid", books, held, paid)
	}
}

// runKit runs a command of a kit, with additional environment variables. It returns the output, which -v shows, and
// fails the test unless the command ends with the wanted exit code.
func runKit(t *testing.T, code int, env []string, name string, args ...string) (output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second // also for its children
	raw, err := cmd.CombinedOutput()
	t.Logf("%s: %v\n%s", cmd, err, raw)
	if cmd.ProcessState.ExitCode() != code { // -1: the command did not start
		t.Fatalf("%s: %v, want exit code %d", name, err, code)
	}
	return string(raw)
}
