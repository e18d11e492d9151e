package middleware

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A panic becomes a failure with a stack, and never an error after which a client may try again.
func TestRecovery(t *testing.T) {
	check.Each(t, map[string]any{
		"a string": "boom", "an error": errors.New("boom"), "ErrUnavailable": model.ErrUnavailable,
	}, func(t *testing.T, value any) {
		var failure error
		serve(newEngine(func(c *gin.Context) {
			c.Next()
			failure = FailureOf(c)
		}, Recovery(), func(*gin.Context) { panic(value) }), newRequest(t))
		if failure == nil || !strings.Contains(failure.Error(), "recovery_test.go") || errors.Is(failure, model.ErrUnavailable) {
			t.Errorf("the failure is %v", failure)
		}
	})
}

func TestRecoveryLetsAbortPass(t *testing.T) {
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the very value
			t.Errorf("recovered %v, want %v", p, http.ErrAbortHandler)
		}
	}()
	serve(newEngine(Recovery(), func(*gin.Context) { panic(http.ErrAbortHandler) }), newRequest(t))
}
