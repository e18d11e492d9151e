package listen

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit/check"
)

// reads wraps the connections of a Listener, and notes the sizes of the buffers into which the server reads.
type reads struct {
	net.Listener
	mu    sync.Mutex
	sizes []int
}

type noted struct {
	net.Conn
	of *reads
}

func (r *reads) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	return noted{c, r}, err
}

func (c noted) Read(p []byte) (int, error) {
	c.of.mu.Lock()
	c.of.sizes = append(c.of.sizes, len(p))
	c.of.mu.Unlock()
	return c.Conn.Read(p)
}

// The server loses nothing of what a client sends, whether requests come one by one, together, or in single bytes; and net/http
// reads into one byte only to notice that the client leaves. If a later version of Go reads in another way, this test fails.
func TestServer(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	noting := &reads{Listener: Listener{l}}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	server := &http.Server{Handler: echo, ReadHeaderTimeout: check.Patience}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(noting) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	conn := check.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()))
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	bodies := []string{"", "a", "ab", strings.Repeat("long", 5_000)}
	var all strings.Builder
	request := func(body string) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	answered := func(want string) {
		t.Helper()
		a, err := http.ReadResponse(answers, nil)
		check.NoError(t, err)
		got := string(check.Must(io.ReadAll(a.Body)))
		check.Same(t, "the length of the answer", len(got), len(want))
		check.Same(t, "the answer is the body", got == want, true)
		check.NoError(t, a.Body.Close())
	}
	for _, body := range bodies {
		_, err = io.WriteString(conn, request(body))
		check.NoError(t, err)
		answered(body)
		all.WriteString(request(body))
	}
	sizes := func() (ahead, least int) {
		noting.mu.Lock()
		defer noting.mu.Unlock()
		least = 1 << 20
		for _, size := range noting.sizes {
			if size == 1 {
				ahead++
			} else {
				least = min(least, size)
			}
		}
		return ahead, least
	}
	for _, part := range strings.SplitAfter(request("single"), "") {
		_, err = io.WriteString(conn, part)
		check.NoError(t, err)
	}
	answered("single")
	// The read ahead of the newest request may still be to come. Of requests that come together, not each has one.
	if ahead, _ := sizes(); ahead != len(bodies) && ahead != len(bodies)+1 {
		t.Errorf("%d reads ahead for %d requests", ahead, len(bodies)+1)
	}
	_, err = io.WriteString(conn, all.String())
	check.NoError(t, err)
	for _, body := range bodies {
		answered(body)
	}
	if _, least := sizes(); least < 512 {
		t.Errorf("the server reads into %d bytes: a read for a request may be one of a single byte", least)
	}
}

// A buffer that lacks one byte is filled, for example by a long line of a header that came in two parts.
func TestLastByteOfABuffer(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	defer func() { _ = l.Close() }()
	client := check.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()))
	defer func() { _ = client.Close() }()
	conn := check.Must(Listener{l}.Accept())
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(conn, 16)
	for _, part := range []string{"fifteen letters", "!"} {
		_, err = io.WriteString(client, part)
		check.NoError(t, err)
		_, err = in.Peek(in.Buffered() + len(part))
		check.NoError(t, err)
	}
}

// A handler that takes the connection over notices that its client leaves.
func TestHijacked(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	defer func() { _ = l.Close() }()
	client := check.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()))
	conn := check.Must(Listener{l}.Accept())
	defer func() { _ = conn.Close() }()
	check.NoError(t, client.Close())
	n, err := conn.Read(make([]byte, 1))
	check.Same(t, "read of a Conn", fmt.Sprint(n, err), "0 <nil>")
	_, err = conn.(*Conn).NetConn().Read(make([]byte, 1))
	check.Same(t, "read of its TCP connection", err, io.EOF)
}
