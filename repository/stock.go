package repository

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Settle writes admitted attempts on one sale as orders, or refuses them durably, all in one transaction.
// The outcomes stand in the order of the attempts: an order, or a refusal with its reason. An attempt that
// was settled before keeps what it got then. After an error nothing is known: settle the same again, unless
// it is model.ErrBroken.
func (s *Store) Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	// Nearly always every entry is new and fits, since the gate has seen to it: then four statements do. If not,
	// each entry is looked at. The stock row is the hottest and touched last, by one conditional statement; only
	// when the units don't suffice for all is it locked first, to give what is left in the order of admission.
	outcomes, err := s.settleNew(ctx, saleID, entries)
	if errors.Is(err, errNotNew) {
		outcomes, err = s.settle(ctx, saleID, entries, false)
	}
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

// errNotNew: an entry is known, or too much for its user; it never leaves this package.
var errNotNew = errors.New("not all entries are new and fit")

// settleNew makes an order of every entry, or changes nothing: errNotNew, errShort. It takes the locks in the same
// order as settle does: buyers, orders, stock.
func (s *Store) settleNew(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	b := newBatch(attemptsOf(entries), nil)
	if len(b.open) < len(entries) {
		return nil, errNotNew
	}
	ids, units := make([]string, len(entries)), b.unitsByUser()
	for i, e := range entries {
		ids[i] = e.ID
	}
	users := sortedKeys(units)
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.addUnits(tx, saleID, units); err != nil {
			return err
		}
		var seen struct {
			Row   offerRow `gorm:"embedded"`
			Unfit int
		}
		err := tx.Raw("SELECT "+offerColumns+s.nowMillis()+` AS now_ms,
			(SELECT COUNT(*) FROM buyers WHERE sale_id = sales.id AND user_id IN ? AND units > limit_per_user)
			+ (SELECT COUNT(*) FROM refusals WHERE order_id IN ?) AS unfit
			FROM sales JOIN stock ON sale_id = sales.id WHERE sales.id = ?`, users, ids, saleID).Scan(&seen).Error
		if err != nil {
			return fmt.Errorf("read the sale: %w", err)
		}
		if seen.Row.ID == "" || seen.Unfit > 0 {
			return errNotNew
		}
		orders := b.accept(seen.Row.offer(), fromMillis(seen.Row.NowMs), model.FromStream, func(i int) int64 { return entries[i].Epoch })
		if err := insertOrders(tx, orders); errors.Is(err, gorm.ErrDuplicatedKey) {
			return errNotNew
		} else if err != nil {
			return err
		}
		return s.hold(tx, saleID, b.units())
	})
	if err != nil {
		return nil, err
	}
	return b.outcomes, nil
}

// hold moves available units to held ones, or finds too few: errShort.
func (s *Store) hold(tx *gorm.DB, saleID string, n int64) error {
	res := tx.Exec("UPDATE stock SET available = available - ?, held = held + ?, version = version + 1 WHERE sale_id = ? AND available >= ?",
		n, n, saleID, n)
	if res.Error == nil && res.RowsAffected == 0 {
		return errShort
	}
	return res.Error
}

func attemptsOf(entries []model.Entry) []model.Attempt {
	attempts := make([]model.Attempt, len(entries))
	for i, e := range entries {
		attempts[i] = e.Attempt
	}
	return attempts
}

func (s *Store) settle(ctx context.Context, saleID string, entries []model.Entry, stockFirst bool) ([]model.Outcome, error) {
	attempts := attemptsOf(entries)
	var b *batch
	err := s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, saleID, attempts); err != nil {
			return err
		}
		offer, now, ok, err := s.offerOn(tx, saleID)
		if err != nil {
			return err
		}
		if !ok {
			return s.refuseBatch(tx, b, model.NotFound)
		}
		available := int64(math.MaxInt64)
		if stockFirst {
			if err := tx.Raw("SELECT available FROM stock WHERE sale_id = ?"+s.forUpdate(), saleID).Scan(&available).Error; err != nil {
				return err
			}
		}
		if err := s.admitBatch(tx, saleID, b, offer.LimitPerUser, available); err != nil {
			return err
		}
		orders := b.accept(offer, now, model.FromStream, func(i int) int64 { return entries[i].Epoch })
		if err := insertOrders(tx, orders); err != nil {
			return err
		}
		if err := insertRefusals(tx, b.refused(), now); err != nil {
			return err
		}
		if n := b.units(); n > 0 {
			return s.hold(tx, saleID, n)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.answered(), nil
}

// Refuse writes a durable no to an admitted attempt that can't be settled, unless it already is an order.
func (s *Store) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	var b *batch
	err := s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, e.SaleID, []model.Attempt{e.Attempt}); err != nil {
			return err
		}
		return s.refuseBatch(tx, b, reason)
	})
	if err != nil {
		return model.Outcome{}, fmt.Errorf("refuse %s: %w", e.ID, err)
	}
	return b.answered()[0], nil
}

func (s *Store) refuseBatch(tx *gorm.DB, b *batch, reason model.Verdict) error {
	now, err := s.nowOn(tx)
	if err != nil {
		return err
	}
	b.refuseRest(reason)
	return insertRefusals(tx, b.refused(), now)
}

// lockBatch locks the rows of the attempts' users, in the order of the users, and only then looks which attempts
// are known: whoever settles, refuses or deducts one of them has to pass here, so each is decided once.
func (s *Store) lockBatch(tx *gorm.DB, saleID string, attempts []model.Attempt) (*batch, error) {
	none := make(map[string]int, len(attempts))
	for _, a := range attempts {
		none[a.UserID] = 0
	}
	if err := s.addUnits(tx, saleID, none); err != nil {
		return nil, err
	}
	known, err := s.knownOutcomes(tx, attempts)
	if err != nil {
		return nil, err
	}
	return newBatch(attempts, known), nil
}

// admitBatch decides the open attempts of a locked batch and adds the units of those that stay open to their users'.
func (s *Store) admitBatch(tx *gorm.DB, saleID string, b *batch, limit int, available int64) error {
	units, err := s.unitsOf(tx, saleID, b.users())
	if err != nil {
		return err
	}
	b.judge(units, limit, available)
	return s.addUnits(tx, saleID, b.unitsByUser())
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

// addUnits adds to the users' units on a sale, and locks their rows even where it adds none.
func (s *Store) addUnits(tx *gorm.DB, saleID string, units map[string]int) error {
	if len(units) == 0 {
		return nil
	}
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
func newBatch(attempts []model.Attempt, known map[string]model.Outcome) *batch {
	b := &batch{attempts: attempts, outcomes: make([]model.Outcome, len(attempts)), first: make(map[string]int, len(attempts))}
	for i, a := range attempts {
		outcome, isKnown := known[a.ID]
		_, twice := b.first[a.ID]
		switch {
		case isKnown:
			b.outcomes[i] = a.Replay(outcome)
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

// judge decides the open attempts in the order of their arrival, given what each user holds and how many units
// are available. Those that fit stay open.
func (b *batch) judge(units map[string]int, limit int, available int64) {
	b.open = slices.DeleteFunc(b.open, func(i int) bool {
		a := b.attempts[i]
		switch {
		case units[a.UserID]+a.Quantity > limit:
			b.refuse(i, model.LimitReached)
		case int64(a.Quantity) > available:
			b.refuse(i, model.SoldOut)
		default:
			units[a.UserID] += a.Quantity
			available -= int64(a.Quantity)
			return false
		}
		return true
	})
}

func (b *batch) refuse(i int, verdict model.Verdict) {
	b.outcomes[i] = model.Outcome{Verdict: verdict}
	b.closed = append(b.closed, i)
}

func (b *batch) refuseRest(verdict model.Verdict) {
	for _, i := range b.open {
		b.refuse(i, verdict)
	}
	b.open = nil
}

// accept makes an order of every open attempt; epoch gives that of the attempt in a place.
func (b *batch) accept(offer model.Offer, now time.Time, source model.Source, epoch func(place int) int64) []*model.Order {
	orders := make([]*model.Order, 0, len(b.open))
	for _, i := range b.open {
		a := b.attempts[i]
		order := &model.Order{
			ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity,
			AmountCents: int64(a.Quantity) * offer.PriceCents, Currency: offer.Currency,
			Status: model.OrderPending, Source: source, Epoch: epoch(i),
			RequestKey: a.RequestKey, RequestHash: a.RequestHash,
			CreatedAt: now, ExpiresAt: now.Add(time.Duration(offer.PayTimeoutSeconds) * time.Second),
		}
		b.outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: order}
		orders = append(orders, order)
	}
	return orders
}

// answered gives the outcomes of a decided batch; an attempt that stood twice in it has that of its first place.
func (b *batch) answered() []model.Outcome {
	for i, a := range b.attempts {
		if first, ok := b.first[a.ID]; ok && first != i {
			b.outcomes[i] = a.Replay(b.outcomes[first])
		}
	}
	return b.outcomes
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
