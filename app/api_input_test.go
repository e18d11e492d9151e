package app

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/test/kit"
)

// Whatever stands in a purchase's body, it is refused as what it is, and nothing is sold.
func TestBadPurchaseBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"limit_per_user": 10000, "quota": 10000}).ID
	ann := s.buyer("ann")
	url := "/api/v1/sales/" + saleID + "/" + ann.path(saleID) + "/orders"
	before := s.balanced(saleID)
	tests := []struct {
		name, body string
		status     int
		code       string
	}{
		{"minus five", `{"quantity":-5}`, 400, "bad_request"},
		{"none", `{"quantity":0}`, 400, "bad_request"},
		{"minus none", `{"quantity":-0}`, 400, "bad_request"},
		{"one and a half", `{"quantity":1.5}`, 400, "bad_request"},
		{"one with a fraction", `{"quantity":1.0}`, 400, "bad_request"},
		{"one with an exponent", `{"quantity":1e0}`, 400, "bad_request"},
		{"more than the limit", `{"quantity":10001}`, 400, "bad_request"},
		{"2^31", `{"quantity":2147483648}`, 400, "bad_request"},
		{"2^32+1", `{"quantity":4294967297}`, 400, "bad_request"},
		{"2^63", `{"quantity":9223372036854775808}`, 400, "bad_request"},
		{"2^64+1", `{"quantity":18446744073709551617}`, 400, "bad_request"},
		{"beyond doubles", `{"quantity":1e309}`, 400, "bad_request"},
		{"a thousand digits", `{"quantity":` + strings.Repeat("9", 1000) + `}`, 400, "bad_request"},
		{"NaN", `{"quantity":NaN}`, 400, "bad_request"},
		{"hexadecimal", `{"quantity":0x1}`, 400, "bad_request"},
		{"a leading zero", `{"quantity":01}`, 400, "bad_request"},
		{"a text", `{"quantity":"1"}`, 400, "bad_request"},
		{"true", `{"quantity":true}`, 400, "bad_request"},
		{"null", `{"quantity":null}`, 400, "bad_request"},
		{"a list", `{"quantity":[]}`, 400, "bad_request"},
		{"a list of one", `{"quantity":[1]}`, 400, "bad_request"},
		{"an object", `{"quantity":{}}`, 400, "bad_request"},
		{"missing", `{}`, 400, "bad_request"},
		{"in capitals", `{"Quantity":1}`, 400, "bad_request"},
		{"with a look-alike", `{"quantıty":1}`, 400, "bad_request"},
		{"an unknown field", `{"quantity":1,"price_cents":1}`, 400, "bad_request"},
		{"the user", `{"quantity":1,"user_id":"ben"}`, 400, "bad_request"},
		{"twice", `{"quantity":1,"quantity":2}`, 400, "bad_request"},
		{"twice, once escaped", `{"quantity":1,"quantit\u0079":2}`, 400, "bad_request"},
		{"data behind it", `{"quantity":1}{"quantity":2}`, 400, "bad_request"},
		{"a word behind it", `{"quantity":1} x`, 400, "bad_request"},
		{"a comment", `{"quantity":1/**/}`, 400, "bad_request"},
		{"a comma too many", `{"quantity":1,}`, 400, "bad_request"},
		{"cut off", `{"quantity":1`, 400, "bad_request"},
		{"nothing", ``, 400, "bad_request"},
		{"white space", ` `, 400, "bad_request"},
		{"a bare number", `1`, 400, "bad_request"},
		{"a bare null", `null`, 400, "bad_request"},
		{"a list of bodies", `[{"quantity":1}]`, 400, "bad_request"},
		{"a byte order mark", "\ufeff" + `{"quantity":1}`, 400, "bad_request"},
		{"a NUL behind it", `{"quantity":1}` + "\x00", 400, "bad_request"},
		{"invalid UTF-8 in a name", "{\"quantity\":1,\"\xff\":1}", 400, "bad_request"},
		{"invalid UTF-8 in a value", "{\"quantity\":\"\xc3\x28\"}", 400, "bad_request"},
		{"UTF-16", "{\x00\"\x00q\x00\"\x00:\x001\x00}\x00", 400, "bad_request"},
		{"nested lists", `{"quantity":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, 400, "bad_request"},
		{"nested objects", `{"quantity":` + strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600) + `}`, 400, "bad_request"},
		{"nested without end", strings.Repeat("[", 4000), 400, "bad_request"},
		{"many fields", `{` + strings.Repeat(`"a":1,`, 600) + `"quantity":1}`, 400, "bad_request"},
		{"a byte too many", `{"quantity":1}` + strings.Repeat(" ", 4083), 413, "too_large"},
		{"five KiB", `{"quantity":1,"x":"` + strings.Repeat("x", 5<<10) + `"}`, 413, "too_large"},
		{"a MiB", strings.Repeat("x", 1<<20), 413, "too_large"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			a := ann.in(t).call("POST", url, tc.body)
			a.clean().refused(tc.status, tc.code)
			if len(a.body) > 1000 {
				t.Errorf("the refusal has %d bytes", len(a.body))
			}
		})
	}
	t.Run("five KiB of unknown length", func(t *testing.T) {
		ann := ann.in(t)
		req, err := ann.request(t.Context(), "POST", url, nil, "Content-Type", "application/json")
		if err != nil {
			t.Fatal(err)
		}
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"quantity":1`), bytes.NewReader(bytes.Repeat([]byte(" "), 5<<10)), strings.NewReader("}")))
		res, err := ann.from.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", res.StatusCode)
		}
	})
	for name, contentType := range map[string]string{
		"none": "", "a form": "application/x-www-form-urlencoded", "a text": "text/plain", "XML": "application/xml",
		"another JSON": "application/json-patch+json", "two": "application/json, text/plain", "broken": "application/json;;=", "a parent": "application",
	} {
		t.Run("content type: "+name, func(t *testing.T) {
			ann.in(t).call("POST", url, `{"quantity":1}`, "Content-Type", contentType).clean().refused(415, "unsupported_media_type")
		})
	}
	if after := s.balanced(saleID); !sameBooks(after, before) {
		t.Errorf("books %+v became %+v", before, after)
	}
	for name, body := range map[string]string{
		"with space around": " \r\n\t{ \"quantity\" : 1 }\r\n", "filled up to 4 KiB": `{"quantity":1}` + strings.Repeat(" ", 4082), "escaped": `{"quantit\u0079":1}`,
	} {
		t.Run("still good: "+name, func(t *testing.T) { ann.in(t).call("POST", url, body).want(201) })
	}
}

// Ids as no one issued them, wherever a path takes one, on both databases: what isn't there isn't found. The
// requests go out at once, since the server takes its time before it says of a sale that there is none.
func TestBadIDs(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*server{"SQLite": start(t), "MariaDB": start(t, onMariaDB(t, kit.Redis(t)))} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			made := s.createSale(nil)
			ann := s.buyer("ann")
			bought := ann.buy(made.ID, 1)
			before := s.balanced(made.ID)
			ids := map[string]string{
				"a NUL":              "%00",
				"a NUL behind":       made.ID + "%00",
				"invalid UTF-8":      "%ff%fe",
				"half a sign":        "AAAA%c3",
				"an emoji":           "%F0%9F%8D%B5",
				"spaces":             "%20%20",
				"a space behind":     made.ID + "%20",
				"a slash":            "a%2Fb",
				"the way up":         "..%2F..%2Fadmin",
				"very long":          strings.Repeat("A", 8000),
				"in small letters":   strings.ToLower(made.ID),
				"one letter off":     made.ID[:15] + "1",
				"an order's length":  strings.Repeat("A", 48),
				"another's tag":      bought.ID[:32] + strings.Repeat("A", 16),
				"in small, an order": strings.ToLower(bought.ID),
				"SQL":                url.PathEscape("' OR '1'='1"),
				"a wildcard":         "%25",
				"Redis keys":         url.PathEscape("{" + made.ID + "}:gate"),
				"a line break":       "a%0d%0aX-Evil:%201",
				"a number":           "0",
				"a negative":         "-1",
				"null":               "null",
			}
			routes := []struct{ method, before, after string }{
				{"GET", "/api/v1/sales/", ""},
				{"GET", "/api/v1/sales/", "/events"},
				{"POST", "/api/v1/sales/", "/path"},
				{"GET", "/api/v1/orders/", ""},
				{"DELETE", "/api/v1/orders/", ""},
				{"POST", "/api/v1/orders/", "/payments"},
				{"PATCH", "/api/v1/admin/sales/", ""},
				{"POST", "/api/v1/admin/sales/", "/pause"},
				{"GET", "/api/v1/admin/sales/", "/audit"},
				{"GET", "/api/v1/admin/sales/", "/orders"},
				{"GET", "/api/v1/admin/sales/", "/orders.csv"},
				{"GET", "/api/v1/admin/sales/", "/operations"},
				{"GET", "/api/v1/admin/sales/", "/live"},
				{"POST", "/api/v1/admin/orders/", "/refund"},
				{"GET", "/s/", ""},
				{"GET", "/pay/", ""},
				{"GET", "/sales/", ""},
			}
			var asked []probe
			for what, id := range ids {
				for _, r := range routes {
					asked = append(asked, probe{r.method + " " + r.before + what + r.after, s.operator(), r.method, r.before + id + r.after, fields{}, []int{404}})
				}
				asked = append(asked,
					probe{"a purchase in " + what, ann, "POST", "/api/v1/sales/" + id + "/" + ann.forgedPath(made.ID) + "/orders", fields{"quantity": 1}, []int{403, 404}},
					probe{"a path of " + what, ann, "POST", "/api/v1/sales/" + made.ID + "/" + id + "/orders", fields{"quantity": 1}, []int{403, 404}})
			}
			for what, id := range map[string]string{
				"invalid UTF-8": strings.Repeat("\xff", 48), "NUL": strings.Repeat("\x00", 48), "SQL": strings.Repeat("'", 48), "emoji": strings.Repeat("🍵", 12),
			} {
				cursor := base64.RawURLEncoding.EncodeToString([]byte("1." + id))
				asked = append(asked, probe{"a cursor of " + what, ann, "GET", "/api/v1/orders?cursor=" + cursor, nil, []int{200, 400}})
			}
			for what, name := range map[string]string{
				"an emoji": "🍵", "a NUL": "admin\x00", "capitals": "ADMIN", "a space behind": "admin ", "an accent": "ádmin",
				"SQL": "' OR 1=1 --", "nothing": "", "a thousand signs": strings.Repeat("a", 1000),
			} {
				asked = append(asked, probe{"a log-in with " + what, s.anyone(), "POST", "/api/v1/sessions", fields{"name": name, "password": adminPassword}, []int{401}})
			}
			askAll(t, asked)
			if after := s.balanced(made.ID); !sameBooks(after, before) {
				t.Errorf("books %+v became %+v", before, after)
			}
		})
	}
}

// probe is a request of which only its status is expected, and that it shows no internals.
type probe struct {
	name         string
	who          *client
	method, path string
	body         any
	want         []int
}

// askAll sends the requests, several at once, and has a subtest for each.
func askAll(t *testing.T, asked []probe) {
	t.Helper()
	answers, errs := make([]*answer, len(asked)), make([]error, len(asked))
	next := make(chan int)
	var askers sync.WaitGroup
	for range 16 {
		askers.Go(func() {
			for i := range next {
				p := asked[i]
				answers[i], errs[i] = p.who.try(t.Context(), p.method, p.path, p.body)
			}
		})
	}
	for i := range asked {
		next <- i
	}
	close(next)
	askers.Wait()
	for i, p := range asked {
		t.Run(p.name, func(t *testing.T) {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			a := answers[i]
			a.t = t
			if a.clean(); !slices.Contains(p.want, a.status) {
				t.Errorf("%d %.200s, want %v", a.status, a.body, p.want)
			}
		})
	}
}

// Names and passwords of new buyers.
func TestNewBuyers(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.anyone().call("POST", "/api/v1/users", fields{"name": "Ann", "password": "correct horse"}).want(201)
	for name, tc := range map[string]struct {
		body   any
		status int
		code   string
	}{
		"a name of two":          {fields{"name": "ab", "password": "correct horse"}, 400, "bad_request"},
		"a name of 33":           {fields{"name": strings.Repeat("a", 33), "password": "correct horse"}, 400, "bad_request"},
		"a name with a space":    {fields{"name": "a b c", "password": "correct horse"}, 400, "bad_request"},
		"a name with a NUL":      {fields{"name": "abc\x00", "password": "correct horse"}, 400, "bad_request"},
		"a name of emoji":        {fields{"name": "🍵🍵🍵", "password": "correct horse"}, 400, "bad_request"},
		"a name with a line":     {fields{"name": "abc\n", "password": "correct horse"}, 400, "bad_request"},
		"no name":                {fields{"password": "correct horse"}, 400, "bad_request"},
		"a password of seven":    {fields{"name": "Ben", "password": "1234567"}, 400, "bad_request"},
		"a password of 129":      {fields{"name": "Ben", "password": strings.Repeat("p", 129)}, 400, "bad_request"},
		"no password":            {fields{"name": "Ben"}, 400, "bad_request"},
		"a role":                 {fields{"name": "Ben", "password": "correct horse", "role": "operator"}, 400, "bad_request"},
		"a taken name":           {fields{"name": "Ann", "password": "another horse"}, 409, "name_taken"},
		"the operator's":         {fields{"name": "admin", "password": "correct horse"}, 409, "name_taken"},
		"the operator's, louder": {fields{"name": "ADMIN", "password": "correct horse"}, 409, "name_taken"},
	} {
		t.Run(name, func(t *testing.T) {
			s.in(t).anyone().call("POST", "/api/v1/users", tc.body).clean().refused(tc.status, tc.code)
		})
	}
	var one, two struct {
		User struct {
			ID   string `json:"id"`
			Name string `json:"name"`
			Role string `json:"role"`
		} `json:"user"`
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	s.anyone().call("POST", "/api/v1/users", fields{"name": "a.B_c-9", "password": "密码密码"}).want(201).read(&one)
	s.anyone().call("POST", "/api/v1/sessions", fields{"name": "a.B_c-9", "password": "密码密码"}).want(200).read(&two)
	if one.User != two.User || one.User.Role != "buyer" || time.Until(two.ExpiresAt) < 23*time.Hour {
		t.Errorf("%+v, then %+v", one, two)
	}
	s.anyone().call("POST", "/api/v1/sessions", fields{"name": "a.B_c-9", "password": "密码密碼"}).refused(401, "unauthenticated")
}

// Tokens that nobody with the secret has signed, or that say too little: all get the same answer.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(nil)
	good := signJWT(t, "HS256", testSecret, fields{"sub": "ann"}, time.Hour)
	parts := strings.Split(good, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	operator := fields{"sub": "ann", "role": "operator"}
	forged := map[string]string{
		"no signature":             "Bearer " + signJWT(t, "none", "", operator, time.Hour),
		"none, with the signature": "Bearer " + encode(`{"alg":"none","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"nOnE":                     "Bearer " + encode(`{"alg":"nOnE"}`) + "." + parts[1] + ".",
		"another key":              "Bearer " + signJWT(t, "HS256", strings.Repeat("k", 32), operator, time.Hour),
		"an empty key":             "Bearer " + signJWT(t, "HS256", "", operator, time.Hour),
		"HS512 with the key":       "Bearer " + signJWT(t, "HS512", testSecret, operator, time.Hour),
		"HS384 with the key":       "Bearer " + signJWT(t, "HS384", testSecret, operator, time.Hour),
		"no expiry":                "Bearer " + signJWT(t, "HS256", testSecret, operator, 0),
		"expired":                  "Bearer " + signJWT(t, "HS256", testSecret, operator, -time.Second),
		"expiry as a text":         "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "ann", "exp": "tomorrow"}, 0),
		"expiry null":              "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "ann", "exp": nil}, 0),
		"not yet good":             "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "ann", "nbf": time.Now().Add(time.Hour).Unix()}, time.Hour),
		"no user":                  "Bearer " + signJWT(t, "HS256", testSecret, fields{"role": "operator"}, time.Hour),
		"an empty user":            "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": ""}, time.Hour),
		"a user of 65 signs":       "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": strings.Repeat("x", 65)}, time.Hour),
		"a user with a space":      "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "a b"}, time.Hour),
		"a user with a brace":      "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "{x}"}, time.Hour),
		"a user with a NUL":        "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "ann\x00"}, time.Hour),
		"a user with a line":       "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "ann\n"}, time.Hour),
		"a user of emoji":          "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "🍵"}, time.Hour),
		"a user that is a number":  "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": 5}, time.Hour),
		"an unknown role":          "Bearer " + signJWT(t, "HS256", testSecret, fields{"sub": "ann", "role": "root"}, time.Hour),
		"a changed claim":          "Bearer " + parts[0] + "." + encode(fmt.Sprintf(`{"sub":"ann","role":"operator","exp":%d}`, time.Now().Add(time.Hour).Unix())) + "." + parts[2],
		"a changed signature":      "Bearer " + parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])),
		"no third part":            "Bearer " + parts[0] + "." + parts[1],
		"two parts too many":       "Bearer " + good + "." + parts[1] + "." + parts[2],
		"ten thousand dots":        "Bearer " + strings.Repeat(".", 10000),
		"a good one, made longer":  "Bearer " + good + strings.Repeat("A", 5000),
		"no scheme":                good,
		"another scheme":           "Basic " + good,
		"no token":                 "Bearer ",
		"nothing":                  "",
		"two spaces":               "Bearer  " + good,
	}
	var first string
	for name, header := range forged {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/api/v1/orders", "/api/v1/admin/stats", "/api/v1/admin/sales/" + made.ID + "/audit"} {
				a := s.in(t).anyone().call("GET", path, nil, "Authorization", header, "X-Request-ID", "same")
				a.clean().refused(401, "unauthenticated")
				if first == "" {
					first = string(a.body)
				}
				if string(a.body) != first {
					t.Errorf("%s tells more than %s", a.body, first)
				}
			}
		})
	}
	s.anyone().call("GET", "/api/v1/orders", nil, "Authorization", "bearer "+good).want(200)
}
