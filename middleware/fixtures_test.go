package middleware

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// TestMain also fails if a stage leaves a goroutine behind.
func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	goleak.VerifyTestMain(m)
}

// buyer is the user of most requests.
var buyer = model.Identity{UserID: "u-1", Role: model.RoleBuyer}

// newEngine puts stages in front of a handler that answers "ok". The body of any other answer says how the request ended.
func newEngine(stages ...gin.HandlerFunc) *gin.Engine {
	engine := gin.New()
	_ = engine.SetTrustedProxies(nil)
	engine.Use(func(c *gin.Context) {
		c.Next()
		if refusal, refused := RefusalOf(c); refused {
			c.String(http.StatusBadRequest, "%s after %s", refusal.Verdict, refusal.RetryAfter)
		}
		if err := FailureOf(c); err != nil {
			c.String(http.StatusInternalServerError, "failed: %v", err)
		}
	})
	engine.Use(stages...)
	engine.GET("/sales/:sale/:path", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	return engine
}

// newRequest returns a request with headers: pairs of name and value.
func newRequest(t *testing.T, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sales/S1/secretpath", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func serve(engine *gin.Engine, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, r)
	return w
}

// answer returns the body of the answer to a request.
func answer(t *testing.T, engine *gin.Engine, headers ...string) string {
	t.Helper()
	return serve(engine, newRequest(t, headers...)).Body.String()
}

// step is a request after a pause, and the body of its answer. from is its remote address, if it matters.
type step struct {
	name  string
	pause time.Duration
	want  string
	from  string
}

// inSteps sends requests to a stage, one after the other, under a fake clock. Every second request has forged addresses.
func inSteps(t *testing.T, stage func() gin.HandlerFunc, steps []step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(stage())
		for i, s := range steps {
			time.Sleep(s.pause) // by the bubble's clock
			r := newRequest(t)
			if forged := fmt.Sprint("198.51.100.", i); i%2 == 1 {
				r = newRequest(t, "X-Forwarded-For", forged, "X-Real-Ip", forged, "Forwarded", "for="+forged)
			}
			if s.from != "" {
				r.RemoteAddr = s.from
			}
			check.Same(t, s.name, serve(engine, r).Body.String(), s.want)
		}
	})
}

// as is a stage that stands in for Authenticate.
func as(who model.Identity) gin.HandlerFunc {
	return func(c *gin.Context) { stateOf(c).identity = who }
}
