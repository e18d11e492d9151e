package handler

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// answer ends a request with the error, the refusal, or the view of what was done.
func answer(c *gin.Context, status int, view any, verdict model.Verdict, err error) {
	switch {
	case err != nil:
		middleware.Fail(c, err)
	case verdict != model.Accepted:
		refuse(c, verdict)
	default:
		c.JSON(status, view)
	}
}

// show returns a function that answers with the view of what a use case has returned: show(c, view)(service.Call(...)).
func show[T, V any](c *gin.Context, view func(T) V) func(T, model.Verdict, error) {
	return func(made T, verdict model.Verdict, err error) { answer(c, http.StatusOK, view(made), verdict, err) }
}

// answerChange is answer for a change whose verdict may be BadRequest, with the invalid field.
func answerChange(c *gin.Context, status int, view any, verdict model.Verdict, invalid *service.Invalid, err error) {
	if verdict == model.BadRequest {
		refuseInvalid(c, invalid)
		return
	}
	answer(c, status, view, verdict, err)
}

// stampLayout includes the quotes of a JSON string.
const stampLayout = `"2006-01-02T15:04:05.000Z"`

// stamp is a time as the API writes it: RFC 3339 in UTC with milliseconds.
type stamp time.Time

// MarshalJSON writes the stamp.
func (s stamp) MarshalJSON() ([]byte, error) {
	return time.Time(s).UTC().AppendFormat(nil, stampLayout), nil
}

// optional returns nil for a zero time.
func optional(t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	s := stamp(t)
	return &s
}

type orderView struct {
	ID          string            `json:"id"`
	Number      string            `json:"number"`
	SaleID      string            `json:"sale_id"`
	Status      model.OrderStatus `json:"status"`
	Reason      model.Verdict     `json:"reason,omitempty"`
	Quantity    int               `json:"quantity"`
	AmountCents int64             `json:"amount_cents"`
	Currency    string            `json:"currency"`
	CreatedAt   *stamp            `json:"created_at,omitempty"` // may be missing while the order is queued
	ExpiresAt   *stamp            `json:"expires_at,omitempty"` // missing if the order is queued or rejected
	PaidAt      *stamp            `json:"paid_at,omitempty"`
	UserID      string            `json:"user_id,omitempty"` // only for the staff and the shop's servers
	Title       string            `json:"title,omitempty"`   // of the sale or its campaign; only where orders of all sales are shown
	Variant     string            `json:"variant,omitempty"`
}

func viewOrder(o model.Order) orderView {
	return orderView{
		ID: o.ID, Number: model.OrderNumber(o.ID), SaleID: o.SaleID, Status: o.Status, Reason: o.Reason, Quantity: o.Quantity,
		AmountCents: o.AmountCents, Currency: o.Currency,
		CreatedAt: optional(o.CreatedAt), ExpiresAt: optional(o.ExpiresAt), PaidAt: optional(o.PaidAt),
	}
}

// viewBuyersOrder shows an order with its buyer's id.
func viewBuyersOrder(o model.Order) orderView {
	v := viewOrder(o)
	v.UserID = o.UserID
	return v
}

const (
	// jsonType is the Content-Type that gin sends for JSON.
	jsonType = "application/json; charset=utf-8"
	// usualOrderBytes is enough for a usual order's JSON.
	usualOrderBytes = 512
)

// appendOrder appends a buyer's order as encoding/json would encode viewOrder(*o), but without reflection.
func appendOrder(b []byte, o *model.Order) []byte {
	b = appendText(append(b, `{"id":`...), o.ID)
	b = appendText(append(b, `,"number":`...), model.OrderNumber(o.ID))
	b = appendText(append(b, `,"sale_id":`...), o.SaleID)
	b = appendText(append(b, `,"status":`...), string(o.Status))
	if o.Reason != "" {
		b = appendText(append(b, `,"reason":`...), string(o.Reason))
	}
	b = strconv.AppendInt(append(b, `,"quantity":`...), int64(o.Quantity), 10)
	b = strconv.AppendInt(append(b, `,"amount_cents":`...), o.AmountCents, 10)
	b = appendText(append(b, `,"currency":`...), o.Currency)
	b = appendTime(b, `,"created_at":`, o.CreatedAt)
	b = appendTime(b, `,"expires_at":`, o.ExpiresAt)
	b = appendTime(b, `,"paid_at":`, o.PaidAt)
	return append(b, '}')
}

func appendTime(b []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return t.UTC().AppendFormat(append(b, name...), stampLayout)
}

// appendText appends a JSON string. It leaves texts that need escapes, or are not ASCII, to encoding/json.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(s) // a string always encodes
			return append(b, escaped...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
