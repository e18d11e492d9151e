package handler

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
)

// Bounds of the costly work that anonymous requests cause, see middleware.Places.
const (
	// hashesOfOne bounds one client's passwords, so that one client can't fill the queue of auth.Passwords.
	hashesOfOne = 16
	// issuerCalls bounds the log-ins that wait for the issuer: enough for a hundred a second if the issuer takes 300 ms.
	// issuerCallsOfOne bounds those of one client.
	issuerCalls      = 32
	issuerCallsOfOne = 8
)

// Accounts registers buyers and logs people in.
type Accounts struct {
	Service *service.Accounts

	hashing, issuing *middleware.Places
}

// NewAccounts returns the handlers of accounts.
func NewAccounts(accounts *service.Accounts) *Accounts {
	return &Accounts{accounts, middleware.NewPlaces(math.MaxInt, hashesOfOne), middleware.NewPlaces(issuerCalls, issuerCallsOfOne)}
}

func (a *Accounts) register(c *gin.Context) {
	a.byPassword(c, http.StatusCreated, a.Service.Register)
}

func (a *Accounts) logIn(c *gin.Context) {
	a.byPassword(c, http.StatusOK, func(ctx context.Context, name, password string) (service.Session, model.Verdict, *service.Invalid, error) {
		session, verdict, err := a.Service.LogIn(ctx, name, password)
		return session, verdict, nil, err
	})
}

// byPassword reads a name and a password, and answers with the session that open returns for them.
func (a *Accounts) byPassword(
	c *gin.Context, status int, open func(ctx context.Context, name, password string) (service.Session, model.Verdict, *service.Invalid, error),
) {
	var body struct {
		Name     string `json:"name"`
		Password string `json:"password"`
	}
	if !decode(c, maxBodyBytes, &body) {
		return
	}
	leave, ok := a.hashing.Take(c)
	if !ok {
		return
	}
	defer leave()
	session, verdict, invalid, err := open(c.Request.Context(), body.Name, body.Password)
	if err == nil && verdict == model.Unauthenticated {
		middleware.Refuse(c, middleware.Refusal{Verdict: verdict, Invalid: &service.Invalid{Reason: wrongLogIn}})
		return
	}
	answerChange(c, status, viewSession(session), verdict, invalid, err)
}

// showOutside answers with the issuer at which people log in, which is null if there is none.
func (a *Accounts) showOutside(c *gin.Context) {
	if a.Service.Outside == nil {
		c.JSON(http.StatusOK, gin.H{"issuer": nil})
		return
	}
	start, err := a.Service.Outside.Start(c.Request.Context())
	answer(c, http.StatusOK, gin.H{"issuer": gin.H{
		"authorization_url": start.AuthorizationURL, "client_id": start.ClientID, "redirect_url": start.RedirectURL, "scope": start.Scopes,
	}}, model.Accepted, err)
}

type exchangeBody struct {
	Code     string `json:"code"`
	Verifier string `json:"verifier"`
	Nonce    string `json:"nonce"`
}

func (a *Accounts) logInByCode(c *gin.Context, body exchangeBody) {
	leave, ok := a.issuing.Take(c)
	if !ok {
		return
	}
	defer leave()
	session, verdict, invalid, err := a.Service.LogInByCode(c.Request.Context(), body.Code, body.Verifier, body.Nonce)
	switch {
	case errors.Is(err, auth.ErrBadToken): // the answer must not help a forger
		middleware.Refuse(c, middleware.Refusal{Verdict: model.Unauthenticated, Why: err})
	case errors.Is(err, auth.ErrNotAccepted):
		middleware.Refuse(c, middleware.Refusal{Verdict: model.Forbidden, Why: err})
	default:
		answerChange(c, http.StatusOK, viewSession(session), verdict, invalid, err)
	}
}

func viewSession(s service.Session) gin.H {
	return gin.H{
		"user":  gin.H{"id": s.Account.ID, "name": s.Account.Name, "role": s.Account.Role},
		"token": s.Token, "expires_at": stamp(s.ExpiresAt),
	}
}
