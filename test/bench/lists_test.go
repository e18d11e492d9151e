//go:build bench && linux

package bench

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// manyOrders is how many orders the row "a million orders" lists.
const manyOrders = 1_000_000

// lists fills a sale with orders and measures the lists of them, and their export. Most orders are pending, a quarter
// is paid, and a few are refunded, so that a list of the refunded ones has to search. Each user has ten orders.
func lists(t *testing.T, _ *run, r *Result) {
	e := start(t, r, false)
	sale := e.sale(1, 1)
	e.insertOrders(sale, "IF(seq % 99991 = 0, 'refunded', IF(seq % 4 = 0, 'paid', 'pending'))", 1, manyOrders, manyOrders/10)
	ofSale := "/api/v1/admin/sales/" + sale + "/orders"
	old := "&cursor=" + base64.RawURLEncoding.EncodeToString(fmt.Append(nil, manyOrders/2))
	operator, slowest := e.Operator(e.url), 0.0
	for _, page := range []struct {
		what, path, token string
		rows              int
	}{
		{"the newest", ofSale + "?limit=50", operator, 50},
		{"old ones", ofSale + "?limit=50" + old, operator, 50},
		{"paid ones", ofSale + "?limit=50&status=paid", operator, 50},
		{"the few refunded ones", ofSale + "?limit=50&status=refunded", operator, manyOrders / 99991},
		{"a user's, for the operator", ofSale + "?limit=50&q=" + userID(7), operator, 10},
		{"the user's own", "/api/v1/orders?limit=50", e.token(7), 10},
	} {
		var times []float64
		for range 21 {
			body, took := e.get(page.path, page.token)
			if rows := bytes.Count(body, []byte(`"status":`)); rows != page.rows {
				t.Fatalf("%s: %d rows, want %d", page.what, rows, page.rows)
			}
			times = append(times, float64(took)/float64(time.Millisecond))
		}
		slowest = max(slowest, spreadOf(times).median)
		r.note("%s: %s ms", page.what, spreadOf(times))
	}
	r.most(slowest, 20, "ms a page")
	for range 3 {
		body, took := e.get(ofSale+".csv", operator)
		if rows := bytes.Count(body, []byte("\n")) - 1; rows != manyOrders {
			t.Fatalf("the export has %d rows", rows)
		}
		r.Values = append(r.Values, manyOrders/took.Seconds())
	}
	r.Unit = "rows/s of CSV"
	r.least(spreadOf(r.Values).median, 100_000, r.Unit)
}

// insertOrders writes orders of so many users straight into the table, with the numbers seq between two bounds. status is the SQL
// of an order's status. The ids of neighbours are far apart, as those of orders are.
func (e *engine) insertOrders(sale, status string, from, to, users int) {
	e.t.Helper()
	const insert = `INSERT INTO %[1]s.orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch,
		idempotency_key, created_at_ms, expires_at_ms)
		SELECT CONCAT('%[2]s', UPPER(MD5(seq))), '%[2]s', CONCAT('u', LPAD(seq %% %[3]d, 7, '0')), 1, 990, 'CNY',
		%[4]s, 'stream', 1, MD5(seq), %[5]d + seq, %[6]d
		FROM %[1]s.seq_%[7]d_to_%[8]d`
	const atOnce = 50_000
	for now := time.Now(); from <= to; from += atOnce {
		_, err := e.root.ExecContext(e.t.Context(), fmt.Sprintf(insert, e.schema(), sale, users, status, now.Add(-time.Hour).UnixMilli(),
			now.Add(validity).UnixMilli(), from, min(to, from+atOnce-1)))
		check.NoError(e.t, err)
	}
}

// get sends a GET, which must succeed, and returns the body and how long the answer took.
func (e *engine) get(path, token string) (body []byte, took time.Duration) {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.url+path, nil)
	check.NoError(e.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	begun := time.Now()
	answer, err := http.DefaultClient.Do(request)
	check.NoError(e.t, err)
	body, err = io.ReadAll(answer.Body)
	took = time.Since(begun)
	check.NoError(e.t, err, answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		e.t.Fatalf("GET %s: %s, %s", path, answer.Status, body)
	}
	return body, took
}
