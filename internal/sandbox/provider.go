// Package sandbox is a payment provider for trials: no money moves. On its page a buyer pays or declines. Its signed callbacks
// are repeated until the merchant takes them or refuses them for good.
package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// reportPeriod is the pause before each round in which callbacks are sent again.
	reportPeriod  = time.Second
	reportBatch   = 100
	reportTimeout = 10 * time.Second
	// reportsAtOnce is how many callbacks of a round are sent at once, so that a few that hang do not delay the rest.
	reportsAtOnce = 16
)

// Books stores the provider's transactions.
type Books interface {
	SandboxCharge(ctx context.Context, t model.SandboxTransaction) error
	SandboxUnreported(ctx context.Context, after string, limit int) ([]model.SandboxTransaction, error)
	SandboxReported(ctx context.Context, txnID string) error
	SandboxRefund(ctx context.Context, t model.SandboxTransaction) error
}

// Provider is the sandbox payment provider. Read finds a payment by its id. Secret signs callbacks, which go to CallbackURL. Buyers
// reach the server under PublicURL, which has no slash at the end. Head is HTML for the page's head element.
type Provider struct {
	Books                  Books
	Read                   func(ctx context.Context, id string) (payment model.Payment, ok bool, err error)
	Secret                 []byte
	PublicURL, CallbackURL func() string
	Head                   template.HTML
	Now                    func() time.Time
	Log                    *slog.Logger
}

// Pay charges a payment, at most once, or declines it, and sends a callback to the merchant. An error means that the transaction
// may not be stored, or that its callback was not taken. Run repeats the callbacks of stored transactions.
func (p *Provider) Pay(ctx context.Context, payment model.Payment, decline bool) error {
	t := model.SandboxTransaction{ID: "sbx-" + payment.ID, PaymentID: payment.ID, AmountCents: payment.AmountCents, Status: model.SandboxCharged}
	if decline {
		t.ID, t.Status = "sbx-"+rand.Text(), model.SandboxDeclined
	}
	if err := p.Books.SandboxCharge(ctx, t); err != nil {
		return err
	}
	return p.report(ctx, t)
}

// Takes is part of service.Provider.
func (p *Provider) Takes(currency string) (amounts model.AmountRange, ok bool) {
	amounts, ok = model.TakesAll(currency)
	amounts.Low = 1 // free orders are not paid here
	return amounts, ok
}

// Name is part of service.Provider.
func (p *Provider) Name() string { return "sandbox" }

// Open is part of service.Provider.
func (p *Provider) Open(_ context.Context, payment model.Payment, _ model.Sale) (page, reference string, err error) {
	return p.PublicURL() + "/pay/" + payment.ID, "", nil
}

// Look is part of service.Provider. If "over" is true, it reports that no money came. Else it knows nothing.
func (p *Provider) Look(_ context.Context, payment model.Payment, over bool) (report model.Report, known bool, err error) {
	return payment.Unpaid(), over, nil
}

// Refund is part of service.Provider. After an error, the refund may not be stored.
func (p *Provider) Refund(ctx context.Context, payment model.Payment) (done bool, err error) {
	return true, p.Books.SandboxRefund(ctx, model.SandboxTransaction{
		ID: payment.ProviderTxnID, PaymentID: payment.ID, AmountCents: payment.AmountCents,
	})
}

// Run repeats callbacks that were not taken, until ctx ends. A round has at most reportBatch transactions. After a full round,
// the next one takes those that follow by id, so that callbacks that fail again and again do not hold up the others.
func (p *Provider) Run(ctx context.Context) {
	failing, after := false, ""
	for pause.For(ctx, reportPeriod) {
		list, err := p.Books.SandboxUnreported(ctx, after, reportBatch)
		if after = ""; len(list) == reportBatch {
			after = list[reportBatch-1].ID
		}
		var reports errgroup.Group
		reports.SetLimit(reportsAtOnce)
		for _, t := range list {
			reports.Go(func() error { return p.report(ctx, t) })
		}
		err = errors.Join(err, reports.Wait())
		if err != nil && !failing && ctx.Err() == nil {
			p.Log.Warn("sandbox callbacks are not accepted; they will be repeated", "error", err)
		}
		failing = err != nil
	}
}

// callback is the body of POST /payments/callback.
type callback struct {
	PaymentID     string `json:"payment_id"`
	ProviderTxnID string `json:"provider_txn_id"`
	Status        string `json:"status"`
	AmountCents   int64  `json:"amount_cents"`
}

// report sends a transaction's callback. The answers 200, 404 and 409 are final, and recorded; any other answer is an error.
func (p *Provider) report(ctx context.Context, t model.SandboxTransaction) error {
	status := "succeeded"
	if t.Status == model.SandboxDeclined {
		status = "failed"
	}
	body, err := json.Marshal(callback{PaymentID: t.PaymentID, ProviderTxnID: t.ID, Status: status, AmountCents: t.AmountCents})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.CallbackURL(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	timestamp := strconv.FormatInt(p.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Timestamp", timestamp)
	req.Header.Set("X-Signature", Sign(p.Secret, timestamp, body))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("sandbox callback: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10)) // only for the log
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusConflict:
		p.Log.Warn("sandbox callback refused", "transaction", t.ID, "status", res.StatusCode, "answer", model.Excerpt(string(answer), 4<<10))
	default:
		return fmt.Errorf("sandbox callback: status %d", res.StatusCode)
	}
	return p.Books.SandboxReported(ctx, t.ID)
}
