package fault

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flashsale/test/kit/shop"
)

// outsideRows are faults of the systems beside the engine: those that hear of orders, the shop's checkout, and the issuer of
// customers' tokens.
var outsideRows = []row{
	{62, "an instance dies while it sends events, and most endpoints are away, hostile or slow", "no event is lost; an event that comes twice has the same id", eventsOfTheDead},
	{63, "the shop's checkout settles orders when they expire, twice, and on two instances at once", "one outcome, which every answer tells; the money of the others is due back", settlesAtTheEnd},
	{64, "an issuer's keys are rotated under load, then the issuer is down; tokens are forged", "customers buy on; nothing forged is accepted", issuerRotates},
}

// listener is an endpoint of the shop that records the events it receives.
type listener struct {
	*httptest.Server
	d       *drill
	mu      sync.Mutex
	secret  string
	orders  map[string]string // by the id of an event, its type and order
	repeats int               // events that came again
	fails   atomic.Int64      // how many requests still fail
}

func newListener(d *drill) *listener {
	l := &listener{d: d, orders: map[string]string{}}
	l.Server = httptest.NewServer(l)
	d.Cleanup(l.Close)
	return l
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.fails.Add(-1) >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the instance has died
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	verifier, err := standardwebhooks.NewWebhook(l.secret)
	if err == nil {
		err = verifier.Verify(body, r.Header)
	}
	var message struct {
		Data struct{ Events []news }
	}
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	if err != nil {
		l.d.Errorf("a message: %v", err)
	}
	for _, e := range message.Data.Events {
		what := e.Type + " " + e.Order.ID
		if before, again := l.orders[e.ID]; again {
			l.repeats++
			if before != what {
				l.d.Errorf("the event %s was %s, and now is %s", e.ID, before, what)
			}
		}
		l.orders[e.ID] = what
	}
}

func (l *listener) heard() (events, repeats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.orders), l.repeats
}

// news is an event as other systems get it.
type news struct {
	ID    string
	Type  string
	Order struct{ ID string }
}

// tellTo makes an endpoint and returns its secret.
func (d *drill) tellTo(url, endpoint string) (secret string) {
	d.Helper()
	made := d.Must(http.StatusCreated, http.MethodPost, url+"/api/v1/admin/endpoints", d.Operator(url), shop.Document{"url": endpoint, "rate": 100_000})
	return text(made, "secret")
}

// feed reads all events.
func (d *drill) feed(url string) (list []news) {
	d.Helper()
	for after := "0"; ; {
		page := d.Must(http.StatusOK, http.MethodGet, url+"/api/v1/admin/events?limit=500&after="+after, d.Operator(url), nil)
		raw, err := json.Marshal(page["events"])
		d.ok(err)
		var events []news
		d.ok(json.Unmarshal(raw, &events))
		if len(events) == 0 {
			return list
		}
		list, after = append(list, events...), text(page, "next")
	}
}

// eventsOfTheDead kills one of two instances between a commit and the delivery of its events, under load. One endpoint hears
// of everything, though it fails at first; the others are away, never answer, answer without end, lead elsewhere, or want
// nothing more.
func eventsOfTheDead(d *drill) {
	d.stores()
	d.failpoints()
	survivor := d.Start("--webhook-private")
	good := newListener(d)
	good.fails.Store(2)
	good.secret = d.tellTo(survivor.URL, good.URL)
	ended := make(chan struct{})
	elsewhere := newListener(d)
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			<-ended
		case "/endless":
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		case "/elsewhere":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		default:
			w.WriteHeader(http.StatusGone)
		}
	}))
	d.Cleanup(hostile.Close)
	d.Cleanup(func() { close(ended) })
	others := []string{"http://127.0.0.1:1/away", hostile.URL + "/silent", hostile.URL + "/endless", hostile.URL + "/elsewhere", hostile.URL + "/gone"}
	for i := range size(10, 99) {
		d.tellTo(survivor.URL, others[i%len(others)])
	}
	d.open(size(800, 10_000), survivor)
	doomed := d.StartWith([]string{fmt.Sprintf("FLASHSALE_FAILPOINT=after settle:%d", size(10, 200))}, "--webhook-private")
	d.rush(doomed.URL, survivor.URL)
	died := d.dead(doomed)
	d.more(size(200, 2_000))
	again := d.successor(survivor, died, time.Now())
	all := d.stop("0", "201", "202")

	d.finish("")
	confirmed := map[string]int{}
	list := d.feed(survivor.URL)
	for _, e := range list {
		if e.Type == "order.confirmed" {
			confirmed[e.Order.ID]++
		}
	}
	orders, err := d.books.orders(d.Context(), d.sale)
	d.ok(err)
	for _, o := range orders {
		if confirmed[o.id] != 1 {
			d.Errorf("order %s is confirmed by %d events", o.id, confirmed[o.id])
		}
	}
	d.until(time.Minute, "the endpoint has all events", func() (bool, error) {
		events, _ := good.heard()
		return events >= len(list), nil // the end of the sale may be an event that came after the list
	})
	if events, _ := elsewhere.heard(); events > 0 {
		d.Errorf("%d events were sent to where a redirect led", events)
	}
	_, repeats := good.heard()
	d.result.Happened = fmt.Sprintf("%d events of %d orders, %d of them twice, beside %d endpoints that fail; %d whose connection broke asked again; %s",
		len(list), len(orders), repeats, size(10, 99), len(again), all)
}

// settlesAtTheEnd has the shop's server settle every order at both instances at once, twice, around the moment when it
// expires, while other buyers want its unit. Every answer about an order is the same: paid, or due for a refund.
func settlesAtTheEnd(d *drill) {
	d.stores()
	handoff := []string{"--payment", "handoff", "--checkout-url", "https://shop.example/checkout", "--pay-grace", "0s"}
	a, b := d.Start(handoff...), d.Start(handoff...)
	d.quota, d.urls = size(60, 600), []string{a.URL, b.URL}
	key := text(d.Must(http.StatusCreated, http.MethodPost, a.URL+"/api/v1/admin/staff", d.Operator(a.URL),
		shop.Document{"name": "checkout", "kind": "key", "role": "holds"}), "secret")
	d.sale = d.SaleToPay(a.URL, d.quota, size(8, 12))
	d.watched = d.watch(d.sale)
	attempts := d.Rush(d.sale, "u", d.quota, nil, d.urls...)
	d.told(attempts, "201")
	if key == "" || len(attempts) == 0 {
		d.Fatal("there is no key, or nobody has bought")
	}
	var mu sync.Mutex
	answers := make([]map[string]int, len(attempts))
	settle := func(i int, url string) {
		status, doc, err := d.Call(http.MethodPost, url+"/api/v1/holds/"+attempts[i].OrderID+"/settle", key,
			shop.Document{"reference": fmt.Sprint("r-", i), "amount_cents": shop.PriceCents})
		mu.Lock()
		defer mu.Unlock()
		if err != nil || status != http.StatusOK && text(doc, "code") != "refund_due" {
			d.wrong(status)("order %d: %d %v, %v", i, status, doc, err)
			return
		}
		answers[i][fmt.Sprint(status, " ", text(doc, "status"), text(doc, "code"))]++
	}
	var work sync.WaitGroup
	deadlines := time.Now().Add(time.Hour)
	for i, at := range attempts {
		answers[i] = map[string]int{}
		shown := d.Must(http.StatusOK, http.MethodGet, d.urls[i%2]+"/api/v1/holds/"+at.OrderID, key, nil)
		deadline, err := time.Parse(time.RFC3339, text(shown, "expires_at"))
		d.ok(err)
		deadlines = deadline
		// The expirer runs every half second; every other order comes 3 seconds later, when another buyer has its unit.
		moment := time.Until(deadline) + time.Duration(i%12)*50*time.Millisecond + time.Duration(i%2)*3*time.Second
		for _, url := range []string{a.URL, b.URL, a.URL, b.URL} {
			work.Add(1)
			time.AfterFunc(moment, func() {
				defer work.Done()
				settle(i, url)
			})
		}
	}
	resold := d.Rush(d.sale, "before", d.quota/2, nil, d.urls...)
	<-time.After(time.Until(deadlines.Add(time.Second)))
	resold = append(resold, d.Rush(d.sale, "after", d.quota, nil, d.urls...)...)
	work.Wait()
	paid := 0
	for i := range attempts {
		if len(answers[i]) > 1 {
			d.Errorf("order %d: its answers are %v", i, answers[i])
		}
		before := answers[i]
		answers[i] = map[string]int{}
		settle(i, d.urls[0])
		for what := range before {
			if len(answers[i]) > 0 && answers[i][what] != 1 {
				d.Errorf("order %d: it was %v, and is %v when it comes again", i, before, answers[i])
			}
			if strings.HasPrefix(what, "200") {
				paid++
			} else {
				d.Must(http.StatusOK, http.MethodPost, d.urls[1]+"/api/v1/holds/"+attempts[i].OrderID+"/refunded", key, shop.Document{"reference": fmt.Sprint("r-", i)})
			}
		}
	}
	if due := d.Must(http.StatusOK, http.MethodGet, a.URL+"/api/v1/admin/payments?status=refund_due", d.Operator(a.URL), nil)["payments"]; len(due.([]any)) > 0 && !d.Failed() {
		d.Errorf("money is still due: %v", due)
	}
	if books := d.Books(d.sale); books.Stock.Paid != int64(paid) && !d.Failed() { // without all answers the sum is unknown
		d.Errorf("%d orders were told to be paid, and the books have %d", paid, books.Stock.Paid)
	}
	d.attempts = append(attempts, resold...)
	d.stop()
	d.finish("%d orders were settled four times each around their end: %d paid, %d sent back", len(attempts), paid, len(attempts)-paid)
}

// issuerRotates lets customers of an issuer buy while the issuer rotates its keys, and while it is down. During the whole row
// attackers send forged tokens. The engine must refuse these, and must not ask the issuer for keys at each of them.
func issuerRotates(d *drill) {
	d.stores()
	keys := make([]*rsa.PrivateKey, 3)
	for i := range keys {
		var err error
		keys[i], err = rsa.GenerateKey(rand.Reader, 2048)
		d.ok(err)
	}
	var shown, asked atomic.Int64 // how many keys the issuer shows, and how often it was asked
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		set := jose.JSONWebKeySet{}
		for i := range shown.Load() {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: keys[i].Public(), KeyID: fmt.Sprint("k", i), Algorithm: "RS256", Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	}))
	d.Cleanup(issuer.Close)
	shown.Store(1)
	outside := []string{"--issuer-name", "shop=https://id.shop.example", "--jwks", issuer.URL, "--audience", "flashsale"}
	d.sell(size(3_000, 20_000), d.Start(outside...), d.Start(outside...))
	claims := func(user string) jwt.MapClaims {
		return jwt.MapClaims{"iss": "https://id.shop.example", "aud": "flashsale", "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	}
	sign := func(method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = kid
		signed, err := token.SignedString(key)
		d.ok(err)
		return signed
	}
	changed := func(user, name string, value any) jwt.MapClaims {
		c := claims(user)
		c[name] = value
		return c
	}
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	d.ok(err)
	public, err := json.Marshal(jose.JSONWebKey{Key: keys[0].Public()})
	d.ok(err)
	var stop atomic.Bool
	var attack sync.WaitGroup
	var refused atomic.Int64
	d.Cleanup(func() { stop.Store(true); attack.Wait() })
	for i := range 4 {
		attack.Go(func() {
			for n := 0; !stop.Load(); n++ {
				for _, forged := range []string{
					sign(jwt.SigningMethodRS256, strange, "k0", claims("eve")), sign(jwt.SigningMethodRS256, strange, fmt.Sprint("kid-", n), claims("eve")),
					sign(jwt.SigningMethodHS256, public, "k0", claims("eve")), sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "k0", claims("eve")),
					sign(jwt.SigningMethodRS256, keys[0], "k0", changed("eve", "exp", time.Now().Add(-time.Hour).Unix())),
					sign(jwt.SigningMethodRS256, keys[0], "k0", changed("eve", "aud", "another service")),
					sign(jwt.SigningMethodRS256, keys[0], "k0", changed("eve", "iss", "https://evil.example")),
				} {
					status, doc, err := d.Call(http.MethodGet, d.urls[i%2]+"/api/v1/orders", forged, nil)
					if refused.Add(1); err != nil || status != http.StatusUnauthorized {
						d.wrong(status)("a forged token: %d %v, %v", status, doc, err)
					}
				}
			}
		})
	}
	buy := func(key, buyers int) {
		for n := range buyers {
			user := fmt.Sprintf("ann-%d", len(d.attempts))
			a := shop.Attempt{User: "shop:" + user, Key: "key-" + user, URL: d.urls[n%2]}
			d.BuyBy(&a, d.sale, sign(jwt.SigningMethodRS256, keys[key], fmt.Sprint("k", key), claims(user)))
			d.attempts = append(d.attempts, a)
		}
	}
	buyers := size(20, 200)
	buy(0, buyers)
	for key := 1; key < len(keys); key++ {
		shown.Store(int64(key) + 1)
		// Forged ids of keys have made the instances ask just now, so the new key may be known ten seconds later.
		for _, url := range d.urls {
			d.until(time.Minute, "an instance knows the new key", func() (bool, error) {
				status, _, err := d.Call(http.MethodGet, url+"/api/v1/orders", sign(jwt.SigningMethodRS256, keys[key], fmt.Sprint("k", key), claims("ann")), nil)
				return status == http.StatusOK, err
			})
		}
		buy(key, buyers)
		buy(0, 1) // tokens of the key before are still accepted
	}
	before := asked.Load()
	issuer.Close()
	buy(2, buyers)
	stop.Store(true)
	attack.Wait()
	if before > int64(2*len(keys)*12) {
		d.Slowf("the issuer was asked %d times", before)
	}
	d.told(d.attempts, "201")
	d.finish("%d orders of customers with three keys, the last while the issuer is down; %d forged tokens refused; the issuer was asked %d times",
		len(d.attempts), refused.Load(), before)
}
