package fault

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/service"
	"flashsale/test/kit/shop"
)

// This test makes a whole purchase, with every kind of failure, on an instance that logs everything. No secret may
// appear in the log, in the figures or in the messages of failed starts.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	d := &drill{T: t}
	s := shop.New(t)
	const redisPassword, paymentSecret = "pass-of-redis-0123456789", "payments-secret-of-32-bytes-or-more"
	d.tell(d.client(s.Redis), "CONFIG", "SET", "requirepass", redisPassword)
	withPassword := "redis://:" + redisPassword + "@" + s.Redis.Addr() + "/0"
	a := s.Start("--redis", withPassword, "--payment-secret", paymentSecret, "--log-level", "debug", "--ops-addr", "127.0.0.1:0")
	ops := a.OpsURL()
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
		r, err := ask(t.Context(), client, http.MethodGet, ops+page, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		shown[page] = string(r.body)
	}
	// Then Redis is killed, so that the log has its errors. Starts with wrong settings, such as passwords, follow.
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

// failedStarts returns the output of starts that can't succeed, because their settings have one mistake besides the
// secrets.
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
		ctx, cancel := context.WithTimeout(d.Context(), recoveryTime)
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
