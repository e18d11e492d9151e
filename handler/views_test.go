package handler

import (
	"encoding/json"
	"testing"
	"time"

	"flashsale/model"
)

// Times are written in UTC with exactly three digits behind the second, whatever they were read with.
func TestStamp(t *testing.T) {
	east := time.FixedZone("east", 8*3600)
	for name, tc := range map[string]struct {
		at   time.Time
		want string
	}{
		"a whole second":    {time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC), `"2026-11-11T20:00:00.000Z"`},
		"milliseconds":      {time.Date(2026, 11, 11, 20, 0, 0, 120_000_000, time.UTC), `"2026-11-11T20:00:00.120Z"`},
		"finer than that":   {time.Date(2026, 11, 11, 20, 0, 0, 999_999_999, time.UTC), `"2026-11-11T20:00:00.999Z"`},
		"another time zone": {time.Date(2026, 11, 12, 4, 0, 0, 0, east), `"2026-11-11T20:00:00.000Z"`},
		"before 1970":       {time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), `"1969-12-31T23:59:59.000Z"`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := json.Marshal(stamp(tc.at)); err != nil || string(got) != tc.want {
				t.Errorf("%s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

// An order shows what it has: no reason, payment or user where there is none.
func TestOrderViewLeavesOut(t *testing.T) {
	at := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	full := model.Order{
		ID: "O", SaleID: "S", UserID: "ann", Status: model.OrderPaid, Quantity: 2, AmountCents: 1980, Currency: "CNY",
		CreatedAt: at, ExpiresAt: at, PaidAt: at, RequestKey: "secret", RequestHash: "secret",
	}
	lost := model.Order{ID: "O", SaleID: "S", UserID: "ann", Status: model.OrderRejected, Reason: model.ReasonLost, Quantity: 2, Currency: "CNY"}
	const head, tail = `{"id":"O","sale_id":"S","status":`, `,"created_at":"2026-11-11T20:00:00.000Z","expires_at":"2026-11-11T20:00:00.000Z","paid_at":"2026-11-11T20:00:00.000Z"`
	for name, tc := range map[string]struct {
		view any
		want string
	}{
		"a paid order":         {viewOrder(full), head + `"paid","quantity":2,"amount_cents":1980,"currency":"CNY"` + tail + `}`},
		"a lost attempt":       {viewOrder(lost), head + `"rejected","reason":"lost","quantity":2,"amount_cents":0,"currency":"CNY"}`},
		"the buyer's list":     {viewOrders([]model.Order{full}, "", false), `{"orders":[` + head + `"paid","quantity":2,"amount_cents":1980,"currency":"CNY"` + tail + `}],"next_cursor":""}`},
		"the operator's list":  {viewOrders([]model.Order{full}, "c", true), `{"orders":[` + head + `"paid","quantity":2,"amount_cents":1980,"currency":"CNY"` + tail + `,"user_id":"ann"}],"next_cursor":"c"}`},
		"a list of no orders":  {viewOrders(nil, "", false), `{"orders":[],"next_cursor":""}`},
		"a list without a nil": {viewOrders([]model.Order{}, "", true), `{"orders":[],"next_cursor":""}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := json.Marshal(tc.view); err != nil || string(got) != tc.want {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, tc.want)
			}
		})
	}
}

// FuzzOrderJSON holds the order's own encoder to encoding/json.
func FuzzOrderJSON(f *testing.F) {
	f.Add("O", "S", "paid", "", 1, int64(990), "CNY", int64(1_790_000_000_123_456_789), int64(0), int64(-1))
	f.Add("<&>", "\"\\", "\n\x7f\u2028", "lost", -1, int64(-5), "界\xff", int64(0), int64(1)<<62, int64(5))
	f.Fuzz(func(t *testing.T, id, sale, status, reason string, quantity int, cents int64, currency string, created, expires, paid int64) {
		at := func(ns int64) time.Time {
			if ns == 0 {
				return time.Time{}
			}
			return time.Unix(0, ns).In(time.FixedZone("", int(ns%50_000)))
		}
		order := model.Order{
			ID: id, SaleID: sale, UserID: "ann", Status: model.OrderStatus(status), Reason: model.Verdict(reason), Quantity: quantity,
			AmountCents: cents, Currency: currency, CreatedAt: at(created), ExpiresAt: at(expires), PaidAt: at(paid), RequestKey: "secret",
		}
		want, err := json.Marshal(viewOrder(order))
		if err != nil {
			t.Fatal(err)
		}
		if got := appendOrder(nil, &order); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
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
