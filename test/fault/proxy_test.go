package fault

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"flashsale/test/kit"
)

const (
	// firstPort and ports give a range below that of outgoing connections, so that no client can take the port of a
	// proxy that is cut.
	firstPort, ports = 20000, 12000
	// portTries bounds the ports tried when others are in use.
	portTries = 20
)

// proxy stands between the engine and a store and causes the faults of a network. Only the goroutine of its row may
// call its methods.
//
// Its links are those of toxiproxy. A toxic that is added to an open link can wait for ever if the link's client has
// just gone. So this package's toxics are in every link from the start, and are switched on and off.
type proxy struct {
	d      *drill
	proxy  *toxiproxy.Proxy
	losses *losses
}

// proxy starts a proxy in front of a server.
func (d *drill) proxy(upstream string) *proxy {
	d.Helper()
	toxics.Register("requests", new(requests))
	toxics.Register("replies", new(replies))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{d: d, losses: &losses{}}
	var err error
	for range portTries {
		p.proxy = toxiproxy.NewProxy(server, upstream, fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports)), upstream)
		for _, direction := range []string{"upstream", "downstream"} {
			p.add(direction)
		}
		if err = p.proxy.Start(); err == nil {
			d.Cleanup(p.proxy.Stop)
			return p
		}
	}
	d.Fatalf("no port for a proxy: %v", err)
	return nil
}

// add adds this package's toxic to one direction of all future links.
func (p *proxy) add(direction string) {
	name := map[string]string{"upstream": "requests", "downstream": "replies"}[direction]
	w, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "toxicity": 1}`, name, name, direction)))
	if err != nil {
		p.d.Fatal(err)
	}
	switch t := w.Toxic.(type) {
	case *requests:
		t.losses = p.losses
	case *replies:
		t.losses = p.losses
	}
}

// Addr returns the proxy's address, which never changes.
func (p *proxy) Addr() string { return p.proxy.Listen }

// RedisURL returns the address in the form of the settings.
func (p *proxy) RedisURL() string { return "redis://" + p.Addr() + "/0" }

// Cut ends all connections and refuses new ones.
func (p *proxy) Cut() { p.proxy.Stop() }

// Restore ends every fault. It also ends open connections, because their lost bytes would be missing for ever.
func (p *proxy) Restore() { p.Point(p.proxy.Upstream) }

// Point directs new connections to another server, as a name does after a failover.
func (p *proxy) Point(upstream string) {
	p.d.Helper()
	p.Cut()
	p.losses.silent.Store(false)
	p.losses.text.Store(nil)
	p.proxy.Upstream = upstream
	// If another row starts a server at this moment, its process inherits the socket and holds it until the exec.
	p.d.until(recoveryTime, "the proxy has its port back", func() (bool, error) {
		err := p.proxy.Start()
		return err == nil, err
	})
}

// LoseReplies passes requests on and drops all replies until a Restore: the client gets no answer. A new connection
// does not get past its greeting, so only requests on open connections are executed.
func (p *proxy) LoseReplies() { p.losses.silent.Store(true) }

// LoseReplyTo passes the next so many requests that contain a text on, drops the reply to each and ends its connection.
// It searches each piece of a request as it comes from the network, at most 32 KB.
func (p *proxy) LoseReplyTo(text string, times int) {
	marker := []byte(text)
	p.losses.left.Store(int64(times))
	p.losses.text.Store(&marker)
}

// Lost returns the number of reply pieces that were dropped so far.
func (p *proxy) Lost() int64 { return p.losses.lost.Load() }

// losses holds what is to be dropped, and the count of what was.
type losses struct {
	silent atomic.Bool
	text   atomic.Pointer[[]byte]
	left   atomic.Int64
	lost   atomic.Int64
	made   *connection // only for the goroutine that accepts connections
}

// connection is the state that the two directions of a connection share.
type connection struct{ doomed atomic.Bool }

// requests and replies are the toxics for the two directions. The goroutine that accepts a connection makes its two
// links one after the other, upstream first, so both get the same state.
type (
	requests struct{ losses *losses }
	replies  struct{ losses *losses }
)

func (t *requests) NewState() any {
	t.losses.made = &connection{}
	return t.losses.made
}

func (t *replies) NewState() any { return t.losses.made }

// Pipe marks the connection whose reply is to be dropped, before the server can answer.
func (t *requests) Pipe(stub *toxics.ToxicStub) {
	defer stub.Close()
	c, _ := stub.State.(*connection)
	for chunk := range stub.Input {
		if text := t.losses.text.Load(); text != nil && bytes.Contains(chunk.Data, *text) && t.losses.left.Add(-1) >= 0 {
			c.doomed.Store(true)
		}
		stub.Output <- chunk
	}
}

// Pipe passes replies on or drops them.
func (t *replies) Pipe(stub *toxics.ToxicStub) {
	defer stub.Close()
	c, _ := stub.State.(*connection)
	for chunk := range stub.Input {
		switch {
		case c.doomed.Load():
			t.losses.lost.Add(1)
			stub.Close() // ends the connection
		case t.losses.silent.Load():
			t.losses.lost.Add(1)
		default:
			stub.Output <- chunk
		}
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	d := &drill{T: t}
	first, second := kit.Redis(t), kit.Redis(t)
	p := d.proxy(first.Addr())
	addr := p.Addr()
	beside := d.client(first)
	var through *redis.Client
	connect := func() { // a new client: an old one may not have noticed that the proxy has ended its connections
		through = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 2 * time.Second})
		t.Cleanup(func() { _ = through.Close() })
	}
	step := func(what string, wantOK bool, wantDone string) {
		t.Helper()
		if err := through.Incr(t.Context(), "done").Err(); (err == nil) != wantOK {
			t.Errorf("%s: %v", what, err)
		}
		if done := d.tell(beside, "GET", "done"); done != wantDone {
			t.Errorf("%s: %s commands were done, want %s", what, done, wantDone)
		}
	}

	connect()
	step("nothing is wrong", true, "1")
	p.LoseReplyTo("incr", 1)
	step("its reply is lost", false, "2")
	step("the next one's is not", true, "3")
	p.LoseReplies()
	step("every reply is lost", false, "4")
	p.Restore()
	connect()
	step("restored", true, "5")
	p.Cut()
	step("cut", false, "5")
	p.Restore()
	connect()
	step("restored again", true, "6")
	if lost := p.Lost(); lost < 2 {
		t.Errorf("%d replies were lost", lost)
	}
	p.Point(second.Addr())
	connect()
	step("another server", true, "6")
	if got := d.tell(d.client(second), "GET", "done"); got != "1" || p.Addr() != addr {
		t.Errorf("the other server has done %s; the address is %s, was %s", got, p.Addr(), addr)
	}
}
