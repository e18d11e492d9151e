package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeRefunds is money that has to be sent back.
type fakeRefunds struct {
	due     []model.Payment
	errMark map[string]error // by payment
	errSend map[string]error // by transaction
	marked  []string
	sent    map[string]int // by transaction
}

func (f *fakeRefunds) RefundsDue(context.Context, int) ([]model.Payment, error) {
	defer locked()()
	return slices.Clone(f.due), nil
}

func (f *fakeRefunds) MarkRefunded(_ context.Context, id string) error {
	defer locked()()
	if f.errMark[id] == nil {
		f.marked = append(f.marked, id)
		f.due = slices.DeleteFunc(f.due, func(p model.Payment) bool { return p.ID == id })
	}
	return f.errMark[id]
}

func (f *fakeRefunds) send(_ context.Context, p model.Payment) (done bool, err error) {
	defer locked()()
	f.sent[p.ProviderTxnID]++
	return f.errSend[p.ProviderTxnID] == nil, f.errSend[p.ProviderTxnID]
}

// The refunder sends each due payment back once. It tries again what failed, which delays no other payment.
func TestRefunder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRefunds{sent: map[string]int{}}
		f.errMark, f.errSend = map[string]error{"p-3": errAway}, map[string]error{"txn-1": errAway}
		for i := range 5 {
			f.due = append(f.due, model.Payment{ID: fmt.Sprint("p-", i), ProviderTxnID: fmt.Sprint("txn-", i)})
		}
		log := &check.Log{}
		during(t, (&Refunder{Store: f, Log: slog.New(log), Refund: f.send}).Run, func() {
			check.Same(t, "marked at first", f.marked, []string{"p-0", "p-2", "p-4"})
			check.Same(t, "the payments left at first", len(f.due), 2)
			check.Same(t, "the lines about refunds", log.Count("refunded"), 3)
			pass(refundPeriod)
			with(func() { clear(f.errSend); clear(f.errMark) })
			pass(4 * refundPeriod)
		})
		check.Same(t, "sent", f.sent, map[string]int{"txn-0": 1, "txn-1": 3, "txn-2": 1, "txn-3": 3, "txn-4": 1})
		check.Same(t, "marked", f.marked, []string{"p-0", "p-2", "p-4", "p-1", "p-3"})
		check.Same(t, "the lines about the failure", log.Count("refunder fails"), 1)
		check.Same(t, "the lines about its end", log.Count("refunder works again"), 1)
	})
}
