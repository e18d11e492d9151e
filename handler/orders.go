package handler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Sizes of the pages of lists.
const (
	usualPage = 50
	maxPage   = 500
)

// createdSlack is how much older an order may be than one behind it in a list: transactions take time, and clocks are set back.
const createdSlack = time.Minute

// Orders shows orders to their buyers and to the staff, and ends them.
type Orders struct {
	*Offers
	Service  *service.Orders
	Consoles *Consoles
}

func (o *Orders) get(c *gin.Context) {
	show(c, viewOrder)(o.Service.Order(c.Request.Context(), userOf(c), c.Param("id")))
}

func (o *Orders) cancel(c *gin.Context) {
	show(c, viewOrder)(o.Service.Cancel(c.Request.Context(), userOf(c), c.Param("id")))
}

func (o *Orders) cancelAny(c *gin.Context) {
	show(c, viewOrder)(o.Service.CancelAny(c.Request.Context(), c.Param("id"), userOf(c)))
}

func (o *Orders) refund(c *gin.Context) {
	show(c, viewOrder)(o.Service.Refund(c.Request.Context(), c.Param("id"), userOf(c)))
}

func (o *Orders) list(c *gin.Context) {
	answerPage(c, "orders", viewOrder, func(cursor string, limit int) ([]model.Order, string, error) {
		return o.Service.List(c.Request.Context(), model.OrderFilter{UserID: userOf(c), Cursor: cursor, Limit: limit}, "")
	})
}

func (o *Orders) listOfSales(c *gin.Context) {
	f, _, _, ok := o.ofSales(c)
	if !ok {
		return
	}
	answerPage(c, "orders", viewBuyersOrder, func(cursor string, limit int) ([]model.Order, string, error) {
		f.Cursor, f.Limit = cursor, limit
		return o.Service.List(c.Request.Context(), f, c.Query("q"))
	})
}

// ofSales returns a filter for the route's sales and the query's status, these sales, and the id of the sale or campaign. If ok is
// false, ofSales has ended the request.
func (o *Orders) ofSales(c *gin.Context) (f model.OrderFilter, sales []model.Offer, id string, ok bool) {
	if sales, id, ok = o.sales(c); !ok {
		return f, sales, id, false
	}
	status := model.OrderStatus(c.Query("status"))
	if invalid := unlessOneOf("status", status, model.StoredStatuses); invalid != nil {
		refuseInvalid(c, invalid)
		return f, sales, id, false
	}
	return model.OrderFilter{SaleIDs: each(sales, func(o model.Offer) string { return o.ID }), Status: status}, sales, id, true
}

// search answers with a page of the orders of all sales that fit the words in the query.
func (o *Orders) search(c *gin.Context) {
	answerPage(c, "orders", o.viewOfSale(c), func(cursor string, limit int) ([]model.Order, string, error) {
		return o.Service.List(c.Request.Context(), model.OrderFilter{Cursor: cursor, Limit: limit}, c.Query("q"))
	})
}

// viewOfSale returns a function that shows an order with its buyer and sale. An erased or unreadable sale has no title.
func (o *Orders) viewOfSale(c *gin.Context) func(model.Order) orderView {
	return func(order model.Order) orderView {
		v := viewBuyersOrder(order)
		if sale, ok, err := o.Catalog.Sale(c.Request.Context(), order.SaleID); ok && err == nil {
			v.Title, v.Variant = cmp.Or(sale.Campaign.Title, sale.Title), sale.Variant
		}
		return v
	}
}

func (o *Orders) record(c *gin.Context) {
	order, record, verdict, err := o.Service.Record(c.Request.Context(), c.Param("id"))
	view := gin.H{"order": o.viewOfSale(c)(order), "payments": each(record.Payments, viewPayment), "history": each(record.Log, viewOperation)}
	answer(c, http.StatusOK, view, verdict, err)
}

// export sends the orders of a sale, of a campaign or, on a route without a parameter, of all sales but shadow sales as CSV, page by
// page, since there may be a million. Orders that are newer than the query asks for are read and passed over, because orders have no
// index by time. export breaks off when the sender of the request may no longer see orders.
func (o *Orders) export(c *gin.Context) {
	f, sales, id, ok := model.OrderFilter{}, []model.Offer(nil), "all", false
	if len(c.Params) > 0 {
		if f, sales, id, ok = o.ofSales(c); !ok {
			return
		}
	}
	offers := map[string]model.Offer{}
	for _, offer := range sales {
		offers[offer.ID] = offer
	}
	var between [2]time.Time
	for i, field := range []string{"from", "to"} {
		if text := c.Query(field); text != "" {
			var err error
			if between[i], err = time.Parse(time.RFC3339, text); err != nil {
				refuseInvalid(c, &service.Invalid{Field: field, Reason: notATime})
				return
			}
		}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), exportLimit)
	defer cancel()
	out := &download{c: c, closing: o.Consoles.closing, header: http.Header{
		"Content-Type": {"text/csv; charset=utf-8"}, "Content-Disposition": {`attachment; filename="orders-` + id + `.csv"`},
		"Cache-Control": {"no-store"},
	}}
	var page bytes.Buffer
	sheet := csv.NewWriter(&page) // a write into memory can't fail
	f.Limit = maxPage
	for first := true; first || f.Cursor != ""; first = false {
		list, next, err := o.Service.List(ctx, f, c.Query("q"))
		if from := between[0]; len(list) > 0 && list[len(list)-1].CreatedAt.Before(from.Add(-createdSlack)) {
			next = "" // all further orders are older
		}
		list = slices.DeleteFunc(list, func(order model.Order) bool {
			return sales == nil && model.IsShadow(order.ID) || order.CreatedAt.Before(between[0]) ||
				!between[1].IsZero() && !order.CreatedAt.Before(between[1])
		})
		for _, order := range list {
			if _, known := offers[order.SaleID]; !known && err == nil {
				offers[order.SaleID], _, err = o.Catalog.Sale(ctx, order.SaleID)
			}
		}
		switch {
		case err == nil && first && isHead(c):
			out.begin()
			return
		case err == nil && first:
			page.WriteString(byteOrderMark)
			_ = sheet.Write([]string{"order_id", "order_number", "title", "variant", "user_id", "status", "quantity", "amount", "currency", "created_at", "expires_at", "paid_at", "reason"})
		case err == nil && !o.Consoles.stillLooks(c):
			err = middleware.Refusal{Verdict: model.Unauthenticated}
		}
		if err == nil {
			_ = sheet.WriteAll(each(list, func(order model.Order) []string { return orderCells(order, offers[order.SaleID].Sale) }))
			_, err = page.WriteTo(out)
		}
		if err != nil {
			out.end(model.Accepted, err)
			return
		}
		f.Cursor = next
	}
}

func orderCells(o model.Order, of model.Sale) []string {
	cells := []string{
		o.ID, model.OrderNumber(o.ID), cmp.Or(of.Campaign.Title, of.Title), of.Variant, o.UserID, string(o.Status), strconv.Itoa(o.Quantity), model.Amount(o.AmountCents, o.Currency), o.Currency,
		cellTime(o.CreatedAt), cellTime(o.ExpiresAt), cellTime(o.PaidAt), string(o.Reason),
	}
	for i, cell := range cells {
		cells[i] = harmless(cell)
	}
	return cells
}

// unlessOneOf returns why a value is refused that is neither empty nor one of the choices, or nil.
func unlessOneOf[T ~string](field string, value T, choices []T) *service.Invalid {
	if value == "" || slices.Contains(choices, value) {
		return nil
	}
	return &service.Invalid{Field: field, Reason: notAChoice, Value: strings.Join(each(choices, func(t T) string { return string(t) }), ", ")}
}

// readPage returns the query's cursor and limit. If the limit is invalid, readPage refuses the request, and ok is false.
func readPage(c *gin.Context) (cursor string, limit int, ok bool) {
	limit = usualPage
	if text := c.Query("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			refuseInvalid(c, &service.Invalid{Field: "limit", Reason: service.OutOfRange, Min: 1, Max: maxPage})
			return "", 0, false
		}
	}
	return c.Query("cursor"), limit, true
}

// answerPage answers with the page of a list that the query asks for, or refuses a wrong query. The function read returns the
// page, and the next page's cursor, which is empty on the last page. Its error may wrap model.ErrBadCursor.
func answerPage[T, V any](c *gin.Context, name string, view func(T) V, read func(cursor string, limit int) (list []T, next string, err error)) {
	cursor, limit, ok := readPage(c)
	if !ok {
		return
	}
	list, next, err := read(cursor, limit)
	if errors.Is(err, model.ErrBadCursor) {
		refuseInvalid(c, &service.Invalid{Field: "cursor", Reason: notACursor})
		return
	}
	answer(c, http.StatusOK, gin.H{name: each(list, view), "next_cursor": next}, model.Accepted, err)
}

// each returns the views of a list.
func each[T, V any](list []T, view func(T) V) []V {
	views := make([]V, len(list))
	for i, one := range list {
		views[i] = view(one)
	}
	return views
}
