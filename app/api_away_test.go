package app_test

import (
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/test/kit"
	"flashsale/test/kit/pace"
)

// probe is a request and the statuses that its answer may have.
type probe struct {
	who          *client
	method, path string
	body         any
	want         []int
}

// unavailable checks the refusal of a request that needs a store which is away.
func (a *answer) unavailable() {
	a.t.Helper()
	a.clean().refused(503, "unavailable")
	if a.header.Get("Retry-After") == "" {
		a.t.Errorf("%s: no Retry-After", a.what)
	}
}

// While the database is away, each request that needs the database gets 503, which does not say why. Requests that the
// memory can answer get their answers. When the database is back, everything works again.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	database := kit.MariaDB(t)
	address := database.NewDatabase(t)
	s := start(t, func(c *config.Settings) { c.Database = address })
	made := s.createSale(nil)
	ann, anyone, operator := s.buyer("ann"), s.anyone(), s.operator()
	bought := ann.buy(made.ID, 1)
	callback := paid(ann.startPayment(bought.ID).PaymentID, nil)
	desk, orderURL, saleURL := adminSales+"/"+made.ID, "/api/v1/orders/"+bought.ID, "/api/v1/sales/"+made.ID
	away, forged := []int{503}, saleURL+"/"+strings.Repeat("0", 32)+"/orders"

	database.Kill()
	for _, p := range []probe{
		{anyone, "POST", "/api/v1/users", fields{"name": "carol", "password": "correct horse"}, away},
		{anyone, "POST", "/api/v1/sessions", fields{"name": "admin", "password": adminPassword}, away},
		{ann, "GET", orderURL, nil, away},
		{ann, "GET", "/api/v1/orders", nil, away},
		{ann, "DELETE", orderURL, nil, away},
		{ann, "POST", orderURL + "/payments", nil, away},
		{s.signed(callback), "POST", callbackURL, callback, away},
		{operator, "POST", adminSales, newSale(nil), away},
		{operator, "PATCH", desk, fields{"title": "T"}, away},
		{operator, "POST", desk + "/pause", nil, away},
		{operator, "GET", desk + "/audit", nil, away},
		{operator, "GET", desk + "/orders", nil, away},
		{operator, "GET", desk + "/orders.csv", nil, away},
		{operator, "GET", desk + "/operations", nil, away},
		{operator, "GET", adminSales, nil, away},
		{operator, "POST", "/api/v1/admin/orders/" + bought.ID + "/refund", nil, away},
		{anyone, "GET", made.ShortURL, nil, away},
		{anyone, "GET", "/api/v1/sales", nil, []int{200}},
		{anyone, "GET", saleURL, nil, []int{200}},
		{anyone, "GET", "/api/v1/time", nil, []int{200}},
		{ann, "POST", saleURL + "/path", nil, []int{200}},
		{anyone, "GET", "/healthz", nil, []int{200}},
		{ann, "GET", "/api/v1/orders/AAAA", nil, []int{404}},
		{anyone, "GET", "/api/v1/orders", nil, []int{401}},
		{ann, "POST", forged, fields{"quantity": 1}, []int{403}},
		{ann, "POST", ann.orderURL(made.ID), fields{"quantity": 0}, []int{400}},
		{anyone, "POST", callbackURL, callback, []int{401}},
	} {
		if a := p.who.call(p.method, p.path, p.body).want(p.want[0]); a.status == 503 {
			a.unavailable()
		}
	}
	anyone.call("GET", "/readyz", nil).want(503)

	// The gate admits an attempt while the database is away. The attempt is confirmed after the database is back.
	queued := ann.purchased(202, made.ID, 1, "Prefer", "wait=1")
	database.Restart()
	ann.becomes(queued.ID, "pending")
	ann.pay(bought.ID)
	s.eventually("the instance is ready", func() bool { return anyone.call("GET", "/readyz", nil).status == 200 })
	s.wantStock(made.ID, stock{available: 8, held: 1, paid: 1})
}

// While Redis is away, hybrid sells by the database; redis and local answer 503 at once. Only what Redis alone knows is
// unavailable.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "redis", "local"} {
		t.Run(strategy, func(t *testing.T) {
			redis := kit.Redis(t)
			s := start(t, func(c *config.Settings) { c.Redis, c.Strategy = redis.URL(), strategy })
			saleID := s.createSale(nil).ID
			ann := s.buyer("ann")
			bought := ann.buy(saleID, 1)
			redis.Kill()

			s.operator().call("GET", adminSales+"/"+saleID+"/audit", nil).unavailable()
			s.operator().get("/api/v1/admin/stats")
			ann.pay(bought.ID)
			s.setStatus(saleID, "pause")
			s.setStatus(saleID, "resume")
			if strategy == "hybrid" {
				s.buyer("ben").buy(saleID, 1)
			} else {
				least := patience
				for range 3 {
					asked := time.Now()
					s.buyer("ben").purchase(saleID, 1).unavailable()
					least = min(least, time.Since(asked))
				}
				if least > 3*time.Second { // a purchase waits for its answer for up to ten seconds
					t.Errorf("the quickest of three refusals took %v", least)
				}
			}
			redis.Restart()
			s.eventually("sales go on", func() bool {
				return s.buyer("carol").purchase(saleID, 1, "Idempotency-Key", "k").status == 201
			})
			if books := s.balanced(saleID); books.Paid != 1 || books.Available+books.Held != 9 {
				t.Errorf("books %+v", books)
			}
		})
	}
}

// A database that takes no writes keeps nobody waiting for long: a request that must write gets 503 well before the
// server cuts its connection after thirty seconds, and nothing is changed. A callback that got 503 is repeated, and counts.
// The stream of a listener outlives the server's time-outs: after 15 seconds it repeats the stock.
func TestDatabaseLocked(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := start(t)
		saleID := s.createSale(nil).ID
		ann := s.buyer("ann")
		bought, other := ann.buy(saleID, 1), ann.buy(saleID, 1)
		callback := paid(ann.startPayment(bought.ID).PaymentID, nil)
		before := s.balanced(saleID)
		heard := s.events(saleID)
		opened := hearUntil(heard, "both units are sold", func(e stockEvent) bool { return e.Available == 8 })
		letGo := s.hold()
		began := time.Now()
		probes := []probe{
			{s.signed(callback), "POST", callbackURL, callback, nil},
			{ann, "DELETE", "/api/v1/orders/" + other.ID, nil, nil},
			{ann, "POST", "/api/v1/orders/" + other.ID + "/payments", nil, nil},
			{s.anyone(), "POST", "/api/v1/users", fields{"name": "carol", "password": "correct horse"}, nil},
			{s.operator(), "POST", adminSales, newSale(nil), nil},
		}
		answers := askAll(t, probes)
		if took := time.Since(began); took > 25*time.Second {
			t.Slowf("the last answer came after %v", took)
		}
		for _, a := range answers {
			a.unavailable()
		}
		letGo()
		s.wantBooks(saleID, before)
		for range 2 {
			s.callback(callback).want(200)
		}
		ann.wantStatus(bought.ID, "paid")
		if again := hear[stockEvent](heard); again.Available != 8 || again.Now.Sub(opened.Now) < 14*time.Second {
			t.Errorf("the stream said %+v, then %+v", opened, again)
		}
		ann.cancel(other.ID)
	})
}
