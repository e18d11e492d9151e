package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// A stream looks again when the clock alone changes the state, not earlier, and not never.
func TestUntilTurn(t *testing.T) {
	start := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	offer := model.Offer{Sale: model.Sale{StartsAt: start, EndsAt: start.Add(time.Hour)}}
	for name, tc := range map[string]struct{ now, want time.Duration }{
		"a second before the start": {-time.Second, time.Second},
		"at the start":              {0, time.Hour},
		"a second before the end":   {time.Hour - time.Second, time.Second},
		"at the end":                {time.Hour, heartbeat},
		"long over":                 {99 * time.Hour, heartbeat},
	} {
		t.Run(name, func(t *testing.T) {
			if got := untilTurn(offer, start.Add(tc.now)); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// pipes is a listener whose connections are in memory, so that a bubble's clock moves on while they are idle.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// radio is a shop that streams, in a bubble. Its sale opened an hour ago, and ends in another; its clock moves by a
// millisecond whenever it is read, so that two events that read alike were encoded as one.
type radio struct {
	*shop
	pipes
	gone atomic.Bool
}

func newRadio(t *testing.T) *radio {
	s := newShop(t)
	r := &radio{shop: s, pipes: pipes{make(chan net.Conn), make(chan struct{})}}
	s.offer.StartsAt, s.offer.EndsAt = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	store := fading{changing{offer: s.offer}, &r.gone}
	store.soldOutStore.offer = *s.offer
	var read atomic.Int64
	s.api.Catalog = service.NewCatalog(store, func() time.Time { return time.Now().Add(time.Duration(read.Add(1)) * time.Millisecond) })
	s.refresh()
	s.api.Streams = NewStreams(s.api.Catalog)
	router, err := Router(s.api)
	if err != nil {
		t.Fatal(err)
	}
	s.router = router
	server := &http.Server{Handler: router, ReadHeaderTimeout: time.Second}
	served := make(chan error)
	go func() { served <- server.Serve(r) }()
	t.Cleanup(func() {
		s.api.Streams.Close()
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

// connect sends the request of a stream; nothing of the answer is read.
func (r *radio) connect(headers string) net.Conn {
	r.t.Helper()
	mine, theirs := net.Pipe()
	r.accepted <- theirs
	_, err := fmt.Fprintf(mine, "GET /api/v1/sales/%s/events HTTP/1.1\r\nHost: x\r\n%s\r\n", benchSale, headers)
	if err != nil {
		r.t.Fatal(err)
	}
	return mine
}

// readHead reads up to an empty line, and nothing behind it.
func readHead(t *testing.T, conn net.Conn) {
	t.Helper()
	for head, next := "", make([]byte, 1); !strings.HasSuffix(strings.ReplaceAll(head, "\r", ""), "\n\n"); head += string(next) {
		if _, err := conn.Read(next); err != nil {
			t.Fatal(err)
		}
	}
}

// listener is a client of a stream.
type listener struct {
	t      *testing.T
	conn   net.Conn
	status int
	header http.Header
	events chan heardEvent // closed at the end of the stream
}

// heardEvent is an event, and when it came.
type heardEvent struct {
	id, data string
	at       time.Time
}

func (e heardEvent) String() string {
	return fmt.Sprintf("%s %s at %s", e.id, e.data, e.at.Format("05.000"))
}

// listen opens a stream and reads it.
func (r *radio) listen(headers string) *listener {
	r.t.Helper()
	l := &listener{t: r.t, conn: r.connect(headers), events: make(chan heardEvent, 1000)}
	in := bufio.NewReader(l.conn)
	res, err := http.ReadResponse(in, nil) //nolint:bodyclose // the one who reads it does
	if err != nil {
		r.t.Fatal(err)
	}
	l.status, l.header = res.StatusCode, res.Header
	go func() {
		defer close(l.events)
		defer func() { _ = res.Body.Close() }()
		for event, lines := (heardEvent{}), bufio.NewScanner(res.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				event.id = value
			case "data":
				event.data = value
			case "event":
				if value != "stock" {
					r.t.Errorf("event %s", value)
				}
			case "":
				event.at = time.Now()
				l.events <- event
				event = heardEvent{}
			default:
				if l.status == http.StatusOK {
					r.t.Errorf("line %s", lines.Text())
				}
			}
		}
	}()
	synctest.Wait()
	r.t.Cleanup(l.leave)
	return l
}

func (l *listener) leave() {
	_ = l.conn.Close()
	synctest.Wait()
}

// heard are the events that have come since the last call.
func (l *listener) heard() (all []heardEvent) {
	synctest.Wait()
	for {
		select {
		case e, ok := <-l.events:
			if !ok {
				return all
			}
			all = append(all, e)
		default:
			return all
		}
	}
}

// one gives the only event since the last call.
func (l *listener) one() heardEvent {
	l.t.Helper()
	all := l.heard()
	if len(all) != 1 {
		l.t.Fatalf("heard %v, want one event", all)
	}
	return all[0]
}

// none wants that nothing was said since the last call.
func (l *listener) none() {
	l.t.Helper()
	if all := l.heard(); len(all) > 0 {
		l.t.Errorf("heard %v, want nothing", all)
	}
}

func (l *listener) over() bool {
	synctest.Wait()
	for {
		select {
		case _, ok := <-l.events:
			if !ok {
				return true
			}
		default:
			return false
		}
	}
}

// sells makes the sale have so many units.
func (r *radio) sells(available int64) {
	r.offer.Stock.Available, r.offer.Stock.Held = available, r.offer.Stock.Quota-available
	r.refresh()
}

// passes lets time pass for all.
func passes(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestEventsSayWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		l := r.listen("")
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff",
			"Date": time.Now().UTC().Format(http.TimeFormat),
		} {
			if got := l.header.Get(name); l.status != http.StatusOK || got != want {
				t.Errorf("%d, %s: %s, want %s", l.status, name, got, want)
			}
		}
		if len(l.header["X-Request-Id"]) != 1 {
			t.Errorf("%v", l.header)
		}
		seen := map[string]string{}
		check := func(available, quota int64, state model.SaleState) {
			t.Helper()
			e := l.one()
			var got struct {
				Available, Quota int64
				State            model.SaleState
				Now              time.Time
			}
			if err := json.Unmarshal([]byte(e.data), &got); err != nil {
				t.Fatal(err)
			}
			if got.Available != available || got.Quota != quota || got.State != state || time.Until(got.Now).Abs() > time.Second {
				t.Errorf("%s, want %d of %d, %s", e.data, available, quota, state)
			}
			figures := fmt.Sprint(available, quota, state)
			for id, other := range seen {
				if (id == e.id) != (other == figures) {
					t.Errorf("%s is the id of %s, and %s that of %s", id, other, e.id, figures)
				}
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
		l.none() // nothing that it says
	})
}

// However many listen, an event is encoded once: all of them hear the same bytes.
func TestEventsAreEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		crowd := make([]*listener, sendsAtOnce+50)
		for i := range crowd {
			crowd[i] = r.listen("")
		}
		for _, available := range []int64{5, 4, 3} { // the first is that of the opening
			r.sells(available)
			passes(time.Second)
			first := crowd[0].one()
			for i, l := range crowd[1:] {
				if e := l.one(); e.data != first.data || e.id != first.id {
					t.Fatalf("%d left: listener %d heard %s, the first one %s", available, i+1, e, first)
				}
			}
		}
	})
}

// A crowd is told in turns, at the pace of the instance.
func TestEventsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		crowd := make([]*listener, 4*sendsAtOnce)
		for i := range crowd {
			crowd[i] = r.listen("")
		}
		passes(time.Second)
		began := time.Now()
		r.sells(4)
		passes(time.Second)
		heard := map[time.Duration]int{}
		for _, l := range crowd {
			all := l.heard()
			heard[all[len(all)-1].at.Sub(began)]++
		}
		for turn := range 4 {
			at := time.Duration(turn) * sendsAtOnce * time.Second / sendsPerSecond
			if heard[at] != sendsAtOnce {
				t.Errorf("%d heard of it after %s, want %d: %v", heard[at], at, sendsAtOnce, heard)
			}
		}
	})
}

// What changes quickly is said at most once in eventPause, and what was last in any case.
func TestEventsAreConflated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		r.offer.Stock.Quota = 100
		l := r.listen("")
		began := l.one().at
		for n := range int64(50) {
			passes(10 * time.Millisecond)
			r.sells(50 - n)
		}
		passes(time.Second)
		all := l.heard()
		last := began
		for _, e := range all {
			if pause := e.at.Sub(last); pause < eventPause {
				t.Errorf("%s, %s after the one before", e, pause)
			}
			last = e.at
		}
		if len(all) != 3 || !strings.HasPrefix(all[len(all)-1].id, "1-100-") {
			t.Errorf("heard %v, want three events in half a second, the last of one unit", all)
		}
	})
}

// Who comes again with what it heard last is told when there is something else, or at the heartbeat; whether or not
// somebody else listens.
func TestEventsAreResumed(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "with others": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRadio(t)
				first := r.listen("")
				known := first.one()
				if others == 0 {
					first.leave()
				}
				same, other := r.listen("Last-Event-ID: "+known.id+"\r\n"), r.listen("Last-Event-ID: 7-7-open\r\n")
				same.none()
				if e := other.one(); e.id != known.id {
					t.Errorf("%s, want %s", e, known)
				}
				passes(heartbeat)
				if e := same.one(); e.id != known.id || e.data == known.data {
					t.Errorf("%s at the heartbeat, %s before", e, known)
				}
				passes(eventPause)
				r.sells(4)
				if e := same.one(); e.id == known.id {
					t.Errorf("%s once more", e)
				}
				passes(eventPause)
				r.sells(5)
				if e := same.one(); e.id != known.id {
					t.Errorf("%s, want %s", e, known)
				}
			})
		})
	}
}

// What doesn't change is said again each heartbeat, counted from the last event.
func TestEventsHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		l := r.listen("")
		began := l.one().at
		expect := func(after time.Duration) {
			t.Helper()
			if e := l.one(); e.at.Sub(began) != after {
				t.Errorf("%s, %s after the first; want %s", e, e.at.Sub(began), after)
			}
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

// The clock alone changes a state, and that is said at that moment, also right after another event.
func TestEventsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		r.offer.StartsAt, r.offer.EndsAt = time.Now().Add(time.Minute), time.Now().Add(time.Hour+heartbeat/2)
		r.refresh()
		l := r.listen("")
		passes(time.Minute - eventPause/2)
		if all := l.heard(); len(all) != 4 || !strings.HasSuffix(all[3].id, "upcoming") { // with the heartbeats
			t.Fatalf("heard %v", all)
		}
		r.sells(3)
		if e := l.one(); e.id != "3-5-upcoming" {
			t.Errorf("%s", e)
		}
		passes(eventPause / 2)
		if e := l.one(); e.id != "3-5-open" {
			t.Errorf("%s", e)
		}
		passes(time.Until(r.offer.EndsAt))
		all := l.heard()
		if end := all[len(all)-1]; end.id != "3-5-ended" || end.at.Sub(r.offer.EndsAt).Abs() > time.Second {
			t.Errorf("%s, want it at %s", end, r.offer.EndsAt)
		}
	})
}

// A client that doesn't read is cut off in sendTimeout, and nobody waits for it.
func TestEventsToSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		good := r.listen("")
		good.one()
		slow := map[string]net.Conn{"deaf": r.connect("")} // doesn't even take the head
		for i := range 5 {
			stuck, tired := r.connect(""), r.connect("")
			readHead(t, stuck) // takes no event
			readHead(t, tired)
			readHead(t, tired) // takes the first event, up to its empty line
			slow[fmt.Sprint("stuck ", i)], slow[fmt.Sprint("tired ", i)] = stuck, tired
		}
		synctest.Wait()
		if n := len(r.api.Streams.crowds[benchSale]); n != len(slow) {
			t.Errorf("%d are told of events, want %d", n, len(slow))
		}
		began := time.Now()
		for available := range int64(5) {
			passes(eventPause)
			r.sells(available)
			if e := good.one(); e.at != time.Now() {
				t.Errorf("%s, %s late", e, time.Since(e.at))
			}
		}
		passes(sendTimeout + eventPause - time.Since(began))
		for name, conn := range slow {
			if _, err := conn.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s is connected: %v", name, err)
			}
		}
		if n := r.api.Streams.open; n != 1 {
			t.Errorf("%d streams are open, want 1", n)
		}
	})
}

// A client whose kernel takes no more is cut off: real connections, and buffers as small as they get.
func TestEventsToAFullConnection(t *testing.T) {
	in, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", in.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err := in.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	_ = client.(*net.TCPConn).SetReadBuffer(1)
	_ = server.(*net.TCPConn).SetWriteBuffer(sendBuffer)
	newest := service.NewNewest(&stockEvent{})
	one := &stream{conn: server, newest: newest}
	const most = 100_000 // events, far more than any buffer holds
	for n := range most {
		newest.Set(&stockEvent{id: "x", frame: make([]byte, 200)})
		began := time.Now()
		one.send()
		took := time.Since(began)
		if err := server.SetDeadline(time.Time{}); err != nil {
			if took < sendTimeout || took > sendTimeout+time.Minute { // a busy machine tells late
				t.Errorf("cut off at event %d after %s, want %s", n, took, sendTimeout)
			}
			return
		}
	}
	t.Error("a client that reads nothing took all")
}

// The last who leaves ends all that was done for them.
func TestEventsEndWithTheirClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		for round := range 3 {
			crowd := []*listener{r.listen(""), r.listen(""), r.listen("")}
			for i, l := range crowd {
				if n := r.api.Streams.open; n != len(crowd)-i {
					t.Errorf("round %d: %d are open, want %d", round, n, len(crowd)-i)
				}
				if i == 1 {
					_, _ = io.WriteString(l.conn, "a word too much")
					synctest.Wait()
				}
				l.leave()
			}
			if s := r.api.Streams; s.open != 0 || len(s.crowds) != 0 {
				t.Errorf("round %d: %d are open, %d crowds are kept", round, s.open, len(s.crowds))
			}
			r.api.Streams.running.Wait() // not one goroutine
		}
	})
}

// A stop ends the streams at once, and there are no new ones.
func TestEventsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		crowd := []*listener{r.listen(""), r.listen("")}
		began := time.Now()
		r.api.Streams.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		for _, l := range crowd {
			if !l.over() {
				t.Error("a stream goes on")
			}
		}
		if l := r.listen(""); l.status != http.StatusServiceUnavailable {
			t.Errorf("a new stream: %d", l.status)
		}
	})
}

// There is room for so many and no more; who is refused hears when to come again.
func TestEventsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		r.api.Streams.open = maxStreams - 1
		last := r.listen("")
		if last.status != http.StatusOK {
			t.Errorf("the last one: %d", last.status)
		}
		if l := r.listen(""); l.status != http.StatusServiceUnavailable || l.header.Get("Retry-After") != "5" {
			t.Errorf("one too many: %d %v", l.status, l.header)
		}
		last.leave()
		if l := r.listen(""); l.status != http.StatusOK {
			t.Errorf("after one has left: %d", l.status)
		}
		r.api.Streams.open = 1 // as many as there are
	})
}

func TestEventsOfNoSale(t *testing.T) {
	s := newShop(t)
	s.api.Streams = NewStreams(s.api.Catalog)
	if w := s.get("/api/v1/sales/BBBBBBBBBBBBBBBB/events", ""); w.Code != http.StatusNotFound {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if s.api.Streams.open != 0 {
		t.Error("it took room")
	}
}

// fading is a store whose sale may be gone.
type fading struct {
	changing
	gone *atomic.Bool
}

func (s fading) LiveOffers(ctx context.Context, linger time.Duration) ([]model.Offer, error) {
	if s.gone.Load() {
		return nil, nil
	}
	return s.changing.LiveOffers(ctx, linger)
}

// A sale that can't be read any more ends its streams: a client that comes again is told why.
func TestEventsOfASaleThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRadio(t)
		l := r.listen("")
		l.one()
		passes(eventPause)
		r.gone.Store(true)
		r.refresh()
		l.none()
		if !l.over() {
			t.Error("it goes on")
		}
		if again := r.listen(""); again.status != http.StatusNotFound {
			t.Errorf("again: %d", again.status)
		}
	})
}
