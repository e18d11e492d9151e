package fault

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"flashsale/service/auth"
	"flashsale/test/kit/shop"
)

// attackRows are attacks by the content of requests: bodies, texts, tokens, paths, ids; and by buyers who never pay.
var attackRows = []row{
	{19, "malformed, oversized, deeply nested, duplicate-key JSON", "400 or 413, flat memory", badBodies},
	{20, "injection strings, NUL, emoji, case and accent variants in every text and id", "literal or refused; Redis and the database agree", strangeTexts},
	{21, "forged tokens: none, other algorithm, no exp, other key, a million dots", "401, flat memory", forgedTokens},
	{22, "path tokens forged, of another user or sale, expired", "403", forgedPaths},
	{23, "order and sale ids walked", "the same 404, in the same time, without a look-up", walkedIDs},
	{25, "bots that hold everything and never pay", "units return and are sold", botsThatNeverPay},
}

// openSale makes an open sale through the operator's API, with changes to saleOf's defaults, and returns its id.
func (d *drill) openSale(s *shop.Shop, address string, changes shop.Document) string {
	d.Helper()
	id, _ := s.Must(http.StatusCreated, http.MethodPost, address+"/api/v1/admin/sales", s.Operator(address), saleOf(changes))["id"].(string)
	return id
}

// saleOf returns the operator's request for a sale of a thousand units, one for each user, with changes.
func saleOf(changes shop.Document) shop.Document {
	body := shop.Document{
		"title": "drill", "price_cents": 100, "quota": 1_000, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}
	maps.Copy(body, changes)
	return body
}

// pathOf returns a user's path for a sale, issued at an instant and valid for ttl.
func pathOf(secret string, at time.Time, user, sale string, ttl time.Duration) string {
	path, _ := auth.NewPaths([]byte(secret), func() time.Time { return at }).Issue(user, sale, ttl)
	return path
}

// called makes a request with a buyer's token. A request without an answer fails the row.
func (d *drill) called(client *http.Client, method, address, token, body string, headers ...string) reply {
	d.Helper()
	r, err := ask(d.Context(), client, method, address, strings.NewReader(body), append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}, headers...)...)
	if err != nil {
		d.Fatalf("%s %.100s: %v", method, address, err)
	}
	return r
}
