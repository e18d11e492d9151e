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
	attempts []shop.Attempt
	accepted []time.Duration
	refused  []time.Duration
	wrong    []string
	skipped  int // requests for which no sender was free
	lasted   time.Duration
}

// senders is how many requests of a flood may be in flight at once.
const senders = 400

// flood sends perSecond purchases a second, each by another buyer.
func (d *drill) flood(client *http.Client, s *shop.Shop, sale, url, prefix string, perSecond int, lasts time.Duration) (f flood) {
	d.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	due := make(chan int, senders)
	for range senders {
		work.Go(func() {
			for n := range due {
				a := shop.Attempt{User: fmt.Sprint(prefix, n), URL: url}
				a.Key = "key-" + a.User
				r, err := knock(d.Context(), client, s, &a, sale)
				mu.Lock()
				f.attempts = append(f.attempts, a)
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
	s := shop.New(d)
	a := s.StartWith(leanly, "--limit-rate", fmt.Sprint(rate), "--limit-burst", fmt.Sprint(burst))
	wide := s.Start() // for the setup and the checks
	lasts := span(4*time.Second, time.Minute)
	quota := int(lasts.Seconds())*rate + burst + 900 // 900 for the floods before and after
	sale := s.Sale(wide.URL, quota)
	client := d.manyConnections()

	calm := d.flood(client, s, sale, a.URL, "calm", rate/2, span(time.Second, 2*time.Second))
	if len(calm.refused) > 0 || len(calm.wrong) > 0 {
		d.Fatalf("half of what it takes: %d refused, %q", len(calm.refused), calm.wrong[:min(3, len(calm.wrong))])
	}
	normal := max(3*percentile(calm.accepted, 99), 250*time.Millisecond)

	type look struct{ at, bytes int64 }
	var looks []look
	ended := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for start := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-ticker.C:
				looks = append(looks, look{int64(time.Since(start)), d.resident(a)})
			}
		}
	})
	f := d.flood(client, s, sale, a.URL, "flood", 10*rate, lasts)
	close(ended)
	looking.Wait()

	// What counts is how many requests were sent: a busy machine may not manage ten times the rate.
	sent := len(f.attempts)
	if few := 5 * rate * int(lasts.Seconds()); sent < few {
		d.Errorf("this machine has sent %d requests of %d, too few to be an overload", sent, 10*rate*int(lasts.Seconds()))
	}
	if most := burst + int(float64(rate)*f.lasted.Seconds()) + 1; len(f.accepted) > most || len(f.accepted) < most/2 {
		d.Errorf("%d were accepted, want about %d", len(f.accepted), most)
	}
	if len(f.wrong) > 0 {
		d.Errorf("%d wrong answers, such as %q", len(f.wrong), f.wrong[0])
	}
	taken, turned := percentile(f.accepted, 99), percentile(f.refused, 99)
	if bound := max(2*time.Second, 4*normal); taken > bound || turned > bound {
		d.Errorf("99 of 100 that were taken had their answer in %s, of those that were not in %s", taken, turned)
	}
	early, late := int64(0), int64(0) // its peak memory in the second and in the last quarter
	for _, l := range looks {
		switch quarter := 4 * l.at / int64(lasts); {
		case quarter == 1:
			early = max(early, l.bytes)
		case quarter >= 3:
			late = max(late, l.bytes)
		}
	}
	if early == 0 || late == 0 || late-early > flatSlack {
		d.Errorf("its memory went from %d MiB to %d MiB", early>>20, late>>20)
	}

	// The latency must be normal again within five seconds.
	over, n := time.Now(), 0
	var after flood
	for {
		after = d.flood(client, s, sale, a.URL, fmt.Sprintf("after%d-", n), rate/2, 500*time.Millisecond)
		f.attempts = append(f.attempts, after.attempts...)
		if len(after.refused)+len(after.wrong) == 0 && percentile(after.accepted, 95) <= normal {
			break
		}
		if n++; time.Since(over) > 5*time.Second {
			d.Errorf("after five seconds: %d refused, %q, 95 of 100 within %s, normal is %s", len(after.refused), after.wrong[:min(3, len(after.wrong))], percentile(after.accepted, 95), normal)
			break
		}
	}
	calmed := time.Since(over)
	d.result.Happened = fmt.Sprintf("%d requests a second, %d taken: %d accepted, 99 of 100 within %s; %d times 429, 99 of 100 within %s; %d MiB, %+d; normal after %s",
		sent/int(lasts.Seconds()), rate, len(f.accepted), taken.Round(time.Millisecond), len(f.refused), turned.Round(time.Millisecond),
		late>>20, (late-early)>>20, calmed.Round(100*time.Millisecond))
	d.recovered(s, sale, int64(quota), append(calm.attempts, f.attempts...), wide.URL)
}
