package handler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// heartbeat is how often a stream sends the unchanged stock, so that proxies do not close the stream.
	heartbeat = 15 * time.Second
	// eventPause is the pause after an event, unless the sale starts or ends: people can't read figures that change faster.
	eventPause = 200 * time.Millisecond
	// sendsPerSecond bounds how many events an instance sends in a second, besides the first event of each stream; to send one
	// takes some ten microseconds. If more are due, streams get events less often.
	sendsPerSecond = 5_000
	// sendsAtOnce is the largest batch of sends, small enough to leave time for purchases.
	sendsAtOnce = 100
	// sendTimeout is how long a client may take to accept an event.
	sendTimeout = 2 * time.Second
	// sendBuffer bounds the kernel's send buffer, so that a slow client does not read old figures for long.
	sendBuffer = 8 << 10
	// maxStreams bounds the streams for buyers, and so their memory and the time to send an event to all of them.
	maxStreams = 20_000
	// streamsFull is the Retry-After when there is no room for a stream.
	streamsFull = 5 * time.Second
)

// stockEvent is an encoded event of a sale or campaign. It has the stock of the sales and, if they are in line, their line.
type stockEvent struct {
	id    string // the same on every instance for the same figures
	frame []byte
	over  bool // no sale can be read any more
}

// Streams are the open event streams for buyers. Their connections are hijacked from net/http, which would keep some 30 KiB of
// buffers and stack for each connection.
type Streams struct {
	*Offers
	now     func() time.Time
	watches *service.Watches[*stockEvent] // by the id of a sale or campaign; the value is nil until the first event
	pace    *rate.Limiter

	mu      sync.Mutex
	open    int
	crowds  map[string]map[*stream]struct{} // by the id of a sale or campaign
	closed  bool
	running sync.WaitGroup
}

// stream is one client's connection to the events of a sale or campaign.
type stream struct {
	conn   net.Conn
	newest *service.Newest[*stockEvent]
	calls  atomic.Int64 // running calls of send; only the first may use known and sent
	known  string       // the id of the last event of the client's earlier stream (Last-Event-ID)
	sent   *stockEvent
}

// NewStreams returns an empty set of streams. The caller must call Close.
func NewStreams(offers *Offers, now func() time.Time) *Streams {
	s := &Streams{Offers: offers, now: now, pace: rate.NewLimiter(sendsPerSecond, sendsAtOnce), crowds: map[string]map[*stream]struct{}{}}
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

// Open returns the number of open streams.
func (s *Streams) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// enter reserves room for one stream. It returns false if there is no room, or if the streams are closed.
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

// ofSales streams the events of the route's sale or campaign.
func (s *Streams) ofSales(c *gin.Context) {
	if _, id, ok := s.sales(c); ok {
		s.answer(c, id)
	}
}

// answer streams the events of a sale or campaign, or refuses as Unavailable if enter returns false.
func (s *Streams) answer(c *gin.Context, id string) {
	if isHead(c) {
		streamHeader(c)
		return
	}
	if !s.enter() {
		middleware.Refuse(c, middleware.Refusal{Verdict: model.Unavailable, RetryAfter: streamsFull})
		return
	}
	conn, _, err := c.Writer.Hijack()
	if err != nil {
		s.leave()
		middleware.Fail(c, fmt.Errorf("take the connection over: %w", err))
		return
	}
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = outer.NetConn() // serve waits in a read of one byte, but such a read of a listen.Conn may return at once
	}
	streamHeader(c)
	c.Header("Date", s.now().UTC().Format(http.TimeFormat))
	// The answer has no length: it ends when the connection closes.
	head := http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: c.Writer.Header(), ContentLength: -1, Close: true}
	var raw bytes.Buffer
	_ = head.Write(&raw) // a write into memory can't fail
	go s.serve(conn, raw.Bytes(), id, middleware.HeaderOf(c, "Last-Event-Id"))
}

// streamHeader sets the headers of an event stream: caches must not reuse it, and proxies must not buffer it.
func streamHeader(c *gin.Context) {
	c.Header("Content-Type", "text/event-stream")
	c.Header("Cache-Control", "no-cache")
	c.Header("X-Accel-Buffering", "no")
}

// serve runs a stream until the client disconnects or is too slow, no sale can be read any more, or the streams are closed.
func (s *Streams) serve(conn net.Conn, head []byte, saleID, known string) {
	defer s.leave()
	defer func() { _ = conn.Close() }()
	newest, leave := s.watches.Follow(saleID)
	defer leave()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // if this fails, the kernel's default applies
	}
	one := &stream{conn: conn, newest: newest, known: known}
	if !one.write(head) || !s.join(saleID, one) {
		return
	}
	defer s.part(saleID, one)
	one.send()                        // the newest event may have been sent to the others before this stream joined
	_, _ = conn.Read(make([]byte, 1)) // block until the client disconnects; any input also ends the stream
}

// join adds a stream to those that get the events of a sale or campaign. It returns false if the streams are closed.
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

// send writes the newest event to the client, unless the client has it. If an earlier call is still running, that call does it.
// If the client does not take the event in time, or no sale can be read, send closes the connection, which ends serve.
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
		one.sent, one.known = event, "" // only the first event may be skipped: a later one with the same figures is a heartbeat
		if event.over || !known && !one.write(event.frame) {
			_ = one.conn.Close()
		}
	}
}

// write writes to the client and reports whether the client took all of it within sendTimeout.
func (one *stream) write(part []byte) bool {
	if err := one.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil { //nolint:forbidigo // needs real time
		return false
	}
	_, err := one.conn.Write(part)
	return err == nil
}

// tell sends the newest event to the streams of a sale or campaign. Each has a goroutine, so a slow client does not delay others.
func (s *Streams) tell(ctx context.Context, saleID string) {
	s.mu.Lock()
	crowd := slices.Collect(maps.Keys(s.crowds[saleID]))
	s.mu.Unlock()
	for some := range slices.Chunk(crowd, sendsAtOnce) {
		if s.pace.WaitN(ctx, len(some)) != nil {
			return // the last of these streams has ended
		}
		for _, one := range some {
			s.running.Go(one.send)
		}
	}
}

// watch produces the events of a sale or campaign until ctx ends, or until no sale can be read any more.
func (s *Streams) watch(ctx context.Context, id string, to *service.Newest[*stockEvent]) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	said := ""
	for {
		changed := s.Catalog.Changed() // taken before the sale is read, so that no later change is missed
		sales := s.read(ctx, id)
		if len(sales) == 0 {
			to.Set(&stockEvent{over: true})
			s.tell(ctx, id)
			return
		}
		now := s.Catalog.Now()
		turn := time.After(untilTurn(sales[0], now)) // the sales of a campaign start and end together
		if event := eventOf(id, sales, now); event.id != said {
			said = event.id
			to.Set(event)
			s.tell(ctx, id)
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

// read returns the sale with the id, or the sales of the campaign with the id. It returns none if nothing has the id, or if the
// database does not answer.
func (s *Streams) read(ctx context.Context, id string) []model.Offer {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if s.Catalog.CommonLimit(id) == nil { // otherwise the id is that of a campaign
		if offer, ok, err := s.Catalog.Sale(ctx, id); err != nil {
			return nil
		} else if ok && !offer.IsCampaignLine() {
			return []model.Offer{offer}
		}
	}
	sales, err := s.Catalog.Campaign(ctx, id)
	if err != nil {
		return nil
	}
	return sales
}

// stockView is the stock of a sale in an event. It has the time in a sale's event, and the sale's id in a campaign's event.
type stockView struct {
	ID string `json:"id,omitempty"`
	stockFigures
	State    model.SaleState `json:"state"`
	Revision int64           `json:"revision"`
	Now      *stamp          `json:"now,omitempty"`
}

func eventOf(id string, sales []model.Offer, now time.Time) *stockEvent {
	stocks := each(sales, func(o model.Offer) stockView {
		return stockView{ID: o.ID, stockFigures: stockFor(o, o.StockShown), State: o.State(now, o.Stock.Free()), Revision: o.Revision}
	})
	// The id follows from what buyers see alone, so that it tells them no more.
	raw, _ := json.Marshal(stocks) // texts, times and numbers always encode
	sum := sha256.Sum256(raw)
	event, first, name := &stockEvent{id: hex.EncodeToString(sum[:8])}, sales[0], "stocks"
	var view any = gin.H{"sales": stocks, "now": stamp(now)}
	if first.ID == id {
		one := stocks[0]
		one.ID, one.Now = "", optional(now)
		name, view = "stock", one
	} else {
		for _, o := range sales[1:] {
			first.Stock.Reserved += o.Stock.Free() // so that viewLine shows the units that are left in all sales
		}
	}
	if first.Stock.Lined == model.InLine {
		// The id leaves out the number of entries, which would cause events all the time while a line fills up.
		event.id = fmt.Sprintf("%s-%s-%d-%d", event.id, first.Line.Phase, first.Line.Serving, first.Revision)
		event.frame = appendEvent(nil, "line", viewLine(first, first.State(now, first.Stock.Free())))
	}
	event.frame = appendEvent(fmt.Appendf(event.frame, "id: %s\n", event.id), name, view)
	return event
}

// untilTurn returns the time until the sale starts or, after that, until it ends. After the end it returns heartbeat.
func untilTurn(o model.Offer, now time.Time) time.Duration {
	for _, turn := range []time.Time{o.StartsAt, o.EndsAt} {
		if turn.After(now) {
			return turn.Sub(now)
		}
	}
	return heartbeat
}
