package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/oauth2"

	"flashsale/model"
)

// Login logs people in at an issuer by an authorization code with PKCE (RFC 7636). The page in the browser makes and keeps the
// verifier, so that a code alone is of no use to whoever sees it.
type Login struct {
	Issuers      *Issuers
	Issuer       string // the name of one of Issuers, which must have a discovery document
	ClientID     string
	ClientSecret string        // empty: a public client
	Scopes       string        // the scopes that the browser asks for
	RedirectURL  func() string // returns the URL of the page to which the issuer sends the browser back
}

// LoginStart is what a page needs to send a browser to the issuer.
type LoginStart struct {
	AuthorizationURL, ClientID, RedirectURL, Scopes string
}

// ErrNotAccepted means that an issuer has logged somebody in, but its token does not count here.
var ErrNotAccepted = errors.New("the issuer's token does not count here")

// Start returns where log-ins begin. The error wraps model.ErrUnavailable if the issuer's keys and discovery document can't be
// had. Any other error means that the document lacks an address that log-ins need.
func (l *Login) Start(ctx context.Context) (LoginStart, error) {
	_, found, err := l.ready(ctx)
	if err != nil {
		return LoginStart{}, err
	}
	return LoginStart{AuthorizationURL: found.text("authorization_endpoint"), ClientID: l.ClientID, RedirectURL: l.RedirectURL(), Scopes: l.Scopes}, nil
}

// Finish exchanges a code, and returns who has logged in and a name to show. The error wraps ErrBadToken if the issuer refuses
// the code or its token is for another log-in. It wraps ErrNotAccepted if its token does not count here, and model.ErrUnavailable
// if the issuer gives no proper answer. Any other error means that the issuer is not set up for log-ins of this client.
func (l *Login) Finish(ctx context.Context, code, verifier, nonce string) (who model.Identity, name string, err error) {
	i, found, err := l.ready(ctx)
	if err != nil {
		return who, "", err
	}
	config := oauth2.Config{
		ClientID: l.ClientID, ClientSecret: l.ClientSecret, RedirectURL: l.RedirectURL(),
		Endpoint: oauth2.Endpoint{TokenURL: found.text("token_endpoint"), AuthStyle: found.secretIn()},
	}
	if l.ClientSecret == "" {
		config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	exchange, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, l.Issuers.Client), keysTimeout)
	defer cancel()
	answer, err := config.Exchange(exchange, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return who, "", refusalOf(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	checked, away, err := i.verify(ctx, raw, l.ClientID, 0) // the issuer itself sent the token, so keys are fetched without a pause
	switch {
	case away != nil:
		return who, "", fmt.Errorf("%w: the keys of %s: %w", model.ErrUnavailable, i.Name, away)
	case err != nil:
		return who, "", fmt.Errorf("%w: %w", ErrNotAccepted, err)
	}
	if nonce == "" || checked.Nonce != nonce {
		return who, "", fmt.Errorf("%w: the token is for another log-in", ErrBadToken)
	}
	claims, err := l.Issuers.claimsOf(checked)
	if err != nil {
		return who, "", fmt.Errorf("%w: %w", ErrNotAccepted, err)
	}
	var missing error
	if address := found.text("userinfo_endpoint"); address != "" && l.lacks(claims) {
		if claims, missing = i.complete(ctx, claims, address, answer.AccessToken); missing != nil {
			l.Issuers.Log.WarnContext(ctx, "an issuer does not tell more about somebody who logs in, so a name or a role may be missing", "issuer", i.Name, "error", missing)
		}
	}
	who, err = i.identity(claims)
	if err == nil && missing != nil && l.Issuers.UserClaim == "email" && claims["email_verified"] == nil {
		err = errors.New("whether the address of e-mail was verified is not known")
	}
	switch {
	case err != nil && errors.Is(missing, model.ErrUnavailable):
		return model.Identity{}, "", missing
	case err != nil:
		return model.Identity{}, "", fmt.Errorf("%w: %w", ErrNotAccepted, errors.Join(err, missing))
	}
	return who, cmp.Or(shownName(claims), who.UserID), nil
}

func shownName(claims map[string]any) string {
	text := func(claim string) string {
		value, _ := claims[claim].(string)
		return value
	}
	return cmp.Or(text("preferred_username"), text("name"), text("email"))
}

// lacks reports whether a claim that the engine uses is missing. An issuer may return claims at its userinfo endpoint instead:
// https://openid.net/specs/openid-connect-core-1_0.html#ScopeClaims.
func (l *Login) lacks(claims map[string]any) bool {
	byEmail := l.Issuers.UserClaim == "email"
	return claims[l.Issuers.UserClaim] == nil || byEmail && claims["email_verified"] == nil || shownName(claims) == "" ||
		slices.ContainsFunc(l.Issuers.Roles, func(rule RoleClaim) bool { return claims[rule.Name] == nil })
}

// complete adds to the claims of an ID token those that the issuer's userinfo endpoint returns for an access token. Claims of the
// ID token stay, because it was signed. If the endpoint fails, or its answer is about another user or e-mail address, complete
// returns the claims of the ID token alone, and an error.
func (i *issuer) complete(ctx context.Context, claims map[string]any, address, token string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	var all map[string]any
	if err := i.get(ctx, address, token, &all); err != nil {
		return claims, err
	}
	if all["sub"] == nil || all["sub"] != claims["sub"] {
		return claims, fmt.Errorf("%s is about another user", address)
	}
	if own := claims["email"]; own != nil && own != "" && !strings.EqualFold(fmt.Sprint(own), fmt.Sprint(all["email"])) {
		return claims, fmt.Errorf("%s is about another address of e-mail", address)
	}
	for name, value := range claims {
		if value != nil && value != "" {
			all[name] = value
		}
	}
	return all, nil
}

// refusalOf says what the error of an exchange means: ErrBadToken, model.ErrUnavailable, or that this client is set up wrongly.
func refusalOf(err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok, refused.Response.StatusCode >= http.StatusInternalServerError,
		refused.Response.StatusCode == http.StatusTooManyRequests, refused.Response.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("%w: exchange a code: %w", model.ErrUnavailable, err)
	case slices.Contains([]string{"invalid_client", "unauthorized_client", "unsupported_grant_type"}, refused.ErrorCode):
		return fmt.Errorf("the issuer refuses --client-id with --client-secret: %s", refused.ErrorCode)
	}
	return fmt.Errorf("%w: the code was refused: %s", ErrBadToken, refused.ErrorCode)
}

// ready returns the issuer and its discovery document, or an error, see Start.
func (l *Login) ready(ctx context.Context) (*issuer, discovery, error) {
	i := l.Issuers.all[l.Issuer]
	if err := i.ready(ctx); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", model.ErrUnavailable, i.Name, err)
	}
	found := i.keys.Load().found
	if found.text("authorization_endpoint") == "" || found.text("token_endpoint") == "" {
		return nil, nil, fmt.Errorf("the discovery document of %s lacks authorization_endpoint or token_endpoint", i.Name)
	}
	return i, found, nil
}
