package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// maxBody bounds the body of a request. A message of the engine may have hundreds of events.
const maxBody = 1 << 20

// event is an event as the engine sends it. Order is nil in an event of a sale.
type event struct {
	ID      string    `json:"id"` // a number that grows
	Type    string    `json:"type"`
	At      time.Time `json:"at"`
	Order   *order    `json:"order"`
	Payment *struct {
		Provider      string `json:"provider"`
		ProviderTxnID string `json:"provider_txn_id"` // with handoff: the reference by which the shop settled
	} `json:"payment"`
}

// order is an order of a flash sale, as it was in the newest event that has come.
type order struct {
	ID          string `json:"id"`
	UserID      string `json:"user_id"`
	Status      string `json:"status"`
	Quantity    int    `json:"quantity"`
	AmountCents int64  `json:"amount_cents"`
	Currency    string `json:"currency"`

	At    time.Time `json:"-"`
	event int64
}

// hear takes a message of the engine, by the Standard Webhooks specification.
func (s *Shop) hear(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body can't be read", http.StatusBadRequest)
		return
	}
	c, err := s.connection()
	if err != nil {
		http.Error(w, "not connected yet", http.StatusServiceUnavailable)
		return
	}
	verifier, err := standardwebhooks.NewWebhook(c.WebhookSecret)
	if err != nil || c.WebhookSecret == "" || verifier.Verify(body, r.Header) != nil {
		http.Error(w, "the signature is not valid", http.StatusUnauthorized)
		return
	}
	var message struct{ Data struct{ Events []event } }
	if err := json.Unmarshal(body, &message); err != nil {
		http.Error(w, "the message is no JSON", http.StatusBadRequest)
		return
	}
	for _, e := range message.Data.Events {
		s.learn(e)
	}
	w.WriteHeader(http.StatusNoContent)
}

// learn takes one event. Since an old event may come again, only an event that is newer than the others of its order changes the
// order.
func (s *Shop) learn(e event) {
	number, err := strconv.ParseInt(e.ID, 10, 64)
	if err != nil || e.Order == nil {
		return
	}
	if e.Type == "refund.due" && e.Payment != nil && e.Payment.Provider == "handoff" {
		s.owe(e.Order.ID, e.Payment.ProviderTxnID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number > s.orders[e.Order.ID].event {
		e.Order.At, e.Order.event = e.At, number
		s.orders[e.Order.ID] = *e.Order
		fmt.Fprintf(s.log, "event %s: %s, order %s is %s\n", e.ID, e.Type, e.Order.ID, e.Order.Status)
	}
}

// showOrders lists the orders by their newest events, the newest first. A real shop shows this list to its staff only.
func (s *Shop) showOrders(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	list := slices.SortedFunc(maps.Values(s.orders), func(a, b order) int { return cmp.Compare(b.event, a.event) })
	s.mu.Unlock()
	s.show(w, http.StatusOK, "orders.html", list)
}
