package fault

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"flashsale/service"
	"flashsale/test/kit/shop"
)

// claimsOf returns a token's claims in JSON, as another issuer may write them.
func claimsOf(user, role string, expires time.Time) string {
	text, _ := json.Marshal(map[string]any{"sub": user, "role": role, "exp": expires.Unix()}) // a map of texts and numbers
	return string(text)
}

// signedToken signs any header and claims with an HMAC.
func signedToken(algorithm func() hash.Hash, head, claims, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(head)) + "." + encode([]byte(claims))
	mac := hmac.New(algorithm, []byte(secret))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

func forgedTokens(d *drill) {
	d.stores()
	a := d.StartWith(leanly)
	d.sell(50, a)
	client := d.manyConnections()
	const hs256, other = `{"alg":"HS256","typ":"JWT"}`, "another secret of more than 32 bytes"
	hour := time.Now().Add(time.Hour)
	operator := claimsOf(service.OperatorName, "operator", hour)
	genuine := signedToken(sha256.New, hs256, operator, shop.Secret)
	parts := strings.Split(genuine, ".")
	encode := base64.RawURLEncoding.EncodeToString
	none := func(head string) string { return encode([]byte(head)) + "." + parts[1] + "." }
	changed := func(claims string) string { return parts[0] + "." + encode([]byte(claims)) + "." + parts[2] }
	right := func(claims string) string { return signedToken(sha256.New, hs256, claims, shop.Secret) }
	soon := strconv.FormatInt(hour.Unix(), 10)
	forged := map[string]string{
		"nothing":                    "",
		"a word":                     "token",
		"alg none":                   none(`{"alg":"none","typ":"JWT"}`),
		"alg none, with a signature": none(`{"alg":"none","typ":"JWT"}`) + parts[2],
		"alg NonE":                   none(`{"alg":"NonE"}`),
		"alg empty":                  none(`{"alg":""}`),
		"alg null":                   none(`{"alg":null}`),
		"no alg":                     none(`{}`),
		"no signature":               parts[0] + "." + parts[1] + ".",
		"two parts":                  parts[0] + "." + parts[1],
		"HS384 with the key":         signedToken(sha512.New384, `{"alg":"HS384"}`, operator, shop.Secret),
		"HS512 with the key":         signedToken(sha512.New, `{"alg":"HS512"}`, operator, shop.Secret),
		"HS512 that says HS256":      signedToken(sha512.New, hs256, operator, shop.Secret),
		"HS256 that says RS256":      signedToken(sha256.New, `{"alg":"RS256"}`, operator, shop.Secret),
		"HS256 that says ES256":      signedToken(sha256.New, `{"alg":"ES256"}`, operator, shop.Secret),
		"a key by its own header":    signedToken(sha256.New, `{"alg":"HS256","jwk":{"kty":"oct","k":"a2V5"},"kid":"../../dev/null","jku":"http://127.0.0.1/"}`, operator, "key"),
		"another key":                signedToken(sha256.New, hs256, operator, other),
		"an empty key":               signedToken(sha256.New, hs256, operator, ""),
		"the key's beginning":        signedToken(sha256.New, hs256, operator, shop.Secret[:32]),
		"a buyer made operator":      changed(claimsOf("ann", "operator", hour)),
		"another's":                  changed(claimsOf("ann", "buyer", hour)),
		"no exp":                     right(`{"sub":"admin","role":"operator"}`),
		"exp null":                   right(`{"sub":"admin","role":"operator","exp":null}`),
		"exp as a word":              right(`{"sub":"admin","role":"operator","exp":"tomorrow"}`),
		"exp as a list":              right(`{"sub":"admin","role":"operator","exp":[` + soon + `]}`),
		"exp in capitals":            right(`{"sub":"admin","role":"operator","EXP_":` + soon + `}`),
		"expired":                    right(claimsOf("admin", "operator", time.Now().Add(-time.Second))),
		"expired long ago":           right(`{"sub":"admin","role":"operator","exp":-1e300}`),
		"not good yet":               right(`{"sub":"admin","role":"operator","exp":` + soon + `,"nbf":` + soon + `}`),
		"no user":                    right(`{"role":"operator","exp":` + soon + `}`),
		"an unknown role":            right(claimsOf("admin", "root", hour)),
		"a list of roles":            right(`{"sub":"admin","role":["operator"],"exp":` + soon + `}`),
		"deep claims":                signedToken(sha256.New, hs256, strings.Repeat(`{"a":`, 500)+"1"+strings.Repeat("}", 500), other),
		"genuine, and more behind":   genuine + "A",
		"genuine, with a bit more":   genuine[:len(genuine)-1] + otherDigit(genuine[len(genuine)-1]),
		"genuine, and dots behind":   genuine + "..",
		"genuine, padded":            genuine + "=",
		"genuine, too long":          genuine + strings.Repeat("A", 8_000),
		"twelve thousand dots":       strings.Repeat(".", 12_000),
		"one dot":                    ".",
		"long parts":                 strings.Repeat("A", 4_000) + "." + strings.Repeat("A", 4_000) + "." + strings.Repeat("A", 4_000),
	}
	buy := a.URL + "/api/v1/sales/" + d.sale + "/" + pathOf(shop.Secret, time.Now(), service.OperatorName, d.sale, time.Hour) + "/orders"
	told := 0
	attack := func() {
		for name, token := range forged {
			for _, at := range []struct{ method, address string }{
				{http.MethodPost, buy}, {http.MethodGet, a.URL + "/api/v1/orders"}, {http.MethodGet, a.URL + "/api/v1/admin/stats"},
			} {
				r := d.called(client, at.method, at.address, token, `{"quantity":1}`)
				if r.status != http.StatusUnauthorized || r.code() != "unauthenticated" {
					d.Errorf("%s: %s %s: %d %s", name, at.method, at.address, r.status, r.body)
				}
				told++
			}
		}
		// This header is longer than net/http allows: it answers before anything is parsed.
		dots := strings.Repeat(".", 1_000_000)
		if status := d.raw(a.URL, "GET /api/v1/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer "+dots+"\r\n\r\n"); status != 431 {
			d.Errorf("a million dots: %d", status)
		}
	}
	d.flat(a, size(5, 200), attack)
	if r := d.called(client, http.MethodGet, a.URL+"/api/v1/admin/stats", genuine, ""); r.status != http.StatusOK {
		d.Errorf("the genuine one: %d %s", r.status, r.body)
	}
	d.finish("%d forged tokens at three routes: %d times 401; a million dots: 431, the header is cut off", len(forged), told)
}

// otherDigit returns a base64 digit that differs from digit in a significant bit.
func otherDigit(digit byte) string {
	if digit == 'A' {
		return "Q"
	}
	return "A"
}

func forgedPaths(d *drill) {
	d.stores()
	a, b := d.Start(), d.Start()
	d.sell(50, a, b)
	sale, other := d.sale, d.Sale(a.URL, d.quota)
	client := d.manyConnections()
	issued := func(address, user, sale string) string {
		d.Helper()
		return text(d.Must(http.StatusOK, http.MethodPost, address+"/api/v1/sales/"+sale+"/path", d.Token(user), nil), "path")
	}
	now := time.Now()
	good := issued(a.URL, "53", sale)
	forged := map[string]string{
		"of another user":            issued(a.URL, "54", sale),
		"of another sale":            issued(a.URL, "53", other),
		"of both others":             issued(b.URL, "5", other),
		"run together":               pathOf(shop.Secret, now, "53"+sale[:1], sale[1:], time.Hour),
		"run together the other way": pathOf(shop.Secret, now, "5", "3"+sale, time.Hour),
		"expired a second ago":       pathOf(shop.Secret, now.Add(-61*time.Second), "53", sale, time.Minute),
		"expired a day ago":          pathOf(shop.Secret, now.Add(-25*time.Hour), "53", sale, time.Hour),
		"of another secret":          pathOf("another secret of more than 32 bytes", now, "53", sale, time.Hour),
		"with another's MAC":         good[:8] + issued(a.URL, "5", sale)[8:],
		"of a later hour":            fmt.Sprintf("%08x", now.Add(time.Hour).Unix()) + good[8:],
		"of the last day there is":   "ffffffff" + good[8:],
		"in capitals":                strings.ToUpper(good),
		"a digit short":              good[:31],
		"a digit longer":             good + "0",
		"twice":                      good + good,
		"zeros":                      strings.Repeat("0", 32),
		"the user's own id":          "53",
		"the word":                   "path",
	}
	for i := range good { // every digit is checked
		digit := "0"
		if good[i] == '0' {
			digit = "1"
		}
		forged[fmt.Sprintf("with digit %d changed", i)] = good[:i] + digit + good[i+1:]
	}
	try := func(address, user, path string) reply {
		d.Helper()
		return d.called(client, http.MethodPost, address+"/api/v1/sales/"+sale+"/"+path+"/orders", d.Token(user), `{"quantity":1}`)
	}
	for _, address := range d.urls {
		for name, path := range forged {
			if r := try(address, "53", path); r.String() != "403 bad_path" {
				d.Errorf("%s: %d %s", name, r.status, r.body)
			}
		}
		for _, thief := range []string{"54", "35", "5", "530", "053", "53.", service.OperatorName} {
			if r := try(address, thief, good); r.String() != "403 bad_path" {
				d.Errorf("the path of 53 with %s: %d %s", thief, r.status, r.body)
			}
		}
	}
	if books := d.Books(sale); books.Stock.Available != books.Stock.Quota {
		d.Errorf("the stock is %+v", books.Stock)
	}
	// A path that one instance has issued is valid at the other, for the same user.
	r := try(b.URL, "53", good)
	if r.status != http.StatusCreated {
		d.Fatalf("the good path: %d %s", r.status, r.body)
	}
	at := shop.Attempt{User: "53", URL: b.URL, Status: r.status, OrderID: path.Base(r.header.Get("Location"))}
	d.attempts = []shop.Attempt{at} // without a key, which the engine makes
	d.finish("%d paths at two instances: 403 each; the good one holds at either", len(forged)+7)
}
