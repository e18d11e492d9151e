package app_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

type sale struct {
	ID                 string    `json:"id"`
	Title              string    `json:"title"`
	Description        string    `json:"description"`
	ImageURL           string    `json:"image_url"`
	PriceCents         int64     `json:"price_cents"`
	OriginalPriceCents int64     `json:"original_price_cents"`
	Currency           string    `json:"currency"`
	Quota              int64     `json:"quota"`
	Available          int64     `json:"available"`
	State              string    `json:"state"`
	Revision           int64     `json:"revision"`
	StartsAt           time.Time `json:"starts_at"`
	EndsAt             time.Time `json:"ends_at"`
	LimitPerUser       int       `json:"limit_per_user"`
	PayTimeoutSeconds  int       `json:"pay_timeout_seconds"`
	ShortURL           string    `json:"short_url"`
	Mode               string    `json:"mode"`
	EntriesAt          time.Time `json:"entries_at"`
	CallSeconds        int       `json:"call_seconds"`
	WaitingList        bool      `json:"waiting_list"`
	Beacon             bool      `json:"beacon"`
	EntryWork          int64     `json:"entry_work"`
	InLine             bool      `json:"in_line"`
	CampaignID         string    `json:"campaign_id"`
	Variant            string    `json:"variant"`
}

// operatorSale is a sale as operators see it.
type operatorSale struct {
	sale
	Status     string `json:"status"`
	StockShown string `json:"stock_shown"`
	Shards     int    `json:"parts"`
	Held       int64  `json:"held"`
	Paid       int64  `json:"paid"`
}

type order struct {
	ID          string     `json:"id"`
	Number      string     `json:"number"`
	SaleID      string     `json:"sale_id"`
	Status      string     `json:"status"`
	Reason      string     `json:"reason"`
	Quantity    int        `json:"quantity"`
	AmountCents int64      `json:"amount_cents"`
	Currency    string     `json:"currency"`
	CreatedAt   *time.Time `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	PaidAt      *time.Time `json:"paid_at"`
	UserID      string     `json:"user_id"` // in the operator's lists
}

type payment struct {
	PaymentID string    `json:"payment_id"`
	PayURL    string    `json:"pay_url"`
	ExpiresAt time.Time `json:"expires_at"`
}

type audit struct {
	Quota     int64            `json:"quota"`
	Available int64            `json:"available"`
	Held      int64            `json:"held"`
	Paid      int64            `json:"paid"`
	Orders    map[string]int64 `json:"orders"`
	Units     map[string]int64 `json:"units"`
	Gate      struct {
		Epoch    int64 `json:"epoch"`
		Left     int64 `json:"left"`
		Inflight int64 `json:"inflight"`
		Stream   int64 `json:"stream"`
	} `json:"gate"`
	Drift int64 `json:"drift"`
	OK    bool  `json:"ok"`
}

// fields are the members of a request's body.
type fields map[string]any

// changed returns the fields with changes.
func (f fields) changed(changes fields) fields {
	all := maps.Clone(f)
	maps.Copy(all, changes)
	return all
}

// newSale is a sale that is open now: ten units at 9.90, two for each buyer.
func newSale(changes fields) fields {
	now := time.Now()
	return fields{
		"title": "Teapot", "price_cents": 990, "original_price_cents": 4990, "currency": "CNY", "quota": 10,
		"starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour), "limit_per_user": 2, "pay_timeout_seconds": 600,
	}.changed(changes)
}

const adminSales = "/api/v1/admin/sales"

// createSale makes the sale of newSale with these fields changed.
func (s *server) createSale(changes fields) sale {
	s.t.Helper()
	return s.operator().createSale(changes)
}

func (c *client) createSale(changes fields) sale {
	c.t.Helper()
	var made operatorSale
	c.call("POST", adminSales, newSale(changes)).want(http.StatusCreated).read(&made)
	return made.sale
}

// patchSale changes a sale.
func (s *server) patchSale(saleID string, changes fields) sale {
	s.t.Helper()
	var changed operatorSale
	s.operator().call("PATCH", adminSales+"/"+saleID, changes).want(http.StatusOK).read(&changed)
	return changed.sale
}

// setStatus pauses, resumes or closes a sale.
func (s *server) setStatus(saleID, action string) {
	s.t.Helper()
	s.operator().post(adminSales+"/"+saleID+"/"+action, nil)
}

// refund refunds an order.
func (s *server) refund(orderID string) *answer {
	s.t.Helper()
	return s.operator().call("POST", "/api/v1/admin/orders/"+orderID+"/refund", nil)
}

// sale reads a sale.
func (s *server) sale(saleID string) sale {
	s.t.Helper()
	var found sale
	s.anyone().get("/api/v1/sales/" + saleID).read(&found)
	return found
}

// knows waits until an instance shows a sale that another one has made.
func (s *server) knows(saleID string) {
	s.t.Helper()
	s.eventually("the instance knows the sale", func() bool { return s.sale(saleID).State == "open" })
}

// audit reads a sale's books as they are.
func (s *server) audit(saleID string) audit {
	s.t.Helper()
	var books audit
	s.operator().get(adminSales + "/" + saleID + "/audit").read(&books)
	return books
}

// balanced waits until no attempt on a sale is queued and the sale's books are right. It returns the books.
func (s *server) balanced(saleID string) audit {
	s.t.Helper()
	var books audit
	s.eventually("the books of sale "+saleID+" balance", func() bool {
		books = s.audit(saleID)
		return books.OK && books.Gate.Stream == 0 && books.Gate.Inflight == 0
	})
	return books
}

// stock is the part of the books that most tests compare.
type stock struct{ available, held, paid int64 }

// wantStock waits for balanced books, checks the stock, and returns the books.
func (s *server) wantStock(saleID string, want stock) audit {
	s.t.Helper()
	books := s.balanced(saleID)
	if got := (stock{books.Available, books.Held, books.Paid}); got != want {
		s.t.Errorf("the stock is %+v, want %+v", got, want)
	}
	return books
}

// wantBooks waits for balanced books and checks that they are the same as before. A new sale may get its gate meanwhile.
func (s *server) wantBooks(saleID string, before audit) {
	s.t.Helper()
	now := s.balanced(saleID)
	if before.Gate.Epoch == 0 {
		before.Gate = now.Gate // which agrees with the stock
	}
	if !reflect.DeepEqual(now, before) {
		s.t.Errorf("books %+v became %+v", before, now)
	}
}

// path asks for the path under which the buyer may buy.
func (c *client) path(saleID string) string {
	c.t.Helper()
	return c.post("/api/v1/sales/"+saleID+"/path", nil).text("path")
}

// orderURL returns the URL of a purchase under a good path that the server did not issue: one that a buyer may have from
// before, whatever the sale's state is now.
func (c *client) orderURL(saleID string) string {
	path, _ := auth.NewPaths([]byte(testSecret), time.Now).Issue(c.user, saleID, time.Hour)
	return "/api/v1/sales/" + saleID + "/" + path + "/orders"
}

// purchase buys units under the path of orderURL. The answer may be a refusal.
func (c *client) purchase(saleID string, quantity any, headers ...string) *answer {
	c.t.Helper()
	return c.call("POST", c.orderURL(saleID), fields{"quantity": quantity}, headers...)
}

// purchased is purchase for an answer with this status and an order.
func (c *client) purchased(status int, saleID string, quantity any, headers ...string) (made order) {
	c.t.Helper()
	c.purchase(saleID, quantity, headers...).want(status).read(&made)
	return made
}

// tryPurchase is the purchase of one unit for goroutines that are not the test's.
func (c *client) tryPurchase(saleID string, headers ...string) (*answer, error) {
	ctx := context.WithoutCancel(c.t.Context())
	return c.try(ctx, "POST", c.orderURL(saleID), fields{"quantity": 1}, headers...)
}

// buy asks for a path and buys under that path; the order must be confirmed.
func (c *client) buy(saleID string, quantity int) (made order) {
	c.t.Helper()
	url := "/api/v1/sales/" + saleID + "/" + c.path(saleID) + "/orders"
	c.call("POST", url, fields{"quantity": quantity}).want(http.StatusCreated).read(&made)
	return made
}

// order reads one of the client's orders.
func (c *client) order(id string) (found order) {
	c.t.Helper()
	c.get("/api/v1/orders/" + id).read(&found)
	return found
}

// wantStatus checks the status of one of the client's orders.
func (c *client) wantStatus(id, status string) {
	c.t.Helper()
	if found := c.order(id); found.Status != status {
		c.t.Errorf("order %s is %s, want %s", id, found.Status, status)
	}
}

// becomes waits until an order has a status.
func (c *client) becomes(id, status string) order {
	c.t.Helper()
	var found order
	c.eventually("order "+id+" becomes "+status, func() bool {
		found = c.order(id)
		return found.Status == status
	})
	return found
}

// cancel cancels an order.
func (c *client) cancel(id string) {
	c.t.Helper()
	c.call("DELETE", "/api/v1/orders/"+id, nil).want(http.StatusOK)
}

// startPayment opens a payment of an order.
func (c *client) startPayment(id string) (started payment) {
	c.t.Helper()
	c.call("POST", "/api/v1/orders/"+id+"/payments", nil).want(http.StatusCreated).read(&started)
	return started
}

const formType = "application/x-www-form-urlencoded"

// choose presses a button on a payment's page: pay or decline.
func (c *client) choose(p payment, choice string) *answer {
	c.t.Helper()
	return c.call("POST", p.PayURL, "choice="+choice, "Content-Type", formType).want(http.StatusOK)
}

// pay pays an order on the sandbox provider's page.
func (c *client) pay(id string) {
	c.t.Helper()
	c.choose(c.startPayment(id), "pay")
	if paid := c.order(id); paid.Status != "paid" {
		c.t.Fatalf("order %s is %s after its payment", id, paid.Status)
	}
}

const callbackURL = "/api/v1/payments/callback"

// paid is a callback's body for a payment of 9.90 that succeeded, with these members changed.
func paid(paymentID string, changes fields) fields {
	return fields{
		"payment_id": paymentID, "provider_txn_id": "txn-" + paymentID, "status": "succeeded", "amount_cents": 990,
	}.changed(changes)
}

// sign signs a callback's body as the contract says, with the tests' secret.
func sign(timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(timestamp + "." + body))
	return hex.EncodeToString(mac.Sum(nil))
}

// signed is a payment provider whose every request has this body.
func (s *server) signed(body any) *client {
	s.t.Helper()
	text, err := json.Marshal(body)
	check.NoError(s.t, err)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	return s.anyone().with("X-Timestamp", now, "X-Signature", sign(now, string(text)))
}

// callback sends a payment provider's signed callback.
func (s *server) callback(body any) *answer {
	s.t.Helper()
	return s.signed(body).call("POST", callbackURL, body)
}

// tally counts answers by status and code.
type tally struct {
	sync.Mutex
	counts map[string]int
}

func (c *tally) add(a *answer, err error) {
	what := "error"
	if err == nil {
		var p struct{ Code string }
		_ = json.Unmarshal(a.body, &p) // an answer without JSON has no code
		what = strings.TrimSpace(fmt.Sprint(a.status, " ", p.Code))
	}
	c.Lock()
	defer c.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

func (c *tally) want(t testing.TB, want map[string]int) {
	t.Helper()
	if !maps.Equal(c.counts, want) {
		t.Errorf("answers %v, want %v", c.counts, want)
	}
}

// buyTogether makes n buyers buy at the same instant, one unit each.
func buyTogether(saleID string, n int, buyer func(i int) *client, headers ...string) *tally {
	buyers := make([]*client, n)
	for i := range buyers {
		buyers[i] = buyer(i)
	}
	var got tally
	check.Together(n, func(i int) { got.add(buyers[i].tryPurchase(saleID, headers...)) })
	return &got
}
