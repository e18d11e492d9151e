package sim

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit"
)

// shelf is a small model of the engine's books: a quota, a limit, and what became of each attempt.
type shelf struct {
	quota, limit int
	lines        map[string]*line          // orders and durable refusals, by id
	payments     map[string]*money         // by transaction
	asked        map[string]*model.Payment // open or used payments, by order
}

// line is an order, or a refusal with its reason.
type line struct {
	user     string
	quantity int
	status   model.OrderStatus
	reason   model.Verdict
	due      bool // its time to pay is over
}

// money is a transaction's payment for an order.
type money struct {
	order  string
	status model.PaymentStatus
}

func (l *line) live() bool { return l.status == model.OrderPending || l.status == model.OrderPaid }

func (s *shelf) sum(is func(*line) bool) (units int) {
	for _, l := range s.lines {
		if is(l) {
			units += l.quantity
		}
	}
	return units
}

func (s *shelf) available() int { return s.quota - s.sum((*line).live) }

// fits returns the verdict on so many units for a user.
func (s *shelf) fits(user string, quantity int) model.Verdict {
	switch {
	case s.sum(func(l *line) bool { return l.live() && l.user == user })+quantity > s.limit:
		return model.LimitReached
	case quantity > s.available():
		return model.SoldOut
	}
	return model.Accepted
}

// buy decides an attempt. If durable is set, a refusal is stored for good.
func (s *shelf) buy(a model.Attempt, durable bool) model.Verdict {
	if known := s.lines[a.ID]; known != nil {
		if known.status == model.OrderRejected {
			return known.reason
		}
		return model.Accepted
	}
	verdict := s.fits(a.UserID, a.Quantity)
	switch {
	case verdict == model.Accepted:
		s.lines[a.ID] = &line{user: a.UserID, quantity: a.Quantity, status: model.OrderPending}
	case durable:
		s.lines[a.ID] = &line{user: a.UserID, quantity: a.Quantity, status: model.OrderRejected, reason: verdict}
	}
	return verdict
}

// pay decides a transaction for an order.
func (s *shelf) pay(txn, order string, succeeded bool) {
	m, l := s.payments[txn], s.lines[order]
	if m != nil && (!succeeded || m.status != model.PaymentFailed) {
		return // the transaction is known
	}
	m = &money{order, model.PaymentFailed}
	s.payments[txn] = m
	if !succeeded {
		return
	}
	m.status = model.PaymentRefundDue
	if l.status == model.OrderPending || l.status == model.OrderExpired && s.fits(l.user, l.quantity) == model.Accepted {
		l.status, m.status = model.OrderPaid, model.PaymentSucceeded
	}
}

// machine applies the same actions to the real repository and to the shelf.
type machine struct {
	shelf
	db   *repository.Store
	raw  *sql.DB
	ids  model.OrderIDs
	sale string
	txns int
}

// TestOrders applies all actions on orders and stock in random order, and compares the repository with the model after
// each of them.
func TestOrders(t *testing.T) {
	template, folder, n := sound.template(t), t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(folder, fmt.Sprint(n, ".db"))
		must(t, os.WriteFile(path, template, 0o600))
		db, err := repository.Open(context.Background(), "sqlite:"+path, 1)
		must(t, err)
		defer func() { must(t, db.Close()) }()
		raw, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
		must(t, err)
		defer func() { must(t, raw.Close()) }()
		m := &machine{
			shelf: shelf{
				quota: rapid.IntRange(1, 4).Draw(t, "quota"), limit: rapid.IntRange(1, 3).Draw(t, "limit"),
				lines: map[string]*line{}, payments: map[string]*money{}, asked: map[string]*model.Payment{},
			},
			db: db, raw: raw, ids: model.NewOrderIDs([]byte("a key")), sale: strings.Repeat("S", model.IDLength),
		}
		now := time.Now()
		must(t, db.CreateSale(context.Background(), model.Sale{
			ID: m.sale, Code: "code", Title: "a sale", PriceCents: 100, Currency: "EUR", LimitPerUser: m.limit,
			PayTimeoutSeconds: 3600, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		}, int64(m.quota), "operator"))
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "settle": m.settle, "deduct": m.deduct, "deduct under a lock": m.deductLocked,
			"cancel": m.cancel, "time to pay ends": m.due, "expire": m.expire, "start a payment": m.start,
			"callback": m.callback, "callback with a wrong amount": m.wrongAmount, "refund": m.refund,
			"send money back": m.sendBack, "add stock": m.addStock,
		})
	})
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same[T comparable](t *rapid.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// attempt draws one of a few attempts, so that many are repeated. The quantity under a key never changes.
func (m *machine) attempt(t *rapid.T) model.Attempt {
	user, key := rapid.SampledFrom([]string{"ann", "bob", "cy", "Ann"}).Draw(t, "user"), rapid.IntRange(1, 4).Draw(t, "key")
	a := model.Attempt{SaleID: m.sale, UserID: user, IdempotencyKey: fmt.Sprint("key-", key), Quantity: 1 + key/4}
	a.ID, a.RequestHash = m.ids.Derive(user, m.sale, a.IdempotencyKey), model.HashRequest(a.Quantity)
	return a
}

// order draws an existing order. If there is none, Skip makes rapid draw another action, and the test continues.
func (m *machine) order(t *rapid.T) (id string, l *line) {
	ids := slices.Sorted(maps.Keys(m.lines))
	ids = slices.DeleteFunc(ids, func(id string) bool { return m.lines[id].status == model.OrderRejected })
	if len(ids) == 0 {
		t.Skip("no order")
	}
	id = rapid.SampledFrom(ids).Draw(t, "order")
	return id, m.lines[id]
}

func (m *machine) settle(t *rapid.T) {
	entries := make([]model.Entry, rapid.IntRange(1, 4).Draw(t, "entries"))
	for i := range entries {
		entries[i] = model.Entry{Attempt: m.attempt(t), StreamID: fmt.Sprint(i, "-0"), Epoch: 1, Deliveries: 1}
	}
	outcomes, err := m.db.Settle(context.Background(), m.sale, entries)
	must(t, err)
	for i, e := range entries {
		same(t, "settled "+e.UserID+" "+e.IdempotencyKey, outcomes[i].Verdict, m.buy(e.Attempt, true))
	}
}

func (m *machine) deduct(t *rapid.T) {
	attempts := make([]model.Attempt, rapid.IntRange(1, 4).Draw(t, "attempts"))
	for i := range attempts {
		attempts[i] = m.attempt(t)
	}
	outcomes, err := m.db.Deduct(context.Background(), m.sale, attempts)
	must(t, err)
	// An attempt that occurs twice in a batch is decided once.
	decided := map[string]model.Verdict{}
	for i, a := range attempts {
		want, ok := decided[a.ID]
		if !ok {
			want = m.buy(a, false)
			decided[a.ID] = want
		}
		same(t, "deducted "+a.UserID+" "+a.IdempotencyKey, outcomes[i].Verdict, want)
	}
}

func (m *machine) deductLocked(t *rapid.T) {
	a := m.attempt(t)
	outcome, err := m.db.DeductLocked(context.Background(), a)
	must(t, err)
	same(t, "deducted "+a.UserID+" "+a.IdempotencyKey, outcome.Verdict, m.buy(a, false))
}

func (m *machine) cancel(t *rapid.T) {
	id, l := m.order(t)
	user := rapid.SampledFrom([]string{l.user, l.user, "mallory"}).Draw(t, "by")
	want := model.NotCancellable
	switch {
	case user != l.user:
		want = model.NotFound
	case l.status == model.OrderPending:
		want, l.status = model.Accepted, model.OrderCancelled
	}
	_, verdict, err := m.db.Cancel(context.Background(), user, id)
	must(t, err)
	same(t, "cancel", verdict, want)
}

// due ends an order's time to pay. The order stays pending until expire runs.
func (m *machine) due(t *rapid.T) {
	id, l := m.order(t)
	l.due = true
	_, err := m.raw.ExecContext(context.Background(), "UPDATE orders SET expires_at_ms = 1 WHERE id = ?", id)
	must(t, err)
}

func (m *machine) expire(t *rapid.T) {
	want := 0
	for _, l := range m.lines {
		if l.due && l.status == model.OrderPending {
			l.status, want = model.OrderExpired, want+l.quantity
		}
	}
	bySale, err := m.db.Overdue(context.Background(), 0, model.ClockStep{}, 100, nil)
	must(t, err)
	released, err := m.db.Expire(context.Background(), m.sale, bySale[m.sale])
	must(t, err)
	units := 0
	for _, r := range released {
		units += r.Units
	}
	same(t, "units released", units, want)
}

func (m *machine) start(t *rapid.T) {
	id, l := m.order(t)
	want := model.NotPayable
	if l.status == model.OrderPending && !l.due {
		want = model.Accepted
	}
	payment, verdict, err := m.db.StartPayment(context.Background(), l.user, id, "bank")
	must(t, err)
	same(t, "start a payment", verdict, want)
	if verdict == model.Accepted {
		m.asked[id] = &payment
	}
}

// payment draws a started payment. If there is none, Skip makes rapid draw another action.
func (m *machine) payment(t *rapid.T) (order string, p model.Payment) {
	if len(m.asked) == 0 {
		t.Skip("no payment")
	}
	order = rapid.SampledFrom(slices.Sorted(maps.Keys(m.asked))).Draw(t, "payment of")
	return order, *m.asked[order]
}

// callback reports a new transaction, or repeats a known one: in time, late, of this order or of another.
func (m *machine) callback(t *rapid.T) {
	order, p := m.payment(t)
	m.txns++
	txn := rapid.SampledFrom(append(slices.Sorted(maps.Keys(m.payments)), fmt.Sprint("transaction-", m.txns))).Draw(t, "transaction")
	succeeded, want := rapid.Bool().Draw(t, "succeeded"), model.Accepted
	if known := m.payments[txn]; known != nil && known.order != order {
		want = model.NotPayable
	} else {
		m.pay(txn, order, succeeded)
	}
	got, _, verdict, err := m.db.ApplyCallback(context.Background(), "bank",
		model.Callback{PaymentID: p.ID, ProviderTxnID: txn, Succeeded: succeeded, AmountCents: p.AmountCents})
	must(t, err)
	same(t, "callback", verdict, want)
	if want == model.Accepted {
		same(t, "the order's status", got.Status, m.lines[order].status)
	}
}

func (m *machine) wrongAmount(t *rapid.T) {
	_, p := m.payment(t)
	_, _, verdict, err := m.db.ApplyCallback(context.Background(), "bank",
		model.Callback{PaymentID: p.ID, ProviderTxnID: "wrong", Succeeded: true, AmountCents: p.AmountCents + 1})
	must(t, err)
	same(t, "callback", verdict, model.AmountMismatch)
}

func (m *machine) refund(t *rapid.T) {
	id, l := m.order(t)
	want := model.NotRefundable
	if l.status == model.OrderPaid {
		want, l.status = model.Accepted, model.OrderRefunded
		for _, p := range m.payments {
			if p.order == id && p.status == model.PaymentSucceeded {
				p.status = model.PaymentRefundDue
			}
		}
	}
	_, verdict, err := m.db.RefundOrder(context.Background(), id, "operator")
	must(t, err)
	same(t, "refund", verdict, want)
}

func (m *machine) sendBack(t *rapid.T) {
	due, err := m.db.RefundsDue(context.Background(), 100)
	must(t, err)
	if len(due) == 0 {
		t.Skip("no money to send back") // rapid draws another action
	}
	p := rapid.SampledFrom(due).Draw(t, "payment")
	must(t, m.db.MarkRefunded(context.Background(), p.ID))
	m.payments[p.ProviderTxnID].status = model.PaymentRefunded
}

func (m *machine) addStock(t *rapid.T) {
	units := rapid.IntRange(1, 2).Draw(t, "units")
	m.quota += units
	_, verdict, err := m.db.ChangeSale(context.Background(), model.SaleChange{
		SaleID: m.sale, Actor: "operator", Action: "patch", AddQuota: int64(units),
		Edit: func(*model.Sale) model.Verdict { return model.Accepted },
	})
	must(t, err)
	same(t, "add stock", verdict, model.Accepted)
}

// check compares all of the books with the shelf.
func (m *machine) check(t *rapid.T) {
	books, ok, err := m.db.Books(context.Background(), m.sale)
	must(t, err)
	same(t, "the sale is there", ok, true)
	same(t, "violations", fmt.Sprint(books.Violations()), "[]")
	is := func(status model.OrderStatus) func(*line) bool {
		return func(l *line) bool { return l.status == status }
	}
	st := books.Stock
	same(t, "quota, available, held and paid", fmt.Sprint(st.Quota, st.Available, st.Held, st.Paid),
		fmt.Sprint(m.quota, m.available(), m.sum(is(model.OrderPending)), m.sum(is(model.OrderPaid))))
	for id, l := range m.lines {
		order, ok, err := m.db.Order(context.Background(), id)
		must(t, err)
		same(t, "the order", fmt.Sprint(ok, order.Status, order.Reason, order.UserID, order.Quantity),
			fmt.Sprint(true, l.status, l.reason, l.user, l.quantity))
	}
	snapshot, _, err := m.db.GateContents(context.Background(), m.sale)
	must(t, err)
	contents, err := kit.ReadContents(context.Background(), snapshot)
	must(t, err)
	same(t, "orders and refusals", len(contents.Requests), len(m.lines))
	units := map[string]int{}
	for _, l := range m.lines {
		if l.live() {
			units[l.user] += l.quantity
		}
	}
	same(t, "units by user", fmt.Sprint(contents.Units), fmt.Sprint(units))
	due, err := m.db.RefundsDue(context.Background(), 100)
	must(t, err)
	var owed, wanted []string
	for _, p := range due {
		owed = append(owed, p.ProviderTxnID)
	}
	for txn, p := range m.payments {
		if p.status == model.PaymentRefundDue {
			wanted = append(wanted, txn)
		}
	}
	slices.Sort(owed)
	slices.Sort(wanted)
	same(t, "money that is due to go back", fmt.Sprint(owed), fmt.Sprint(wanted))
}
