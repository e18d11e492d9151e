package fault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/test/kit/shop"
)

// The instance's own time-outs, and the delay that a busy machine may add to them.
const (
	headersCut = 5 * time.Second
	bodyCut    = 10 * time.Second
	idleCut    = 2 * time.Minute
	cutSlack   = 5 * time.Second
)

// hoard is a set of connections that send little or nothing, and how long each of them lived.
type hoard struct {
	what  string
	lives []time.Duration // of the connections that the server cut
	kept  int             // connections that the server did not cut within the patience
	err   error
	done  chan struct{}
}

// dialers is how many connections are opened at once, because a listener's backlog is small.
const dialers = 64

// hoard opens n connections to an address, sends first on each, and then drip each second, until the server cuts the
// connection or patience is over. It calls opened when all connections are open.
func (d *drill) hoard(what string, n int, address, first, drip string, patience time.Duration, opened func()) *hoard {
	h := &hoard{what: what, done: make(chan struct{})}
	var mu sync.Mutex
	var all, dialled sync.WaitGroup
	dialled.Add(n)
	slots := make(chan struct{}, dialers)
	for range n {
		all.Go(func() {
			slots <- struct{}{}
			dialer := net.Dialer{Timeout: 10 * time.Second}
			conn, err := dialer.DialContext(d.Context(), "tcp", address)
			<-slots
			dialled.Done()
			start := time.Now()
			cut := false
			if err == nil {
				cut = sit(conn, first, drip, start.Add(patience))
				_ = conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				h.err = errors.Join(h.err, err)
			case cut:
				h.lives = append(h.lives, time.Since(start))
			default:
				h.kept++
			}
		})
	}
	go func() {
		defer close(h.done)
		dialled.Wait()
		opened()
		all.Wait()
	}()
	return h
}

// sit keeps a connection open and reports whether the other side has cut it.
func sit(conn net.Conn, first, drip string, until time.Time) bool {
	if _, err := io.WriteString(conn, first); err != nil {
		return true
	}
	for time.Now().Before(until) {
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return true
		}
		_, err := io.Copy(io.Discard, conn) // an answer does not end the loop
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
		if _, err := io.WriteString(conn, drip); err != nil {
			return true
		}
	}
	return false
}

// cut checks that every connection of a hoard was cut, and none before least.
func (d *drill) cut(h *hoard, least, most time.Duration) {
	d.Helper()
	<-h.done
	if h.err != nil || h.kept > 0 {
		d.Errorf("%s: %d were not cut in %s (%v)", h.what, h.kept, most, h.err)
	}
	if len(h.lives) == 0 {
		return
	}
	if shortest := slices.Min(h.lives); shortest < least {
		d.Errorf("%s: one was cut after %s, the time-out is %s", h.what, shortest, least)
	}
	d.Logf("%s: %d cut after %s to %s", h.what, len(h.lives), slices.Min(h.lives).Round(time.Millisecond), slices.Max(h.lives).Round(time.Millisecond))
}

func slowAndIdle(d *drill) {
	slow, idle := size(50, 500), size(1_000, 10_000)
	d.openFiles(uint64(2*slow + idle + 1_000))
	s := shop.New(d)
	a := s.StartWith(leanly)
	quota := size(500, 2_000)
	sale := s.Sale(a.URL, quota)
	address := strings.TrimPrefix(a.URL, "http://")
	calm := s.Rush(sale, "calm", 100, nil, a.URL)
	_, usual := slowest(calm)
	before := d.resident(a)

	var opened sync.WaitGroup
	opened.Add(4)
	headers := d.hoard("slow headers", slow, address, "GET /api/v1/time HTTP/1.1\r\nHost: shop\r\n", "X-More: and more\r\n", headersCut+cutSlack, opened.Done)
	bodies := d.hoard("slow bodies", slow, address, "POST /api/v1/users HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{", " ", bodyCut+cutSlack, opened.Done)
	silent := d.hoard("silent", idle/2, address, "", "", headersCut+cutSlack, opened.Done)
	kept := d.hoard("idle after a request", idle-idle/2, address, "GET /healthz HTTP/1.1\r\nHost: shop\r\n\r\n", "", span(bodyCut, idleCut+cutSlack), opened.Done)
	opened.Wait()
	held := d.resident(a)

	attempts := calm
	var waits []time.Duration
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for round, sitting := 0, true; sitting; round++ {
		for _, at := range s.Rush(sale, fmt.Sprintf("visitor%d", round), 20, nil, a.URL) {
			if at.Status != http.StatusCreated && at.Code != "sold_out" {
				d.Errorf("%s was told %d %s", at.User, at.Status, at.Code)
			}
			attempts, waits = append(attempts, at), append(waits, at.Answered.Sub(at.Invoked))
		}
		select {
		case <-bodies.done:
			sitting = false
		case <-ticker.C:
		}
	}
	// The server may start to count a moment before the client.
	d.cut(headers, headersCut-time.Second, headersCut+cutSlack)
	d.cut(silent, headersCut-time.Second, headersCut+cutSlack)
	d.cut(bodies, headersCut, bodyCut+cutSlack)
	if full {
		d.cut(kept, idleCut-time.Second, idleCut+cutSlack)
	} else if <-kept.done; kept.kept != idle-idle/2 {
		d.Errorf("%d of %d that had made a request were cut before %s", len(kept.lives), idle-idle/2, idleCut)
	}
	p99 := percentile(waits, 99)
	if p99 > max(2*time.Second, 5*usual) {
		d.Errorf("the slowest of a hundred visitors waited %s, and %s before", p99, usual)
	}
	d.result.Happened = fmt.Sprintf("%d slow and %d idle connections held %d MiB; meanwhile %d visitors were served, 99 of 100 within %s",
		2*slow, idle, (held-before)>>20, len(attempts), p99.Round(time.Millisecond))
	d.recovered(s, sale, int64(quota), attempts, a.URL)
}
