package handler

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	// exportLimit bounds a whole export or proof, which may have a million rows.
	exportLimit = 10 * time.Minute
	// exportPatience bounds how long a client may take to receive one part.
	exportPatience = 10 * time.Second
)

// download sends a long answer in parts. The headers go out with the first part, so that an error before that can be answered.
type download struct {
	c       *gin.Context
	closing <-chan struct{} // closed when the server stops: the answer ends
	header  http.Header
	lost    bool // the client is gone, or too slow
}

func (d *download) begin() {
	maps.Copy(d.c.Writer.Header(), d.header)
	d.c.Status(http.StatusOK)
}

// Write sends a part, which the client must take within exportPatience. If the server stops, Write returns context.Canceled.
func (d *download) Write(part []byte) (int, error) {
	select {
	case <-d.closing:
		return 0, context.Canceled
	default:
	}
	if !d.c.Writer.Written() {
		d.begin()
	}
	control := http.NewResponseController(d.c.Writer)
	_ = control.SetWriteDeadline(time.Now().Add(exportPatience)) //nolint:forbidigo // needs real time
	n, err := d.c.Writer.Write(part)
	if err == nil {
		err = control.Flush()
	}
	d.lost = err != nil
	return n, err
}

// end ends the answer. Unless the client is lost, the request fails with the error, or is refused with a verdict other than
// Accepted. If the answer has begun, an error also cuts the connection, so that nobody takes a part for the whole.
func (d *download) end(verdict model.Verdict, err error) {
	switch {
	case d.lost:
	case err != nil:
		middleware.Fail(d.c, err)
	case verdict != model.Accepted:
		refuse(d.c, verdict)
	}
	if err != nil && d.c.Writer.Written() {
		// With a deadline in the past, net/http can't write the final chunk, and closes the connection.
		_ = http.NewResponseController(d.c.Writer).SetWriteDeadline(time.Unix(1, 0))
	}
}

func cellTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(strings.Trim(stampLayout, `"`))
}

// harmless puts a quote before a text that a spreadsheet might read as a formula.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
