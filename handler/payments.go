package handler

import (
	"bytes"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

func (a *API) startPayment(c *gin.Context) {
	payment, verdict, err := a.Payments.Start(c.Request.Context(), middleware.IdentityOf(c).UserID, c.Param("id"))
	answer(c, http.StatusCreated, gin.H{
		"payment_id": payment.ID, "pay_url": a.PublicURL() + "/pay/" + payment.ID, "expires_at": stamp(payment.ExpiresAt),
	}, verdict, err)
}

// form reads a form of at most maxBodyBytes for the next handler. It refuses the request as decode does.
func form(c *gin.Context) {
	if raw, ok := readBody(c, formBody, maxBodyBytes); ok {
		c.Request.Body = io.NopCloser(bytes.NewReader(raw))
	}
}

// signed lets a request pass only with the signature of a payment provider, and stores its body for the next handler.
func (a *API) signed(c *gin.Context) {
	raw, ok := readBody(c, jsonBody, maxBodyBytes)
	switch {
	case !ok:
	case !a.Payments.Signed(c.GetHeader("X-Timestamp"), c.GetHeader("X-Signature"), raw):
		refuse(c, model.BadSignature)
	default:
		c.Set(signedBody, raw)
	}
}

// signedBody is the key under which signed stores the body in the context.
const signedBody = "signed body"

// callback takes a payment provider's report of a payment. The provider repeats it until the answer is 200.
func (a *API) callback(c *gin.Context) {
	raw, _ := c.MustGet(signedBody).([]byte)
	var body struct {
		PaymentID     string `json:"payment_id"`
		ProviderTxnID string `json:"provider_txn_id"`
		Status        string `json:"status"`
		AmountCents   int64  `json:"amount_cents"`
	}
	if invalid := decodeObject(raw, &body); invalid != nil {
		refuseInvalid(c, invalid)
		return
	}
	succeeded := body.Status == "succeeded"
	switch {
	case !succeeded && body.Status != "failed":
		refuseInvalid(c, &service.Invalid{Field: "status", Reason: notAChoice, Value: "succeeded, failed"})
		return
	case !model.ValidUserID(body.ProviderTxnID): // a transaction id has the form of a user id: 1 to 64 plain characters
		refuseInvalid(c, &service.Invalid{Field: "provider_txn_id", Reason: notAnID, Min: 1, Max: model.MaxUserID})
		return
	}
	order, verdict, err := a.Payments.Callback(c.Request.Context(), model.Callback{
		PaymentID: body.PaymentID, ProviderTxnID: body.ProviderTxnID, Succeeded: succeeded, AmountCents: body.AmountCents,
	})
	answer(c, http.StatusOK, gin.H{"order": viewOrder(order)}, verdict, err)
}
