// Package listen accepts the connections of the buyers' HTTP server.
package listen

import "net"

// Listener wraps the connections of a TCP listener in Conn.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &Conn{TCPConn: tcp}, err
	}
	return c, err
}

// Conn is a TCP connection whose client can leave unnoticed while a handler works.
//
// To notice that the client leaves, net/http starts a goroutine for each request, which reads one byte ahead until the handler is
// done. That takes up to a tenth of a purchase's CPU time, for nothing: an attempt that has begun goes on without its buyer. So a
// read of one byte returns at once, with nothing. A reader whose buffer lacks only one byte asks again, and gets it.
type Conn struct {
	*net.TCPConn
	asked bool // the last read was of one byte, and got nothing
}

// Read is TCPConn.Read, but of several reads of one byte in a row the first gets nothing, the second reads, and so on in turn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.asked = len(p) == 1 && !c.asked; c.asked {
		return 0, nil
	}
	return c.TCPConn.Read(p)
}

// NetConn returns the TCP connection. A handler that has hijacked the Conn reads from it to notice that the client leaves.
func (c *Conn) NetConn() net.Conn { return c.TCPConn }
