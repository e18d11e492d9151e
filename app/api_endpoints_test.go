package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flashsale/internal/config"
	"flashsale/test/kit/check"
)

const (
	adminEvents    = "/api/v1/admin/events"
	adminEndpoints = "/api/v1/admin/endpoints"
)

// news is an event as other systems get it.
type news struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	At      time.Time `json:"at"`
	SaleID  string    `json:"sale_id"`
	Order   order     `json:"order"`
	Payment struct {
		ID            string `json:"id"`
		Provider      string `json:"provider"`
		ProviderTxnID string `json:"provider_txn_id"`
		AmountCents   int64  `json:"amount_cents"`
		Currency      string `json:"currency"`
	} `json:"payment"`
}

func (e news) String() string { return e.ID + " " + e.what() }

func (e news) what() string { return strings.TrimSpace(e.Type + " " + e.Order.Status) }

// feed reads the whole feed, a few events at a time.
func (s *server) feed() (list []news) {
	s.t.Helper()
	for after := "0"; ; {
		var page struct {
			Events []news `json:"events"`
			Next   string `json:"next"`
		}
		s.operator().get(adminEvents + "?limit=2&after=" + after).read(&page)
		if len(page.Events) == 0 {
			return list
		}
		list, after = append(list, page.Events...), page.Next
	}
}

// about returns what a list says about an order, and about a sale with an empty order.
func about(list []news, saleID, orderID string) (types []string) {
	for _, e := range list {
		if e.SaleID == saleID && e.Order.ID == orderID {
			types = append(types, e.what())
		}
	}
	return types
}

// receiver is an endpoint of the shop. It verifies the signature of each message with the library of Standard Webhooks.
type receiver struct {
	*httptest.Server
	t      testing.TB
	mu     sync.Mutex
	secret string
	answer func(w http.ResponseWriter, try int) // nil: 200
	events []news
	taken  []string // the ids of their messages
	ids    []string // of all messages
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	check.Error(r.t, "body", err, nil)
	verifier, err := standardwebhooks.NewWebhook(r.secret)
	check.Error(r.t, "secret", err, nil)
	check.Error(r.t, "signature", verifier.Verify(body, req.Header), nil)
	r.ids = append(r.ids, req.Header.Get("webhook-id"))
	if r.answer != nil {
		r.answer(w, len(r.ids))
		return
	}
	var message struct {
		Type string
		Data struct{ Events []news }
	}
	check.Error(r.t, "message", json.Unmarshal(body, &message), nil)
	if id := req.Header.Get("webhook-id"); !slices.Contains(r.taken, id) { // any message may come twice
		r.taken, r.events = append(r.taken, id), append(r.events, message.Data.Events...)
	}
}

func (r *receiver) with(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// heard returns the events and the ids of the messages that have come.
func (r *receiver) heard() (events []news, ids []string) {
	r.with(func() { events, ids = append(events, r.events...), append(ids, r.ids...) })
	return events, ids
}

// endpointView is an endpoint as the API shows it.
type endpointView struct {
	ID           string     `json:"id"`
	URL          string     `json:"url"`
	Rate         int        `json:"rate"`
	State        string     `json:"state"`
	Reason       string     `json:"reason"`
	Position     string     `json:"position"`
	Tries        int        `json:"tries"`
	FailingSince *time.Time `json:"failing_since"`
	CreatedAt    time.Time  `json:"created_at"`
	Secret       string     `json:"secret"`
}

// deliveryView is a delivery as the API shows it.
type deliveryView struct {
	ID     string    `json:"id"`
	First  string    `json:"first"`
	Last   string    `json:"last"`
	At     time.Time `json:"at"`
	TookMs int64     `json:"took_ms"`
	Status int       `json:"status"`
	Answer string    `json:"answer"`
}

// deliveries returns what was sent to an endpoint, the newest first.
func (s *server) deliveries(id string) []deliveryView {
	s.t.Helper()
	var page struct {
		Deliveries []deliveryView `json:"deliveries"`
		NextCursor string         `json:"next_cursor"`
	}
	s.operator().get(adminEndpoints + "/" + id + "/deliveries").read(&page)
	return page.Deliveries
}

func privately(c *config.Settings) { c.WebhookPrivate = true }

// tells makes an endpoint for a receiver.
func (s *server) tells(r *receiver) (made endpointView) {
	s.t.Helper()
	s.operator().call("POST", adminEndpoints, fields{"url": r.URL + "/events"}).want(201).read(&made)
	r.with(func() { r.secret = made.Secret })
	return made
}

// Every change of an order and of a sale is in the feed, in order, and comes to an endpoint.
func TestEventsFeed(t *testing.T) {
	t.Parallel()
	s, shop := start(t, privately), newReceiver(t)
	endpoint := s.tells(shop)
	saleID, ann := s.createSale(fields{"quota": 4, "limit_per_user": 4}).ID, s.buyer("ann")
	paid, cancelled, expired := ann.buy(saleID, 1).ID, ann.buy(saleID, 1).ID, ann.buy(saleID, 2).ID
	s.eventually("the sale is sold out", func() bool { return len(about(s.feed(), saleID, "")) == 2 })
	ann.pay(paid)
	ann.cancel(cancelled)
	ann.overdue(expired)
	s.refund(paid).want(200)
	s.operator().call("POST", adminSales+"/"+saleID+"/close", nil).want(200)
	s.eventually("the sale has ended", func() bool { return len(about(s.feed(), saleID, "")) == 3 })
	list := s.feed()
	for order, want := range map[string][]string{
		"":        {"sale.opened", "sale.sold_out", "sale.ended"},
		paid:      {"order.confirmed pending", "order.paid paid", "order.refunded refunded", "refund.due refunded"},
		cancelled: {"order.confirmed pending", "order.cancelled cancelled"},
		expired:   {"order.confirmed pending", "order.expired expired"},
	} {
		check.Same(t, "events of "+order, about(list, saleID, order), want)
	}
	for _, e := range list {
		if e.Type == "refund.due" && (e.Payment.ID == "" || e.Payment.ProviderTxnID == "") {
			t.Errorf("of the payment is said %+v", e)
		}
	}
	s.eventually("the endpoint has all events", func() bool { events, _ := shop.heard(); return len(events) == len(list) })
	events, _ := shop.heard()
	check.Same(t, "events at the endpoint", fmt.Sprint(events), fmt.Sprint(list))
	s.eventually("the last delivery is recorded", func() bool {
		d := s.deliveries(endpoint.ID)
		return len(d) > 0 && d[0].Last == list[len(list)-1].ID
	})
	newest := s.deliveries(endpoint.ID)[0]
	check.Same(t, "the answer", newest.Status, 200)

	// Delivered again, the message has the same id.
	s.operator().call("POST", adminEndpoints+"/"+endpoint.ID+"/deliveries/"+newest.ID, nil).want(200).contains(`"status":200`)
	_, ids := shop.heard()
	check.Same(t, "id of the message that came again", ids[len(ids)-1], ids[len(ids)-2])
}

// endpoint is an endpoint as the list has it now.
func (s *server) endpoint(id string) (found endpointView) {
	s.t.Helper()
	var list struct {
		Endpoints []endpointView `json:"endpoints"`
	}
	s.operator().get(adminEndpoints).read(&list)
	for _, e := range list.Endpoints {
		if e.ID == id {
			found = e
		}
	}
	return found
}

// An operator sends again what an endpoint has not taken. When it takes that, it goes on behind it; when it takes something
// older, nothing changes. Each is a delivery with an id of its own.
func TestDeliverAgainByHand(t *testing.T) {
	t.Parallel()
	s, shop := start(t, privately), newReceiver(t)
	made := s.tells(shop)
	saleID, ann := s.createSale(fields{"limit_per_user": 9}).ID, s.buyer("ann")
	ann.buy(saleID, 1)
	s.eventually("the first events are taken", func() bool { return s.endpoint(made.ID).Position == "2" })
	first := s.deliveries(made.ID)[0]
	shop.with(func() { shop.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusBadGateway) } })
	ann.buy(saleID, 1)
	s.eventually("the next one fails", func() bool { return s.endpoint(made.ID).Tries > 0 })
	s.operator().call("PATCH", adminEndpoints+"/"+made.ID, fields{"state": "off"}).want(200)
	failed := s.deliveries(made.ID)[0]
	again := func(d deliveryView) (tried deliveryView) {
		t.Helper()
		s.operator().call("POST", adminEndpoints+"/"+made.ID+"/deliveries/"+d.ID, nil).want(200).read(&tried)
		check.Same(t, "the newest delivery", s.deliveries(made.ID)[0], tried)
		if tried.ID == "0" || tried.ID == d.ID || tried.First != d.First || tried.Last != d.Last {
			t.Errorf("%+v came of %+v", tried, d)
		}
		return tried
	}
	check.Same(t, "status while it fails", again(failed).Status, http.StatusBadGateway)
	check.Same(t, "position while it fails", s.endpoint(made.ID).Position, "2")
	shop.with(func() { shop.answer = nil })
	again(first)
	check.Same(t, "position after an older one", s.endpoint(made.ID).Position, "2")
	again(failed)
	e := s.endpoint(made.ID)
	check.Same(t, "the endpoint goes on behind it", []any{e.Position, e.Tries, e.FailingSince == nil, e.State}, []any{failed.Last, 0, true, "off"})
	_, ids := shop.heard()
	s.operator().call("PATCH", adminEndpoints+"/"+made.ID, fields{"state": "on"}).want(200)
	ann.buy(saleID, 1)
	s.eventually("the next event", func() bool { return s.endpoint(made.ID).Position == "4" })
	_, now := shop.heard()
	check.Same(t, "messages since", len(now), len(ids)+1)
}

// A request for an endpoint that is repeated under its key makes one endpoint, and shows its secret again.
func TestEndpointsUnderKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	create := func(url string, rate int) *answer {
		t.Helper()
		return s.operator().call("POST", adminEndpoints, fields{"url": url, "rate": rate}, "Idempotency-Key", "k-1")
	}
	operator, made := s.operator(), make([]endpointView, 4)
	for i, a := range check.Collect(len(made), func(int) *answer {
		a, err := operator.try(t.Context(), "POST", adminEndpoints, fields{"url": "https://shop.example/"}, "Idempotency-Key", "k-1")
		check.Error(t, "create", err, nil)
		return a
	}) {
		a.want(201).read(&made[i])
		check.Same(t, "the same endpoint", made[i], made[0])
	}
	if again := create("https://shop.example/", 1000).want(201); !again.replayed() || again.text("secret") != made[0].Secret || made[0].Secret == "" {
		t.Errorf("repeated: %s", again.body)
	}
	create("https://other.example/", 1000).refused(422, "idempotency_mismatch")
	create("https://shop.example/", 2000).refused(422, "idempotency_mismatch")
	s.operator().call("POST", adminEndpoints, fields{"url": "https://shop.example/"}, "Idempotency-Key", "two words").refused(400, "bad_request")
	s.operator().call("POST", adminEndpoints, fields{"url": "https://shop.example/"}, "Idempotency-Key", "k-2").want(201)
	var list struct{ Endpoints []endpointView }
	s.operator().get(adminEndpoints).read(&list)
	check.Same(t, "endpoints", len(list.Endpoints), 2)
	s.operator().call("POST", adminEndpoints+"/"+made[0].ID+"/secret", nil).want(200)
	create("https://shop.example/", 1000).refused(422, "idempotency_mismatch")
}

// As many endpoints as there may be that only fail, in every way, beside one that does not: it gets its events.
func TestGoodEndpointBesideBadOnes(t *testing.T) {
	t.Parallel()
	s, shop := start(t, privately), newReceiver(t)
	hangs := make(chan struct{})
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-hangs
		case "/fails":
			w.WriteHeader(http.StatusInternalServerError)
		case "/breaks":
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(func() { close(hangs); bad.Close() })
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close() // nobody listens there
	for i := range 99 {
		url := []string{bad.URL + "/hangs", bad.URL + "/fails", bad.URL + "/breaks", gone.URL}[i%4]
		s.operator().call("POST", adminEndpoints, fields{"url": url}).want(201)
	}
	s.tells(shop)
	saleID, ann := s.createSale(fields{"limit_per_user": 9}).ID, s.buyer("ann")
	for range 3 {
		order := ann.buy(saleID, 1)
		s.eventually("the good endpoint has the event", func() bool {
			events, _ := shop.heard()
			return len(about(events, saleID, order.ID)) == 1
		})
	}
}

// What an endpoint answers decides how it goes on.
func TestEndpointAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, privately)
	saleID, ann := s.createSale(fields{"limit_per_user": 9}).ID, s.buyer("ann")
	state := func(id string) (found endpointView) {
		var list struct {
			Endpoints []endpointView `json:"endpoints"`
		}
		s.operator().get(adminEndpoints).read(&list)
		for _, e := range list.Endpoints {
			if e.ID == id {
				found = e
			}
		}
		return found
	}

	// It fails first: the same message comes again.
	busy := newReceiver(t)
	busy.answer = func(w http.ResponseWriter, try int) { w.WriteHeader(map[bool]int{true: 503, false: 200}[try < 2]) }
	made := s.tells(busy)
	ann.buy(saleID, 1)
	s.eventually("the message has come again", func() bool { return state(made.ID).Tries == 0 && state(made.ID).Position != made.Position })
	_, ids := busy.heard()
	check.Same(t, "ids of the first two messages", ids[0], ids[1])

	// 410 ends it, a redirect is not followed, an answer without end is not read.
	gone, elsewhere := newReceiver(t), newReceiver(t)
	gone.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusGone) }
	redirects := newReceiver(t)
	redirects.answer = func(w http.ResponseWriter, _ int) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	endless := newReceiver(t)
	endless.answer = func(w http.ResponseWriter, _ int) {
		for w != nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
				return
			}
		}
	}
	goes, leads, talks := s.tells(gone), s.tells(redirects), s.tells(endless)
	ann.buy(saleID, 1)
	s.eventually("410 ends the endpoint", func() bool { return state(goes.ID).State == "gone" })
	s.eventually("a redirect is a failure", func() bool { return state(leads.ID).Tries > 0 })
	s.eventually("the long answer is accepted", func() bool { return state(talks.ID).Position != talks.Position })
	if _, ids := elsewhere.heard(); len(ids) > 0 {
		t.Errorf("the redirect was followed: %v", ids)
	}

	// With a new secret, both sign; switched off, nothing comes; switched on, it goes on where it was.
	var renewed endpointView
	s.operator().call("POST", adminEndpoints+"/"+made.ID+"/secret", nil).want(200).read(&renewed)
	came := func() int { _, ids := busy.heard(); return len(ids) }
	before := came()
	ann.buy(saleID, 1)
	s.eventually("a message signed with the old secret too", func() bool { return came() > before })
	busy.with(func() { busy.secret = renewed.Secret })
	s.operator().call("PATCH", adminEndpoints+"/"+made.ID, fields{"state": "off"}).want(200).contains(`"state":"off"`)
	before = came()
	order := ann.buy(saleID, 1)
	busy.with(func() { busy.answer = nil })
	s.operator().call("PATCH", adminEndpoints+"/"+made.ID, fields{"state": "on", "rate": 500}).want(200).contains(`"rate":500`)
	s.eventually("the event of the time without", func() bool {
		events, _ := busy.heard()
		return len(about(events, saleID, order.ID)) == 1
	})
	s.operator().call("DELETE", adminEndpoints+"/"+made.ID, nil).want(200)
	s.operator().call("DELETE", adminEndpoints+"/"+made.ID, nil).refused(404, "not_found")
	s.operator().get("/api/v1/admin/endpoint-operations").contains(`"create"`, `"change"`, `"remove"`)
}

// Without --webhook-private nothing is sent to this machine or into a private network, neither by address nor by name.
func TestEndpointsArePublic(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, wrong := range []string{
		"", "shop.example", "http://shop.example/", "https://localhost/", "https://127.0.0.1/", "https://[::1]/", "https://10.1.2.3/",
		"https://169.254.169.254/latest", "https://[::ffff:127.0.0.1]/", "https://100.64.0.1/", "https://[fd00::1]/", "https://0.0.0.0/",
		"https://[fec0::1]/", "https://[::7f00:1]/", "https://[::ffff:168.63.129.16]/", "https://168.63.129.16/", "https://[64:ff9b::a9fe:a9fe]/",
		"https://shop.example:65536/", "https://shop.example:0/", "https://u:p@shop.example/", "https://shop.example/#x", "ftp://shop.example/", "https://shop.example/ x", "https:///x",
	} {
		s.operator().call("POST", adminEndpoints, fields{"url": wrong}).refused(400, "bad_request")
	}
	s.operator().call("POST", adminEndpoints, fields{"url": "https://shop.example/", "rate": -1}).refused(400, "bad_request")
	s.operator().call("GET", adminEvents+"?after=x", nil).refused(400, "bad_request")
	made := s.operator().call("POST", adminEndpoints, fields{"url": "https://shop.example/"}).want(201)
	if list := s.operator().get(adminEndpoints); strings.Contains(string(list.body), "whsec_") || !strings.HasPrefix(made.text("secret"), "whsec_") {
		t.Errorf("the secret is shown again: %s", list.body)
	}
}
