package fault

import (
	"errors"
	"fmt"
	"io"
	"net"
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
	n     int
	first string        // what each connection sends when it is open
	drip  string        // what it sends each second
	least time.Duration // the server cuts no connection before
	most  time.Duration // the server has cut every connection

	mu    sync.Mutex
	lives []time.Duration // of the connections that the server cut
	err   error
	done  chan struct{}
}

// dialers is how many connections are opened at once, because a listener's backlog is small.
const dialers = 64

// open opens the connections, and keeps each until the server cuts it or h.most is over. It returns when all are open.
func (h *hoard) open(d *drill, address string) {
	h.done = make(chan struct{})
	var all sync.WaitGroup
	inParallel(dialers, h.n, func(int) {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		conn, err := dialer.DialContext(d.Context(), "tcp", address)
		if err != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.err = errors.Join(h.err, err)
			return
		}
		all.Go(func() {
			defer func() { _ = conn.Close() }()
			start := time.Now()
			if cut := sit(conn, h.first, h.drip, start.Add(h.most)); cut {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.lives = append(h.lives, time.Since(start))
			}
		})
	})
	go func() {
		defer close(h.done)
		all.Wait()
	}()
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

// cut checks that every connection of a hoard was cut, in time and not too early.
func (d *drill) cut(h *hoard) {
	d.Helper()
	<-h.done
	if h.err != nil || len(h.lives) != h.n || slices.Min(h.lives) < h.least {
		d.Errorf("%s: %d of %d were cut in %s, the first after %s, the time-out is %s (%v)",
			h.what, len(h.lives), h.n, h.most, percentile(h.lives, 0), h.least, h.err)
	}
	d.Logf("%s: %d cut after %s to %s", h.what, len(h.lives), ms(percentile(h.lives, 0)), ms(percentile(h.lives, 100)))
}

func slowAndIdle(d *drill) {
	slow, idle := size(50, 500), size(1_000, 10_000)
	d.openFiles(uint64(2*slow + idle + 1_000))
	d.stores()
	a := d.StartWith(leanly)
	d.sell(size(500, 2_000), a)
	d.attempts = d.Rush(d.sale, "calm", 100, nil, a.URL)
	_, usual := slowest(d.attempts)
	before := d.resident(a)

	// The server may start to count a moment before the client.
	const request = " HTTP/1.1\r\nHost: shop\r\n"
	headers := &hoard{
		what: "slow headers", n: slow, first: "GET /api/v1/time" + request, drip: "X-More: and more\r\n",
		least: headersCut - time.Second, most: headersCut + cutSlack,
	}
	bodies := &hoard{
		what: "slow bodies", n: slow, drip: " ", least: headersCut, most: bodyCut + cutSlack,
		first: "POST /api/v1/users" + request + "Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n{",
	}
	silent := &hoard{what: "silent", n: idle / 2, least: headersCut - time.Second, most: headersCut + cutSlack}
	kept := &hoard{
		what: "idle after a request", n: idle - idle/2, first: "GET /healthz" + request + "\r\n",
		least: idleCut - time.Second, most: span(bodyCut, idleCut+cutSlack),
	}
	var opened sync.WaitGroup
	for _, h := range []*hoard{headers, bodies, silent, kept} {
		opened.Go(func() { h.open(d, strings.TrimPrefix(a.URL, "http://")) })
	}
	opened.Wait()
	held := d.resident(a)

	var visitors []shop.Attempt
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for round, sitting := 0, true; sitting; round++ {
		visitors = append(visitors, d.Rush(d.sale, fmt.Sprintf("visitor%d", round), 20, nil, a.URL)...)
		select {
		case <-bodies.done:
			sitting = false
		case <-ticker.C:
		}
	}
	d.told(visitors, "201", "409 sold_out")
	d.attempts = append(d.attempts, visitors...)
	for _, h := range []*hoard{headers, silent, bodies} {
		d.cut(h)
	}
	if full {
		d.cut(kept)
	} else if <-kept.done; len(kept.lives) > 0 || kept.err != nil {
		d.Errorf("%d of %d that had made a request were cut before %s (%v)", len(kept.lives), kept.n, idleCut, kept.err)
	}
	_, p99 := slowest(visitors)
	if p99 > max(2*time.Second, 5*usual) {
		d.Errorf("the slowest of a hundred visitors waited %s, and %s before", p99, usual)
	}
	d.finish("%d slow and %d idle connections held %d MiB; meanwhile %d visitors were served, 99 of 100 within %s",
		2*slow, idle, (held-before)>>20, len(d.attempts), ms(p99))
}
