package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// lookedAt notes when a payment is looked at again.
type lookedAt struct {
	PaymentStore
	next []time.Time
}

func (l *lookedAt) LookAgain(_ context.Context, _ string, at time.Time) error {
	l.next = append(l.next, at)
	return nil
}

// silent is a provider that has nothing to say of a payment, or is away.
type silent struct {
	Provider
	err error
}

func (s silent) Look(context.Context, model.Payment, bool) (report model.Report, known bool, err error) {
	return report, false, s.err
}

// A payment is looked at when it is one minute old, then two, four and so on, and when its time is over. After a look that
// has failed the next one comes soon, also long after that time.
func TestLooksAtAPayment(t *testing.T) {
	made := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	payment := model.Payment{ID: "P", CreatedAt: made, ExpiresAt: made.Add(10 * time.Minute)}
	looks := func(err error, age, next time.Duration) {
		t.Helper()
		store := &lookedAt{}
		p := Payments{Provider: silent{err: err}, Store: store, Catalog: NewCatalog(nil, func() time.Time { return made.Add(age) }), Grace: 5 * time.Second}
		if got := p.Check(t.Context(), payment); (got == nil) != (err == nil) {
			t.Errorf("look: %v, want %v", got, err)
		}
		check.Same(t, age.String()+": the next look", store.next[len(store.next)-1].Sub(made), next)
	}
	for age, next := range map[time.Duration]time.Duration{
		time.Minute: 2 * time.Minute, 4 * time.Minute: 8 * time.Minute, 8 * time.Minute: 10*time.Minute + 5*time.Second,
		11 * time.Minute: 22 * time.Minute,
	} {
		looks(nil, age, next)
		looks(errors.New("away"), age, age+failedLook)
	}
}

// decided is a store whose free order becomes what it says by the report of its payment.
type decided struct {
	PaymentStore
	order model.OrderStatus
}

func (decided) StartPayment(context.Context, string, string, string) (model.Payment, model.Verdict, error) {
	return model.Payment{ID: "P", Currency: "CNY"}, model.Accepted, nil
}

func (d decided) ApplyReport(context.Context, string, model.Report, bool) (model.Order, bool, model.Verdict, error) {
	return model.Order{Status: d.order}, false, model.Accepted, nil
}

// dear is a provider that takes no free orders.
type dear struct{ Provider }

func (dear) Name() string { return "dear" }

func (dear) Takes(string) (model.AmountRange, bool) { return model.AmountRange{Low: 1}, true }

// A free order is paid at once, unless it is cancelled between the look at it and its payment.
func TestFreeOrder(t *testing.T) {
	id := purchaseIDs.Derive("ann", model.NewSaleID(), "key")
	for status, want := range map[model.OrderStatus]model.Verdict{model.OrderPaid: model.Accepted, model.OrderCancelled: model.NotPayable} {
		p := Payments{Provider: dear{}, Store: decided{order: status}, IDs: purchaseIDs, Orders: func() string { return "/orders" }}
		_, page, verdict, err := p.Start(t.Context(), "ann", id)
		check.Same(t, string(status), []any{page, verdict, err}, []any{"/orders", want, nil})
	}
}
