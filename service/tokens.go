package service

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flashsale/model"
)

// ErrBadToken is what every error of Verify wraps.
var ErrBadToken = errors.New("bad token")

// maxTokenBytes bounds what is parsed for a stranger; our own tokens have some 200 bytes.
const maxTokenBytes = 4 << 10

// Tokens signs and checks users' bearer tokens: JWTs with HS256. Any issuer that has the secret may sign.
type Tokens struct {
	secret []byte
	now    func() time.Time
	parser *jwt.Parser
}

// NewTokens takes the secret and the clock that says when a token has expired.
func NewTokens(secret []byte, now func() time.Time) *Tokens {
	return &Tokens{secret: secret, now: now, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(now),
	)}
}

type claims struct {
	jwt.RegisteredClaims
	Role model.Role `json:"role,omitempty"`
}

// Sign makes a token for the identity that expires after ttl, cut to whole seconds. It fails only if the
// identity is one that Verify would refuse.
func (t *Tokens) Sign(who model.Identity, ttl time.Duration) (token string, expiresAt time.Time, err error) {
	if err := checkIdentity(who); err != nil {
		return "", time.Time{}, fmt.Errorf("sign token: %w", err)
	}
	expiresAt = t.now().Add(ttl).UTC().Truncate(time.Second)
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{Subject: who.UserID, ExpiresAt: jwt.NewNumericDate(expiresAt)},
		Role:             who.Role,
	}).SignedString(t.secret)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign token: %w", err)
	}
	return token, expiresAt, nil
}

// Verify says whose token it is. A token without a role is a buyer's. The error wraps ErrBadToken.
func (t *Tokens) Verify(token string) (model.Identity, error) {
	if len(token) > maxTokenBytes {
		return model.Identity{}, fmt.Errorf("%w: %d bytes", ErrBadToken, len(token))
	}
	var said claims
	key := func(*jwt.Token) (any, error) { return t.secret, nil }
	if _, err := t.parser.ParseWithClaims(token, &said, key); err != nil {
		return model.Identity{}, fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	who := model.Identity{UserID: said.Subject, Role: said.Role}
	if who.Role == "" {
		who.Role = model.RoleBuyer
	}
	if err := checkIdentity(who); err != nil {
		return model.Identity{}, fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	return who, nil
}

func checkIdentity(who model.Identity) error {
	if !model.ValidUserID(who.UserID) {
		return fmt.Errorf("user id %q is malformed", who.UserID)
	}
	if who.Role != model.RoleBuyer && who.Role != model.RoleOperator {
		return fmt.Errorf("role %q is unknown", who.Role)
	}
	return nil
}
