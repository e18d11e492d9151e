package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
)

const (
	patient   = 10 * time.Second
	impatient = 10 * time.Millisecond
)

// Who waits how long for the order: the setting says it, and Prefer says otherwise.
func TestWaitingForTheOrder(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ack    string
		wait   time.Duration // the server's own
		prefer string
		slow   bool // the database takes no writes meanwhile
		want   int
	}{
		"confirmed":                        {ack: "confirmed", wait: patient, want: 201},
		"confirmed, too slow":              {ack: "confirmed", wait: impatient, slow: true, want: 202},
		"queued":                           {ack: "queued", wait: patient, slow: true, want: 202},
		"the buyer won't wait":             {ack: "confirmed", wait: patient, prefer: "respond-async", slow: true, want: 202},
		"the buyer waits no second":        {ack: "confirmed", wait: patient, prefer: "wait=0", slow: true, want: 202},
		"the buyer waits one second":       {ack: "confirmed", wait: patient, prefer: "wait=1", slow: true, want: 202},
		"the buyer waits although queued":  {ack: "queued", wait: impatient, prefer: "wait=9", want: 201},
		"waiting goes before not waiting":  {ack: "queued", wait: impatient, prefer: "respond-async, wait=9", want: 201},
		"in capitals, with other wishes":   {ack: "queued", wait: impatient, prefer: "handling=lenient, WAIT=9", want: 201},
		"a wish that nobody knows":         {ack: "confirmed", wait: patient, prefer: "handling=lenient", want: 201},
		"the buyer's wait is not a number": {ack: "confirmed", wait: patient, prefer: "wait=long", want: 400},
		"the buyer's wait is negative":     {ack: "confirmed", wait: patient, prefer: "wait=-1", want: 400},
		"the buyer's wait is a fraction":   {ack: "confirmed", wait: patient, prefer: "wait=0.5", want: 400},
	}
	type kind struct {
		ack  string
		wait time.Duration
	}
	servers := map[kind]*server{}
	for _, tc := range tests {
		if k := (kind{tc.ack, tc.wait}); servers[k] == nil {
			servers[k] = start(t, func(c *config.Settings) { c.Ack, c.AckWait = k.ack, k.wait })
		}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := servers[kind{tc.ack, tc.wait}].in(t)
			saleID := s.createSale(nil).ID
			letGo := func() {}
			if tc.slow {
				letGo = s.hold()
			}
			ann := s.buyer("ann")
			if tc.prefer != "" {
				ann = ann.with("Prefer", tc.prefer)
			}
			a := ann.purchase(saleID, 2, "Idempotency-Key", "k")
			if tc.want == 400 {
				a.refused(400, "bad_request")
				return
			}
			// On a machine with much else to do the gate may be too slow for once: the buyer asks again, as told.
			first := true
			s.eventually("an answer", func() bool {
				if a.status == 503 {
					a, first = ann.purchase(saleID, 2, "Idempotency-Key", "k"), false
				}
				return a.status != 503
			})
			var made order
			a.want(tc.want).read(&made)
			if want := "/api/v1/orders/" + made.ID; a.header.Get("Location") != want {
				t.Errorf("Location: %s, want %s", a.header.Get("Location"), want)
			}
			if tc.want == 202 {
				if made.Status != "queued" || a.header.Get("Retry-After") != "1" {
					t.Errorf("%s, Retry-After %q", a.body, a.header.Get("Retry-After"))
				}
				if first && a.header.Get("Idempotent-Replayed") != "" {
					t.Error("a first answer says that it is a repeat")
				}
			}
			if tc.slow {
				// Without its row the order is known by the gate alone.
				if queued := ann.order(made.ID); queued.Status != "queued" || queued.Quantity != 2 || queued.AmountCents != 1980 {
					t.Errorf("%+v", queued)
				}
			}
			letGo()
			if pending := ann.becomes(made.ID, "pending"); pending.Quantity != 2 || pending.AmountCents != 1980 || pending.ExpiresAt == nil {
				t.Errorf("%+v", pending)
			}
		})
	}
}

// A wait that is longer than the server's own ends with the order, not with the time.
func TestPreferWaitOutlastsTheServersOwn(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.AckWait = time.Millisecond })
	saleID := s.createSale(nil).ID
	letGo := s.hold()
	got := make(chan *answer, 1)
	ann := s.buyer("ann").with("Prefer", "wait=10")
	path := ann.path(saleID)
	go func() {
		defer close(got)
		if a, err := ann.try(t.Context(), "POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", fields{"quantity": 1}); err == nil {
			got <- a
		}
	}()
	s.eventually("the attempt is queued", func() bool { return s.audit(saleID).Gate.Inflight == 1 })
	letGo()
	a, ok := <-got
	if !ok {
		t.Fatal("no answer")
	}
	var made order
	a.want(http.StatusCreated).read(&made)
	if made.Status != "pending" {
		t.Errorf("%+v", made)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	key := func(k string) []string { return []string{"Idempotency-Key", k} }
	tests := map[string]func(t *testing.T, s *server, saleID string){
		"the same request again": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			var one, two order
			first := ann.purchase(saleID, 1, key("k")...)
			first.want(201).read(&one)
			again := ann.purchase(saleID, 1, key("k")...)
			again.want(201).read(&two)
			if one.ID != two.ID || first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" ||
				again.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("%s, then %s %v", first.body, again.body, again.header)
			}
			if held := s.balanced(saleID).Held; held != 1 {
				t.Errorf("%d units held", held)
			}
		},
		"again while it is queued": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			letGo := s.hold()
			var one, two, three order
			hasty := ann.with("Prefer", "respond-async")
			hasty.purchase(saleID, 1, key("k")...).want(202).read(&one)
			again := hasty.purchase(saleID, 1, key("k")...)
			again.want(202).read(&two)
			hasty.purchase(saleID, 2, key("k")...).refused(422, "idempotency_mismatch")
			letGo()
			ann.becomes(one.ID, "pending")
			ann.purchase(saleID, 1, key("k")...).want(201).read(&three)
			if one.ID != two.ID || one.ID != three.ID || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("orders %s, %s, %s", one.ID, two.ID, three.ID)
			}
			if books := s.balanced(saleID); books.Held != 1 || books.Orders["pending"] != 1 {
				t.Errorf("books %+v", books)
			}
		},
		"another body": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			ann.purchase(saleID, 1, key("k")...).want(201)
			ann.purchase(saleID, 2, key("k")...).refused(422, "idempotency_mismatch")
			ann.purchase(saleID, 1, key("k")...).want(201)
		},
		"the same body in other words": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			var one, two order
			ann.purchase(saleID, 1, key("k")...).want(201).read(&one)
			ann.call("POST", "/api/v1/sales/"+saleID+"/"+ann.path(saleID)+"/orders", " {\n\t\"quantity\" : 1 } ", key("k")...).want(201).read(&two)
			if one.ID != two.ID {
				t.Errorf("white space made a new order")
			}
		},
		"another user's key": func(t *testing.T, s *server, saleID string) {
			var anns, bens order
			s.buyer("ann").purchase(saleID, 1, key("k")...).want(201).read(&anns)
			b := s.buyer("ben").purchase(saleID, 2, key("k")...)
			b.want(201).read(&bens)
			if anns.ID == bens.ID || b.header.Get("Idempotent-Replayed") != "" || bens.Quantity != 2 {
				t.Errorf("%+v and %+v", anns, bens)
			}
		},
		"the key in another sale": func(t *testing.T, s *server, saleID string) {
			ann, other := s.buyer("ann"), s.createSale(nil).ID
			ann.purchase(saleID, 1, key("k")...).want(201)
			if b := ann.purchase(other, 2, key("k")...).want(201); b.header.Get("Idempotent-Replayed") != "" {
				t.Error("a key reached over into another sale")
			}
		},
		"keys that differ by case": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			ann.purchase(saleID, 1, key("k")...).want(201)
			if b := ann.purchase(saleID, 1, key("K")...).want(201); b.header.Get("Idempotent-Replayed") != "" {
				t.Error("k and K are one key")
			}
		},
		"a refused key is judged anew": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			s.setStatus(saleID, "pause")
			ann.purchase(saleID, 1, key("k")...).refused(409, "paused")
			s.setStatus(saleID, "resume")
			if a := ann.purchase(saleID, 2, key("k")...).want(201); a.header.Get("Idempotent-Replayed") != "" {
				t.Error("a refusal was replayed")
			}
		},
		"sold out, then a unit comes back": func(t *testing.T, s *server, saleID string) {
			small := s.createSale(fields{"quota": 1, "limit_per_user": 1}).ID
			ann, ben := s.buyer("ann"), s.buyer("ben")
			anns := ann.buy(small, 1)
			ben.purchase(small, 1, key("k")...).refused(409, "sold_out")
			ann.cancel(anns.ID)
			ben.purchase(small, 1, key("k")...).want(201)
		},
		"after the sale's end": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			var one, two order
			ann.purchase(saleID, 1, key("k")...).want(201).read(&one)
			s.setStatus(saleID, "close")
			ann.purchase(saleID, 1, key("k")...).want(201).read(&two)
			ann.purchase(saleID, 1, key("k2")...).refused(409, "ended")
			if one.ID != two.ID {
				t.Errorf("%s, then %s", one.ID, two.ID)
			}
		},
		"of a cancelled order": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			var one, two order
			ann.purchase(saleID, 1, key("k")...).want(201).read(&one)
			ann.cancel(one.ID)
			ann.purchase(saleID, 1, key("k")...).want(201).read(&two)
			if two.ID != one.ID || two.Status != "cancelled" {
				t.Errorf("%+v", two)
			}
			if books := s.balanced(saleID); books.Held != 0 {
				t.Errorf("books %+v", books)
			}
		},
		"128 signs": func(t *testing.T, s *server, saleID string) {
			s.buyer("ann").purchase(saleID, 1, key(strings.Repeat("~", 128))...).want(201)
		},
		"129 signs": func(t *testing.T, s *server, saleID string) {
			s.buyer("ann").purchase(saleID, 1, key(strings.Repeat("k", 129))...).refused(400, "bad_request")
		},
		"a space within": func(t *testing.T, s *server, saleID string) {
			s.buyer("ann").purchase(saleID, 1, key("a b")...).refused(400, "bad_request")
		},
		"not ASCII": func(t *testing.T, s *server, saleID string) {
			s.buyer("ann").purchase(saleID, 1, key("clé")...).refused(400, "bad_request")
		},
		"none": func(t *testing.T, s *server, saleID string) {
			ann := s.buyer("ann")
			var one, two order
			ann.purchase(saleID, 1).want(201).read(&one)
			ann.purchase(saleID, 1).want(201).read(&two)
			if one.ID == two.ID {
				t.Error("two requests without a key are one order")
			}
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) { run(t, s.in(t), s.in(t).createSale(nil).ID) })
	}
}

// A buyer's list: the newest first, in pages, and nobody else's orders on any of them.
func TestListOfOrders(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 100, "limit_per_user": 50}).ID
	other := s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	var made []string // the oldest first
	for i := range 7 {
		in := saleID
		if i == 3 {
			in = other
		}
		made = append(made, ann.buy(in, 1).ID)
		ben.buy(saleID, 1)
	}
	for _, limit := range []int{1, 2, 3, 6, 7, 8, 500} {
		t.Run(fmt.Sprint("pages of ", limit), func(t *testing.T) {
			ann := ann.in(t)
			var got []string
			times := []time.Time{}
			for cursor, pages := "", 0; ; pages++ {
				var page orders
				ann.call("GET", fmt.Sprintf("/api/v1/orders?limit=%d&cursor=%s", limit, cursor), nil).want(200).read(&page)
				if len(page.Orders) > limit || pages > 7 {
					t.Fatalf("page %d has %d orders", pages, len(page.Orders))
				}
				for _, o := range page.Orders {
					got, times = append(got, o.ID), append(times, *o.CreatedAt)
				}
				if cursor = page.NextCursor; cursor == "" {
					break
				}
			}
			if !slices.IsSortedFunc(times, func(a, b time.Time) int { return b.Compare(a) }) {
				t.Errorf("not the newest first: %v", times)
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(made)); !slices.Equal(got, want) {
				t.Errorf("%d orders %v, want Ann's %v", len(got), got, want)
			}
		})
	}
	t.Run("nothing bought", func(t *testing.T) {
		a := s.in(t).buyer("carol").call("GET", "/api/v1/orders", nil).want(200)
		if string(a.body) != `{"orders":[],"next_cursor":""}` {
			t.Errorf("%s", a.body)
		}
	})
	t.Run("another buyer's cursor shows nothing of theirs", func(t *testing.T) {
		var page orders
		ben.in(t).call("GET", "/api/v1/orders?limit=1", nil).want(200).read(&page)
		var rest orders
		s.in(t).buyer("carol").call("GET", "/api/v1/orders?limit=500&cursor="+page.NextCursor, nil).want(200).read(&rest)
		if len(rest.Orders) != 0 {
			t.Errorf("Carol sees %v", rest.Orders)
		}
	})
	for name, query := range map[string]string{
		"limit 0":            "limit=0",
		"limit negative":     "limit=-1",
		"limit above 500":    "limit=501",
		"limit no number":    "limit=ten",
		"limit overflow":     "limit=99999999999999999999",
		"cursor no base64":   "cursor=%3F%3F",
		"cursor of nothing":  "cursor=AAAA",
		"cursor of SQL":      "cursor=" + "JyBPUiAxPTE7LS0",
		"cursor no order id": "cursor=MS54", // 1.x
	} {
		t.Run(name, func(t *testing.T) {
			ann.in(t).call("GET", "/api/v1/orders?"+query, nil).refused(400, "bad_request")
		})
	}
}

// Where an order may go from each status, and that everything else is refused without a change.
func TestOrderStatuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	ann := s.buyer("ann")
	saleID := s.createSale(fields{"quota": 20, "limit_per_user": 20}).ID
	made := map[string]string{
		"pending": ann.buy(saleID, 1).ID, "cancelled": ann.buy(saleID, 1).ID,
		"paid": ann.buy(saleID, 1).ID, "refunded": ann.buy(saleID, 1).ID, "expired": ann.buy(saleID, 1).ID,
	}
	ann.cancel(made["cancelled"])
	ann.pay(made["paid"])
	ann.pay(made["refunded"])
	s.operator().call("POST", "/api/v1/admin/orders/"+made["refunded"]+"/refund", nil).want(200)
	ann.overdue(made["expired"])

	for status, id := range made {
		for name, step := range map[string]struct {
			who          *client
			method, path string
			from         string // the status that allows it
			code         string
		}{
			"cancel": {ann, "DELETE", "/api/v1/orders/" + id, "pending", "not_cancellable"},
			"pay":    {ann, "POST", "/api/v1/orders/" + id + "/payments", "pending", "not_payable"},
			"refund": {s.operator(), "POST", "/api/v1/admin/orders/" + id + "/refund", "paid", "not_refundable"},
		} {
			if status == step.from {
				continue // the other tests go these ways
			}
			t.Run(name+" a "+status+" order", func(t *testing.T) {
				s, ann := s.in(t), ann.in(t)
				books := s.balanced(saleID)
				step.who.in(t).call(step.method, step.path, nil).refused(409, step.code)
				if after := ann.order(id); after.Status != status {
					t.Errorf("it is %s now", after.Status)
				}
				if after := s.balanced(saleID); !sameBooks(after, books) {
					t.Errorf("books %+v became %+v", books, after)
				}
			})
		}
	}
}

// An order that is still queued is the buyer's own, but nothing can be done with it yet.
func TestQueuedOrderCantBePaidOrCancelled(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	// The settler can't write orders without this table, while everything else goes on.
	s.exec("ALTER TABLE buyers RENAME TO elsewhere")
	var queued order
	ann.purchase(saleID, 1, "Prefer", "respond-async").want(202).read(&queued)
	if now := ann.order(queued.ID); now.Status != "queued" {
		t.Fatalf("%+v", now)
	}
	for who, tc := range map[string]struct {
		client        *client
		status        int
		noPay, noBack string
	}{
		"its buyer":     {ann, 409, "not_payable", "not_cancellable"},
		"another buyer": {s.buyer("ben"), 404, "not_found", "not_found"},
	} {
		t.Run(who, func(t *testing.T) {
			c := tc.client.in(t)
			c.call("POST", "/api/v1/orders/"+queued.ID+"/payments", nil).refused(tc.status, tc.noPay)
			c.call("DELETE", "/api/v1/orders/"+queued.ID, nil).refused(tc.status, tc.noBack)
		})
	}
	s.exec("ALTER TABLE elsewhere RENAME TO buyers")
	ann.becomes(queued.ID, "pending")
}

// sameBooks compares two audits member by member.
func sameBooks(a, b audit) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }
