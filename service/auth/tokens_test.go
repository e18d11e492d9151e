package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// refuses verifies an invalid token.
func refuses(t *testing.T, what string, tokens *Tokens, token string) {
	t.Helper()
	if got, err := tokens.Verify(token); !errors.Is(err, ErrBadToken) || got != (model.Identity{}) {
		t.Errorf("%s: %+v, %v; want a bad token", what, got, err)
	}
}

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// The tokens of Sign, of which there are as many as buyers, are verified without the library, and are not kept in memory.
func TestTokensRoundTrip(t *testing.T) {
	for _, who := range []model.Identity{
		{UserID: "u-1", Role: model.RoleBuyer},
		{UserID: "admin", Role: model.RoleOperator},
		{UserID: "s-1", Role: model.RoleSupport},
		{UserID: "s-2", Role: model.RoleViewer},
		{UserID: strings.Repeat("x", 64), Role: model.RoleBuyer},
	} {
		token, expiresAt, err := NewTokens(tokenSecret, at(tokenTime)).Sign(who, time.Hour)
		check.NoError(t, err)
		check.Same(t, "expiry", expiresAt, tokenTime.Add(time.Hour).Truncate(time.Second))
		for _, now := range []time.Time{tokenTime, expiresAt.Add(-1)} {
			tokens := NewTokens(tokenSecret, at(now))
			check.Same(t, fmt.Sprint("at ", now), check.Must(tokens.Verify(token)), who)
			if got, ok := tokens.ours(token); !ok || got != who {
				t.Errorf("without the library: %+v, %t", got, ok)
			}
			check.Same(t, "tokens in memory", tokens.checked.EstimatedSize(), 0)
		}
		for _, now := range []time.Time{expiresAt, expiresAt.Add(time.Hour)} {
			refuses(t, fmt.Sprint("at ", now), NewTokens(tokenSecret, at(now)), token)
		}
	}
}

func TestTokensOfOtherIssuers(t *testing.T) {
	expiry := tokenTime.Add(time.Hour).Unix()
	for want, claims := range map[model.Role][]jwt.MapClaims{
		model.RoleBuyer:    {{"sub": "u-1", "exp": expiry}, {"sub": "u-1", "exp": expiry, "iss": "shop", "aud": []string{"a"}, "x": 1}},
		model.RoleOperator: {{"sub": "u-1", "exp": expiry, "role": "operator"}},
	} {
		for _, claims := range claims {
			got := check.Must(NewTokens(tokenSecret, at(tokenTime)).Verify(forged(claims)))
			check.Same(t, fmt.Sprint(claims), got, model.Identity{UserID: "u-1", Role: want})
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	expiry := tokenTime.Add(time.Hour).Unix()
	good := jwt.MapClaims{"sub": "u-1", "exp": expiry}
	parts := strings.Split(forged(good), ".")
	for name, token := range map[string]string{
		"empty":               "",
		"no dots":             "rubbish",
		"alg none":            check.Must(jwt.NewWithClaims(jwt.SigningMethodNone, good).SignedString(jwt.UnsafeAllowNoneSignatureType)),
		"alg None, bare":      encoded(`{"alg":"None"}`) + "." + parts[1] + ".",
		"alg HS512":           check.Must(jwt.NewWithClaims(jwt.SigningMethodHS512, good).SignedString(tokenSecret)),
		"another key":         check.Must(jwt.NewWithClaims(jwt.SigningMethodHS256, good).SignedString([]byte("another"))),
		"no signature":        parts[0] + "." + parts[1] + ".",
		"other claims":        parts[0] + "." + encoded(`{"sub":"u-2","exp":9999999999}`) + "." + parts[2],
		"no exp":              forged(jwt.MapClaims{"sub": "u-1"}),
		"exp null":            forged(jwt.MapClaims{"sub": "u-1", "exp": nil}),
		"exp as a word":       forged(jwt.MapClaims{"sub": "u-1", "exp": "tomorrow"}),
		"exp before all time": forged(jwt.MapClaims{"sub": "u-1", "exp": -1e300}),
		"expired":             forged(jwt.MapClaims{"sub": "u-1", "exp": tokenTime.Add(-time.Second).Unix()}),
		"not yet valid":       forged(jwt.MapClaims{"sub": "u-1", "exp": expiry, "nbf": expiry - 1}),
		"no sub":              forged(jwt.MapClaims{"exp": expiry}),
		"a number as sub":     forged(jwt.MapClaims{"sub": 5, "exp": expiry}),
		"a space in sub":      forged(jwt.MapClaims{"sub": "u 1", "exp": expiry}),
		"a line break in sub": forged(jwt.MapClaims{"sub": "u-1\n", "exp": expiry}),
		"a brace in sub":      forged(jwt.MapClaims{"sub": "{u}", "exp": expiry}),
		"a long sub":          forged(jwt.MapClaims{"sub": strings.Repeat("x", 65), "exp": expiry}),
		"an unknown role":     forged(jwt.MapClaims{"sub": "u-1", "exp": expiry, "role": "root"}),
		"a number as role":    forged(jwt.MapClaims{"sub": "u-1", "exp": expiry, "role": 1}),
		"valid but too long":  forged(jwt.MapClaims{"sub": "u-1", "exp": expiry, "x": strings.Repeat("x", maxTokenBytes)}),
		"a million dots":      strings.Repeat(".", 1_000_000),
		"dots, not too long":  strings.Repeat(".", maxTokenBytes),
	} {
		refuses(t, name, NewTokens(tokenSecret, at(tokenTime)), token)
	}
}

func TestSignRefuses(t *testing.T) {
	for name, who := range map[string]model.Identity{
		"no user":         {},
		"an invalid id":   {UserID: "u 1", Role: model.RoleBuyer},
		"no role":         {UserID: "u-1"},
		"an unknown role": {UserID: "u-1", Role: "root"},
	} {
		if token, err := sign(NewTokens(tokenSecret, at(tokenTime)), who); err == nil {
			t.Errorf("%s: signed %q", name, token)
		}
	}
}

// A token that was found valid before is refused after its expiry, and before its time if the clock is set back.
func TestCheckedTokensKeepTheirTimes(t *testing.T) {
	now := tokenTime
	tokens := NewTokens(tokenSecret, func() time.Time { return now })
	from, until := tokenTime.Truncate(time.Second), tokenTime.Truncate(time.Second).Add(time.Hour)
	token := forged(jwt.MapClaims{"sub": "u-1", "nbf": from.Unix(), "exp": until.Unix()})
	for _, moment := range []struct {
		name  string
		now   time.Time
		valid bool
	}{
		{"when checked", tokenTime, true},
		{"again", tokenTime, true},
		{"just before the expiry", until.Add(-1), true},
		{"at the expiry", until, false},
		{"at the expiry, again", until, false},
		{"an hour after the expiry", until.Add(time.Hour), false},
		{"set back before the expiry", until.Add(-1), true},
		{"at its start", from, true},
		{"set back before its start", from.Add(-1), false},
	} {
		now = moment.now
		if !moment.valid {
			refuses(t, moment.name, tokens, token)
			continue
		}
		check.Same(t, moment.name, check.Must(tokens.Verify(token)).UserID, "u-1")
	}
}

// A valid token in memory makes no similar token valid, and neither does a second try.
func TestForgedBesideChecked(t *testing.T) {
	tokens := NewTokens(tokenSecret, at(tokenTime))
	for _, issuer := range []string{"ours", "another's"} {
		genuine := tokenOf(tokens, issuer, "u-1")
		check.Must(tokens.Verify(genuine))
		parts := strings.Split(genuine, ".")
		for name, token := range map[string]string{
			"shorter":         genuine[:len(genuine)-1],
			"longer":          genuine + "A",
			"no signature":    parts[0] + "." + parts[1] + ".",
			"another key":     tokenOf(NewTokens([]byte("another"), at(tokenTime)), "ours", "u-1"),
			"other claims":    parts[0] + "." + encoded(`{"sub":"u-2","exp":9999999999,"role":"buyer"}`) + "." + parts[2],
			"a leading space": " " + genuine,
		} {
			for range 2 {
				refuses(t, issuer+", "+name, tokens, token)
			}
		}
	}
}

// Only valid tokens are kept in memory, within a bound.
func TestCheckedTokensAreBounded(t *testing.T) {
	tokens := NewTokens(tokenSecret, at(tokenTime))
	long := strings.Repeat("x", maxTokenBytes/2)
	tokenOf := func(user string) string {
		return forged(jwt.MapClaims{"sub": user, "exp": tokenTime.Add(time.Hour).Unix(), "x": long})
	}
	first := tokenOf("u-0")
	check.Must(tokens.Verify(first))
	for i := range 1000 {
		refuses(t, "a longer token", tokens, fmt.Sprint(first, i))
	}
	check.Same(t, "tokens in memory", tokens.checked.EstimatedSize(), 1)
	for i := range checkedTokensBytes/(len(first)+checkedTokenBytes) + 1000 {
		check.Must(tokens.Verify(tokenOf(fmt.Sprint("u-", i))))
	}
	tokens.checked.CleanUp()
	if weight := tokens.checked.WeightedSize(); weight > checkedTokensBytes {
		t.Errorf("%d bytes of tokens are kept, want at most %d", weight, checkedTokensBytes)
	}
	check.Must(tokens.Verify(first)) // whether in memory or not
}

func TestVerifyAtOnce(t *testing.T) {
	tokens := NewTokens(tokenSecret, at(tokenTime))
	check.Together(8, func(int) {
		for i := range 50 {
			who := model.Identity{UserID: fmt.Sprint("u-", i), Role: model.RoleBuyer}
			token := check.Must(sign(tokens, who))
			check.Same(t, "user", check.Must(tokens.Verify(token)), who)
			refuses(t, "longer", tokens, token+"A")
		}
	})
}

// A token of any head and claims with the right signature, which nobody else can make (genuine), or with any signature. An
// accepted token has the right signature, says HS256, has not expired and is of a possible user. The fast way accepts no
// other token than the library does, and returns the same user.
func FuzzToken(f *testing.F) {
	const hs256, expiry = `{"alg":"HS256","typ":"JWT"}`, "1794600000"
	const user = `{"sub":"u-1","exp":` + expiry
	for _, claims := range []string{
		user + `}`, user + `,"role":"buyer"}`, user + `,"role":"operator"}`, user + `,"role":"root"}`,
		user + `.5,"role":"operator","nbf":1}`, user + `,"role":"buyer","sub":"u-2"}`, user + `,"role":"buyer"} `,
		user + `,"role":"buyer","nbf":` + expiry + `}`,
		`{"sub":"u-1","exp":+` + expiry + `,"role":"buyer"}`, `{"sub":"u-1","exp":0` + expiry + `,"role":"buyer"}`,
		`{"sub":"u-1","exp":,"role":"buyer"}`, `{"sub":"u-1","exp":1,"role":"buyer"}`, `{"sub":"","exp":` + expiry + `,"role":"buyer"}`,
		`{"sub":"u 1","exp":` + expiry + `,"role":"buyer"}`, `{"sub":"u 1","exp":` + expiry + `}`,
		`{"sub":"` + strings.Repeat("x", 65) + `","exp":` + expiry + `,"role":"buyer"}`,
		`{"sub":"u-1"}`, `{"sub":"u-1","exp":null}`, `{"sub":"u-1","exp":1e999}`, `{"sub":"u-1","exp":"` + expiry + `"}`,
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
	} {
		f.Add(hs256, claims, "", true)
		f.Add(hs256, claims, "AAAA", false)
		f.Add(`{"alg":"none"}`, claims, "", true)
	}
	f.Add(`{"typ":"JWT","alg":"HS256","kid":"x"}`, `{"exp":1.7946e9,"sub":"u-1"}`, "", true)
	f.Add(`{"alg":"none"}`, user+`}`, "", false)
	f.Add(`{"alg":"HS512"}`, user+`}`, "", true)
	f.Add("", "", strings.Repeat(".", 100), false)
	f.Fuzz(func(t *testing.T, head, said, signature string, genuine bool) {
		signed := encoded(head) + "." + encoded(said)
		right := encoded(string(check.Must(jwt.SigningMethodHS256.Sign(signed, tokenSecret))))
		if genuine {
			signature = right
		}
		token := signed + "." + signature
		tokens := NewTokens(tokenSecret, at(tokenTime)) // without tokens in memory
		if fast, ok := tokens.ours(token); ok {
			slow, err := tokens.check(token)
			if err != nil || fast != slow.who {
				t.Errorf("%s: %+v, the library says %+v, %v", said, fast, slow.who, err)
			}
		}
		for _, wrong := range []string{token + "A", signed + "." + right[:len(right)-2] + "!" + right[len(right)-1:]} {
			if who, ok := tokens.ours(wrong); ok && wrong != signed+"."+right {
				t.Errorf("%s with a wrong signature: %+v", said, who)
			}
		}
		who, err := tokens.Verify(token)
		if err != nil {
			check.Same(t, "user of a refused token", who, model.Identity{})
			return
		}
		check.Same(t, "accepted signature", signature, right)
		var header struct{ Alg string }
		var claims struct {
			Sub string
			Exp json.Number // another issuer may write it as a text
		}
		if err := json.Unmarshal([]byte(head), &header); err != nil || header.Alg != "HS256" {
			t.Errorf("accepted with the head %q", head)
		}
		if err := json.Unmarshal([]byte(said), &claims); err != nil || claims.Exp == "" || claims.Sub != who.UserID {
			t.Fatalf("%q is of %+v, %v", said, who, err)
		}
		if expiry, err := claims.Exp.Float64(); err != nil || expiry < float64(tokenTime.Unix()) {
			t.Errorf("%q is accepted at %s", said, tokenTime)
		}
		if !model.ValidUserID(who.UserID) || !who.Role.Valid() {
			t.Errorf("%q is of %+v", said, who)
		}
	})
}
