package service

import (
	"encoding/json"
	"strconv"
	"time"

	"flashsale/model"
)

// EventView is an event as other systems get it, from the feed or by a webhook.
type EventView struct {
	ID      string          `json:"id"` // the event's number in the feed, in decimal
	Type    model.EventType `json:"type"`
	At      string          `json:"at"`
	SaleID  string          `json:"sale_id"`
	Order   *eventOrder     `json:"order,omitempty"`
	Payment *eventPayment   `json:"payment,omitempty"`
}

// eventOrder is the order of an event, as model.Event has it.
type eventOrder struct {
	ID          string            `json:"id"`
	Number      string            `json:"number"`
	UserID      string            `json:"user_id"`
	Status      model.OrderStatus `json:"status"`
	Quantity    int               `json:"quantity"`
	AmountCents int64             `json:"amount_cents"`
	Currency    string            `json:"currency"`
	CreatedAt   string            `json:"created_at"`
	ExpiresAt   string            `json:"expires_at"`
}

// eventPayment is a payment whose money has to go back.
type eventPayment struct {
	ID            string `json:"id"`
	Provider      string `json:"provider"`
	ProviderTxnID string `json:"provider_txn_id"`
	AmountCents   int64  `json:"amount_cents"`
	Currency      string `json:"currency"`
}

// ViewEvent returns an event as other systems get it.
func ViewEvent(e model.Event) EventView {
	v := EventView{ID: strconv.FormatInt(e.Number, 10), Type: e.Type, At: instant(e.At), SaleID: e.SaleID}
	if o := e.Order; o != nil {
		v.Order = &eventOrder{
			ID: o.ID, Number: model.OrderNumber(o.ID), UserID: o.UserID, Status: o.Status, Quantity: o.Quantity, AmountCents: o.AmountCents, Currency: o.Currency,
			CreatedAt: instant(o.CreatedAt), ExpiresAt: instant(o.ExpiresAt),
		}
	}
	if p := e.Payment; p != nil {
		v.Payment = &eventPayment{p.ID, p.Provider, p.ProviderTxnID, p.AmountCents, p.Currency}
	}
	return v
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// message returns the body of a message with events. There must be at least one event.
func message(events []model.Event) []byte {
	views := make([]EventView, len(events))
	for i, e := range events {
		views[i] = ViewEvent(e)
	}
	body, _ := json.Marshal(map[string]any{ // texts and numbers always encode
		"type": "events", "timestamp": views[len(views)-1].At, "data": map[string]any{"events": views},
	})
	return body
}
