package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

type payments = map[string]model.PaymentStatus

// statuses returns the statuses of an order's payments by their transactions; an open payment has none.
func (d *testDB) statuses(t *testing.T, orderID string) payments {
	t.Helper()
	rows := check.Must(findPayments(d.read.WithContext(t.Context()), "order_id = ?", orderID))
	list := make(payments, len(rows))
	for _, p := range rows {
		list[p.ProviderTxnID] = p.Status
	}
	check.Same(t, "transactions of the payments", len(list), len(rows))
	return list
}

// countStatuses returns how many payments have each status.
func countStatuses(list payments) map[model.PaymentStatus]int {
	counts := map[model.PaymentStatus]int{}
	for _, status := range list {
		counts[status]++
	}
	return counts
}

func TestStartPayment(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9, limit(3))
		o := d.buy(t, sale.ID, "me", 2)
		first := d.startPayment(t, o)
		check.Same(t, "the started payment", first, model.Payment{
			ID: first.ID, OrderID: o.ID, UserID: "me", Quantity: 2, Provider: "bank", AmountCents: 3980, Currency: "CNY",
			Status: model.PaymentOpen, CreatedAt: first.CreatedAt, ExpiresAt: o.ExpiresAt,
		})
		check.Same(t, "length of its id", len(first.ID), 26)
		stored, ok, err := d.Payment(t.Context(), first.ID)
		if err != nil || !ok || stored != first {
			t.Errorf("the stored payment is\n%+v, %v, want\n%+v", stored, err, first)
		}
		check.Same(t, "the open payment", d.startPayment(t, o), first)
		other, verdict, err := d.StartPayment(t.Context(), "me", o.ID, "other bank")
		accepted(t, verdict, err)
		if other.ID == first.ID || other.Provider != "other bank" {
			t.Errorf("at another provider: %+v", other)
		}
		check.Same(t, "number of payments", d.count(t, "SELECT COUNT(*) FROM payments"), 2)
		_, _, verdict, err = d.ApplyReport(t.Context(), "bank", reported(first, "t1", model.PaymentFailed), false)
		accepted(t, verdict, err)
		if again := d.startPayment(t, o); again.ID == first.ID {
			t.Error("the failed payment is returned again")
		}
		d.overdue(t, 0, o.ID)
		p, verdict, err := d.StartPayment(t.Context(), "me", o.ID, "bank")
		if verdict != model.NotPayable || err != nil || p != (model.Payment{}) {
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
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, o := d.pair(t), d.buy(t, d.newSale(t, 1).ID, "me", 1)
		ids := check.Collect(10, func(i int) string { return stores[i%2].startPayment(t, o).ID })
		check.Same(t, "open payments", len(slices.Compact(ids)), 1)
	})
}

// What a provider reports about an order's payment, in the order of the steps. A repeated report changes nothing and
// gets the same answer.
func TestApplyReport(t *testing.T) {
	const (
		pending, paid = model.OrderPending, model.OrderPaid
		open, good    = model.PaymentOpen, model.PaymentSucceeded
		bad, due      = model.PaymentFailed, model.PaymentRefundDue
		yes, none     = model.Accepted, model.NotFound
	)
	type report struct {
		txn      string
		want     model.Verdict
		order    model.OrderStatus // after the report
		declined bool
		cents    int64  // beside the amount
		payment  string // instead of the order's
		provider string // instead of the bank
	}
	type reports = []report
	pays := func(txn string) report { return report{txn: txn, want: yes, order: paid} }
	declines := func(txn string, order model.OrderStatus) report {
		return report{txn: txn, want: yes, order: order, declined: true}
	}
	amount := func(cents int64, declined bool) report {
		return report{txn: "a", cents: cents, declined: declined, want: model.AmountMismatch, order: pending}
	}
	// foreign is the transaction of another order.
	foreign := func(order model.OrderStatus, declined bool) report {
		return report{txn: "foreign", declined: declined, want: model.NotPayable, order: order}
	}
	type row struct {
		reports reports
		want    payments // after all reports
	}
	tests := map[string]row{
		"paid":                             {reports{pays("a")}, payments{"a": good}},
		"declined":                         {reports{declines("a", pending)}, payments{"a": bad}},
		"declined, then paid":              {reports{declines("a", pending), pays("a")}, payments{"a": good}},
		"declined, then paid by another":   {reports{declines("a", pending), pays("b")}, payments{"a": bad, "b": good}},
		"declined twice":                   {reports{declines("a", pending), declines("b", pending)}, payments{"a": bad, "b": bad}},
		"paid, then the same is declined":  {reports{pays("a"), declines("a", paid)}, payments{"a": good}},
		"paid twice":                       {reports{pays("a"), pays("b")}, payments{"a": good, "b": due}},
		"paid three times":                 {reports{pays("a"), pays("b"), pays("c")}, payments{"a": good, "b": due, "c": due}},
		"paid, then another is declined":   {reports{pays("a"), declines("b", paid)}, payments{"a": good, "b": bad}},
		"paid, also by the declined one":   {reports{declines("a", pending), pays("b"), pays("a")}, payments{"a": due, "b": good}},
		"a cent too much":                  {reports{amount(1, false)}, payments{"": open}},
		"a cent too little":                {reports{amount(-1, false)}, payments{"": open}},
		"an amount of nothing":             {reports{amount(-1990, false)}, payments{"": open}},
		"declined with another amount":     {reports{amount(5, true)}, payments{"": open}},
		"another amount, then the amount":  {reports{amount(5, false), pays("a")}, payments{"a": good}},
		"an unknown payment":               {reports{{txn: "a", payment: "unknown", want: none, order: pending}}, payments{"": open}},
		"another provider":                 {reports{{txn: "a", provider: "shop", want: none, order: pending}}, payments{"": open}},
		"a foreign transaction":            {reports{foreign(pending, false)}, payments{"": open}},
		"a declined foreign transaction":   {reports{foreign(pending, true)}, payments{"": open}},
		"a foreign transaction, then paid": {reports{foreign(pending, false), pays("a")}, payments{"a": good}},
		"paid, then a foreign transaction": {reports{pays("a"), foreign(paid, false)}, payments{"a": good}},
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		check.Each(t, tests, func(t *testing.T, tc row) {
			sale := d.newSale(t, 2)
			txn := func(name string) string { return name + " " + sale.ID }
			mine, other := d.buy(t, sale.ID, "me", 1), d.buy(t, sale.ID, "you", 1)
			p := d.startPayment(t, mine)
			d.pay(t, d.startPayment(t, other), txn("foreign"))
			for i, r := range tc.reports {
				result, money := good, p.Money()
				if money.Cents += r.cents; r.declined {
					result = bad
				}
				cb := model.NewReport(cmp.Or(r.payment, p.ID), "", txn(r.txn), result, money)
				var before model.Stock
				for repeat := range 3 {
					order, reinstated, verdict, err := d.ApplyReport(t.Context(), cmp.Or(r.provider, "bank"), cb, false)
					if err != nil || verdict != r.want || reinstated {
						t.Errorf("report %d, repeat %d: %s, %t, %v, want %s", i, repeat, verdict, reinstated, err, r.want)
					}
					stored := d.order(t, mine.ID)
					check.Same(t, "status", stored.Status, r.order)
					if verdict == model.Accepted {
						check.Same(t, "the returned order", order, stored)
					}
					if now := d.stock(t, sale.ID); repeat == 0 {
						before = now
					} else {
						check.Same(t, "the stock after a repeat", now, before)
					}
				}
			}
			want := payments{}
			for name, status := range tc.want {
				if name != "" {
					name = txn(name)
				}
				want[name] = status
			}
			check.Same(t, "payments", d.statuses(t, mine.ID), want)
			check.Same(t, "status of the other order", d.order(t, other.ID).Status, paid)
		})
	})
}

// A provider sends one callback several times at once, to several instances.
func TestApplyReportInParallel(t *testing.T) {
	const callbacks = 12
	type counts = map[model.PaymentStatus]int
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		type row struct {
			txns int
			late bool
			want counts
		}
		check.Each(t, map[string]row{
			"one transaction":                    {1, false, counts{model.PaymentSucceeded: 1}},
			"three transactions":                 {3, false, counts{model.PaymentSucceeded: 1, model.PaymentRefundDue: 2}},
			"one transaction, after the expiry":  {1, true, counts{model.PaymentSucceeded: 1}},
			"two transactions, after the expiry": {2, true, counts{model.PaymentSucceeded: 1, model.PaymentRefundDue: 1}},
		}, func(t *testing.T, tc row) {
			sale := d.newSale(t, 3)
			o := d.buy(t, sale.ID, "me", 1)
			p := d.startPayment(t, o)
			if tc.late {
				d.expire(t, o)
			}
			reinstated := check.Collect(callbacks, func(i int) bool {
				order, reinstated := stores[i%2].pay(t, p, fmt.Sprint(i%tc.txns, o.ID))
				check.Same(t, "status", order.Status, model.OrderPaid)
				return reinstated
			})
			check.Same(t, "payments", countStatuses(d.statuses(t, o.ID)), tc.want)
			taken := len(slices.DeleteFunc(reinstated, func(r bool) bool { return !r }))
			check.Same(t, "callbacks that took the unit again", taken, map[bool]int{true: 1}[tc.late])
			d.wantUnits(t, sale.ID, units{available: 2, paid: 1})
		})
	})
}

// One transaction is reported for the payments of two orders at once: it pays one of them.
func TestApplyReportOfOneTransactionForTwoOrders(t *testing.T) {
	const rounds = 15
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, stores := d.newSale(t, 4*rounds), d.pair(t)
		for round := range 2 * rounds {
			var list [2]model.Payment
			for i := range list {
				list[i] = d.startPayment(t, d.buy(t, sale.ID, fmt.Sprint("user", round, "-", i), 1))
				if round%2 == 0 { // both orders are paid before
					d.pay(t, list[i], "before "+list[i].ID)
				}
			}
			got := check.Collect(2, func(i int) model.Verdict {
				_, _, verdict, err := stores[i].ApplyReport(t.Context(), "bank", paidBy(list[i], "txn "+list[0].ID), true)
				check.Error(t, "callback", err, nil)
				return verdict
			})
			slices.Sort(got)
			check.Same(t, "verdicts", got, []model.Verdict{model.Accepted, model.NotPayable})
		}
	})
}

// A callback that fails in the database is an error, so that the provider sends it again.
func TestHole28_CallbackThatBreaksIsAnError(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		p := d.startPayment(t, d.buy(t, d.newSale(t, 1).ID, "me", 1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, verdict, err := d.ApplyReport(ctx, "bank", paidBy(p, "t"), true); err == nil {
			t.Errorf("with a cancelled context: %q", verdict)
		}
		d.exec(t, "ALTER TABLE orders RENAME COLUMN paid_at_ms TO paid_at")
		if _, _, verdict, err := d.ApplyReport(t.Context(), "bank", paidBy(p, "t"), true); err == nil {
			t.Errorf("without a column: %q", verdict)
		}
		d.exec(t, "ALTER TABLE orders RENAME COLUMN paid_at TO paid_at_ms")
		check.Same(t, "status", d.order(t, p.OrderID).Status, model.OrderPending)
		check.Same(t, "payments", d.statuses(t, p.OrderID), payments{"": model.PaymentOpen})
		order, _ := d.pay(t, p, "t")
		check.Same(t, "status", order.Status, model.OrderPaid)
	})
}

func TestRefundsDue(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9)
		var list []model.Payment
		for i := range 4 {
			o := d.buy(t, sale.ID, fmt.Sprint("user", i), 1)
			p := d.startPayment(t, o)
			d.pay(t, p, p.ID)
			if i < 3 { // the last order stays paid
				d.refund(t, o)
				p.ProviderTxnID, p.Status = p.ID, model.PaymentRefundDue
				list = append(list, p)
			}
		}
		due := func(limit int) []model.Payment {
			t.Helper()
			due, all, err := d.RefundsDue(t.Context(), "bank", limit)
			check.NoError(t, err)
			check.Same(t, "all that are due", all, len(due))
			slices.SortFunc(due, func(a, b model.Payment) int { return cmp.Compare(a.ID, b.ID) })
			return due
		}
		slices.SortFunc(list, func(a, b model.Payment) int { return cmp.Compare(a.ID, b.ID) })
		check.Same(t, "refunds due", due(9), list)
		check.Same(t, "at most 2 refunds due", len(due(2)), 2)
		for i, p := range list {
			for range 2 {
				_, err := d.TryRefund(t.Context(), p)
				check.NoError(t, err, d.MarkRefunded(t.Context(), p))
			}
			check.Same(t, "refunds still due", due(9), append([]model.Payment{}, list[i+1:]...))
		}
		d.exec(t, "UPDATE payments SET status = 'open' WHERE id = ?", list[0].ID)
		check.NoError(t, d.MarkRefunded(t.Context(), list[0])) // which changes nothing: it is not due
		for status, want := range map[string]int64{"refunded": 2, "succeeded": 1, "open": 1} {
			check.Same(t, status+" payments", d.count(t, "SELECT COUNT(*) FROM payments WHERE status = ?", status), want)
		}
	})
}

// The pauses between the tries of a refund grow. Refunds that were tried stand behind those that were not, and those of another
// provider are not listed. Only one instance makes a try.
func TestTryRefund(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 3)
		owed := func(user, provider string) model.Payment {
			o := d.buy(t, sale.ID, user, 1)
			p, verdict, err := d.StartPayment(t.Context(), user, o.ID, provider)
			accepted(t, verdict, err)
			d.pay(t, p, user)
			d.refund(t, o)
			return p
		}
		bad := owed("bad", "bank")
		owed("other", "other bank")
		due := func() (ids []string) {
			list, all, err := d.RefundsDue(t.Context(), "bank", 9)
			check.NoError(t, err)
			check.Same(t, "money that is due at all providers", all, int(d.count(t, "SELECT COUNT(*) FROM payments WHERE status = 'refund_due'")))
			for _, p := range list {
				ids, bad.Tries = append(ids, p.ID), p.Tries
			}
			return ids
		}
		tries := func(pause time.Duration) {
			t.Helper()
			before := d.count(t, "SELECT "+d.nowMillis())
			mine := check.Collect(4, func(int) bool {
				mine, err := d.TryRefund(t.Context(), bad)
				check.Error(t, "try", err, nil)
				return mine
			})
			check.Same(t, "instances that try", trues(mine), 1)
			next, after := d.count(t, "SELECT look_at_ms FROM payments WHERE id = ?", bad.ID), d.count(t, "SELECT "+d.nowMillis())
			if next < before+pause.Milliseconds() || next > after+pause.Milliseconds() {
				t.Errorf("the next try is at %d, want %s after a time from %d to %d", next, pause, before, after)
			}
		}
		for n, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
			check.Same(t, "due", due(), []string{bad.ID})
			check.Same(t, "tries", bad.Tries, n)
			tries(pause)
			d.exec(t, "UPDATE payments SET look_at_ms = 1 WHERE id = ?", bad.ID)
		}
		good := owed("good", "bank")
		check.Same(t, "the order of the tries", due(), []string{good.ID, bad.ID})
		d.exec(t, "UPDATE payments SET tries = 40 WHERE id = ?", bad.ID)
		bad.Tries = 40
		tries(time.Hour)
		check.Same(t, "due in the longest pause", due(), []string{good.ID})
		d.exec(t, "UPDATE payments SET look_at_ms = look_at_ms + 10000000 WHERE id = ?", bad.ID)
		check.Same(t, "due when the clock was set back", due(), []string{good.ID, bad.ID})
		check.NoError(t, d.MarkRefunded(t.Context(), bad)) // after the wrong number of tries
		check.Same(t, "due after another try", due(), []string{good.ID, bad.ID})
		bad.Tries = 40
		check.NoError(t, d.MarkRefunded(t.Context(), bad))
		mine, err := d.TryRefund(t.Context(), bad)
		check.Same(t, "a try of what is refunded", []any{mine, err}, []any{false, nil})
	})
}

// Money that is not what the order asks for never pays it, whatever it is. If the engine holds it, it is recorded as it came, and
// due for a refund, once; what the provider has opened for another payment is nothing to the order.
func TestOtherMoney(t *testing.T) {
	const yes, none, other = model.Accepted, model.NotFound, model.AmountMismatch
	const good, bad, back = model.PaymentSucceeded, model.PaymentFailed, model.PaymentRefunded
	type row struct {
		reference string
		money     model.Money
		result    model.PaymentStatus
		want      model.Verdict
		recorded  bool
	}
	cny := func(cents int64) model.Money { return model.Money{Cents: cents, Currency: "CNY"} }
	tests := map[string]row{
		"a cent too little":                {"cs_1", cny(1989), good, other, true},
		"a cent too much":                  {"cs_1", cny(1991), good, other, true},
		"nothing":                          {"cs_1", cny(0), good, other, true},
		"another currency":                 {"cs_1", model.Money{Cents: 1990, Currency: "JPY"}, good, other, true},
		"the currency in small letters":    {"cs_1", model.Money{Cents: 1990, Currency: "cny"}, good, other, true},
		"no currency":                      {"cs_1", model.Money{Cents: 1990}, good, other, true},
		"a part of a cent":                 {"cs_1", model.Money{Cents: 1990, Currency: "CNY", Rounded: true}, good, other, true},
		"another session":                  {"cs_2", cny(1990), good, none, false},
		"no session":                       {"", cny(1990), good, none, false},
		"another session, another amount":  {"cs_2", cny(1), good, none, false},
		"the end of another session":       {"cs_2", cny(1990), bad, none, false},
		"an end in another currency":       {"cs_1", model.Money{Cents: 1990, Currency: "JPY"}, bad, other, false},
		"a refund of what nobody has paid": {"", cny(1990), back, none, false},
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		check.Each(t, tests, func(t *testing.T, tc row) {
			sale := d.newSale(t, 1)
			o := d.buy(t, sale.ID, "me", 1)
			p := d.startPayment(t, o)
			_, _, err := d.SetReference(t.Context(), p.ID, "cs_1")
			check.NoError(t, err)
			txn := "t " + sale.ID
			says := func(result model.PaymentStatus, money model.Money, owed bool, want ...model.Verdict) {
				t.Helper()
				_, moved, verdict, err := d.ApplyReport(t.Context(), "bank", model.NewReport(p.ID, tc.reference, txn, result, money), owed)
				if err != nil || moved || !slices.Contains(want, verdict) {
					t.Errorf("%s, %t, %v, want %s", verdict, moved, err, want)
				}
			}
			stock := d.stock(t, sale.ID)
			says(tc.result, tc.money, false, tc.want)
			check.Same(t, "payments, if whoever reports sends the money back", d.statuses(t, o.ID), payments{"": model.PaymentOpen})
			says(tc.result, tc.money, true, tc.want)
			want := payments{"": model.PaymentOpen}
			if tc.recorded {
				says(tc.result, tc.money, true, yes)
				want = payments{txn: model.PaymentRefundDue}
				due := d.refundsDue(t, o)
				check.Same(t, "what is due", []any{len(due), due[0].AmountCents, due[0].Currency}, []any{1, tc.money.Cents, tc.money.Currency})
			}
			check.Same(t, "payments", d.statuses(t, o.ID), want)
			check.Same(t, "the order", d.order(t, o.ID), o)
			check.Same(t, "the stock", d.stock(t, sale.ID), stock)

			// The right money pays the order after all.
			again := d.startPayment(t, o)
			_, _, err = d.SetReference(t.Context(), again.ID, "cs_3")
			check.NoError(t, err)
			if again.Reference == "" {
				again.Reference = "cs_3"
			}
			paid, _ := d.pay(t, again, "right "+sale.ID)
			check.Same(t, "the order is", paid.Status, model.OrderPaid)

			// Its refund is that of all its money.
			txn = "right " + sale.ID
			says(back, model.Money{Cents: 1990, Currency: "JPY"}, true, other)
			check.Same(t, "the order after a refund of other money", d.order(t, o.ID).Status, model.OrderPaid)
		})
	})
}

// Money has gone back by itself. A paid order is refunded thereby, once; a refund of what nobody has paid is refused. Money that a
// shop has sent back is done. What a provider reports is due until it is asked for it, and due again if it does not arrive.
func TestApplyRefund(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, owed := range []bool{false, true} {
			d.moneyGoesBack(t, owed)
		}
	})
}

func (d *testDB) moneyGoesBack(t *testing.T, owed bool) {
	sale := d.newSale(t, 2)
	o := d.buy(t, sale.ID, "me", 1)
	p := d.startPayment(t, o)
	a, b := "a of "+sale.ID, "b of "+sale.ID
	back := func(txn string, want model.Verdict, moves bool, status model.OrderStatus) {
		t.Helper()
		order, moved, verdict, err := d.ApplyReport(t.Context(), "bank", reported(p, txn, model.PaymentRefunded), owed)
		check.Same(t, "refund of "+txn, []any{verdict, moved, err}, []any{want, moves, nil})
		if want == model.Accepted {
			check.Same(t, "status", order.Status, status)
		}
	}
	fails := func(txn string, want bool) {
		t.Helper()
		again, err := d.RefundFailed(t.Context(), "bank", txn)
		check.Same(t, "due again: "+txn, []any{again, err}, []any{want, nil})
	}
	back(a, model.NotFound, false, "")
	fails(a, false)
	d.pay(t, p, a)
	d.pay(t, p, b) // a second time
	fails(a, false)
	check.Same(t, "after a part has not arrived", d.statuses(t, o.ID), payments{a: model.PaymentSucceeded, b: model.PaymentRefundDue})
	back(b, model.Accepted, false, model.OrderPaid)
	for i := range 2 {
		back(a, model.Accepted, i == 0, model.OrderRefunded)
	}
	want := model.PaymentRefunded
	if owed {
		want = model.PaymentRefundDue
	}
	check.Same(t, "payments", d.statuses(t, o.ID), payments{a: want, b: want})
	d.wantUnits(t, sale.ID, units{available: 2})

	// A refund that fails while a try is under way is not done by that try.
	for _, due := range d.refundsDue(t, o) {
		_, err := d.TryRefund(t.Context(), due)
		check.NoError(t, err)
		fails(due.ProviderTxnID, false)
		check.NoError(t, d.MarkRefunded(t.Context(), due))
	}
	check.Same(t, "payments", d.statuses(t, o.ID), payments{a: want, b: want})
	d.exec(t, "UPDATE payments SET status = 'refunded' WHERE order_id = ?", o.ID)
	told := func() (counts [2]int64) {
		counts[0] = d.count(t, "SELECT COUNT(*) FROM audit_log WHERE action = 'refund_failed' AND subject = ?", sale.ID)
		counts[1] = d.count(t, "SELECT COUNT(*) FROM events WHERE type = ? AND ids = ?", string(model.EventRefundDue), p.ID)
		return counts
	}
	before := told()
	fails(a, true)
	fails(a, false)
	check.Same(t, "operations and events", told(), [2]int64{before[0] + 1, before[1] + 1})
	check.Same(t, "refunds that are tried at once", len(d.refundsDue(t, o)), 0)
	check.Same(t, "payments", d.statuses(t, o.ID), payments{a: model.PaymentRefundDue, b: model.PaymentRefunded})
	d.wantUnits(t, sale.ID, units{available: 2})
}

// Unreported payments are listed when their time has come, and no longer when they are reported.
func TestUnreported(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2)
		first, second := d.startPayment(t, d.buy(t, sale.ID, "me", 1)), d.startPayment(t, d.buy(t, sale.ID, "you", 1))
		due := func() (ids []string) {
			list, err := d.Unreported(t.Context(), "bank", 9)
			check.NoError(t, err)
			for _, p := range list {
				ids = append(ids, p.ID)
			}
			return ids
		}
		check.Same(t, "due at once", len(due()), 0)
		check.NoError(t, d.LookAgain(t.Context(), second.ID, time.UnixMilli(1)))
		check.NoError(t, d.LookAgain(t.Context(), first.ID, time.UnixMilli(2)))
		check.Same(t, "due", due(), []string{second.ID, first.ID})
		for _, reference := range []string{"cs_1", "cs_1", "cs_2"} {
			recorded, open, err := d.SetReference(t.Context(), first.ID, reference)
			check.Same(t, "the reference that is recorded", []any{recorded, open, err}, []any{"cs_1", true, nil})
		}
		first.Reference = "cs_1"
		d.pay(t, first, "t")
		check.Same(t, "due after a report", due(), []string{second.ID})
		check.NoError(t, d.LookAgain(t.Context(), first.ID, time.UnixMilli(1)))
		check.Same(t, "still", due(), []string{second.ID})
		if _, open, err := d.SetReference(t.Context(), first.ID, "cs_1"); open || err != nil {
			t.Errorf("a reference of a paid payment: %t, %v", open, err)
		}
		page, next, err := d.Payments(t.Context(), model.PaymentFilter{Status: model.PaymentOpen, Limit: 1})
		check.Same(t, "open payments", []any{len(page), page[0].ID, next, err}, []any{1, second.ID, "", nil})
		_, _, err = d.Payments(t.Context(), model.PaymentFilter{Status: model.PaymentOpen, Cursor: "1", Limit: 1})
		check.Error(t, "cursor", err, model.ErrBadCursor)
	})
}
