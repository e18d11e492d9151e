package middleware

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/test/kit/check"
)

func TestTokenBucketTriesOnce(t *testing.T) {
	const ms = time.Millisecond
	inSteps(t, func() gin.HandlerFunc { return TokenBucket(2, 3, 0) }, []step{
		{"first of the burst", 0, "ok", ""},
		{"second of the burst", 0, "ok", ""},
		{"third of the burst", 0, "ok", ""},
		{"after the burst", 0, "rate_limited after 500ms", ""},
		{"a refusal takes no token", 0, "rate_limited after 500ms", ""},
		{"half a token", 250 * ms, "rate_limited after 250ms", ""},
		{"a token", 250 * ms, "ok", ""},
		{"no second token", 0, "rate_limited after 500ms", ""},
	})
}

// As many requests wait as get a token within the wait.
func TestTokenBucketWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed, _ := arrive(t, newEngine(TokenBucket(10, 1, 350*time.Millisecond)), 100)
		check.Same(t, "passed", passed, gaps(4))
	})
}
