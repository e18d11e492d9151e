package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/test/kit/check"
)

// Purchase bodies with odd quantities, and bodies that are not one JSON object, sell nothing. TestDecodeRefuses of the
// package handler has every form of a bad body.
func TestHole05_OddQuantities(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(fields{"limit_per_user": 5}).ID
	ann := s.buyer("ann")
	url := "/api/v1/sales/" + saleID + "/" + ann.path(saleID) + "/orders"
	before := s.balanced(saleID)
	for _, quantity := range []string{
		"-5", "0", "-0", "1.5", "1.000001", "5e-1", "1e2", "6", "2147483648", "-2147483649", "4294967297", "9007199254740993",
		"9223372036854775808",
		"18446744073709551617", "1e309", strings.Repeat("9", 1000), "NaN", "0x1", "01", `"1"`, "true", "null", "[1]", "{}",
	} {
		body := `{"quantity":` + quantity + `}`
		ann.call("POST", url, body).clean().refused(400, "bad_request")
		ann.call("POST", url, body, "Idempotency-Key", "k").refused(400, "bad_request")
	}
	for _, body := range []string{
		``, `{}`, `{"Quantity":1}`, `{"quantıty":1}`, `{"quantity":1,"user_id":"ben"}`, `{"quantity":1,"quantity":2}`,
		`{"quantity":1}{"quantity":2}`,
		`{"quantity":1`, `{"quantity":1}` + "\x00", "{\"quantity\":1,\"\xff\":1}", strings.Repeat("[", 4000),
	} {
		if a := ann.call("POST", url, body).clean(); a.refused(400, "bad_request").Detail == "" || len(a.body) > 1000 {
			t.Errorf("%.100s: the refusal has %d bytes", body, len(a.body))
		}
	}
	ann.call("POST", url, `{"quantity":1}`+strings.Repeat(" ", 4083)).refused(413, "too_large") // 4 KiB and a byte
	s.wantBooks(saleID, before)
	for _, body := range []string{
		" \r\n\t{ \"quantity\" : 1 }\r\n", `{"quantity":1}` + strings.Repeat(" ", 4082),
		`{"quantit\u0079":1}`,
	} {
		ann.call("POST", url, body).want(201)
	}
	s.buyer("ben").purchase(saleID, 5, "Idempotency-Key", "k").want(201)
}

// As soon as the server says that a sale has begun, it sells: to buyers who ask without a pause, sale by sale at another
// fraction of a second.
func TestHole14_NoFalseNotStarted(t *testing.T) {
	t.Parallel()
	s := start(t)
	const sales = 10
	// The engine knows the database's clock, here the machine's, to half of the time that a read takes, which is long on a
	// busy machine. The engine's clock may be ahead by so much.
	ahead := func() time.Duration {
		now := time.Now()
		return s.app.Catalog.Now().Sub(now)
	}
	inTime := 0
	for lead := time.Second; inTime < sales/2 && lead < patience; lead *= 2 { // on a slow machine the sales may start before the buyers come
		first := time.Now().Add(lead)
		made := make([]sale, sales)
		for i := range made {
			made[i] = s.createSale(fields{"starts_at": first.Add(time.Duration(i) * 37 * time.Millisecond)})
		}
		var waited tally
		check.Together(sales, func(i int) {
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
				order := "/api/v1/sales/" + id + "/" + a.text("path") + "/orders"
				for {
					early := time.Until(starts) > -max(clockError.Abs(), ahead().Abs())
					a, err = c.try(t.Context(), "POST", order, fields{"quantity": 1})
					if err != nil || a.status != http.StatusConflict || !early { // the gate judges by the clock of Redis
						break
					}
				}
				if err != nil || a.status != http.StatusCreated {
					t.Errorf("right after the start: %v, %d %s", err, a.status, a.body)
				}
				if asked > 0 {
					waited.add(a, err)
				}
				return
			}
		})
		inTime = waited.counts["201"]
	}
	if inTime < sales/2 {
		t.Errorf("only %d of %d buyers came before the start", inTime, sales)
	}
}

func TestHole19_BuyAgainAfterExpiry(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(fields{"quota": 1, "limit_per_user": 1}).ID
	ann := s.buyer("ann")
	first := ann.buy(saleID, 1)
	ann.purchase(saleID, 1).refused(409, "limit_reached")
	ann.overdue(first.ID)
	second := ann.buy(saleID, 1)
	if second.ID == first.ID {
		t.Errorf("order %s a second time", first.ID)
	}
	ann.wantStatus(second.ID, "pending")
	ann.pay(second.ID)
	ann.wantStatus(first.ID, "expired")
	if books := s.wantStock(saleID, stock{paid: 1}); books.Orders["expired"] != 1 {
		t.Errorf("orders %v", books.Orders)
	}
}

// However fast the settler is: from the first answer on, an order is queued or has its final status, and polling ends.
func TestHole22_PollingEndsHoweverFastTheSettlerIs(t *testing.T) {
	t.Parallel()
	for _, ack := range []string{"queued", "confirmed"} {
		t.Run(ack, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Ack, c.AckWait = ack, 0 })
			const buyers = 30
			saleID := s.createSale(fields{"quota": buyers / 2, "limit_per_user": 1}).ID
			var ends tally
			check.Together(buyers, func(i int) {
				c := s.buyer(fmt.Sprint("u", i))
				a, err := c.tryPurchase(saleID)
				for err == nil && a.status < 300 && a.text("status") == "queued" {
					a, err = c.try(t.Context(), "GET", "/api/v1/orders/"+a.text("id"), nil)
				}
				if err == nil && a.status == http.StatusOK && a.text("status") == "pending" {
					a.status = http.StatusCreated
				}
				ends.add(a, err)
			})
			ends.want(t, map[string]int{"201": buyers / 2, "409 sold_out": buyers / 2})
			if books := s.wantStock(saleID, stock{held: buyers / 2}); books.Orders["pending"] != buyers/2 {
				t.Errorf("orders %v", books.Orders)
			}
		})
	}
}

func TestHole27_OnlyItsOwnerPaysAndOnlyWhatStands(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	p := ann.startPayment(made.ID)
	for _, c := range []*client{s.buyer("ben"), s.operator()} {
		c.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(404, "not_found")
		c.call("DELETE", "/api/v1/orders/"+made.ID, nil).refused(404, "not_found")
	}
	ann.cancel(made.ID)
	ann.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(409, "not_payable")
	ann.choose(p, "pay") // on a page that was open already: the money goes back
	ann.wantStatus(made.ID, "cancelled")
	s.refunded(p.PaymentID)
	s.wantStock(saleID, stock{available: 10})
}

// Callbacks that are unsigned, stale, changed or of another payment change nothing. A signature holds for its body and its
// time, within five minutes either way. A repeated callback counts once.
func TestHole29_CallbacksThatAreNone(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	anns, bens := ann.buy(saleID, 1), ben.buy(saleID, 1)
	id, bensID := ann.startPayment(anns.ID).PaymentID, ben.startPayment(bens.ID).PaymentID
	text := func(id string) string {
		return `{"payment_id":"` + id + `","provider_txn_id":"t","status":"succeeded","amount_cents":990}`
	}
	body := text(id)
	at := func(ago time.Duration) string { return fmt.Sprint(time.Now().Add(-ago).Unix()) }
	now, old, ahead := at(0), at(310*time.Second), at(-310*time.Second)
	before := s.balanced(saleID)
	for name, tc := range map[string]struct{ body, timestamp, signature string }{
		"unsigned":              {body, now, ""},
		"310 seconds old":       {body, old, sign(old, body)},
		"310 seconds ahead":     {body, ahead, sign(ahead, body)},
		"at the epoch":          {body, "0", sign("0", body)},
		"the largest time":      {body, "9223372036854775807", sign("9223372036854775807", body)},
		"the smallest time":     {body, "-9223372036854775808", sign("-9223372036854775808", body)},
		"no number for a time":  {body, "now", sign("now", body)},
		"no time":               {body, "", sign("", body)},
		"milliseconds":          {body, now + "000", sign(now+"000", body)},
		"a stale one, new time": {body, now, sign(old, body)},
		"no hex":                {body, now, "zz"},
		"a short signature":     {body, now, sign(now, body)[:62]},
		"of another payment":    {text(bensID), now, sign(now, body)},
		"of the body alone":     {body, now, sign("", body)},
		"a moved separator":     {body, now, sign(now+".", body)},
		"a scheme in front":     {body, now, "sha256=" + sign(now, body)},
	} {
		a := ann.call("POST", callbackURL, tc.body, "X-Timestamp", tc.timestamp, "X-Signature", tc.signature) // her token does not help
		a.what = name
		a.refused(401, "bad_signature")
	}
	for name, tc := range map[string]struct {
		changes fields
		status  int
		code    string
	}{
		"another status":       {fields{"status": "maybe"}, 400, "bad_request"},
		"no status":            {fields{"status": nil}, 400, "bad_request"},
		"a status in capitals": {fields{"status": "SUCCEEDED"}, 400, "bad_request"},
		"no transaction":       {fields{"provider_txn_id": ""}, 400, "bad_request"},
		"an odd transaction":   {fields{"provider_txn_id": "a b"}, 400, "bad_request"},
		"a long transaction":   {fields{"provider_txn_id": strings.Repeat("x", 65)}, 400, "bad_request"},
		"an unknown member":    {fields{"currency": "CNY"}, 400, "bad_request"},
		"a fraction of a cent": {fields{"amount_cents": 990.5}, 400, "bad_request"},
		"an amount as text":    {fields{"amount_cents": "990"}, 400, "bad_request"},
		"a cent too little":    {fields{"amount_cents": 989}, 409, "amount_mismatch"},
		"a cent too much":      {fields{"amount_cents": 991}, 409, "amount_mismatch"},
		"no amount":            {fields{"amount_cents": 0}, 409, "amount_mismatch"},
		"a negative amount":    {fields{"amount_cents": -990}, 409, "amount_mismatch"},
		"no payment":           {fields{"payment_id": ""}, 404, "not_found"},
		"an absent payment":    {fields{"payment_id": strings.Repeat("A", 26)}, 404, "not_found"},
		"an order's id":        {fields{"payment_id": anns.ID}, 404, "not_found"},
	} {
		a := s.callback(paid(id, tc.changes))
		a.what = name
		a.refused(tc.status, tc.code)
	}
	s.wantBooks(saleID, before)

	soon, late := at(-290*time.Second), at(290*time.Second)
	for _, signature := range []string{sign(soon, body), strings.ToUpper(sign(soon, body))} {
		s.anyone().call("POST", callbackURL, body, "X-Timestamp", soon, "X-Signature", signature).want(200)
	}
	replay := func() {
		t.Helper()
		s.anyone().call("POST", callbackURL, body, "X-Timestamp", late, "X-Signature", sign(late, body)).want(200)
	}
	replay()
	s.wantStock(saleID, stock{available: 8, held: 1, paid: 1})
	s.refund(anns.ID).want(200)
	replay()
	ann.wantStatus(anns.ID, "refunded")
	s.wantStock(saleID, stock{available: 9, held: 1})
}

// The server judges a sale's time and state itself, for buyers who have a good path. It shows the same state to everybody.
// TestRefusalOrder of the package strategy has each pair of refusals for each strategy.
func TestHole34_OutsideOfTheSale(t *testing.T) {
	t.Parallel()
	eachStrategy(t, func(t *testing.T, s *server) {
		now, hour := time.Now(), time.Hour
		set := func(actions ...string) func(string) {
			return func(id string) {
				for _, action := range actions {
					s.setStatus(id, action)
				}
			}
		}
		past := fields{"ends_at": now.Add(-time.Minute)}
		for name, tc := range map[string]struct {
			opens time.Duration // from now on
			then  func(id string)
			state string
			code  string // of the refusal; empty: the sale sells
		}{
			"open": {-hour, set(), "open", ""},
			"resumed": {-hour, func(id string) {
				s.setStatus(id, "pause")
				s.buyer("ann").purchase(id, 1).refused(409, "paused")
				s.setStatus(id, "resume")
			}, "open", ""},
			"before the start":    {hour, set(), "upcoming", "not_started"},
			"paused before it":    {hour, set("pause"), "upcoming", "not_started"},
			"closed before it":    {hour, set("close"), "ended", "ended"},
			"paused":              {-hour, set("pause"), "paused", "paused"},
			"paused twice":        {-hour, set("pause", "pause"), "paused", "paused"},
			"closed":              {-hour, set("close"), "ended", "ended"},
			"paused, then closed": {-hour, set("pause", "close", "close"), "ended", "ended"},
			"the end moved":       {-hour, func(id string) { s.patchSale(id, past) }, "ended", "ended"},
			"the start moved away": {
				-hour, func(id string) { s.patchSale(id, fields{"starts_at": now.Add(hour / 2)}) }, "upcoming",
				"not_started",
			},
			"over while paused": {-hour, func(id string) { s.setStatus(id, "pause"); s.patchSale(id, past) }, "ended", "ended"},
			"sold out":          {-hour, func(id string) { s.buyer("ben").buy(id, 2) }, "sold_out", "sold_out"},
			"sold out, paused":  {-hour, func(id string) { s.buyer("ben").buy(id, 2); s.setStatus(id, "pause") }, "paused", "paused"},
			"sold out, closed":  {-hour, func(id string) { s.buyer("ben").buy(id, 2); s.setStatus(id, "close") }, "ended", "ended"},
		} {
			t.Run(name, func(t *testing.T) {
				s := s.in(t)
				made := s.createSale(fields{"quota": 2, "starts_at": now.Add(tc.opens), "ends_at": now.Add(tc.opens + 2*hour)})
				tc.then(made.ID)
				s.eventually("the sale is "+tc.state, func() bool { return s.sale(made.ID).State == tc.state })
				s.anyone().get("/api/v1/sales").contains(made.ID)
				ann := s.buyer("ann")
				if tc.code == "" {
					ann.buy(made.ID, 2)
					return
				}
				before := s.balanced(made.ID)
				ann.purchase(made.ID, 1).refused(409, tc.code)
				ann.purchase(made.ID, 1, "Idempotency-Key", "k").refused(409, tc.code)
				if tc.code != "sold_out" {
					ann.call("POST", "/api/v1/sales/"+made.ID+"/path", nil).refused(409, tc.code)
				}
				s.wantBooks(made.ID, before)
			})
		}
	}, "redis", "pessimistic", "mutex")
}

func TestHole35_TenAtOnceOfOneBuyer(t *testing.T) {
	t.Parallel()
	eachStrategy(t, func(t *testing.T, s *server) {
		saleID := s.createSale(fields{"limit_per_user": 1}).ID
		buyTogether(saleID, 10, func(int) *client { return s.buyer("ann") }).want(t, map[string]int{"201": 1, "409 limit_reached": 9})
		same := buyTogether(saleID, 10, func(int) *client { return s.buyer("ben") }, "Idempotency-Key", "k")
		same.want(t, map[string]int{"201": 10}) // one order in ten answers
		if books := s.wantStock(saleID, stock{available: 8, held: 2}); books.Orders["pending"] != 2 {
			t.Errorf("orders %v", books.Orders)
		}
	})
}

func TestHole36_CancelThenBuyAgain(t *testing.T) {
	t.Parallel()
	eachStrategy(t, func(t *testing.T, s *server) {
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
		s.buyer("ben").buy(saleID, 1) // each cancel gave the unit back once
		ann.purchase(saleID, 1).refused(409, "sold_out")
		if books := s.wantStock(saleID, stock{held: 1}); books.Orders["cancelled"] != 5 || books.Drift != 0 {
			t.Errorf("books %+v", books)
		}
	})
}

// A buyer's count of requests ends with its window.
func TestHole45_WindowEnds(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.UserRequests, c.UserWindow = 2, time.Second })
	saleID := s.createSale(fields{"limit_per_user": 100, "quota": 100}).ID
	ann := s.buyer("ann")
	var statuses []int
	for !slices.Contains(statuses, http.StatusTooManyRequests) && len(statuses) < 100 {
		a := ann.purchase(saleID, 1)
		statuses = append(statuses, a.status)
		if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After: %s", a.header.Get("Retry-After"))
		}
	}
	if last := len(statuses) - 1; last < 2 || statuses[last] != http.StatusTooManyRequests || statuses[0] != http.StatusCreated {
		t.Errorf("statuses %v", statuses)
	}
	s.eventually("the window ends", func() bool { return ann.purchase(saleID, 1).status == http.StatusCreated })
}

// After the limit of a sale was lowered, a repeated key still gets its order.
func TestHole60_LimitLowered(t *testing.T) {
	t.Parallel()
	eachStrategy(t, func(t *testing.T, s *server) {
		saleID := s.createSale(fields{"quota": 9, "limit_per_user": 3}).ID
		ann := s.buyer("ann")
		made := ann.purchased(201, saleID, 3, "Idempotency-Key", "k")
		s.patchSale(saleID, fields{"limit_per_user": 1})
		if again := ann.purchased(201, saleID, 3, "Idempotency-Key", "k"); again.ID != made.ID || again.Quantity != 3 {
			t.Errorf("%+v became %+v", made, again)
		}
		ann.purchase(saleID, 2, "Idempotency-Key", "k").refused(422, "idempotency_mismatch")
		ann.purchase(saleID, 3, "Idempotency-Key", "new").refused(400, "bad_request")
		ann.purchase(saleID, 3).refused(400, "bad_request")
		s.buyer("ben").purchase(saleID, 2, "Idempotency-Key", "k").refused(400, "bad_request")
		s.wantStock(saleID, stock{available: 6, held: 3})
	})
}
