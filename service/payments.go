package service

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"flashsale/model"
)

// SandboxProvider is the name of the payment provider that is built into the binary.
const SandboxProvider = "sandbox"

// callbackWindow is how far a callback's timestamp may be from now. A recorded callback can't be replayed after that.
const callbackWindow = 5 * time.Minute

// PaymentStore reads and changes payments in the database.
type PaymentStore interface {
	StartPayment(ctx context.Context, userID, orderID, provider string) (model.Payment, model.Verdict, error)
	ApplyCallback(ctx context.Context, provider string, cb model.Callback) (order model.Order, reinstated bool, verdict model.Verdict, err error)
}

// Payments starts payments and applies the callbacks of payment providers.
type Payments struct {
	Store   PaymentStore
	IDs     model.OrderIDs
	Gates   GateTeller
	Catalog *Catalog
	Secret  []byte
}

// Start opens a payment for a user's pending order, or returns the payment that is already open. The verdict is
// NotFound if the order's id was never issued to this user, and NotPayable if the order is not pending or its time to
// pay is over.
func (p *Payments) Start(ctx context.Context, userID, orderID string) (model.Payment, model.Verdict, error) {
	if !p.IDs.Issued(userID, orderID) {
		return model.Payment{}, model.NotFound, nil
	}
	payment, verdict, err := p.Store.StartPayment(ctx, userID, orderID, SandboxProvider)
	if err != nil {
		return model.Payment{}, "", fmt.Errorf("start payment: %w", err)
	}
	if verdict == model.NotFound { // the id was issued, so the order is queued or lost
		verdict = model.NotPayable
	}
	return payment, verdict, nil
}

// Signed reports whether a callback's signature is right and its timestamp (unix s) is within callbackWindow of the
// database's clock.
func (p *Payments) Signed(timestamp, signature string, body []byte) bool {
	unix, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || p.Catalog.Now().Sub(time.Unix(unix, 0)).Abs() > callbackWindow {
		return false
	}
	given, err := hex.DecodeString(signature)
	return err == nil && hmac.Equal(given, signCallback(p.Secret, timestamp, body))
}

// SignCallback returns what a provider sends in the header X-Signature: hex HMAC-SHA256 of timestamp, a dot and the
// body.
func SignCallback(secret []byte, timestamp string, body []byte) string {
	return hex.EncodeToString(signCallback(secret, timestamp, body))
}

func signCallback(secret []byte, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Callback applies what a provider reports, once for each of its transactions, and returns the order as it is then.
// If the verdict is NotFound (no such payment), AmountMismatch, or NotPayable (the transaction belongs to another
// order), nothing was changed.
func (p *Payments) Callback(ctx context.Context, cb model.Callback) (model.Order, model.Verdict, error) {
	if !model.ValidID(cb.PaymentID, model.PaymentIDLength) {
		return model.Order{}, model.NotFound, nil
	}
	order, reinstated, verdict, err := p.Store.ApplyCallback(ctx, SandboxProvider, cb)
	if err != nil {
		return model.Order{}, "", fmt.Errorf("payment callback: %w", err)
	}
	if reinstated {
		p.Gates.Changed(ctx, order.SaleID)
	}
	return order, verdict, nil
}
