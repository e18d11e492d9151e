package fault

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"flashsale/test/kit/shop"
)

// The largest body that a route accepts, in bytes. Only operators write long texts.
const (
	buyersBody    = 4 << 10
	operatorsBody = 16 << 10
)

// badBody is a body that every route refuses.
type badBody struct {
	what    string
	text    string
	chunked bool // sent without a Content-Length
	status  int
}

// badBodyList returns bad bodies for a route that accepts bodies of at most taken bytes.
func badBodyList(taken int) []badBody {
	nested := func(open, inner, closing string, depth int) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(closing, depth)
	}
	return []badBody{
		{"nothing", "", false, 400},
		{"half an object", `{"quantity":1`, false, 400},
		{"an open text", `{"quantity":"1`, false, 400},
		{"a list", `[{"quantity":1}]`, false, 400},
		{"null", `null`, false, 400},
		{"a number", `1`, false, 400},
		{"two objects", `{"quantity":1}{"quantity":1}`, false, 400},
		{"something behind", `{"quantity":1}x`, false, 400},
		{"a comma too many", `{"quantity":1,}`, false, 400},
		{"single quotes", `{'quantity':1}`, false, 400},
		{"a comment", `{/**/"quantity":1}`, false, 400},
		{"NaN", `{"quantity":NaN}`, false, 400},
		{"a byte order mark", "\ufeff" + `{"quantity":1}`, false, 400},
		{"no UTF-8", "{\"quantity\":1,\"\xff\":1}", false, 400},
		{"UTF-16", "\xff\xfe{\x00\"\x00q\x00\"\x00:\x001\x00}\x00", false, 400},
		{"a NUL behind", "{\"quantity\":1}\x00", false, 400},
		{"a key twice", `{"quantity":1,"quantity":1}`, false, 400},
		{"a key twice, escaped", `{"quantity":1,"quantit\u0079":1}`, false, 400},
		{"a key in capitals", `{"Quantity":1}`, false, 400},
		{"a key twice, deeper", `{"title":{"a":1,"a":2}}`, false, 400},
		{"an unknown key", `{"quantity":1,"price_cents":0}`, false, 400},
		{"a prototype", `{"__proto__":{"quantity":1}}`, false, 400},
		{"a large number", `{"quantity":1e309}`, false, 400},
		{"a long number", `{"quantity":1` + strings.Repeat("0", 3_000) + `}`, false, 400},
		{"deep lists", nested("[", "", "]", 2_000), false, 400},
		{"deep lists that stay open", nested("[", "", "", taken), false, 400},
		{"deep objects", nested(`{"a":`, "1", "}", 600), false, 400},
		{"deep objects in a field", `{"quantity":` + nested(`{"a":`, "1", "}", 600) + `}`, false, 400},
		{"a byte too many", `{"quantity":1` + strings.Repeat(" ", taken-13) + `}`, false, 413},
		{"a megabyte", `{"quantity":1` + strings.Repeat(" ", 1<<20) + `}`, false, 413},
		{"a megabyte in pieces", `{"quantity":1` + strings.Repeat(" ", 1<<20) + `}`, true, 413},
		{"a megabyte of depth", nested("[", "", "]", 1<<19), true, 413},
		{"a megabyte of keys", `{` + strings.Repeat(`"quantity":1,`, 80_000) + `"quantity":1}`, true, 413},
	}
}

func badBodies(d *drill) {
	d.stores()
	a := d.StartWith(leanly)
	d.sell(50, a)
	client := d.manyConnections()
	user, operator := d.Token("writer"), d.Operator(a.URL)
	d.attempts = []shop.Attempt{d.buy("owner", "key", a.URL)}
	entered, err := json.Marshal(saleOf(nil))
	d.ok(err)
	path := "/sales/" + d.sale + "/" + pathOf(shop.Secret, time.Now(), "writer", d.sale, time.Hour)
	// doubled is a valid body of the route, except that it has one key twice.
	routes := map[string]struct {
		method, path, token, doubled string
		taken                        int
	}{
		"purchase": {http.MethodPost, path + "/orders", user, `{"quantity":1, "quantity":1}`, buyersBody},
		"account":  {http.MethodPost, "/users", "", `{"name":"dora","name":"dora","password":"correct horse"}`, buyersBody},
		"log-in":   {http.MethodPost, "/sessions", "", `{"name":"admin","password":"guess","password":"guess"}`, buyersBody},
		"sale":     {http.MethodPost, "/admin/sales", operator, `{"title":"drill",` + string(entered[1:]), operatorsBody},
		"change":   {http.MethodPatch, "/admin/sales/" + d.sale, operator, `{"title":"drill","title":"drill"}`, operatorsBody},
		"callback": {
			http.MethodPost, "/payments/callback", "",
			`{"payment_id":"A","provider_txn_id":"t","status":"failed","status":"succeeded","amount_cents":1}`, buyersBody,
		},
	}
	told := map[int]int{}
	attack := func() {
		for name, route := range routes {
			for _, b := range append(badBodyList(route.taken), badBody{"its own with a key twice", route.doubled, false, 400}) {
				var body io.Reader = strings.NewReader(b.text)
				if b.chunked {
					body = io.MultiReader(body) // hides the length from net/http
				}
				headers := append(signed(shop.Secret, b.text), "Authorization", "Bearer "+route.token, "Content-Type", "application/json")
				r, err := ask(d.Context(), client, route.method, a.URL+"/api/v1"+route.path, body, headers...)
				want := map[int]string{400: "400 bad_request", 413: "413 too_large"}[b.status]
				if err != nil || r.String() != want {
					d.Errorf("%s, %s: %s %v, want %s", name, b.what, r, err, want)
				}
				if len(r.body) > 1<<10 {
					d.Errorf("%s, %s: an answer of %d bytes", name, b.what, len(r.body))
				}
				told[r.status]++
			}
		}
	}
	d.flat(a, size(3, 50), attack)
	d.finish("%d bodies at %d routes: %d times 400, %d times 413", len(badBodyList(buyersBody))+1, len(routes), told[400], told[413])
}
