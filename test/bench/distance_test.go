//go:build bench && linux

package bench

import (
	"net"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// away returns an address that leads to another one, with a round trip that is longer by a time.
func away(t *testing.T, to string, longer time.Duration) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	t.Cleanup(func() { check.NoError(t, listener.Close()) })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			far, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			go late(far, near, longer/2)
			go late(near, far, longer/2)
		}
	}()
	return listener.Addr().String()
}

// late copies what arrives at one connection to another one, each piece after a delay, until one of them ends.
func late(to, from net.Conn, delay time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			pieces <- piece{buffer[:n], time.Now().Add(delay)}
		}
	}()
	for p := range pieces {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range pieces { // lets the reader end
	}
}
