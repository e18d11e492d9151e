package sim

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	"flashsale/model"
)

// books is the database as the checks read it. They use their own statements, so that an error in the engine's reads
// can't hide an error in its writes.
type books struct {
	db      *sql.DB
	version int64 // data_version of the file at the last read
	stocks  map[string]stock
	orders  map[string]written
	refused map[string]string
	buyers  map[string]int64 // by sale and user
}

type stock struct{ quota, available, held, paid, epoch int64 }

// written is an order as stored in the database.
type written struct {
	sale, user, key string
	status          model.OrderStatus
	units           int64
}

func (w written) live() bool { return w.status == model.OrderPending || w.status == model.OrderPaid }

// look checks the invariants whenever the books have changed, and compares the buyers' answers with the books.
func (s *sim) look() {
	var version int64
	s.must(s.books.db.QueryRowContext(context.Background(), "PRAGMA data_version").Scan(&version))
	changed := version != s.books.version
	if changed {
		before := s.books.orders
		s.books.version = version
		s.read()
		s.balance()
		s.moves(before)
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, a := range s.memory.fresh {
		s.owns(a)
	}
	s.memory.fresh = nil
}

// each runs a query of the checks and calls row for each row of the answer.
func (s *sim) each(query string, row func(scan func(into ...any))) {
	rows, err := s.books.db.QueryContext(context.Background(), query)
	s.must(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		row(func(into ...any) { s.must(rows.Scan(into...)) })
	}
	s.must(rows.Err())
}

func (s *sim) read() {
	b := &s.books
	b.stocks, b.orders, b.refused, b.buyers = map[string]stock{}, map[string]written{}, map[string]string{}, map[string]int64{}
	s.each("SELECT sale_id, quota, available, held, paid, epoch FROM stock", func(scan func(into ...any)) {
		var sale string
		var st stock
		scan(&sale, &st.quota, &st.available, &st.held, &st.paid, &st.epoch)
		b.stocks[sale] = st
	})
	s.each("SELECT id, sale_id, user_id, idempotency_key, status, quantity FROM orders", func(scan func(into ...any)) {
		var id string
		var w written
		scan(&id, &w.sale, &w.user, &w.key, &w.status, &w.units)
		if _, twice := b.orders[id]; twice {
			id += " again" // a second order under the id, which a check then finds
		}
		b.orders[id] = w
	})
	s.each("SELECT order_id, reason FROM refusals", func(scan func(into ...any)) {
		var id, reason string
		scan(&id, &reason)
		b.refused[id] = reason
	})
	s.each("SELECT sale_id, user_id, units FROM buyers WHERE units <> 0", func(scan func(into ...any)) {
		var sale, user string
		var units int64
		scan(&sale, &user, &units)
		b.buyers[sale+"/"+user] = units
	})
}

// balance checks the invariants that hold at every instant.
func (s *sim) balance() {
	type in struct {
		sale   string
		status model.OrderStatus
	}
	sums, units, keys := map[in]int64{}, map[string]int64{}, map[string]string{}
	for _, id := range sorted(s.books.orders) {
		w := s.books.orders[id]
		sums[in{w.sale, w.status}] += w.units
		if w.live() {
			units[w.sale+"/"+w.user] += w.units
		}
		key := w.sale + "/" + w.user + "/" + w.key
		if other, twice := keys[key]; twice {
			s.fail("two orders under one key: %s and %s", s.name(other), s.name(id))
		}
		keys[key] = id
		s.memory.mu.Lock()
		a := s.memory.attempts[id]
		s.memory.mu.Unlock()
		if a == nil || a.user != w.user || a.key != w.key || a.sale != w.sale || int64(a.quantity) != w.units {
			s.fail("nobody asked for the order %s of %s under %s", s.name(id), w.user, w.key)
		}
		if reason, both := s.books.refused[id]; both {
			s.fail("%s is an order and refused (%s)", s.name(id), reason)
		}
	}
	for _, sale := range s.sales {
		st, name := s.books.stocks[sale], s.name(sale)
		pending, paid := sums[in{sale, model.OrderPending}], sums[in{sale, model.OrderPaid}]
		if st.available < 0 || st.held < 0 || st.paid < 0 || st.available+st.held+st.paid != st.quota {
			s.fail("the stock of %s: %+v", name, st)
		}
		if st.held != pending || st.paid != paid {
			s.fail("the stock of %s says held %d and paid %d, its orders %d and %d", name, st.held, st.paid, pending, paid)
		}
		if pending+paid > st.quota {
			s.fail("%d units of %s sold, of %d", pending+paid, name, st.quota)
		}
	}
	for _, who := range sorted(units) {
		if units[who] > int64(s.plan.limit) {
			s.fail("%s has %d units, and may have %d", who, units[who], s.plan.limit)
		}
	}
	if !maps.Equal(units, s.books.buyers) {
		s.fail("users have %v units, and are counted with %v", units, s.books.buyers)
	}
}

// judge checks the verdicts of a settle or a deduction by the books from before it: a known attempt keeps its outcome, a
// new one needs units within its user's limit, and then of the stock. No other call happens at the same time.
func (s *sim) judge(outcomes []model.Outcome, attempt func(i int) model.Attempt) {
	units, decided, taken := maps.Clone(s.books.buyers), map[string]model.Verdict{}, map[string]int64{}
	for i, o := range outcomes {
		a := attempt(i)
		want, again := decided[a.ID]
		_, ordered := s.books.orders[a.ID]
		reason, refused := s.books.refused[a.ID]
		switch n, who := int64(a.Quantity), a.SaleID+"/"+a.UserID; {
		case again:
		case ordered:
			want = model.Accepted
		case refused:
			want = model.Verdict(reason)
		case o.Verdict == model.Paused: // the books do not show whether the sale is paused
			want = model.Paused
		case units[who]+n > int64(s.plan.limit):
			want = model.LimitReached
		case taken[a.SaleID]+n > s.books.stocks[a.SaleID].available:
			want = model.SoldOut
		default:
			want = model.Accepted
			taken[a.SaleID] += n
			units[who] += n
		}
		decided[a.ID] = want
		if o.Verdict != want {
			s.fail("%s: %s, want %s", s.name(a.ID), o.Verdict, want)
		}
	}
}

// accepts checks that a change of an order was accepted exactly if the order had the status for it.
func (s *sim) accepts(id string, status model.OrderStatus, verdict model.Verdict, err error) {
	if was := s.books.orders[id].status; err == nil && (verdict == model.Accepted) != (was == status) {
		s.fail("a change of the order %s, which was %s: %s", s.name(id), was, verdict)
	}
}

// moves checks that no order has disappeared, and that every change of a status was allowed.
func (s *sim) moves(before map[string]written) {
	for _, id := range sorted(before) {
		then, now := before[id].status, s.books.orders[id].status
		if now != then && !then.CanBecome(now) {
			s.fail("the order %s was %s and is %q now", s.name(id), then, now)
		}
	}
}

// owns checks that the order of a confirmed attempt exists.
func (s *sim) owns(a *attempt) {
	if w, ok := s.books.orders[a.id]; !ok || w.user != a.user || w.key != a.key {
		s.fail("%s was told that there is an order; there is %+v", a.name, w)
	}
}

// allEnded checks that every attempt that was queued before a time has ended: it is an order, or refused, or the gate
// doesn't know it either.
func (s *sim) allEnded(before time.Time) {
	if s.err != nil {
		return
	}
	s.rest()
	s.look()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, id := range sorted(s.memory.attempts) {
		a := s.memory.attempts[id]
		if a.queuedAt.IsZero() || a.queuedAt.After(before) {
			continue
		}
		_, ordered := s.books.orders[id]
		_, refused := s.books.refused[id]
		_, known, err := s.gate.Knows(context.Background(), refs(a.sale)[0], a.user, id)
		s.must(err)
		if known && !ordered && !refused {
			s.fail("%s is queued still", a.name)
		}
	}
}

// agreement checks, when nothing is in flight, that Redis, the database, the buyers and the provider agree about the
// sales.
func (s *sim) agreement() {
	if s.err != nil {
		return
	}
	s.rest()
	s.look()
	s.allEnded(time.Now())
	states, err := s.gate.Peek(bg, refs(s.sales...)...)
	s.must(err)
	for n, sale := range s.sales {
		st, gate := s.books.stocks[sale], states[n]
		if !gate.Open || gate.Epoch != st.epoch || gate.Left != st.available || gate.Inflight != 0 || gate.Stream != 0 {
			s.fail("the gate of %s is %+v, the stock %+v", s.name(sale), gate, st)
		}
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, id := range sorted(s.memory.attempts) {
		a := s.memory.attempts[id]
		if a.confirmed {
			s.owns(a)
		}
		if _, ordered := s.books.orders[id]; ordered && !a.confirmed && a.refused && a.tries == 0 {
			s.fail("%s was refused, and has an order", a.name)
		}
	}
	s.money()
}

// sameUnits reports whether the gates hold the same units for each user as the database. Changes that a gate has missed
// may cancel out in its left, so that only a comparison of all users finds them.
func (s *sim) sameUnits() bool {
	s.rest()
	s.look()
	counted := map[string]int64{}
	for _, sale := range s.sales {
		units, err := s.client.HGetAll(context.Background(), "fs:{"+sale+"}:units").Result()
		s.must(err)
		for user, text := range units {
			if !model.ValidUserID(user) { // an order's id, or the mark of the gate
				continue
			}
			n, err := strconv.ParseInt(text, 10, 64)
			s.must(err)
			counted[sale+"/"+user] = n
		}
	}
	return maps.Equal(counted, s.books.buyers)
}

// money checks that every buyer who paid has either the order or the money back. Its caller holds the lock.
func (s *sim) money() {
	keeping, seen := map[string]int{}, map[string]bool{}
	s.each("SELECT provider_txn_id, order_id, status FROM payments WHERE provider_txn_id <> ''", func(scan func(into ...any)) {
		var txn, order string
		var status model.PaymentStatus
		scan(&txn, &order, &status)
		seen[txn] = true
		refunded := s.memory.charges[txn] != nil && s.memory.charges[txn].refunded
		if status == model.PaymentSucceeded {
			keeping[order]++
		}
		if refunded != (status == model.PaymentRefunded) || status != model.PaymentSucceeded && status != model.PaymentRefunded {
			s.fail("%s is %s; sent back: %t", txn, status, refunded)
		}
	})
	for _, id := range sorted(s.books.orders) {
		if paid := s.books.orders[id].status == model.OrderPaid; keeping[id] != b2i(paid) {
			s.fail("the order of %s is %s, and %d payments of it are kept", s.books.orders[id].user, s.books.orders[id].status, keeping[id])
		}
	}
	for _, txn := range sorted(s.memory.charges) {
		if c := s.memory.charges[txn]; c.verdict == model.Accepted && !seen[txn] {
			s.fail("%s was taken, and is not in the books", txn)
		}
	}
}

// sellTheRest starts new buyers: they must get exactly the units left, and the others must be refused.
func (s *sim) sellTheRest() {
	if s.err != nil {
		return
	}
	rng := rand.New(rand.NewPCG(s.seed, 4))
	fresh := map[string][]*attempt{}
	left := map[string]int64{}
	for n, sale := range s.sales {
		left[sale] = s.books.stocks[sale].available
		for m := range left[sale] + 3 {
			user := fmt.Sprintf("r%d-%02d", n, m)
			b := &buyer{
				s: s, name: user, user: user, sale: sale, rng: rand.New(rand.NewPCG(s.seed, rng.Uint64())), keys: []string{"rest"}, once: true,
				delay: time.Duration(rng.IntN(200)) * time.Millisecond,
			}
			fresh[sale] = append(fresh[sale], s.attempt(user, sale, "rest", 1))
			s.send(b.run)
		}
	}
	s.until("the rest is sold", payTimeout, s.everybodyHome)
	for _, sale := range s.sales {
		sold, refused := int64(0), int64(0)
		for _, a := range fresh[sale] {
			sold += int64(b2i(a.confirmed))
			refused += int64(b2i(a.refused))
		}
		if s.err == nil && (sold != left[sale] || refused != 3) {
			s.fail("%d of the %d left of %s were sold, and %d refused", sold, left[sale], s.name(sale), refused)
		}
	}
}
