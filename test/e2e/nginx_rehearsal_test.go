package e2e

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"flashsale/lab/rehearsal"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// A rehearsal comes through nginx with all limits on, as docs/loadtest.md says: each buyer is a client of its own there and at
// the instances, and what buyers were told agrees with the books.
func TestRehearsalBehindNginx(t *testing.T) {
	t.Parallel()
	const units = 50
	s := shop.New(t)
	limits := []string{"--trusted-proxies=127.0.0.1", "--ip-rate=20"} // the crowd as one client would be refused
	one, two := s.Start(limits...), s.Start(limits...)
	d := door{shop.OpenDoor(t, "127.0.0.1", "X-Forwarded-For", "weighted.conf", "plain.conf", line(one.URL, ""), line(two.URL, ""))}
	shape := filepath.Join(t.TempDir(), "shape.yaml")
	check.NoError(t, os.WriteFile(shape, []byte("arrivals: spike\nbuyers: 300\nunits: 50\nlasts: 3s\nhalf: 1s\npay: 0.5\n"), 0o600))
	raw, said := s.Rehearse(d.URL, shape, "--payment=sandbox")
	var report rehearsal.Report
	check.NoError(t, json.Unmarshal(raw, &report))
	if report.Verdict != rehearsal.Passed && report.Verdict != rehearsal.Late || report.Books.Orders != units { // a busy machine may be late
		t.Errorf("%+v, %d orders\n%s", report.Findings, report.Books.Orders, said)
	}
	log, err := os.ReadFile(filepath.Join(d.Folder, "log", "access.log"))
	check.NoError(t, err)
	clients := map[string]bool{}
	for text := range bytes.Lines(log) {
		var seen logged
		check.NoError(t, json.Unmarshal(text, &seen))
		if addr, err := netip.ParseAddr(seen.Client); err == nil && netip.MustParsePrefix("198.18.0.0/15").Contains(addr) {
			clients[seen.Client] = true
		}
	}
	if len(clients) < 100 {
		t.Errorf("nginx saw %d clients", len(clients))
	}
}
