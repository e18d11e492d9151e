package middleware

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// What stages leave is there for those behind and around them, and gone with the next request.
func TestStateIsOfOneRequest(t *testing.T) {
	first := true
	engine := newEngine(t, func(c *gin.Context) {
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
	engine := newEngine(t, func(c *gin.Context) {
		Begin(c, read)
		pass(1)
		Begin(c, read) // too late
		for _, want := range []time.Duration{3, 4} {
			pass(want)
			if want == 3 {
				want++ // with what passed before the first stage
			}
			if got := Lap(c, now); got != want {
				t.Errorf("lap of %d, want %d", got, want)
			}
		}
		for range 2 {
			if got := Took(c, read); got != 8 {
				t.Errorf("took %d, want 8, whoever asks", got)
			}
			pass(1)
		}
	})
	serve(engine, newRequest(t))
}

// A stream needs to reach the server's own writer.
func TestStateUnwraps(t *testing.T) {
	engine := newEngine(t, RequestID(), func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).Flush(); err != nil {
			t.Error(err)
		}
		if inner := c.Writer.(*state).Unwrap(); inner == http.ResponseWriter(c.Writer) {
			t.Error("the writer is around itself")
		}
	})
	if w := serve(engine, newRequest(t)); !w.Flushed {
		t.Error("nothing was flushed")
	}
}
