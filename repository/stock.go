package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Deduct takes units for attempts on one sale, all in one transaction that holds only if the stock row's
// version is still the one that was read: optimistic locking, for one attempt or for many that gathered.
// The outcomes stand in the order of the attempts; every accepted one has a committed order.
// model.ErrLostRace: another writer was first, nothing was written, try again.
func (s *Store) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	outcomes := make([]model.Outcome, len(attempts))
	// Judged outside a transaction first: a refusal, the commonest answer of a rush, then writes nothing.
	db := s.read.WithContext(ctx)
	offer, now, ok, err := s.offerOn(db, saleID)
	if err != nil {
		return nil, err
	}
	known, err := s.knownOutcomes(db, attempts)
	if err != nil {
		return nil, err
	}
	verdict := model.NotFound
	if ok {
		verdict = offer.Judge(now)
	}
	b := newBatch(attempts, outcomes, known)
	if verdict != model.Accepted {
		b.refuseRest(verdict)
		return outcomes, nil
	}
	if offer.Stock.Available == 0 {
		units, err := s.unitsOf(db, saleID, b.users())
		if err != nil {
			return nil, err
		}
		b.refuseOverLimit(units, offer.LimitPerUser)
		b.refuseRest(model.SoldOut)
		return outcomes, nil
	}
	if len(b.open) == 0 {
		return outcomes, nil
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		b = newBatch(attempts, outcomes, known) // a repeat of the transaction starts afresh
		if err := s.takeUnits(tx, saleID, b, offer.LimitPerUser); err != nil {
			return err
		}
		if err := s.refuseBeyond(tx, saleID, b, offer.Stock.Available); err != nil {
			return err
		}
		if len(b.open) == 0 {
			return errTakenBack
		}
		orders := b.accept(offer, now, model.FromDatabase, offer.Stock.Epoch)
		if err := insertOrders(tx, orders); err != nil {
			return err
		}
		n := b.units()
		res := tx.Exec("UPDATE stock SET available = available - ?, held = held + ?, version = version + 1 WHERE sale_id = ? AND version = ?",
			n, n, saleID, offer.Stock.Version)
		if res.Error == nil && res.RowsAffected == 0 {
			return model.ErrLostRace
		}
		return res.Error
	})
	switch {
	case errors.Is(err, errTakenBack):
		err = nil
	case errors.Is(err, gorm.ErrDuplicatedKey):
		err = model.ErrLostRace // another writer settled one of these attempts in between
	}
	if err != nil {
		return nil, fmt.Errorf("deduct on sale %s: %w", saleID, err)
	}
	return outcomes, nil
}

// Settle writes admitted attempts on one sale as orders, or refuses them durably, all in one transaction.
// The outcomes stand in the order of the attempts: an order, or a refusal with its reason. An attempt that
// was settled before keeps what it got then. After an error nothing is known: settle the same again, unless
// it is model.ErrBroken.
func (s *Store) Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	// The stock row is the hottest: at first it is touched last, by one conditional statement. Only when
	// the units don't suffice for all is it locked first, to give what is left in the order of admission.
	outcomes, err := s.settle(ctx, saleID, entries, false)
	if errors.Is(err, errShort) {
		outcomes, err = s.settle(ctx, saleID, entries, true)
	}
	if err != nil {
		if broken(err) {
			err = fmt.Errorf("%w: %w", model.ErrBroken, err)
		}
		return nil, fmt.Errorf("settle on sale %s: %w", saleID, err)
	}
	return outcomes, nil
}

// errShort: fewer units are left than the batch needs; it never leaves this package.
var errShort = errors.New("stock is short")

func (s *Store) settle(ctx context.Context, saleID string, entries []model.Entry, stockFirst bool) ([]model.Outcome, error) {
	attempts := make([]model.Attempt, len(entries))
	epoch := int64(0)
	for i, e := range entries {
		attempts[i] = e.Attempt
		epoch = max(epoch, e.Epoch)
	}
	outcomes := make([]model.Outcome, len(attempts))
	err := s.transact(ctx, func(tx *gorm.DB) error {
		clear(outcomes)
		offer, now, ok, err := s.offerOn(tx, saleID)
		if err != nil {
			return err
		}
		known, err := s.knownOutcomes(tx, attempts)
		if err != nil {
			return err
		}
		b := newBatch(attempts, outcomes, known)
		if !ok {
			b.refuseRest(model.NotFound)
			return insertRefusals(tx, b.refused(), now)
		}
		if err := s.takeUnits(tx, saleID, b, offer.LimitPerUser); err != nil {
			return err
		}
		if stockFirst {
			var available int64
			if err := tx.Raw("SELECT available FROM stock WHERE sale_id = ?"+s.forUpdate(), saleID).Scan(&available).Error; err != nil {
				return err
			}
			if err := s.refuseBeyond(tx, saleID, b, available); err != nil {
				return err
			}
		}
		if err := insertOrders(tx, b.accept(offer, now, model.FromStream, epoch)); err != nil {
			return err
		}
		if err := insertRefusals(tx, b.refused(), now); err != nil {
			return err
		}
		n := b.units()
		if n == 0 {
			return nil
		}
		res := tx.Exec("UPDATE stock SET available = available - ?, held = held + ?, version = version + 1 WHERE sale_id = ? AND available >= ?",
			n, n, saleID, n)
		if res.Error == nil && res.RowsAffected == 0 {
			return errShort
		}
		return res.Error
	})
	return outcomes, err
}

// Refuse writes a durable no to an admitted attempt that can't be settled, unless it already is an order.
func (s *Store) Refuse(ctx context.Context, a model.Entry, reason model.Verdict) (model.Outcome, error) {
	outcomes := make([]model.Outcome, 1)
	attempts := []model.Attempt{a.Attempt}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		now, err := s.nowOn(tx)
		if err != nil {
			return err
		}
		known, err := s.knownOutcomes(tx, attempts)
		if err != nil {
			return err
		}
		b := newBatch(attempts, outcomes, known)
		b.refuseRest(reason)
		return insertRefusals(tx, b.refused(), now)
	})
	if err != nil {
		return model.Outcome{}, fmt.Errorf("refuse %s: %w", a.ID, err)
	}
	return outcomes[0], nil
}

// takeUnits adds the attempts' units to their users' rows, which locks them in the order of the users, and
// refuses what goes over the limit.
func (s *Store) takeUnits(tx *gorm.DB, saleID string, b *batch, limit int) error {
	if len(b.open) == 0 {
		return nil
	}
	wanted := b.unitsByUser()
	if err := s.addUnits(tx, saleID, wanted); err != nil {
		return err
	}
	units, err := s.unitsOf(tx, saleID, b.users())
	if err != nil {
		return err
	}
	for user, n := range wanted {
		units[user] -= n
	}
	return s.returnUnits(tx, saleID, b.refuseOverLimit(units, limit))
}

// refuseBeyond refuses as sold out what doesn't fit into the available units, in the order of arrival.
func (s *Store) refuseBeyond(tx *gorm.DB, saleID string, b *batch, available int64) error {
	return s.returnUnits(tx, saleID, b.refuseBeyond(available))
}

func (s *Store) unitsOf(db *gorm.DB, saleID string, users []string) (map[string]int, error) {
	units := make(map[string]int, len(users))
	if len(users) == 0 {
		return units, nil
	}
	var rows []struct {
		UserID string
		Units  int
	}
	err := db.Raw("SELECT user_id, units FROM buyers WHERE sale_id = ? AND user_id IN ?", saleID, users).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read buyers: %w", err)
	}
	for _, r := range rows {
		units[r.UserID] = r.Units
	}
	return units, nil
}

func (s *Store) addUnits(tx *gorm.DB, saleID string, units map[string]int) error {
	users := sortedKeys(units)
	args := make([]any, 0, 3*len(users))
	for _, user := range users {
		args = append(args, saleID, user, units[user])
	}
	onConflict := "ON DUPLICATE KEY UPDATE units = units + VALUES(units)"
	if s.sqlite {
		onConflict = "ON CONFLICT (sale_id, user_id) DO UPDATE SET units = units + excluded.units"
	}
	rows := strings.Repeat(", (?, ?, ?)", len(users))[2:]
	if err := tx.Exec("INSERT INTO buyers (sale_id, user_id, units) VALUES "+rows+" "+onConflict, args...).Error; err != nil {
		return fmt.Errorf("count buyers' units: %w", err)
	}
	return nil
}

func (s *Store) returnUnits(tx *gorm.DB, saleID string, units map[string]int) error {
	if len(units) == 0 {
		return nil
	}
	users := sortedKeys(units)
	args := make([]any, 0, 2*len(users)+2)
	for _, user := range users {
		args = append(args, user, units[user])
	}
	cases := strings.Repeat(" WHEN ? THEN ?", len(users))
	err := tx.Exec("UPDATE buyers SET units = units - CASE user_id"+cases+" END WHERE sale_id = ? AND user_id IN ?",
		append(args, saleID, users)...).Error
	if err != nil {
		return fmt.Errorf("return buyers' units: %w", err)
	}
	return nil
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// batch sorts attempts into those with an outcome and those still open, in the order of arrival.
type batch struct {
	attempts []model.Attempt
	outcomes []model.Outcome
	open     []int // places in attempts
	closed   []int // places that this batch refused
	first    map[string]int
}

// newBatch gives every known attempt the outcome that it had. An id that comes twice is decided once.
func newBatch(attempts []model.Attempt, outcomes []model.Outcome, known map[string]model.Outcome) *batch {
	b := &batch{attempts: attempts, outcomes: outcomes, first: make(map[string]int, len(attempts))}
	for i, a := range attempts {
		outcome, isKnown := known[a.ID]
		_, twice := b.first[a.ID]
		switch {
		case isKnown:
			outcomes[i] = a.Replay(outcome)
		case !twice:
			b.first[a.ID] = i
			b.open = append(b.open, i)
		}
	}
	return b
}

func (b *batch) users() []string { return sortedKeys(b.unitsByUser()) }

func (b *batch) unitsByUser() map[string]int {
	units := make(map[string]int, len(b.open))
	for _, i := range b.open {
		units[b.attempts[i].UserID] += b.attempts[i].Quantity
	}
	return units
}

func (b *batch) units() (n int64) {
	for _, i := range b.open {
		n += int64(b.attempts[i].Quantity)
	}
	return n
}

// refuse takes from the open attempts those that fit says no to, and gives their units by user.
func (b *batch) refuse(verdict model.Verdict, fits func(model.Attempt) bool) map[string]int {
	returned := map[string]int{}
	b.open = slices.DeleteFunc(b.open, func(i int) bool {
		a := b.attempts[i]
		if fits(a) {
			return false
		}
		b.outcomes[i] = model.Outcome{Verdict: verdict}
		b.closed = append(b.closed, i)
		returned[a.UserID] += a.Quantity
		return true
	})
	return returned
}

func (b *batch) refuseOverLimit(units map[string]int, limit int) map[string]int {
	return b.refuse(model.LimitReached, func(a model.Attempt) bool {
		if units[a.UserID]+a.Quantity > limit {
			return false
		}
		units[a.UserID] += a.Quantity
		return true
	})
}

func (b *batch) refuseBeyond(available int64) map[string]int {
	return b.refuse(model.SoldOut, func(a model.Attempt) bool {
		if int64(a.Quantity) > available {
			return false
		}
		available -= int64(a.Quantity)
		return true
	})
}

func (b *batch) refuseRest(verdict model.Verdict) {
	b.refuse(verdict, func(model.Attempt) bool { return false })
	b.answerTwins()
}

// accept makes an order of every open attempt.
func (b *batch) accept(offer model.Offer, now time.Time, source model.Source, epoch int64) []*model.Order {
	orders := make([]*model.Order, 0, len(b.open))
	for _, i := range b.open {
		a := b.attempts[i]
		order := &model.Order{
			ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity,
			AmountCents: int64(a.Quantity) * offer.PriceCents, Currency: offer.Currency,
			Status: model.OrderPending, Source: source, Epoch: epoch,
			RequestKey: a.RequestKey, RequestHash: a.RequestHash,
			CreatedAt: now, ExpiresAt: now.Add(time.Duration(offer.PayTimeoutSeconds) * time.Second),
		}
		b.outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: order}
		orders = append(orders, order)
	}
	b.answerTwins()
	return orders
}

// answerTwins gives an attempt that stood twice in the batch the outcome of its first place.
func (b *batch) answerTwins() {
	for i, a := range b.attempts {
		if first, ok := b.first[a.ID]; ok && first != i {
			b.outcomes[i] = a.Replay(b.outcomes[first])
		}
	}
}

func (b *batch) refused() []refusalRow {
	rows := make([]refusalRow, 0, len(b.closed))
	for _, i := range b.closed {
		a := b.attempts[i]
		rows = append(rows, refusalRow{
			OrderID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity,
			Reason: string(b.outcomes[i].Verdict), RequestHash: a.RequestHash,
		})
	}
	return rows
}
