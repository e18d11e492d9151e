package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/service/auth"
	"flashsale/test/kit"
)

// together runs n goroutines that begin at one instant, and waits for them.
func together(n int, do func(i int)) {
	gate := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-gate
			do(i)
		})
	}
	close(gate)
	all.Wait()
}

// tally counts answers by status and code; what never came counts as an error.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(a *answer, err error) {
	what := "error"
	if err == nil {
		what = fmt.Sprint(a.status)
		if code, _, found := strings.Cut(afterCode(a.body), `"`); found {
			what += " " + code
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

func afterCode(body []byte) string {
	_, after, _ := strings.Cut(string(body), `"code":"`)
	return after
}

func (c *tally) want(t *testing.T, want map[string]int) {
	t.Helper()
	if fmt.Sprint(c.counts) != fmt.Sprint(want) {
		t.Errorf("answers %v, want %v", c.counts, want)
	}
}

func TestHole05_OddQuantities(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"limit_per_user": 5}).ID
	ann := s.buyer("ann")
	url := "/api/v1/sales/" + saleID + "/" + ann.path(saleID) + "/orders"
	before := s.balanced(saleID)
	for _, quantity := range []string{"-5", "0", "1.5", "6", "2147483648", "-2147483649", "4294967297", "9007199254740993", "1e309", "1e2", `"1"`, "null"} {
		t.Run(quantity, func(t *testing.T) {
			ann := ann.in(t)
			ann.call("POST", url, `{"quantity":`+quantity+`}`).refused(400, "bad_request")
			ann.call("POST", url, `{"quantity":`+quantity+`}`, "Idempotency-Key", "k").refused(400, "bad_request")
			if after := ann.balanced(saleID); !sameBooks(after, before) {
				t.Errorf("books %+v became %+v", before, after)
			}
		})
	}
	ann.purchase(saleID, 5, "Idempotency-Key", "k").want(201)
}

// As soon as the server says that a sale has begun, it sells: to buyers who hammer at the door, sale by sale at
// another fraction of a second.
func TestHole14_NoFalseNotStarted(t *testing.T) {
	t.Parallel()
	s := start(t)
	const sales = 10
	// The engine knows the database's clock, here the machine's, to half of the time in which it reads it, which on a busy
	// machine is long. So far its clock may be ahead.
	ahead := func() time.Duration {
		now := time.Now()
		return s.app.catalog.Now().Sub(now)
	}
	began := time.Now()
	s.createSale(nil)
	first := time.Now().Add(time.Second + 3*sales*time.Since(began)) // on a slow machine later
	made := make([]sale, sales)
	for i := range made {
		made[i] = s.createSale(fields{"starts_at": first.Add(time.Duration(i) * 37 * time.Millisecond)})
	}
	var waited tally
	together(sales, func(i int) {
		id, starts := made[i].ID, made[i].StartsAt
		c := s.buyer(fmt.Sprint("u", i))
		for asked := 0; ; asked++ {
			clockError := ahead()
			a, err := c.try(t.Context(), "POST", "/api/v1/sales/"+id+"/path", nil)
			switch {
			case err != nil:
				t.Error(err)
				return
			case a.status == http.StatusConflict:
				continue
			case a.status != http.StatusOK:
				t.Errorf("%d %s", a.status, a.body)
				return
			}
			if early := time.Until(starts); early > max(clockError, ahead(), 0)+time.Millisecond {
				t.Errorf("a path %v before the start", early)
			}
			path, _ := a.object()["path"].(string)
			a, err = c.try(t.Context(), "POST", "/api/v1/sales/"+id+"/"+path+"/orders", fields{"quantity": 1})
			if err != nil || a.status != http.StatusCreated {
				t.Errorf("right after the start: %v, %d %s", err, a.status, a.body)
			}
			if asked > 0 {
				waited.add(a, err)
			}
			return
		}
	})
	if waited.counts["201"] < sales/2 {
		t.Errorf("only %d of %d buyers came before the start", waited.counts["201"], sales)
	}
}

func TestHole19_BuyAgainAfterExpiry(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 1, "limit_per_user": 1}).ID
	ann := s.buyer("ann")
	first := ann.buy(saleID, 1)
	ann.purchase(saleID, 1).refused(409, "limit_reached")
	ann.overdue(first.ID)
	second := ann.buy(saleID, 1)
	if second.ID == first.ID || ann.order(second.ID).Status != "pending" || ann.order(first.ID).Status != "expired" {
		t.Errorf("%+v, then %+v", first, second)
	}
	ann.pay(second.ID)
	if books := s.balanced(saleID); books.Paid != 1 || books.Available != 0 || books.Orders["expired"] != 1 {
		t.Errorf("books %+v", books)
	}
}

// However fast the settler is: from the first answer on an order is queued or what became of it, and its polling
// ends.
func TestHole22_PollingEndsHoweverFastTheSettlerIs(t *testing.T) {
	t.Parallel()
	for _, ack := range []string{"queued", "confirmed"} {
		t.Run(ack, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Ack, c.AckWait = ack, 0 })
			const buyers = 30
			saleID := s.createSale(fields{"quota": buyers / 2, "limit_per_user": 1}).ID
			clients, paths := make([]*client, buyers), make([]string, buyers)
			for i := range clients {
				clients[i] = s.buyer(fmt.Sprint("u", i))
				paths[i] = clients[i].path(saleID)
			}
			var mu sync.Mutex
			ends := map[string]int{}
			together(buyers, func(i int) {
				c := clients[i]
				a, err := c.try(t.Context(), "POST", "/api/v1/sales/"+saleID+"/"+paths[i]+"/orders", fields{"quantity": 1})
				if err != nil {
					t.Error(err)
					return
				}
				status := fmt.Sprint(a.status)
				for a.status == http.StatusAccepted || a.status == http.StatusOK {
					id, _ := a.object()["id"].(string)
					if status, _ = a.object()["status"].(string); status != "queued" {
						break
					}
					if a, err = c.try(t.Context(), "GET", "/api/v1/orders/"+id, nil); err != nil || a.status != http.StatusOK {
						t.Errorf("a queued order: %v, %d %s", err, a.status, a.body)
						return
					}
				}
				mu.Lock()
				defer mu.Unlock()
				ends[status]++
			})
			if ends["pending"]+ends["201"] != buyers/2 || ends["409"] != buyers/2 {
				t.Errorf("ends %v", ends)
			}
			if books := s.balanced(saleID); books.Held != buyers/2 || books.Orders["pending"] != buyers/2 {
				t.Errorf("books %+v", books)
			}
		})
	}
}

// A queued order whose message is gone is told to be lost, as soon as both stores say so. Its key is refused from then on,
// and a new one buys.
func TestHole23_LostMessage(t *testing.T) {
	t.Parallel()
	flushes := map[string]func(t *testing.T) (redisURL string, flush func(s *server)){
		"embedded": func(t *testing.T) (string, func(*server)) {
			return config.EmbeddedRedis, func(s *server) {
				if err := s.app.stores.redis.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
		},
		"restarted empty": func(t *testing.T) (string, func(*server)) {
			redis := kit.Redis(t)
			return redis.URL(), func(*server) { redis.Restart() }
		},
	}
	for name, prepare := range flushes {
		t.Run(name, func(t *testing.T) {
			url, flush := prepare(t)
			s := start(t, func(c *config.Settings) { c.Redis = url })
			saleID := s.createSale(fields{"quota": 3, "limit_per_user": 1}).ID
			ann, ben := s.buyer("ann"), s.buyer("ben")
			letGo := s.hold()
			// The settler takes the first entry and waits for the database with it; the second stays in the stream.
			var anns, bens order
			ann.purchase(saleID, 1, "Prefer", "respond-async").want(202).read(&anns)
			s.eventually("the settler is busy", func() bool {
				groups, err := s.app.stores.redis.XInfoGroups(t.Context(), "fs:{"+saleID+"}:stream").Result()
				return err == nil && len(groups) == 1 && groups[0].Pending == 1
			})
			ben.purchase(saleID, 1, "Idempotency-Key", "k", "Prefer", "respond-async").want(202).read(&bens)
			if queued := ben.order(bens.ID); queued.Status != "queued" {
				t.Fatalf("%+v", queued)
			}
			flush(s)
			letGo() // that an attempt was lost is written before it is told
			var end order
			s.eventually("Ben's attempt ends", func() bool {
				end = ben.order(bens.ID)
				return end.Status != "queued"
			})
			s.buyer("carol").call("GET", "/api/v1/orders/"+bens.ID, nil).refused(404, "not_found")
			if end.Status == "pending" { // the settler's second writer had read the entry already
				var again order
				if ben.purchase(saleID, 1, "Idempotency-Key", "k").want(201).read(&again); again.ID != bens.ID {
					t.Errorf("the key gives %+v, the order is %s", again, bens.ID)
				}
			} else {
				if end.Status != "rejected" || end.Reason != "lost" || end.SaleID != saleID {
					t.Errorf("%+v", end)
				}
				ben.eventually("a new key buys", func() bool {
					return ben.purchase(saleID, 1, "Idempotency-Key", "new").status == http.StatusCreated
				})
				ben.eventually("the same key is refused", func() bool {
					a := ben.purchase(saleID, 1, "Idempotency-Key", "k")
					return a.status == http.StatusConflict && a.object()["code"] == "lost"
				})
			}
			if still := ben.order(bens.ID); still.Status != end.Status || still.Reason != end.Reason {
				t.Errorf("%+v, and was told to be %+v", still, end)
			}
			// What the settler had read before is Ann's.
			ann.becomes(anns.ID, "pending")
			s.buyer("dan").buy(saleID, 1)
			if books := s.balanced(saleID); books.Held != 3 || books.Available != 0 {
				t.Errorf("books %+v", books)
			}
		})
	}
}

func TestHole27_OnlyItsOwnerPaysAndOnlyWhatStands(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	made := ann.buy(saleID, 1)
	p := ann.startPayment(made.ID)
	for name, c := range map[string]*client{"another buyer": ben, "the operator": s.operator()} {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(404, "not_found")
			c.call("DELETE", "/api/v1/orders/"+made.ID, nil).refused(404, "not_found")
		})
	}
	ann.cancel(made.ID)
	ann.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(409, "not_payable")
	// Who pays on a page that was open already gets the money back, not the unit.
	ann.choose(p, "pay")
	if now := ann.order(made.ID); now.Status != "cancelled" {
		t.Errorf("%+v", now)
	}
	db := s.database()
	s.eventually("the money goes back", func() bool {
		var status string
		if err := db.QueryRowContext(t.Context(), "SELECT status FROM sandbox_transactions").Scan(&status); err != nil {
			t.Fatal(err)
		}
		return status == "refunded"
	})
	if books := s.balanced(saleID); books.Paid != 0 || books.Held != 0 || books.Available != 10 {
		t.Errorf("books %+v", books)
	}
}

// A provider hears 200 only when the payment is in the database; else it says it again, and then it counts once.
func TestHole28_CallbackThatCantBeKept(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	t.Run("the database is locked", func(t *testing.T) {
		s, ann := s.in(t), ann.in(t)
		made := ann.buy(saleID, 1)
		body := paid(ann.startPayment(made.ID), nil)
		letGo := s.hold()
		ctx, hangUp := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer hangUp()
		if a, err := s.signed(body).try(ctx, "POST", "/api/v1/payments/callback", body); err == nil && a.status < 500 {
			t.Errorf("%d %s while nothing could be written", a.status, a.body)
		}
		letGo()
		// Whether the callback is applied after the provider has hung up is open; it may be repeated in either case.
		if now := ann.order(made.ID); now.Status != "pending" && now.Status != "paid" {
			t.Errorf("the callback that was given up has made the order %s", now.Status)
		}
		for range 2 {
			s.callback(body).want(200)
		}
		if now := ann.order(made.ID); now.Status != "paid" {
			t.Errorf("%+v", now)
		}
	})
	t.Run("the database is broken", func(t *testing.T) {
		s, ann := s.in(t), ann.in(t)
		made := ann.buy(saleID, 1)
		p := ann.startPayment(made.ID)
		s.exec("ALTER TABLE payments RENAME COLUMN provider_txn_id TO elsewhere")
		if a := s.callback(paid(p, nil)).clean(); a.status < 500 {
			t.Errorf("%d %s", a.status, a.body)
		}
		page := ann.choose(p, "pay") // the sandbox is answered no better, and will say it again
		if !strings.Contains(string(page.body), "will be told again") && !strings.Contains(string(page.body), "can&#39;t be shown") {
			t.Errorf("%s", page.body)
		}
		s.exec("ALTER TABLE payments RENAME COLUMN elsewhere TO provider_txn_id")
		ann.becomes(made.ID, "paid")
	})
	if books := s.balanced(saleID); books.Paid != 2 || books.Held != 0 {
		t.Errorf("books %+v", books)
	}
}

func TestHole29_CallbacksThatAreNone(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	anns, bens := ann.buy(saleID, 1), ben.buy(saleID, 1)
	body, bensBody := paid(ann.startPayment(anns.ID), nil), paid(ben.startPayment(bens.ID), nil)
	before := s.balanced(saleID)
	old := s.signed(body)
	for name, tc := range map[string]struct {
		who    *client
		body   fields
		status int
		code   string
	}{
		"unsigned":         {s.anyone(), body, 401, "bad_signature"},
		"with a token":     {ann, body, 401, "bad_signature"},
		"stale":            {old.with("X-Timestamp", fmt.Sprint(time.Now().Add(-time.Hour).Unix())), body, 401, "bad_signature"},
		"of another order": {old, bensBody, 401, "bad_signature"},
		"a wrong amount":   {s.signed(paid(payment{PaymentID: body["payment_id"].(string)}, fields{"amount_cents": 1})), paid(payment{PaymentID: body["payment_id"].(string)}, fields{"amount_cents": 1}), 409, "amount_mismatch"},
		"of no payment":    {s.signed(paid(payment{PaymentID: anns.ID}, nil)), paid(payment{PaymentID: anns.ID}, nil), 404, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.who.in(t).call("POST", "/api/v1/payments/callback", tc.body).refused(tc.status, tc.code)
			if after := s.in(t).balanced(saleID); !sameBooks(after, before) {
				t.Errorf("books %+v became %+v", before, after)
			}
		})
	}
	// Once, and then replayed as often as one likes: one payment.
	for range 5 {
		old.call("POST", "/api/v1/payments/callback", body).want(200)
	}
	if books := s.balanced(saleID); books.Paid != 1 || books.Held != 1 {
		t.Errorf("books %+v", books)
	}
	// A replay after the order has gone on takes it nowhere back.
	s.operator().call("POST", "/api/v1/admin/orders/"+anns.ID+"/refund", nil).want(200)
	old.call("POST", "/api/v1/payments/callback", body).want(200)
	if now := ann.order(anns.ID); now.Status != "refunded" {
		t.Errorf("a replay made the refunded order %s", now.Status)
	}
	if books := s.balanced(saleID); books.Paid != 0 || books.Held != 1 || books.Available != 9 {
		t.Errorf("books %+v", books)
	}
}

// A path is good for one buyer in one sale until it ends, and no other path is.
func TestHole33_PathsOfOthers(t *testing.T) {
	t.Parallel()
	s := start(t)
	one, two := s.createSale(nil).ID, s.createSale(nil).ID
	five, four, fiftyThree := s.buyer("5"), s.buyer("4"), s.buyer("53")
	good := five.path(one)
	now := time.Now()
	issue := func(at time.Time, secret, user, saleID string) string {
		path, _ := auth.NewPaths([]byte(secret), func() time.Time { return at }).Issue(user, saleID, time.Minute)
		return path
	}
	flip := func(i int) string {
		digit := byte('0')
		if good[i] == digit {
			digit = '1'
		}
		return good[:i] + string(digit) + good[i+1:]
	}
	forged := map[string]string{
		"of the other sale":             five.path(two),
		"of another buyer":              four.path(one),
		"of both others":                four.path(two),
		"of user and sale run together": issue(now, testSecret, "5"+one[:1], one[1:]),
		"expired":                       issue(now.Add(-2*time.Minute), testSecret, "5", one),
		"of another secret":             issue(now, strings.Repeat("s", 32), "5", one),
		"with a later expiry":           "7fffffff" + good[8:],
		"with a digit more":             good + "0",
		"with a digit less":             good[:31],
		"in capitals":                   strings.ToUpper(good),
		"all zeros":                     strings.Repeat("0", 32),
		"no hex":                        strings.Repeat("g", 32),
		"the word path":                 "path",
	}
	for i := range good {
		forged[fmt.Sprint("with digit ", i, " changed")] = flip(i)
	}
	before := s.balanced(one)
	for name, path := range forged {
		t.Run(name, func(t *testing.T) {
			five.in(t).call("POST", "/api/v1/sales/"+one+"/"+path+"/orders", fields{"quantity": 1}).refused(403, "bad_path")
		})
	}
	t.Run("in another buyer's hands", func(t *testing.T) {
		for _, c := range []*client{four, fiftyThree, s.operator(), s.buyer("05"), s.buyer("5.")} {
			c.in(t).call("POST", "/api/v1/sales/"+one+"/"+good+"/orders", fields{"quantity": 1}).refused(403, "bad_path")
		}
	})
	if after := s.balanced(one); !sameBooks(after, before) {
		t.Errorf("books %+v became %+v", before, after)
	}
	if again := five.path(one); again[8:] == five.path(two)[8:] || len(again) != 32 {
		t.Errorf("paths %s and %s", again, five.path(two))
	}
	five.call("POST", "/api/v1/sales/"+one+"/"+good+"/orders", fields{"quantity": 1}).want(201)
}

// The server judges the sale's time and state itself, for buyers who have a good path from whenever.
func TestHole34_OutsideOfTheSale(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "local", "optimistic", "pessimistic", "mutex", "naive"} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Strategy, c.AllowOversell = strategy, true })
			now, hour := time.Now(), time.Hour
			tests := map[string]struct {
				starts, ends time.Time
				then         func(id string)
				want         string
			}{
				"before the start":     {now.Add(hour), now.Add(2 * hour), nil, "not_started"},
				"paused before it":     {now.Add(hour), now.Add(2 * hour), func(id string) { s.setStatus(id, "pause") }, "not_started"},
				"closed before it":     {now.Add(hour), now.Add(2 * hour), func(id string) { s.setStatus(id, "close") }, "ended"},
				"paused":               {now.Add(-hour), now.Add(hour), func(id string) { s.setStatus(id, "pause") }, "paused"},
				"closed":               {now.Add(-hour), now.Add(hour), func(id string) { s.setStatus(id, "close") }, "ended"},
				"paused, then closed":  {now.Add(-hour), now.Add(hour), func(id string) { s.setStatus(id, "pause"); s.setStatus(id, "close") }, "ended"},
				"the end moved here":   {now.Add(-hour), now.Add(hour), func(id string) { s.patchSale(id, fields{"ends_at": now.Add(-time.Minute)}) }, "ended"},
				"the start moved away": {now.Add(-hour), now.Add(hour), func(id string) { s.patchSale(id, fields{"starts_at": now.Add(hour / 2)}) }, "not_started"},
				"over while paused": {now.Add(-hour), now.Add(hour), func(id string) {
					s.setStatus(id, "pause")
					s.patchSale(id, fields{"ends_at": now.Add(-time.Minute)})
				}, "ended"},
			}
			for name, tc := range tests {
				t.Run(name, func(t *testing.T) {
					s := s.in(t)
					made := s.createSale(fields{"starts_at": tc.starts, "ends_at": tc.ends})
					if tc.then != nil {
						tc.then(made.ID)
					}
					ann := s.buyer("ann")
					ann.purchase(made.ID, 1).refused(409, tc.want)
					ann.purchase(made.ID, 1, "Idempotency-Key", "k").refused(409, tc.want)
					ann.call("POST", "/api/v1/sales/"+made.ID+"/path", nil).refused(409, tc.want)
					if books := s.sums(made.ID); books.Held != 0 || books.Available != 10 {
						t.Errorf("books %+v", books)
					}
				})
			}
			t.Run("a pause ends in mid-rush", func(t *testing.T) {
				s := s.in(t)
				saleID := s.createSale(nil).ID
				s.setStatus(saleID, "pause")
				s.buyer("ann").purchase(saleID, 1).refused(409, "paused")
				s.setStatus(saleID, "resume")
				s.buyer("ann").buy(saleID, 1)
			})
		})
	}
}

func TestHole35_TenAtOnceOfOneBuyer(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "redis", "local", "optimistic", "pessimistic", "mutex", "naive"} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Strategy, c.AllowOversell = strategy, true })
			saleID := s.createSale(fields{"limit_per_user": 1}).ID
			ann := s.buyer("ann")
			url := "/api/v1/sales/" + saleID + "/" + ann.path(saleID) + "/orders"
			var got tally
			together(10, func(int) { got.add(ann.try(t.Context(), "POST", url, fields{"quantity": 1})) })
			got.want(t, map[string]int{"201": 1, "409 limit_reached": 9})

			var keyed tally
			ben := s.buyer("ben")
			url = "/api/v1/sales/" + saleID + "/" + ben.path(saleID) + "/orders"
			together(10, func(int) { keyed.add(ben.try(t.Context(), "POST", url, fields{"quantity": 1}, "Idempotency-Key", "k")) })
			keyed.want(t, map[string]int{"201": 10}) // one order, told ten times
			if books := s.sums(saleID); books.Held != 2 || books.Orders["pending"] != 2 {
				t.Errorf("books %+v", books)
			}
		})
	}
}

func TestHole36_CancelThenBuyAgain(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "optimistic", "pessimistic", "mutex", "naive"} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Strategy, c.AllowOversell = strategy, true })
			saleID := s.createSale(fields{"quota": 1, "limit_per_user": 1}).ID
			ann := s.buyer("ann")
			seen := map[string]bool{}
			for range 5 {
				made := ann.buy(saleID, 1)
				if seen[made.ID] {
					t.Fatalf("order %s a second time", made.ID)
				}
				seen[made.ID] = true
				ann.cancel(made.ID)
				ann.call("DELETE", "/api/v1/orders/"+made.ID, nil).refused(409, "not_cancellable")
			}
			s.buyer("ben").buy(saleID, 1) // the unit came back once each time
			ann.purchase(saleID, 1).refused(409, "sold_out")
			if books := s.sums(saleID); books.Held != 1 || books.Available != 0 || books.Orders["cancelled"] != 5 {
				t.Errorf("books %+v", books)
			}
		})
	}
}

// Whoever is not a trusted proxy may say in X-Forwarded-For what it likes.
func TestHole38_ForgedAddresses(t *testing.T) {
	t.Parallel()
	const limit = 20
	t.Run("from a stranger", func(t *testing.T) {
		s := start(t, func(c *config.Settings) { c.IPRate, c.OpsAddr = limit, "127.0.0.1:0" })
		var got tally
		began := time.Now()
		for i := range 1000 {
			forged := fmt.Sprintf("10.%d.%d.1", i/250, i%250)
			got.add(s.anyone().try(t.Context(), "GET", "/api/v1/time", nil, "X-Forwarded-For", forged, "X-Real-IP", forged, "Forwarded", "for="+forged, "CF-Connecting-IP", forged))
		}
		most := limit + int(time.Since(began).Seconds()*limit) + 1
		if got.counts["200"] > most || got.counts["200"]+got.counts["429 rate_limited"] != 1000 {
			t.Errorf("%v, want at most %d let through", got.counts, most)
		}
		s.anyone().at("127.0.0.77").call("GET", "/api/v1/time", nil).want(200) // others are served
		if figures := s.anyone().call("GET", s.app.OpsURL()+"/metrics", nil).want(200); len(figures.body) > 64<<10 {
			t.Errorf("the figures have grown to %d bytes", len(figures.body))
		}
	})
	t.Run("through a trusted proxy", func(t *testing.T) {
		s := start(t, func(c *config.Settings) { c.IPRate, c.TrustedProxies = limit, []string{"127.0.0.0/8"} })
		var got tally
		began := time.Now()
		for i := range 300 { // the proxy has put the true address behind what the client said
			got.add(s.anyone().try(t.Context(), "GET", "/api/v1/time", nil, "X-Forwarded-For", fmt.Sprintf("10.0.%d.%d, 192.0.2.7", i/250, i%250)))
		}
		if most := limit + int(time.Since(began).Seconds()*limit) + 1; got.counts["200"] > most {
			t.Errorf("%v, want at most %d let through", got.counts, most)
		}
		s.anyone().call("GET", "/api/v1/time", nil, "X-Forwarded-For", "192.0.2.8").want(200)
	})
}

// What is someone else's can't be told from what is not there: the same bytes but for the request's id.
func TestHole43_GuessedIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	pending, paidOrder, cancelled := ann.buy(saleID, 1).ID, ann.buy(saleID, 1).ID, ""
	ann.pay(paidOrder)
	s.patchSale(saleID, fields{"limit_per_user": 5})
	cancelled = ann.buy(saleID, 1).ID
	ann.cancel(cancelled)
	bens := ben.buy(saleID, 1).ID
	before := s.balanced(saleID)

	absent := strings.Repeat("A", 48)
	guesses := map[string]string{
		"another's pending order": pending, "another's paid order": paidOrder, "another's cancelled order": cancelled,
		"one letter off one's own": bens[:47] + otherLetter(bens[47]), "one's own, of another sale": strings.Repeat("A", 16) + bens[16:],
		"another's with one's own tag": pending[:32] + bens[32:], "one's own with another's tag": bens[:32] + pending[32:],
		"too short": bens[:47], "a sale's": saleID,
	}
	for _, r := range []struct{ method, tail string }{{"GET", ""}, {"DELETE", ""}, {"POST", "/payments"}} {
		ask := func(t *testing.T, id string) string {
			a := ben.in(t).call(r.method, "/api/v1/orders/"+id+r.tail, nil, "X-Request-ID", "same")
			a.refused(404, "not_found")
			header := a.header.Clone()
			header.Del("Date")
			return fmt.Sprint(header, string(a.body))
		}
		want := ask(t, absent)
		for name, id := range guesses {
			t.Run(r.method+r.tail+" "+name, func(t *testing.T) {
				if got := ask(t, id); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		}
	}
	if after := s.balanced(saleID); !sameBooks(after, before) {
		t.Errorf("books %+v became %+v", before, after)
	}
	t.Run("ids tell nothing of their number", func(t *testing.T) {
		seen := map[string]bool{}
		for range 20 {
			id := s.in(t).createSale(nil).ID
			if seen[id[:4]] {
				t.Errorf("two sales of twenty begin with %s", id[:4])
			}
			seen[id[:4]] = true
		}
	})
}

func otherLetter(b byte) string {
	if b == 'A' {
		return "B"
	}
	return "A"
}

// Buyers who take everything and never pay: the units come back by themselves, and others buy them.
func TestHole44_BuyersWhoNeverPay(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "local", "optimistic", "pessimistic", "mutex"} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Strategy, c.AllowOversell = strategy, true })
			const quota = 15
			saleID := s.createSale(fields{"quota": quota, "limit_per_user": 1}).ID
			bots, paths := make([]*client, quota), make([]string, quota)
			for i := range bots {
				bots[i] = s.buyer(fmt.Sprint("bot", i))
				paths[i] = bots[i].path(saleID)
			}
			var got tally
			together(quota, func(i int) {
				got.add(bots[i].try(t.Context(), "POST", "/api/v1/sales/"+saleID+"/"+paths[i]+"/orders", fields{"quantity": 1}))
			})
			got.want(t, map[string]int{"201": quota})
			s.buyer("ann").purchase(saleID, 1).refused(409, "sold_out")

			// Ten minutes later, and past the grace:
			s.exec("UPDATE orders SET expires_at_ms = created_at_ms - 100000000 WHERE sale_id = ?", saleID)
			// Each asks until it has one, as a page does that shows the stock; and then it pays.
			for i := range quota {
				c := s.buyer(fmt.Sprint("u", i))
				var made order
				s.eventually("a unit for "+c.user, func() bool {
					a := c.purchase(saleID, 1)
					if a.status == http.StatusCreated {
						a.read(&made)
					}
					return a.status == http.StatusCreated
				})
				c.pay(made.ID)
			}
			books := s.sums(saleID)
			if books.Paid != quota || books.Held != 0 || books.Available != 0 || books.Orders["expired"] != quota {
				t.Errorf("books %+v", books)
			}
			s.buyer("ann").purchase(saleID, 1).refused(409, "sold_out")
		})
	}
}

// One buyer with many addresses is held by the limit of the buyer, one address with many buyers by that of the
// address.
func TestHole45_ManyAddressesManyBuyers(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "optimistic"} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) {
				c.Strategy, c.UserRequests, c.UserWindow, c.IPRate = strategy, 3, time.Hour, 8
			})
			saleID := s.createSale(fields{"limit_per_user": 20, "quota": 200}).ID
			ann := s.buyer("ann")
			url := func(c *client) string { return "/api/v1/sales/" + saleID + "/" + c.forgedPath(saleID) + "/orders" }
			var got tally
			for i := range 20 {
				got.add(ann.at(fmt.Sprint("127.0.1.", i+1)).try(t.Context(), "POST", url(ann), fields{"quantity": 1}))
			}
			got.want(t, map[string]int{"201": 3, "429 too_frequent": 17})

			var crowd tally
			began := time.Now()
			for i := range 100 {
				c := s.buyer(fmt.Sprint("u", i))
				c.from = ann.at("127.0.2.1").from
				crowd.add(c.try(t.Context(), "POST", url(c), fields{"quantity": 1}))
			}
			most := 8 + int(time.Since(began).Seconds()*8) + 1
			if crowd.counts["201"] > most || crowd.counts["201"] < 8 || crowd.counts["201"]+crowd.counts["429 rate_limited"] != 100 {
				t.Errorf("%v from one address, want 8 to %d served", crowd.counts, most)
			}
			// In another sale Ann's count is another; and in time she may ask again.
			other := s.operator().at("127.0.3.1").createSale(nil)
			ann.at("127.0.3.2").purchase(other.ID, 1).want(201)
		})
	}
}

// Hole 45, the window of time: the count ends with it.
func TestHole45_WindowEnds(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.UserRequests, c.UserWindow = 2, time.Second })
	saleID := s.createSale(fields{"limit_per_user": 100, "quota": 100}).ID
	ann := s.buyer("ann")
	var statuses []int
	for len(statuses) < 3 || statuses[len(statuses)-1] == http.StatusCreated {
		a := ann.purchase(saleID, 1)
		statuses = append(statuses, a.status)
		if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After: %s", a.header.Get("Retry-After"))
		}
		if len(statuses) > 99 {
			t.Fatalf("never too frequent: %v", statuses)
		}
	}
	if !slices.Contains(statuses, http.StatusCreated) || statuses[len(statuses)-1] != http.StatusTooManyRequests {
		t.Errorf("statuses %v", statuses)
	}
	s.eventually("the window ends", func() bool { return ann.purchase(saleID, 1).status == http.StatusCreated })
}

// Hole 60: after the limit of a sale was lowered a repeated key still gets the order that it had.
func TestHole60_LimitLowered(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"hybrid", "redis", "local", "optimistic", "pessimistic", "mutex", "naive"} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Strategy, c.AllowOversell = strategy, true })
			saleID := s.createSale(fields{"quota": 9, "limit_per_user": 3}).ID
			ann := s.buyer("ann")
			var made, again order
			ann.purchase(saleID, 3, "Idempotency-Key", "k").want(201).read(&made)
			s.patchSale(saleID, fields{"limit_per_user": 1})
			ann.purchase(saleID, 3, "Idempotency-Key", "k").want(201).read(&again)
			if again.ID != made.ID || again.Quantity != 3 {
				t.Errorf("%+v became %+v", made, again)
			}
			ann.purchase(saleID, 2, "Idempotency-Key", "k").refused(422, "idempotency_mismatch")
			ann.purchase(saleID, 3, "Idempotency-Key", "new").refused(400, "bad_request")
			ann.purchase(saleID, 3).refused(400, "bad_request")
			s.buyer("ben").purchase(saleID, 2, "Idempotency-Key", "k").refused(400, "bad_request")
			if books := s.sums(saleID); books.Held != 3 {
				t.Errorf("books %+v", books)
			}
		})
	}
}
