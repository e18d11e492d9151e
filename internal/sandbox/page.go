package sandbox

import (
	_ "embed"
	"html/template"
	"net/http"
	"strings"

	"flashsale/model"
)

//go:embed page.html
var pageSource string

var pages = template.Must(template.New("page").Parse(pageSource))

// policy lets the page load styles, scripts and pictures from its own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// outcome is what the page says about a payment.
type outcome string

const (
	isOpen        outcome = "open"
	isPaid        outcome = "paid"
	isDeclined    outcome = "declined"
	isGivenBack   outcome = "given back"  // the money has gone back, or has to
	isUnconfirmed outcome = "unconfirmed" // Pay failed: the payment may not be stored, or not reported to the shop yet
	isNoChoice    outcome = "no choice"   // the form says neither "pay" nor "decline"
)

var outcomes = map[model.PaymentStatus]outcome{
	model.PaymentOpen: isOpen, model.PaymentSucceeded: isPaid, model.PaymentFailed: isDeclined,
	model.PaymentRefundDue: isGivenBack, model.PaymentRefunded: isGivenBack,
}

type page struct {
	Head    template.HTML
	Amount  string
	OrderID string
	Number  string // the order's
	Outcome outcome
}

// Choose reports whether the page offers to pay or to decline.
func (p page) Choose() bool {
	return p.Outcome == isOpen || p.Outcome == isNoChoice || p.Outcome == isUnconfirmed
}

// ServeHTTP shows a payment's page (GET /pay/ID) and takes the buyer's choice (POST, with "pay" or "decline" in the form
// field "choice"). It answers 404 if there is no such payment, and 503 if the payment can't be read.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/pay/")
	if !model.ValidID(id, model.PaymentIDLength) {
		http.NotFound(w, r)
		return
	}
	payment, ok, err := p.Read(r.Context(), id)
	switch {
	case err != nil:
		p.Log.Error("sandbox page", "error", err)
		http.Error(w, "The payment can't be shown at the moment.", http.StatusServiceUnavailable)
		return
	case !ok:
		http.NotFound(w, r)
		return
	}
	show := page{
		Head: p.Head, OrderID: payment.OrderID, Number: model.OrderNumber(payment.OrderID), Outcome: outcomes[payment.Status],
		Amount: model.Amount(payment.AmountCents, payment.Currency) + " " + payment.Currency,
	}
	if r.Method == http.MethodPost {
		show.Outcome = p.choose(r, payment)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Cache-Control", "no-store")
	if err := pages.Execute(w, show); err != nil {
		p.Log.Warn("sandbox page", "error", err)
	}
}

// choose executes the buyer's choice and returns the outcome.
func (p *Provider) choose(r *http.Request, payment model.Payment) outcome {
	_ = r.ParseForm() // not PostFormValue, which may store multipart/form-data in files; an unreadable form is no choice
	choice := r.PostForm.Get("choice")
	if choice != "pay" && choice != "decline" {
		return isNoChoice
	}
	if err := p.Pay(r.Context(), payment, choice == "decline"); err != nil {
		p.Log.Warn("sandbox payment", "error", err)
		return isUnconfirmed
	}
	after, ok, err := p.Read(r.Context(), payment.ID)
	switch {
	case err == nil && ok && outcomes[after.Status] == isGivenBack:
		return isGivenBack
	case choice == "decline" && outcomes[after.Status] != isPaid: // declining does not undo a payment
		return isDeclined
	}
	return isPaid
}
