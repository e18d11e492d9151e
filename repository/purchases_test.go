package repository

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func attempt(saleID, user, key string, quantity int) model.Attempt {
	return model.Attempt{
		ID: orderIDs.Derive(user, saleID, key), SaleID: saleID, UserID: user, Quantity: quantity,
		IdempotencyKey: key,
	}
}

var orderIDs = model.NewOrderIDs([]byte("the key of the suite"))

// attempts returns attempts of n users, one each, for one unit.
func attempts(saleID, users string, n int) []model.Attempt {
	list := make([]model.Attempt, n)
	for i := range list {
		list[i] = attempt(saleID, fmt.Sprintf("%s-%03d", users, i), "k", 1)
	}
	return list
}

func entries(list ...model.Attempt) []model.Entry {
	es := make([]model.Entry, len(list))
	for i, a := range list {
		es[i] = model.Entry{Attempt: a, StreamID: fmt.Sprintf("%d-0", i+1), Epoch: 1}
	}
	return es
}

// A way decides attempts on one sale.
type way struct {
	name string
	try  func(ctx context.Context, d *testDB, list ...model.Attempt) ([]model.Outcome, error)
}

var (
	deducting = way{"deduct", func(ctx context.Context, d *testDB, list ...model.Attempt) ([]model.Outcome, error) {
		return d.Deduct(ctx, list[0].SaleID, list)
	}}
	settling = way{"settle", func(ctx context.Context, d *testDB, list ...model.Attempt) ([]model.Outcome, error) {
		return d.Settle(ctx, list[0].SaleID, entries(list...))
	}}
	locking = oneByOne("deduct locked", func(ctx context.Context, d *testDB, a model.Attempt) (model.Outcome, error) {
		return d.DeductLocked(ctx, a)
	})
	looking = oneByOne("look and overwrite", func(ctx context.Context, d *testDB, a model.Attempt) (model.Outcome, error) {
		look, err := d.ReadStock(ctx, a)
		switch {
		case err != nil:
			return model.Outcome{}, err
		case look.Decided != nil:
			return *look.Decided, nil
		}
		return d.WriteStock(ctx, a, look)
	})

	inBatches    = []way{deducting, settling}         // decide several attempts in one transaction
	fromDatabase = []way{deducting, locking, looking} // don't use a gate
	allWays      = []way{deducting, settling, locking, looking}
)

func oneByOne(name string, decide func(ctx context.Context, d *testDB, a model.Attempt) (model.Outcome, error)) way {
	return way{name, func(ctx context.Context, d *testDB, list ...model.Attempt) (outcomes []model.Outcome, err error) {
		for _, a := range list {
			outcome, err := decide(ctx, d, a)
			outcomes = append(outcomes, outcome)
			if err != nil {
				return outcomes, err
			}
		}
		return outcomes, nil
	}}
}

// onEach runs a test for each of the ways on each kind of database.
func onEach(t *testing.T, ways []way, test func(t *testing.T, d *testDB, by way)) {
	t.Helper()
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, by := range ways {
			t.Run(by.name, func(t *testing.T) { test(t, d, by) })
		}
	})
}

// take decides attempts by a way, which must succeed.
func (d *testDB) take(t *testing.T, by way, list ...model.Attempt) []model.Outcome {
	t.Helper()
	outcomes, err := by.try(t.Context(), d, list...)
	check.NoError(t, err)
	return outcomes
}

func (d *testDB) deduct(t *testing.T, list ...model.Attempt) []model.Outcome {
	t.Helper()
	return d.take(t, deducting, list...)
}

func (d *testDB) settle(t *testing.T, list ...model.Attempt) []model.Outcome {
	t.Helper()
	return d.take(t, settling, list...)
}

// retry decides attempts by a way, again and again while other writers win the race. It does not end the test, because
// crowds call it.
func (d *testDB) retry(t *testing.T, by way, list ...model.Attempt) []model.Outcome {
	t.Helper()
	for {
		outcomes, err := by.try(t.Context(), d, list...)
		switch {
		case err == nil:
			return outcomes
		case !errors.Is(err, model.ErrLostRace):
			t.Errorf("decide: %v", err)
			return make([]model.Outcome, len(list))
		}
	}
}

func (d *testDB) refuse(t *testing.T, a model.Attempt, reason model.Verdict) model.Outcome {
	t.Helper()
	outcome, err := d.Refuse(t.Context(), entries(a)[0], reason)
	check.Error(t, "refuse", err, nil)
	return outcome
}

// buy gives a user a pending order.
func (d *testDB) buy(t *testing.T, saleID, user string, quantity int) model.Order {
	t.Helper()
	o := d.deduct(t, attempt(saleID, user, model.NewSaleID(), quantity))[0]
	if o.Verdict != model.Accepted || o.Order == nil {
		t.Fatalf("%s could not buy %d: %+v", user, quantity, o)
	}
	return *o.Order
}

func (d *testDB) cancel(t *testing.T, o model.Order) model.Order {
	t.Helper()
	order, verdict, err := d.Cancel(t.Context(), o.UserID, o.ID)
	accepted(t, verdict, err)
	return order
}

func (d *testDB) refund(t *testing.T, o model.Order) model.Order {
	t.Helper()
	order, verdict, err := d.RefundOrder(t.Context(), o.ID, "op")
	accepted(t, verdict, err)
	return order
}

func (d *testDB) startPayment(t *testing.T, o model.Order) model.Payment {
	t.Helper()
	p, verdict, err := d.StartPayment(t.Context(), o.UserID, o.ID, "bank")
	accepted(t, verdict, err)
	return p
}

// reported is a report of a transaction that has the payment's money.
func reported(p model.Payment, txn string, result model.PaymentStatus) model.Report {
	return model.NewReport(p.ID, p.Reference, txn, result, p.Money())
}

// paidBy is the report of a transaction that pays a payment.
func paidBy(p model.Payment, txn string) model.Report {
	return reported(p, txn, model.PaymentSucceeded)
}

// pay reports a transaction that pays a payment.
func (d *testDB) pay(t *testing.T, p model.Payment, txn string) (order model.Order, reinstated bool) {
	t.Helper()
	order, reinstated, verdict, err := d.ApplyReport(t.Context(), p.Provider, paidBy(p, txn), true)
	accepted(t, verdict, err)
	return order, reinstated
}

// payFor pays an order by a transaction that is named after the order.
func (d *testDB) payFor(t *testing.T, o model.Order) model.Order {
	t.Helper()
	order, _ := d.pay(t, d.startPayment(t, o), "txn "+o.ID)
	return order
}

func verdicts(outcomes []model.Outcome) []model.Verdict {
	list := make([]model.Verdict, len(outcomes))
	for i, o := range outcomes {
		list[i] = o.Verdict
	}
	return list
}

func wantVerdicts(t *testing.T, got []model.Outcome, want ...model.Verdict) {
	t.Helper()
	check.Same(t, "verdicts", fmt.Sprint(verdicts(got)), fmt.Sprint(want))
}

// wantRepeated checks which outcomes say that the attempt was known before.
func wantRepeated(t *testing.T, got []model.Outcome, want ...bool) {
	t.Helper()
	list := make([]bool, len(got))
	for i, o := range got {
		list[i] = o.Repeated
	}
	check.Same(t, "repeated", list, want)
}

func tally(outcomes []model.Outcome) map[model.Verdict]int {
	counts := map[model.Verdict]int{}
	for _, o := range outcomes {
		counts[o.Verdict]++
	}
	return counts
}
