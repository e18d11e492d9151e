package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"flashsale/model"
)

// FuzzToken makes tokens of any head, claims and signature; genuine ones have the right signature, which nobody else
// can make. Of those that are taken, the head says HS256, the time is not over, and the user may exist.
func FuzzToken(f *testing.F) {
	const hs256, expiry = `{"alg":"HS256","typ":"JWT"}`, "1794600000"
	f.Add(hs256, `{"sub":"u-1","exp":`+expiry+`,"role":"buyer"}`, "", true)
	f.Add(hs256, `{"sub":"u-1","exp":`+expiry+`}`, "", true)
	f.Add(hs256, `{"sub":"u-1","exp":`+expiry+`.5,"role":"operator","nbf":1}`, "", true)
	f.Add(`{"typ":"JWT","alg":"HS256","kid":"x"}`, `{"exp":1.7946e9,"sub":"u-1"}`, "", true)
	f.Add(`{"alg":"none"}`, `{"sub":"u-1","exp":`+expiry+`}`, "", true)
	f.Add(`{"alg":"none"}`, `{"sub":"u-1","exp":`+expiry+`}`, "", false)
	f.Add(`{"alg":"HS512"}`, `{"sub":"u-1","exp":`+expiry+`}`, "", true)
	f.Add(hs256, `{"sub":"u-1"}`, "", true)
	f.Add(hs256, `{"sub":"u-1","exp":null}`, "", true)
	f.Add(hs256, `{"sub":"u 1","exp":`+expiry+`}`, "", true)
	f.Add(hs256, `{"sub":"u-1","exp":1e999}`, "", true)
	f.Add(hs256, `{"sub":"u-1","exp":"`+expiry+`"}`, "", true)
	f.Add(hs256, strings.Repeat(`{"a":`, 200)+"1"+strings.Repeat("}", 200), "", true)
	f.Add(hs256, `{"sub":"u-1","exp":`+expiry+`}`, "AAAA", false)
	f.Add("", "", strings.Repeat(".", 100), false)
	f.Fuzz(func(t *testing.T, head, said, signature string, genuine bool) {
		encode := base64.RawURLEncoding.EncodeToString
		signed := encode([]byte(head)) + "." + encode([]byte(said))
		mac := hmac.New(sha256.New, tokenSecret)
		mac.Write([]byte(signed))
		right := encode(mac.Sum(nil))
		if genuine {
			signature = right
		}
		tokens := NewTokens(tokenSecret, at(tokenTime)) // afresh: what was found good is kept
		who, err := tokens.Verify(signed + "." + signature)
		if err != nil {
			if who != (model.Identity{}) {
				t.Errorf("refused, and yet %+v", who)
			}
			return
		}
		if signature != right {
			t.Fatalf("%s with the signature %q is %+v's", signed, signature, who)
		}
		var header struct {
			Alg string `json:"alg"`
		}
		var claims struct {
			Sub string      `json:"sub"`
			Exp json.Number `json:"exp"` // another issuer may write it as a text
		}
		if err := json.Unmarshal([]byte(head), &header); err != nil || header.Alg != "HS256" {
			t.Errorf("taken with the head %q", head)
		}
		if err := json.Unmarshal([]byte(said), &claims); err != nil || claims.Exp == "" || claims.Sub != who.UserID {
			t.Fatalf("%q is %+v's, %v", said, who, err)
		}
		if expiry, err := claims.Exp.Float64(); err != nil || expiry < float64(tokenTime.Unix()) {
			t.Errorf("%q is taken at %s", said, tokenTime)
		}
		if !model.ValidUserID(who.UserID) || who.Role != model.RoleBuyer && who.Role != model.RoleOperator {
			t.Errorf("%q is %+v's", said, who)
		}
	})
}

// FuzzPasswordHash holds that no stored hash asks for more work or memory than a few log-ins may cost.
func FuzzPasswordHash(f *testing.F) {
	const salt, hash = "$c29tZXNhbHQ", "$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	for _, cost := range []string{"m=19456,t=2,p=1", "m=0,t=1,p=1", "m=65537,t=1,p=1", "m=8,t=17,p=1", "m=8,t=1,p=256", "m=-1,t=1,p=1", "m=8,t=1,p=1,x=1", "m=8, t=1,p=1", ""} {
		f.Add("$argon2id$v=19$" + cost + salt + hash)
	}
	f.Add("$argon2id$v=19$m=8,t=1,p=1$$")
	f.Fuzz(func(t *testing.T, phc string) {
		a, hash, err := parsePHC(phc)
		if err == nil && (a.memoryKiB > maxStoredMemoryKiB || a.passes == 0 || a.passes > maxStoredPasses || a.lanes == 0 || len(hash) == 0) {
			t.Errorf("%q is taken as %+v with a hash of %d bytes", phc, a, len(hash))
		}
	})
}
