package service

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
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
	// checkedTokensBytes bounds the memory of other issuers' tokens that were checked: some 100,000 buyers'. Past
	// it those used least are checked again.
	checkedTokensBytes = 48 << 20
	// checkedTokenBytes is what a token takes there on top of its own text.
	checkedTokenBytes = 256
)

// Tokens signs and checks users' bearer tokens: JWTs with HS256. Any issuer that has the secret may sign.
//
// A token as Sign writes it is checked each time, without reflection: that is half a microsecond and no memory,
// however many buyers there are. Any other is for the JWT library, which takes as long as the rest of a refusal.
// Of those, one that was found good is kept; one that was not is checked each time, so that no flood of them
// drives good ones out.
type Tokens struct {
	secret  []byte
	now     func() time.Time
	macs    sync.Pool // of *tokenMAC: keying a MAC costs as much as what it is used for
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
		secret: secret, now: now,
		macs: sync.Pool{New: func() any { return &tokenMAC{Hash: hmac.New(sha256.New, secret)} }},
		parser: jwt.NewParser(
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
	if who, ok := t.ours(token); ok {
		return who, nil
	}
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

const (
	// ourHead is how every token of Sign begins: {"alg":"HS256","typ":"JWT"} and the dot.
	ourHead = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
	// ourSignature is the text of a SHA-256, ourLongest more than a token of Sign has: the user's id is the bulk.
	ourSignature, ourLongest = 43, 512
	// ourExpiryDigits are those of a time until the year 5138.
	ourExpiryDigits = 11
)

// tokenMAC is a keyed MAC and room to work in.
type tokenMAC struct {
	hash.Hash
	signed, claims []byte
	sum            [sha256.Size]byte
}

// ours says whose token it is if Sign wrote it for now. Of any other, good or bad, it says nothing: the library
// decides, and of these it says the same. Nothing of a token is read before its signature has been checked.
func (t *Tokens) ours(token string) (who model.Identity, ok bool) {
	dot := len(token) - ourSignature - 1
	if len(token) > ourLongest || dot < len(ourHead) || token[dot] != '.' || token[:len(ourHead)] != ourHead {
		return who, false
	}
	mac, _ := t.macs.Get().(*tokenMAC)
	defer t.macs.Put(mac)
	mac.signed = append(mac.signed[:0], token...)
	mac.Reset()
	_, _ = mac.Write(mac.signed[:dot]) // a hash takes everything
	var genuine [ourSignature]byte
	base64.RawURLEncoding.Encode(genuine[:], mac.Sum(mac.sum[:0]))
	if subtle.ConstantTimeCompare(genuine[:], mac.signed[dot+1:]) != 1 {
		return who, false
	}
	var err error
	if mac.claims, err = base64.RawURLEncoding.AppendDecode(mac.claims[:0], mac.signed[len(ourHead):dot]); err != nil {
		return who, false
	}
	who, expiry, ok := ourClaims(mac.claims)
	return who, ok && t.now().Before(time.Unix(expiry, 0))
}

// ourClaims reads {"sub":"U","exp":N,"role":"R"}.
func ourClaims(claims []byte) (who model.Identity, expiry int64, ok bool) {
	rest, headed := bytes.CutPrefix(claims, []byte(`{"sub":"`))
	user, rest, hasExpiry := bytes.Cut(rest, []byte(`","exp":`))
	digits, role, hasRole := bytes.Cut(rest, []byte(`,"role":"`))
	if !headed || !hasExpiry || !hasRole || !model.ValidUserID(user) || len(digits) > ourExpiryDigits {
		return who, 0, false
	}
	expiry, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || digits[0] < '1' || digits[0] > '9' { // JSON has no other way to write a time after 1970
		return who, 0, false
	}
	switch string(role) {
	case string(model.RoleBuyer) + `"}`:
		who.Role = model.RoleBuyer
	case string(model.RoleOperator) + `"}`:
		who.Role = model.RoleOperator
	default:
		return who, 0, false
	}
	who.UserID = string(user)
	return who, expiry, true
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
