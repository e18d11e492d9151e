package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const callTimeout = 30 * time.Second

// client follows no redirects, since logIn checks where the log-in leads.
var client = &http.Client{
	Timeout:       callTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

type fields = map[string]any

// send sends a request, with a token unless that is empty. It returns the answer's body and its Location header. An answer
// with a status of 400 or above is an error.
func send(ctx context.Context, method, address, token, contentType, body string) (answer, location string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Prefer", "wait=10")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: the answer is %s: %s", method, address, response.Status, raw)
	}
	return string(raw), response.Header.Get("Location"), err
}

// api calls the engine and, unless into is nil, decodes the answer into it.
func (e *example) api(ctx context.Context, method, path, token string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	answer, _, err := send(ctx, method, e.engine+"/api/v1"+path, token, "application/json", string(text))
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal([]byte(answer), into)
}

// page sends a GET request, or a POST request if form is not nil. It returns the page, and the address to which the answer
// redirects.
func page(ctx context.Context, address string, form url.Values) (text, location string, err error) {
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	return send(ctx, method, address, "", "application/x-www-form-urlencoded", form.Encode())
}

// connect does what an operator does once: it makes a sale, a key and an endpoint for the shop, and writes the shop's file
// connection.
func (e *example) connect(ctx context.Context, connection string) error {
	var in struct{ Token string }
	if err := e.api(ctx, "POST", "/sessions", "", fields{"name": "admin", "password": e.password}, &in); err != nil {
		return err
	}
	now := time.Now().UTC()
	var sale struct{ ID string }
	if err := e.api(ctx, "POST", "/admin/sales", in.Token, fields{
		"title": "The last hundred teapots", "description": "Two for each buyer, ten minutes to pay.",
		"price_cents": 990, "original_price_cents": 4990, "currency": "CNY", "quota": 100, "limit_per_user": 2, "pay_timeout_seconds": 600,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.AddDate(1, 0, 0).Format(time.RFC3339),
	}, &sale); err != nil {
		return err
	}
	e.sale = sale.ID
	e.say("operator: made the sale %s", sale.ID)
	var key struct{ Secret string }
	if err := e.api(ctx, "POST", "/admin/staff", in.Token, fields{"name": "shop", "kind": "key", "role": "holds"}, &key); err != nil {
		return err
	}
	e.say("operator: made a key with the role holds")
	var endpoint struct{ Secret string }
	if err := e.api(ctx, "POST", "/admin/endpoints", in.Token, fields{"url": e.shop + "/events"}, &endpoint); err != nil {
		return err
	}
	e.say("operator: made an endpoint, %s/events", e.shop)
	text, err := json.Marshal(map[string]string{"engine": e.engine, "key": key.Secret, "webhook_secret": endpoint.Secret})
	if err != nil {
		return err
	}
	return os.WriteFile(connection, text, 0o600)
}

// logIn logs the customer ann in at the shop as the engine's pages do, by an authorization code with PKCE, and returns a token
// of the engine.
func (e *example) logIn(ctx context.Context) (token string, err error) {
	var login struct {
		Issuer struct {
			AuthorizationURL string `json:"authorization_url"`
			ClientID         string `json:"client_id"`
			RedirectURL      string `json:"redirect_url"`
			Scope            string
		}
	}
	if err := e.api(ctx, "GET", "/login", "", nil, &login); err != nil {
		return "", err
	}
	verifier, state, nonce := oauth2.GenerateVerifier(), rand.Text(), rand.Text()
	shop := oauth2.Config{
		ClientID: login.Issuer.ClientID, RedirectURL: login.Issuer.RedirectURL, Scopes: strings.Fields(login.Issuer.Scope),
		Endpoint: oauth2.Endpoint{AuthURL: login.Issuer.AuthorizationURL},
	}
	address := shop.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier), oidc.Nonce(nonce))
	if _, _, err := page(ctx, address, nil); err != nil {
		return "", err
	}
	_, location, err := page(ctx, address, url.Values{"name": {"ann"}, "password": {"tea for two"}})
	if err != nil {
		return "", err
	}
	back, err := url.Parse(location)
	if err != nil || !strings.HasPrefix(location, login.Issuer.RedirectURL+"?") || back.Query().Get("state") != state {
		return "", fmt.Errorf("the shop leads to %q after the log-in", location)
	}
	var session struct {
		Token string
		User  struct{ ID, Name string }
	}
	err = e.api(ctx, "POST", "/sessions/code", "", fields{"code": back.Query().Get("code"), "verifier": verifier, "nonce": nonce}, &session)
	if err == nil {
		e.say("customer: logged in at the shop as %s, who is %s in the engine", session.User.Name, session.User.ID)
	}
	return session.Token, err
}

// purchase buys one unit as a customer, pays for it at the shop's checkout, and returns the order's id.
func (e *example) purchase(ctx context.Context) (orderID string, err error) {
	if text, _, err := page(ctx, e.shop+"/", nil); err != nil || !strings.Contains(text, e.engine+"/sales/"+e.sale) {
		return "", fmt.Errorf("the shop's first page has no link to the sale: %w", err)
	}
	token, err := e.logIn(ctx)
	if err != nil {
		return "", err
	}
	var path struct{ Path string }
	if err := e.api(ctx, "POST", "/sales/"+e.sale+"/path", token, nil, &path); err != nil {
		return "", err
	}
	var order struct{ ID, Status string }
	if err := e.api(ctx, "POST", "/sales/"+e.sale+"/"+path.Path+"/orders", token, fields{"quantity": 1}, &order); err != nil {
		return "", err
	}
	e.say("customer: ordered one, order %s is %s", order.ID, order.Status)
	var payment struct {
		PayURL string `json:"pay_url"`
	}
	if err := e.api(ctx, "POST", "/orders/"+order.ID+"/payments", token, nil, &payment); err != nil {
		return "", err
	}
	checkout, err := url.Parse(payment.PayURL)
	if err != nil || !strings.HasPrefix(payment.PayURL, e.shop+"/checkout?") {
		return "", fmt.Errorf("the engine leads to %q for the payment", payment.PayURL)
	}
	if text, _, err := page(ctx, payment.PayURL, nil); err != nil || !strings.Contains(text, "CNY 9.90") {
		return "", fmt.Errorf("the checkout does not show the amount: %w", err)
	}
	e.say("customer: at the shop's checkout, which shows CNY 9.90")
	if text, _, err := page(ctx, e.shop+"/checkout", url.Values{"hold": {checkout.Query().Get("hold")}}); err != nil || !strings.Contains(text, "Paid. Thank you!") {
		return "", fmt.Errorf("the checkout did not take the payment: %w", err)
	}
	if err := e.api(ctx, "GET", "/orders/"+order.ID, token, nil, &order); err != nil {
		return "", err
	}
	if order.Status != "paid" {
		return "", fmt.Errorf("the order is %s in the engine after the payment", order.Status)
	}
	e.say("customer: paid; the shop has settled the order, and in the engine it is %s", order.Status)
	if _, err := e.find(ctx, e.shopLog, `event \d+: (order\.paid), order `+order.ID); err != nil {
		return "", err
	}
	if text, _, err := page(ctx, e.shop+"/orders", nil); err != nil || !strings.Contains(text, order.ID) {
		return "", fmt.Errorf("the shop does not list the order: %w", err)
	}
	e.say("shop: heard of the order by a webhook, and lists it")
	return order.ID, nil
}
