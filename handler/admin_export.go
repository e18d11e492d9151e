package handler

import (
	"context"
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	// exportLimit is how long an export may take in all: a million orders over a slow line.
	exportLimit = 10 * time.Minute
	// exportPatience is how long a client may take for one page of it.
	exportPatience = 10 * time.Second
)

// exportOrders answers with the orders of a sale as CSV, page by page: there may be a million of them. An answer that
// can't be finished is cut off, so that nobody takes a part for the whole.
func (a *API) exportOrders(c *gin.Context) {
	f, ok := a.ordersOfSale(c)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), exportLimit)
	defer cancel()
	control := http.NewResponseController(c.Writer)
	sheet := csv.NewWriter(c.Writer)
	f.Limit = maxPage
	for first := true; first || f.Cursor != ""; first = false {
		list, next, err := a.Orders.Search(ctx, f, c.Query("q"))
		select {
		case <-a.Closing:
			err = context.Canceled
		default:
		}
		if err != nil {
			middleware.Fail(c, err)
			cutShort(c)
			return
		}
		if first {
			c.Header("Content-Type", "text/csv; charset=utf-8")
			c.Header("Content-Disposition", `attachment; filename="orders-`+f.SaleID+`.csv"`)
			c.Header("Cache-Control", "no-store")
			if isHead(c) {
				return
			}
			_ = sheet.Write([]string{"order_id", "user_id", "status", "quantity", "amount_cents", "currency", "created_at", "expires_at", "paid_at", "reason"})
		}
		_ = control.SetWriteDeadline(time.Now().Add(exportPatience)) //nolint:forbidigo // as the kernel counts
		for _, o := range list {
			_ = sheet.Write(orderCells(o))
		}
		if sheet.Flush(); sheet.Error() != nil || control.Flush() != nil {
			return // the client is gone, or too slow
		}
		f.Cursor = next
	}
}

// cutShort has the connection closed before the end of an answer that has been started. The client sees that.
func cutShort(c *gin.Context) {
	if c.Writer.Written() {
		_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Unix(1, 0)) // what ends the answer can't be written
	}
}

func orderCells(o model.Order) []string {
	cells := []string{
		o.ID, o.UserID, string(o.Status), strconv.Itoa(o.Quantity), strconv.FormatInt(o.AmountCents, 10), o.Currency,
		cellTime(o.CreatedAt), cellTime(o.ExpiresAt), cellTime(o.PaidAt), string(o.Reason),
	}
	for i, cell := range cells {
		cells[i] = harmless(cell)
	}
	return cells
}

func cellTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(strings.Trim(stampLayout, `"`))
}

// harmless keeps a spreadsheet from taking a text for a formula.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
