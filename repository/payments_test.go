package repository

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"flashsale/model"
)

// statuses gives the statuses of an order's payments by their transactions; an open payment has none.
func (d *testDB) statuses(t *testing.T, orderID string) map[string]model.PaymentStatus {
	t.Helper()
	var rows []paymentRow
	if err := d.read.WithContext(t.Context()).Where("order_id = ?", orderID).Find(&rows).Error; err != nil {
		t.Fatal(err)
	}
	list := make(map[string]model.PaymentStatus, len(rows))
	for _, r := range rows {
		list[r.ProviderTxnID.String] = model.PaymentStatus(r.Status)
	}
	if len(list) != len(rows) {
		t.Errorf("%d payments have %d transactions", len(rows), len(list))
	}
	return list
}

func TestStartPayment(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9, limit(3))
		o := d.buy(t, sale.ID, "me", 2)
		first := d.startPayment(t, o)
		want := model.Payment{
			ID: first.ID, OrderID: o.ID, Provider: "bank", AmountCents: 3980, Currency: "CNY",
			Status: model.PaymentOpen, ExpiresAt: o.ExpiresAt,
		}
		if first != want || len(first.ID) != 26 {
			t.Errorf("started\n%+v, want\n%+v", first, want)
		}
		stored, ok, err := d.Payment(t.Context(), first.ID)
		if err != nil || !ok || stored != want {
			t.Errorf("stored is\n%+v, %v, want\n%+v", stored, err, want)
		}
		if again := d.startPayment(t, o); again != first {
			t.Errorf("the open payment is not given again but\n%+v", again)
		}
		other, verdict, err := d.StartPayment(t.Context(), "me", o.ID, "other bank")
		if err != nil || verdict != model.Accepted || other.ID == first.ID || other.Provider != "other bank" {
			t.Errorf("another provider: %+v, %s, %v", other, verdict, err)
		}
		if n := d.count(t, "SELECT COUNT(*) FROM payments"); n != 2 {
			t.Errorf("%d payments", n)
		}
		d.overdue(t, 0, o.ID)
		if p, verdict, err := d.StartPayment(t.Context(), "me", o.ID, "bank"); verdict != model.NotPayable || err != nil || p != (model.Payment{}) {
			t.Errorf("after its time: %+v, %s, %v", p, verdict, err)
		}
		for _, id := range []string{"", "nothing"} {
			if p, ok, err := d.Payment(t.Context(), id); ok || err != nil || p != (model.Payment{}) {
				t.Errorf("payment %q: %+v, %t, %v", id, p, ok, err)
			}
		}
	})
}

func TestStartPaymentInParallelOpensOne(t *testing.T) {
	const starts = 10
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := []*testDB{d, d.peer(t)}
		o := d.buy(t, d.newSale(t, 1).ID, "me", 1)
		ids := make([]string, starts)
		together(starts, func(i int) {
			p, verdict, err := stores[i%2].StartPayment(t.Context(), "me", o.ID, "bank")
			if err != nil || verdict != model.Accepted {
				t.Errorf("start: %s, %v", verdict, err)
			}
			ids[i] = p.ID
		})
		if len(slices.Compact(ids)) != 1 {
			t.Errorf("several payments are open: %v", ids)
		}
	})
}

// A payment that failed is over; the order can be paid by a new one.
func TestStartPaymentAfterAFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		o := d.buy(t, d.newSale(t, 1).ID, "me", 1)
		first := d.startPayment(t, o)
		if _, _, verdict, err := d.ApplyCallback(t.Context(), "bank", model.Callback{PaymentID: first.ID, ProviderTxnID: "t1", AmountCents: 1990}); verdict != model.Accepted || err != nil {
			t.Fatalf("decline: %s, %v", verdict, err)
		}
		second := d.startPayment(t, o)
		if second.ID == first.ID {
			t.Fatal("the failed payment is offered again")
		}
		d.pay(t, second, "t2")
		want := map[string]model.PaymentStatus{"t1": model.PaymentFailed, "t2": model.PaymentSucceeded}
		if got := d.statuses(t, o.ID); !maps.Equal(got, want) {
			t.Errorf("the payments are %v, want %v", got, want)
		}
	})
}

// What a provider tells of an order's payment, in the order of the steps. Where a step is told twice, the
// second time changes nothing and gets the same answer.
func TestApplyCallback(t *testing.T) {
	type told struct {
		txn     string
		failed  bool
		cents   int64 // off the amount
		payment string
		from    string // provider
		want    model.Verdict
		order   model.OrderStatus
	}
	const (
		pending, paid  = model.OrderPending, model.OrderPaid
		open, good     = model.PaymentOpen, model.PaymentSucceeded
		bad, due       = model.PaymentFailed, model.PaymentRefundDue
		yes, none      = model.Accepted, model.NotFound
		notPay, amount = model.NotPayable, model.AmountMismatch
	)
	type payments = map[string]model.PaymentStatus
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			steps []told
			want  payments
		}{
			"paid":                          {[]told{{txn: "a", want: yes, order: paid}}, payments{"a": good}},
			"declined":                      {[]told{{txn: "a", failed: true, want: yes, order: pending}}, payments{"a": bad}},
			"declined, then paid":           {[]told{{txn: "a", failed: true, want: yes, order: pending}, {txn: "a", want: yes, order: paid}}, payments{"a": good}},
			"declined, then paid otherwise": {[]told{{txn: "a", failed: true, want: yes, order: pending}, {txn: "b", want: yes, order: paid}}, payments{"a": bad, "b": good}},
			"declined twice":                {[]told{{txn: "a", failed: true, want: yes, order: pending}, {txn: "b", failed: true, want: yes, order: pending}}, payments{"a": bad, "b": bad}},
			"paid, then said to be declined": {
				[]told{{txn: "a", want: yes, order: paid}, {txn: "a", failed: true, want: yes, order: paid}}, payments{"a": good},
			},
			"paid twice":          {[]told{{txn: "a", want: yes, order: paid}, {txn: "b", want: yes, order: paid}}, payments{"a": good, "b": due}},
			"paid three times":    {[]told{{txn: "a", want: yes, order: paid}, {txn: "b", want: yes, order: paid}, {txn: "c", want: yes, order: paid}}, payments{"a": good, "b": due, "c": due}},
			"paid, then declined": {[]told{{txn: "a", want: yes, order: paid}, {txn: "b", failed: true, want: yes, order: paid}}, payments{"a": good, "b": bad}},
			"paid, then paid by the declined one": {
				[]told{{txn: "a", failed: true, want: yes, order: pending}, {txn: "b", want: yes, order: paid}, {txn: "a", want: yes, order: paid}}, payments{"a": due, "b": good},
			},
			"a cent too much":                    {[]told{{txn: "a", cents: 1, want: amount, order: pending}}, payments{"": open}},
			"a cent too little":                  {[]told{{txn: "a", cents: -1, want: amount, order: pending}}, payments{"": open}},
			"nothing":                            {[]told{{txn: "a", cents: -1990, want: amount, order: pending}}, payments{"": open}},
			"another amount of a decline":        {[]told{{txn: "a", cents: 5, failed: true, want: amount, order: pending}}, payments{"": open}},
			"another amount, then the right one": {[]told{{txn: "a", cents: 5, want: amount, order: pending}, {txn: "a", want: yes, order: paid}}, payments{"a": good}},
			"of an unknown payment":              {[]told{{txn: "a", payment: "unknown", want: none, order: pending}}, payments{"": open}},
			"by another provider":                {[]told{{txn: "a", from: "shop", want: none, order: pending}}, payments{"": open}},
			"by the transaction of another order": {
				[]told{{txn: "foreign", want: notPay, order: pending}}, payments{"": open},
			},
			"a decline by another's transaction": {[]told{{txn: "foreign", failed: true, want: notPay, order: pending}}, payments{"": open}},
			"another's transaction, then paid":   {[]told{{txn: "foreign", want: notPay, order: pending}, {txn: "a", want: yes, order: paid}}, payments{"a": good}},
			"paid, then another's transaction":   {[]told{{txn: "a", want: yes, order: paid}, {txn: "foreign", want: notPay, order: paid}}, payments{"a": good}},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, 2)
				txn := func(name string) string { return name + " " + sale.ID }
				mine, other := d.buy(t, sale.ID, "me", 1), d.buy(t, sale.ID, "you", 1)
				p := d.startPayment(t, mine)
				d.pay(t, d.startPayment(t, other), txn("foreign"))
				for i, s := range tc.steps {
					cb := model.Callback{PaymentID: p.ID, ProviderTxnID: txn(s.txn), Succeeded: !s.failed, AmountCents: p.AmountCents + s.cents}
					if s.payment != "" {
						cb.PaymentID = s.payment
					}
					provider := "bank"
					if s.from != "" {
						provider = s.from
					}
					var before model.Stock
					for time := range 3 {
						order, reinstated, verdict, err := d.ApplyCallback(t.Context(), provider, cb)
						if err != nil || verdict != s.want || reinstated {
							t.Errorf("step %d told for the %d. time: %s, %t, %v, want %s", i, time+1, verdict, reinstated, err, s.want)
						}
						if verdict == model.Accepted && (order.ID != mine.ID || order.Status != s.order) {
							t.Errorf("step %d gives the order %s, %s", i, order.ID, order.Status)
						}
						if now := d.order(t, mine.ID); now.Status != s.order {
							t.Errorf("after step %d the order is %s, want %s", i, now.Status, s.order)
						}
						now := d.stock(t, sale.ID)
						if time > 0 && now != before {
							t.Errorf("step %d, told again, moved the stock from %+v to %+v", i, before, now)
						}
						before = now
					}
				}
				want := payments{}
				for name, status := range tc.want {
					if name != "" {
						name = txn(name)
					}
					want[name] = status
				}
				if got := d.statuses(t, mine.ID); !maps.Equal(got, want) {
					t.Errorf("the payments are %v, want %v", got, want)
				}
				if now := d.order(t, other.ID); now.Status != paid {
					t.Errorf("the other order is %s", now.Status)
				}
			})
		}
	})
}

// Money for an order whose time was over: it is reinstated if its unit and the user's limit are still there.
func TestApplyCallbackLate(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota, mine int64
			limit       int
			meanwhile   func(t *testing.T, sale model.Sale)
			reinstated  bool
		}{
			"its units are free":         {2, 2, 2, nil, true},
			"one of its units is resold": {2, 2, 2, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "you", 1) }, false},
			"all of them are resold":     {1, 1, 1, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "you", 1) }, false},
			"others are free":            {5, 2, 2, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "you", 2) }, true},
			"the user bought again":      {5, 1, 1, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "me", 1) }, false},
			"the user bought, has room":  {5, 1, 2, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "me", 1) }, true},
			"the user would be above it": {5, 2, 2, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "me", 1) }, false},
			"the limit was lowered":      {5, 2, 2, func(t *testing.T, s model.Sale) { d.change(t, s.ID, 0, limit(1)) }, false},
			"the sale is over": {1, 1, 1, func(t *testing.T, s model.Sale) {
				d.change(t, s.ID, 0, func(s *model.Sale) { s.Status = model.SaleClosed })
			}, true},
			"the user bought, sold out":   {2, 1, 1, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "me", 1); d.buy(t, s.ID, "you", 1) }, false},
			"units were added for resold": {1, 1, 1, func(t *testing.T, s model.Sale) { d.buy(t, s.ID, "you", 1); d.change(t, s.ID, 1, nil) }, true},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, tc.quota, limit(tc.limit))
				o := d.buy(t, sale.ID, "me", int(tc.mine))
				p := d.startPayment(t, o)
				d.overdue(t, time.Second, o.ID)
				d.expireAll(t)
				if tc.meanwhile != nil {
					tc.meanwhile(t, sale)
				}
				before, live := d.stock(t, sale.ID), d.live(t, sale.ID, "me")
				got, reinstated := d.pay(t, p, "late "+sale.ID)
				after := d.stock(t, sale.ID)
				status, payment := model.OrderExpired, model.PaymentRefundDue
				if tc.reinstated {
					status, payment = model.OrderPaid, model.PaymentSucceeded
					want := before
					want.Available, want.Paid, want.Version = before.Available-tc.mine, before.Paid+tc.mine, before.Version+1
					want.GateVersion = want.Version
					if after != want {
						t.Errorf("the stock is %+v, want %+v", after, want)
					}
					taken := []model.GateChange{{Version: after.Version, OrderID: o.ID, UserID: "me", Units: -tc.mine}}
					if told := d.told(t, sale.ID, before.Version); !reinstated || !slices.Equal(told, taken) {
						t.Errorf("the gate is told %+v, want %+v", told, taken)
					}
					live += int(tc.mine)
				} else if reinstated || after != before {
					t.Errorf("reinstated: %t, the stock was %+v and is %+v", reinstated, before, after)
				}
				if now := d.order(t, o.ID); now.Status != status || got != now {
					t.Errorf("the order is %+v, given was %+v, want it %s", now, got, status)
				}
				if got := d.statuses(t, o.ID)["late "+sale.ID]; got != payment {
					t.Errorf("the payment is %s, want %s", got, payment)
				}
				if n := d.live(t, sale.ID, "me"); n != live {
					t.Errorf("the user has %d units, want %d", n, live)
				}
				again, reinstated := d.pay(t, p, "late "+sale.ID)
				if again != got || reinstated || d.stock(t, sale.ID) != after {
					t.Errorf("told again: %+v, %t", again, reinstated)
				}
			})
		}
	})
}

// A provider sends one callback several times at once, to several instances.
func TestApplyCallbackInParallel(t *testing.T) {
	const callbacks = 12
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			txns int
			late bool
			want map[model.PaymentStatus]int
		}{
			"one transaction":                    {1, false, map[model.PaymentStatus]int{model.PaymentSucceeded: 1}},
			"three transactions":                 {3, false, map[model.PaymentStatus]int{model.PaymentSucceeded: 1, model.PaymentRefundDue: 2}},
			"one transaction, after the expiry":  {1, true, map[model.PaymentStatus]int{model.PaymentSucceeded: 1}},
			"two transactions, after the expiry": {2, true, map[model.PaymentStatus]int{model.PaymentSucceeded: 1, model.PaymentRefundDue: 1}},
		} {
			t.Run(name, func(t *testing.T) {
				stores, sale := []*testDB{d, d.peer(t)}, d.newSale(t, 3)
				o := d.buy(t, sale.ID, "me", 1)
				p := d.startPayment(t, o)
				if tc.late {
					d.overdue(t, time.Second, o.ID)
					d.expireAll(t)
				}
				retaken := make([]bool, callbacks)
				together(callbacks, func(i int) {
					got, reinstated, verdict, err := stores[i%2].ApplyCallback(t.Context(), "bank", model.Callback{
						PaymentID: p.ID, ProviderTxnID: fmt.Sprint(i%tc.txns, o.ID[:30]), Succeeded: true, AmountCents: p.AmountCents,
					})
					if err != nil || verdict != model.Accepted || got.Status != model.OrderPaid {
						t.Errorf("callback %d: %s, %s, %v", i, verdict, got.Status, err)
					}
					retaken[i] = reinstated
				})
				got := map[model.PaymentStatus]int{}
				for _, status := range d.statuses(t, o.ID) {
					got[status]++
				}
				if !maps.Equal(got, tc.want) {
					t.Errorf("the payments are %v, want %v", got, tc.want)
				}
				told := len(slices.DeleteFunc(retaken, func(reinstated bool) bool { return !reinstated }))
				if want := map[bool]int{true: 1}[tc.late]; told != want {
					t.Errorf("the gate is told %d times that the unit was taken again, want %d", told, want)
				}
				d.wantUnits(t, sale.ID, units{available: 2, paid: 1})
			})
		}
	})
}

// One transaction is reported for the payments of two orders at once: it pays one of them.
func TestApplyCallbackOfOneTransactionForTwoOrders(t *testing.T) {
	const rounds = 15
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, paidBefore := range map[string]bool{"first callbacks": false, "both were paid before": true} {
			t.Run(name, func(t *testing.T) {
				sale, stores := d.newSale(t, 2*rounds), []*testDB{d, d.peer(t)}
				for round := range rounds {
					orders, payments := make([]model.Order, 2), make([]model.Payment, 2)
					for i := range orders {
						orders[i] = d.buy(t, sale.ID, fmt.Sprint("user", round, "-", i), 1)
						payments[i] = d.startPayment(t, orders[i])
						if paidBefore {
							d.pay(t, payments[i], fmt.Sprint("before", orders[i].ID[:30]))
						}
					}
					got, txn := make([]model.Verdict, 2), fmt.Sprint("t", orders[0].ID[:30])
					together(2, func(i int) {
						var err error
						_, _, got[i], err = stores[i].ApplyCallback(t.Context(), "bank", model.Callback{
							PaymentID: payments[i].ID, ProviderTxnID: txn, Succeeded: true, AmountCents: 1990,
						})
						if err != nil {
							t.Errorf("callback: %v", err)
						}
					})
					slices.Sort(got)
					if !slices.Equal(got, []model.Verdict{model.Accepted, model.NotPayable}) {
						t.Errorf("round %d ended as %v", round, got)
					}
				}
			})
		}
	})
}

// A callback that broke in the database must be told again: it is an error, never an answer.
func TestHole28_CallbackThatBreaksIsAnError(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		p := d.startPayment(t, d.buy(t, sale.ID, "me", 1))
		cb := model.Callback{PaymentID: p.ID, ProviderTxnID: "t", Succeeded: true, AmountCents: p.AmountCents}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, verdict, err := d.ApplyCallback(ctx, "bank", cb); err == nil {
			t.Errorf("without a database it says %q", verdict)
		}
		d.exec(t, "ALTER TABLE orders RENAME COLUMN paid_at_ms TO paid_at")
		if _, _, verdict, err := d.ApplyCallback(t.Context(), "bank", cb); err == nil {
			t.Errorf("without the column it says %q", verdict)
		}
		d.exec(t, "ALTER TABLE orders RENAME COLUMN paid_at TO paid_at_ms")
		d.wantUnits(t, sale.ID, units{held: 1})
		if got := d.statuses(t, p.OrderID); got[""] != model.PaymentOpen || len(got) != 1 {
			t.Errorf("the payments are %v", got)
		}
		d.pay(t, p, "t")
		d.wantUnits(t, sale.ID, units{paid: 1})
	})
}

func TestRefundsDue(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9)
		var want []string
		for i := range 4 {
			o := d.buy(t, sale.ID, fmt.Sprint("user", i), 1)
			p := d.startPayment(t, o)
			d.pay(t, p, fmt.Sprint("t", i))
			if i == 3 {
				break // this one stays paid
			}
			if _, verdict, err := d.RefundOrder(t.Context(), o.ID, "op"); err != nil || verdict != model.Accepted {
				t.Fatalf("refund: %s, %v", verdict, err)
			}
			want = append(want, p.ID)
		}
		due := func(limit int) (ids []string) {
			list, err := d.RefundsDue(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				if p.Status != model.PaymentRefundDue || p.AmountCents != 1990 || p.Provider != "bank" || p.ProviderTxnID == "" {
					t.Errorf("due is %+v", p)
				}
				ids = append(ids, p.ID)
			}
			slices.Sort(ids)
			return ids
		}
		slices.Sort(want)
		if got := due(9); !slices.Equal(got, want) {
			t.Errorf("due are %v, want %v", got, want)
		}
		if got := due(2); len(got) != 2 {
			t.Errorf("at most 2 are %v", got)
		}
		for i, id := range want {
			for range 2 {
				if err := d.MarkRefunded(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if got := due(9); !slices.Equal(got, want[i+1:]) && len(got)+len(want[i+1:]) > 0 {
				t.Errorf("after %d refunds due are %v, want %v", i+1, got, want[i+1:])
			}
		}
		for status, want := range map[model.PaymentStatus]int64{model.PaymentRefunded: 3, model.PaymentSucceeded: 1} {
			if n := d.count(t, "SELECT COUNT(*) FROM payments WHERE status = ?", string(status)); n != want {
				t.Errorf("%d payments are %s, want %d", n, status, want)
			}
		}
		d.exec(t, "UPDATE payments SET status = 'open' WHERE status = 'refunded' AND id = ?", want[0])
		if err := d.MarkRefunded(t.Context(), want[0]); err != nil {
			t.Fatal(err)
		}
		if n := d.count(t, "SELECT COUNT(*) FROM payments WHERE status = 'open'"); n != 1 {
			t.Error("a payment that was not due is marked as refunded")
		}
	})
}
