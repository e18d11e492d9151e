//go:build bench

// Package clients buys with clients in other languages that are made from web/openapi.yaml. `make clients` makes them and
// runs the tests; `make test` omits them.
package clients

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// timeout is far above the second that a purchase or a script takes.
const timeout = 5 * time.Minute

func TestMain(m *testing.M) { shop.Main(m) }

// Each client registers, logs in, buys and pays, and the books have its order.
func TestClients(t *testing.T) {
	compiled := filepath.Join(shop.Root(), "build", "clients", "typescript", "buy.js")
	for name, command := range map[string][]string{"TypeScript": {"node", compiled}, "Python": {"python3", "buy.py"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop.Embedded(t)
			url := s.Start("--demo=false", "--ack-wait=10s").URL
			now := time.Now().UTC()
			sale, _ := s.Must(http.StatusCreated, "POST", url+"/api/v1/admin/sales", s.Operator(url), shop.Document{
				"title": name, "price_cents": 990, "quota": 5,
				"starts_at": now.Add(-time.Hour).Format(time.RFC3339), "ends_at": now.Add(time.Hour).Format(time.RFC3339),
			})["id"].(string)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			output, err := exec.CommandContext(ctx, command[0], append(command[1:], url)...).CombinedOutput()
			t.Logf("%s", output)
			check.NoError(t, err)
			if !regexp.MustCompile(`^order [A-Z2-7]{48} is paid\n$`).Match(output) {
				t.Errorf("the client prints %q", output)
			}
			books := s.Must(http.StatusOK, "GET", url+"/api/v1/admin/sales/"+sale+"/audit", s.Operator(url), nil)
			if books["ok"] != true || books["paid"] != 1.0 {
				t.Errorf("the books are %v, want one unit paid", books)
			}
		})
	}
}
