package service

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/maypok86/otter/v2"

	"flashsale/model"
)

// ErrBadToken is what every error of Verify wraps.
var ErrBadToken = errors.New("bad token")

// maxTokenBytes bounds what is parsed for a stranger; our own tokens have some 200 bytes.
const maxTokenBytes = 4 << 10

const (
	// checkedTokensBytes bounds the memory of the tokens that were checked: some 100,000 buyers'. Past it those
	// used least are checked again.
	checkedTokensBytes = 48 << 20
	// checkedTokenBytes is what a token takes there on top of its own text.
	checkedTokenBytes = 256
)

// Tokens signs and checks users' bearer tokens: JWTs with HS256. Any issuer that has the secret may sign. A token
// that was found good is kept, since checking it costs more than the rest of a refusal; one that was not is
// checked each time, so that no flood of them drives good ones out.
type Tokens struct {
	secret  []byte
	now     func() time.Time
	parser  *jwt.Parser
	checked *otter.Cache[string, checkedToken]
}

// checkedToken is what a good token says. It is good from notBefore until just before expiresAt.
type checkedToken struct {
	who                  model.Identity
	notBefore, expiresAt time.Time
}

// NewTokens takes the secret and the clock that says when a token has expired.
func NewTokens(secret []byte, now func() time.Time) *Tokens {
	return &Tokens{
		secret: secret, now: now, parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithExpirationRequired(),
			jwt.WithTimeFunc(now),
		),
		checked: otter.Must(&otter.Options[string, checkedToken]{
			MaximumWeight: checkedTokensBytes,
			Weigher: func(token string, _ checkedToken) uint32 {
				return uint32(len(token) + checkedTokenBytes) //nolint:gosec // at most maxTokenBytes
			},
		}),
	}
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
	if known, ok := t.checked.GetIfPresent(token); ok {
		if now := t.now(); now.Before(known.expiresAt) && !now.Before(known.notBefore) {
			return known.who, nil
		}
		t.checked.Invalidate(token)
	}
	good, err := t.check(token)
	if err != nil {
		return model.Identity{}, fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	t.checked.Set(strings.Clone(token), good) // not the request's header, of which it is a part
	return good.who, nil
}

func (t *Tokens) check(token string) (checkedToken, error) {
	if len(token) > maxTokenBytes {
		return checkedToken{}, fmt.Errorf("%d bytes", len(token))
	}
	var said claims
	key := func(*jwt.Token) (any, error) { return t.secret, nil }
	if _, err := t.parser.ParseWithClaims(token, &said, key); err != nil {
		return checkedToken{}, err
	}
	good := checkedToken{who: model.Identity{UserID: said.Subject, Role: said.Role}, expiresAt: said.ExpiresAt.Time}
	if said.NotBefore != nil {
		good.notBefore = said.NotBefore.Time
	}
	if good.who.Role == "" {
		good.who.Role = model.RoleBuyer
	}
	return good, checkIdentity(good.who)
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
