package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// Everybody who waits in a line asks for its state, and nginx asks an instance about once a second. The own entry is never
// taken from the cache.
func TestNginxCachesTheStateOfALine(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		f := newFleet(t)
		d := openDoor(t, f.lines()...)
		sale := f.SaleWith(d.URL, shop.Document{"quota": 1, "mode": "line", "starts_at": time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)})
		const waiting, each = 6, 50
		begun := time.Now()
		check.Together(waiting, func(n int) {
			c := from(t, shop.Address(n))
			for i := range each {
				c.get(d.URL+"/api/v1/sales/"+sale+"/line", "X-Request-Id", fmt.Sprintf("line-%d-%d", n, i)).is(t, http.StatusOK)
			}
		})
		most := 2 + int(time.Since(begun)/time.Second) // answers are kept for a second
		asked := 0
		for _, line := range d.log(t, "line-", waiting*each) {
			if strings.Contains(line.Upstream, ":") {
				asked++
			}
		}
		if asked < 1 {
			t.Errorf("of %d requests none reached an instance", waiting*each)
		}
		if asked > most { // requests wait for the answer to another one for two seconds
			t.Slowf("of %d requests %d reached an instance, want 1 to %d", waiting*each, asked, most)
		}
		c := from(t, shop.Address(1))
		for range 2 {
			c.get(d.URL+"/api/v1/sales/"+sale+"/entries/mine", "X-Request-Id", "mine-1").is(t, http.StatusUnauthorized)
		}
		for _, line := range d.log(t, "mine-", 2) {
			check.Same(t, "an own entry is asked of an instance", strings.Contains(line.Upstream, ":"), true)
		}
	})
}

// However many check a draw at once, an instance writes its proof once.
func TestNginxCachesTheProofOfADraw(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, f.lines()...)
	sale := f.SaleWith(d.URL, shop.Document{"quota": 1, "mode": "draw", "starts_at": time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)})
	f.Must(http.StatusCreated, "POST", d.URL+"/api/v1/sales/"+sale+"/entries", f.Token("ann"), shop.Document{})
	f.Must(http.StatusOK, "PATCH", d.URL+"/api/v1/admin/sales/"+sale, f.Operator(d.URL), shop.Document{"starts_at": time.Now().UTC().Format(time.RFC3339Nano)})
	shop.Recovered(t, "the draw is over", func() error {
		if line := f.Must(http.StatusOK, "GET", d.URL+"/api/v1/sales/"+sale+"/line", "", nil); line["phase"] != "over" {
			return fmt.Errorf("it is %v", line["phase"])
		}
		return nil
	})
	const checking = 20
	check.Together(checking, func(n int) {
		from(t, shop.Address(n)).get(d.URL+"/api/v1/sales/"+sale+"/draw.json", "X-Request-Id", fmt.Sprintf("proof-%d", n)).is(t, http.StatusOK)
	})
	asked := 0
	for _, line := range d.log(t, "proof-", checking) {
		if strings.Contains(line.Upstream, ":") {
			asked++
		}
	}
	check.Same(t, "requests that reached an instance", asked, 1)
}
