package handler

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Sandbox is the payment provider in the binary, and serves its pages. Signed reports whether the provider signed a callback, not
// long ago: a recorded callback must not be taken later.
type Sandbox interface {
	http.Handler
	Signed(timestamp, signature string, body []byte) bool
}

// Payments starts payments, takes reports of the payment provider, and lists payments.
type Payments struct {
	Service *service.Payments
	Sandbox Sandbox // nil: another provider takes the money
	Notices bool    // the provider sends notices in a form of its own
}

func (p *Payments) start(c *gin.Context) {
	payment, page, verdict, err := p.Service.Start(c.Request.Context(), userOf(c), c.Param("id"))
	view := gin.H{"payment_id": payment.ID, "pay_url": page, "expires_at": stamp(payment.ExpiresAt)}
	answer(c, http.StatusCreated, view, verdict, err)
}

// form reads a form for the next handler, or refuses the request as decode does.
func form(c *gin.Context) {
	if raw, ok := readBody(c, formBody, maxBodyBytes); ok {
		c.Request.Body = io.NopCloser(bytes.NewReader(raw))
	}
}

// signed lets a request pass only with the sandbox's signature, and stores the request's body for the next handler.
func (p *Payments) signed(c *gin.Context) {
	raw, ok := readBody(c, jsonBody, maxBodyBytes)
	switch {
	case !ok:
	case !p.Sandbox.Signed(c.GetHeader("X-Timestamp"), c.GetHeader("X-Signature"), raw):
		refuse(c, model.BadSignature)
	default:
		middleware.Signed(c)
		c.Set(signedBody, raw)
	}
}

// signedBody is the key under which signed stores the body in the context.
const signedBody = "signed body"

// callback takes the sandbox's report of a payment.
func (p *Payments) callback(c *gin.Context) {
	raw, _ := c.MustGet(signedBody).([]byte)
	var body struct {
		PaymentID     string `json:"payment_id"`
		ProviderTxnID string `json:"provider_txn_id"`
		Status        string `json:"status"`
		AmountCents   *int64 `json:"amount_cents"`
	}
	if invalid := decodeObject(raw, &body); invalid != nil {
		refuseInvalid(c, invalid)
		return
	}
	result := model.PaymentStatus(body.Status)
	switch {
	case result != model.PaymentSucceeded && result != model.PaymentFailed:
		refuseInvalid(c, &service.Invalid{Field: "status", Reason: notAChoice, Value: "succeeded, failed"})
		return
	case !isID(c, "provider_txn_id", body.ProviderTxnID):
		return
	case body.AmountCents == nil:
		refuseInvalid(c, &service.Invalid{Field: "amount_cents", Reason: missingField})
		return
	}
	order, verdict, err := p.Service.Settle(c.Request.Context(), body.PaymentID, body.ProviderTxnID, result, *body.AmountCents)
	answer(c, http.StatusOK, gin.H{"order": viewOrder(order)}, verdict, err)
}

// notice takes a notice in the provider's own form.
func (p *Payments) notice(c *gin.Context) {
	raw, ok := readBody(c, jsonBody, maxNoticeBytes)
	if !ok {
		return
	}
	verdict, err := p.Service.Notify(c.Request.Context(), c.Request.Header, raw)
	if errors.Is(err, model.ErrBadNotice) {
		refuse(c, model.BadSignature)
		return
	}
	middleware.Signed(c)
	answer(c, http.StatusOK, gin.H{}, verdict, err)
}

type paymentView struct {
	ID            string              `json:"id"`
	OrderID       string              `json:"order_id"`
	OrderNumber   string              `json:"order_number"`
	UserID        string              `json:"user_id"`
	Provider      string              `json:"provider"`
	Reference     string              `json:"reference,omitempty"`
	ProviderTxnID string              `json:"provider_txn_id,omitempty"`
	AmountCents   int64               `json:"amount_cents"`
	Currency      string              `json:"currency"`
	Status        model.PaymentStatus `json:"status"`
	CreatedAt     stamp               `json:"created_at"`
	ExpiresAt     stamp               `json:"expires_at"`
}

func viewPayment(p model.Payment) paymentView {
	return paymentView{
		ID: p.ID, OrderID: p.OrderID, OrderNumber: model.OrderNumber(p.OrderID), UserID: p.UserID, Provider: p.Provider, Reference: p.Reference, ProviderTxnID: p.ProviderTxnID,
		AmountCents: p.AmountCents, Currency: p.Currency, Status: p.Status, CreatedAt: stamp(p.CreatedAt), ExpiresAt: stamp(p.ExpiresAt),
	}
}

// list answers with a page of the payments in the query's status, which is open by default.
func (p *Payments) list(c *gin.Context) {
	f := model.PaymentFilter{Status: model.PaymentStatus(c.DefaultQuery("status", string(model.PaymentOpen)))}
	if !slices.Contains(model.PaymentStatuses, f.Status) {
		refuseInvalid(c, &service.Invalid{Field: "status", Reason: notAChoice, Value: "open, succeeded, failed, refund_due, refunded"})
		return
	}
	answerPage(c, "payments", viewPayment, func(cursor string, limit int) ([]model.Payment, string, error) {
		f.Cursor, f.Limit = cursor, limit
		return p.Service.Store.Payments(c.Request.Context(), f)
	})
}
