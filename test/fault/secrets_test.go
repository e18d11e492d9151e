package fault

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// This test makes a whole purchase, with every kind of failure, on an instance that logs everything, and starts a payment
// with Stripe on another one. No secret may appear in the logs or in the figures. TestErrorsKeepSecrets and
// TestOpenRefuses check the messages of failed starts.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	pace.Try(t, secretsStayInside)
}

func secretsStayInside(t *pace.Trial) {
	d := &drill{TB: t}
	d.stores()
	const redisPassword, paymentSecret = "pass-of-redis-0123456789", "payments-secret-of-32-bytes-or-more"
	d.tell(d.client(d.Redis), "CONFIG", "SET", "requirepass", redisPassword)
	withPassword := "redis://:" + redisPassword + "@" + d.Redis.Addr() + "/0"
	a := d.Start("--redis", withPassword, "--payment-secret", paymentSecret, "--log-level", "debug", "--ops-addr", "127.0.0.1:0", "--webhook-private")
	ops := a.OpsURL()
	d.sell(10, a)
	client := d.manyConnections()
	databasePassword, _ := d.databaseURL().User.Password()
	secrets := map[string]string{
		"the secret": shop.Secret, "the payment secret": paymentSecret,
		"Redis's password": redisPassword, "the database's password": databasePassword,
		"the operator's token": d.Operator(a.URL), "the operator's password": "scenario-operator", // as shop sets it
		"a buyer's password": "correct horse", "a wrong password": "battery staple", "an idempotency key": "request-key-0123456789",
	}
	// The receiver of events, which is Stripe too, fails and answers with the headers that it got.
	sent := make(chan struct{})
	once := sync.OnceFunc(func() { close(sent) })
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_ = r.Header.Write(w)
		if r.URL.Path == "/events" {
			once()
		}
	}))
	t.Cleanup(outside.Close)
	secrets["an endpoint's secret"] = d.tellTo(a.URL, outside.URL+"/events")
	to := a.URL
	post := func(path, token, body string, headers ...string) shop.Document {
		t.Helper()
		r := d.called(client, http.MethodPost, to+"/api/v1"+path, token, body, headers...)
		var doc shop.Document
		if err := json.Unmarshal(r.body, &doc); err != nil {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
		doc["http"] = r.status
		return doc
	}
	given := func(doc shop.Document, field string) string {
		t.Helper()
		value := text(doc, field)
		status, _ := doc["http"].(int)
		d.mustBe(value != "", status, "no %s in %v", field, doc)
		return value
	}

	post("/users", "", `{"name":"carol","password":"correct horse"}`)
	token := given(post("/sessions", "", `{"name":"carol","password":"correct horse"}`), "token")
	post("/sessions", "", `{"name":"carol","password":"battery staple"}`)
	post("/sessions", "", `{"name":"carol","password":"battery staple","password":"battery staple"}`)
	path := given(post("/sales/"+d.sale+"/path", token, ""), "path")
	orders, key := "/sales/"+d.sale+"/"+path+"/orders", []string{"Idempotency-Key", secrets["an idempotency key"]}
	order := given(post(orders, token, `{"quantity":1}`, key...), "id")
	post(orders, token, `{"quantity":1}`, key...)
	post(orders, token, `{"quantity":2}`, key...)
	stranger := d.Token("stranger")
	post(orders, stranger, `{"quantity":1}`)
	post("/orders/"+order+"/payments", stranger, "")
	payment := given(post("/orders/"+order+"/payments", token, ""), "payment_id")
	raw := fmt.Sprintf(`{"payment_id":%q,"provider_txn_id":"txn-1","status":"succeeded","amount_cents":1}`, payment)
	signature := signed(paymentSecret, raw)
	post("/payments/callback", "", raw, signature...)
	post("/payments/callback", "", raw, append(signature[:3:3], strings.Repeat("0", 64))...)
	for _, choice := range []string{"decline", "pay", "pay"} {
		r, err := ask(t.Context(), client, http.MethodPost, a.URL+"/pay/"+payment, strings.NewReader("choice="+choice),
			"Content-Type", "application/x-www-form-urlencoded")
		d.mustBe(err == nil && r.status == http.StatusOK, r.status, "%s: %d %s %v", choice, r.status, r.body, err)
	}
	post("/admin/orders/"+order+"/refund", d.Operator(a.URL), "")
	post("/admin/orders/"+order+"/refund", token, "")
	d.called(client, http.MethodGet, a.URL+"/api/v1/orders/"+order, token[:len(token)-2]+"AA", "")
	d.called(client, http.MethodGet, a.URL+"/nowhere/"+path+"?token="+token, token, "")
	apiKey := given(post("/admin/staff", d.Operator(a.URL), `{"name":"shop","kind":"key","role":"viewer"}`), "secret")
	for _, key := range []string{apiKey, apiKey + "A"} {
		d.called(client, http.MethodGet, a.URL+"/api/v1/admin/events", key, "")
	}
	d.called(client, http.MethodGet, a.URL+"/api/v1/admin/endpoints", apiKey, "")

	const stripeKey = "sk_test_0123456789abcdef"
	b := d.Start("--redis", withPassword, "--payment-secret", paymentSecret, "--log-level", "debug",
		"--payment", "stripe", "--stripe-key", stripeKey, "--stripe-webhook-secret", stripeSecret, "--stripe-url", outside.URL)
	to = b.URL
	second := given(post("/sales/"+d.sale+"/"+given(post("/sales/"+d.sale+"/path", stranger, ""), "path")+"/orders", stranger, `{"quantity":1}`), "id")
	post("/orders/"+second+"/payments", stranger, "")
	post("/payments/notices", "", `{"id":"evt_1"}`, "Stripe-Signature", "t=1,v1="+strings.Repeat("0", 64))
	b.Stop()
	to = a.URL
	<-sent

	maps.Copy(secrets, map[string]string{
		"an API key": apiKey, "Stripe's key": stripeKey, "Stripe's secret": stripeSecret,
		"a token": token, "a stranger's token": stranger, "a token's signature": token[strings.LastIndex(token, ".")+1:],
		"a path": path, "a signature": signature[3],
	})
	for what, query := range map[string]string{
		"the key of orders' ids": "SELECT value FROM data_keys",
		"a password's hash":      "SELECT password_hash FROM users WHERE name = 'carol'",
	} {
		var secret string
		d.ok(d.sql(query).Scan(&secret))
		secrets[what] = secret
	}

	shown := map[string]string{"the log of the other instance": b.Log.String()}
	const profiles = "/debug/pprof/"
	for _, page := range []string{"/metrics", profiles, profiles + "cmdline", profiles + "goroutine?debug=2", profiles + "heap?debug=1"} {
		r, err := ask(t.Context(), client, http.MethodGet, ops+page, http.NoBody)
		d.ok(err)
		shown[page] = string(r.body)
	}
	// Then Redis is killed, so that the log has its errors.
	d.Redis.Kill()
	post("/sales/"+d.sale+"/"+given(post("/sales/"+d.sale+"/path", stranger, ""), "path")+"/orders", stranger, `{"quantity":1}`)
	d.called(client, http.MethodGet, a.URL+"/readyz", "", "")
	a.Stop()
	shown["the log"] = a.Log.String()

	for _, must := range []string{"/api/v1/sales/:sale/:path/orders", `"level":"DEBUG"`, `"user_id"`} {
		if !strings.Contains(shown["the log"], must) {
			t.Errorf("the log has no %s: it isn't the log of all that", must)
		}
	}
	for where, said := range shown {
		for what, secret := range secrets {
			for _, form := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))} {
				if strings.Contains(said, form) {
					t.Errorf("%s stands in %s", what, where)
				}
			}
		}
	}
}
