package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"flashsale/model"
)

// Login logs people in at an issuer by an authorization code with PKCE (RFC 7636). The page in the browser makes the
// verifier and keeps it, so that a code alone is of no use to whoever sees it.
type Login struct {
	Issuers      *Issuers
	Issuer       string // its name; it must be one of Issuers that has a discovery document
	ClientID     string
	ClientSecret string        // empty: a public client
	RedirectURL  func() string // of the page that the issuer sends the browser back to
}

// LoginStart is what a page needs to send a browser to the issuer.
type LoginStart struct {
	AuthorizationURL, ClientID, RedirectURL string
}

// Start returns where log-ins begin. It returns model.ErrUnavailable if the issuer has not told yet, and another error if its
// discovery document does not name it.
func (l *Login) Start(ctx context.Context) (LoginStart, error) {
	i, err := l.ready(ctx)
	if err != nil {
		return LoginStart{}, err
	}
	return LoginStart{AuthorizationURL: i.keys.Load().found.authorizationURL(), ClientID: l.ClientID, RedirectURL: l.RedirectURL()}, nil
}

// Finish exchanges a code, and returns who has logged in and a name to show. The error wraps ErrBadToken if the issuer
// refuses the code or its token is not valid, and model.ErrUnavailable if the issuer is away. Any other error means that the
// issuer does not take log-ins of this client.
func (l *Login) Finish(ctx context.Context, code, verifier, nonce string) (who model.Identity, name string, err error) {
	i, err := l.ready(ctx)
	if err != nil {
		return who, "", err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, l.Issuers.Client), keysTimeout)
	defer cancel()
	found := i.keys.Load().found
	config := oauth2.Config{
		ClientID: l.ClientID, ClientSecret: l.ClientSecret, RedirectURL: l.RedirectURL(),
		Endpoint: oauth2.Endpoint{TokenURL: found.tokenURL(), AuthStyle: found.secretIn()},
	}
	if l.ClientSecret == "" {
		config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	answer, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return who, "", refusalOf(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	verify := oidc.NewVerifier(i.Name, i, &oidc.Config{ClientID: l.ClientID, SupportedSigningAlgs: algorithms, Now: l.Issuers.Now})
	checked, err := verify.Verify(ctx, raw)
	if err == nil && (nonce == "" || checked.Nonce != nonce) {
		err = errors.New("the token is for another log-in")
	}
	var claims map[string]any
	if err == nil {
		who, claims, err = i.identity(checked)
	}
	if err != nil {
		return model.Identity{}, "", fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	text := func(claim string) string {
		value, _ := claims[claim].(string)
		return value
	}
	return who, cmp.Or(text("preferred_username"), text("name"), text("email"), who.UserID), nil
}

// refusalOf returns what the error of an exchange means: that the code is not valid, that this client is set up wrongly, or that
// the issuer can't answer now.
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

func (l *Login) ready(ctx context.Context) (*issuer, error) {
	i := l.Issuers.all[l.Issuer]
	if err := i.ready(ctx); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", model.ErrUnavailable, i.Name, err)
	}
	if found := i.keys.Load().found; found.authorizationURL() == "" || found.tokenURL() == "" {
		return nil, fmt.Errorf("the discovery document of %s lacks authorization_endpoint or token_endpoint", i.Name)
	}
	return i, nil
}
