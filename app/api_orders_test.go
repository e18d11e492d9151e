package app_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/test/kit/pace"
)

// The setting says how long a purchase waits for its order, and the header Prefer overrides the setting. TestParsePrefer of
// the package handler has more headers.
func TestWaitingForTheOrder(t *testing.T) {
	t.Parallel()
	const patient, impatient = 10 * time.Second, 10 * time.Millisecond
	for _, server := range []struct {
		ack   string
		wait  time.Duration
		cases map[string]int // the status by the value of Prefer, after "slow" if the database takes no writes meanwhile
	}{
		{"confirmed", patient, map[string]int{
			"": 201, "handling=lenient": 201, "slow respond-async": 202, "slow wait=0": 202, "slow wait=1": 202, "wait=long": 400,
			"wait=-1": 400,
		}},
		{"confirmed", impatient, map[string]int{"slow": 202}},
		{"queued", patient, map[string]int{"slow": 202}},
		{"queued", impatient, map[string]int{"wait=9": 201, "respond-async, wait=9": 201, "handling=lenient, WAIT=9": 201}},
	} {
		s := start(t, func(c *config.Settings) { c.Ack, c.AckWait = server.ack, server.wait })
		for prefer, want := range server.cases {
			t.Run(fmt.Sprintf("%s %v %q", server.ack, server.wait, prefer), func(t *testing.T) {
				s := s.in(t)
				saleID := s.createSale(nil).ID
				letGo := func() {}
				prefer, slow := strings.CutPrefix(prefer, "slow")
				if slow {
					letGo = s.hold()
				}
				ann := s.buyer("ann")
				if prefer = strings.TrimSpace(prefer); prefer != "" {
					ann = ann.with("Prefer", prefer)
				}
				a := ann.purchase(saleID, 2, "Idempotency-Key", "k")
				if want == 400 {
					a.refused(400, "bad_request")
					return
				}
				var made order
				a.want(want).read(&made)
				if location := a.header.Get("Location"); location != "/api/v1/orders/"+made.ID {
					t.Errorf("Location: %s", location)
				}
				if want == 202 && (made.Status != "queued" || a.header.Get("Retry-After") != "1" || a.replayed()) {
					t.Errorf("%s with %v", a.body, a.header)
				}
				if slow { // the order has no row: only the gate knows it
					if queued := ann.order(made.ID); queued.Status != "queued" || queued.Quantity != 2 || queued.AmountCents != 1980 {
						t.Errorf("the queued order is %+v", queued)
					}
				}
				letGo()
				if pending := ann.becomes(made.ID, "pending"); pending.Quantity != 2 || pending.AmountCents != 1980 ||
					pending.ExpiresAt == nil {
					t.Errorf("the order is %+v", pending)
				}
			})
		}
	}
}

// A buyer's wait may be longer than the server's own, and ends with the order. The order of a buyer who leaves meanwhile is
// the order of the same key later.
func TestWaitEndsWithTheOrder(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := start(t, func(c *config.Settings) { c.AckWait = time.Millisecond })
		saleID := s.createSale(nil).ID
		ann, ben := s.buyer("ann").with("Prefer", "wait=10"), s.buyer("ben").with("Prefer", "wait=10")
		letGo := s.hold()
		answers, errs := make(chan *answer, 1), make(chan error, 1)
		go func() {
			defer close(answers)
			if a, err := ann.tryPurchase(saleID); err == nil {
				answers <- a
			}
		}()
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			_, err := ben.try(ctx, "POST", ben.orderURL(saleID), fields{"quantity": 1}, "Idempotency-Key", "k")
			errs <- err
		}()
		s.eventually("both attempts are queued", func() bool { return s.audit(saleID).Gate.Inflight == 2 })
		leave()
		if err := <-errs; err == nil {
			t.Error("Ben got an answer although he left")
		}
		letGo()
		a, ok := <-answers
		if !ok {
			t.Fatal("Ann got no answer")
		}
		a.want(http.StatusCreated).contains(`"status":"pending"`)
		if again := ben.purchase(saleID, 1, "Idempotency-Key", "k").want(201); !again.replayed() {
			t.Errorf("%s is not the order of Ben's first request", again.body)
		}
		s.wantStock(saleID, stock{available: 8, held: 2})
	})
}

// A request under the key of an earlier one gets the order of the earlier one. A key belongs to one user and one sale.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	key := func(k string) []string { return []string{"Idempotency-Key", k} }
	for name, run := range map[string]func(s *server, ann *client, saleID string){
		"the same request again": func(s *server, ann *client, saleID string) {
			var one, two order
			first, again := ann.purchase(saleID, 1, key("k")...), ann.purchase(saleID, 1, key("k")...)
			first.want(201).read(&one)
			again.want(201).read(&two)
			if one.ID != two.ID || first.replayed() || !again.replayed() || again.header.Get("Location") != first.header.Get("Location") {
				s.t.Errorf("%s, then %s %v", first.body, again.body, again.header)
			}
			spaced := ann.call("POST", ann.orderURL(saleID), " {\n\t\"quantity\" : 1 } ", key("k")...).want(201)
			if spaced.text("id") != one.ID {
				s.t.Error("white space in the body made a new order")
			}
			ann.purchase(saleID, 2, key("k")...).refused(422, "idempotency_mismatch")
			s.wantStock(saleID, stock{available: 9, held: 1})
		},
		"again while the order is queued": func(s *server, ann *client, saleID string) {
			letGo := s.hold()
			hasty := ann.with("Prefer", "respond-async")
			one := hasty.purchased(202, saleID, 1, key("k")...)
			again := hasty.purchase(saleID, 1, key("k")...).want(202)
			hasty.purchase(saleID, 2, key("k")...).refused(422, "idempotency_mismatch")
			letGo()
			ann.becomes(one.ID, "pending")
			settled := ann.purchased(201, saleID, 1, key("k")...)
			if again.text("id") != one.ID || settled.ID != one.ID || !again.replayed() {
				s.t.Errorf("orders %s, %s, %s", one.ID, again.body, settled.ID)
			}
			if books := s.wantStock(saleID, stock{available: 9, held: 1}); books.Orders["pending"] != 1 {
				s.t.Errorf("orders %v", books.Orders)
			}
		},
		"another user, sale or letter case": func(s *server, ann *client, saleID string) {
			ann.purchase(saleID, 1, key("k")...).want(201)
			for _, other := range []*answer{
				s.buyer("ben").purchase(saleID, 2, key("k")...),
				ann.purchase(s.createSale(nil).ID, 2, key("k")...),
				ann.purchase(saleID, 1, key("K")...),
			} {
				if other.want(201).replayed() {
					s.t.Errorf("%s repeats another order: %s", other.what, other.body)
				}
			}
		},
		"a refused key is judged anew": func(s *server, ann *client, saleID string) {
			s.setStatus(saleID, "pause")
			ann.purchase(saleID, 1, key("k")...).refused(409, "paused")
			s.setStatus(saleID, "resume")
			if a := ann.purchase(saleID, 2, key("k")...).want(201); a.replayed() {
				s.t.Error("a refusal was replayed")
			}
		},
		"sold out, then a unit comes back": func(s *server, ann *client, _ string) {
			small, ben := s.createSale(fields{"quota": 1, "limit_per_user": 1}).ID, s.buyer("ben")
			anns := ann.buy(small, 1)
			ben.purchase(small, 1, key("k")...).refused(409, "sold_out")
			ann.cancel(anns.ID)
			ben.purchase(small, 1, key("k")...).want(201)
		},
		"after the cancel and the end of the sale": func(s *server, ann *client, saleID string) {
			one := ann.purchased(201, saleID, 1, key("k")...)
			ann.cancel(one.ID)
			cancelled := ann.purchased(201, saleID, 1, key("k")...)
			s.setStatus(saleID, "close")
			ended := ann.purchased(201, saleID, 1, key("k")...)
			ann.purchase(saleID, 1, key("k2")...).refused(409, "ended")
			if cancelled.ID != one.ID || cancelled.Status != "cancelled" || ended.ID != one.ID {
				s.t.Errorf("%+v, then %+v, then %+v", one, cancelled, ended)
			}
			s.wantStock(saleID, stock{available: 10})
		},
		"the form of a key": func(s *server, ann *client, saleID string) {
			ann.purchase(saleID, 1, key(strings.Repeat("~", 128))...).want(201)
			for _, bad := range []string{strings.Repeat("k", 129), "a b", "clé"} {
				ann.purchase(saleID, 1, key(bad)...).refused(400, "bad_request")
			}
		},
		"no key": func(s *server, ann *client, saleID string) {
			if one, two := ann.purchased(201, saleID, 1), ann.purchased(201, saleID, 1); one.ID == two.ID {
				s.t.Error("two requests without a key are one order")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			run(s, s.buyer("ann"), s.createSale(nil).ID)
		})
	}
}

// A buyer's list has the newest order first, comes in pages, and has nobody else's orders.
func TestListOfOrders(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID, other := s.createSale(fields{"quota": 100, "limit_per_user": 50}).ID, s.createSale(nil).ID
	lister, another, nobody := s.buyer("lister"), s.buyer("another-lister"), s.buyer("lister-of-nothing")
	var want []string
	for i := range 7 {
		in := saleID
		if i == 3 {
			in = other
		}
		want = append(want, lister.buy(in, 1).ID)
		another.buy(saleID, 1)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 2, 3, 6, 7, 8, 500} {
		list := pages[order](lister, "/api/v1/orders", "orders", limit)
		var got []string
		for i, o := range list {
			if got = append(got, o.ID); i > 0 && o.CreatedAt.After(*list[i-1].CreatedAt) {
				t.Errorf("pages of %d: not the newest first: %+v", limit, list)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("pages of %d: orders %v, want %v", limit, got, want)
		}
	}
	if a := nobody.get("/api/v1/orders"); string(a.body) != `{"next_cursor":"","orders":[]}` {
		t.Errorf("who has bought nothing gets %s", a.body)
	}
	cursor := another.get("/api/v1/orders?limit=1").text("next_cursor")
	if a := nobody.get("/api/v1/orders?limit=500&cursor=" + cursor); string(a.body) != `{"next_cursor":"","orders":[]}` {
		t.Errorf("another buyer's cursor shows %s", a.body)
	}
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=501", "limit=ten", "limit=99999999999999999999", "cursor=%3F%3F", "cursor=AAAA",
		"cursor=JyBPUiAxPTE7LS0",
		"cursor=MS54", // 1.x
	} {
		lister.call("GET", "/api/v1/orders?"+query, nil).refused(400, "bad_request")
	}
}

// A step that an order's status does not allow is refused and changes nothing.
func TestOrderStatuses(t *testing.T) {
	t.Parallel()
	s := usual(t)
	ann := s.buyer("ann")
	saleID := s.createSale(fields{"quota": 20, "limit_per_user": 20}).ID
	made := map[string]string{}
	for _, status := range []string{"pending", "cancelled", "paid", "refunded", "expired"} {
		made[status] = ann.buy(saleID, 1).ID
	}
	ann.cancel(made["cancelled"])
	ann.pay(made["paid"])
	ann.pay(made["refunded"])
	s.refund(made["refunded"]).want(200)
	ann.overdue(made["expired"])
	before := s.balanced(saleID)
	for status, id := range made {
		if status != "pending" {
			ann.call("DELETE", "/api/v1/orders/"+id, nil).refused(409, "not_cancellable")
			ann.call("POST", "/api/v1/orders/"+id+"/payments", nil).refused(409, "not_payable")
		}
		if status != "paid" {
			s.refund(id).refused(409, "not_refundable")
		}
		if status != "pending" {
			s.as("s-1", model.RoleSupport).call("POST", "/api/v1/admin/orders/"+id+"/cancel", nil).refused(409, "not_cancellable")
		}
		ann.wantStatus(id, status)
	}
	s.wantBooks(saleID, before)

	// Support may cancel anybody's order. The log says who did it.
	id := made["pending"]
	s.as("s-1", model.RoleSupport).call("POST", "/api/v1/admin/orders/"+id+"/cancel", nil).want(200)
	ann.wantStatus(id, "cancelled")
	s.as("s-2", model.RoleViewer).get("/api/v1/admin/sales/"+saleID+"/operations").want(200).contains(`"s-1"`, `"cancel"`, id)
}

// A queued order can be neither paid nor cancelled. To other buyers it does not exist.
func TestQueuedOrderCantBePaidOrCancelled(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	// The settler can't write orders without this table, while everything else goes on.
	s.exec("ALTER TABLE buyers RENAME TO elsewhere")
	queued := ann.purchased(202, saleID, 1, "Prefer", "respond-async")
	ann.wantStatus(queued.ID, "queued")
	url := "/api/v1/orders/" + queued.ID
	ann.call("POST", url+"/payments", nil).refused(409, "not_payable")
	ann.call("DELETE", url, nil).refused(409, "not_cancellable")
	ben.call("POST", url+"/payments", nil).refused(404, "not_found")
	ben.call("DELETE", url, nil).refused(404, "not_found")
	s.exec("ALTER TABLE elsewhere RENAME TO buyers")
	ann.becomes(queued.ID, "pending")
}
