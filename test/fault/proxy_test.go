package fault

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit"
)

// pieceSize is the most that a proxy passes on at once, in bytes.
const pieceSize = 32 << 10

// proxy stands between the engine and a store and causes the faults of a network. Its address never changes. Only the
// goroutine of its row may call its methods.
type proxy struct {
	d      *drill
	addr   string
	target atomic.Pointer[string] // the server that new connections lead to
	cut    context.CancelFunc
	links  sync.WaitGroup

	silent    atomic.Bool            // every reply is lost
	text      atomic.Pointer[[]byte] // the reply to a request with this text is lost, and its connection
	left      atomic.Int64           // how often
	lostCount atomic.Int64
}

// proxy starts a proxy in front of a server.
func (d *drill) proxy(upstream string) *proxy {
	d.Helper()
	p := &proxy{d: d}
	p.target.Store(&upstream)
	port, err := kit.FreePort()
	d.ok(err)
	p.addr = fmt.Sprintf("127.0.0.1:%d", port)
	d.ok(p.listen())
	d.Cleanup(p.Cut)
	return p
}

// listen accepts connections until the proxy is cut.
func (p *proxy) listen() error {
	ctx, cut := context.WithCancel(context.Background())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", p.addr)
	if err != nil {
		cut()
		return err
	}
	p.cut = cut
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	p.links.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // the proxy is cut
			}
			p.links.Go(func() { p.link(ctx, near) })
		}
	})
	return nil
}

// link passes requests and replies on until one end closes the connection, or the proxy is cut.
func (p *proxy) link(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", *p.target.Load())
	if err != nil {
		return
	}
	ctx, end := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})
	var doomed atomic.Bool
	var replies sync.WaitGroup
	replies.Go(func() {
		defer end()
		pass(near, far, func([]byte) bool {
			lost := doomed.Load() || p.silent.Load()
			if lost {
				p.lostCount.Add(1)
			}
			if doomed.Load() {
				end()
			}
			return lost
		})
	})
	// A connection is doomed before the server can answer.
	pass(far, near, func(request []byte) bool {
		if text := p.text.Load(); text != nil && bytes.Contains(request, *text) && p.left.Add(-1) >= 0 {
			doomed.Store(true)
		}
		return false
	})
	end()
	replies.Wait()
}

// pass copies from one end of a connection to the other, except for pieces that are lost.
func pass(to, from net.Conn, lost func(piece []byte) bool) {
	for buffer := make([]byte, pieceSize); ; {
		n, err := from.Read(buffer)
		if n > 0 && !lost(buffer[:n]) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) RedisURL() string { return "redis://" + p.addr + "/0" }

// Cut ends all connections and refuses new ones.
func (p *proxy) Cut() {
	p.cut()
	p.links.Wait()
}

// Restore ends every fault. It also ends open connections, because their lost bytes would be missing for ever.
func (p *proxy) Restore() { p.Point(*p.target.Load()) }

// Point ends every fault and all connections, and directs new ones to a server, as a name does after a failover.
func (p *proxy) Point(upstream string) {
	p.d.Helper()
	p.Cut()
	p.silent.Store(false)
	p.text.Store(nil)
	p.Redirect(upstream)
	// If another row starts a server at this moment, its process inherits the socket and holds it until the exec.
	p.d.until(recoveryTime, "the proxy has its port back", func() (bool, error) {
		err := p.listen()
		return err == nil, err
	})
}

// Redirect directs new connections to a server. Open connections keep theirs, as behind a virtual IP address.
func (p *proxy) Redirect(upstream string) { p.target.Store(&upstream) }

// LoseReplies passes requests on and drops all replies until a Restore: the client gets no answer. A new connection
// does not get past its greeting, so only requests on open connections are executed.
func (p *proxy) LoseReplies() { p.silent.Store(true) }

// LoseReplyTo passes the next so many requests that contain a text on, drops the reply to each and ends its connection.
// It searches each piece of a request as it comes from the network.
func (p *proxy) LoseReplyTo(text string, times int) {
	marker := []byte(text)
	p.left.Store(int64(times))
	p.text.Store(&marker)
}

// Lost returns the number of reply pieces that were dropped so far.
func (p *proxy) Lost() int64 { return p.lostCount.Load() }
