package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"flashsale/model"
	"flashsale/service/auth"
)

// trust makes the instance accept tokens of the issuers in the settings. It returns the log-in at the first issuer, or nil if
// there is no issuer or no client id. That an issuer does not answer is only logged.
func (a *App) trust(ctx context.Context) (*auth.Login, error) {
	list, err := a.settings.Outside()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	issuers := &auth.Issuers{Audience: a.settings.Audience, UserClaim: a.settings.UserClaim, Client: &http.Client{}, Now: clock, Log: a.Log}
	for _, i := range list {
		issuers.Add(i)
	}
	for role, claim := range map[model.Role]string{
		model.RoleViewer: a.settings.ViewerClaim, model.RoleSupport: a.settings.SupportClaim, model.RoleOperator: a.settings.OperatorClaim,
	} {
		if name, value, ok := strings.Cut(claim, "="); ok {
			issuers.Roles = append(issuers.Roles, auth.RoleClaim{Role: role, Name: name, Value: value})
		}
	}
	err = issuers.Fetch(ctx)
	if errors.Is(err, auth.ErrOtherIssuer) { // the setting is wrong
		return nil, fmt.Errorf("--issuer: %w", err)
	}
	if err != nil {
		a.Log.Warn("the keys of an issuer can't be fetched yet", "error", err)
	}
	a.Tokens.Outside = issuers
	if a.settings.ClientID == "" {
		return nil, nil
	}
	scopes := "openid profile"
	if a.settings.UserClaim == "email" {
		scopes += " email"
	}
	return &auth.Login{
		Issuers: issuers, Issuer: list[0].Name, ClientID: a.settings.ClientID, ClientSecret: a.settings.ClientSecret,
		RedirectURL: func() string { return a.URL() + "/login" }, Scopes: cmp.Or(a.settings.Scopes, scopes),
	}, nil
}
