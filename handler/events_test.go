package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// A stream looks again at the next change of state that time alone causes, or at the next heartbeat.
func TestUntilTurn(t *testing.T) {
	start := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	offer := model.Offer{Sale: model.Sale{StartsAt: start, EndsAt: start.Add(time.Hour)}}
	for now, want := range map[time.Duration]time.Duration{
		-time.Second: time.Second, 0: time.Hour, time.Hour - time.Second: time.Second, time.Hour: heartbeat, 99 * time.Hour: heartbeat,
	} {
		check.Same(t, fmt.Sprint(now, " after the start"), untilTurn(offer, start.Add(now)), want)
	}
}

type stockFields struct {
	Available, Quota int64
	Stock            string
	State            model.SaleState
	Now              time.Time
}

func figuresOf(e event) string {
	var got stockFields
	check.Done(json.Unmarshal([]byte(e.data), &got))
	return fmt.Sprintf("%d-%d-%s%s", got.Available, got.Quota, got.State, got.Stock)
}

// A sale that hides its stock sends an event only when what buyers see changes, and no event has a number of units.
func TestEventsHideTheStock(t *testing.T) {
	for shown, want := range map[model.StockShown][]string{
		model.StockFew:  {"0-0-openplenty", "0-0-openfew", "0-0-sold_out"},
		model.StockNone: {"0-0-open", "0-0-sold_out"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRadio(t)
			r.offer.StockShown, r.offer.Stock.Quota, r.offer.Stock.Available = shown, 100, 100
			r.refresh()
			l := r.listen()
			for _, left := range []int64{99, 50, 11, 10, 9, 1, 0} {
				passes(eventPause)
				r.sells(left)
			}
			passes(eventPause)
			var got []string
			for _, e := range l.heard() {
				got = append(got, figuresOf(e))
			}
			check.Same(t, "events of a sale that shows "+string(shown), got, want)
		})
	}
}

// radio is a shop with a stream of events. Its clock moves by a millisecond at each reading, so two events with the same
// time were encoded once.
type radio struct{ *wire }

func newRadio(t *testing.T) *radio {
	s := newShop(t)
	var read atomic.Int64
	s.offers.Catalog = service.NewCatalog(s, func() time.Time { return time.Now().Add(time.Duration(read.Add(1)) * time.Millisecond) })
	s.refresh()
	s.api.Streams = NewStreams(s.offers, time.Now)
	return &radio{s.open()}
}

const eventsPath = "/api/v1/sales/" + benchSale + "/events"

func (r *radio) listen(known ...string) *listener {
	if len(known) > 0 {
		return r.wire.listen(eventsPath, "Last-Event-ID", known[0])
	}
	return r.wire.listen(eventsPath)
}

// sells sets the available units of the sale.
func (r *radio) sells(available int64) {
	r.offer.Stock.Available, r.offer.Stock.Held = available, r.offer.Stock.Quota-available
	r.refresh()
}

func TestEventsSayWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		l := r.listen()
		check.Same(t, "status", l.status, http.StatusOK)
		check.Same(t, "request ids", len(l.header["X-Request-Id"]), 1)
		sameHeader(t, "stream", l.header, map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
			"X-Content-Type-Options": "nosniff", "Date": time.Now().UTC().Format(http.TimeFormat),
		})
		seen := map[string]string{}
		check := func(available, quota int64, state model.SaleState) {
			t.Helper()
			e := l.one()
			var got stockFields
			check.Done(json.Unmarshal([]byte(e.data), &got))
			figures := fmt.Sprint(available, quota, state)
			check.Same(t, "event", e.name, "stock")
			check.Same(t, "figures", fmt.Sprint(got.Available, got.Quota, got.State), figures)
			if time.Until(got.Now).Abs() > time.Second {
				t.Errorf("the time is %s", got.Now)
			}
			for id, other := range seen {
				check.Same(t, e.id+" is the id of "+other, id == e.id, other == figures)
			}
			seen[e.id] = figures
			passes(eventPause)
		}
		check(5, 5, model.StateOpen)
		r.sells(4)
		check(4, 5, model.StateOpen)
		r.sells(5)
		check(5, 5, model.StateOpen)
		r.offer.Stock.Quota++
		r.sells(5)
		check(5, 6, model.StateOpen)
		r.offer.Status = model.SalePaused
		r.refresh()
		check(5, 6, model.StatePaused)
		r.offer.Status = model.SaleLive
		r.sells(0)
		check(0, 6, model.StateSoldOut)
		r.offer.Title, r.offer.Stock.Version, r.offer.Stock.Held, r.offer.Stock.Paid = "Another", 9, 0, 6
		r.refresh()
		l.none() // an event has none of these
	})
}

// An event is encoded once: all listeners get the same bytes.
func TestEventsAreEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		crowd := make([]*listener, sendsAtOnce+50)
		for i := range crowd {
			crowd[i] = r.listen()
		}
		for _, available := range []int64{5, 4, 3} { // the first event is that of the start
			r.sells(available)
			passes(time.Second)
			first := crowd[0].one()
			for i, l := range crowd[1:] {
				if e := l.one(); e.data != first.data || e.id != first.id {
					t.Fatalf("%d left: listener %d got %s, the first one %s", available, i+1, e, first)
				}
			}
		}
	})
}

// A crowd gets an event in turns, at the instance's pace.
func TestEventsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		crowd := make([]*listener, 4*sendsAtOnce)
		for i := range crowd {
			crowd[i] = r.listen()
		}
		passes(time.Second)
		began := time.Now()
		r.sells(4)
		passes(time.Second)
		heard, want := map[time.Duration]int{}, map[time.Duration]int{}
		for _, l := range crowd {
			all := l.heard()
			heard[all[len(all)-1].at.Sub(began)]++
		}
		for turn := range 4 {
			want[time.Duration(turn)*sendsAtOnce*time.Second/sendsPerSecond] = sendsAtOnce
		}
		check.Same(t, "listeners by time", heard, want)
	})
}

// Quick changes are sent at most once in eventPause, and the last change always.
func TestEventsAreConflated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		r.offer.Stock.Quota = 100
		l := r.listen()
		last := l.one().at
		for n := range int64(50) {
			passes(10 * time.Millisecond)
			r.sells(50 - n)
		}
		passes(time.Second)
		all := l.heard()
		for _, e := range all {
			if pause := e.at.Sub(last); pause < eventPause {
				t.Errorf("%s, %s after the one before", e, pause)
			}
			last = e.at
		}
		if len(all) != 3 || figuresOf(all[len(all)-1]) != "1-100-open" {
			t.Errorf("heard %v, want three events in half a second, the last of one unit", all)
		}
	})
}

// A client that comes again with its last id gets an event when the figures differ from it, or at the heartbeat.
func TestEventsAreResumed(t *testing.T) {
	check.EachInBubble(t, map[string]bool{"alone": true, "with others": false}, func(t *testing.T, alone bool) {
		r := newRadio(t)
		first := r.listen()
		known := first.one()
		if alone {
			first.leave()
		}
		equal, other := r.listen(known.id), r.listen("7-7-open")
		equal.none()
		check.Same(t, "id after other figures", other.one().id, known.id)
		passes(heartbeat)
		if e := equal.one(); e.id != known.id || e.data == known.data {
			t.Errorf("%s at the heartbeat, %s before", e, known)
		}
		passes(eventPause)
		r.sells(4)
		check.Same(t, "the known id is sent after a sale", equal.one().id == known.id, false)
		passes(eventPause)
		r.sells(5)
		check.Same(t, "id after a release", equal.one().id, known.id)
	})
}

// Unchanged figures are repeated at each heartbeat, counted from the last event.
func TestEventsHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		l := r.listen()
		began := l.one().at
		expect := func(after time.Duration) {
			t.Helper()
			check.Same(t, "time of the event", l.one().at.Sub(began), after)
		}
		passes(heartbeat - 1)
		l.none()
		passes(1)
		expect(heartbeat)
		passes(heartbeat / 2)
		r.sells(4)
		expect(heartbeat * 3 / 2)
		passes(heartbeat)
		expect(heartbeat * 5 / 2)
	})
}

// A change of state that time alone causes is sent at that moment, also shortly after another event.
func TestEventsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		r.offer.StartsAt, r.offer.EndsAt = time.Now().Add(time.Minute), time.Now().Add(time.Hour+heartbeat/2)
		r.refresh()
		l := r.listen()
		passes(time.Minute - eventPause/2)
		if all := l.heard(); len(all) != 4 || figuresOf(all[3]) != "5-5-upcoming" { // with the heartbeats
			t.Fatalf("heard %v", all)
		}
		r.sells(3)
		check.Same(t, "before the start", figuresOf(l.one()), "3-5-upcoming")
		passes(eventPause / 2)
		check.Same(t, "at the start", figuresOf(l.one()), "3-5-open")
		passes(time.Until(r.offer.EndsAt))
		all := l.heard()
		if end := all[len(all)-1]; figuresOf(end) != "3-5-ended" || end.at.Sub(r.offer.EndsAt).Abs() > time.Second {
			t.Errorf("%s at %s, want the end at %s", end.data, end.at, r.offer.EndsAt)
		}
	})
}

// A client that does not read is disconnected within sendTimeout, and no other client waits for it.
func TestEventsToSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		good := r.listen()
		good.one()
		slow := map[string]net.Conn{"reads nothing": r.connect(eventsPath)}
		for i := range 5 {
			head, first := r.connect(eventsPath), r.connect(eventsPath)
			readHead(head)
			readHead(first)
			readHead(first) // an event ends with an empty line as well
			slow[fmt.Sprint("reads the head ", i)], slow[fmt.Sprint("reads an event ", i)] = head, first
		}
		synctest.Wait()
		check.Same(t, "streams that have taken the first event or do not read", len(r.api.Streams.crowds[benchSale]), len(slow))
		began := time.Now()
		for available := range int64(5) {
			passes(eventPause)
			r.sells(available)
			check.Same(t, "time of the event", good.one().at, time.Now())
		}
		passes(sendTimeout + eventPause - time.Since(began))
		for name, conn := range slow {
			if _, err := conn.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the client that %s is connected: %v", name, err)
			}
		}
		check.Same(t, "open streams", r.api.Streams.open, 1)
	})
}

// The last client that leaves ends the work for the sale. A client that sends anything is disconnected.
func TestEventsEndWithTheirClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		streams := r.api.Streams
		for range 3 {
			crowd := []*listener{r.listen(), r.listen(), r.listen()}
			for i, l := range crowd {
				check.Same(t, "open streams", streams.open, len(crowd)-i)
				if i == 1 {
					_, _ = io.WriteString(l.conn, "unexpected")
					synctest.Wait()
					check.Same(t, "open streams after a write", streams.open, len(crowd)-i-1)
				}
				l.leave()
			}
			check.Same(t, "open streams, sales", []int{streams.open, len(streams.crowds)}, []int{0, 0})
			streams.running.Wait() // no goroutine is left
		}
	})
}

// A stop ends the streams at once, and no new one begins.
func TestEventsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		crowd := []*listener{r.listen(), r.listen()}
		began := time.Now()
		r.api.Streams.Close()
		check.Same(t, "duration of the stop", time.Since(began), 0)
		for _, l := range crowd {
			check.Same(t, "the stream is over", l.over(), true)
		}
		check.Same(t, "a new stream", r.listen().status, http.StatusServiceUnavailable)
	})
}

func TestEventsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		r.api.Streams.open = maxStreams - 1
		last := r.listen()
		check.Same(t, "the last stream", last.status, http.StatusOK)
		refused := r.listen()
		check.Same(t, "one too many", refused.status, http.StatusServiceUnavailable)
		sameHeader(t, "one too many", refused.header, map[string]string{"Retry-After": "5"})
		last.leave()
		check.Same(t, "after one has left", r.listen().status, http.StatusOK)
		r.api.Streams.open = 1 // the true number
	})
}

func TestEventsOfNoSale(t *testing.T) {
	s := newShop(t)
	s.api.Streams = NewStreams(s.offers, time.Now)
	check.Same(t, "status", s.get("/api/v1/sales/BBBBBBBBBBBBBBBB/events").Code, http.StatusNotFound)
	check.Same(t, "open streams", s.api.Streams.open, 0)
}

// The streams of a sale end when it is no longer live. A client that comes again learns why.
func TestEventsOfASaleThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		l := r.listen()
		l.one()
		passes(eventPause)
		r.gone = true
		r.refresh()
		all, over := l.read()
		check.Same(t, "events", len(all), 0)
		check.Same(t, "the stream is over", over, true)
		check.Same(t, "a new stream", r.listen().status, http.StatusNotFound)
	})
}
