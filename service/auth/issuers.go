package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"flashsale/model"
)

const (
	// keysPause is the least time between two fetches of an issuer's keys, unless a log-in needs them.
	keysPause = 10 * time.Second
	keysFresh = time.Hour      // the age at which keys are fetched again, so that withdrawn ones are forgotten
	keysMost  = 24 * time.Hour // the age up to which keys are used while the issuer is away
	// keysTimeout bounds a fetch of keys, and each other request to an issuer. maxKeysBytes bounds an answer that get reads.
	keysTimeout  = 3 * time.Second
	maxKeysBytes = 1 << 20
	// maxKeysWaiting is the most requests that wait for an issuer's keys, so that forged tokens can't make all requests wait.
	maxKeysWaiting = 256
	leeway         = time.Minute     // how much an issuer's clock may differ from this instance's clock
	outsideFresh   = 5 * time.Minute // the longest time for which a valid token is not checked again
)

// ErrOtherIssuer means that the server at an issuer's address calls itself by another name, such as one with a slash at the end.
var ErrOtherIssuer = errors.New("another issuer")

// errKnown means that the keys were fetched less than the pause ago, and so are not fetched again.
var errKnown = errors.New("they were fetched a moment ago")

// algorithms are those by which issuers may sign. HS256 is not one: whoever can check by a shared secret can also sign.
var algorithms = []string{oidc.RS256, oidc.ES256, oidc.EdDSA}

// RoleClaim gives a role to users whose claim Name is Value, or a list that contains Value.
type RoleClaim struct {
	Role        model.Role
	Name, Value string
}

// Issuers checks the tokens of OpenID Connect issuers outside the engine: JWTs by RS256, ES256 or EdDSA.
type Issuers struct {
	Audience  string // the audience that a token must name
	UserClaim string // the claim that names the user
	Roles     []RoleClaim
	Client    *http.Client
	Now       func() time.Time
	Log       *slog.Logger

	all map[string]*issuer // by name
}

type issuer struct {
	model.Issuer
	of       *Issuers
	keys     atomic.Pointer[issuerKeys]
	waiting  atomic.Int64
	fetching sync.Mutex
	asked    time.Time // when keys were last asked for
	odd      string    // the errors, as last logged, about keys that were not understood
}

type issuerKeys struct {
	set   oidc.StaticKeySet
	found discovery
	at    time.Time
}

// discovery is an issuer's discovery document, or nil for an issuer with a KeysURL. A member whose type is not the standard's
// counts as absent: https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderMetadata.
type discovery map[string]any

func (d discovery) text(member string) string {
	text, _ := d[member].(string)
	return text
}

// secretIn returns where a client puts its secret in a request for tokens: in the header or in the form. If the issuer lists the
// header before the form, the header is tried first and then the form, since some issuers list the header but accept only the
// form.
func (d discovery) secretIn() oauth2.AuthStyle {
	ways, _ := d["token_endpoint_auth_methods_supported"].([]any)
	inForm := slices.Index(ways, any("client_secret_post"))
	inHeader := slices.Index(ways, any("client_secret_basic"))
	switch {
	case inForm < 0:
		return oauth2.AuthStyleInHeader
	case inHeader < 0 || inForm < inHeader:
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleAutoDetect
}

// Add adds an issuer. It must not be called after the first check.
func (s *Issuers) Add(i model.Issuer) {
	if s.all == nil {
		s.all = map[string]*issuer{}
	}
	s.all[i.Name] = &issuer{Issuer: i, of: s}
}

// Fetch fetches the keys of the issuers that have none yet, and returns the errors of those that fail. An error wraps
// ErrOtherIssuer if an issuer calls itself by another name.
func (s *Issuers) Fetch(ctx context.Context) (err error) {
	for _, i := range s.all {
		if failed := i.refresh(ctx, nil, keysPause); failed != nil {
			err = errors.Join(err, fmt.Errorf("issuer %s: %w", i.Name, failed))
		}
	}
	return err
}

// check returns the content of a valid token. The error wraps model.ErrUnavailable if the check needs keys of the token's issuer
// that can't be fetched. Any other error means that the token is not valid, or that its key was published less than keysPause
// ago.
func (s *Issuers) check(ctx context.Context, token string) (good checkedToken, err error) {
	i, err := s.issuerOf(token)
	if err != nil {
		return good, err
	}
	if err := i.ready(ctx); err != nil {
		return good, fmt.Errorf("%w: the keys of %s: %w", model.ErrUnavailable, i.Name, err)
	}
	checked, away, err := i.verify(ctx, token, s.Audience, keysPause)
	if away != nil && !errors.Is(away, errKnown) {
		return good, fmt.Errorf("%w: the keys of %s: %w", model.ErrUnavailable, i.Name, away)
	}
	if err != nil {
		return good, err
	}
	claims, err := s.claimsOf(checked)
	if err != nil {
		return good, err
	}
	if good.who, err = i.identity(claims); err != nil {
		return good, err
	}
	good.expiresAt = s.Now().Add(outsideFresh)
	if end := checked.Expiry.Add(leeway); end.Before(good.expiresAt) {
		good.expiresAt = end
	}
	return good, nil
}

// claimsOf returns the claims of a token, or an error if the token has expired or is not valid yet.
func (s *Issuers) claimsOf(token *oidc.IDToken) (claims map[string]any, err error) {
	var raw json.RawMessage
	if err := token.Claims(&raw); err != nil {
		return nil, err
	}
	if err := decode(bytes.NewReader(raw), &claims); err != nil {
		return nil, err
	}
	now := s.Now()
	if !now.Before(token.Expiry.Add(leeway)) {
		return nil, fmt.Errorf("the token has expired at %s", token.Expiry)
	}
	if from := claims["nbf"]; from != nil {
		seconds, err := json.Number(fmt.Sprint(from)).Float64()
		if err != nil || float64(now.Add(leeway).Unix()) < seconds {
			return nil, fmt.Errorf("the token is valid from %v on", from)
		}
	}
	return claims, nil
}

// decode reads JSON without rounding any number: a long number that was rounded could be another user's id.
func decode(raw io.Reader, into any) error {
	decoder := json.NewDecoder(raw)
	decoder.UseNumber()
	return decoder.Decode(into)
}

// identity returns the user and the role that claims give. The user's claim may be a number. An address in the claim email is put
// into small letters, and refused if the issuer says that it is not verified.
func (i *issuer) identity(claims map[string]any) (who model.Identity, err error) {
	user, named := claims[i.of.UserClaim].(string)
	if number, ok := claims[i.of.UserClaim].(json.Number); ok && !named {
		user = number.String()
	}
	if user == "" {
		return who, fmt.Errorf("the claim %s names nobody", i.of.UserClaim)
	}
	if i.of.UserClaim == "email" {
		if verified := claims["email_verified"]; verified != nil && fmt.Sprint(verified) != "true" {
			return who, errors.New("the issuer has not verified the address of e-mail")
		}
		user = strings.ToLower(user)
	}
	who = model.Identity{UserID: i.userID(user), Role: i.of.roleOf(claims)}
	return who, checkIdentity(who)
}

// issuerOf returns the issuer that a token names, or an error if s has no such issuer. The signature is not checked yet.
func (s *Issuers) issuerOf(token string) (*issuer, error) {
	signed, err := jose.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA})
	if err != nil {
		return nil, err
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims); err != nil {
		return nil, err
	}
	i := s.all[claims.Issuer]
	if i == nil {
		return nil, fmt.Errorf("unknown issuer %q", claims.Issuer)
	}
	return i, nil
}

// userID returns PREFIX:USER or, if that is no valid id or USER begins with a colon, PREFIX::HASH. USER must not be empty.
func (i *issuer) userID(user string) string {
	if id := i.Prefix + ":" + user; user[0] != ':' && model.ValidUserID(id) {
		return id
	}
	sum := sha256.Sum256([]byte(user))
	return i.Prefix + "::" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20]))
}

// roleOf returns the highest role that s.Roles gives for claims, or the buyer's role if s.Roles gives none.
func (s *Issuers) roleOf(claims map[string]any) model.Role {
	role := model.RoleBuyer
	for _, rule := range s.Roles {
		claim := claims[rule.Name]
		list, _ := claim.([]any)
		if (claim == any(rule.Value) || slices.Contains(list, any(rule.Value))) && rule.Role.May(role) {
			role = rule.Role
		}
	}
	return role
}

// ready fetches the keys if there are none, or if they have reached the age keysFresh. If that fails, keys no older than keysMost
// stay in use. Without such keys, ready returns an error.
func (i *issuer) ready(ctx context.Context) (err error) {
	keys := i.keys.Load()
	if keys == nil || i.of.Now().Sub(keys.at) >= keysFresh {
		err = i.refresh(ctx, keys, keysPause)
		keys = i.keys.Load()
	}
	if keys == nil || i.of.Now().Sub(keys.at) > keysMost {
		return err
	}
	return nil
}

// verify checks a token's signature, issuer and audience. If no known key fits, the keys are fetched again, unless they were
// asked for within the pause. If the keys are not fetched although none fits, "away" is the reason.
func (i *issuer) verify(ctx context.Context, token, audience string, pause time.Duration) (checked *oidc.IDToken, away, err error) {
	keys := &keySet{of: i, pause: pause}
	rules := &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms, SkipExpiryCheck: true}
	checked, err = oidc.NewVerifier(i.Name, keys, rules).Verify(ctx, token)
	return checked, keys.away, err
}

type keySet struct {
	of    *issuer
	pause time.Duration
	away  error
}

// VerifySignature is part of oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	keys := k.of.keys.Load()
	if payload, err = keys.set.VerifySignature(ctx, token); err == nil {
		return payload, nil
	}
	if k.away = k.of.refresh(ctx, keys, k.pause); k.away != nil {
		return nil, err
	}
	return k.of.keys.Load().set.VerifySignature(ctx, token)
}

// refresh fetches the keys, unless another request has replaced the keys in "seen". It returns an error if the keys can't be
// fetched, if too many requests wait for them, or if they were asked for within the pause. In the last case, the error is
// errKnown if the keys came.
func (i *issuer) refresh(ctx context.Context, seen *issuerKeys, pause time.Duration) error {
	if i.waiting.Add(1) > maxKeysWaiting {
		i.waiting.Add(-1)
		return errors.New("too many requests wait for them")
	}
	defer i.waiting.Add(-1)
	i.fetching.Lock()
	defer i.fetching.Unlock()
	now := i.of.Now()
	if i.keys.Load() != seen {
		return nil
	}
	if now.Sub(i.asked) < pause {
		if seen != nil && seen.at.Equal(i.asked) {
			return errKnown
		}
		return errors.New("they were asked for a moment ago, and did not come")
	}
	i.asked = now
	fresh := &issuerKeys{at: now}
	if err := i.fetch(ctx, fresh); err != nil {
		return err
	}
	i.keys.Store(fresh)
	return nil
}

func (i *issuer) fetch(ctx context.Context, into *issuerKeys) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout) // other requests wait for the keys as well
	defer cancel()
	address := i.KeysURL
	if address == "" {
		if err := i.get(ctx, strings.TrimSuffix(i.Name, "/")+"/.well-known/openid-configuration", "", &into.found); err != nil {
			return err
		}
		if name := into.found.text("issuer"); name != i.Name {
			return fmt.Errorf("%w: it calls itself %q, which its tokens say too", ErrOtherIssuer, name)
		}
		if address = into.found.text("jwks_uri"); address == "" {
			return errors.New("its discovery document names no keys")
		}
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := i.get(ctx, address, "", &set); err != nil {
		return err
	}
	// A key that is not understood is ignored: https://www.rfc-editor.org/rfc/rfc7517#section-5.
	var odd error
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil {
			odd = errors.Join(odd, err)
		} else if public, ok := key.Key.(crypto.PublicKey); ok && key.IsPublic() && key.Use != "enc" {
			into.set.PublicKeys = append(into.set.PublicKeys, public)
		}
	}
	if len(into.set.PublicKeys) == 0 {
		return errors.Join(errors.New("it has no keys"), odd)
	}
	if text := fmt.Sprint(odd); odd != nil && text != i.odd {
		i.of.Log.WarnContext(ctx, "an issuer has keys that the engine does not understand; tokens that they sign are refused", "issuer", i.Name, "error", text)
		i.odd = text
	}
	return nil
}

// get reads a JSON document, with a token unless it is empty. The error wraps model.ErrUnavailable if no whole answer came, or a
// 429 or 5xx.
func (i *issuer) get(ctx context.Context, address, token string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := i.of.Client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch status := response.StatusCode; {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s answers %s", model.ErrUnavailable, address, response.Status)
	case status != http.StatusOK:
		return fmt.Errorf("%s answers %s", address, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKeysBytes))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", model.ErrUnavailable, address, err)
	}
	if err := decode(bytes.NewReader(body), into); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}
