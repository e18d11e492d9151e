//go:build bench

package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/shop"
)

// The kits run here as `make kits` has fetched them. `make test` leaves them out, since it does without npm and k6's
// source. Each runs against a server that answers when the order is in the database, and one that answers before, so
// that buyers have to follow. They are more than there are units, so refusals are a part of it.
var acks = []string{"confirmed", "queued"}

func TestNewman(t *testing.T) {
	const quota, late = 5, 5 // it lists each request that it sends
	requests := regexp.MustCompile(`(?m)^\s*│ +requests │ +(\d+) │`)
	for _, ack := range acks {
		t.Run(ack, func(t *testing.T) {
			s := serve(t, "--ack="+ack)
			saleID := s.sale(quota, 1, time.Now())
			output, code := newman(t, s, saleID, s.tokens(quota+late))
			if code != 0 {
				t.Fatalf("newman ended with %d", code)
			}
			s.audited(saleID, 0, quota)
			found := requests.FindStringSubmatch(output)
			if found == nil {
				t.Fatal("newman does not say how many requests it sent")
			}
			sent, _ := strconv.Atoi(found[1]) // digits
			if unfollowed := 6*quota + 3*late; ack == "confirmed" && sent != unfollowed || ack == "queued" && sent < unfollowed+quota {
				t.Errorf("newman sent %d requests, %d without those that follow orders", sent, unfollowed)
			}
		})
	}
}

// The server has its usual limits: the buyers of k6 come from addresses of their own.
func TestK6(t *testing.T) {
	const quota, late = 200, 50
	for i, ack := range acks {
		t.Run(ack, func(t *testing.T) {
			s := serve(t, "--ack="+ack)
			saleID := s.sale(quota, 1, time.Now())
			// P99 leaves room for a machine that builds or tests beside it: wrong answers fail here, slow ones don't.
			settings := []string{"LOAD=" + []string{"rush", "constant"}[i], "RATE=100", "SECONDS=5", "P99=10000"}
			output, code := k6(t, s, saleID, s.tokens(quota+late), settings...)
			if code != 0 {
				t.Fatalf("k6 ended with %d", code)
			}
			want := fmt.Sprintf("\npaid: %d\n", quota)
			if ack == "queued" { // of the others some may be queued too, should the database be slow
				want = fmt.Sprintf("\nqueued: %d", quota) + want
			}
			if !strings.Contains(output, want) {
				t.Errorf("k6 does not say %q", want)
			}
			s.audited(saleID, 0, quota)
		})
	}
}

// A kit that finds no fault with a sale that has not begun would find none with anything.
func TestKitsFindFault(t *testing.T) {
	s := serve(t)
	saleID := s.sale(1, 1, time.Now().Add(2*time.Hour))
	tokens := s.tokens(1)
	if output, code := newman(t, s, saleID, tokens); code != 1 || !strings.Contains(output, "AssertionError  path: 200, 32 hex digits") {
		t.Errorf("newman ended with %d", code)
	}
	if output, code := k6(t, s, saleID, tokens, "RATE=1", "SECONDS=1"); code != 99 || !strings.Contains(output, "FAILED path: 200, 32 hex digits") {
		t.Errorf("k6 ended with %d", code)
	}
}

func newman(t *testing.T, s *server, saleID, tokens string) (output string, code int) {
	t.Helper()
	return runKit(t, nil, "node", fetched(t, ".newman/node_modules/newman/bin/newman.js"), "run", "--color", "off",
		"-e", "postman/flashsale.postman_environment.json", "--env-var", "base_url="+s.url, "--env-var", "sale_id="+saleID,
		"-d", tokens, "postman/flashsale.postman_collection.json")
}

func k6(t *testing.T, s *server, saleID, tokens string, settings ...string) (output string, code int) {
	t.Helper()
	args := []string{"run", "--quiet", "-e", "SALE=" + s.page(saleID), "-e", "TOKENS=" + tokens}
	for _, setting := range settings {
		args = append(args, "-e", setting)
	}
	return runKit(t, []string{"K6_NO_USAGE_REPORT=true", "K6_LOCAL_IPS=127.1.0.0/16"}, fetched(t, "k6"), append(args, "k6/rush.js")...)
}

// fetched is a tool's path below build.
func fetched(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(shop.Root(), "build", name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is no %s: `make kits` fetches it", path)
	}
	return path
}
