package model

import (
	"math"
	"testing"
)

// An entry is valid only if the columns of its order could store it.
func TestValidEntries(t *testing.T) {
	saleID := NewSaleID()
	for name, tc := range map[string]struct {
		edit  func(*Entry)
		valid bool
	}{
		"as the gate admits it": {func(*Entry) {}, true},
		"the largest quantity":  {func(e *Entry) { e.Quantity = math.MaxInt32 }, true},
		"any idempotency key":   {func(e *Entry) { e.IdempotencyKey = "\n ü" }, true},
		"no id":                 {func(e *Entry) { e.ID = "" }, false},
		"a short id":            {func(e *Entry) { e.ID = e.ID[:IDLength] }, false},
		"another sale's id":     {func(e *Entry) { e.SaleID = NewSaleID() }, false},
		"no user":               {func(e *Entry) { e.UserID = "" }, false},
		"a user with a space":   {func(e *Entry) { e.UserID = "u 1" }, false},
		"no units":              {func(e *Entry) { e.Quantity = 0 }, false},
		"negative units":        {func(e *Entry) { e.Quantity = -1 }, false},
		"too many units":        {func(e *Entry) { e.Quantity = math.MaxInt32 + 1 }, false},
		"no idempotency key":    {func(e *Entry) { e.IdempotencyKey = "" }, false},
	} {
		e := Entry{Attempt: Attempt{
			ID: NewOrderIDs([]byte("key")).Derive("u-1", saleID, "key"), SaleID: saleID, UserID: "u-1",
			Quantity: 1, IdempotencyKey: "key",
		}, StreamID: "1-1"}
		if tc.edit(&e); e.Valid() != tc.valid {
			t.Errorf("%s: valid is %t", name, e.Valid())
		}
	}
}
