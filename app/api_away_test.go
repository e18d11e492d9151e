package app

import (
	"maps"
	"slices"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// While the database is away, whoever needs it hears 503, without a word of why; what the memory knows is still
// shown; and when it is back, all goes on.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	database := kit.MariaDB(t)
	address := database.NewDatabase(t)
	s := start(t, func(c *config.Settings) { c.Database, c.LogLevel = address, "error" })
	made := s.createSale(nil)
	ann := s.buyer("ann")
	bought := ann.buy(made.ID, 1)
	callback := paid(ann.startPayment(bought.ID), nil)

	database.Kill()
	for name, tc := range map[string]struct {
		who          *client
		method, path string
		body         any
		status       int
	}{
		"a new buyer":       {s.anyone(), "POST", "/api/v1/users", fields{"name": "carol", "password": "correct horse"}, 503},
		"a log-in":          {s.anyone(), "POST", "/api/v1/sessions", fields{"name": "admin", "password": adminPassword}, 503},
		"an order":          {ann, "GET", "/api/v1/orders/" + bought.ID, nil, 503},
		"the orders":        {ann, "GET", "/api/v1/orders", nil, 503},
		"a cancel":          {ann, "DELETE", "/api/v1/orders/" + bought.ID, nil, 503},
		"a payment":         {ann, "POST", "/api/v1/orders/" + bought.ID + "/payments", nil, 503},
		"a callback":        {s.signed(callback), "POST", "/api/v1/payments/callback", callback, 503},
		"a new sale":        {s.operator(), "POST", "/api/v1/admin/sales", newSale(nil), 503},
		"a changed sale":    {s.operator(), "PATCH", "/api/v1/admin/sales/" + made.ID, fields{"title": "T"}, 503},
		"a pause":           {s.operator(), "POST", "/api/v1/admin/sales/" + made.ID + "/pause", nil, 503},
		"an audit":          {s.operator(), "GET", "/api/v1/admin/sales/" + made.ID + "/audit", nil, 503},
		"a sale's orders":   {s.operator(), "GET", "/api/v1/admin/sales/" + made.ID + "/orders", nil, 503},
		"the same, a sheet": {s.operator(), "GET", "/api/v1/admin/sales/" + made.ID + "/orders.csv", nil, 503},
		"what was done":     {s.operator(), "GET", "/api/v1/admin/sales/" + made.ID + "/operations", nil, 503},
		"all sales":         {s.operator(), "GET", "/api/v1/admin/sales", nil, 503},
		"a refund":          {s.operator(), "POST", "/api/v1/admin/orders/" + bought.ID + "/refund", nil, 503},
		"a sale's page":     {s.anyone(), "GET", made.ShortURL, nil, 503},
		"the sales":         {s.anyone(), "GET", "/api/v1/sales", nil, 200},
		"one sale":          {s.anyone(), "GET", "/api/v1/sales/" + made.ID, nil, 200},
		"the time":          {s.anyone(), "GET", "/api/v1/time", nil, 200},
		"a path":            {ann, "POST", "/api/v1/sales/" + made.ID + "/path", nil, 200},
		"life":              {s.anyone(), "GET", "/healthz", nil, 200},
		"a guessed order":   {ann, "GET", "/api/v1/orders/AAAA", nil, 404},
		"a stranger":        {s.anyone(), "GET", "/api/v1/orders", nil, 401},
		"a forged path":     {ann, "POST", "/api/v1/sales/" + made.ID + "/" + "00000000000000000000000000000000" + "/orders", fields{"quantity": 1}, 403},
		"a bad quantity":    {ann, "POST", "/api/v1/sales/" + made.ID + "/" + ann.forgedPath(made.ID) + "/orders", fields{"quantity": 0}, 400},
		"an unsigned word":  {s.anyone(), "POST", "/api/v1/payments/callback", callback, 401},
	} {
		t.Run(name, func(t *testing.T) {
			a := tc.who.in(t).call(tc.method, tc.path, tc.body)
			a.want(tc.status)
			if tc.status == 503 {
				checkUnavailable(a)
			}
		})
	}
	s.anyone().call("GET", "/readyz", nil).want(503)

	// Admitted while the database was away: no yes before it is back.
	var queued order
	ann.purchase(made.ID, 1, "Prefer", "wait=1").want(202).read(&queued)
	database.Restart()
	ann.becomes(queued.ID, "pending")
	ann.pay(bought.ID)
	s.anyone().call("GET", "/readyz", nil).want(200)
	if books := s.balanced(made.ID); books.Paid != 1 || books.Held != 1 || books.Available != 8 {
		t.Errorf("books %+v", books)
	}
}

func checkUnavailable(a *answer) {
	a.t.Helper()
	a.clean().refused(503, "unavailable")
	if a.header.Get("Retry-After") == "" {
		a.t.Errorf("%s: no Retry-After", a.what)
	}
}

// While Redis is away the database sells. What only Redis knows is unavailable, and said quickly.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "redis", "local"} {
		t.Run(strategy, func(t *testing.T) {
			redis := kit.Redis(t)
			s := start(t, func(c *config.Settings) { c.Redis, c.Strategy = redis.URL(), strategy })
			made := s.createSale(nil)
			ann := s.buyer("ann")
			bought := ann.buy(made.ID, 1)
			redis.Kill()

			checkUnavailable(s.operator().call("GET", "/api/v1/admin/sales/"+made.ID+"/audit", nil))
			s.operator().call("GET", "/api/v1/admin/stats", nil).want(200)
			ann.pay(bought.ID)
			s.setStatus(made.ID, "pause")
			s.setStatus(made.ID, "resume")
			if strategy != "hybrid" {
				least := patience
				for range 3 {
					asked := time.Now()
					checkUnavailable(s.buyer("ben").purchase(made.ID, 1))
					least = min(least, time.Since(asked))
				}
				if least > 400*time.Millisecond {
					t.Errorf("a refused connection is answered after %v at best", least)
				}
			} else {
				s.buyer("ben").buy(made.ID, 1)
			}
			redis.Restart()
			s.buyer("carol").eventually("sales go on", func() bool { return s.buyer("carol").purchase(made.ID, 1, "Idempotency-Key", "k").status == 201 })
			if books := s.balanced(made.ID); books.Paid != 1 || books.Available+books.Held != 9 {
				t.Errorf("books %+v", books)
			}
		})
	}
}

// A database that takes no writes keeps nobody waiting for long: whoever needs one hears 503 well before the server
// cuts the connection, and nothing was changed.
func TestDatabaseLocked(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	bought, other := ann.buy(saleID, 1), ann.buy(saleID, 1)
	callback := paid(ann.startPayment(bought.ID), nil)
	before := s.balanced(saleID)
	letGo := s.hold()
	asked := map[string]probe{
		"a callback":  {"", s.signed(callback), "POST", "/api/v1/payments/callback", callback, nil},
		"a cancel":    {"", ann, "DELETE", "/api/v1/orders/" + other.ID, nil, nil},
		"a payment":   {"", ann, "POST", "/api/v1/orders/" + other.ID + "/payments", nil, nil},
		"a new buyer": {"", s.anyone(), "POST", "/api/v1/users", fields{"name": "carol", "password": "correct horse"}, nil},
		"a new sale":  {"", s.operator(), "POST", "/api/v1/admin/sales", newSale(nil), nil},
	}
	names := slices.Sorted(maps.Keys(asked))
	answers, errs := make([]*answer, len(names)), make([]error, len(names))
	began := time.Now()
	together(len(names), func(i int) {
		p := asked[names[i]]
		answers[i], errs[i] = p.who.try(t.Context(), p.method, p.path, p.body)
	})
	if took := time.Since(began); took > 25*time.Second { // the server cuts the connection after thirty
		t.Errorf("the last answer came after %v", took)
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			answers[i].t = t
			checkUnavailable(answers[i])
		})
	}
	letGo()
	if after := s.balanced(saleID); !sameBooks(after, before) {
		t.Errorf("books %+v became %+v", before, after)
	}
	s.callback(callback).want(200)
	ann.cancel(other.ID)
}
