package handler

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A time is written in UTC with exactly three digits after the second.
func TestStamp(t *testing.T) {
	night := func(year, nanoseconds int) time.Time { return time.Date(year, 11, 11, 20, 0, 0, nanoseconds, time.UTC) }
	for want, at := range map[string]time.Time{
		`"2026-11-11T20:00:00.000Z"`: night(2026, 0),
		`"2026-11-11T20:00:00.120Z"`: night(2026, 120_000_000),
		`"2026-11-11T20:00:00.999Z"`: night(2026, 999_999_999),
		`"2025-11-11T20:00:00.000Z"`: night(2025, 0).In(time.FixedZone("east", 8*3600)),
		`"1969-11-11T20:00:00.000Z"`: night(1969, 0),
	} {
		check.Same(t, at.String(), string(check.Must(json.Marshal(stamp(at)))), want)
	}
}

// The view of an order has no reason or times that the order lacks, and its user only for operators.
func TestOrderViewLeavesOut(t *testing.T) {
	at := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	const orderID = "AAAAAAAAAAAAAAAASIOBO2FFJ5N57W7J664USJFSISHZQU7F"
	paid := model.Order{
		ID: orderID, SaleID: "S", UserID: "ann", Status: model.OrderPaid, Quantity: 2, AmountCents: 1980, Currency: "CNY",
		CreatedAt: at, ExpiresAt: at, PaidAt: at, IdempotencyKey: "secret",
	}
	lost := model.Order{ID: orderID, SaleID: "S", Status: model.OrderRejected, Reason: model.ReasonLost, Quantity: 2, Currency: "CNY"}
	const lostView = `{"id":"` + orderID + `","number":"SIOBO2FF","sale_id":"S","status":"rejected","reason":"lost","quantity":2,"amount_cents":0,"currency":"CNY"}`
	const order = `{"id":"` + orderID + `","number":"SIOBO2FF","sale_id":"S","status":"paid","quantity":2,"amount_cents":1980,"currency":"CNY",` +
		`"created_at":"2026-11-11T20:00:00.000Z","expires_at":"2026-11-11T20:00:00.000Z","paid_at":"2026-11-11T20:00:00.000Z"`
	page := func(next string, view func(model.Order) orderView, list ...model.Order) string {
		w := httptest.NewRecorder()
		c, _ := gin.CreateTestContext(w)
		c.Request = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		answerPage(c, "orders", view, func(string, int) ([]model.Order, string, error) { return list, next, nil })
		return w.Body.String()
	}
	for want, got := range map[string]string{
		order + `}`: string(check.Must(json.Marshal(viewOrder(paid)))),
		lostView:    string(check.Must(json.Marshal(viewOrder(lost)))),
		`{"next_cursor":"","orders":[` + order + `}]}`:                  page("", viewOrder, paid),
		`{"next_cursor":"c","orders":[` + order + `,"user_id":"ann"}]}`: page("c", viewBuyersOrder, paid),
		`{"next_cursor":"","orders":[]}`:                                page("", viewOrder),
		`{"next_cursor":"d","orders":[]}`:                               page("d", viewBuyersOrder),
	} {
		check.Same(t, "view", got, want)
	}
}

// The order's own encoder gives what encoding/json gives.
func FuzzOrderJSON(f *testing.F) {
	f.Add("O", "S", "paid", "", 1, int64(990), "CNY", int64(1_790_000_000_123_456_789), int64(0), int64(-1))
	f.Add("<&>", "\"\\", "\n\x7f\u2028", "lost", -1, int64(-5), "界\xff", int64(0), int64(1)<<62, int64(5))
	f.Fuzz(func(t *testing.T, id, sale, status, reason string, n int, cents int64, currency string, created, expires, paid int64) {
		at := func(ns int64) time.Time {
			if ns == 0 {
				return time.Time{}
			}
			return time.Unix(0, ns).In(time.FixedZone("", int(ns%50_000)))
		}
		order := model.Order{
			ID: id, SaleID: sale, UserID: "ann", Status: model.OrderStatus(status), Reason: model.Verdict(reason), Quantity: n,
			AmountCents: cents, Currency: currency, CreatedAt: at(created), ExpiresAt: at(expires), PaidAt: at(paid), IdempotencyKey: "secret",
		}
		check.Same(t, "order", string(appendOrder(nil, &order)), string(check.Must(json.Marshal(viewOrder(order)))))
	})
}

func BenchmarkOrderJSON(b *testing.B) {
	at := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	order := &model.Order{
		ID: "AAAAAAAAAAAAAAAAAAAAAAAAAA", SaleID: "AAAAAAAAAAAAAAAA", Status: model.OrderPending, Quantity: 1, AmountCents: 990,
		Currency: "CNY", CreatedAt: at, ExpiresAt: at,
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = appendOrder(make([]byte, 0, usualOrderBytes), order)
	}
}
