package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/maypok86/otter/v2"

	"flashsale/model"
)

// ErrBadToken is wrapped by every error that Tokens.Verify returns.
var ErrBadToken = errors.New("bad token")

// maxTokenBytes bounds a token by the engine's secret, and maxOutsideBytes a token of an issuer outside, which may list hundreds
// of groups.
const maxTokenBytes, maxOutsideBytes = 4 << 10, 16 << 10

const (
	// checkedTokensBytes bounds the memory of the cache of valid tokens: it has room for some 100,000 tokens of 200 bytes, or
	// 40,000 of 1,000.
	checkedTokensBytes = 48 << 20
	checkedTokenBytes  = 256 // the memory that a cached token takes besides its own text
)

// Tokens signs and checks users' bearer tokens: JWTs with HS256. It also accepts the tokens that Outside finds valid.
//
// A token in the form that Sign writes without a stamp is checked each time, which takes about half a microsecond. Another token
// takes longer, so the result is cached, but only for a valid token. So a flood of invalid tokens can't evict the valid ones.
type Tokens struct {
	// Outside checks the tokens that are not signed by HS256; nil: no such token is accepted. Set it before the first use.
	Outside *Issuers

	secret  []byte
	stamps  []byte // the key of Stamp
	now     func() time.Time
	macs    sync.Pool // of *keyedMAC
	parser  *jwt.Parser
	checked *otter.Cache[string, checkedToken]
}

// checkedToken is the content of a valid token, which need not be checked again from notBefore until just before expiresAt.
type checkedToken struct {
	who                  model.Identity
	notBefore, expiresAt time.Time
}

// NewTokens creates a Tokens. "now" is the clock that decides when a token has expired.
func NewTokens(secret []byte, now func() time.Time) *Tokens {
	return &Tokens{
		secret: secret, stamps: macOf(secret, "stamp"), now: now,
		macs:   sync.Pool{New: newMAC(sha256.New, secret)},
		parser: jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(), jwt.WithTimeFunc(now)),
		checked: otter.Must(&otter.Options[string, checkedToken]{
			MaximumWeight: checkedTokensBytes,
			Weigher: func(token string, _ checkedToken) uint32 {
				return uint32(len(token) + checkedTokenBytes) //nolint:gosec // at most maxOutsideBytes
			},
		}),
	}
}

type claims struct {
	jwt.RegisteredClaims
	Role  model.Role `json:"role,omitempty"`
	Stamp string     `json:"stamp,omitempty"`
}

const stampBytes = 16 // of a stamp before its encoding

// Stamp returns the stamp of an account, for the tokens of built-in staff. It changes with the hash of the password, which has a
// new salt each time. The stamp is an HMAC, and so tells nothing about the hash.
func (t *Tokens) Stamp(a model.Account) string {
	return base64.RawURLEncoding.EncodeToString(macOf(t.stamps, a.ID+"\x00"+a.PasswordHash)[:stampBytes]) // an id has no zero byte
}

// Sign creates a token that expires after ttl; expiresAt is cut to whole seconds. It fails if the user's id or role is not valid.
func (t *Tokens) Sign(who model.Identity, ttl time.Duration) (token string, expiresAt time.Time, err error) {
	if err := checkIdentity(who); err != nil {
		return "", time.Time{}, fmt.Errorf("sign token: %w", err)
	}
	expiresAt = t.now().Add(ttl).UTC().Truncate(time.Second)
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{Subject: who.UserID, ExpiresAt: jwt.NewNumericDate(expiresAt)},
		Role:             who.Role, Stamp: who.Stamp,
	}).SignedString(t.secret)
	return token, expiresAt, err
}

// Verify returns the identity of a token. A token without a role is a buyer's. The error wraps ErrBadToken. It also wraps
// model.ErrUnavailable if the check needs keys of the token's issuer that can't be fetched.
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
	t.checked.Set(strings.Clone(token), good) // token is a part of the request's header, and would keep the header in memory
	return good.who, nil
}

const (
	// ourHead is the beginning of every token from Sign: {"alg":"HS256","typ":"JWT"} in base64url, and the dot.
	ourHead         = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
	ourSignature    = 43  // the length of a SHA-256 in base64url
	ourLongest      = 512 // more than the length of any token from Sign: a user's id has at most model.MaxUserID bytes
	ourExpiryDigits = 11  // of a unix time until the year 5138
)

// ours checks a token in the form in which Sign writes it without a stamp, without a JSON decoder. If ok is false, check may
// still find the token valid. No claim is read before the signature is checked.
func (t *Tokens) ours(token string) (who model.Identity, ok bool) {
	dot := len(token) - ourSignature - 1
	if len(token) > ourLongest || dot < len(ourHead) || token[dot] != '.' || token[:len(ourHead)] != ourHead {
		return who, false
	}
	mac, _ := t.macs.Get().(*keyedMAC)
	defer t.macs.Put(mac)
	mac.in = append(mac.in[:0], token...)
	mac.Reset()
	_, _ = mac.Write(mac.in[:dot]) // a hash never returns an error
	var genuine [ourSignature]byte
	base64.RawURLEncoding.Encode(genuine[:], mac.Sum(mac.sum[:0]))
	if subtle.ConstantTimeCompare(genuine[:], mac.in[dot+1:]) != 1 {
		return who, false
	}
	var err error
	if mac.out, err = base64.RawURLEncoding.AppendDecode(mac.out[:0], mac.in[len(ourHead):dot]); err != nil {
		return who, false
	}
	who, expiry, ok := ourClaims(mac.out)
	return who, ok && t.now().Before(time.Unix(expiry, 0))
}

// ourClaims parses {"sub":"U","exp":N,"role":"R"}.
func ourClaims(claims []byte) (who model.Identity, expiry int64, ok bool) {
	rest, headed := bytes.CutPrefix(claims, []byte(`{"sub":"`))
	user, rest, hasExpiry := bytes.Cut(rest, []byte(`","exp":`))
	digits, role, hasRole := bytes.Cut(rest, []byte(`,"role":"`))
	if !headed || !hasExpiry || !hasRole || !model.ValidUserID(user) || len(digits) > ourExpiryDigits {
		return who, 0, false
	}
	expiry, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || digits[0] < '1' || digits[0] > '9' { // in JSON a positive integer starts with 1 to 9
		return who, 0, false
	}
	name, ended := bytes.CutSuffix(role, []byte(`"}`))
	who = model.Identity{UserID: string(user), Role: model.RoleBuyer}
	if string(name) != string(model.RoleBuyer) { // nearly all are buyers, and the conversion allocates
		who.Role = model.Role(name)
	}
	return who, expiry, ended && who.Role.Valid()
}

func (t *Tokens) check(token string) (checkedToken, error) {
	outside, most := t.Outside != nil && !signedBySecret(token), maxTokenBytes
	if outside {
		most = maxOutsideBytes
	}
	if len(token) > most {
		return checkedToken{}, fmt.Errorf("it has %d bytes, and may have %d", len(token), most)
	}
	if outside {
		return t.Outside.check(context.Background(), token)
	}
	var said claims
	key := func(*jwt.Token) (any, error) { return t.secret, nil }
	if _, err := t.parser.ParseWithClaims(token, &said, key); err != nil {
		return checkedToken{}, err
	}
	good := checkedToken{who: model.Identity{UserID: said.Subject, Role: said.Role, Stamp: said.Stamp}, expiresAt: said.ExpiresAt.Time}
	if said.NotBefore != nil {
		good.notBefore = said.NotBefore.Time
	}
	if good.who.Role == "" {
		good.who.Role = model.RoleBuyer
	}
	return good, checkIdentity(good.who)
}

// signedBySecret reports whether a token says that it is signed by HS256.
func signedBySecret(token string) bool {
	head, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)
	var said struct {
		Alg string `json:"alg"`
	}
	return err == nil && json.Unmarshal(raw, &said) == nil && said.Alg == jwt.SigningMethodHS256.Alg()
}

func checkIdentity(who model.Identity) error {
	if !model.ValidUserID(who.UserID) {
		return fmt.Errorf("user id %q is malformed", who.UserID)
	}
	if !who.Role.Valid() {
		return fmt.Errorf("role %q is unknown", who.Role)
	}
	return nil
}
