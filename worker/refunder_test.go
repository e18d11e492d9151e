package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// refundPause is the pause between two tries of a fake refund.
const refundPause = 5 * time.Second

// fakeRefunds is money that has to be sent back.
type fakeRefunds struct {
	due     []model.Payment
	next    map[string]time.Time // by payment
	taken   map[string]bool      // by payment: another instance tries it
	errMark map[string]error     // by payment
	errSend map[string]error     // by transaction
	hangs   map[string]bool      // by transaction: the provider does not answer
	later   map[string]bool      // by transaction: the provider will report it
	marked  []string
	sent    map[string]int // by transaction
}

func newFakeRefunds(n int) *fakeRefunds {
	f := &fakeRefunds{
		next: map[string]time.Time{}, taken: map[string]bool{}, errMark: map[string]error{}, errSend: map[string]error{},
		hangs: map[string]bool{}, later: map[string]bool{}, sent: map[string]int{},
	}
	for i := range n {
		f.due = append(f.due, model.Payment{ID: fmt.Sprint("p-", i), ProviderTxnID: fmt.Sprint("txn-", i)})
	}
	return f
}

func (f *fakeRefunds) RefundsDue(_ context.Context, provider string, limit int) (list []model.Payment, all int, err error) {
	defer locked()()
	if provider != "bank" {
		return nil, 0, fmt.Errorf("refunds of the provider %q", provider)
	}
	list = slices.DeleteFunc(slices.Clone(f.due), func(p model.Payment) bool { return time.Now().Before(f.next[p.ID]) })
	slices.SortStableFunc(list, func(a, b model.Payment) int { return cmp.Compare(a.Tries, b.Tries) })
	return list[:min(len(list), limit)], min(len(f.due), limit), nil
}

func (f *fakeRefunds) TryRefund(_ context.Context, p model.Payment) (mine bool, err error) {
	defer locked()()
	f.next[p.ID] = time.Now().Add(refundPause)
	for i := range f.due {
		if f.due[i].ID == p.ID {
			f.due[i].Tries++
		}
	}
	return !f.taken[p.ID], nil
}

func (f *fakeRefunds) MarkRefunded(_ context.Context, p model.Payment) error {
	defer locked()()
	id := p.ID
	if f.errMark[id] == nil {
		f.marked = append(f.marked, id)
		f.due = slices.DeleteFunc(f.due, func(p model.Payment) bool { return p.ID == id })
	}
	return f.errMark[id]
}

func (f *fakeRefunds) send(ctx context.Context, p model.Payment) (done bool, err error) {
	hangs := false
	with(func() { f.sent[p.ProviderTxnID]++; hangs = f.hangs[p.ProviderTxnID] })
	if hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	defer locked()()
	return f.errSend[p.ProviderTxnID] == nil && !f.later[p.ProviderTxnID], f.errSend[p.ProviderTxnID]
}

// refunder is a refunder over fakes.
func (f *fakeRefunds) refunder() (*Refunder, *check.Log) {
	log := &check.Log{}
	return &Refunder{Store: f, Provider: "bank", Log: slog.New(log), Refund: f.send}, log
}

// The refunder sends each due payment back once. It tries again what failed, when its pause is over, which delays no other
// payment. What another instance tries, and what the provider sends later, is not recorded.
func TestRefunder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRefunds(7)
		f.errMark["p-3"], f.errSend["txn-1"], f.taken["p-5"], f.later["txn-6"] = errAway, errAway, true, true
		refunder, log := f.refunder()
		all := []int64{}
		refunder.Observe = observe.All{noted{observe.RefundsDue, func(e observe.Event) { all = append(all, e.N) }}}
		during(t, refunder.Run, func() {
			slices.Sort(f.marked)
			check.Same(t, "marked at first", f.marked, []string{"p-0", "p-2", "p-4"})
			check.Same(t, "the lines about refunds", log.Count("refunded"), 3)
			pass(refundPause - time.Millisecond)
			with(func() { clear(f.errSend); clear(f.errMark) })
			check.Same(t, "sent in the pause", f.sent, map[string]int{"txn-0": 1, "txn-1": 1, "txn-2": 1, "txn-3": 1, "txn-4": 1, "txn-6": 1})
			pass(refundPeriod)
		})
		check.Same(t, "sent", f.sent, map[string]int{"txn-0": 1, "txn-1": 2, "txn-2": 1, "txn-3": 2, "txn-4": 1, "txn-6": 2})
		slices.Sort(f.marked)
		check.Same(t, "marked", f.marked, []string{"p-0", "p-1", "p-2", "p-3", "p-4"})
		check.Same(t, "the lines about the database", log.Count("refunder fails"), 1)
		check.Same(t, "the lines about its end", log.Count("refunder works again"), 1)
		check.Same(t, "the lines about the provider", log.Count("a refund fails"), 1)
		check.Same(t, "the money that is due", all[:2], []int64{7, 4})
	})
}

// A hundred refunds that fail or hang keep no good one waiting for long, wherever it stands.
func TestRefunderPastFailures(t *testing.T) {
	for name, fault := range map[string]func(f *fakeRefunds, txn string){
		"refused": func(f *fakeRefunds, txn string) { f.errSend[txn] = model.ErrRefundRefused },
		"hanging": func(f *fakeRefunds, txn string) { f.hangs[txn] = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeRefunds(refundBatch + 1)
				for i := range refundBatch {
					fault(f, fmt.Sprint("txn-", i))
				}
				refunder, _ := f.refunder()
				during(t, refunder.Run, func() {
					pass((refundBatch/providerCalls+1)*providerTimeout + refundPeriod)
					check.Same(t, "marked", f.marked, []string{fmt.Sprint("p-", refundBatch)})
				})
			})
		})
	}
}

// The log says once that a refund fails, and once that the provider refuses it.
func TestRefunderSaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRefunds(1)
		f.errSend["txn-0"] = errAway
		refunder, log := f.refunder()
		during(t, refunder.Run, func() {
			for _, err := range []error{errAway, errAway, model.ErrRefundRefused, errAway, model.ErrRefundRefused} {
				with(func() { f.errSend["txn-0"] = err })
				pass(refundPause + refundPeriod)
			}
			check.Same(t, "the lines about a failure", log.Count("a refund fails"), 1)
			check.Same(t, "the lines about a refusal", log.Count("a refund is refused"), 1)
			with(func() { clear(f.errSend) })
			pass(refundPause + refundPeriod)
			check.Same(t, "marked", f.marked, []string{"p-0"})
		})
	})
}
