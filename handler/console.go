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
	// consolePause is the wait between a change and the event that shows it: people can't follow events that come faster.
	consolePause = 200 * time.Millisecond
	// consoleCheck is how often a stream checks that its user may still see it. The stream then also writes, to notice that a
	// client has left, and so that proxies do not close the stream.
	consoleCheck = time.Second
	// maxConsoles is how many streams an instance may have open for the staff. operatorConsoles of them are only for operators,
	// so that other users can't keep operators out. One user gets at most consolesOfOne.
	maxConsoles, operatorConsoles, consolesOfOne = 100, 20, 20
)

// Consoles are the streams that are open for the staff.
type Consoles struct {
	staff       middleware.TokenVerifier
	closing     <-chan struct{}
	all, others *middleware.Places // others: of the users who are not operators
}

// NewConsoles returns an empty set of streams. staff checks the users' tokens. The streams end when closing is closed.
func NewConsoles(staff middleware.TokenVerifier, closing <-chan struct{}) *Consoles {
	return &Consoles{
		staff, closing,
		middleware.NewPlaces(maxConsoles, consolesOfOne), middleware.NewPlaces(maxConsoles-operatorConsoles, consolesOfOne),
	}
}

// enter takes a place for a stream of a user. Its results are those of Places.Enter.
func (s *Consoles) enter(who model.Identity) (leave func(), verdict model.Verdict) {
	if who.Role.May(model.RoleOperator) {
		return s.all.Enter(who.UserID)
	}
	leaveOthers, verdict := s.others.Enter(who.UserID)
	if verdict != model.Accepted {
		return nil, verdict
	}
	leaveAll, verdict := s.all.Enter(who.UserID)
	if verdict != model.Accepted {
		leaveOthers()
		return nil, verdict
	}
	return func() { leaveAll(); leaveOthers() }, verdict
}

// stream sends server-sent events to a member of the staff. It ends when a write fails or takes longer than sendTimeout, the user
// may no longer see the events, or the server stops. The function next returns the frames to send now, which may be none, and a
// channel that closes when there is news. If enter gives no place, the request is refused.
func (s *Consoles) stream(c *gin.Context, next func() (frames []byte, changed <-chan struct{})) {
	leave, verdict := s.enter(middleware.IdentityOf(c))
	if verdict != model.Accepted {
		middleware.Refuse(c, middleware.Refusal{Verdict: verdict, RetryAfter: streamsFull})
		return
	}
	defer leave()
	streamHeader(c)
	if isHead(c) {
		return
	}
	check := time.NewTicker(consoleCheck)
	defer check.Stop()
	listens := sendToConsole(c, nothingNew) // shows the client that it is connected
	look := time.After(0)                   // fires when it is time to call next; nil while nothing has changed
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
		case <-check.C:
			listens = s.stillLooks(c) && sendToConsole(c, nothingNew)
		case <-c.Request.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}

// stillLooks is middleware.StillMay for the role of a viewer.
func (s *Consoles) stillLooks(c *gin.Context) bool {
	return middleware.StillMay(c, s.staff, model.RoleViewer)
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

// appendEvent appends a server-sent event.
func appendEvent(frames []byte, name string, view any) []byte {
	data, _ := json.Marshal(view) // texts, times and finite numbers always encode
	return fmt.Appendf(frames, "event: %s\ndata: %s\n\n", name, data)
}
