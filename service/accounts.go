package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"flashsale/model"
)

// OperatorName is the built-in operator's name and user id.
const OperatorName = "admin"

const (
	// sessionTTL is how long a log-in holds: longer than any sale's rush and its time to pay.
	sessionTTL = 24 * time.Hour
	// A password is 8 to 128 bytes: NIST's least, and an end to hashing whole books.
	minPassword = 8
	maxPassword = 128
	// A name is 3 to 32 characters: to be told apart, and to fit on a page.
	minName = 3
	maxName = 32
)

var accountName = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._-]{%d,%d}$`, minName, maxName))

// AccountStore keeps the built-in users.
type AccountStore interface {
	CreateAccount(ctx context.Context, a model.Account) (ok bool, err error)
	Account(ctx context.Context, name string) (account model.Account, ok bool, err error)
	SetPassword(ctx context.Context, name, hash string) error
}

// Accounts registers built-in users and logs them in.
type Accounts struct {
	Store     AccountStore
	Passwords *Passwords
	Tokens    *Tokens
}

// Session is a user with a token.
type Session struct {
	Account   model.Account
	Token     string
	ExpiresAt time.Time
}

// Register makes a buyer. NameTaken; BadRequest with the wrong field; model.ErrUnavailable when too many
// passwords wait to be hashed.
func (a *Accounts) Register(ctx context.Context, name, password string) (Session, model.Verdict, *Invalid, error) {
	switch {
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
	ok, err := a.Store.CreateAccount(ctx, account)
	if err != nil {
		return Session{}, "", nil, err
	}
	if !ok {
		return Session{}, model.NameTaken, nil, nil
	}
	session, err := a.session(account)
	return session, model.Accepted, nil, err
}

// LogIn checks a name and password. Unauthenticated for an unknown name and a wrong password alike, after the
// same time.
func (a *Accounts) LogIn(ctx context.Context, name, password string) (Session, model.Verdict, error) {
	if len(password) > maxPassword {
		return Session{}, model.Unauthenticated, nil
	}
	var account model.Account
	ok := accountName.MatchString(name) // or databases differ in what they make of it
	if ok {
		var err error
		if account, ok, err = a.Store.Account(ctx, name); err != nil {
			return Session{}, "", err
		}
	}
	if !ok {
		return Session{}, model.Unauthenticated, a.Passwords.VerifyNothing(ctx, password)
	}
	right, err := a.Passwords.Verify(ctx, account.PasswordHash, password)
	if err != nil {
		return Session{}, "", fmt.Errorf("log in: %w", err)
	}
	if !right {
		return Session{}, model.Unauthenticated, nil
	}
	session, err := a.session(account)
	return session, model.Accepted, err
}

func (a *Accounts) session(account model.Account) (Session, error) {
	token, expiresAt, err := a.Tokens.Sign(model.Identity{UserID: account.ID, Role: account.Role}, sessionTTL)
	return Session{Account: account, Token: token, ExpiresAt: expiresAt}, err
}

// EnsureOperator makes the operator's account, or gives it this password. With no password it makes one only
// if there is no operator yet, and returns it: it is not kept anywhere else.
func (a *Accounts) EnsureOperator(ctx context.Context, password string) (made string, err error) {
	account, exists, err := a.Store.Account(ctx, OperatorName)
	if err != nil {
		return "", err
	}
	switch {
	case password == "" && exists:
		return "", nil
	case password == "":
		password, made = rand.Text()[:model.IDLength], "yes"
	case exists:
		if same, err := a.Passwords.Verify(ctx, account.PasswordHash, password); err != nil || same {
			return "", err
		}
	}
	hash, err := a.Passwords.Hash(ctx, password)
	if err != nil {
		return "", err
	}
	if exists {
		return "", a.Store.SetPassword(ctx, OperatorName, hash)
	}
	operator := model.Account{ID: OperatorName, Name: OperatorName, PasswordHash: hash, Role: model.RoleOperator}
	if _, err := a.Store.CreateAccount(ctx, operator); err != nil {
		return "", err
	}
	if made != "" {
		made = password
	}
	return made, nil
}
