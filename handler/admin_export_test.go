package handler

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// ledger is a database of so many orders, in pages as they are asked for.
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
		list = append(list, order(i))
	}
	if first+f.Limit < l.orders {
		next = fmt.Sprint(first + f.Limit)
	}
	return list, next, ctx.Err()
}

func order(i int) model.Order {
	at := time.UnixMilli(1_800_000_000_000 + int64(i))
	return model.Order{
		ID: fmt.Sprint("O", i), UserID: fmt.Sprint("-user", i), SaleID: benchSale, Status: model.OrderPaid, Quantity: 2, AmountCents: 1980, Currency: "CNY",
		CreatedAt: at, ExpiresAt: at.Add(time.Minute), PaidAt: at.Add(time.Second),
	}
}

func exporting(t *testing.T, l *ledger) *office {
	t.Helper()
	api := benchAPI(t, false)
	api.Orders = &service.Orders{Desk: l}
	return newOffice(t, api)
}

// All orders are in the sheet, however many pages they are.
func TestExportOrders(t *testing.T) {
	for _, n := range []int{0, 1, maxPage, maxPage + 1, 5*maxPage + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{orders: n}
				o := exporting(t, l)
				sheet := o.get("/sales/" + benchSale + "/orders.csv?status=paid&q=ann")
				want := http.Header{"Content-Type": {"text/csv; charset=utf-8"}, "Content-Disposition": {`attachment; filename="orders-` + benchSale + `.csv"`}, "Cache-Control": {"no-store"}}
				for name, values := range want {
					if !reflect.DeepEqual(sheet.header[name], values) {
						t.Errorf("%s: %v", name, sheet.header[name])
					}
				}
				rows, err := csv.NewReader(sheet.body).ReadAll()
				if err != nil || len(rows) != n+1 {
					t.Fatalf("%d rows, %v", len(rows), err)
				}
				if got := strings.Join(rows[0], ","); got != "order_id,user_id,status,quantity,amount_cents,currency,created_at,expires_at,paid_at,reason" {
					t.Errorf("the head is %s", got)
				}
				for i, row := range rows[1:] {
					if row[0] != fmt.Sprint("O", i) || row[1] != fmt.Sprint("'-user", i) || len(row) != 10 {
						t.Fatalf("row %d is %v", i, row)
					}
				}
				if n > 0 {
					if got := strings.Join(rows[1][2:], ","); got != "paid,2,1980,CNY,2027-01-15T08:00:00.000Z,2027-01-15T08:01:00.000Z,2027-01-15T08:00:01.000Z," {
						t.Errorf("the first row is %s", got)
					}
				}
				for _, f := range l.asked {
					if f.SaleID != benchSale || f.Status != model.OrderPaid || f.UserID != "ann" || f.Limit != maxPage {
						t.Errorf("asked for %+v", f)
					}
				}
			})
		})
	}
}

// What can't be finished doesn't look finished. Before the first row it is a refusal as any other.
func TestExportCutShort(t *testing.T) {
	for page, status := range map[int]int{1: http.StatusInternalServerError, 2: http.StatusOK, 4: http.StatusOK} {
		t.Run(fmt.Sprint("page ", page), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := exporting(t, &ledger{orders: 9 * maxPage, failAt: page})
				sheet := o.get("/sales/" + benchSale + "/orders.csv")
				body, err := io.ReadAll(sheet.body)
				if sheet.status != status || (err == nil) != (page == 1) {
					t.Errorf("%d, %v", sheet.status, err)
				}
				if rows := strings.Count(string(body), "\n"); page > 1 && rows != (page-1)*maxPage+1 {
					t.Errorf("%d rows came", rows)
				}
			})
		})
	}
}

// A stop doesn't wait for an export, however fast its client reads.
func TestExportEndsAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{orders: 1000 * maxPage}
		o := exporting(t, l)
		closing := make(chan struct{})
		o.api.Closing = closing
		sheet := o.get("/sales/" + benchSale + "/orders.csv")
		close(closing)
		if _, err := io.ReadAll(sheet.body); err == nil || len(l.asked) > 2 {
			t.Errorf("%d pages were read, and it ended with %v", len(l.asked), err)
		}
	})
}

// A client that doesn't read is left.
func TestExportForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{orders: 1000 * maxPage}
		o := exporting(t, l)
		sheet := o.get("/sales/" + benchSale + "/orders.csv")
		time.Sleep(exportPatience + time.Second)
		if _, err := io.ReadAll(sheet.body); err == nil || len(l.asked) > 2 {
			t.Errorf("%d pages were read, and it ended with %v", len(l.asked), err)
		}
	})
}

func TestHarmless(t *testing.T) {
	for cell, want := range map[string]string{
		"": "", "ann": "ann", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(1)": "'@SUM(1)", "\t=1": "'\t=1", "\r=1": "'\r=1", "a=1": "a=1", "'=1": "'=1", "界": "界",
	} {
		if got := harmless(cell); got != want {
			t.Errorf("%q became %q, want %q", cell, got, want)
		}
	}
}
