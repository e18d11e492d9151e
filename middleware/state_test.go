package middleware

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// The state of a request is there for the inner and the outer stages, and not for the next request.
func TestStateIsOfOneRequest(t *testing.T) {
	first := true
	engine := newEngine(func(c *gin.Context) {
		check.Same(t, "user of a new request", IdentityOf(c), model.Identity{})
		c.Next()
		check.Same(t, "afterwards the request is u-1's", IdentityOf(c).UserID == "u-1", first)
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
		check.Same(t, "first lap", Lap(c, now), 4)
		pass(4)
		check.Same(t, "second lap", Lap(c, now), 4)
		for range 2 {
			check.Same(t, "time of the request, also later", Took(c, read), 8)
			pass(1)
		}
	}), newRequest(t))
}

// http.ResponseController reaches the server's writer.
func TestStateUnwraps(t *testing.T) {
	w := serve(newEngine(RequestID(), func(c *gin.Context) {
		check.Done(http.NewResponseController(c.Writer).Flush())
		check.Same(t, "the writer wraps itself", c.Writer.(*state).Unwrap() == http.ResponseWriter(c.Writer), false)
	}), newRequest(t))
	check.Same(t, "flushed", w.Flushed, true)
}
