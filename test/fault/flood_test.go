package fault

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"flashsale/test/kit/shop"
)

// flood holds the results of requests that were sent at a fixed rate, however fast they were answered.
type flood struct {
	accepted []time.Duration
	refused  []time.Duration
	wrong    []string
	skipped  int // requests for which no sender was free
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
					f.wrong = append(f.wrong, err.Error())
				case r.status == http.StatusCreated:
					f.accepted = append(f.accepted, r.took)
				default:
					f.refused = append(f.refused, r.took)
					if wrong := again(r); wrong != "" {
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
	lasts := span(4*time.Second, time.Minute)
	seconds := int(lasts.Seconds())
	d.sell(seconds*rate+burst+900, d.Start()) // for the setup and the checks; 900 for the floods before and after
	client := d.manyConnections()

	calm := d.flood(client, a.URL, "calm", rate/2, span(time.Second, 2*time.Second))
	if len(calm.refused) > 0 || len(calm.wrong) > 0 {
		d.Fatalf("half of what it takes: %d refused, %s", len(calm.refused), some(calm.wrong))
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
		d.Errorf("this machine has sent %d requests of %d, too few to be an overload", f.sent(), 10*rate*seconds)
	}
	if most := burst + int(float64(rate)*f.lasted.Seconds()) + 1; len(f.accepted) > most || len(f.accepted) < most/2 {
		d.Errorf("%d were accepted, want about %d", len(f.accepted), most)
	}
	if len(f.wrong) > 0 {
		d.Errorf("wrong answers: %s", some(f.wrong))
	}
	taken, turned := percentile(f.accepted, 99), percentile(f.refused, 99)
	if bound := max(2*time.Second, 4*normal); taken > bound || turned > bound {
		d.Errorf("99 of 100 that were taken had their answer in %s, of those that were not in %s", taken, turned)
	}
	if early == 0 || late == 0 || late-early > flatSlack {
		d.Errorf("its memory went from %d MiB to %d MiB", early>>20, late>>20)
	}

	// The latency must be normal again within five seconds.
	over := time.Now()
	for n := 0; ; n++ {
		after := d.flood(client, a.URL, fmt.Sprintf("after%d-", n), rate/2, 500*time.Millisecond)
		p95 := percentile(after.accepted, 95)
		if len(after.refused)+len(after.wrong) == 0 && p95 <= normal {
			break
		}
		if time.Since(over) > 5*time.Second {
			d.Errorf("after five seconds: %d refused, %s, 95 of 100 within %s, normal is %s", len(after.refused), some(after.wrong), p95, normal)
			break
		}
	}
	calmed := time.Since(over)
	d.finish("%d requests a second, %d taken: %d accepted, 99 of 100 within %s; %d times 429, 99 of 100 within %s; %d MiB, %+d; normal after %s",
		f.sent()/seconds, rate, len(f.accepted), ms(taken), len(f.refused), ms(turned), late>>20, (late-early)>>20, calmed.Round(100*time.Millisecond))
}
