// Package browser drives the pages of the built server in Chromium, as people do: by clicks and keys. It is a
// module of its own, so that the engine doesn't depend on what drives a browser.
package browser

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// patience is how long a test waits for a page to change: far above what a slow machine needs.
const patience = 3 * time.Minute

// buyersPassword is the password of every buyer.
const buyersPassword = "correct horse"

// scratch is a folder of this run.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "flashsale-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shop.Main(m, func() {
		closeBrowser()
		_ = os.RemoveAll(scratch)
	})
}

// server is a running server with embedded stores and no sale.
type server struct {
	*shop.Shop
	t        testing.TB
	url      string
	operator string // a token
	instance *shop.Instance
}

type fields = shop.Document

// serve starts a server, which ends with the test. args override the usual arguments.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{Shop: shop.Embedded(t), t: t}
	s.instance = s.Start(append([]string{"--demo=false"}, args...)...)
	s.url = s.instance.URL
	s.operator = s.Operator(s.url)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server: %s", s.instance.Log)
		}
	})
	return s
}

// call makes a request to the API and returns the answer, which must have the wanted status.
func (s *server) call(method, path, token string, body any, want int) fields {
	s.t.Helper()
	return s.Must(want, method, s.url+"/api/v1"+path, token, body)
}

func (s *server) logIn(name string) (token string) {
	s.t.Helper()
	return text(s.call("POST", "/sessions", "", fields{"name": name, "password": buyersPassword}, http.StatusOK)["token"])
}

// buyer makes an account and returns its token.
func (s *server) buyer(name string) (token string) {
	s.t.Helper()
	return text(s.call("POST", "/users", "", fields{"name": name, "password": buyersPassword}, http.StatusCreated)["token"])
}

// sale makes a sale that is open for an hour, with these changes, and returns its id.
func (s *server) sale(changes fields) string {
	s.t.Helper()
	sale := fields{
		"title": "Teapot", "description": "Cast iron, 800 ml, with a sieve.\nKeeps tea warm for an hour.",
		"price_cents": 990, "original_price_cents": 4990, "currency": "CNY",
		"quota": 10, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute), "ends_at": time.Now().Add(time.Hour),
	}
	maps.Copy(sale, changes)
	return text(s.call("POST", "/admin/sales", s.operator, sale, http.StatusCreated)["id"])
}

// act lets the operator pause, resume or close a sale by the API.
func (s *server) act(action, saleID string) {
	s.t.Helper()
	s.call("POST", "/admin/sales/"+saleID+"/"+action, s.operator, fields{}, http.StatusOK)
}

// path returns a buyer's hidden path of a sale.
func (s *server) path(saleID, token string) string {
	s.t.Helper()
	hidden := text(s.call("POST", "/sales/"+saleID+"/path", token, fields{}, http.StatusOK)["path"])
	return "/sales/" + saleID + "/" + hidden + "/orders"
}

// buy buys by the API and returns the order's id.
func (s *server) buy(saleID, token string, quantity int) string {
	s.t.Helper()
	return text(s.call("POST", s.path(saleID, token), token, fields{"quantity": quantity}, http.StatusCreated)["id"])
}

// pay pays an order at the sandbox.
func (s *server) pay(orderID, token string) {
	s.t.Helper()
	page := text(s.call("POST", "/orders/"+orderID+"/payments", token, fields{}, http.StatusCreated)["pay_url"])
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, page, strings.NewReader("choice=pay"))
	check.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	check.NoError(s.t, err)
	_ = res.Body.Close()
	check.Same(s.t, "status of the order", s.call("GET", "/orders/"+orderID, token, nil, http.StatusOK)["status"], any("paid"))
}

// hasOrders checks the number of a buyer's orders.
func (s *server) hasOrders(name string, want int) {
	s.t.Helper()
	list, _ := s.call("GET", "/orders", s.logIn(name), nil, http.StatusOK)["orders"].([]any)
	check.Same(s.t, "orders of "+name, len(list), want)
}

// hasSales checks the number of sales.
func (s *server) hasSales(want int) {
	s.t.Helper()
	list, _ := s.call("GET", "/admin/sales", s.operator, nil, http.StatusOK)["sales"].([]any)
	check.Same(s.t, "sales", len(list), want)
}

func text(value any) string {
	s, _ := value.(string)
	return s
}
