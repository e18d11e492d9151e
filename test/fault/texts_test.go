package fault

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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

// foldedKeys are request keys that all differ in the same way.
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

	// Users: a token with an invalid user id is refused.
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

	// Users and keys that differ only by case, for example, have an order each, and a repetition returns the same
	// order.
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
			continue // a valid key, or one that would be two lines
		}
		if status := d.rawKey(a, s, sale, key); status != http.StatusBadRequest {
			d.Errorf("the key %q: %d, want 400", key, status)
		}
		refused++
	}

	// Sales: the operator's texts are returned unchanged, in JSON, in the page and from the database, or are refused.
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
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
			titled = titled || len(fields) > 1
		}
	}

	// Ids in a URL, queries and names: not found, or refused.
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

	// Both stores hold the same users and orders, and the database alone finds the same order for each.
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

// inURLs puts each text in the place of an id, a path or a query, and returns the number of these requests, all
// refused.
func (d *drill) inURLs(client *http.Client, s *shop.Shop, address, sale string) (refused int) {
	d.Helper()
	good := pathOf(shop.Secret, time.Now(), "reader", sale, time.Hour)
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

// plainName reports whether an account may have the name.
func plainName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(name) >= 3 && len(name) <= 32 && strings.Trim(name, letters) == ""
}

// rawKey sends a request key as raw bytes, since Go's client refuses some keys, and returns the answer's status.
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
	_ = conn.SetReadDeadline(time.Now().Add(recoveryTime))
	answer, _ := io.ReadAll(conn) // the connection may be cut after a refusal
	if len(answer) < len("HTTP/1.0 400") {
		d.Fatalf("the key %q: the answer is %q", key, answer)
	}
	status, _ := strconv.Atoi(string(answer[9:12]))
	return status
}

// literally checks that a sale shows a text exactly as entered.
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

// accounts checks that names that differ by case are two accounts, and that every byte of a password counts.
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

// storesAgree compares a sale's users and orders in Redis with those in the database.
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
		delete(atGate, "") // a mark of the gate, which belongs to no user
		if kept := d.pairs(db, query, sale); len(kept) == 0 || !maps.Equal(atGate, kept) {
			d.Errorf("%s of %s: Redis has %v, the database %v", key, sale, atGate, kept)
		}
	}
}

// pairs reads rows of two texts into a map.
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
