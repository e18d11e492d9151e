package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"flashsale/model"
	"flashsale/service/auth"
)

// OperatorName is the built-in operator's name and user id.
const OperatorName = "admin"

const (
	sessionTTL = 24 * time.Hour // covers the start of a sale and a usual time to pay
	// staffTTL is for the sessions of users to whom an issuer gives a role of the staff: the issuer may withdraw the role.
	staffTTL = time.Hour

	minPassword, maxPassword = 8, 128       // bytes; the maximum bounds the input of the hash
	minName, maxName         = 3, 32        // characters
	minVerifier, maxVerifier = 43, 128      // characters (RFC 7636)
	maxCode, maxNonce        = 3 << 10, 256 // maxCode leaves room in a request's body for a verifier and a nonce
)

var (
	accountName  = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._-]{%d,%d}$`, minName, maxName))
	codeVerifier = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._~-]{%d,%d}$`, minVerifier, maxVerifier))
)

// AccountStore keeps the built-in users.
type AccountStore interface {
	CreateAccount(ctx context.Context, a model.Account) (ok bool, err error)
	Account(ctx context.Context, name string) (account model.Account, ok bool, err error)
	SetPassword(ctx context.Context, name, hash string) error
}

// Accounts registers built-in users. It logs in built-in users and the users of an issuer.
type Accounts struct {
	Open bool // buyers may have built-in accounts; otherwise only the staff has them
	Off  bool // built-in accounts can't be registered or used

	Outside   *auth.Login // the issuer at which people log in; nil: there is none
	Store     AccountStore
	Passwords *auth.Passwords
	Tokens    *auth.Tokens
}

// Session is a user with a token.
type Session struct {
	Account   model.Account
	Token     string
	ExpiresAt time.Time
}

// Register creates a buyer's account and logs the buyer in. The verdict is Accepted; NameTaken if the name exists or is the
// operator's; Forbidden if buyers have no accounts here; or BadRequest with the invalid field. The error wraps
// model.ErrUnavailable if too many passwords already wait to be hashed.
func (a *Accounts) Register(ctx context.Context, name, password string) (Session, model.Verdict, *Invalid, error) {
	switch {
	case a.Off || !a.Open:
		return Session{}, model.Forbidden, nil, nil
	case !accountName.MatchString(name):
		return Session{}, model.BadRequest, &Invalid{Field: "name", Reason: BadName, Min: minName, Max: maxName}, nil
	case len(password) < minPassword || len(password) > maxPassword || !utf8.ValidString(password):
		return Session{}, model.BadRequest, &Invalid{Field: "password", Reason: BadPassword, Min: minPassword, Max: maxPassword}, nil
	case strings.EqualFold(name, OperatorName):
		return Session{}, model.NameTaken, nil, nil
	}
	hash, err := a.Passwords.Hash(ctx, password)
	if err != nil {
		return Session{}, "", nil, fmt.Errorf("register: %w", err)
	}
	account := model.Account{ID: "u-" + strings.ToLower(rand.Text()[:model.IDLength]), Name: name, PasswordHash: hash, Role: model.RoleBuyer}
	if ok, err := a.Store.CreateAccount(ctx, account); err != nil || !ok {
		return Session{}, model.NameTaken, nil, err
	}
	session, err := a.session(account)
	return session, model.Accepted, nil, err
}

// LogIn makes a session. The verdict is Accepted, or Unauthenticated for an unknown name, an account that may not log in here,
// and a wrong password. These refusals take about the same time, so that an answer does not reveal which names exist. A password
// that is too long is refused sooner, for any name. The error wraps model.ErrUnavailable if too many passwords wait to be hashed.
func (a *Accounts) LogIn(ctx context.Context, name, password string) (Session, model.Verdict, error) {
	if len(password) > maxPassword {
		return Session{}, model.Unauthenticated, nil
	}
	var account model.Account
	ok := accountName.MatchString(name) // databases differ in how they compare other characters
	if ok {
		var err error
		if account, ok, err = a.Store.Account(ctx, name); err != nil {
			return Session{}, "", err
		}
	}
	if !ok || account.IsKey() || a.Off || !a.Open && account.Role == model.RoleBuyer {
		return Session{}, model.Unauthenticated, a.Passwords.VerifyNothing(ctx, password)
	}
	right, err := a.Passwords.Verify(ctx, account.PasswordHash, password)
	if err != nil || !right {
		return Session{}, model.Unauthenticated, err
	}
	session, err := a.session(account)
	return session, model.Accepted, err
}

// LogInByCode logs in the user to whom the issuer gave an authorization code. The verdict is Accepted; NotFound if there is no
// issuer to log in at; or BadRequest with the invalid field. The errors are those of auth.Login.Finish.
func (a *Accounts) LogInByCode(ctx context.Context, code, verifier, nonce string) (Session, model.Verdict, *Invalid, error) {
	switch {
	case a.Outside == nil:
		return Session{}, model.NotFound, nil, nil
	case code == "" || !text(code, maxCode):
		return Session{}, model.BadRequest, &Invalid{Field: "code", Reason: BadText, Min: 1, Max: maxCode}, nil
	case !codeVerifier.MatchString(verifier):
		return Session{}, model.BadRequest, &Invalid{Field: "verifier", Reason: BadVerifier, Min: minVerifier, Max: maxVerifier}, nil
	case nonce == "" || !text(nonce, maxNonce):
		return Session{}, model.BadRequest, &Invalid{Field: "nonce", Reason: BadText, Min: 1, Max: maxNonce}, nil
	}
	who, name, err := a.Outside.Finish(ctx, code, verifier, nonce)
	if err != nil {
		return Session{}, "", nil, err
	}
	ttl := sessionTTL
	if who.Role.May(model.RoleViewer) {
		ttl = staffTTL
	}
	token, expiresAt, err := a.Tokens.Sign(who, ttl)
	return Session{Account: model.Account{ID: who.UserID, Name: name, Role: who.Role}, Token: token, ExpiresAt: expiresAt}, model.Accepted, nil, err
}

// session makes a token for an account. A buyer's token has no stamp: a buyer's id is random, and the password never changes.
func (a *Accounts) session(account model.Account) (Session, error) {
	who := model.Identity{UserID: account.ID, Role: account.Role}
	if account.Role != model.RoleBuyer {
		who.Stamp = a.Tokens.Stamp(account)
	}
	token, expiresAt, err := a.Tokens.Sign(who, sessionTTL)
	return Session{Account: account, Token: token, ExpiresAt: expiresAt}, err
}

// EnsureOperator creates the operator's account, or sets the password of the existing account. If no password is given, an
// existing account stays as it is, and a new one gets a generated password, which is returned because only its hash is stored.
func (a *Accounts) EnsureOperator(ctx context.Context, password string) (made string, err error) {
	account, exists, err := a.Store.Account(ctx, OperatorName)
	if err != nil || exists && password == "" {
		return "", err
	}
	if exists {
		if same, err := a.Passwords.Verify(ctx, account.PasswordHash, password); err != nil || same {
			return "", err
		}
	}
	if password == "" {
		made = rand.Text()[:model.IDLength]
	}
	hash, err := a.Passwords.Hash(ctx, cmp.Or(password, made))
	if err != nil {
		return "", err
	}
	if exists {
		return "", a.Store.SetPassword(ctx, OperatorName, hash)
	}
	operator := model.Account{ID: OperatorName, Name: OperatorName, PasswordHash: hash, Role: model.RoleOperator}
	if created, err := a.Store.CreateAccount(ctx, operator); err != nil || created {
		return made, err
	}
	return a.EnsureOperator(ctx, password) // another instance that starts now was first
}
