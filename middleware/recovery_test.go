package middleware

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

func TestRecovery(t *testing.T) {
	tests := map[string]any{
		"a string":               "boom",
		"an error":               errors.New("boom"),
		"an error of the domain": model.ErrUnavailable,
	}
	for name, value := range tests {
		t.Run(name, func(t *testing.T) {
			var failure error
			engine := newEngine(t, func(c *gin.Context) {
				c.Next()
				failure = FailureOf(c)
			}, Recovery(), func(*gin.Context) { panic(value) })
			serve(engine, newRequest(t))

			if failure == nil {
				t.Fatal("no failure recorded")
			}
			if !strings.Contains(failure.Error(), "recovery_test.go") {
				t.Errorf("no stack in %q", failure)
			}
			if errors.Is(failure, model.ErrUnavailable) {
				t.Error("the panic passes for an error that is answered by a retry")
			}
		})
	}
}

func TestRecoveryLetsAbortPass(t *testing.T) {
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the very value
			t.Errorf("recovered %v, want %v", p, http.ErrAbortHandler)
		}
	}()
	serve(newEngine(t, Recovery(), func(*gin.Context) { panic(http.ErrAbortHandler) }), newRequest(t))
}
