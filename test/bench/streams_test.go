//go:build bench && linux

package bench

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	// openStreams is the number of clients that watch the sale.
	openStreams = 5_000
	// mostStreamsMiB is the goal for the engine's memory with all streams open, also under load.
	mostStreamsMiB = 200
	// hearTimeout is how long a figure may take to reach every stream.
	hearTimeout = 10 * time.Second
)

// withStreams measures purchases in turns without and with open streams that report the stock. The streams' clients
// read only after the turn, because in production they run on machines of their own.
func withStreams(t *testing.T, b *run, r *Result) {
	s := newStores(t, false).open(b.binary)
	r.command("flashsale", s.engine.cmd.Args[1:])
	sale := s.sale(manyUnits, manyEach)
	load := b.wallet.requests(s, 0, buyers, sale).at(s.url)

	atRest := s.engine.rssMiB()
	watching := s.listen(sale, openStreams)
	r.note("memory at rest: %s MiB, with %d streams %s", figure(atRest), openStreams, figure(s.engine.rssMiB()))
	watching.leave()

	r.Unit = "MiB"
	var done turns
	fire := func(seconds int, from float64) Sample {
		sample := b.fire(t, r, load, seconds, from)
		if sample.Errors > 0 {
			r.void("%d connections failed or timed out", sample.Errors)
		}
		done.answers, done.refused = done.answers+sample.Requests, done.refused+sample.Refused
		done.unheard += int64(load.connections)
		s.drained(sale)
		return sample
	}
	turn := func(seconds int, from float64) (alone, watched Sample, mostMiB float64) {
		alone = fire(seconds, from)
		watching := s.listen(sale, openStreams)
		mostMiB = s.watch(func() { watched = fire(seconds, from) })
		watching.hear(s.available(sale))
		watching.leave()
		s.troubles += s.engine.troubles()
		return alone, watched, mostMiB
	}
	turn(warmUpSeconds, 0)
	for round := range b.rounds {
		alone, watched, mostMiB := turn(b.seconds, float64(round)/float64(b.rounds))
		r.Control, r.Path, r.Values = append(r.Control, alone), append(r.Path, watched), append(r.Values, mostMiB)
	}
	r.judgeRatio(0.95, 0)
	most := spread(r.Values).Max
	r.Goal += fmt.Sprintf(", < %d MiB", mostStreamsMiB)
	r.Measured += fmt.Sprintf(", %s MiB", figure(most))
	r.Met = r.Met && most < mostStreamsMiB
	r.note("the control is the same without streams; each of them heard of the last unit sold in its turn")
	s.balance(r, done.accepted(r, true), done.unheard, sale)
}

// audience is the clients that watch a sale.
type audience struct {
	t     *testing.T
	conns []*net.TCPConn
}

// listen opens n streams and waits until each has received its first event.
func (s *shop) listen(saleID string, n int) *audience {
	s.t.Helper()
	a := &audience{t: s.t}
	s.t.Cleanup(a.leave)
	address := strings.TrimPrefix(s.url, "http://")
	for range n {
		conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
		if err != nil {
			s.t.Fatal(err)
		}
		a.conns = append(a.conns, conn.(*net.TCPConn))
		if _, err := fmt.Fprintf(conn, "GET /api/v1/sales/%s/events HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n", saleID); err != nil {
			s.t.Fatal(err)
		}
	}
	a.await(`"available":`)
	return a
}

// hear reads every stream until it reports the available units.
func (a *audience) hear(available int64) {
	a.t.Helper()
	a.await(fmt.Sprintf(`"available":%d,`, available))
}

func (a *audience) await(text string) {
	a.t.Helper()
	deadline := time.Now().Add(hearTimeout)
	part := make([]byte, 64<<10)
	for i, conn := range a.conns {
		if err := conn.SetReadDeadline(deadline); err != nil {
			a.t.Fatal(err)
		}
		for heard := ""; !strings.Contains(heard, text); {
			n, err := conn.Read(part)
			if heard += string(part[:n]); err != nil {
				a.t.Fatalf("stream %d ended with %q, without %s: %v", i, heard[max(0, len(heard)-200):], text, err)
			}
		}
	}
}

// leave resets the connections, so that their ports are free for the next turn.
func (a *audience) leave() {
	for _, conn := range a.conns {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
	a.conns = nil
}
