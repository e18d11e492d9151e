package middleware

import (
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// FuzzForwarded holds that nobody but a trusted proxy says who asks, whatever the headers.
func FuzzForwarded(f *testing.F) {
	f.Add("10.0.0.1", "", "")
	f.Add("10.0.0.1, 192.0.2.9", "10.0.0.2", "for=10.0.0.3")
	f.Add("::1", "::ffff:10.0.0.1", "for=\"[::1]\"")
	f.Add("\x00, ,", " ", ";;")
	f.Add(strings.Repeat("10.0.0.1,", 1000), "10.0.0.1%eth0", "")
	f.Fuzz(func(t *testing.T, forwarded, real, standard string) {
		const stranger, proxy = "192.0.2.7:5000", "192.0.2.1:5000"
		engine := gin.New()
		if err := engine.SetTrustedProxies([]string{"192.0.2.1"}); err != nil {
			t.Fatal(err)
		}
		engine.GET("/sales/:sale/:path", func(c *gin.Context) {
			got := clientNetwork(c)
			if want := network("192.0.2.7"); c.Request.RemoteAddr == stranger && got != want {
				t.Errorf("a stranger became %s", got)
			}
			if want := network(c.ClientIP()); got != want {
				t.Errorf("%s, gin says %s", got, want)
			}
		})
		for _, remote := range []string{stranger, proxy} {
			r := newRequest(t)
			r.RemoteAddr = remote
			r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"], r.Header["Forwarded"] = []string{forwarded}, []string{real}, []string{standard}
			serve(engine, r)
		}
	})
}

// FuzzRequestID holds that what is logged and sent as an id is one, and the client's own only if that is one.
func FuzzRequestID(f *testing.F) {
	for _, seed := range []string{"", "edge-7.a_B", strings.Repeat("x", 64), strings.Repeat("x", 65), "a b", "a\nb", "号", "\x00", "<b>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		var seen string
		engine := newEngine(t, RequestID(), func(c *gin.Context) { seen = RequestIDOf(c) })
		r := newRequest(t)
		r.Header["X-Request-Id"] = []string{given}
		w := serve(engine, r)
		if plain := strings.Trim(seen, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""; !plain || seen == "" || len(seen) > 64 {
			t.Errorf("%q has become the id %q", given, seen)
		}
		if sent := w.Header().Get("X-Request-ID"); sent != seen {
			t.Errorf("%q is sent, %q is kept", sent, seen)
		}
	})
}

// FuzzAuthorization holds that nothing but the token itself, behind the scheme, is anybody's.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{"Bearer good", "bearer good", "Bearer  good", "Bearer good ", "Basic good", "good", "Bearer", "", "Bearer\tgood", "Bearer good, Bearer good", "Bearer\x00good"} {
		f.Add(seed)
	}
	buyer := model.Identity{UserID: "u-1", Role: model.RoleBuyer}
	f.Fuzz(func(t *testing.T, header string) {
		var who model.Identity
		engine := newEngine(t, Authenticate(tokens{"good": buyer}), func(c *gin.Context) { who = IdentityOf(c) })
		r := newRequest(t)
		r.Header["Authorization"] = []string{header}
		serve(engine, r)
		if want := len(header) == len("Bearer good") && strings.EqualFold(header[:6], "bearer") && header[6:] == " good"; (who == buyer) != want {
			t.Errorf("%q: %+v", header, who)
		}
	})
}
