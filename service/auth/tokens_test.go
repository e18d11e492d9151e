package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flashsale/model"
)

var (
	tokenSecret = []byte("0123456789abcdef0123456789abcdef")
	tokenTime   = time.Date(2026, 11, 11, 20, 0, 0, 123456789, time.UTC)
)

func at(instant time.Time) func() time.Time { return func() time.Time { return instant } }

// forged signs whatever it is told to.
func forged(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokensRoundTrip(t *testing.T) {
	for _, who := range []model.Identity{
		{UserID: "u-1", Role: model.RoleBuyer},
		{UserID: "admin", Role: model.RoleOperator},
		{UserID: strings.Repeat("x", 64), Role: model.RoleBuyer},
	} {
		t.Run(who.UserID, func(t *testing.T) {
			token, expiresAt, err := NewTokens(tokenSecret, at(tokenTime)).Sign(who, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if want := tokenTime.Add(time.Hour).Truncate(time.Second); !expiresAt.Equal(want) || expiresAt.Location() != time.UTC {
				t.Errorf("expires at %s, want %s", expiresAt, want)
			}
			for _, age := range []struct {
				now  time.Time
				good bool
			}{{tokenTime, true}, {expiresAt.Add(-1), true}, {expiresAt, false}, {expiresAt.Add(time.Hour), false}} {
				got, err := NewTokens(tokenSecret, at(age.now)).Verify(token)
				if age.good && (err != nil || got != who) {
					t.Errorf("at %s: %+v, %v; want %+v", age.now, got, err, who)
				}
				if !age.good && !errors.Is(err, ErrBadToken) {
					t.Errorf("at %s: %+v, %v; want it expired", age.now, got, err)
				}
			}
		})
	}
}

func TestTokensOfOtherIssuers(t *testing.T) {
	expiry := tokenTime.Add(time.Hour).Unix()
	tests := map[string]struct {
		claims jwt.MapClaims
		want   model.Identity
	}{
		"without a role": {jwt.MapClaims{"sub": "u-1", "exp": expiry}, model.Identity{UserID: "u-1", Role: model.RoleBuyer}},
		"an operator's":  {jwt.MapClaims{"sub": "u-1", "exp": expiry, "role": "operator"}, model.Identity{UserID: "u-1", Role: model.RoleOperator}},
		"with much else": {jwt.MapClaims{"sub": "u-1", "exp": expiry, "iss": "shop", "aud": []string{"a"}, "x": 1}, model.Identity{UserID: "u-1", Role: model.RoleBuyer}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewTokens(tokenSecret, at(tokenTime)).Verify(forged(t, jwt.SigningMethodHS256, tokenSecret, tc.claims))
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	expiry := tokenTime.Add(time.Hour).Unix()
	good := jwt.MapClaims{"sub": "u-1", "exp": expiry}
	genuine := forged(t, jwt.SigningMethodHS256, tokenSecret, good)
	parts := strings.Split(genuine, ".")
	sign := func(claims jwt.MapClaims) string { return forged(t, jwt.SigningMethodHS256, tokenSecret, claims) }
	tests := map[string]string{
		"nothing":           "",
		"rubbish":           "rubbish",
		"alg none":          forged(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good),
		"alg None, bare":    base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"None"}`)) + "." + parts[1] + ".",
		"alg HS512":         forged(t, jwt.SigningMethodHS512, tokenSecret, good),
		"another key":       forged(t, jwt.SigningMethodHS256, []byte("another"), good),
		"no signature":      parts[0] + "." + parts[1] + ".",
		"other claims":      parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"u-2","exp":9999999999}`)) + "." + parts[2],
		"no exp":            sign(jwt.MapClaims{"sub": "u-1"}),
		"exp null":          sign(jwt.MapClaims{"sub": "u-1", "exp": nil}),
		"exp as words":      sign(jwt.MapClaims{"sub": "u-1", "exp": "tomorrow"}),
		"exp before time":   sign(jwt.MapClaims{"sub": "u-1", "exp": -1e300}),
		"expired":           sign(jwt.MapClaims{"sub": "u-1", "exp": tokenTime.Add(-time.Second).Unix()}),
		"not yet good":      sign(jwt.MapClaims{"sub": "u-1", "exp": expiry, "nbf": expiry - 1}),
		"no sub":            sign(jwt.MapClaims{"exp": expiry}),
		"a number as sub":   sign(jwt.MapClaims{"sub": 5, "exp": expiry}),
		"a blank in sub":    sign(jwt.MapClaims{"sub": "u 1", "exp": expiry}),
		"a line in sub":     sign(jwt.MapClaims{"sub": "u-1\n", "exp": expiry}),
		"a brace in sub":    sign(jwt.MapClaims{"sub": "{u}", "exp": expiry}),
		"a long sub":        sign(jwt.MapClaims{"sub": strings.Repeat("x", 65), "exp": expiry}),
		"an unknown role":   sign(jwt.MapClaims{"sub": "u-1", "exp": expiry, "role": "root"}),
		"a number as role":  sign(jwt.MapClaims{"sub": "u-1", "exp": expiry, "role": 1}),
		"good but too long": sign(jwt.MapClaims{"sub": "u-1", "exp": expiry, "x": strings.Repeat("x", maxTokenBytes)}),
		"a million dots":    strings.Repeat(".", 1_000_000),
		"dots, short":       strings.Repeat(".", maxTokenBytes),
	}
	for name, token := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewTokens(tokenSecret, at(tokenTime)).Verify(token)
			if !errors.Is(err, ErrBadToken) || got != (model.Identity{}) {
				t.Errorf("%+v, %v; want a bad token", got, err)
			}
		})
	}
}

func TestSignRefuses(t *testing.T) {
	tests := map[string]model.Identity{
		"nobody":          {},
		"a bad id":        {UserID: "u 1", Role: model.RoleBuyer},
		"no role":         {UserID: "u-1"},
		"an unknown role": {UserID: "u-1", Role: "root"},
	}
	for name, who := range tests {
		t.Run(name, func(t *testing.T) {
			if token, _, err := NewTokens(tokenSecret, at(tokenTime)).Sign(who, time.Hour); err == nil {
				t.Errorf("signed %q", token)
			}
		})
	}
}

// turned is a clock that the test turns.
type turned struct{ time.Time }

func (c *turned) now() time.Time { return c.Time }

// A token that was found good before is good no instant longer, and not before its time if the clock is set back.
func TestCheckedTokensKeepTheirTimes(t *testing.T) {
	clock := &turned{tokenTime}
	tokens := NewTokens(tokenSecret, clock.now)
	from, until := tokenTime.Truncate(time.Second), tokenTime.Truncate(time.Second).Add(time.Hour)
	token := forged(t, jwt.SigningMethodHS256, tokenSecret, jwt.MapClaims{"sub": "u-1", "nbf": from.Unix(), "exp": until.Unix()})
	for _, moment := range []struct {
		name string
		now  time.Time
		good bool
	}{
		{"when checked", tokenTime, true},
		{"again", tokenTime, true},
		{"at the last", until.Add(-1), true},
		{"expired", until, false},
		{"expired, again", until, false},
		{"long expired", until.Add(time.Hour), false},
		{"set back", until.Add(-1), true},
		{"at the first", from, true},
		{"set back too far", from.Add(-1), false},
	} {
		clock.Time = moment.now
		if got, err := tokens.Verify(token); (err == nil) != moment.good || moment.good != (got.UserID == "u-1") {
			t.Errorf("%s: %+v, %v; want it good: %t", moment.name, got, err, moment.good)
		}
	}
}

// A good token opens the door for no token that is like it.
func TestForgedBesideChecked(t *testing.T) {
	tokens := NewTokens(tokenSecret, at(tokenTime))
	for _, issuer := range []string{"ours", "another's"} {
		genuine := tokenOf(t, tokens, issuer, "u-1")
		if _, err := tokens.Verify(genuine); err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(genuine, ".")
		for name, token := range map[string]string{
			"cut":                   genuine[:len(genuine)-1],
			"longer":                genuine + "A",
			"the head and body":     parts[0] + "." + parts[1] + ".",
			"another key":           tokenOf(t, NewTokens([]byte("another"), at(tokenTime)), "ours", "u-1"),
			"another's, its MAC":    parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"u-2","exp":9999999999,"role":"buyer"}`)) + "." + parts[2],
			"with a blank at first": " " + genuine,
		} {
			for range 2 { // a refusal isn't forgotten either
				if got, err := tokens.Verify(token); !errors.Is(err, ErrBadToken) || got != (model.Identity{}) {
					t.Errorf("%s, %s: %+v, %v", issuer, name, got, err)
				}
			}
		}
	}
}

func TestCheckedTokensAreBounded(t *testing.T) {
	tokens := NewTokens(tokenSecret, at(tokenTime))
	long := strings.Repeat("x", maxTokenBytes/2)
	sign := func(user string) string {
		return forged(t, jwt.SigningMethodHS256, tokenSecret, jwt.MapClaims{"sub": user, "exp": tokenTime.Add(time.Hour).Unix(), "x": long})
	}
	first := sign("u-0")
	verify := func(token string, good bool) {
		t.Helper()
		if _, err := tokens.Verify(token); (err == nil) != good {
			t.Fatalf("%v, want it good: %t", err, good)
		}
	}
	verify(first, true)
	for i := range 1000 {
		verify(fmt.Sprintf("%s%d", first, i), false)
	}
	if size := tokens.checked.EstimatedSize(); size != 1 {
		t.Errorf("%d tokens are kept, want the good one", size)
	}
	for i := range checkedTokensBytes/(len(first)+checkedTokenBytes) + 1000 {
		verify(sign(fmt.Sprint("u-", i)), true)
	}
	tokens.checked.CleanUp()
	if weight := tokens.checked.WeightedSize(); weight > checkedTokensBytes {
		t.Errorf("%d bytes of tokens are kept, want at most %d", weight, checkedTokensBytes)
	}
	verify(first, true) // kept or not
}

func TestVerifyAtOnce(t *testing.T) {
	const callers, users = 8, 50
	tokens := NewTokens(tokenSecret, at(tokenTime))
	start := make(chan struct{})
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			<-start
			for i := range users {
				who := model.Identity{UserID: fmt.Sprint("u-", i), Role: model.RoleBuyer}
				token, _, err := tokens.Sign(who, time.Hour)
				if err != nil {
					t.Error(err)
				}
				if got, err := tokens.Verify(token); err != nil || got != who {
					t.Errorf("%+v, %v; want %+v", got, err, who)
				}
				if got, err := tokens.Verify(token + "A"); !errors.Is(err, ErrBadToken) {
					t.Errorf("forged: %+v, %v", got, err)
				}
			}
		})
	}
	close(start)
	running.Wait()
}

// tokenOf gives a buyer's token: ours, or another issuer's that says the same.
func tokenOf(tb testing.TB, tokens *Tokens, issuer, user string) string {
	tb.Helper()
	if issuer != "ours" {
		return forged(tb, jwt.SigningMethodHS256, tokenSecret, jwt.MapClaims{"sub": user, "exp": tokens.now().Add(time.Hour).Unix()})
	}
	token, _, err := tokens.Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// FuzzOurTokens holds the short way to the library: what it takes the library takes, and for the same user.
func FuzzOurTokens(f *testing.F) {
	const head, expiry = `{"alg":"HS256","typ":"JWT"}`, "1794600000"
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"operator"}`, "")
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"root"}`, "")
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer","sub":"u-2"}`, "")
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer","nbf":`+expiry+`}`, "")
	f.Add(head, `{"sub":"u-1","exp":+`+expiry+`,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"u-1","exp":0`+expiry+`,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"u-1","exp":,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"u-1","exp":1,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"","exp":`+expiry+`,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"u 1","exp":`+expiry+`,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"`+strings.Repeat("x", 65)+`","exp":`+expiry+`,"role":"buyer"}`, "")
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer"} `, "")
	f.Add(head, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer"}`, "A")
	f.Add(`{"alg":"none"}`, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer"}`, "")
	tokens := NewTokens(tokenSecret, at(tokenTime))
	f.Fuzz(func(t *testing.T, head, claims, behind string) {
		signed := base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		mac, err := jwt.SigningMethodHS256.Sign(signed, tokenSecret)
		if err != nil {
			t.Fatal(err)
		}
		token := signed + "." + base64.RawURLEncoding.EncodeToString(mac) + behind
		who, ok := tokens.ours(token)
		if want, err := tokens.check(token); ok && (err != nil || who != want.who) {
			t.Errorf("%s: %+v, the library says %+v, %v", claims, who, want.who, err)
		}
		if who, ok := tokens.ours(token[:len(token)-2] + "!" + token[len(token)-1:]); ok {
			t.Errorf("%s with another signature: %+v", claims, who)
		}
	})
}

// The tokens of Sign, of which there are as many as buyers, take the short way, and no memory.
func TestOurTokensAreNotKept(t *testing.T) {
	tokens := NewTokens(tokenSecret, at(tokenTime))
	for _, who := range []model.Identity{
		{UserID: "u-1", Role: model.RoleBuyer},
		{UserID: "OYPX5LVHT5Q36N4G", Role: model.RoleOperator},
		{UserID: strings.Repeat("x", 64), Role: model.RoleBuyer},
	} {
		token, _, err := tokens.Sign(who, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := tokens.ours(token); !ok || got != who {
			t.Errorf("%+v, %t; want %+v", got, ok, who)
		}
		if got, err := tokens.Verify(token); err != nil || got != who {
			t.Errorf("%+v, %v; want %+v", got, err, who)
		}
	}
	if kept := tokens.checked.EstimatedSize(); kept != 0 {
		t.Errorf("%d tokens are kept, want none", kept)
	}
}
