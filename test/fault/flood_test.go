package fault

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

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
			if r.status == http.StatusOK {
				passed++
			} else if wrong := again(r); wrong != "" {
				d.wrong(r.status)("%s: %s %v", what, wrong, err)
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
	r, err := ask(d.Context(), elsewhere, http.MethodGet, open.URL+"/api/v1/time", http.NoBody)
	if err != nil || r.status != http.StatusOK {
		d.wrong(r.status)("from another address: %d, %v", r.status, err)
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
		if wrong := again(r); i >= 5 && wrong != "" {
			d.Slowf("request %d of one buyer: %s %v", i, wrong, err) // without Redis an instance counts anew
		}
	}
	if counts := shop.Tally(d.attempts); counts["201 "] != 1 || counts["409 limit_reached"] != 4 {
		d.Slowf("one buyer at limit 1 with five requests allowed: %v", counts)
	}
	d.finish("%s", strings.Join(told, "; "))
}

// flood holds the results of requests that were sent at a fixed rate, however fast they were answered.
type flood struct {
	accepted []time.Duration
	refused  []time.Duration
	wrong    []string
	late     []string // descriptions of 202, 5xx and missing answers
	skipped  int      // requests for which no sender was free
	lasted   time.Duration
}

func (f flood) sent() int { return len(f.accepted) + len(f.refused) }

// senders is how many requests of a flood may be in flight at once.
const senders = 400

// flood sends perSecond purchases a second, each by another buyer.
func (d *drill) flood(client *http.Client, url, prefix string, perSecond int, lasts time.Duration) (f flood) {
	d.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	due := make(chan int, senders)
	for range senders {
		work.Go(func() {
			for n := range due {
				a := shop.Attempt{User: fmt.Sprint(prefix, n), URL: url}
				a.Key = "key-" + a.User
				r, err := d.knock(client, &a, d.sale)
				mu.Lock()
				d.attempts = append(d.attempts, a)
				switch {
				case err != nil:
					f.late = append(f.late, err.Error())
				case r.status == http.StatusCreated:
					f.accepted = append(f.accepted, r.took)
				default:
					f.refused = append(f.refused, r.took)
					if wrong := again(r); wrong != "" && said(r.status) == saidNothing {
						f.late = append(f.late, wrong)
					} else if wrong != "" {
						f.wrong = append(f.wrong, wrong)
					}
				}
				mu.Unlock()
			}
		})
	}
	start, sent := time.Now(), 0
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for now := start; now.Sub(start) < lasts; now = <-ticker.C {
		for ; sent < int(now.Sub(start).Seconds()*float64(perSecond)); sent++ {
			select {
			case due <- sent:
			default:
				f.skipped++
			}
		}
	}
	close(due)
	work.Wait()
	f.lasted = time.Since(start)
	return f
}

func tenTimesTheRate(d *drill) {
	const burst = 50
	rate := size(100, 200)
	d.stores()
	a := d.StartWith(leanly, "--limit-rate", fmt.Sprint(rate), "--limit-burst", fmt.Sprint(burst))
	lasts := size(4*time.Second, time.Minute)
	seconds := int(lasts.Seconds())
	d.sell(seconds*rate+burst+900, d.Start()) // for the setup and the checks; 900 for the floods before and after
	client := d.manyConnections()

	calm := d.flood(client, a.URL, "calm", rate/2, size(time.Second, 2*time.Second))
	if len(calm.wrong) > 0 {
		d.Fatalf("half of what it takes: wrong answers: %s", some(calm.wrong))
	}
	if len(calm.refused)+len(calm.late) > 0 { // more came at once if the machine stood still
		d.FatalSlowf("half of what it takes: %d refused, %s", len(calm.refused), some(calm.late))
	}
	normal := max(3*percentile(calm.accepted, 99), 250*time.Millisecond)

	early, late := int64(0), int64(0) // its peak memory in the second and in the last quarter
	start := time.Now()
	endLooks := d.meanwhile(1, 100*time.Millisecond, func(int, int) {
		switch quarter := 4 * time.Since(start) / lasts; {
		case quarter == 1:
			early = max(early, d.resident(a))
		case quarter >= 3:
			late = max(late, d.resident(a))
		}
	})
	f := d.flood(client, a.URL, "flood", 10*rate, lasts)
	endLooks()

	// What counts is how many requests were sent: a busy machine may not manage ten times the rate.
	if f.sent() < 5*rate*seconds {
		d.Slowf("this machine has sent %d requests of %d, too few to be an overload", f.sent(), 10*rate*seconds)
	}
	if most := burst + int(float64(rate)*f.lasted.Seconds()) + 1; len(f.accepted) > most {
		d.Errorf("%d were accepted, want at most %d", len(f.accepted), most)
	} else if len(f.accepted) < most/2 {
		d.Slowf("%d were accepted, want about %d", len(f.accepted), most)
	}
	if len(f.wrong) > 0 {
		d.Errorf("wrong answers: %s", some(f.wrong))
	}
	if len(f.late) > 0 {
		d.Slowf("late answers: %s", some(f.late))
	}
	taken, turned := percentile(f.accepted, 99), percentile(f.refused, 99)
	if bound := max(2*time.Second, 4*normal); taken > bound || turned > bound {
		d.Slowf("99 of 100 that were taken had their answer in %s, of those that were not in %s", taken, turned)
	}
	if early == 0 || late == 0 || late-early > flatSlack {
		d.Slowf("its memory went from %d MiB to %d MiB", early>>20, late>>20)
	}

	// The latency must be normal again within five seconds.
	over := time.Now()
	for n := 0; ; n++ {
		after := d.flood(client, a.URL, fmt.Sprintf("after%d-", n), rate/2, 500*time.Millisecond)
		p95 := percentile(after.accepted, 95)
		if len(after.wrong) > 0 {
			d.Errorf("wrong answers after the flood: %s", some(after.wrong))
			break
		}
		if len(after.refused)+len(after.late) == 0 && p95 <= normal {
			break
		}
		if time.Since(over) > 5*time.Second {
			d.Slowf("after five seconds: %d refused, %s, 95 of 100 within %s, normal is %s",
				len(after.refused), some(after.late), p95, normal)
			break
		}
	}
	calmed := time.Since(over)
	d.finish("%d requests a second, %d taken: %d accepted, 99 of 100 within %s; %d times 429, 99 of 100 within %s; "+
		"%d MiB, %+d; normal after %s", f.sent()/seconds, rate, len(f.accepted), ms(taken), len(f.refused), ms(turned),
		late>>20, (late-early)>>20, calmed.Round(100*time.Millisecond))
}

// The most attempts that wait for the database, for one sale on one instance: in the queue, and in the batch in
// progress.
const (
	waitingAtMost = 4096
	inOneBatch    = 512
)
