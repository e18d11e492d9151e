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
	// consolePause is the wait between a change and the reading of it, so that quick changes share one event: nobody
	// can follow more than five figures a second.
	consolePause = 200 * time.Millisecond
	// maxConsoles bounds the streams that an instance has open for operators. A shop has far fewer operators.
	maxConsoles = 100
	// consoleLifetime bounds a stream, because the log-in is checked only when the stream begins. Consoles connect
	// again.
	consoleLifetime = 15 * time.Minute
)

// console streams server-sent events to an operator. next returns the frames to send now, empty if there is no news,
// and a channel that closes when there is news. A client that takes longer than sendTimeout for a write is
// disconnected; other streams do not wait for it.
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
	listens := sendToConsole(c, nothingNew) // shows the client that it is connected
	look := time.After(0)                   // fires when next is due; nil while there is no change
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

// nothingNew is a server-sent comment that keeps a stream alive.
var nothingNew = []byte(":\n\n")

// sendToConsole writes frames and reports whether the client took them within sendTimeout.
func sendToConsole(c *gin.Context, frames []byte) bool {
	control := http.NewResponseController(c.Writer)
	if err := control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil { //nolint:forbidigo // needs real time
		return false
	}
	if _, err := c.Writer.Write(frames); err != nil {
		return false
	}
	return control.Flush() == nil
}

// appendEvent appends a server-sent event. The encoding of view never fails: it holds only texts, times and finite
// numbers.
func appendEvent(frames []byte, name string, view any) []byte {
	data, _ := json.Marshal(view)
	return fmt.Appendf(frames, "event: %s\ndata: %s\n\n", name, data)
}
