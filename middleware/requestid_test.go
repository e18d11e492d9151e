package middleware

import (
	"strings"
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
			if !requestID.MatchString(seen) {
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
