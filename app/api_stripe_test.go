package app_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v84/webhook"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

const stripeWebhookSecret = "whsec_of_the_tests"

// takesStripe lets Stripe, or a server in its place, take the money.
func takesStripe(url string) func(*config.Settings) {
	return func(s *config.Settings) {
		s.Payment, s.StripeKey, s.StripeWebhookSecret, s.StripeURL = "stripe", "sk_test_123", stripeWebhookSecret, url
	}
}

// stripeSays sends a notice as Stripe does.
func (s *server) stripeSays(at time.Time, kind, object string) *answer {
	s.t.Helper()
	body := fmt.Sprintf(`{"id":"evt_1","object":"event","type":%q,"data":{"object":%s}}`, kind, object)
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: stripeWebhookSecret, Timestamp: at})
	return s.anyone().call("POST", "/api/v1/payments/notices", body, "Stripe-Signature", signed.Header)
}

// A purchase that Stripe takes the money for. The buyer pays at Stripe, which tells of it, once or more often; later the
// merchant sends the money back from Stripe's own pages.
func TestStripe(t *testing.T) {
	t.Parallel()
	s := start(t, takesStripe(kit.StripeMock(t)))
	saleID, ann := s.createSale(nil).ID, s.buyer("ann")
	made := ann.buy(saleID, 1)
	payment := ann.startPayment(made.ID)
	if again := ann.startPayment(made.ID); again != payment || !strings.HasPrefix(payment.PayURL, "https://checkout.stripe.com/") {
		t.Errorf("started %+v, then %+v", payment, again)
	}
	session := func(cents int) string {
		return fmt.Sprintf(`{"id":"cs_1","client_reference_id":%q,"status":"complete","payment_status":"paid","payment_intent":"pi_1","amount_total":%d,"currency":"cny"}`, payment.PaymentID, cents)
	}
	now := time.Now()
	s.stripeSays(now, "checkout.session.completed", session(1)).refused(409, "amount_mismatch")
	s.stripeSays(now.Add(-24*time.Hour), "checkout.session.completed", session(990)).refused(401, "bad_signature")
	refunded := fmt.Sprintf(`{"id":"ch_1","refunded":true,"payment_intent":"pi_1","amount":990,"currency":"cny","metadata":{"payment":%q}}`, payment.PaymentID)
	s.stripeSays(now, "charge.refunded", refunded).refused(404, "not_found") // it came before the payment; Stripe repeats it
	ann.wantStatus(made.ID, "pending")
	for range 3 {
		s.stripeSays(now, "checkout.session.completed", session(990)).want(200)
	}
	ann.wantStatus(made.ID, "paid")
	s.stripeSays(now, "customer.created", `{"id":"cus_1"}`).want(200)
	for range 2 {
		s.stripeSays(now, "charge.refunded", refunded).want(200)
	}
	ann.wantStatus(made.ID, "refunded")
	s.wantStock(saleID, stock{available: 10})
	s.operator().get(adminSales + "/" + saleID + "/operations").contains(`"actor":"stripe"`)
	s.signed(paid(payment.PaymentID, nil)).call("POST", callbackURL, paid(payment.PaymentID, nil)).refused(404, "not_found")
	s.anyone().call("GET", "/pay/"+payment.PaymentID, nil).refused(404, "not_found")

	// Support refunds another order: Stripe is asked to send the money back.
	other := ann.buy(saleID, 1)
	payment = ann.startPayment(other.ID)
	s.stripeSays(now, "checkout.session.completed", strings.Replace(session(990), "pi_1", "pi_2", 1)).want(200)
	s.refund(other.ID).want(200)
	s.eventually("the money is sent back", func() bool {
		return strings.Contains(string(s.operator().get("/api/v1/admin/payments?status=refunded").body), "pi_2")
	})
}

// While Stripe is away, buyers hear that they may try again, and the order waits.
func TestStripeIsAway(t *testing.T) {
	t.Parallel()
	s := start(t, takesStripe("http://127.0.0.1:1"))
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	ann.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(503, "unavailable")
	ann.wantStatus(made.ID, "pending")
	s.operator().get("/api/v1/admin/payments").contains(made.ID, `"open"`)
}
