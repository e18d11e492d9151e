package fault

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

// forgeries are the headers in which various proxies forward a client's address.
var forgeries = []string{
	"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Forwarded-Host", "Via",
}

func forgedAddresses(d *drill) {
	const each, total = 20.0, 100
	d.stores()
	rate := []string{"--ip-rate", fmt.Sprint(each)}
	open := d.StartWith(leanly, rate...)
	behind := d.StartWith(leanly, append(rate, "--trusted-proxies", "127.0.0.1",
		"--limit-rate", fmt.Sprint(total), "--limit-burst", fmt.Sprint(total))...)
	byUser := d.StartWith(leanly, "--user-requests", "5", "--user-window", "1h")
	client := d.manyConnections()
	requests := size(1_000, 5_000)

	// letIn sends requests one after the other. It checks that no more are served than the rate and a burst of that
	// size allow.
	letIn := func(what string, rate float64, url string, from *http.Client, header func(i int) []string) string {
		d.Helper()
		passed, start := 0, time.Now()
		for i := range requests {
			r, err := ask(d.Context(), from, http.MethodGet, url+"/api/v1/time", http.NoBody, header(i)...)
			d.ok(err)
			if r.status == http.StatusOK {
				passed++
			} else if wrong := again(r); wrong != "" {
				d.Errorf("%s: %s", what, wrong)
			}
		}
		most := int(rate+rate*time.Since(start).Seconds()) + 1
		if passed < 1 || passed > most {
			d.Errorf("%s: %d of %d passed, want 1 to %d", what, passed, requests, most)
		}
		return fmt.Sprintf("%s: %d of %d passed (at most %d)", what, passed, requests, most)
	}
	spoofed := func(i int) (headers []string) {
		address := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		for _, name := range forgeries {
			headers = append(headers, name, address)
		}
		return headers
	}
	next := atomic.Int64{}
	elsewhere := d.manyConnections(func(t *http.Transport) { // a new connection from a new address for each request
		t.DisableKeepAlives = true
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			n := next.Add(1)
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1+byte(n>>16), byte(n>>8), byte(n))}}
			return dialer.DialContext(ctx, network, address)
		}
	})

	told := make([]string, 4)
	d.flat(open, 2, func() { told[0] = letIn("forged headers", each, open.URL, client, spoofed) })
	// A client at another address is not limited by the flood.
	if r, err := ask(d.Context(), elsewhere, http.MethodGet, open.URL+"/api/v1/time", http.NoBody); err != nil || r.status != http.StatusOK {
		d.Errorf("from another address: %d, %v", r.status, err)
	}
	// The proxy appends the true address to the addresses that its client claims.
	told[1] = letIn("one address behind a proxy", each, behind.URL, client, func(i int) []string {
		return []string{"X-Forwarded-For", fmt.Sprintf("10.0.%d.%d, 192.0.2.7", i>>8&255, i&255)}
	})
	d.flat(behind, 2, func() {
		told[2] = letIn("1,000 addresses behind a proxy", total, behind.URL, client, func(i int) []string {
			return []string{"X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", i%1_000/250, i%250)}
		})
	})
	told[3] = letIn("1,000 true addresses", total, behind.URL, elsewhere, func(int) []string { return nil })

	// The requests of one buyer count together, from whatever addresses they come.
	d.sell(10, byUser)
	d.attempts = make([]shop.Attempt, size(50, 1_000))
	for i := range d.attempts {
		d.attempts[i] = shop.Attempt{User: "everywhere", Key: fmt.Sprint("key-", i), URL: byUser.URL}
		r, err := d.knock(elsewhere, &d.attempts[i], d.sale, spoofed(i)...)
		d.ok(err)
		if wrong := again(r); i >= 5 && wrong != "" {
			d.Errorf("request %d of one buyer: %s", i, wrong)
		}
	}
	if counts := shop.Tally(d.attempts); counts["201 "] != 1 || counts["409 limit_reached"] != 4 {
		d.Errorf("one buyer at limit 1 with five requests allowed: %v", counts)
	}
	d.finish("%s", strings.Join(told, "; "))
}
