package fault

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

// strange are texts with a meaning to a database, a shell, a page, a template, a log or Redis, and texts that look,
// sort or fold like others.
var strange = []string{
	`' OR '1'='1`, `"; DROP TABLE orders; -- `, `1; DELETE FROM stock`, `\'; SELECT 1`, "`id`", "%s%n%x", "${jndi:ldap://x/y}", "{{7*7}}", "$(id)",
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "../../../etc/passwd", "..%2f..%2f", "%00", "a\x00b", "a\nb", "a\r\nX-More: 1", "a\tb", "\x1b[31m", "\u0085",
	"{sale}", "fs:{x}:gate", "*3\r\n$3\r\nSET\r\n", "*", "?", "[a-z]", "🍵", "👨‍👩‍👧", "茶壶", "é", "e\u0301", "É", "Ａ", "ß", "ss", "İ", "ı", "ﬁ", "Ω", "Ω",
	"a b", " a", "a ", "a\u00a0", "\u200b", "\u202etxt", "\ufeff", "\ufffd", "𝒜", "null", "NULL", "nil", "true", "0", "00", "-1", "1e3", "0x10", "NaN", "__proto__", "constructor",
	strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("茶", 200), "",
}

// folded are ids that all differ, although a database or a language may treat some as equal.
var folded = []string{"ann", "Ann", "ANN", "aNN", "ann.", "ann_", "ann-", "ann:", "ann1", "0", "00", "0.0", "-0", "1e3", "1000", "null", "NULL", "true", "NaN", "9007199254740993", "9007199254740992", "requests:ann", "..", "-"}

// foldedKeys are idempotency keys that all differ in the same way.
var foldedKeys = []string{
	"key", "Key", "KEY", "kEY", "key.", "key'", `key"`, "key;--", "'OR'1'='1", `"`, `\`, `\\`, "%", "%00", "%20", "_", "*", "?", "[k]", "{k}", "${k}", "<k>", "`k`", "0", "00", "1e3", "1000", "null", "NULL",
	"9007199254740993", "9007199254740992", "~", "!", strings.Repeat("k", 128), strings.Repeat("k", 127), strings.Repeat("K", 128),
}

func strangeTexts(d *drill) {
	d.stores()
	a := d.Start()
	d.sell(len(folded)+50, a)
	keysSale := d.SaleWith(a.URL, shop.Document{"limit_per_user": len(foldedKeys)})
	client := d.manyConnections()
	refused, literal := 0, 0

	// Users: a token with an invalid user id is refused.
	for _, text := range slices.Concat(strange, folded) {
		claims := claimsOf(text, "buyer", time.Now().Add(time.Hour))
		token := signedToken(sha256.New, `{"alg":"HS256","typ":"JWT"}`, claims, shop.Secret)
		r := d.called(client, http.MethodGet, a.URL+"/api/v1/orders", token, "")
		want := http.StatusUnauthorized
		if model.ValidUserID(text) {
			want = http.StatusOK
			literal++
		} else {
			refused++
		}
		if r.status != want {
			d.wrong(r.status)("user %q: %d %s, want %d", text, r.status, r.body, want)
		}
	}

	// Users and keys that differ only by case, for example, have an order each, and a repetition returns the same
	// order.
	bought := func(sale, user, key string) shop.Attempt {
		d.Helper()
		at := shop.Attempt{User: user, Key: key, URL: a.URL}
		r, err := d.knock(client, &at, sale)
		d.mustBe(err == nil && r.status == http.StatusCreated, r.status, "%q under the key %q: %d %s %v", user, key, r.status, r.body, err)
		return at
	}
	ofKeys := []shop.Attempt{}
	for _, user := range folded {
		d.attempts = append(d.attempts, bought(d.sale, user, "key"))
	}
	for _, key := range foldedKeys {
		ofKeys = append(ofKeys, bought(keysSale, "keys", key))
	}
	repeat := func(where string) {
		d.Helper()
		for sale, attempts := range map[string][]shop.Attempt{d.sale: d.attempts, keysSale: ofKeys} {
			for _, at := range attempts {
				if same := bought(sale, at.User, at.Key); same.OrderID != at.OrderID {
					d.Errorf("%s: %q under %q has %s and %s", where, at.User, at.Key, at.OrderID, same.OrderID)
				}
			}
		}
	}
	seen := map[string]shop.Attempt{}
	for _, at := range slices.Concat(d.attempts, ofKeys) {
		if other, ok := seen[at.OrderID]; ok {
			d.Errorf("%q under %q and %q under %q have the order %s", at.User, at.Key, other.User, other.Key, at.OrderID)
		}
		seen[at.OrderID] = at
		literal++
	}
	repeat("again")
	for _, key := range strange {
		if !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Contains(key, "\n") {
			continue // a valid key, or one that would be two lines
		}
		request := fmt.Sprintf("POST /api/v1/sales/%s/%s/orders HTTP/1.0\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Content-Length: 14\r\nIdempotency-Key: x%sx\r\n\r\n{\"quantity\":1}",
			d.sale, pathOf(shop.Secret, time.Now(), "reader", d.sale, time.Hour), d.Token("reader"), key)
		if status := d.raw(a.URL, request); status != http.StatusBadRequest {
			d.wrong(status)("the key %q: %d, want 400", key, status)
		}
		refused++
	}

	// Sales: the operator's texts are returned unchanged, in JSON, in the page and from the database, or are refused.
	for _, text := range strange {
		titled := false
		for _, fields := range [][]string{{"title", "description"}, {"description"}, {"image_url"}, {"currency"}} {
			if titled && fields[0] == "description" {
				continue // it was tried with the title
			}
			changes := shop.Document{}
			for _, field := range fields {
				changes[field] = text
			}
			body, err := json.Marshal(shop.SaleOf(changes))
			d.ok(err)
			r := d.called(client, http.MethodPost, a.URL+"/api/v1/admin/sales", d.Operator(a.URL), string(body))
			if r.String() == "400 bad_request" {
				refused++
				continue
			}
			literal++
			d.literally(client, a.URL, fields, text, r)
			titled = titled || len(fields) > 1
		}
	}

	// Ids in a URL, queries and names: not found, or refused.
	refused += d.inURLs(client, a.URL)
	for _, text := range strange {
		if plainName(text) {
			continue
		}
		if r := d.account(client, a.URL+"/api/v1/users", text, "correct horse"); r.status != http.StatusBadRequest {
			d.wrong(r.status)("the name %q: %d %s", text, r.status, r.body)
		}
		refused++
	}
	for _, id := range []string{strings.ToLower(d.sale), d.sale + " ", d.sale + "%20", d.sale + "\x00"} {
		if r := d.called(client, http.MethodGet, a.URL+"/api/v1/sales/"+url.PathEscape(id), "", ""); r.status != http.StatusNotFound {
			d.wrong(r.status)("sale %q: %d", id, r.status)
		}
	}
	d.accounts(client, a.URL)

	// Both stores hold the same users and orders, and the database alone finds the same order for each.
	for _, id := range []string{d.sale, keysSale} {
		d.Audited(a.URL, id)
		d.storesAgree(id)
	}
	d.Redis.Kill()
	repeat("without Redis")
	d.Redis.Restart()
	d.finish("%d texts taken literally, %d refused; %d users and %d keys that look alike are as many orders, in both stores",
		literal, refused, len(folded), len(foldedKeys))
}

// inURLs puts each text in the place of an id, a path or a query, and returns the number of these requests, all
// refused.
func (d *drill) inURLs(client *http.Client, address string) (refused int) {
	d.Helper()
	good := pathOf(shop.Secret, time.Now(), "reader", d.sale, time.Hour)
	var readers sync.WaitGroup // all at once, because a request for an unknown sale waits for a look for new sales
	for _, text := range strange {
		if text == "" || strings.Contains(text, "/") {
			continue // leads to another route
		}
		in := url.PathEscape(text)
		tests := []struct {
			method, path string
			want         int
		}{
			{http.MethodGet, "/sales/" + in, 404},
			{http.MethodPost, "/sales/" + in + "/path", 404},
			{http.MethodPost, "/sales/" + in + "/" + good + "/orders", 403},
			{http.MethodPost, "/sales/" + d.sale + "/" + in + "/orders", 403},
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
					"Authorization", "Bearer "+d.Token("reader"), "Content-Type", "application/json")
				if err != nil || r.status != tc.want {
					d.wrong(r.status)("%s %q: %d %.100s %v, want %d", tc.method, tc.path, r.status, r.body, err, tc.want)
				}
			}
		})
	}
	readers.Wait()
	return refused
}

// plainName reports whether an account may have the name.
func plainName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(name) >= 3 && len(name) <= 32 && strings.Trim(name, letters) == ""
}

// literally checks that a sale shows a text exactly as entered.
func (d *drill) literally(client *http.Client, address string, fields []string, text string, made reply) {
	d.Helper()
	var doc shop.Document
	err := json.Unmarshal(made.body, &doc)
	d.mustBe(err == nil && made.status == http.StatusCreated, made.status, "%s %q: %d %s %v", fields, text, made.status, made.body, err)
	id, _ := doc["id"].(string)
	shown := d.Must(http.StatusOK, http.MethodGet, address+"/api/v1/sales/"+id, "", nil)
	for _, field := range fields {
		var kept string
		d.ok(d.sql("SELECT "+field+" FROM sales WHERE id = ?", id).Scan(&kept))
		if doc[field] != text || shown[field] != text || kept != text {
			d.Errorf("%s %q became %q, %q and, in the database, %q", field, text, doc[field], shown[field], kept)
		}
	}
	page, err := ask(d.Context(), client, http.MethodGet, address+"/sales/"+id, http.NoBody)
	d.mustBe(err == nil && page.status == http.StatusOK, page.status, "the page of %q: %d %v", text, page.status, err)
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

func (d *drill) account(client *http.Client, address, name, password string) reply {
	d.Helper()
	body, err := json.Marshal(shop.Document{"name": name, "password": password})
	d.ok(err)
	return d.called(client, http.MethodPost, address, "", string(body))
}

// accounts checks that names that differ by case are two accounts, and that every byte of a password counts.
func (d *drill) accounts(client *http.Client, address string) {
	d.Helper()
	const secret = "pässwörd\x00🍵' --"
	for _, name := range []string{"carol", "Carol"} {
		if r := d.account(client, address+"/api/v1/users", name, secret+name); r.status != http.StatusCreated {
			d.wrong(r.status)("the account %q: %d %s", name, r.status, r.body)
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
		if r := d.account(client, address+"/api/v1/sessions", tc.name, tc.password); r.status != tc.want {
			d.wrong(r.status)("%q with %q: %d, want %d", tc.name, tc.password, r.status, tc.want)
		}
	}
	for _, name := range []string{"Admin", "ADMIN"} {
		if r := d.account(client, address+"/api/v1/users", name, secret); r.status != http.StatusConflict {
			d.wrong(r.status)("a second operator %q: %d", name, r.status)
		}
	}
}

// storesAgree compares a sale's users and orders in Redis with those in the database.
func (d *drill) storesAgree(sale string) {
	d.Helper()
	client := d.client(d.Redis)
	atGate, err := client.HGetAll(d.Context(), gateKey(sale, "units")).Result()
	d.ok(err)
	delete(atGate, "") // a mark of the gate, which belongs to no user
	kept := d.pairs("SELECT user_id, units FROM buyers WHERE sale_id = ? AND units > 0", sale)
	orders := d.pairs("SELECT CONCAT(' ', id), quantity FROM orders WHERE sale_id = ?", sale)
	maps.Copy(kept, orders)
	if len(orders) == 0 || !maps.Equal(atGate, kept) {
		d.Errorf("%s: Redis has %v, the database %v", sale, atGate, kept)
	}
}

func (d *drill) pairs(query string, args ...any) map[string]string {
	d.Helper()
	rows, err := d.books.db.QueryContext(d.Context(), query, args...)
	d.ok(err)
	defer func() { _ = rows.Close() }()
	found := map[string]string{}
	for rows.Next() {
		var name, value string
		d.ok(rows.Scan(&name, &value))
		found[name] = value
	}
	d.ok(rows.Err())
	return found
}
