package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// hold has the claims of a hold token. The user may pay the amount until the time Until.
type hold struct {
	Order    string `json:"order"`
	Number   string `json:"number"` // the order's, for people
	User     string `json:"user"`
	Quantity int    `json:"quantity"`
	Amount   int64  `json:"amount"` // in the smallest unit of the currency
	Currency string `json:"currency"`
	Until    time.Time
}

// state is how far a payment is.
type state string

const (
	unpaid   state = "unpaid"
	taken    state = "taken"    // the customer has paid, but the engine may not know
	settled  state = "settled"  // the engine has accepted the payment
	owed     state = "owed"     // the money has to go back
	refunded state = "refunded" // the money went back
	released state = "released" // the engine has released the order
)

// payment is money for an order. A real shop stores a payment in its database before it calls the engine, so that it can
// repeat the call after a crash.
type payment struct {
	mu        sync.Mutex // guards state; held during calls to the engine
	order     string
	reference string // derived from the order's id, so that the engine takes a repeated settle for the same payment
	cents     int64
	state     state
}

// payment returns the payment of an order. If there is none, it makes an unpaid one.
func (s *Shop) payment(order string, cents int64) *payment {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.payments[order]
	if !ok {
		p = &payment{order: order, reference: "shop-" + order, cents: cents, state: unpaid}
		s.payments[order] = p
	}
	return p
}

// verify checks the signature, the issuer and the expiry of a hold token. It returns the token's contents and the connection.
func (s *Shop) verify(ctx context.Context, token string) (h hold, c Connection, err error) {
	if c, err = s.connection(); err != nil {
		return h, c, err
	}
	s.mu.Lock()
	if s.verifies != c.Engine {
		keys := oidc.NewRemoteKeySet(oidc.ClientContext(ctx, s.client), c.Engine+"/.well-known/jwks.json")
		s.verifier = oidc.NewVerifier(c.Engine, keys, &oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: []string{oidc.ES256}})
		s.verifies = c.Engine
	}
	verifier := s.verifier
	s.mu.Unlock()
	checked, err := verifier.Verify(ctx, token)
	if err != nil {
		return h, c, err
	}
	h.Until = checked.Expiry
	return h, c, checked.Claims(&h)
}

// pay takes the customer's money if the payment is unpaid, and advances the payment.
func (s *Shop) pay(w http.ResponseWriter, r *http.Request) {
	s.atCheckout(w, r, func(ctx context.Context, c Connection, p *payment) error {
		if p.state == unpaid { // here a real shop would charge the card, with the reference as the idempotency key
			p.state = taken
		}
		return s.advance(ctx, c, p)
	})
}

// cancel asks the engine to release the order of a hold, unless the customer has paid.
func (s *Shop) cancel(w http.ResponseWriter, r *http.Request) {
	s.atCheckout(w, r, func(ctx context.Context, c Connection, p *payment) error {
		if p.state != unpaid {
			return nil
		}
		refusal, err := s.call(ctx, c, p.order, "release", nil)
		if err == nil && refusal == "" {
			p.state = released
		}
		return err
	})
}

// atCheckout verifies the hold token of a request, calls "do" unless it is nil, and shows the payment of the hold.
func (s *Shop) atCheckout(w http.ResponseWriter, r *http.Request, do func(context.Context, Connection, *payment) error) {
	token := r.FormValue("hold")
	h, c, err := s.verify(r.Context(), token)
	if err != nil {
		s.show(w, http.StatusBadRequest, "message.html", "This link to the checkout is not valid, or its time is over. Open your orders at the flash sale to pay.")
		return
	}
	p := s.payment(h.Order, h.Amount)
	p.mu.Lock()
	defer p.mu.Unlock()
	if do != nil {
		if err = do(r.Context(), c, p); err != nil {
			fmt.Fprintf(s.log, "order %s: %v\n", p.order, err)
		}
	}
	s.show(w, http.StatusOK, "checkout.html", map[string]any{
		"Hold": h, "Token": token, "State": p.state, "Failed": err != nil, "Back": c.Engine + "/orders", "Again": "/checkout?hold=" + url.QueryEscape(token),
	})
}

// advance brings a payment as far as it can go. The caller holds the payment's lock.
func (s *Shop) advance(ctx context.Context, c Connection, p *payment) error {
	if p.state == taken {
		refusal, err := s.call(ctx, c, p.order, "settle", map[string]any{"reference": p.reference, "amount_cents": p.cents})
		switch {
		case err != nil:
			return err
		case refusal == "":
			p.state = settled
		case refusal == "refund_due": // the engine has recorded the money, but the order can't keep it
			p.state = owed
		default: // the engine has not recorded the money, so no report of a refund is needed
			p.state = refunded
		}
	}
	if p.state == owed {
		// Here a real shop would have its bank send the money back, with the reference as the idempotency key.
		refusal, err := s.call(ctx, c, p.order, "refunded", map[string]any{"reference": p.reference})
		if err != nil {
			return err
		}
		if refusal != "" { // a repetition would not help
			fmt.Fprintf(s.log, "order %s: the engine refuses the report of the refund: %s\n", p.order, refusal)
		}
		p.state = refunded
	}
	return nil
}

// owe marks the payment with this reference as owed if the shop has its money. finishPayments then sends the money back.
func (s *Shop) owe(orderID, reference string) {
	s.mu.Lock()
	p, known := s.payments[orderID]
	s.mu.Unlock()
	if !known {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reference == reference && (p.state == taken || p.state == settled) {
		p.state = owed
	}
}

// finishPayments calls finish every repeatEvery, until ctx ends.
func (s *Shop) finishPayments(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(repeatEvery):
		}
		if c, err := s.connection(); err == nil {
			s.finish(ctx, c)
		}
	}
}

// finish advances all payments once. It returns false if a call to the engine failed.
func (s *Shop) finish(ctx context.Context, c Connection) bool {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.payments))
	s.mu.Unlock()
	done := true
	for _, p := range list {
		p.mu.Lock()
		done = s.advance(ctx, c, p) == nil && done
		p.mu.Unlock()
	}
	return done
}

// call tells the engine about a hold. "refusal" is the code of a 409. After an error the call may be repeated.
func (s *Shop) call(ctx context.Context, c Connection, orderID, what string, body map[string]any) (refusal string, err error) {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return "", err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Engine+"/api/v1/holds/"+url.PathEscape(orderID)+"/"+what, &text)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+c.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var problem struct{ Code string }
	switch response.StatusCode {
	case http.StatusOK:
		return "", nil
	case http.StatusConflict:
		err = json.NewDecoder(response.Body).Decode(&problem)
		return problem.Code, err
	}
	return "", fmt.Errorf("%s: the engine answers %s", what, response.Status)
}
