package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// message returns a request with events, signed with a secret at a time.
func message(t *testing.T, secret string, at time.Time, events ...event) *http.Request {
	t.Helper()
	body, err := json.Marshal(map[string]any{"type": "events", "data": map[string]any{"events": events}})
	noError(t, err)
	signer, err := standardwebhooks.NewWebhook(secret)
	noError(t, err)
	signature, err := signer.Sign("m", at, body)
	noError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/events", strings.NewReader(string(body)))
	r.Header.Set("webhook-id", "m")
	r.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	r.Header.Set("webhook-signature", signature)
	return r
}

func ordered(id, status string) event {
	return event{
		ID: id, Type: "order." + status, At: time.Now(),
		Order: &order{ID: orderID, UserID: "shop:<ann>", Status: status, Quantity: 1, AmountCents: 990, Currency: "CNY"},
	}
}

func post(s *Shop, r *http.Request) int {
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, r)
	return w.Code
}

// Only messages that the endpoint's secret has signed, a moment ago, are taken.
func TestWebhookSignatures(t *testing.T) {
	s, shop := open(t, newEngine(t))
	paid := ordered("1", "paid")
	changed := message(t, webhookSecret, time.Now(), paid)
	changed.Body = message(t, webhookSecret, time.Now(), ordered("2", "paid")).Body
	unsigned := message(t, webhookSecret, time.Now(), paid)
	unsigned.Header.Del("webhook-signature")
	for name, r := range map[string]*http.Request{
		"another secret": message(t, "whsec_c29tZWJvZHkgZWxzZSdzIHNlY3JldCE=", time.Now(), paid),
		"another body":   changed,
		"no signature":   unsigned,
		"an old message": message(t, webhookSecret, time.Now().Add(-time.Hour), paid),
	} {
		same(t, name, post(s, r), http.StatusUnauthorized)
	}
	_, page, _ := ask(t, shop+"/orders", nil)
	contains(t, page, "There are none yet")

	// After a rotation a message has two signatures, of which one fits.
	both := message(t, webhookSecret, time.Now(), paid)
	both.Header.Set("webhook-signature", "v1,c29tZXRoaW5nIGVsc2U= "+both.Header.Get("webhook-signature"))
	same(t, "two signatures", post(s, both), http.StatusNoContent)
	_, page, _ = ask(t, shop+"/orders", nil)
	contains(t, page, orderID, "shop:&lt;ann&gt;", "paid")
}

// Events that come twice, or late, change nothing.
func TestRepeatedEvents(t *testing.T) {
	s, _ := open(t, newEngine(t))
	for _, events := range [][]event{
		{{ID: "8", Type: "sale.opened"}, ordered("9", "confirmed"), ordered("10", "paid")},
		{ordered("9", "confirmed"), ordered("10", "paid")},
		{ordered("7", "confirmed")},
	} {
		same(t, "answer", post(s, message(t, webhookSecret, time.Now(), events...)), http.StatusNoContent)
	}
	same(t, "orders", len(s.orders), 1)
	same(t, "status", s.orders[orderID].Status, "paid")
}

// Support refunds an order in the engine: the shop sends the money back, once, and reports it.
func TestRefundDue(t *testing.T) {
	e := newEngine(t)
	s, shop := open(t, e)
	_, page, _ := ask(t, shop+"/checkout", url.Values{"hold": {e.hold(e.key, nil)}})
	contains(t, page, "Paid. Thank you!")
	e.calls()
	due := ordered("3", "refunded")
	due.Type = "refund.due"
	noError(t, json.Unmarshal([]byte(`{"provider":"handoff","provider_txn_id":"shop-`+orderID+`"}`), &due.Payment))
	c, err := s.connection()
	noError(t, err)
	for range 2 {
		same(t, "answer", post(s, message(t, webhookSecret, time.Now(), due)), http.StatusNoContent)
		same(t, "finished", s.finish(t.Context(), c), true)
	}
	same(t, "calls", e.calls(), `refunded {"reference":"shop-`+orderID+`"}`)
}
