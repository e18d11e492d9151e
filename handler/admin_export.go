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
	// exportLimit bounds a whole export or proof: enough for a million orders over a slow line.
	exportLimit = 10 * time.Minute
	// exportPatience bounds how long a client may take to receive one page of an export, or one part of a proof.
	exportPatience = 10 * time.Second
)

// export answers with the orders of a sale as CSV. It reads and sends page by page, since a sale may have a
// million orders. If it can't finish an answer that it has begun, or its sender may no longer see orders, it closes the
// connection, so that nobody takes a part for the whole.
func (h *Orders) export(c *gin.Context) {
	f, ok := h.ofSale(c)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), exportLimit)
	defer cancel()
	control := http.NewResponseController(c.Writer)
	sheet := csv.NewWriter(c.Writer)
	f.Limit = maxPage
	for first := true; first || f.Cursor != ""; first = false {
		list, next, err := h.Service.Search(ctx, f, c.Query("q"))
		select {
		case <-h.Consoles.closing:
			err = context.Canceled
		default:
		}
		if err == nil && !first && !h.Consoles.stillLooks(c) {
			err = middleware.Refusal{Verdict: model.Unauthenticated}
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
			_, _ = c.Writer.WriteString(byteOrderMark)
			_ = sheet.Write([]string{"order_id", "user_id", "status", "quantity", "amount_cents", "currency", "created_at", "expires_at", "paid_at", "reason"})
		}
		_ = control.SetWriteDeadline(time.Now().Add(exportPatience)) //nolint:forbidigo // needs real time
		for _, o := range list {
			_ = sheet.Write(orderCells(o))
		}
		if sheet.Flush(); sheet.Error() != nil || control.Flush() != nil {
			return // the client is gone, or too slow
		}
		f.Cursor = next
	}
}

// cutShort makes net/http close the connection in the middle of an answer that has begun. The client sees an incomplete
// answer.
func cutShort(c *gin.Context) {
	if c.Writer.Written() {
		// The deadline is in the past, so the final chunk can't be written.
		_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Unix(1, 0))
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

// harmless puts a quote before a text that a spreadsheet would read as a formula.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
