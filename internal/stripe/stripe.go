// Package stripe is the payment provider Stripe: buyers pay on the pages of Stripe Checkout.
package stripe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	api "github.com/stripe/stripe-go/v84"
	"github.com/stripe/stripe-go/v84/webhook"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// callTimeout bounds one try of a call of Stripe. A call has up to two tries.
	callTimeout = 4 * time.Second
	// shortest and longest are Stripe's bounds on how long a session lasts.
	shortest = 30 * time.Minute
	longest  = 24 * time.Hour
	// margin is how far the end of a session stays from these limits.
	margin = time.Minute
	// openTries is how often a call that opens a session is repeated at most, and openPause the pause before each repetition. While
	// one such call runs, Stripe refuses others with the same idempotency key.
	openTries = 10
	openPause = 250 * time.Millisecond
)

// Provider calls Stripe.
type Provider struct {
	client        *api.Client
	key           string
	live          bool // false: the key is of Stripe's test mode
	webhookSecret string
	returnURL     func() string
	now           func() time.Time
}

// New makes a Provider. "key" is the account's secret key, webhookSecret the secret of its webhook endpoint, and "url" the
// address of the API, or empty for Stripe itself. returnURL returns the address of the page to which buyers return.
func New(key, webhookSecret, url string, returnURL func() string, now func() time.Time) *Provider {
	config := &api.BackendConfig{
		HTTPClient: &http.Client{Timeout: callTimeout}, MaxNetworkRetries: api.Int64(1), EnableTelemetry: api.Bool(false),
		LeveledLogger: &api.LeveledLogger{Level: api.LevelNull}, // the callers log errors
	}
	if url != "" {
		config.URL = api.String(url)
	}
	return &Provider{
		client:        api.NewClient(key, api.WithBackends(api.NewBackendsWithConfig(config))),
		key:           key,
		live:          !strings.Contains(key, "_test_"),
		webhookSecret: webhookSecret, returnURL: returnURL, now: now,
	}
}

// Name is part of service.Provider.
func (p *Provider) Name() string { return "stripe" }

// Open is part of service.Provider. The payment's id and its number of tries are the idempotency key. So if an answer is lost,
// a call soon after gets the same session.
func (p *Provider) Open(ctx context.Context, payment model.Payment, sale model.Sale) (page, reference string, err error) {
	if payment.Reference != "" {
		session, err := p.client.V1CheckoutSessions.Retrieve(ctx, payment.Reference, nil)
		if err != nil {
			return "", "", p.notOpened(err)
		}
		return cmp.Or(session.URL, p.returnURL()), payment.Reference, nil // a session that is complete or has expired has no page
	}
	currency := strings.ToLower(payment.Currency)
	amount, err := toStripe(currency, payment.AmountCents)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", model.ErrPaymentRefused, err)
	}
	// If the payment has waited for its session for more than half a day, the session's end counts from the present hour. Stripe
	// refuses a call that has another end than an earlier one with the same idempotency key.
	end, made := payment.ExpiresAt.Add(shortest+margin), payment.CreatedAt
	if now := p.now(); now.Sub(made) > longest/2 {
		made = now.Truncate(time.Hour) // the same for all calls in an hour
	}
	if last := made.Add(longest - margin); end.After(last) {
		end = last
	}
	params := &api.CheckoutSessionCreateParams{
		Mode:              api.String(string(api.CheckoutSessionModePayment)),
		ClientReferenceID: api.String(payment.ID),
		ExpiresAt:         api.Int64(end.Unix()),
		SuccessURL:        api.String(p.returnURL()),
		CancelURL:         api.String(p.returnURL()),
		// The buyer has to pay in the order's currency.
		AdaptivePricing: &api.CheckoutSessionCreateAdaptivePricingParams{Enabled: api.Bool(false)},
		Metadata:        map[string]string{"order": payment.OrderID},
		PaymentIntentData: &api.CheckoutSessionCreatePaymentIntentDataParams{
			Description: api.String("Order " + model.OrderNumber(payment.OrderID)),
			// Stripe copies these to the charge, so that a refund of the charge can be assigned to the payment.
			Metadata: map[string]string{"payment": payment.ID, "order": payment.OrderID},
		},
		LineItems: []*api.CheckoutSessionCreateLineItemParams{{
			Quantity: api.Int64(1),
			PriceData: &api.CheckoutSessionCreateLineItemPriceDataParams{
				Currency: api.String(currency), UnitAmount: api.Int64(amount),
				ProductData: &api.CheckoutSessionCreateLineItemPriceDataProductDataParams{
					Name: api.String(fmt.Sprintf("%s × %d", sale.Title, payment.Quantity)),
				},
			},
		}},
	}
	params.SetIdempotencyKey(fmt.Sprintf("open-%s-%d", payment.ID, payment.Tries))
	for try := 0; ; try++ {
		session, err := p.client.V1CheckoutSessions.Create(ctx, params)
		if err == nil {
			return session.URL, session.ID, nil
		}
		if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Code != api.ErrorCodeIdempotencyKeyInUse || try == openTries {
			return "", "", p.notOpened(err)
		}
		if !pause.For(ctx, openPause) {
			return "", "", ctx.Err()
		}
	}
}

// notOpened returns why no payment was opened, without the key. Under the same idempotency key, Stripe may repeat an answer for a
// day, see https://docs.stripe.com/api/idempotent_requests. The error wraps model.ErrNotOpened if the next try has to use another
// idempotency key, and model.ErrPaymentRefused if Stripe refuses the payment.
func (p *Provider) notOpened(err error) error {
	var refused *api.Error
	switch {
	case !errors.As(err, &refused), refused.Code == api.ErrorCodeIdempotencyKeyInUse, refused.HTTPStatusCode == http.StatusTooManyRequests:
		return p.hide(err)
	case refused.Type != api.ErrorTypeIdempotency && slices.Contains(refusals, refused.HTTPStatusCode):
		return fmt.Errorf("%w: %w: %w", model.ErrNotOpened, model.ErrPaymentRefused, p.hide(err))
	}
	return fmt.Errorf("%w: %w", model.ErrNotOpened, p.hide(err))
}

// Look is part of service.Provider. If "over" is true, Look ends a session that is still open.
func (p *Provider) Look(ctx context.Context, payment model.Payment, over bool) (report model.Report, known bool, err error) {
	if payment.Reference == "" { // no buyer has got the address of a session
		return payment.Unpaid(), over, nil
	}
	answer, err := p.client.V1CheckoutSessions.Retrieve(ctx, payment.Reference, nil)
	if err == nil && over && answer.Status == api.CheckoutSessionStatusOpen {
		answer, err = p.client.V1CheckoutSessions.Expire(ctx, payment.Reference, nil)
	}
	var refused *api.Error
	switch {
	case errors.As(err, &refused) && refused.HTTPStatusCode == http.StatusNotFound: // for example after a change of the account
		return payment.Unpaid(), over, nil
	case err != nil:
		return report, false, p.hide(err)
	}
	var s session
	if err := json.Unmarshal(answer.LastResponse.RawJSON, &s); err != nil {
		return report, false, p.hide(err)
	}
	report, known = s.report(payment.ID)
	return report, known, nil
}

// Refund is part of service.Provider. It sends back all that is left of a charge. Each try has an idempotency key of its own,
// since Stripe may repeat a refusal under the same key. Before another try, Refund looks at the earlier refunds.
func (p *Provider) Refund(ctx context.Context, payment model.Payment) (done bool, err error) {
	if payment.Tries > 0 {
		if sent, waits, err := p.sentBack(ctx, payment); sent || err != nil {
			return sent && !waits, err
		}
	}
	params := &api.RefundCreateParams{PaymentIntent: api.String(payment.ProviderTxnID), Metadata: map[string]string{"order": payment.OrderID}}
	params.SetIdempotencyKey(fmt.Sprintf("refund-%s-%d", payment.ID, payment.Tries))
	refund, err := p.client.V1Refunds.Create(ctx, params)
	var refused *api.Error
	switch {
	case err == nil && slices.Contains(underWay, refund.Status), // earlier refunds may have sent parts
		errors.As(err, &refused) && refused.Code == api.ErrorCodeChargeAlreadyRefunded:
		sent, waits, err := p.sentBack(ctx, payment)
		if refused == nil && refund.Status != api.RefundStatusSucceeded && !sent {
			waits = true // the refund may have failed since it was made
		}
		return err == nil && !waits, err
	case err == nil:
		return false, fmt.Errorf("%w: the refund %s is %s", model.ErrRefundRefused, refund.ID, refund.Status)
	case refused != nil && slices.Contains(refusals, refused.HTTPStatusCode):
		return false, fmt.Errorf("%w: %w", model.ErrRefundRefused, p.hide(err))
	}
	return false, p.hide(err)
}

// underWay are the statuses of refunds that have not failed. Of these only RefundStatusSucceeded means that the money is sent.
var underWay = []api.RefundStatus{api.RefundStatusSucceeded, api.RefundStatusPending, api.RefundStatusRequiresAction}

// sentBack looks at the refunds that have not failed: "sent" if they cover the payment, "waits" if some are still under way.
func (p *Provider) sentBack(ctx context.Context, payment model.Payment) (sent, waits bool, err error) {
	amount, err := toStripe(strings.ToLower(payment.Currency), payment.AmountCents)
	if err != nil {
		return false, false, err
	}
	totals := map[api.RefundStatus]int64{}
	for refund, err := range p.client.V1Refunds.List(ctx, &api.RefundListParams{PaymentIntent: api.String(payment.ProviderTxnID)}) {
		if err != nil {
			return false, false, p.hide(err)
		}
		totals[refund.Status] += refund.Amount
	}
	all := int64(0)
	for _, status := range underWay {
		all += totals[status]
	}
	return all >= amount, all > totals[api.RefundStatusSucceeded], nil
}

// refusals are the statuses by which Stripe refuses the contents of a request.
var refusals = []int{http.StatusBadRequest, http.StatusPaymentRequired, http.StatusNotFound}

// hide returns an error without the key, which an error may quote.
func (p *Provider) hide(err error) error {
	if !strings.Contains(err.Error(), p.key) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), p.key, "[key]"))
}

// Read is part of service.Notifier. Relevant are the ends of sessions, full refunds of charges, and refunds that failed. Sessions
// and charges without the id of a payment are not relevant, since an account may have other uses.
func (p *Provider) Read(header http.Header, body []byte) (report model.Report, relevant bool, err error) {
	if err := webhook.ValidatePayload(body, header.Get("Stripe-Signature"), p.webhookSecret); err != nil {
		return report, false, fmt.Errorf("%w: %w", model.ErrBadNotice, err)
	}
	var event struct {
		ID       string
		Type     api.EventType
		Account  string
		Livemode bool
		Data     struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return report, false, fmt.Errorf("%w: %w", model.ErrForeignNotice, err)
	}
	var object, want string
	switch {
	case strings.HasPrefix(string(event.Type), "checkout.session."):
		var s session
		err = json.Unmarshal(event.Data.Object, &s)
		object, want = s.Object, "checkout.session"
		report, relevant = s.report(s.Payment)
		if event.Type == api.EventTypeCheckoutSessionAsyncPaymentFailed {
			report, relevant = s.failed(s.Payment), true
		}
	case event.Type == api.EventTypeChargeRefunded:
		var charge struct {
			Object   string
			Refunded bool // false if only a part was sent back
			Intent   idOf `json:"payment_intent"`
			Amount   int64
			Currency api.Currency
			Metadata struct{ Payment string }
		}
		err = json.Unmarshal(event.Data.Object, &charge)
		object, want = charge.Object, "charge"
		relevant = charge.Refunded && charge.Intent != ""
		report = model.NewReport(charge.Metadata.Payment, "", string(charge.Intent), model.PaymentRefunded, moneyOf(charge.Currency, charge.Amount))
	case strings.HasPrefix(string(event.Type), "refund."), event.Type == api.EventTypeChargeRefundUpdated:
		var refund struct {
			Object   string
			Status   api.RefundStatus
			Intent   idOf `json:"payment_intent"`
			Amount   int64
			Currency api.Currency
		}
		err = json.Unmarshal(event.Data.Object, &refund)
		object, want = refund.Object, "refund"
		relevant = refund.Intent != "" && slices.Contains([]api.RefundStatus{api.RefundStatusFailed, api.RefundStatusCanceled}, refund.Status)
		report = model.NewReport("", "", string(refund.Intent), model.PaymentRefundDue, moneyOf(refund.Currency, refund.Amount))
	}
	if err != nil {
		return model.Report{}, false, fmt.Errorf("%w: %w", model.ErrForeignNotice, err)
	}
	if !relevant || report.Result() != model.PaymentRefundDue && !model.ValidID(report.PaymentID(), model.PaymentIDLength) {
		return report, false, nil
	}
	if event.Account != "" || event.Livemode != p.live || object != want {
		return report, false, fmt.Errorf("%w: event %s about payment %s is of the object %q, the account %q, live mode %t",
			model.ErrForeignNotice, event.ID, report.PaymentID(), object, event.Account, event.Livemode)
	}
	return report, true, nil
}

// session has the fields of a checkout session that the engine reads.
type session struct {
	ID, Object    string
	Payment       string `json:"client_reference_id"`
	Status        api.CheckoutSessionStatus
	PaymentStatus api.CheckoutSessionPaymentStatus `json:"payment_status"`
	Intent        idOf                             `json:"payment_intent"`
	Amount        int64                            `json:"amount_total"`
	Currency      api.Currency
}

// idOf is the id of an object. Stripe sends either the id alone or the whole object.
type idOf string

// UnmarshalJSON implements json.Unmarshaler.
func (id *idOf) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, (*string)(id)) == nil {
		return nil
	}
	var object struct{ ID string }
	err := json.Unmarshal(raw, &object)
	*id = idOf(object.ID)
	return err
}

// report returns what the session says about a payment; known is false if the payment is still open.
func (s session) report(paymentID string) (report model.Report, known bool) {
	switch {
	case s.PaymentStatus == api.CheckoutSessionPaymentStatusPaid && s.Intent != "":
		return model.NewReport(paymentID, s.ID, string(s.Intent), model.PaymentSucceeded, moneyOf(s.Currency, s.Amount)), true
	case s.PaymentStatus == api.CheckoutSessionPaymentStatusNoPaymentRequired: // such as by a discount
		return s.failed(paymentID), s.Status != api.CheckoutSessionStatusOpen
	default: // a session that is complete and unpaid may still be paid
		return s.failed(paymentID), s.Status == api.CheckoutSessionStatusExpired
	}
}

// failed returns the report of a session that brought no money.
func (s session) failed(paymentID string) model.Report {
	return model.NewReport(paymentID, s.ID, s.ID, model.PaymentFailed, moneyOf(s.Currency, s.Amount))
}
