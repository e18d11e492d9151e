package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
)

// paid makes a callback's body for a payment of 9.90 that went well, with these members changed.
func paid(p payment, changes fields) fields {
	body := fields{"payment_id": p.PaymentID, "provider_txn_id": "txn-" + p.PaymentID, "status": "succeeded", "amount_cents": 990}
	for name, value := range changes {
		body[name] = value
	}
	return body
}

// The page of the sandbox provider: a buyer declines, thinks better of it, and pays.
func TestSandboxPage(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	first := ann.startPayment(made.ID)

	for name, form := range map[string]string{"no choice": "", "another choice": "choice=steal", "a choice in the URL": "x=y"} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			a := s.anyone().call("POST", first.PayURL+"?choice=pay", form, "Content-Type", "application/x-www-form-urlencoded")
			if a.want(200); !strings.Contains(string(a.body), `role="alert"`) {
				t.Errorf("%s", a.body)
			}
			if now := ann.in(t).order(made.ID); now.Status != "pending" {
				t.Errorf("the order is %s", now.Status)
			}
		})
	}
	again := ann.startPayment(made.ID)
	if again != first {
		t.Errorf("an open payment was opened again: %+v, then %+v", first, again)
	}
	declined := ann.choose(first, "decline")
	if body := string(declined.body); strings.Contains(body, `value="pay"`) || !strings.Contains(body, "declined") {
		t.Errorf("after the decline: %s", body)
	}
	if now := ann.order(made.ID); now.Status != "pending" {
		t.Fatalf("a declined payment made the order %s", now.Status)
	}
	second := ann.startPayment(made.ID)
	if second.PaymentID == first.PaymentID {
		t.Error("a declined payment was opened again")
	}
	ann.choose(second, "pay")
	if now := ann.order(made.ID); now.Status != "paid" || now.PaidAt == nil {
		t.Fatalf("%+v", now)
	}
	// Twice the same button: one transaction, one unit.
	ann.choose(second, "pay")
	if books := s.balanced(saleID); books.Paid != 1 || books.Held != 0 || books.Available != 9 {
		t.Errorf("books %+v", books)
	}
	s.anyone().call("GET", second.PayURL, nil).want(200)
	s.anyone().call("POST", s.url+"/pay/AAAA", "choice=pay", "Content-Type", "application/x-www-form-urlencoded").want(404)
}

// The payment page takes a short form and nothing else.
func TestPayTakesShortForms(t *testing.T) {
	t.Parallel()
	s := start(t)
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	page := ann.startPayment(made.ID).PayURL
	const form = "application/x-www-form-urlencoded"
	longest := "choice=pay&more=" + strings.Repeat("x", 4<<10-16)
	s.anyone().call("POST", page, longest+"x", "Content-Type", form).refused(413, "too_large")
	for _, contentType := range []string{"", "application/json", "text/plain", "multipart/form-data; boundary=b"} {
		said := s.anyone().call("POST", page, "choice=pay", "Content-Type", contentType).refused(415, "unsupported_media_type")
		if said.Detail != "The body must be sent as "+form+"." {
			t.Errorf("%q: %s", contentType, said.Detail)
		}
	}
	if now := ann.order(made.ID); now.Status != "pending" {
		t.Fatalf("the order is %s", now.Status)
	}
	s.anyone().call("POST", page, longest, "Content-Type", form+"; charset=utf-8").want(200)
	if now := ann.order(made.ID); now.Status != "paid" {
		t.Errorf("the order is %s", now.Status)
	}
}

// Someone pays the declined payment's page after all, from a tab that was still open.
func TestPayAfterDeclineOnTheSamePage(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	p := ann.startPayment(made.ID)
	ann.choose(p, "decline")
	ann.choose(p, "pay")
	if now := ann.order(made.ID); now.Status != "paid" {
		t.Errorf("%+v", now)
	}
	// A decline that is told late takes nothing back.
	s.callback(paid(p, fields{"provider_txn_id": "late", "status": "failed"})).want(200)
	if now := ann.order(made.ID); now.Status != "paid" {
		t.Errorf("%+v after a late decline", now)
	}
	if books := s.balanced(saleID); books.Paid != 1 {
		t.Errorf("books %+v", books)
	}
}

// Two tabs, two payments: the money that came second goes back, and the order is paid once.
func TestTwoPaymentsOfOneOrder(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	first := ann.startPayment(made.ID)
	ann.choose(first, "decline")
	second := ann.startPayment(made.ID)
	ann.choose(second, "pay")
	ann.choose(first, "pay")
	if now := ann.order(made.ID); now.Status != "paid" {
		t.Errorf("%+v", now)
	}
	db := s.database()
	s.eventually("the second charge is refunded", func() bool {
		var charged, refunded int
		row := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FILTER (WHERE status = 'charged'), COUNT(*) FILTER (WHERE status = 'refunded') FROM sandbox_transactions")
		if err := row.Scan(&charged, &refunded); err != nil {
			t.Fatal(err)
		}
		return charged == 1 && refunded == 1
	})
	if books := s.balanced(saleID); books.Paid != 1 || books.Available != 9 {
		t.Errorf("books %+v", books)
	}
}

// The money of an order that the operator refunds goes back, and its unit can be sold again.
func TestRefundSendsTheMoneyBack(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 1}).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	ann.pay(made.ID)
	s.buyer("ben").purchase(saleID, 1).refused(409, "sold_out")
	s.operator().call("POST", "/api/v1/admin/orders/"+made.ID+"/refund", nil).want(200)
	if now := ann.order(made.ID); now.Status != "refunded" {
		t.Errorf("%+v", now)
	}
	s.buyer("ben").buy(saleID, 1)
	db := s.database()
	s.eventually("the provider has refunded", func() bool {
		var payments, transactions string
		row := db.QueryRowContext(t.Context(), "SELECT (SELECT status FROM payments), (SELECT status FROM sandbox_transactions)")
		if err := row.Scan(&payments, &transactions); err != nil {
			t.Fatal(err)
		}
		return payments == "refunded" && transactions == "refunded"
	})
	if books := s.balanced(saleID); books.Held != 1 || books.Paid != 0 || books.Available != 0 {
		t.Errorf("books %+v", books)
	}
}

// A signature is good for the body and the time that it was made for, within five minutes either way.
func TestCallbackSignature(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 100}).ID
	at := func(ago time.Duration) string { return strconv.FormatInt(time.Now().Add(-ago).Unix(), 10) }
	for name, tc := range map[string]struct {
		timestamp string
		signature func(timestamp, body string) string
		want      int
	}{
		"right":                  {at(0), func(at, body string) string { return sign(at, []byte(body)) }, 200},
		"in capitals":            {at(0), func(at, body string) string { return strings.ToUpper(sign(at, []byte(body))) }, 200},
		"almost five minutes":    {at(290 * time.Second), func(at, body string) string { return sign(at, []byte(body)) }, 200},
		"almost five ahead":      {at(-290 * time.Second), func(at, body string) string { return sign(at, []byte(body)) }, 200},
		"stale":                  {at(310 * time.Second), func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"from the future":        {at(-310 * time.Second), func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"long ago":               {"0", func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"the end of time":        {"9223372036854775807", func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"its beginning":          {"-9223372036854775808", func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"no number":              {"now", func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"no timestamp":           {"", func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"milliseconds":           {at(0) + "000", func(at, body string) string { return sign(at, []byte(body)) }, 401},
		"none":                   {at(0), func(_, _ string) string { return "" }, 401},
		"no hex":                 {at(0), func(_, _ string) string { return "zz" }, 401},
		"cut off":                {at(0), func(at, body string) string { return sign(at, []byte(body))[:62] }, 401},
		"of another time":        {at(0), func(_, body string) string { return sign(at(60*time.Second), []byte(body)) }, 401},
		"of another body":        {at(0), func(at, body string) string { return sign(at, []byte(body+" ")) }, 401},
		"of the body alone":      {at(0), func(_, body string) string { return sign("", []byte(body)) }, 401},
		"moved between the two":  {at(0), func(at, body string) string { return sign(at+".", []byte(body)) }, 401},
		"with a scheme in front": {at(0), func(at, body string) string { return "sha256=" + sign(at, []byte(body)) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			ann := s.buyer("u-" + strconv.Itoa(len(name)) + strings.ReplaceAll(name, " ", "."))
			made := ann.buy(saleID, 1)
			body := fmt.Sprintf(`{"payment_id":%q,"provider_txn_id":%q,"status":"succeeded","amount_cents":990}`, ann.startPayment(made.ID).PaymentID, "t-"+made.ID)
			a := s.anyone().call("POST", "/api/v1/payments/callback", body, "X-Timestamp", tc.timestamp, "X-Signature", tc.signature(tc.timestamp, body))
			want := "paid"
			if tc.want == 401 {
				a.refused(401, "bad_signature")
				want = "pending"
			}
			a.want(tc.want)
			if now := ann.order(made.ID); now.Status != want {
				t.Errorf("the order is %s", now.Status)
			}
		})
	}
	if books := s.balanced(saleID); books.Paid != 4 {
		t.Errorf("books %+v", books)
	}
}

// A signed callback may still say what can't be.
func TestCallbackBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 100}).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	p := ann.startPayment(made.ID)
	before := s.balanced(saleID)
	for name, tc := range map[string]struct {
		changes fields
		status  int
		code    string
	}{
		"another status":       {fields{"status": "maybe"}, 400, "bad_request"},
		"no status":            {fields{"status": nil}, 400, "bad_request"},
		"status in capitals":   {fields{"status": "SUCCEEDED"}, 400, "bad_request"},
		"no transaction":       {fields{"provider_txn_id": ""}, 400, "bad_request"},
		"an odd transaction":   {fields{"provider_txn_id": "a b"}, 400, "bad_request"},
		"a long transaction":   {fields{"provider_txn_id": strings.Repeat("x", 65)}, 400, "bad_request"},
		"an unknown member":    {fields{"currency": "CNY"}, 400, "bad_request"},
		"a fraction of a cent": {fields{"amount_cents": 990.5}, 400, "bad_request"},
		"an amount in words":   {fields{"amount_cents": "990"}, 400, "bad_request"},
		"too little":           {fields{"amount_cents": 989}, 409, "amount_mismatch"},
		"too much":             {fields{"amount_cents": 991}, 409, "amount_mismatch"},
		"nothing":              {fields{"amount_cents": 0}, 409, "amount_mismatch"},
		"less than nothing":    {fields{"amount_cents": -990}, 409, "amount_mismatch"},
		"no payment":           {fields{"payment_id": ""}, 404, "not_found"},
		"an absent payment":    {fields{"payment_id": "AAAAAAAAAAAAAAAAAAAAAAAAAA"}, 404, "not_found"},
		"SQL for a payment":    {fields{"payment_id": "' OR '1'='1"}, 404, "not_found"},
		"an order's id":        {fields{"payment_id": made.ID}, 404, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			s.callback(paid(p, tc.changes)).refused(tc.status, tc.code)
			if now := ann.in(t).order(made.ID); now.Status != "pending" {
				t.Errorf("the order is %s", now.Status)
			}
			if after := s.balanced(saleID); !sameBooks(after, before) {
				t.Errorf("books %+v became %+v", before, after)
			}
		})
	}
}

// The grace: what the buyer is told, and what is still taken after it.
func TestPayGrace(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.PayGrace = time.Hour })
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	made := ann.buy(saleID, 1)
	p := ann.startPayment(made.ID)
	s.exec("UPDATE orders SET expires_at_ms = created_at_ms - 1 WHERE id = ?", made.ID)
	ann.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(409, "not_payable")
	s.callback(paid(p, nil)).want(200)
	if now := ann.order(made.ID); now.Status != "paid" {
		t.Errorf("%+v", now)
	}
}

// A buyer who leaves in the middle gets what the server has decided: the order is there, or it is not, and the
// books agree.
func TestBuyerWhoLeaves(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	letGo := s.hold()
	ctx, leave := context.WithCancel(t.Context())
	ann := s.buyer("ann")
	path := ann.path(saleID)
	left := make(chan error, 1)
	go func() {
		_, err := ann.try(ctx, "POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", fields{"quantity": 1}, "Idempotency-Key", "k")
		left <- err
	}()
	s.eventually("the attempt is queued", func() bool { return s.audit(saleID).Gate.Inflight == 1 })
	leave()
	if err := <-left; err == nil {
		t.Fatal("the answer came after all")
	}
	letGo()
	if books := s.balanced(saleID); books.Held != 1 {
		t.Errorf("books %+v", books)
	}
	if a := ann.purchase(saleID, 1, "Idempotency-Key", "k").want(201); a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s is not the order of the first request", a.body)
	}
}
