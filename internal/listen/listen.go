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
// To notice that the client leaves, net/http starts a goroutine for each request, which reads one byte ahead. That takes up to a
// tenth of a purchase's CPU time, and a purchase need not notice. So the first of two reads of one byte in a row gets
// nothing, which ends that goroutine. Another reader, whose buffer has room for just one byte, reads again and gets the byte.
type Conn struct {
	*net.TCPConn
	asked bool // the last read was of one byte, and was skipped
}

// Read calls TCPConn.Read. But of consecutive reads of one byte, the first, the third and so on return 0, without an error.
func (c *Conn) Read(p []byte) (int, error) {
	if c.asked = len(p) == 1 && !c.asked; c.asked {
		return 0, nil
	}
	return c.TCPConn.Read(p)
}

// NetConn returns the TCP connection. After a hijack, reads from it notice that the client leaves.
func (c *Conn) NetConn() net.Conn { return c.TCPConn }
