package middleware

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// The places of all and those of each address are bounded, and a place that was left is free.
func TestPlaces(t *testing.T) {
	places := NewPlaces(3, 2)
	var leaves []func()
	take := func(address string, want bool) {
		t.Helper()
		c, _ := gin.CreateTestContext(httptest.NewRecorder())
		c.Request = newRequest(t)
		c.Request.RemoteAddr = address
		leave, ok := places.Take(c)
		check.Same(t, address+" has a place", ok, want)
		if ok {
			leaves = append(leaves, leave)
			return
		}
		refusal, _ := RefusalOf(c)
		check.Same(t, "verdict", refusal.Verdict, model.RateLimited)
	}
	take("192.0.2.1:1", true)
	take("192.0.2.1:2", true)
	take("192.0.2.1:3", false)
	take("[2001:db8::1]:1", true)
	take("192.0.2.2:1", false)
	leaves[0]()
	take("[2001:db8::2]:1", true)
	take("192.0.2.1:4", false)
	for _, leave := range leaves[1:] {
		leave()
	}
	check.Same(t, "taken at the end", fmt.Sprint(places.sum, places.taken), fmt.Sprint(0, map[string]int{}))
}
