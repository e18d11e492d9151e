package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"flashsale/model"
	"flashsale/service"
)

// TestMain also sees to it that no stage leaves a goroutine behind.
func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	goleak.VerifyTestMain(m)
}

// newEngine puts stages in front of a handler that answers "ok", and tells how a request ended in the body,
// as the problems would outside of this package.
func newEngine(t *testing.T, stages ...gin.HandlerFunc) *gin.Engine {
	t.Helper()
	engine := gin.New()
	if err := engine.SetTrustedProxies(nil); err != nil {
		t.Fatal(err)
	}
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

// as is a stage that stands in for Authenticate.
func as(who model.Identity) gin.HandlerFunc {
	return func(c *gin.Context) { stateOf(c).identity = who }
}

func TestRefuseAndFail(t *testing.T) {
	broken := errors.New("broken")
	refusal := Refusal{Verdict: model.Paused, Invalid: &service.Invalid{Reason: "for lunch"}}
	tests := map[string]struct {
		stage   gin.HandlerFunc
		refusal Refusal
		failure error
		reached bool
	}{
		"passed on": {stage: func(*gin.Context) {}, reached: true},
		"refused":   {stage: func(c *gin.Context) { Refuse(c, refusal) }, refusal: refusal},
		"failed":    {stage: func(c *gin.Context) { Fail(c, broken) }, failure: broken},
		"a refusal wrapped on its way is still a refusal": {
			stage: func(c *gin.Context) { Fail(c, fmt.Errorf("purchase: %w", refusal)) }, refusal: refusal,
		},
		"what came last counts": {
			stage:   func(c *gin.Context) { Refuse(c, refusal); Fail(c, broken) },
			failure: broken,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine := gin.New()
			var got Refusal
			var refused bool
			var failure error
			reached := false
			engine.Use(func(c *gin.Context) {
				c.Next()
				got, refused = RefusalOf(c)
				failure = FailureOf(c)
			}, tc.stage)
			engine.GET("/", func(*gin.Context) { reached = true })
			serve(engine, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))

			if got != tc.refusal || refused != (tc.refusal != Refusal{}) {
				t.Errorf("refusal %+v, %v; want %+v", got, refused, tc.refusal)
			}
			if !errors.Is(failure, tc.failure) {
				t.Errorf("failure %v, want %v", failure, tc.failure)
			}
			if reached != tc.reached {
				t.Errorf("handler reached: %v, want %v", reached, tc.reached)
			}
		})
	}
}
