package middleware

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// The state of a request is there for the inner and the outer stages, and not for the next request.
func TestStateIsOfOneRequest(t *testing.T) {
	first := true
	engine := newEngine(func(c *gin.Context) {
		if got := IdentityOf(c); got != (model.Identity{}) {
			t.Errorf("a new request is %+v's", got)
		}
		c.Next()
		if got := IdentityOf(c).UserID; (got == "u-1") != first {
			t.Errorf("afterwards the request is %q's", got)
		}
	}, func(c *gin.Context) {
		if first {
			as(model.Identity{UserID: "u-1"})(c)
		}
	})
	serve(engine, newRequest(t))
	first = false
	serve(engine, newRequest(t))
}

func TestLaps(t *testing.T) {
	now := time.Unix(0, 0)
	read := func() time.Time { return now }
	pass := func(d time.Duration) { now = now.Add(d) }
	serve(newEngine(func(c *gin.Context) {
		Begin(c, read)
		pass(1)
		Begin(c, read) // too late
		pass(3)
		same(t, "first lap", Lap(c, now), 4)
		pass(4)
		same(t, "second lap", Lap(c, now), 4)
		for range 2 {
			same(t, "time of the request, also later", Took(c, read), 8)
			pass(1)
		}
	}), newRequest(t))
}

// http.ResponseController reaches the server's writer.
func TestStateUnwraps(t *testing.T) {
	w := serve(newEngine(RequestID(), func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).Flush(); err != nil {
			t.Error(err)
		}
		if inner := c.Writer.(*state).Unwrap(); inner == http.ResponseWriter(c.Writer) {
			t.Error("the writer wraps itself")
		}
	}), newRequest(t))
	same(t, "flushed", w.Flushed, true)
}
