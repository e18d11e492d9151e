package middleware

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestRequestID(t *testing.T) {
	tests := map[string]struct {
		incoming string
		taken    bool
	}{
		"taken over":           {"edge-7.a_B", true},
		"64 characters":        {strings.Repeat("x", 64), true},
		"65 characters":        {strings.Repeat("x", 65), false},
		"none":                 {"", false},
		"a space":              {"a b", false},
		"a forged log line":    {"a\nlevel=ERROR", false},
		"a line break at last": {"a\n", false},
		"not ASCII":            {"号", false},
		"markup":               {"<b>", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var seen string
			engine := newEngine(t, RequestID(), func(c *gin.Context) { seen = RequestIDOf(c) })
			w := serve(engine, newRequest(t, "X-Request-ID", tc.incoming))

			if (seen == tc.incoming) != tc.taken {
				t.Errorf("id %q of %q, taken over: want %v", seen, tc.incoming, tc.taken)
			}
			if !validRequestID(seen) {
				t.Errorf("id %q is malformed", seen)
			}
			if sent := w.Header().Get("X-Request-ID"); sent != seen {
				t.Errorf("sent %q, kept %q", sent, seen)
			}
		})
	}
}

func TestRequestIDsDiffer(t *testing.T) {
	engine := newEngine(t, RequestID())
	first := serve(engine, newRequest(t)).Header().Get("X-Request-ID")
	second := serve(engine, newRequest(t)).Header().Get("X-Request-ID")
	if first == second {
		t.Errorf("two requests share the id %q", first)
	}
}

func TestRequestIDsOfManyRequests(t *testing.T) {
	const callers, each = 8, 1000
	form := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	ids := []*requestIDs{newRequestIDs(), newRequestIDs()} // of two processes
	made := make([][]string, callers)
	var running sync.WaitGroup
	for i := range made {
		running.Go(func() {
			for range each {
				made[i] = append(made[i], ids[i%2].next())
			}
		})
	}
	running.Wait()
	seen := map[string]bool{}
	for _, id := range slices.Concat(made...) {
		if !form.MatchString(id) || !validRequestID(id) {
			t.Fatalf("id %q is malformed", id)
		}
		seen[id] = true
	}
	if len(seen) != callers*each {
		t.Errorf("%d ids of %d requests", len(seen), callers*each)
	}
	if ids[0].prefix == ids[1].prefix {
		t.Errorf("two processes share the prefix %q", ids[0].prefix)
	}
}
