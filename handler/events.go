package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

const (
	// heartbeat is how often an unchanged stock is sent, so that proxies keep the stream.
	heartbeat = 15 * time.Second
	// eventPause is how long a sale is silent after an event: nobody reads figures that change faster.
	eventPause = 200 * time.Millisecond
	// sendsPerSecond bounds what an instance spends on its streams while stock changes all the time: to send an event
	// to one of them takes some ten microseconds. A crowd that is larger hears less often.
	sendsPerSecond = 5_000
	// sendsAtOnce are spread over time as one: few enough that purchases find their way between them.
	sendsAtOnce = 100
	// sendTimeout is how long a client may keep an event waiting before its stream is cut. A stop waits as long.
	sendTimeout = 2 * time.Second
	// sendBuffer bounds what the kernel keeps for a client that reads slowly, which sees old figures meanwhile.
	sendBuffer = 8 << 10
	// maxStreams bounds the memory of an instance's streams, and how long an event takes to reach all of them.
	maxStreams = 20_000
	// streamsFull is when to try again if there is no room: streams come and go with the pages that show them.
	streamsFull = 5 * time.Second
)

// stockEvent is what a sale says to all who listen. It is encoded once.
type stockEvent struct {
	id    string // the same on every instance for the same figures
	frame []byte
	over  bool // the sale can't be shown any more; who connects again is told why
}

// Streams are the open streams of an instance. Their connections are taken over from net/http, which would keep its
// buffers and a deep stack for each, some 30 KiB, where a small goroutine is enough.
type Streams struct {
	catalog *service.Catalog
	watches *service.Watches[*stockEvent] // by sale; nil as long as nothing is known
	pace    *rate.Limiter

	mu      sync.Mutex
	open    int
	crowds  map[string]map[*stream]struct{} // by sale
	closed  bool
	running sync.WaitGroup
}

// stream is a client that listens to a sale.
type stream struct {
	conn   net.Conn
	newest *service.Newest[*stockEvent]
	calls  atomic.Int64 // of send; while there are any, the rest belongs to the first of them
	known  string       // the id of the event that the client has from an earlier stream
	sent   *stockEvent
}

// NewStreams makes room for streams; Close must follow.
func NewStreams(catalog *service.Catalog) *Streams {
	s := &Streams{catalog: catalog, pace: rate.NewLimiter(sendsPerSecond, sendsAtOnce), crowds: map[string]map[*stream]struct{}{}}
	s.watches = service.NewWatches(s.watch)
	return s
}

// Close ends all streams and waits until they have ended.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	for _, crowd := range s.crowds {
		for one := range crowd {
			_ = one.conn.Close()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Open is how many there are.
func (s *Streams) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// enter takes room for one stream, unless there is none.
func (s *Streams) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.open == maxStreams {
		return false
	}
	s.open++
	s.running.Add(1)
	return true
}

func (s *Streams) leave() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.running.Done()
}

// saleEvents streams a sale's stock as server-sent events: at once unless the client has the figures, on change and
// every heartbeat.
func (a *API) saleEvents(c *gin.Context) {
	offer, ok := a.offer(c)
	if !ok {
		return
	}
	if isHead(c) {
		streamHeader(c)
		return
	}
	if !a.Streams.enter() {
		middleware.Refuse(c, middleware.Refusal{Verdict: model.Unavailable, RetryAfter: streamsFull})
		return
	}
	conn, _, err := c.Writer.Hijack()
	if err != nil {
		a.Streams.leave()
		middleware.Fail(c, fmt.Errorf("take the connection over: %w", err))
		return
	}
	streamHeader(c)
	c.Header("Date", a.Now().UTC().Format(http.TimeFormat))
	// The end of the stream is that of the connection.
	head := http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: c.Writer.Header(), ContentLength: -1, Close: true}
	var raw bytes.Buffer
	_ = head.Write(&raw) // into memory it can't fail
	go a.Streams.serve(conn, raw.Bytes(), offer.ID, headerOf(c, "Last-Event-Id"))
}

// streamHeader sets the header of a stream of events, which nobody may keep or hold back.
func streamHeader(c *gin.Context) {
	c.Header("Content-Type", "text/event-stream")
	c.Header("Cache-Control", "no-cache")
	c.Header("X-Accel-Buffering", "no")
}

// serve keeps a stream until the client leaves or is too slow.
func (s *Streams) serve(conn net.Conn, head []byte, saleID, known string) {
	defer s.leave()
	defer func() { _ = conn.Close() }()
	newest, leave := s.watches.Follow(saleID)
	defer leave()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // else the kernel's own bound holds
	}
	one := &stream{conn: conn, newest: newest, known: known}
	if !one.write(head) || !s.join(saleID, one) {
		return
	}
	defer s.part(saleID, one)
	one.send()                        // what was said before it joined
	_, _ = conn.Read(make([]byte, 1)) // who says more doesn't listen, and who leaves says nothing
}

// join adds a stream to those that are told of events, unless all are about to end.
func (s *Streams) join(saleID string, one *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.crowds[saleID] == nil {
		s.crowds[saleID] = map[*stream]struct{}{}
	}
	s.crowds[saleID][one] = struct{}{}
	return true
}

func (s *Streams) part(saleID string, one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.crowds[saleID], one)
	if len(s.crowds[saleID]) == 0 {
		delete(s.crowds, saleID)
	}
}

// send brings the newest event to the client, unless it has it. If that is under way already, it is left to that call,
// which then looks again. A client that doesn't take an event in time, or can't be told any more, is cut off: its
// connection ends, and serve with it.
func (one *stream) send() {
	if one.calls.Add(1) > 1 {
		return
	}
	for calls := int64(1); calls > 0; calls = one.calls.Add(-calls) {
		event, _ := one.newest.Get()
		if event == one.sent {
			continue
		}
		known := one.known == event.id
		one.sent, one.known = event, "" // the same figures once more are a heartbeat
		if event.over || !known && !one.write(event.frame) {
			_ = one.conn.Close()
		}
	}
}

// write reports whether the client took it in time.
func (one *stream) write(part []byte) bool {
	if err := one.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil { //nolint:forbidigo // the kernel's time
		return false
	}
	_, err := one.conn.Write(part)
	return err == nil
}

// tell sends the newest event to all who listen to a sale. Who is slow keeps nobody else waiting.
func (s *Streams) tell(ctx context.Context, saleID string) {
	s.mu.Lock()
	crowd := slices.Collect(maps.Keys(s.crowds[saleID]))
	s.mu.Unlock()
	for some := range slices.Chunk(crowd, sendsAtOnce) {
		if s.pace.WaitN(ctx, len(some)) != nil {
			return // nobody listens any more
		}
		for _, one := range some {
			s.running.Go(one.send)
		}
	}
}

// watch is the source of a sale's events.
func (s *Streams) watch(ctx context.Context, saleID string, to *service.Newest[*stockEvent]) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	said := ""
	for {
		changed := s.catalog.Changed() // asked before the sale: what changes from here on is seen the next time
		offer, ok := s.offer(ctx, saleID)
		if !ok {
			to.Set(&stockEvent{over: true})
			s.tell(ctx, saleID)
			return
		}
		now := s.catalog.Now()
		turn := time.After(untilTurn(offer, now))
		if event := newStockEvent(offer, now); event.id != said {
			said = event.id
			to.Set(event)
			s.tell(ctx, saleID)
			beat.Reset(heartbeat)
			select {
			case <-time.After(eventPause):
			case <-turn:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-turn:
		case <-beat.C:
			said = ""
		case <-ctx.Done():
			return
		}
	}
}

// offer is the sale as it is now; ok is false if it is gone, or only the database knows and doesn't say.
func (s *Streams) offer(ctx context.Context, saleID string) (offer model.Offer, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	offer, ok, err := s.catalog.Sale(ctx, saleID)
	return offer, ok && err == nil
}

func newStockEvent(o model.Offer, now time.Time) *stockEvent {
	state := o.State(now, o.Stock.Available)
	id := fmt.Sprintf("%d-%d-%s", o.Stock.Available, o.Stock.Quota, state)
	data, _ := json.Marshal(struct { // numbers and plain words always encode
		Available int64           `json:"available"`
		Quota     int64           `json:"quota"`
		State     model.SaleState `json:"state"`
		Now       stamp           `json:"now"`
	}{o.Stock.Available, o.Stock.Quota, state, stamp(now)})
	return &stockEvent{id: id, frame: fmt.Appendf(nil, "id: %s\nevent: stock\ndata: %s\n\n", id, data)}
}

// untilTurn is how long the sale's state stays as it is by the clock alone.
func untilTurn(o model.Offer, now time.Time) time.Duration {
	for _, turn := range []time.Time{o.StartsAt, o.EndsAt} {
		if turn.After(now) {
			return turn.Sub(now)
		}
	}
	return heartbeat
}
