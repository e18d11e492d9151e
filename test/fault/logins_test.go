package fault

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

func loginsWithoutEnd(d *drill) {
	d.stores()
	a := d.StartWith(leanly)
	d.sell(size(1_000, 5_000), a)
	client := d.manyConnections()
	lasts := span(3*time.Second, 20*time.Second)
	const perSecond = 50
	calm := d.flood(client, a.URL, "calm", perSecond, span(time.Second, 2*time.Second))
	before := d.resident(a)

	var mu sync.Mutex
	counts, most := map[string]int{}, int64(0)
	endGuesses := d.meanwhile(200, 100*time.Millisecond, func(guesser, try int) {
		name := []string{"admin", fmt.Sprint("stranger-", guesser)}[try%2] // one exists, the other does not
		body := strings.NewReader(fmt.Sprintf(`{"name":%q,"password":"guess number %d"}`, name, try))
		r, err := ask(d.Context(), client, http.MethodPost, a.URL+"/api/v1/sessions", body, "Content-Type", "application/json")
		what := r.String()
		if err != nil {
			what = err.Error()
		} else if wrong := again(r); r.status != http.StatusUnauthorized && wrong != "" {
			what = wrong
		}
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
	})
	endLooks := d.meanwhile(1, 50*time.Millisecond, func(int, int) { most = max(most, d.resident(a)) })
	f := d.flood(client, a.URL, "buyer", perSecond, lasts)
	endGuesses()
	endLooks()

	no, tooMany := counts["401 unauthenticated"], counts["503 unavailable"]
	if no == 0 || tooMany == 0 || len(counts) > 2 {
		d.Errorf("log-ins heard %v, want both a no and that there are too many, and nothing else", counts)
	}
	if len(f.wrong) > 0 || len(f.refused) > 0 || f.skipped > 0 || len(f.accepted) < perSecond*int(lasts.Seconds())/2 {
		d.Errorf("buyers: %d accepted, %d refused, %d could not be sent; %s", len(f.accepted), len(f.refused), f.skipped, some(f.wrong))
	}
	was, is := percentile(calm.accepted, 95), percentile(f.accepted, 95)
	if is > max(10*was, time.Second) {
		d.Errorf("95 of 100 buyers were served within %s before, and within %s among the log-ins", was, is)
	}
	// A password hash takes 19 MiB. Two at a time stay far below this bound, two hundred far exceed it.
	if most-before > 192<<20 {
		d.Errorf("its memory went from %d MiB to %d MiB", before>>20, most>>20)
	}
	d.finish("200 guessers: %d times 401, %d times 503; buyers' p95 %s, before %s; %d MiB, before %d",
		no, tooMany, ms(is), ms(was), most>>20, before>>20)
}
