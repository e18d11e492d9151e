//go:build bench

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/shop"
)

// These tests run the kits that `make kits` has fetched; `make test` omits them. Each kit runs against a server that
// answers when the order is in the database, and a server that answers earlier, so that buyers have to poll the order.
// There are more buyers than units, so some are refused.
var acks = []string{"confirmed", "queued"}

func TestNewman(t *testing.T) {
	const quota, late = 5, 5 // few, because newman lists each request
	for _, ack := range acks {
		t.Run(ack, func(t *testing.T) {
			s := serve(t, "--ack="+ack)
			saleID := s.sale(quota, 1, time.Now())
			output := newman(t, 0, s, saleID, s.tokens(quota+late))
			s.audited(saleID, 0, quota)
			sent, err := strconv.Atoi(strings.Join(matches(`(?m)^\s*│ +requests │ +(\d+) │`, output), ""))
			if err != nil {
				t.Fatal("newman does not print how many requests it sent")
			}
			if unpolled := 6*quota + 3*late; ack == "confirmed" && sent != unpolled || ack == "queued" && sent < unpolled+quota {
				t.Errorf("newman sent %d requests, want %d, and more if it has to poll orders", sent, unpolled)
			}
		})
	}
}

// The server has its default limits: the buyers of k6 come from addresses of their own.
func TestK6(t *testing.T) {
	const quota, late = 200, 50
	for i, ack := range acks {
		t.Run(ack, func(t *testing.T) {
			s := serve(t, "--ack="+ack, "--ip-rate=200", "--user-requests=10", "--limit-rate=20000", "--limit-burst=20000")
			saleID := s.sale(quota, 1, time.Now())
			// P99 is far above what a busy machine needs: wrong answers fail the test, slow answers don't.
			settings := []string{"LOAD=" + []string{"rush", "constant"}[i], "RATE=100", "SECONDS=5", "P99=10000"}
			output := k6(t, 0, s, saleID, s.tokens(quota+late), settings...)
			want := fmt.Sprintf("\npaid: %d\n", quota)
			if ack == "queued" { // with the other setting a slow database may queue some orders, too
				want = fmt.Sprintf("\nqueued: %d", quota) + want
			}
			if !strings.Contains(output, want) {
				t.Errorf("k6 does not print %q", want)
			}
			s.audited(saleID, 0, quota)
		})
	}
}

// Each kit fails for a sale that has not begun.
func TestKitsFindFaults(t *testing.T) {
	s := serve(t)
	saleID, tokens := s.sale(1, 1, time.Now().Add(2*time.Hour)), s.tokens(1)
	if output := newman(t, 1, s, saleID, tokens); !strings.Contains(output, "AssertionError  path: 200, 32 hex digits") {
		t.Error("newman does not name the failed assertion")
	}
	if output := k6(t, 99, s, saleID, tokens, "RATE=1", "SECONDS=1"); !strings.Contains(output, "FAILED path: 200, 32 hex digits") {
		t.Error("k6 does not name the failed check")
	}
}

func newman(t *testing.T, code int, s *server, saleID, tokens string) (output string) {
	t.Helper()
	return runKit(t, code, nil, "node", fetched(t, ".newman/node_modules/newman/bin/newman.js"), "run", "--color", "off",
		"-e", "postman/flashsale.postman_environment.json", "--env-var", "base_url="+s.url, "--env-var", "sale_id="+saleID,
		"-d", tokens, "postman/flashsale.postman_collection.json")
}

func k6(t *testing.T, code int, s *server, saleID, tokens string, settings ...string) (output string) {
	t.Helper()
	args := []string{"run", "--quiet", "-e", "SALE=" + s.page(saleID), "-e", "TOKENS=" + tokens}
	for _, setting := range settings {
		args = append(args, "-e", setting)
	}
	env := []string{"K6_NO_USAGE_REPORT=true", "K6_LOCAL_IPS=127.1.0.0/16"}
	return runKit(t, code, env, fetched(t, "k6"), append(args, "k6/rush.js")...)
}

// fetched returns the path of a tool below build.
func fetched(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(shop.Root(), "build", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: `make kits` fetches it", err)
	}
	return path
}
