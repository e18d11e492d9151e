package app_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"flashsale/internal/config"
	"flashsale/internal/handoff"
	"flashsale/model"
	"flashsale/test/kit/check"
)

const holds = "/api/v1/holds/"

// handsOff leaves payments to the shop's own checkout.
func handsOff(s *config.Settings) {
	s.Payment, s.CheckoutURL = "handoff", "https://shop.example/checkout?lang=en"
}

// checkout is the shop's server, which has a key for holds.
func (s *server) checkout() *client {
	s.t.Helper()
	return s.holding(s.hire("checkout", "key", model.RoleHolds).Secret)
}

// holdOf returns what the hold token of a payment's page says, checked with the published keys.
func (c *client) holdOf(orderID string) handoff.Claims {
	c.t.Helper()
	page, err := url.Parse(c.startPayment(orderID).PayURL)
	check.NoError(c.t, err)
	check.Same(c.t, "the checkout", page.Host+page.Path+" "+page.Query().Get("lang"), "shop.example/checkout en")
	var keys jose.JSONWebKeySet
	check.NoError(c.t, json.Unmarshal(c.anyone().get("/.well-known/jwks.json").body, &keys))
	var claims handoff.Claims
	_, err = jwt.ParseWithClaims(page.Query().Get("hold"), &claims, func(token *jwt.Token) (any, error) {
		found := keys.Key(token.Header["kid"].(string))
		check.Same(c.t, "keys with this id", len(found), 1)
		return found[0].Key.(*ecdsa.PublicKey), nil
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(c.url), jwt.WithExpirationRequired())
	check.NoError(c.t, err)
	return claims
}

// A purchase whose money the shop's own checkout takes: the buyer comes with a hold token, the shop's server settles the
// order once, however often it says so, and sends back what the order can't keep.
func TestHandoff(t *testing.T) {
	t.Parallel()
	s := start(t, handsOff)
	saleID, ann, shop := s.createSale(nil).ID, s.buyer("ann"), s.checkout()
	made := ann.buy(saleID, 2)
	claims := ann.holdOf(made.ID)
	check.Same(t, "the hold", []any{claims.Order, claims.Number, claims.Sale, claims.User, claims.Subject, claims.Quantity, claims.Amount, claims.Currency},
		[]any{made.ID, model.OrderNumber(made.ID), saleID, "ann", "ann", 2, int64(1980), "CNY"})
	check.Same(t, "the end of the hold", claims.ExpiresAt.Unix(), made.ExpiresAt.Unix())
	shop.get(holds+made.ID).contains(`"status":"pending"`, `"user_id":"ann"`)

	settle := func(id, reference string, cents int) *answer {
		return shop.call("POST", holds+id+"/settle", fields{"reference": reference, "amount_cents": cents})
	}
	settle(made.ID, "r-1", 1981).refused(409, "amount_mismatch")
	ann.wantStatus(made.ID, "pending")
	for range 3 {
		settle(made.ID, "r-1", 1980).want(200).contains(`"status":"paid"`)
	}
	settle(made.ID, "r-2", 1980).refused(409, "refund_due")
	shop.call("POST", holds+made.ID+"/release", nil).refused(409, "not_cancellable")
	due := s.operator().get("/api/v1/admin/payments?status=refund_due").contains(`"r-2"`, `"order_number":"`+model.OrderNumber(made.ID)+`"`)
	if strings.Contains(string(due.body), `"r-1"`) {
		t.Errorf("the money of the paid order is due for a refund: %s", due.body)
	}
	for range 2 {
		shop.call("POST", holds+made.ID+"/refunded", fields{"reference": "r-2"}).want(200).contains(`"status":"paid"`)
	}
	for range 2 {
		shop.call("POST", holds+made.ID+"/refunded", fields{"reference": "r-1"}).want(200).contains(`"status":"refunded"`)
	}
	settle(made.ID, "r-1", 1980).refused(409, "refund_due")
	shop.call("POST", holds+made.ID+"/refunded", fields{"reference": "r-9"}).refused(404, "not_found")
	s.wantStock(saleID, stock{available: 10})
}

// The shop's checkout gets free orders too, and settles them for nothing.
func TestHandoffOfFreeOrders(t *testing.T) {
	t.Parallel()
	s := start(t, handsOff)
	ann, shop := s.buyer("ann"), s.checkout()
	made := ann.buy(s.createSale(fields{"price_cents": 0}).ID, 1)
	check.Same(t, "the amount of the hold", ann.holdOf(made.ID).Amount, int64(0))
	ann.wantStatus(made.ID, "pending")
	shop.call("POST", holds+made.ID+"/settle", fields{"reference": "r-1"}).refused(400, "bad_request")
	shop.call("POST", holds+made.ID+"/settle", fields{"reference": "r-1", "amount_cents": 0}).want(200).contains(`"status":"paid"`)
}

// Support refunds an order: the money stays due until the shop has reported that it sent it back.
func TestHandoffRefundBySupport(t *testing.T) {
	t.Parallel()
	s := start(t, handsOff)
	ann, shop := s.buyer("ann"), s.checkout()
	made := ann.buy(s.createSale(nil).ID, 1)
	shop.call("POST", holds+made.ID+"/settle", fields{"reference": "r-1", "amount_cents": 990}).want(200)
	s.refund(made.ID).want(200)
	status := func(status string) string {
		return string(s.operator().get("/api/v1/admin/payments?status=" + status).body)
	}
	if !strings.Contains(status("refund_due"), "r-1") {
		t.Errorf("due: %s", status("refund_due"))
	}
	shop.call("POST", holds+made.ID+"/refunded", fields{"reference": "r-1"}).want(200)
	if !strings.Contains(status("refunded"), "r-1") || strings.Contains(status("refund_due"), "r-1") {
		t.Errorf("refunded: %s", status("refunded"))
	}
}

// Settlement and the end of the hold: one wins, and the other hears which.
func TestHandoffTooLate(t *testing.T) {
	t.Parallel()
	s := start(t, handsOff, func(c *config.Settings) { c.PayGrace = 0 })
	saleID, ann, ben, shop := s.createSale(fields{"quota": 2}).ID, s.buyer("ann"), s.buyer("ben"), s.checkout()
	settle := func(id string, cents int) *answer {
		return shop.call("POST", holds+id+"/settle", fields{"reference": "r-" + id[32:], "amount_cents": cents})
	}
	lost, back := ann.buy(saleID, 1), ann.buy(saleID, 1)
	ann.overdue(lost.ID)
	ann.overdue(back.ID)
	settle(back.ID, 990).want(200).contains(`"status":"paid"`) // its unit was still there
	kept := ben.buy(saleID, 1)
	settle(lost.ID, 990).refused(409, "refund_due")
	for range 2 {
		shop.call("POST", holds+lost.ID+"/release", nil).want(200).contains(`"status":"expired"`)
	}
	for range 2 {
		shop.call("POST", holds+kept.ID+"/release", nil).want(200).contains(`"status":"cancelled"`)
	}
	settle(kept.ID, 990).refused(409, "refund_due")
	s.wantStock(saleID, stock{available: 1, paid: 1})
}

// A key for holds does nothing else, and nobody else settles.
func TestHoldsRole(t *testing.T) {
	t.Parallel()
	s := start(t, handsOff)
	ann, shop := s.buyer("ann"), s.checkout()
	saleID := s.createSale(nil).ID
	made := ann.buy(saleID, 1)
	shop.call("GET", adminSales, nil).refused(403, "forbidden")
	shop.call("POST", "/api/v1/sales/"+saleID+"/path", nil).refused(403, "forbidden")
	shop.call("POST", "/api/v1/sales/"+saleID+"/entries", fields{"quantity": 1}).refused(403, "forbidden")
	path, _ := s.app.Paths.Issue("key:checkout", saleID, time.Minute)
	shop.call("POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", fields{"quantity": 1}).refused(403, "forbidden")
	shop.call("GET", "/api/v1/orders", nil).refused(403, "forbidden")
	shop.call("POST", "/api/v1/admin/orders/"+made.ID+"/cancel", nil).refused(403, "forbidden")
	body := fields{"reference": "r", "amount_cents": 990}
	viewer, support := s.as("v", model.RoleViewer), s.as("u", model.RoleSupport)
	for _, c := range []*client{ann, viewer, support} {
		c.call("POST", holds+made.ID+"/settle", body).refused(403, "forbidden")
		c.call("GET", holds+made.ID, nil).refused(403, "forbidden")
	}
	s.anyone().call("POST", holds+made.ID+"/settle", body).refused(401, "unauthenticated")
	s.operator().call("POST", adminStaff, fields{"name": "olga", "kind": "person", "role": "holds"}).refused(400, "bad_request")
	for _, wrong := range []fields{{"reference": "", "amount_cents": 990}, {"reference": "r 1", "amount_cents": 990}, {"reference": "r", "amount_cents": "9"}} {
		shop.call("POST", holds+made.ID+"/settle", wrong).refused(400, "bad_request")
	}
	shop.call("GET", holds+strings.Repeat("A", 48), nil).refused(404, "not_found")
	usual(t).anyone().call("GET", "/.well-known/jwks.json", nil).refused(404, "not_found")
	ann.wantStatus(made.ID, "pending")
}

// An open payment of which nobody reports anything ends with the order.
func TestOpenPaymentEnds(t *testing.T) {
	t.Parallel()
	s := start(t, handsOff)
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	ann.startPayment(made.ID)
	s.operator().get("/api/v1/admin/payments").contains(`"status":"open"`, made.ID)
	s.exec("UPDATE payments SET look_at_ms = 0, expires_at_ms = 0")
	s.eventually("the payment has failed", func() bool {
		return strings.Contains(string(s.operator().get("/api/v1/admin/payments?status=failed").body), made.ID)
	})
	ann.wantStatus(made.ID, "pending") // its own time is not over
	if again := ann.startPayment(made.ID); time.Until(again.ExpiresAt) <= 0 {
		t.Errorf("the next payment ends at %s", again.ExpiresAt)
	}
}
