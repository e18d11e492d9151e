package fault

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/shop"
)

// attackRows are attacks by the content of requests: bodies, texts, tokens, paths, ids; and by buyers who never pay.
var attackRows = []row{
	{19, "malformed, oversized, deeply nested, duplicate-key JSON", "400 or 413, flat memory", badBodies},
	{20, "injection strings, NUL, emoji, case and accent variants in every text and id", "literal or refused; Redis and the database agree", strangeTexts},
	{21, "forged tokens: none, other algorithm, no exp, other key, a million dots", "401, flat memory", forgedTokens},
	{22, "path tokens forged, of another user or sale, expired", "403", forgedPaths},
	{23, "order and sale ids walked", "the same 404, in the same time, without a look-up", walkedIDs},
	{25, "bots that hold everything and never pay", "units return and are sold", botsThatNeverPay},
}

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
	entered, err := json.Marshal(shop.SaleOf(nil))
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
				headers := append(signed(shop.Secret, b.text), "Authorization", "Bearer "+route.token, "Content-Type", "application/json")
				var r reply
				var err error
				for r.status == 0 || r.status == http.StatusTooManyRequests { // all operators together may send 500 requests a second
					var body io.Reader = strings.NewReader(b.text)
					if b.chunked {
						body = io.MultiReader(body) // hides the length from net/http
					}
					if r, err = ask(d.Context(), client, route.method, a.URL+"/api/v1"+route.path, body, headers...); err != nil {
						break
					}
				}
				want := map[int]string{400: "400 bad_request", 413: "413 too_large"}[b.status]
				if err != nil || r.String() != want {
					d.wrong(r.status)("%s, %s: %s %v, want %s", name, b.what, r, err, want)
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
	operator := claimsOf("boss", "operator", hour) // of another issuer that has the secret
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
		"no exp":                     right(`{"sub":"boss","role":"operator"}`),
		"exp null":                   right(`{"sub":"boss","role":"operator","exp":null}`),
		"exp as a word":              right(`{"sub":"boss","role":"operator","exp":"tomorrow"}`),
		"exp as a list":              right(`{"sub":"boss","role":"operator","exp":[` + soon + `]}`),
		"exp in capitals":            right(`{"sub":"boss","role":"operator","EXP_":` + soon + `}`),
		"expired":                    right(claimsOf("boss", "operator", time.Now().Add(-time.Second))),
		"expired long ago":           right(`{"sub":"boss","role":"operator","exp":-1e300}`),
		"not good yet":               right(`{"sub":"boss","role":"operator","exp":` + soon + `,"nbf":` + soon + `}`),
		"no user":                    right(`{"role":"operator","exp":` + soon + `}`),
		"an unknown role":            right(claimsOf("boss", "root", hour)),
		"a list of roles":            right(`{"sub":"boss","role":["operator"],"exp":` + soon + `}`),
		"no log-in of the engine's":  right(claimsOf(service.OperatorName, "operator", hour)),
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
	buy := a.URL + "/api/v1/sales/" + d.sale + "/" + pathOf(shop.Secret, time.Now(), "boss", d.sale, time.Hour) + "/orders"
	told := 0
	attack := func() {
		for name, token := range forged {
			for _, at := range []struct{ method, address string }{
				{http.MethodPost, buy}, {http.MethodGet, a.URL + "/api/v1/orders"}, {http.MethodGet, a.URL + "/api/v1/admin/stats"},
			} {
				r := d.called(client, at.method, at.address, token, `{"quantity":1}`)
				if r.status != http.StatusUnauthorized || r.code() != "unauthenticated" {
					d.wrong(r.status)("%s: %s %s: %d %s", name, at.method, at.address, r.status, r.body)
				}
				told++
			}
		}
		// This header is longer than net/http allows: it answers before anything is parsed.
		dots := strings.Repeat(".", 1_000_000)
		if status := d.raw(a.URL, "GET /api/v1/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer "+dots+"\r\n\r\n"); status != 431 {
			d.wrong(status)("a million dots: %d", status)
		}
	}
	d.flat(a, size(5, 200), attack)
	if r := d.called(client, http.MethodGet, a.URL+"/api/v1/admin/stats", genuine, ""); r.status != http.StatusOK {
		d.wrong(r.status)("the genuine one: %d %s", r.status, r.body)
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
				d.wrong(r.status)("%s: %d %s", name, r.status, r.body)
			}
		}
		for _, thief := range []string{"54", "35", "5", "530", "053", "53.", service.OperatorName} {
			if r := try(address, thief, good); r.String() != "403 bad_path" {
				d.wrong(r.status)("the path of 53 with %s: %d %s", thief, r.status, r.body)
			}
		}
	}
	if books := d.Books(sale); books.Stock.Available != books.Stock.Quota {
		d.Errorf("the stock is %+v", books.Stock)
	}
	// A path that one instance has issued is valid at the other, for the same user.
	r := try(b.URL, "53", good)
	d.mustBe(r.status == http.StatusCreated, r.status, "the good path: %d %s", r.status, r.body)
	at := shop.Attempt{User: "53", URL: b.URL, Status: r.status, OrderID: path.Base(r.header.Get("Location"))}
	d.attempts = []shop.Attempt{at} // without a key, which the engine makes
	d.finish("%d paths at two instances: 403 each; the good one holds at either", len(forged)+7)
}

// lookups returns how many reads the database and how many commands Redis have had from all their clients.
func (d *drill) lookups() (reads, commands int) {
	d.Helper()
	reads, err := d.status(d.books.db, "Com_select")
	d.ok(err)
	return reads, d.figure(d.client(d.Redis), "stats", "total_commands_processed")
}

// cost returns how many look-ups the stores had while do ran, less those that they also have without guesses. idleReads
// and idleCommands are the look-ups of a second without guesses.
func (d *drill) cost(idleReads, idleCommands int, do func()) (reads, commands int) {
	d.Helper()
	reads, commands = d.lookups()
	start := time.Now()
	do()
	seconds := time.Since(start).Seconds()
	nowReads, nowCommands := d.lookups()
	return nowReads - reads - int(float64(idleReads)*seconds), nowCommands - commands - int(float64(idleCommands)*seconds)
}

func walkedIDs(d *drill) {
	d.stores()
	a := d.Start()
	d.sell(50, a)
	client := d.manyConnections()
	mine, theirs := d.buy("walker", "key", a.URL), d.buy("owner", "key", a.URL)
	d.attempts = []shop.Attempt{mine, theirs}
	d.told(d.attempts, "201")
	token := d.Token("walker")

	// The answers to all kinds of guesses have to be the same, and to take the same time.
	kinds := map[string]func(n int) string{
		"absent":              func(int) string { return d.sale + model.NewSaleID() + model.NewSaleID() },
		"someone else's":      func(int) string { return theirs.OrderID },
		"of one's own form":   func(int) string { return mine.OrderID[:32] + model.NewSaleID() },
		"with one's own tag":  func(int) string { return theirs.OrderID[:32] + mine.OrderID[32:] },
		"counted on from one": func(n int) string { return mine.OrderID[:44] + base32Digits(n) },
	}
	routes := []struct{ method, tail string }{{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPost, "/payments"}}
	times := map[string][]time.Duration{}
	guesses := 0
	walk := func(rounds int) {
		want := ""
		for n := range rounds {
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				id := kinds[kind](n)
				if id == mine.OrderID {
					continue
				}
				for _, route := range routes {
					r := d.called(client, route.method, a.URL+"/api/v1/orders/"+id+route.tail, token, "", "X-Request-Id", "same")
					d.mustBe(r.status == http.StatusNotFound, r.status, "%s: %d %s", kind, r.status, r.body)
					r.header.Del("Date")
					if got := fmt.Sprint(r.status, r.header, string(r.body)); want == "" {
						want = got
					} else if got != want {
						d.Fatalf("%s, %s%s: %s; the first was told %s", kind, route.method, route.tail, got, want)
					}
					times[kind] = append(times[kind], r.took)
					guesses++
				}
			}
		}
	}
	walk(5) // warm up connections and memory
	clear(times)
	guesses = 0

	const calm = time.Second
	idleReads, idleCommands := d.cost(0, 0, func() { <-time.After(calm) })
	reads, commands := d.cost(idleReads, idleCommands, func() { walk(size(30, 2_000)) })
	if budget := guesses / 5; reads > budget || commands > budget {
		d.Slowf("%d guesses of orders have cost %d reads of the database and %d commands to Redis", guesses, reads, commands)
	}
	var typical []time.Duration
	for _, list := range times {
		typical = append(typical, percentile(list, 50))
	}
	fastest, slowest := slices.Min(typical), slices.Max(typical)
	if slowest > 2*fastest+100*time.Microsecond {
		d.Slowf("half of the answers came within %v", typical)
	}

	// A guess of a sale costs no look-up of its own either: concurrent guesses share the look-up for new sales.
	sales := size(1_000, 20_000)
	salesReads, _ := d.cost(idleReads, idleCommands, func() {
		inParallel(50, sales, func(int) {
			id := model.NewSaleID()
			r, err := ask(d.Context(), client, http.MethodGet, a.URL+"/api/v1/sales/"+id, http.NoBody)
			if err != nil || r.status != http.StatusNotFound {
				d.wrong(r.status)("sale %s: %d %s %v", id, r.status, r.body, err)
			}
		})
	})
	if salesReads > sales/5 {
		d.Slowf("%d guesses of sales have cost %d reads of the database", sales, salesReads)
	}
	d.finish("%d guesses of orders, half of each kind answered within %s to %s, cost %d reads more than none; %d guesses of sales",
		guesses, fastest.Round(time.Microsecond), slowest.Round(time.Microsecond), max(reads, 0), sales)
}

func base32Digits(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	return string([]byte{digits[n>>15&31], digits[n>>10&31], digits[n>>5&31], digits[n&31]})
}

func botsThatNeverPay(d *drill) {
	d.stores()
	a, b := d.Start("--pay-grace", "0s"), d.Start("--pay-grace", "0s")
	const paySeconds = 8 // long enough for all bots to buy on a busy machine
	bots, quota := size(300, 5_000), size(100, 2_000)
	d.urls, d.quota = []string{a.URL, b.URL}, quota
	d.sale = d.SaleToPay(a.URL, quota, paySeconds)
	d.watched = d.watch(d.sale)
	d.attempts = d.Rush(d.sale, "bot", bots, nil, d.urls...)
	held := time.Now()
	d.told(d.attempts, "201", "409 sold_out")
	if counts := shop.Tally(d.attempts); counts["201 "] != quota { // orders of bots may have expired before the last bot came
		d.Slowf("the bots were told %v, want all %d units to be theirs", counts, quota)
	}

	// Each buyer tries until an attempt is confirmed, and pays at once.
	var mu sync.Mutex
	var first, last time.Duration
	paid := 0
	until := held.Add(paySeconds*time.Second + recoveryTime)
	inParallel(20, quota, func(n int) {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		var at shop.Attempt
		for try := 0; !at.Confirmed() && time.Now().Before(until); try++ {
			if at = d.buy(fmt.Sprint("buyer-", n), fmt.Sprint("key-", try), d.urls[n%2]); !at.Confirmed() {
				<-ticker.C
			}
		}
		done := at.Confirmed() && said(d.pay(at, at.URL).Status) == saidYes
		mu.Lock()
		defer mu.Unlock()
		d.attempts = append(d.attempts, at)
		if done {
			if last = time.Since(held); paid == 0 {
				first = last
			}
			paid++
		}
	})
	d.stop()
	books := d.Books(d.sale)
	if books.Stock.Paid < int64(paid) {
		d.Errorf("%d buyers were told that they have paid; the stock is %+v", paid, books.Stock)
	}
	if paid != quota || books.Stock.Paid != int64(quota) || books.Orders[model.OrderExpired] != int64(quota) {
		d.Slowf("%d of %d units were paid; the stock is %+v, the orders %v", paid, quota, books.Stock, books.Orders)
	}
	d.finish("%d bots held all %d units for %d s; then buyers had and paid them, the first %s after the rush, the last %s",
		bots, quota, paySeconds, first.Round(100*time.Millisecond), last.Round(100*time.Millisecond))
}
