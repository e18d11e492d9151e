package drill

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/testkit/shop"
)

// attackRows are attacks by what is said: bodies, texts, tokens, paths, ids; and buyers who never pay.
var attackRows = []row{
	{19, "malformed, oversized, deeply nested, duplicate-key JSON", "400 or 413, flat memory", badBodies},
	{20, "injection strings, NUL, emoji, case and accent variants in every text and id", "literal or refused; Redis and the database agree", strangeTexts},
	{21, "forged tokens: none, other algorithm, no exp, other key, a million dots", "401, flat memory", forgedTokens},
	{22, "path tokens forged, of another user or sale, expired", "403", forgedPaths},
	{23, "order and sale ids walked", "the same 404, in the same time, without a look-up", walkedIDs},
	{25, "bots that hold everything and never pay", "units return and are sold", botsThatNeverPay},
}

// openSale makes an open sale as the operator enters it, and gives its id.
func (d *drill) openSale(s *shop.Shop, address string, changes shop.Document) string {
	d.Helper()
	id, _ := s.Must(http.StatusCreated, http.MethodPost, address+"/api/v1/admin/sales", s.Operator(address), saleOf(changes))["id"].(string)
	return id
}

// saleOf is a sale of a thousand units, one for each user, with changes.
func saleOf(changes shop.Document) shop.Document {
	body := shop.Document{
		"title": "drill", "price_cents": 100, "quota": 1_000, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}
	maps.Copy(body, changes)
	return body
}

// pathOf is a good path of a user for a sale: at an instant, until a time to live is over.
func pathOf(secret string, at time.Time, user, sale string, ttl time.Duration) string {
	path, _ := service.NewPaths([]byte(secret), func() time.Time { return at }).Issue(user, sale, ttl)
	return path
}

// called makes a request of a buyer.
func (d *drill) called(client *http.Client, method, address, token, body string, headers ...string) reply {
	d.Helper()
	r, err := ask(d.Context(), client, method, address, strings.NewReader(body), append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}, headers...)...)
	if err != nil {
		d.Fatalf("%s %.100s: %v", method, address, err)
	}
	return r
}

// badBody is one that no route takes.
type badBody struct {
	what    string
	text    string
	chunked bool // its length isn't announced
	status  int
}

func badBodyList() []badBody {
	const taken = 4 << 10 // what a body may have
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
	s := shop.New(d)
	a := s.StartWith(leanly)
	const quota = 50
	sale := s.Sale(a.URL, quota)
	client := d.manyConnections()
	user, operator := s.Token("writer"), s.Operator(a.URL)
	order := shop.Attempt{User: "owner", Key: "key", URL: a.URL}
	s.Buy(&order, sale)
	entered, err := json.Marshal(saleOf(nil))
	if err != nil {
		d.Fatal(err)
	}
	// Each route's own body, right but for a key that comes twice.
	routes := map[string]struct{ method, path, token, doubled string }{
		"purchase": {http.MethodPost, "/sales/" + sale + "/" + pathOf(shop.Secret, time.Now(), "writer", sale, time.Hour) + "/orders", user, `{"quantity":1, "quantity":1}`},
		"account":  {http.MethodPost, "/users", "", `{"name":"dora","name":"dora","password":"correct horse"}`},
		"log-in":   {http.MethodPost, "/sessions", "", `{"name":"admin","password":"guess","password":"guess"}`},
		"sale":     {http.MethodPost, "/admin/sales", operator, `{"title":"drill",` + string(entered[1:])},
		"change":   {http.MethodPatch, "/admin/sales/" + sale, operator, `{"title":"drill","title":"drill"}`},
		"callback": {http.MethodPost, "/payments/callback", "", `{"payment_id":"A","provider_txn_id":"t","status":"failed","status":"succeeded","amount_cents":1}`},
	}
	told := map[string]int{}
	attack := func() {
		for name, route := range routes {
			for _, b := range append(badBodyList(), badBody{"its own with a key twice", route.doubled, false, 400}) {
				timestamp := strconv.FormatInt(time.Now().Unix(), 10)
				var body io.Reader = strings.NewReader(b.text)
				if b.chunked {
					body = io.MultiReader(body) // which hides the length
				}
				r, err := ask(d.Context(), client, route.method, a.URL+"/api/v1"+route.path, body,
					"Authorization", "Bearer "+route.token, "Content-Type", "application/json",
					"X-Timestamp", timestamp, "X-Signature", service.SignCallback([]byte(shop.Secret), timestamp, []byte(b.text)))
				want := map[int]string{400: "bad_request", 413: "too_large"}[b.status]
				if err != nil || r.status != b.status || r.code() != want {
					d.Errorf("%s, %s: %d %s %v, want %d %s", name, b.what, r.status, r.code(), err, b.status, want)
				}
				if len(r.body) > 1<<10 {
					d.Errorf("%s, %s: an answer of %d bytes", name, b.what, len(r.body))
				}
				told[fmt.Sprint(r.status)]++
			}
		}
	}
	d.flat(a, size(3, 50), attack)
	d.result.Happened = fmt.Sprintf("%d bodies at %d routes: %d times 400, %d times 413", len(badBodyList())+1, len(routes), told["400"], told["413"])
	d.recovered(s, sale, quota, []shop.Attempt{order}, a.URL)
}

// strange are texts that mean something to a database, a shell, a page, a template, a log or Redis, and texts that
// look, sort or fold like another.
var strange = []string{
	`' OR '1'='1`, `"; DROP TABLE orders; -- `, `1; DELETE FROM stock`, `\'; SELECT 1`, "`id`", "%s%n%x", "${jndi:ldap://x/y}", "{{7*7}}", "$(id)",
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "../../../etc/passwd", "..%2f..%2f", "%00", "a\x00b", "a\nb", "a\r\nX-More: 1", "a\tb", "\x1b[31m", "\u0085",
	"{sale}", "fs:{x}:gate", "*3\r\n$3\r\nSET\r\n", "*", "?", "[a-z]", "🍵", "👨‍👩‍👧", "茶壶", "é", "e\u0301", "É", "Ａ", "ß", "ss", "İ", "ı", "ﬁ", "Ω", "Ω",
	"a b", " a", "a ", "a\u00a0", "\u200b", "\u202etxt", "\ufeff", "\ufffd", "𝒜", "null", "NULL", "nil", "true", "0", "00", "-1", "1e3", "0x10", "NaN", "__proto__", "constructor",
	strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("茶", 200), "",
}

// folded are ids that are all different, although a database or a language may hold some for one.
var folded = []string{"ann", "Ann", "ANN", "aNN", "ann.", "ann_", "ann-", "ann:", "ann1", "0", "00", "0.0", "-0", "1e3", "1000", "null", "NULL", "true", "NaN", "9007199254740993", "9007199254740992", "requests:ann", "..", "-"}

// foldedKeys are request keys of the same kind.
var foldedKeys = []string{
	"key", "Key", "KEY", "kEY", "key.", "key'", `key"`, "key;--", "'OR'1'='1", `"`, `\`, `\\`, "%", "%00", "%20", "_", "*", "?", "[k]", "{k}", "${k}", "<k>", "`k`", "0", "00", "1e3", "1000", "null", "NULL",
	"9007199254740993", "9007199254740992", "~", "!", strings.Repeat("k", 128), strings.Repeat("k", 127), strings.Repeat("K", 128),
}

func strangeTexts(d *drill) {
	s := shop.New(d)
	a := s.Start()
	quota := len(folded) + 50
	sale, keysSale := s.Sale(a.URL, quota), d.openSale(s, a.URL, shop.Document{"limit_per_user": len(foldedKeys)})
	client := d.manyConnections()
	refused, literal := 0, 0

	// Users: one whose id has no such form is nobody.
	for _, text := range slices.Concat(strange, folded) {
		token := signedToken(sha256.New, `{"alg":"HS256","typ":"JWT"}`, claimsOf(d, text, "buyer", time.Now().Add(time.Hour)), shop.Secret)
		r := d.called(client, http.MethodGet, a.URL+"/api/v1/orders", token, "")
		want := http.StatusUnauthorized
		if model.ValidUserID(text) {
			want = http.StatusOK
			literal++
		} else {
			refused++
		}
		if r.status != want {
			d.Errorf("user %q: %d %s, want %d", text, r.status, r.body, want)
		}
	}

	// Users and keys that differ by a letter's case, and the like, are as many orders, each the same again.
	bought := func(sale, user, key string) shop.Attempt {
		d.Helper()
		at := shop.Attempt{User: user, Key: key, URL: a.URL}
		r, err := knock(d.Context(), client, s, &at, sale)
		if err != nil || r.status != http.StatusCreated {
			d.Fatalf("%q under the key %q: %d %s %v", user, key, r.status, r.body, err)
		}
		return at
	}
	orders := map[string][]shop.Attempt{}
	for _, user := range folded {
		orders[sale] = append(orders[sale], bought(sale, user, "key"))
	}
	for _, key := range foldedKeys {
		orders[keysSale] = append(orders[keysSale], bought(keysSale, "keys", key))
	}
	seen := map[string]shop.Attempt{}
	repeat := func(where string) {
		d.Helper()
		for sale, attempts := range orders {
			for _, at := range attempts {
				if same := bought(sale, at.User, at.Key); same.OrderID != at.OrderID {
					d.Errorf("%s: %q under %q has %s and %s", where, at.User, at.Key, at.OrderID, same.OrderID)
				}
			}
		}
	}
	for _, at := range slices.Concat(orders[sale], orders[keysSale]) {
		if other, ok := seen[at.OrderID]; ok {
			d.Errorf("%q under %q and %q under %q have the order %s", at.User, at.Key, other.User, other.Key, at.OrderID)
		}
		seen[at.OrderID] = at
		literal++
	}
	repeat("again")
	for _, key := range strange {
		if !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Contains(key, "\n") {
			continue // a good one, or one that would be two lines
		}
		if status := d.rawKey(a, s, sale, key); status != http.StatusBadRequest {
			d.Errorf("the key %q: %d, want 400", key, status)
		}
		refused++
	}

	// Sales: what the operator enters comes back as it was, in JSON, in the page and from the database, or is refused.
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
	for _, text := range strange {
		for _, fields := range [][]string{{"title", "description"}, {"description"}, {"image_url"}, {"currency"}} {
			changes := shop.Document{}
			for _, field := range fields {
				changes[field] = text
			}
			body, err := json.Marshal(saleOf(changes))
			if err != nil {
				d.Fatal(err)
			}
			r := d.called(client, http.MethodPost, a.URL+"/api/v1/admin/sales", s.Operator(a.URL), string(body))
			if r.status == http.StatusBadRequest && r.code() == "bad_request" {
				refused++
				continue
			}
			literal++
			d.literally(client, s, books.db, a.URL, fields, text, r)
			if len(fields) > 1 {
				break // nothing new by itself
			}
		}
	}

	// Ids in a URL, queries and names: nothing there, or refused.
	refused += d.inURLs(client, s, a.URL, sale)
	for _, text := range strange {
		if plainName(text) {
			continue
		}
		name, err := json.Marshal(text)
		if err != nil {
			d.Fatal(err)
		}
		if r := d.called(client, http.MethodPost, a.URL+"/api/v1/users", "", fmt.Sprintf(`{"name":%s,"password":"correct horse"}`, name)); r.status != http.StatusBadRequest {
			d.Errorf("the name %q: %d %s", text, r.status, r.body)
		}
		refused++
	}
	for _, id := range []string{strings.ToLower(sale), sale + " ", sale + "%20", sale + "\x00"} {
		if r := d.called(client, http.MethodGet, a.URL+"/api/v1/sales/"+url.PathEscape(id), "", ""); r.status != http.StatusNotFound {
			d.Errorf("sale %q: %d", id, r.status)
		}
	}
	d.accounts(client, a.URL)

	// Both stores hold the same users and orders; and the database alone finds the same order for each.
	for _, id := range []string{sale, keysSale} {
		s.Audited(a.URL, id)
		d.storesAgree(s, books.db, id)
	}
	s.Redis.Kill()
	repeat("without Redis")
	s.Redis.Restart()
	d.result.Happened = fmt.Sprintf("%d texts taken literally, %d refused; %d users and %d keys that look alike are as many orders, in both stores",
		literal, refused, len(folded), len(foldedKeys))
	d.recovered(s, sale, int64(quota), orders[sale], a.URL)
}

// inURLs puts each text where an id, a path or a query stands, and gives how often it was refused.
func (d *drill) inURLs(client *http.Client, s *shop.Shop, address, sale string) (refused int) {
	d.Helper()
	good := pathOf(shop.Secret, time.Now(), "reader", sale, time.Hour)
	var readers sync.WaitGroup // all at once: who asks for an unknown sale waits for a look for new ones
	for _, text := range strange {
		if text == "" || strings.Contains(text, "/") {
			continue // another route
		}
		in := url.PathEscape(text)
		tests := []struct {
			method, path string
			want         int
		}{
			{http.MethodGet, "/sales/" + in, 404},
			{http.MethodPost, "/sales/" + in + "/path", 404},
			{http.MethodPost, "/sales/" + in + "/" + good + "/orders", 403},
			{http.MethodPost, "/sales/" + sale + "/" + in + "/orders", 403},
			{http.MethodGet, "/orders/" + in, 404},
			{http.MethodDelete, "/orders/" + in, 404},
			{http.MethodPost, "/orders/" + in + "/payments", 404},
			{http.MethodGet, "/orders?cursor=" + url.QueryEscape(text), 400},
			{http.MethodGet, "/orders?limit=" + url.QueryEscape(text), 400},
		}
		refused += len(tests)
		readers.Go(func() {
			for _, tc := range tests {
				r, err := ask(d.Context(), client, tc.method, address+"/api/v1"+tc.path, strings.NewReader(`{"quantity":1}`),
					"Authorization", "Bearer "+s.Token("reader"), "Content-Type", "application/json")
				if err != nil || r.status != tc.want {
					d.Errorf("%s %q: %d %.100s %v, want %d", tc.method, tc.path, r.status, r.body, err, tc.want)
				}
			}
		})
	}
	readers.Wait()
	return refused
}

// plainName says whether an account may have the name.
func plainName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(name) >= 3 && len(name) <= 32 && strings.Trim(name, letters) == ""
}

// rawKey sends a request key byte by byte, since Go's client refuses some of them, and gives the answer's status.
func (d *drill) rawKey(i *shop.Instance, s *shop.Shop, sale, key string) int {
	d.Helper()
	conn, err := new(net.Dialer).DialContext(d.Context(), "tcp", strings.TrimPrefix(i.URL, "http://"))
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	request := fmt.Sprintf("POST /api/v1/sales/%s/%s/orders HTTP/1.0\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 14\r\nIdempotency-Key: x%sx\r\n\r\n{\"quantity\":1}",
		sale, pathOf(shop.Secret, time.Now(), "reader", sale, time.Hour), s.Token("reader"), key)
	if _, err := io.WriteString(conn, request); err != nil {
		d.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(shop.Recovery))
	answer, _ := io.ReadAll(conn) // cut off behind what was refused
	if len(answer) < len("HTTP/1.0 400") {
		d.Fatalf("the key %q: the answer is %q", key, answer)
	}
	status, _ := strconv.Atoi(string(answer[9:12]))
	return status
}

// literally checks that a sale shows a text as it was entered.
func (d *drill) literally(client *http.Client, s *shop.Shop, db *sql.DB, address string, fields []string, text string, made reply) {
	d.Helper()
	var doc shop.Document
	if err := json.Unmarshal(made.body, &doc); err != nil || made.status != http.StatusCreated {
		d.Fatalf("%s %q: %d %s %v", fields, text, made.status, made.body, err)
	}
	id, _ := doc["id"].(string)
	shown := s.Must(http.StatusOK, http.MethodGet, address+"/api/v1/sales/"+id, "", nil)
	for _, field := range fields {
		var kept string
		if err := db.QueryRowContext(d.Context(), "SELECT "+field+" FROM sales WHERE id = ?", id).Scan(&kept); err != nil {
			d.Fatal(err)
		}
		if doc[field] != text || shown[field] != text || kept != text {
			d.Errorf("%s %q became %q, %q and, in the database, %q", field, text, doc[field], shown[field], kept)
		}
	}
	page, err := ask(d.Context(), client, http.MethodGet, address+"/sales/"+id, http.NoBody)
	if err != nil || page.status != http.StatusOK {
		d.Fatalf("the page of %q: %d %v", text, page.status, err)
	}
	if strings.ContainsAny(text, "<>") && strings.Contains(string(page.body), text) {
		d.Errorf("the page shows %q as markup", text)
	}
	if fields[0] == "title" && !strings.Contains(html.UnescapeString(string(page.body)), text) {
		d.Errorf("the page does not show %q", text)
	}
	for _, header := range []string{"Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy"} {
		if page.header.Get(header) == "" {
			d.Errorf("a page without %s", header)
		}
	}
}

// accounts checks that names that differ by case are two accounts, and that a password is taken to its last byte.
func (d *drill) accounts(client *http.Client, address string) {
	d.Helper()
	call := func(path, name, password string) reply {
		d.Helper()
		body, err := json.Marshal(shop.Document{"name": name, "password": password})
		if err != nil {
			d.Fatal(err)
		}
		return d.called(client, http.MethodPost, address+"/api/v1"+path, "", string(body))
	}
	const secret = "pässwörd\x00🍵' --"
	for _, name := range []string{"carol", "Carol"} {
		if r := call("/users", name, secret+name); r.status != http.StatusCreated {
			d.Errorf("the account %q: %d %s", name, r.status, r.body)
		}
	}
	for _, tc := range []struct {
		name, password string
		want           int
	}{
		{"carol", secret + "carol", 200},
		{"Carol", secret + "Carol", 200},
		{"carol", secret + "Carol", 401},
		{"CAROL", secret + "carol", 401},
		{"carol", "pässwörd", 401},
		{"carol", strings.ReplaceAll(secret, "ä", "a\u0308") + "carol", 401},
		{"carol", secret + "carol ", 401},
		{"carol ", secret + "carol", 401},
		{"' OR '1'='1", secret, 401},
	} {
		if r := call("/sessions", tc.name, tc.password); r.status != tc.want {
			d.Errorf("%q with %q: %d, want %d", tc.name, tc.password, r.status, tc.want)
		}
	}
	for _, name := range []string{"Admin", "ADMIN"} {
		if r := call("/users", name, secret); r.status != http.StatusConflict {
			d.Errorf("a second operator %q: %d", name, r.status)
		}
	}
}

// storesAgree compares what Redis and the database know of a sale's users and orders.
func (d *drill) storesAgree(s *shop.Shop, db *sql.DB, sale string) {
	d.Helper()
	client := d.client(s.Redis)
	for key, query := range map[string]string{
		"units": "SELECT user_id, units FROM buyers WHERE sale_id = ? AND units > 0",
		"ids":   "SELECT id, CONCAT(quantity, ':', request_hash) FROM orders WHERE sale_id = ?",
	} {
		atGate, err := client.HGetAll(d.Context(), "fs:{"+sale+"}:"+key).Result()
		if err != nil {
			d.Fatal(err)
		}
		delete(atGate, "") // the gate's own mark, nobody's
		if kept := d.pairs(db, query, sale); len(kept) == 0 || !maps.Equal(atGate, kept) {
			d.Errorf("%s of %s: Redis has %v, the database %v", key, sale, atGate, kept)
		}
	}
}

// pairs reads rows of two texts.
func (d *drill) pairs(db *sql.DB, query string, args ...any) map[string]string {
	d.Helper()
	rows, err := db.QueryContext(d.Context(), query, args...)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	found := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			d.Fatal(err)
		}
		found[name] = value
	}
	if err := rows.Err(); err != nil {
		d.Fatal(err)
	}
	return found
}

// claimsOf are a token's claims as another issuer writes them.
func claimsOf(d *drill, user, role string, expires time.Time) string {
	d.Helper()
	text, err := json.Marshal(map[string]any{"sub": user, "role": role, "exp": expires.Unix()})
	if err != nil {
		d.Fatal(err)
	}
	return string(text)
}

// signedToken signs any head and claims with an HMAC.
func signedToken(algorithm func() hash.Hash, head, claims, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(head)) + "." + encode([]byte(claims))
	mac := hmac.New(algorithm, []byte(secret))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

func forgedTokens(d *drill) {
	s := shop.New(d)
	a := s.StartWith(leanly)
	const quota = 50
	sale := s.Sale(a.URL, quota)
	client := d.manyConnections()
	const hs256, other = `{"alg":"HS256","typ":"JWT"}`, "another secret of more than 32 bytes"
	hour := time.Now().Add(time.Hour)
	operator := claimsOf(d, service.OperatorName, "operator", hour)
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
		"a buyer made operator":      changed(claimsOf(d, "ann", "operator", hour)),
		"another's":                  changed(claimsOf(d, "ann", "buyer", hour)),
		"no exp":                     right(`{"sub":"admin","role":"operator"}`),
		"exp null":                   right(`{"sub":"admin","role":"operator","exp":null}`),
		"exp as a word":              right(`{"sub":"admin","role":"operator","exp":"tomorrow"}`),
		"exp as a list":              right(`{"sub":"admin","role":"operator","exp":[` + soon + `]}`),
		"exp in capitals":            right(`{"sub":"admin","role":"operator","EXP_":` + soon + `}`),
		"expired":                    right(claimsOf(d, "admin", "operator", time.Now().Add(-time.Second))),
		"expired long ago":           right(`{"sub":"admin","role":"operator","exp":-1e300}`),
		"not good yet":               right(`{"sub":"admin","role":"operator","exp":` + soon + `,"nbf":` + soon + `}`),
		"no user":                    right(`{"role":"operator","exp":` + soon + `}`),
		"an unknown role":            right(claimsOf(d, "admin", "root", hour)),
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
	buy := a.URL + "/api/v1/sales/" + sale + "/" + pathOf(shop.Secret, time.Now(), service.OperatorName, sale, time.Hour) + "/orders"
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
		// No header may be as long; net/http itself says so, before anything is parsed.
		if status := d.shout(a, "Bearer "+strings.Repeat(".", 1_000_000)); status != http.StatusRequestHeaderFieldsTooLarge {
			d.Errorf("a million dots: %d", status)
		}
	}
	d.flat(a, size(5, 200), attack)
	if r := d.called(client, http.MethodGet, a.URL+"/api/v1/admin/stats", genuine, ""); r.status != http.StatusOK {
		d.Errorf("the genuine one: %d %s", r.status, r.body)
	}
	d.result.Happened = fmt.Sprintf("%d forged tokens at three routes: %d times 401; a million dots: 431, the header is cut off", len(forged), told)
	d.recovered(s, sale, quota, nil, a.URL)
}

// otherDigit changes a base64 digit in a bit that counts.
func otherDigit(digit byte) string {
	if digit == 'A' {
		return "Q"
	}
	return "A"
}

// shout sends a request with an enormous Authorization and gives the answer's status, 0 if the server has only hung up.
func (d *drill) shout(i *shop.Instance, authorization string) int {
	d.Helper()
	conn, err := new(net.Dialer).DialContext(d.Context(), "tcp", strings.TrimPrefix(i.URL, "http://"))
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(shop.Recovery)); err != nil {
		d.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, "GET /api/v1/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: "+authorization+"\r\n\r\n") // the server listens to the beginning only
	}()
	answer := make([]byte, len("HTTP/1.1 431"))
	_, err = io.ReadFull(conn, answer)
	_ = conn.Close()
	<-sent
	if err != nil {
		return 0
	}
	status, _ := strconv.Atoi(string(answer[9:]))
	return status
}

func forgedPaths(d *drill) {
	s := shop.New(d)
	a, b := s.Start(), s.Start()
	const quota = 50
	sale, other := s.Sale(a.URL, quota), s.Sale(a.URL, quota)
	client := d.manyConnections()
	issued := func(address, user, sale string) string {
		d.Helper()
		path, _ := s.Must(http.StatusOK, http.MethodPost, address+"/api/v1/sales/"+sale+"/path", s.Token(user), nil)["path"].(string)
		return path
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
	for i := range good { // each digit counts
		digit := "0"
		if good[i] == '0' {
			digit = "1"
		}
		forged[fmt.Sprintf("with digit %d changed", i)] = good[:i] + digit + good[i+1:]
	}
	try := func(address, user, path string) reply {
		d.Helper()
		return d.called(client, http.MethodPost, address+"/api/v1/sales/"+sale+"/"+path+"/orders", s.Token(user), `{"quantity":1}`)
	}
	for _, address := range []string{a.URL, b.URL} {
		for name, path := range forged {
			if r := try(address, "53", path); r.status != http.StatusForbidden || r.code() != "bad_path" {
				d.Errorf("%s: %d %s", name, r.status, r.body)
			}
		}
		for _, thief := range []string{"54", "35", "5", "530", "053", "53.", service.OperatorName} {
			if r := try(address, thief, good); r.status != http.StatusForbidden || r.code() != "bad_path" {
				d.Errorf("the path of 53 with %s: %d %s", thief, r.status, r.body)
			}
		}
	}
	books := s.Books(sale)
	if books.Stock.Available != quota {
		d.Errorf("the stock is %+v", books.Stock)
	}
	// What one instance has handed out holds at the other, for its user.
	at := shop.Attempt{User: "53", URL: b.URL}
	r := try(b.URL, "53", good)
	at.Status = r.status
	if at.OrderID = strings.TrimPrefix(r.header.Get("Location"), "/api/v1/orders/"); r.status != http.StatusCreated {
		d.Errorf("the good path: %d %s", r.status, r.body)
	}
	order, ok, err := s.DB.Order(d.Context(), at.OrderID)
	if err != nil || !ok {
		d.Fatalf("order %s: found %t, %v", at.OrderID, ok, err)
	}
	at.Key = order.RequestKey
	d.result.Happened = fmt.Sprintf("%d paths at two instances: 403 each; the good one holds at either", len(forged)+7)
	d.recovered(s, sale, quota, []shop.Attempt{at}, a.URL, b.URL)
}

// lookups counts what the stores were asked, by whomever.
func (d *drill) lookups(s *shop.Shop, db *sql.DB) (reads, commands int64) {
	d.Helper()
	var name string
	if err := db.QueryRowContext(d.Context(), "SHOW GLOBAL STATUS LIKE 'Com_select'").Scan(&name, &reads); err != nil {
		d.Fatal(err)
	}
	return reads, int64(d.figure(d.client(s.Redis), "stats", "total_commands_processed"))
}

func walkedIDs(d *drill) {
	s := shop.New(d)
	a := s.Start()
	const quota = 50
	sale := s.Sale(a.URL, quota)
	client := d.manyConnections()
	mine, theirs := shop.Attempt{User: "walker", Key: "key", URL: a.URL}, shop.Attempt{User: "owner", Key: "key", URL: a.URL}
	for _, at := range []*shop.Attempt{&mine, &theirs} {
		if s.Buy(at, sale); !at.Confirmed() {
			d.Fatalf("%s was told %d %s", at.User, at.Status, at.Code)
		}
	}
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
	token := s.Token("walker")

	// Each guess is of a kind; all kinds have to look alike, also to a clock.
	kinds := map[string]func(n int) string{
		"absent":              func(int) string { return sale + model.NewSaleID() + model.NewSaleID() },
		"someone else's":      func(int) string { return theirs.OrderID },
		"of one's own form":   func(int) string { return mine.OrderID[:32] + model.NewSaleID() },
		"with one's own tag":  func(int) string { return theirs.OrderID[:32] + mine.OrderID[32:] },
		"counted on from one": func(n int) string { return mine.OrderID[:44] + base32Digits(n) },
	}
	names := slices.Sorted(maps.Keys(kinds))
	times := map[string][]time.Duration{}
	walk := func(rounds int) (guesses int) {
		want := ""
		for n := range rounds {
			for _, kind := range names {
				id := kinds[kind](n)
				if id == mine.OrderID {
					continue
				}
				for _, route := range []struct{ method, tail string }{{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPost, "/payments"}} {
					r := d.called(client, route.method, a.URL+"/api/v1/orders/"+id+route.tail, token, "", "X-Request-Id", "same")
					r.header.Del("Date")
					if got := fmt.Sprint(r.status, r.header, string(r.body)); want == "" {
						want = got
					} else if got != want {
						d.Fatalf("%s, %s%s: %s; the first was told %s", kind, route.method, route.tail, got, want)
					}
					if r.status != http.StatusNotFound {
						d.Fatalf("%s: %d %s", kind, r.status, r.body)
					}
					times[kind] = append(times[kind], r.took)
					guesses++
				}
			}
		}
		return guesses
	}
	walk(5) // connections and memory warm up
	clear(times)

	// What the stores are asked anyway, in a while in which nobody guesses.
	const calm = time.Second
	database, commands := d.lookups(s, books.db)
	<-time.After(calm)
	idleDatabase, idleRedis := d.lookups(s, books.db)
	idleDatabase, idleRedis = idleDatabase-database, idleRedis-commands

	database, commands = d.lookups(s, books.db)
	start := time.Now()
	guesses := walk(size(100, 2_000))
	seconds := time.Since(start).Seconds()
	nowDatabase, nowRedis := d.lookups(s, books.db)
	asked := nowDatabase - database - int64(float64(idleDatabase)*seconds)
	askedRedis := nowRedis - commands - int64(float64(idleRedis)*seconds)
	if budget := int64(guesses / 5); asked > budget || askedRedis > budget {
		d.Errorf("%d guesses of orders have cost %d reads of the database and %d commands to Redis", guesses, asked, askedRedis)
	}
	typical := map[string]time.Duration{}
	for kind, list := range times {
		typical[kind] = percentile(list, 50)
	}
	fastest, slowest := slices.Min(slices.Collect(maps.Values(typical))), slices.Max(slices.Collect(maps.Values(typical)))
	if slowest > 2*fastest+100*time.Microsecond {
		d.Errorf("half of the answers came within %v", typical)
	}

	// Sales: a guess costs no look-up of its own either; those who guess at once share the look for what is new.
	database, _ = d.lookups(s, books.db)
	start = time.Now()
	var walkers sync.WaitGroup
	sales := size(1_000, 20_000)
	guess := make(chan string, sales)
	for range sales {
		guess <- model.NewSaleID()
	}
	close(guess)
	for range 50 {
		walkers.Go(func() {
			for id := range guess {
				r, err := ask(d.Context(), client, http.MethodGet, a.URL+"/api/v1/sales/"+id, http.NoBody)
				if err != nil || r.status != http.StatusNotFound {
					d.Errorf("sale %s: %d %s %v", id, r.status, r.body, err)
				}
			}
		})
	}
	walkers.Wait()
	seconds = time.Since(start).Seconds()
	nowDatabase, _ = d.lookups(s, books.db)
	if asked := nowDatabase - database - int64(float64(idleDatabase)*seconds); asked > int64(sales/5) {
		d.Errorf("%d guesses of sales have cost %d reads of the database", sales, asked)
	}
	d.result.Happened = fmt.Sprintf("%d guesses of orders, half of each kind answered within %s to %s, cost %d reads more than none; %d guesses of sales",
		guesses, fastest.Round(time.Microsecond), slowest.Round(time.Microsecond), max(asked, 0), sales)
	d.recovered(s, sale, quota, []shop.Attempt{mine, theirs}, a.URL)
}

// base32Digits are four digits that count.
func base32Digits(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	return string([]byte{digits[n>>15&31], digits[n>>10&31], digits[n>>5&31], digits[n&31]})
}

func botsThatNeverPay(d *drill) {
	s := shop.New(d)
	a, b := s.Start("--pay-grace", "0s"), s.Start("--pay-grace", "0s")
	const paySeconds = 4
	bots, quota := size(300, 5_000), size(100, 2_000)
	sale := d.openSale(s, a.URL, shop.Document{"quota": quota, "pay_timeout_seconds": paySeconds})
	watched := d.watch(s, sale)
	attempts := s.Rush(sale, "bot", bots, nil, a.URL, b.URL)
	held := time.Now()
	counts := shop.Tally(attempts)
	if counts["201 "] != quota || counts["409 sold_out"] != bots-quota {
		d.Errorf("the bots were told %v, want all %d units to be theirs", counts, quota)
	}

	// Buyers ask until they have one, and pay at once.
	var mu sync.Mutex
	var buyers sync.WaitGroup
	var first, last time.Duration
	paid := 0
	until := held.Add(paySeconds*time.Second + shop.Recovery)
	next := make(chan int, quota)
	for n := range quota {
		next <- n
	}
	close(next)
	for range 20 {
		buyers.Go(func() {
			ticker := time.NewTicker(50 * time.Millisecond)
			defer ticker.Stop()
			for n := range next {
				at := shop.Attempt{User: fmt.Sprint("buyer-", n), URL: []string{a.URL, b.URL}[n%2]}
				for try := 0; !at.Confirmed() && time.Now().Before(until); try++ {
					at.Key = fmt.Sprint("key-", try)
					if s.Buy(&at, sale); !at.Confirmed() {
						<-ticker.C
					}
				}
				done := at.Confirmed() && d.pays(s, at)
				mu.Lock()
				attempts = append(attempts, at)
				if done {
					if last = time.Since(held); paid == 0 {
						first = last
					}
					paid++
				}
				mu.Unlock()
			}
		})
	}
	buyers.Wait()
	watched()
	books := s.Books(sale)
	if paid != quota || books.Stock.Paid != int64(quota) || books.Orders[model.OrderExpired] != int64(quota) {
		d.Errorf("%d of %d units were paid; the stock is %+v, the orders %v", paid, quota, books.Stock, books.Orders)
	}
	d.result.Happened = fmt.Sprintf("%d bots held all %d units for %d s; then buyers had and paid them, the first %s after the rush, the last %s",
		bots, quota, paySeconds, first.Round(100*time.Millisecond), last.Round(100*time.Millisecond))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}

// pays pays an order as its buyer and the provider do, and reports whether it is paid.
func (d *drill) pays(s *shop.Shop, at shop.Attempt) bool {
	status, doc, err := s.Call(http.MethodPost, at.URL+"/api/v1/orders/"+at.OrderID+"/payments", s.Token(at.User), nil)
	if err != nil || status != http.StatusCreated {
		d.Errorf("%s starts to pay: %d %v %v", at.User, status, doc, err)
		return false
	}
	raw, err := json.Marshal(shop.Document{"payment_id": doc["payment_id"], "provider_txn_id": "txn-" + at.OrderID, "status": "succeeded", "amount_cents": 100})
	if err != nil {
		d.Error(err)
		return false
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	status, doc, err = s.Call(http.MethodPost, at.URL+"/api/v1/payments/callback", "", json.RawMessage(raw),
		"X-Timestamp", timestamp, "X-Signature", service.SignCallback([]byte(shop.Secret), timestamp, raw))
	order, _ := doc["order"].(shop.Document)
	if err != nil || status != http.StatusOK || order["status"] != "paid" {
		d.Errorf("%s pays: %d %v %v", at.User, status, doc, err)
		return false
	}
	return true
}

// A whole purchase, with all that goes wrong beside it, on an instance that logs everything: nothing that opens a door
// stands in the log, in the figures or in an answer that isn't its owner's.
func TestSecretsStayInside(t *testing.T) {
	d := &drill{T: t}
	s := shop.New(t)
	const redisPassword, paymentSecret = "pass-of-redis-0123456789", "payments-secret-of-32-bytes-or-more"
	d.tell(d.client(s.Redis), "CONFIG", "SET", "requirepass", redisPassword)
	withPassword := "redis://:" + redisPassword + "@" + s.Redis.Addr() + "/0"
	ops := freeAddress(t)
	a := s.Start("--redis", withPassword, "--payment-secret", paymentSecret, "--log-level", "debug", "--ops-addr", ops)
	sale := s.Sale(a.URL, 10)
	client := d.manyConnections()
	database, err := url.Parse(s.Database)
	if err != nil {
		t.Fatal(err)
	}
	databasePassword, _ := database.User.Password()
	secrets := map[string]string{
		"the secret": shop.Secret, "the payment secret": paymentSecret, "Redis's password": redisPassword, "the database's password": databasePassword,
		"the operator's token": s.Operator(a.URL), "the operator's password": "scenario-operator", // as shop sets it
		"a buyer's password": "correct horse", "a wrong password": "battery staple", "a request key": "request-key-0123456789",
	}
	post := func(path, token, body string, headers ...string) shop.Document {
		t.Helper()
		r := d.called(client, http.MethodPost, a.URL+"/api/v1"+path, token, body, headers...)
		var doc shop.Document
		if err := json.Unmarshal(r.body, &doc); err != nil {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
		doc["http"] = r.status
		return doc
	}
	text := func(doc shop.Document, field string) string {
		t.Helper()
		value, _ := doc[field].(string)
		if value == "" {
			t.Fatalf("no %s in %v", field, doc)
		}
		return value
	}

	post("/users", "", `{"name":"carol","password":"correct horse"}`)
	token := text(post("/sessions", "", `{"name":"carol","password":"correct horse"}`), "token")
	post("/sessions", "", `{"name":"carol","password":"battery staple"}`)
	post("/sessions", "", `{"name":"carol","password":"battery staple","password":"battery staple"}`)
	path := text(post("/sales/"+sale+"/path", token, ""), "path")
	order := text(post("/sales/"+sale+"/"+path+"/orders", token, `{"quantity":1}`, "Idempotency-Key", secrets["a request key"]), "id")
	post("/sales/"+sale+"/"+path+"/orders", token, `{"quantity":1}`, "Idempotency-Key", secrets["a request key"])
	post("/sales/"+sale+"/"+path+"/orders", token, `{"quantity":2}`, "Idempotency-Key", secrets["a request key"])
	stranger := s.Token("stranger")
	post("/sales/"+sale+"/"+path+"/orders", stranger, `{"quantity":1}`)
	post("/orders/"+order+"/payments", stranger, "")
	payment := text(post("/orders/"+order+"/payments", token, ""), "payment_id")
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	raw := fmt.Sprintf(`{"payment_id":%q,"provider_txn_id":"txn-1","status":"succeeded","amount_cents":1}`, payment)
	signature := service.SignCallback([]byte(paymentSecret), timestamp, []byte(raw))
	post("/payments/callback", "", raw, "X-Timestamp", timestamp, "X-Signature", signature)
	post("/payments/callback", "", raw, "X-Timestamp", timestamp, "X-Signature", strings.Repeat("0", 64))
	for _, choice := range []string{"decline", "pay", "pay"} {
		r, err := ask(t.Context(), client, http.MethodPost, a.URL+"/pay/"+payment, strings.NewReader("choice="+choice), "Content-Type", "application/x-www-form-urlencoded")
		if err != nil || r.status != http.StatusOK {
			t.Fatalf("%s: %d %s %v", choice, r.status, r.body, err)
		}
	}
	post("/admin/orders/"+order+"/refund", s.Operator(a.URL), "")
	post("/admin/orders/"+order+"/refund", token, "")
	d.called(client, http.MethodGet, a.URL+"/api/v1/orders/"+order, token[:len(token)-2]+"AA", "")
	d.called(client, http.MethodGet, a.URL+"/nowhere/"+path+"?token="+token, token, "")
	maps.Copy(secrets, map[string]string{
		"a token": token, "a stranger's token": stranger, "a token's signature": token[strings.LastIndex(token, ".")+1:],
		"a path": path, "a signature": signature,
	})
	var idKey string
	books, err := openLedger(s.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
	if err := books.db.QueryRowContext(t.Context(), "SELECT value FROM data_keys").Scan(&idKey); err != nil {
		t.Fatal(err)
	}
	secrets["the key of orders' ids"] = idKey
	if err := books.db.QueryRowContext(t.Context(), "SELECT password_hash FROM users WHERE name = 'carol'").Scan(&idKey); err != nil {
		t.Fatal(err)
	}
	secrets["a password's hash"] = idKey

	shown := map[string]string{}
	for _, page := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"} {
		r, err := ask(t.Context(), client, http.MethodGet, "http://"+ops+page, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		shown[page] = string(r.body)
	}
	// Then Redis goes, and the database is asked by somebody who may not.
	s.Redis.Kill()
	post("/sales/"+sale+"/"+text(post("/sales/"+sale+"/path", stranger, ""), "path")+"/orders", stranger, `{"quantity":1}`)
	d.called(client, http.MethodGet, a.URL+"/readyz", "", "")
	a.Stop()
	shown["the log"] = a.Log.String()
	maps.Copy(shown, d.failedStarts(s, secrets))

	for _, must := range []string{"/api/v1/sales/:sale/:path/orders", `"level":"DEBUG"`, `"user_id"`} {
		if !strings.Contains(shown["the log"], must) {
			t.Errorf("the log has no %s: it isn't the log of all that", must)
		}
	}
	for where, said := range shown {
		for what, secret := range secrets {
			if strings.Contains(said, secret) || strings.Contains(said, url.QueryEscape(secret)) || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("%s stands in %s", what, where)
			}
		}
	}
}

// failedStarts gives what starts say that can't succeed, by settings that hold the secrets and one mistake.
func (d *drill) failedStarts(s *shop.Shop, secrets map[string]string) map[string]string {
	d.Helper()
	host := s.Database[strings.LastIndex(s.Database, "@")+1:]
	password, secret := secrets["a buyer's password"], secrets["the secret"]
	broken := filepath.Join(d.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("secret: "+secret+"\n  admin-password: \""+secrets["the operator's password"]+"\n"), 0o600); err != nil {
		d.Fatal(err)
	}
	good := []string{"serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "off", "--redis", "embedded", "--secret", secret, "--admin-password", secrets["the operator's password"]}
	said := map[string]string{}
	for what, args := range map[string][]string{
		"a start with a wrong database password":  append(slices.Clone(good), "--database", "mysql://nobody:"+url.QueryEscape(password)+"@"+host),
		"a start with no database there":          append(slices.Clone(good), "--database", "mysql://nobody:"+secrets["the database's password"]+"@127.0.0.1:1/flashsale"),
		"a start with a bad database URL":         append(slices.Clone(good), "--database", "mysql://nobody:"+secrets["the database's password"]+"@127.0.0.1:port/flashsale"),
		"a start with a bad Redis URL":            append(slices.Clone(good), "--database", s.Database, "--redis", "redis://:"+secrets["Redis's password"]+"@127.0.0.1:port/0"),
		"a start with an unknown option of Redis": append(slices.Clone(good), "--database", s.Database, "--redis", "redis://:"+secrets["Redis's password"]+"@127.0.0.1:1/0?option=1"),
		"a start with a short payment secret":     append(slices.Clone(good), "--database", s.Database, "--payment-secret", secrets["a wrong password"]),
		"a start with a broken file":              {"serve", "--config", broken},
		"an audit with a bad Redis URL":           {"audit", "--database", s.Database, "--redis", "redis://:" + secrets["Redis's password"] + "@127.0.0.1:port/0"},
	} {
		ctx, cancel := context.WithTimeout(d.Context(), shop.Recovery)
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, s.Binary, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err == nil || ctx.Err() != nil || out.Len() == 0 {
			d.Errorf("%s: %v %s", what, err, &out)
		}
		cancel()
		said[what] = out.String()
	}
	return said
}

// freeAddress is one of the loopback that nobody listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
