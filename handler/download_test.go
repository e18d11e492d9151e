package handler

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// ledger is a database of some orders, which it returns in pages.
type ledger struct {
	service.OrderDesk
	orders int
	failAt int // the page that can't be read; 0: none
	asked  []model.OrderFilter
}

func (l *ledger) Orders(ctx context.Context, f model.OrderFilter) (list []model.Order, next string, err error) {
	l.asked = append(l.asked, f)
	if len(l.asked) == l.failAt {
		return nil, "", errors.New("the database is gone")
	}
	first := 0
	if f.Cursor != "" {
		_, _ = fmt.Sscan(f.Cursor, &first)
	}
	for i := first; i < min(first+f.Limit, l.orders); i++ {
		at := time.UnixMilli(1_800_000_000_000 + int64(i))
		list = append(list, model.Order{
			ID: fmt.Sprint("O", i), UserID: fmt.Sprint("-user", i), SaleID: benchSale, Status: model.OrderPaid, Quantity: 2,
			AmountCents: 1980, Currency: "CNY", CreatedAt: at, ExpiresAt: at.Add(time.Minute), PaidAt: at.Add(time.Second),
		})
	}
	if first+f.Limit < l.orders {
		next = fmt.Sprint(first + f.Limit)
	}
	return list, next, ctx.Err()
}

const exportPath = "/api/v1/admin/sales/" + benchSale + "/orders.csv"

// export opens a shop and asks for its orders.
func (l *ledger) export(t *testing.T, query string) (*wire, *http.Response) {
	s := newShop(t)
	s.api.Orders.Service = &service.Orders{Desk: l}
	w := s.open()
	res, _ := w.ask(exportPath + query)
	return w, res
}

// The sheet has all orders, however many pages they are.
func TestExportOrders(t *testing.T) {
	for _, n := range []int{0, 1, maxPage, maxPage + 1, 5*maxPage + 1} {
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{orders: n}
			_, sheet := l.export(t, "?status=paid&q=ann")
			sameHeader(t, "sheet", sheet.Header, map[string]string{
				"Content-Type": "text/csv; charset=utf-8", "Cache-Control": "no-store",
				"Content-Disposition": `attachment; filename="orders-` + benchSale + `.csv"`,
			})
			rows := check.Must(csv.NewReader(sheet.Body).ReadAll())
			check.Same(t, "rows", len(rows), n+1)
			check.Same(t, "head", strings.Join(rows[0], ","),
				"\ufefforder_id,order_number,title,variant,user_id,status,quantity,amount,currency,created_at,expires_at,paid_at,reason")
			for i, row := range rows[1:] {
				check.Same(t, "ids", []string{row[0], row[4]}, []string{fmt.Sprint("O", i), fmt.Sprint("'-user", i)})
			}
			if n > 0 {
				check.Same(t, "first row", strings.Join(rows[1][5:], ","),
					"paid,2,19.80,CNY,2027-01-15T08:00:00.000Z,2027-01-15T08:01:00.000Z,2027-01-15T08:00:01.000Z,")
			}
			for _, f := range l.asked {
				f.Cursor, f.Payment, f.UserID, f.UserPrefix = "", "", "", "" // what the words may mean
				check.Same(t, "filter", f, model.OrderFilter{SaleIDs: []string{benchSale}, Status: model.OrderPaid, Limit: maxPage})
			}
		})
	}
}

// An export that fails does not look complete. Before the first row it is a refusal.
func TestExportCutShort(t *testing.T) {
	for page, status := range map[int]int{1: http.StatusInternalServerError, 2: http.StatusOK, 4: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			_, sheet := (&ledger{orders: 9 * maxPage, failAt: page}).export(t, "")
			body, err := io.ReadAll(sheet.Body)
			check.Same(t, "status", sheet.StatusCode, status)
			check.Same(t, "complete", err == nil, page == 1)
			if page > 1 {
				check.Same(t, "rows", strings.Count(string(body), "\n"), (page-1)*maxPage+1)
			}
		})
	}
}

// An export ends when the server stops, however fast the client reads, and when the client does not read.
func TestExportIsAbandoned(t *testing.T) {
	check.EachInBubble(t, map[string]func(*wire){
		"the server stops":         func(w *wire) { close(w.stop) },
		"the client does not read": func(*wire) { time.Sleep(exportPatience + time.Second) },
	}, func(t *testing.T, happens func(*wire)) {
		l := &ledger{orders: 1000 * maxPage}
		w, sheet := l.export(t, "")
		happens(w)
		if _, err := io.ReadAll(sheet.Body); err == nil || len(l.asked) > 2 {
			t.Errorf("%d pages were read, and the error is %v", len(l.asked), err)
		}
	})
}

func TestHarmless(t *testing.T) {
	for cell, want := range map[string]string{
		"": "", "ann": "ann", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(1)": "'@SUM(1)", "\t=1": "'\t=1", "\r=1": "'\r=1",
		"a=1": "a=1", "'=1": "'=1", "界": "界",
	} {
		check.Same(t, cell, harmless(cell), want)
	}
}
