package auth

import (
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

// A ticket is good for its user and sale, and for nothing else.
func TestTickets(t *testing.T) {
	tickets := NewTickets([]byte("a secret"))
	ticket := tickets.Issue("ann", "SALE", 1<<40)
	number, ok := tickets.Check(ticket, "ann", "SALE")
	check.Same(t, "its own", []any{number, ok}, []any{int64(1 << 40), true})
	for what, forged := range map[string]struct{ ticket, user, sale string }{
		"another user":      {ticket, "bob", "SALE"},
		"another sale":      {ticket, "ann", "SOLE"},
		"parts that shift":  {ticket, "E\x00ann", "SAL"},
		"another number":    {"B" + ticket[1:], "ann", "SALE"},
		"another MAC":       {ticket[:len(ticket)-1] + strings.Trim("AB", ticket[len(ticket)-1:])[:1], "ann", "SALE"},
		"a longer one":      {ticket + "AAAA", "ann", "SALE"},
		"a shorter one":     {ticket[:16], "ann", "SALE"},
		"a number alone":    {ticket[:11], "ann", "SALE"},
		"none":              {"", "ann", "SALE"},
		"of another secret": {NewTickets([]byte("another")).Issue("ann", "SALE", 1<<40), "ann", "SALE"},
	} {
		if _, ok := tickets.Check(forged.ticket, forged.user, forged.sale); ok {
			t.Errorf("%s: accepted", what)
		}
	}
}
