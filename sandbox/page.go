package sandbox

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"flashsale/model"
)

//go:embed page.html
var pageSource string

var pages = template.Must(template.New("page").Parse(pageSource))

type page struct {
	Payment model.Payment
	Amount  string
	Notice  string
	Error   bool
}

// ServeHTTP shows a payment's page (GET /pay/ID) and takes the buyer's choice (POST, form field choice: pay
// or decline).
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/pay/")
	if !model.ValidID(id, model.PaymentIDLength) {
		http.NotFound(w, r)
		return
	}
	payment, ok, err := p.Payment(r.Context(), id)
	switch {
	case err != nil:
		p.Log.Error("sandbox page", "error", err)
		http.Error(w, "The payment can't be shown at the moment.", http.StatusServiceUnavailable)
		return
	case !ok:
		http.NotFound(w, r)
		return
	}
	show := page{Payment: payment, Amount: fmt.Sprintf("%d.%02d %s", payment.AmountCents/100, payment.AmountCents%100, payment.Currency)}
	if r.Method == http.MethodPost {
		show.Notice, show.Error = p.choose(r, payment)
		if after, ok, err := p.Payment(r.Context(), id); err == nil && ok {
			show.Payment = after
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
	w.Header().Set("Cache-Control", "no-store")
	if err := pages.Execute(w, show); err != nil {
		p.Log.Warn("sandbox page", "error", err) // the buyer left in the middle of it
	}
}

func (p *Provider) choose(r *http.Request, payment model.Payment) (notice string, failed bool) {
	choice := r.PostFormValue("choice")
	if choice != "pay" && choice != "decline" {
		return "Choose to pay or to decline. / 请选择支付或拒绝。", true
	}
	if err := p.Pay(r.Context(), payment, choice == "decline"); err != nil {
		p.Log.Warn("sandbox payment", "error", err)
		return "The shop has not answered yet; it will be told again. / 商家尚未确认，稍后将自动重试。", true
	}
	if choice == "decline" {
		return "You declined. / 您已拒绝支付。", false
	}
	return "Thank you. The shop has been told. / 支付完成，已通知商家。", false
}
