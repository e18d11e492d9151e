package middleware

import (
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Requests without a right secret use the limits up, each address its own before the one of all. A right secret passes.
func TestStrangers(t *testing.T) {
	engine := newEngine(Strangers(AddressLimit(0.001), TokenBucket(0.001, 2, 0)), func(c *gin.Context) {
		if c.GetHeader("X-Signature") == "right" {
			Signed(c)
			Refuse(c, Refusal{Verdict: model.NotFound})
		}
	}, func(c *gin.Context) {
		if !c.IsAborted() {
			Authenticate(tokens{"good": buyer})(c)
		}
	})
	from := func(address string, headers ...string) string {
		r := newRequest(t, headers...)
		r.RemoteAddr = address
		return serve(engine, r).Body.String()
	}
	const refused, limited = "unauthenticated", "rate_limited"
	verdict := func(body string) string { first, _, _ := strings.Cut(body, " "); return first }
	for _, step := range []struct{ address, want string }{
		{"192.0.2.1:1", refused}, {"192.0.2.1:2", limited}, {"192.0.2.2:1", refused}, {"192.0.2.3:1", limited}, {"192.0.2.2:1", limited},
	} {
		check.Same(t, step.address, verdict(from(step.address, "Authorization", "Bearer bad")), step.want)
		for range 3 {
			check.Same(t, "a right token", from(step.address, "Authorization", "Bearer good"), "ok")
			check.Same(t, "a right signature", from(step.address, "X-Signature", "right"), "not_found after 0s")
		}
	}
}
