package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	// consolePause gathers what changes quickly: nobody follows more than five figures a second.
	consolePause = 200 * time.Millisecond
	// maxConsoles bounds the streams that an instance has open for operators: far more than a shop has of them.
	maxConsoles = 100
	// consoleLifetime ends a stream, so that a log-in which is over doesn't see on. Consoles connect again.
	consoleLifetime = 15 * time.Minute
)

// console streams server-sent events to an operator. next gives what is to be said now, nothing if there is no news, and
// a channel that closes when there is some. A console that doesn't read is dropped; others don't wait for it.
func (a *API) console(c *gin.Context, next func() (frames []byte, changed <-chan struct{})) {
	defer a.consoles.Add(-1)
	if a.consoles.Add(1) > maxConsoles {
		middleware.Refuse(c, middleware.Refusal{Verdict: model.Unavailable, RetryAfter: streamsFull})
		return
	}
	streamHeader(c)
	if isHead(c) {
		return
	}
	over := time.NewTimer(consoleLifetime)
	defer over.Stop()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	listens := sendToConsole(c, nothingNew) // so that it knows that it is connected
	look := time.After(0)                   // or nil: there is nothing to look for
	var changed <-chan struct{}
	for listens {
		select {
		case <-look:
			var frames []byte
			if frames, changed = next(); len(frames) > 0 {
				listens = sendToConsole(c, frames)
			}
			look = nil
		case <-changed:
			look, changed = time.After(consolePause), nil
		case <-beat.C:
			listens = sendToConsole(c, nothingNew)
		case <-over.C:
			return
		case <-c.Request.Context().Done():
			return
		case <-a.Closing:
			return
		}
	}
}

// nothingNew keeps a stream alive.
var nothingNew = []byte(":\n\n")

// sendToConsole reports whether the client took it in time.
func sendToConsole(c *gin.Context, frames []byte) bool {
	control := http.NewResponseController(c.Writer)
	if err := control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil { //nolint:forbidigo // as the kernel counts
		return false
	}
	if _, err := c.Writer.Write(frames); err != nil {
		return false
	}
	return control.Flush() == nil
}

// appendEvent appends a server-sent event. What a console is told always encodes: words and finite numbers.
func appendEvent(frames []byte, name string, view any) []byte {
	data, _ := json.Marshal(view)
	return fmt.Appendf(frames, "event: %s\ndata: %s\n\n", name, data)
}
