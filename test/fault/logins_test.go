package fault

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	"flashsale/test/kit/shop"
)

func loginsWithoutEnd(d *drill) {
	s := shop.New(d)
	a := s.StartWith(leanly)
	quota := size(1_000, 5_000)
	sale := s.Sale(a.URL, quota)
	client := d.manyConnections()
	lasts := span(3*time.Second, 20*time.Second)
	const perSecond = 50
	calm := d.flood(client, s, sale, a.URL, "calm", perSecond, span(time.Second, 2*time.Second))
	before := d.resident(a)

	ended := make(chan struct{})
	var crowd sync.WaitGroup
	var mu sync.Mutex
	counts, most := map[string]int{}, int64(0)
	for n := range 200 {
		crowd.Go(func() {
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for try := 0; ; try++ {
				select {
				case <-ended:
					return
				case <-ticker.C:
				}
				name := []string{"admin", fmt.Sprint("stranger-", n)}[try%2] // one exists, the other does not
				body := fmt.Appendf(nil, `{"name":%q,"password":"guess number %d"}`, name, try)
				r, err := ask(d.Context(), client, http.MethodPost, a.URL+"/api/v1/sessions", bytes.NewReader(body), "Content-Type", "application/json")
				what := fmt.Sprint(r.status, " ", r.code())
				if err != nil {
					what = err.Error()
				} else if wrong := again(r); r.status != http.StatusUnauthorized && wrong != "" {
					what = wrong
				}
				mu.Lock()
				counts[what]++
				mu.Unlock()
			}
		})
	}
	crowd.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				most = max(most, d.resident(a))
			}
		}
	})
	f := d.flood(client, s, sale, a.URL, "buyer", perSecond, lasts)
	close(ended)
	crowd.Wait()

	for what := range counts {
		if what != "401 unauthenticated" && what != "503 unavailable" {
			d.Errorf("a log-in heard %s, %d times", what, counts[what])
		}
	}
	if counts["401 unauthenticated"] == 0 || counts["503 unavailable"] == 0 {
		d.Errorf("log-ins heard %v, want both a no and that there are too many", counts)
	}
	if len(f.wrong) > 0 || len(f.refused) > 0 || f.skipped > 0 || len(f.accepted) < perSecond*int(lasts.Seconds())/2 {
		d.Errorf("buyers: %d accepted, %d refused, %d could not be sent; %q", len(f.accepted), len(f.refused), f.skipped, f.wrong[:min(3, len(f.wrong))])
	}
	was, is := percentile(calm.accepted, 95), percentile(f.accepted, 95)
	if is > max(10*was, time.Second) {
		d.Errorf("95 of 100 buyers were served within %s before, and within %s among the log-ins", was, is)
	}
	// A password hash takes 19 MiB. Two at a time stay far below this bound, two hundred far exceed it.
	if most-before > 192<<20 {
		d.Errorf("its memory went from %d MiB to %d MiB", before>>20, most>>20)
	}
	d.result.Happened = fmt.Sprintf("200 guessers: %d times 401, %d times 503; buyers' p95 %s, before %s; %d MiB, before %d",
		counts["401 unauthenticated"], counts["503 unavailable"], is.Round(time.Millisecond), was.Round(time.Millisecond), most>>20, before>>20)
	d.recovered(s, sale, int64(quota), append(calm.attempts, f.attempts...), a.URL)
}
