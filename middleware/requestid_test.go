package middleware

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/test/kit/check"
)

// The client's id is taken if it is valid. Otherwise each request gets a valid id of its own.
func FuzzRequestID(f *testing.F) {
	for _, seed := range []string{
		"", "edge-7.a_B", strings.Repeat("x", 64), strings.Repeat("x", 65), "a b", "a\nlevel=ERROR", "a\n", "号", "\x00", "<b>",
	} {
		f.Add(seed)
	}
	form := regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)
	f.Fuzz(func(t *testing.T, given string) {
		var ids []string
		engine := newEngine(RequestID(), func(c *gin.Context) { ids = append(ids, RequestIDOf(c)) })
		for i := range 2 {
			r := newRequest(t)
			r.Header["X-Request-Id"] = []string{given}
			check.Same(t, "the id in the answer", serve(engine, r).Header().Get("X-Request-ID"), ids[i])
			check.Same(t, ids[i]+" is valid", form.MatchString(ids[i]), true)
			check.Same(t, given+" is taken", ids[i] == given, form.MatchString(given))
		}
		check.Same(t, given+" gives one id twice", ids[0] == ids[1], form.MatchString(given))
	})
}

func TestRequestIDsOfManyRequests(t *testing.T) {
	const callers, requests = 8, 1000
	form := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	made := check.Collect(callers, func(int) (list []string) {
		for range requests {
			list = append(list, newRequestID())
		}
		return list
	})
	seen := map[string]bool{}
	for _, id := range slices.Concat(made...) {
		if !form.MatchString(id) || !validRequestID(id) {
			t.Fatalf("id %q is malformed", id)
		}
		seen[id] = true
	}
	check.Same(t, "different ids", len(seen), callers*requests)
}
