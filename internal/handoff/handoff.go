// Package handoff is the payment provider of a shop with a checkout of its own. The buyer goes there with a signed token that
// says what is held for whom. The shop takes the money, and settles or releases the order over the API.
package handoff

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"flashsale/model"
)

// Provider is a service.Provider for a shop that takes the money itself.
type Provider struct {
	checkout *url.URL
	key      *ecdsa.PrivateKey
	keyID    string
	keys     []byte // the JSON Web Key Set
	issuer   func() string
	now      func() time.Time
}

// New makes a Provider. The key that signs hold tokens is derived from the engine's secret. "issuer" returns the engine's own
// URL. An error means that checkoutURL can't be parsed, or that no key can be derived.
func New(checkoutURL string, secret []byte, issuer func() string, now func() time.Time) (*Provider, error) {
	checkout, err := url.Parse(checkoutURL)
	if err != nil {
		return nil, fmt.Errorf("checkout URL: %w", err)
	}
	p := &Provider{checkout: checkout, issuer: issuer, now: now}
	if p.key, err = deriveKey(secret); err != nil {
		return nil, err
	}
	public := jose.JSONWebKey{Key: p.key.Public(), Algorithm: string(jose.ES256), Use: "sig"}
	print, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("thumbprint of the key for hold tokens: %w", err)
	}
	p.keyID = base64.RawURLEncoding.EncodeToString(print)
	public.KeyID = p.keyID
	p.keys, err = json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	return p, err
}

// deriveKey returns the first valid key among ten strings that HKDF yields. Most strings of 32 bytes are keys of P-256.
func deriveKey(secret []byte) (key *ecdsa.PrivateKey, err error) {
	for n := range 10 {
		raw, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprint("flashsale hold tokens ", n), 32)
		if err != nil {
			return nil, fmt.Errorf("derive the key for hold tokens: %w", err)
		}
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("derive the key for hold tokens: %w", err)
}

// Keys returns the JSON Web Key Set with which hold tokens are checked.
func (p *Provider) Keys() []byte { return p.keys }

// Name is part of service.Provider.
func (p *Provider) Name() string { return "handoff" }

// Claims are the contents of a hold token. RegisteredClaims has the issuer, the buyer and the times.
type Claims struct {
	jwt.RegisteredClaims        // the subject is the buyer's id
	Order                string `json:"order"`
	Number               string `json:"number"` // the order's
	Sale                 string `json:"sale"`
	User                 string `json:"user"`
	Quantity             int    `json:"quantity"`
	Amount               int64  `json:"amount"` // in the smallest unit of the currency
	Currency             string `json:"currency"`
}

// Open is part of service.Provider. The page is the checkout. Its parameter "hold" is a token, valid to the payment's deadline.
func (p *Provider) Open(_ context.Context, payment model.Payment, sale model.Sale) (page, reference string, err error) {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: p.issuer(), Subject: payment.UserID,
			IssuedAt: jwt.NewNumericDate(p.now()), ExpiresAt: jwt.NewNumericDate(payment.ExpiresAt),
		},
		Order: payment.OrderID, Number: model.OrderNumber(payment.OrderID), Sale: sale.ID, User: payment.UserID, Quantity: payment.Quantity,
		Amount: payment.AmountCents, Currency: payment.Currency,
	})
	token.Header["kid"] = p.keyID
	signed, err := token.SignedString(p.key)
	if err != nil {
		return "", "", fmt.Errorf("sign a hold token: %w", err)
	}
	to := *p.checkout
	query := to.Query()
	query.Set("hold", signed)
	to.RawQuery = query.Encode()
	return to.String(), "", nil
}

// Takes is part of service.Provider. The amounts include 0.
func (p *Provider) Takes(currency string) (amounts model.AmountRange, ok bool) {
	return model.TakesAll(currency)
}

// Look is part of service.Provider. The shop reports money by itself. So if "over" is true, Look says that none came.
func (p *Provider) Look(_ context.Context, payment model.Payment, over bool) (report model.Report, known bool, err error) {
	return payment.Unpaid(), over, nil
}

// Refund is part of service.Provider. It does nothing: the shop sends the money back, and reports that over the API.
func (p *Provider) Refund(context.Context, model.Payment) (done bool, err error) { return false, nil }
