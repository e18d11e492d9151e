package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

// Settle writes admitted attempts on one sale as orders, or refuses them durably, all in one transaction. The outcomes
// are in the order of the entries: each is an order, or a refusal with its reason. An attempt that was settled before
// keeps its outcome. After an error the result is unknown, and the caller settles the same entries again. The exception
// is model.ErrBroken: this batch can never be settled.
func (s *Store) Settle(ctx context.Context, saleID string, entries []model.Entry) (outcomes []model.Outcome, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{
		Name: observe.Settle, Items: len(entries), OrderID: func(i int) string { return entries[i].ID },
	})
	defer func() { end(err) }()
	// The gate has judged the entries, so nearly always all are new and fit. Otherwise each entry is judged. The stock row
	// is the most contended one, so it is changed last, and a constraint ensures that there are enough units. Only if there
	// are not, the row is locked before orders are written, and the units left go to the entries in the order of admission.
	outcomes, err = s.insertEntries(ctx, entries)
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

// SettleSales settles admitted attempts on several sales in one transaction, if all of them are new and fit. Otherwise it
// changes nothing and returns model.ErrApart. After any other error the result is unknown. In both cases the caller then
// settles the entries of each sale by Settle.
func (s *Store) SettleSales(ctx context.Context, entries []model.Entry) (outcomes []model.Outcome, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{
		Name: observe.Settle, Items: len(entries), OrderID: func(i int) string { return entries[i].ID },
	})
	defer func() { end(err) }()
	outcomes, err = s.insertEntries(ctx, entries)
	if errors.Is(err, errNotNew) || errors.Is(err, errShort) {
		err = fmt.Errorf("%w: %w", model.ErrApart, err)
	}
	return outcomes, wrap("settle on several sales", err)
}

// errShort means that fewer units are left than the batch needs. It never leaves this package.
var errShort = errors.New("stock is short")

// errNotNew means that each attempt has to be judged, for example because one is known or exceeds its user's limit. It
// never leaves this package.
var errNotNew = errors.New("not all entries are new and fit")

func (s *Store) insertEntries(ctx context.Context, entries []model.Entry) ([]model.Outcome, error) {
	epoch := func(i int) int64 { return entries[i].Epoch }
	return s.insertNew(ctx, newBatch(attemptsOf(entries), nil), model.FromStream, epoch, holding)
}

// insertNew inserts an order for every attempt of a batch, or changes nothing. It returns errNotNew if not all attempts
// are new and fit, and errShort or model.ErrLostRace if not all units can be taken from the stock by the statement that
// take returns. Like settle and deduct, insertNew locks the buyers first and the stock last. On MySQL the statements are
// sent in as few calls as possible, because each call takes a round trip.
func (s *Store) insertNew(
	ctx context.Context, b *attemptBatch, source model.Source, epoch func(place int) int64, take func(units []saleUnits, of map[string]terms) statement,
) (_ []model.Outcome, err error) {
	if len(b.open) == 0 || len(b.open) < len(b.attempts) || slices.ContainsFunc(b.attempts, func(a model.Attempt) bool { return a.Quantity < 1 }) {
		return nil, errNotNew
	}
	sold := b.unitsByUser()
	sales := bySale(sold)
	campaigns, err := s.campaignsOf(s.read.WithContext(ctx), idsOfSales(sales)...)
	if err != nil {
		return nil, err
	}
	units := inCampaigns(sold, campaigns)
	known := map[string]terms{}
	if source == model.FromStream { // whose statement finds out whether the terms have changed
		known = s.knownTerms(sales)
		defer func() {
			if errors.Is(err, errNotNew) || errors.Is(err, errShort) {
				s.forgetTerms(sales)
			}
		}()
	}
	caller := ctx
	ctx, end := context.WithCancel(context.WithoutCancel(caller))
	defer end()
	running := &statements{}
	defer context.AfterFunc(caller, func() {
		s.kill(caller, running)
		end()
	})()
	err = s.transactInCalls(ctx, func(tx *gorm.DB) error {
		seen, err := s.beginNew(tx, units, sales, known)
		if err != nil {
			return err
		}
		defer running.on(seen.connection)()
		limit := func(u userUnits) int { return seen.limits[u.sale] }
		if len(seen.terms) < len(sales) || slices.ContainsFunc(units, func(u userUnits) bool { return u.n > limit(u) }) {
			return errNotNew
		}
		if !seen.allNew {
			err = s.fits(tx, seen.binding(units), limit, sales, b.attempts)
		}
		if err = cmp.Or(err, caller.Err()); err != nil {
			return err
		}
		orders := b.accept(func(saleID string) model.Offer { return seen.terms[saleID].offer }, seen.now, source, epoch)
		if source == model.FromStream {
			if _, err = s.endNew(tx, orders, take(sales, seen.terms), s.commit()); err == nil && s.sqlite {
				err = caller.Err() // on SQLite, the commit follows
			}
			return err
		}
		changed, err := s.endNew(tx, orders, take(sales, seen.terms))
		if err == nil && changed == 0 {
			err = model.ErrLostRace
		}
		if err == nil {
			err = s.tellGateOfSold(tx, sales[0].sale, epoch(0), b)
		}
		if err = cmp.Or(err, caller.Err()); err == nil {
			_, err = s.execute(tx, s.commit())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.outcomes, nil
}

// seen is what insertNew reads in its transaction.
type seen struct {
	allNew     bool             // no user had a row before, so none was refused: a refusal locks the row; always false on SQLite, which does not tell
	terms      map[string]terms // by sale
	limits     map[string]int   // of the sales and of their campaigns, by id
	now        time.Time        // by the database's clock
	connection int64            // on MySQL, the id of the transaction's connection
}

func (s *seen) add(t terms) {
	s.terms[t.offer.ID] = t
	s.limits[t.offer.ID], s.limits[t.offer.Campaign.ID] = t.offer.LimitPerUser, t.offer.Campaign.LimitPerUser
}

// binding leaves out the units in sales whose limit is at least that of their campaign: whoever is below the campaign's limit
// is below theirs.
func (s seen) binding(units []userUnits) (list []userUnits) {
	for _, u := range units {
		if campaign := s.terms[u.sale].offer.Campaign; campaign.ID == "" || s.limits[u.sale] < campaign.LimitPerUser {
			list = append(list, u)
		}
	}
	return list
}

// beginNew begins the transaction of insertNew: it adds the units to the users' rows, as addUnits does, and reads the terms of
// the sales, unless they are known.
func (s *Store) beginNew(tx *gorm.DB, units []userUnits, sales []saleUnits, known map[string]terms) (seen, error) {
	columns := "ROW_COUNT(), CONNECTION_ID()"
	if s.sqlite {
		columns = "0, 0"
	}
	read := statement{query: "SELECT " + columns + ", " + s.nowMillis()}
	if len(known) == 0 {
		for _, u := range sales {
			read.args = append(read.args, u.sale)
		}
		read.query += `, sales.id, price_cents, currency, sales.limit_per_user, pay_timeout_seconds, COALESCE(campaigns.id, ''),
			COALESCE(campaigns.limit_per_user, 0), terms
			FROM sales JOIN stock ON stock.sale_id = sales.id LEFT JOIN campaigns ON campaigns.id = campaign_id
			WHERE sales.id IN ` + places(len(sales))
	}
	calls := s.calls(slices.Concat([]statement{s.begin()}, s.adding(units), []statement{read})...)
	if _, err := s.execute(tx, calls[:len(calls)-1]...); err != nil {
		return seen{}, wrap("count buyers' units", err)
	}
	last := calls[len(calls)-1]
	rows, err := tx.Statement.ConnPool.QueryContext(tx.Statement.Context, last.query, last.args...)
	if err != nil {
		return seen{}, wrap("count buyers' units and read the sales", outages{tx.Dialector}.Translate(err))
	}
	defer func() { _ = rows.Close() }()
	got := seen{terms: make(map[string]terms, len(sales)), limits: make(map[string]int, len(sales))}
	for _, t := range known {
		got.add(t)
	}
	for rows.Next() {
		var t terms
		var changed, nowMs int64
		into := []any{&changed, &got.connection, &nowMs}
		if len(known) == 0 {
			into = append(into, &t.offer.ID, &t.offer.PriceCents, &t.offer.Currency, &t.offer.LimitPerUser, &t.offer.PayTimeoutSeconds,
				&t.offer.Campaign.ID, &t.offer.Campaign.LimitPerUser, &t.version)
		}
		if err := rows.Scan(into...); err != nil {
			return seen{}, wrap("read the sales", err)
		}
		if len(known) == 0 {
			got.add(t)
			s.terms.Store(t.offer.ID, t)
		}
		got.now, got.allNew = fromMillis(nowMs), changed == int64(len(units))
	}
	return got, wrap("read the sales", outages{tx.Dialector}.Translate(rows.Err()))
}

// endNew inserts the orders of insertNew, takes the units, and then executes the statements in end. changed is the number
// of rows that the last statement has changed.
func (s *Store) endNew(tx *gorm.DB, orders []*model.Order, take statement, end ...statement) (changed int64, err error) {
	changed, err = s.execute(tx, slices.Concat(s.insertingOrders(orders), []statement{take}, end)...)
	switch {
	case errors.Is(err, gorm.ErrDuplicatedKey):
		err = errNotNew
	case violated(err):
		err = errShort
	}
	return changed, err
}

// fits returns errNotNew if one of the users has more units than a user may have in the sale, or if one of the attempts was
// refused before. The rows of all sales with the same limit are one list, since the database looks a row up in a sorted list,
// but compares it with each of several conditions in turn. The attempts are looked up only if one of the sales has refusals.
func (s *Store) fits(tx *gorm.DB, units []userUnits, limit func(u userUnits) int, sales []saleUnits, attempts []model.Attempt) error {
	rows := map[int][]any{} // the sale and the user of each row, by limit
	for _, u := range units {
		rows[limit(u)] = append(rows[limit(u)], u.sale, u.user)
	}
	list := "" // how a list of rows begins
	if s.sqlite {
		list = "VALUES "
	}
	over, args := "", []any(nil)
	for most, of := range rows {
		over += " OR (sale_id, user_id) IN (" + list + strings.Repeat(", (?, ?)", len(of)/2)[len(", "):] + ") AND units > ?"
		args = append(append(args, of...), most)
	}
	var unfit int
	err := tx.Raw("SELECT (SELECT COUNT(*) FROM buyers WHERE"+strings.TrimPrefix(over, " OR")+") + CASE WHEN EXISTS (SELECT 1 FROM refusals"+
		" WHERE sale_id IN ?) THEN (SELECT COUNT(*) FROM refusals WHERE order_id IN ?) ELSE 0 END",
		append(args, idsOfSales(sales), idsOf(attempts))...).Scan(&unfit).Error
	if err == nil && unfit > 0 {
		err = errNotNew
	}
	return wrap("look for limits and refusals", err)
}

// holding returns the statement that moves units from available to held. It fails with errShort if a sale has fewer
// available, because of the constraint stock_not_negative. It does so as well if a sale has other terms than those in of, which
// may be nil.
func holding(sales []saleUnits, of map[string]terms) statement {
	ids := make([]any, len(sales))
	for i, u := range sales {
		ids[i] = u.sale
	}
	units, args := caseOf(sales, func(u saleUnits) int64 { return u.n })
	taken, all := units, slices.Clone(args)
	if of != nil {
		version, versions := caseOf(sales, func(u saleUnits) int64 { return of[u.sale].version })
		taken, all = "CASE WHEN terms = "+version+" THEN "+units+" ELSE available + 1 END", slices.Concat(versions, args)
	}
	return statement{
		"UPDATE stock SET available = available - " + taken + ", held = held + " + units + ", version = version + 1 WHERE sale_id IN " + places(len(ids)),
		slices.Concat(all, args, ids),
	}
}

// caseOf returns an expression that has a value for each sale. The database looks an id up in a list faster than it compares
// the id with one case for each sale.
func caseOf(sales []saleUnits, value func(u saleUnits) int64) (expression string, args []any) {
	ids := map[int64][]any{} // by value
	often := value(sales[0]) // what most sales have
	for _, u := range sales {
		v := value(u)
		if ids[v] = append(ids[v], u.sale); len(ids[v]) > len(ids[often]) {
			often = v
		}
	}
	if len(ids) == 1 {
		return "?", []any{often}
	}
	expression = "CASE"
	for v, of := range ids {
		if v != often {
			expression, args = expression+" WHEN sale_id IN "+places(len(of))+" THEN ?", append(append(args, of...), v)
		}
	}
	return expression + " ELSE ? END", append(args, often)
}

func (s *Store) settle(ctx context.Context, saleID string, entries []model.Entry, stockFirst bool) ([]model.Outcome, error) {
	attempts := attemptsOf(entries)
	campaigns, err := s.campaignsOf(s.read.WithContext(ctx), saleID)
	if err != nil {
		return nil, err
	}
	var b *attemptBatch
	err = s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, attempts, campaigns); err != nil {
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
		if err := s.admitBatch(tx, offer.Sale, b, available); err != nil {
			return err
		}
		orders := b.accept(func(string) model.Offer { return offer }, now, model.FromStream, func(i int) int64 { return entries[i].Epoch })
		if err := s.insertOrders(tx, orders); err != nil {
			return err
		}
		refused := b.refused()
		if err := insertRefusals(tx, refused, now); err != nil {
			return err
		}
		if slices.ContainsFunc(refused, func(r refusalRow) bool { return r.Reason == string(model.SoldOut) }) {
			// The gate admitted more units than the stock had. Any instance that reads the mark replaces the gate, also if this
			// instance dies.
			if err := tx.Exec("UPDATE stock SET wrong_epoch = epoch WHERE sale_id = ?", saleID).Error; err != nil {
				return fmt.Errorf("mark the gate as wrong: %w", err)
			}
		}
		if sales := bySale(b.unitsByUser()); len(sales) > 0 {
			_, err = s.execute(tx, holding(sales, nil))
		}
		if !stockFirst && violated(err) {
			err = errShort
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.answered(), nil
}

// Refuse writes a durable refusal of an admitted attempt that cannot be settled, unless the attempt already has an
// outcome. It returns the outcome that holds.
func (s *Store) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	campaigns, err := s.campaignsOf(s.read.WithContext(ctx), e.SaleID)
	if err != nil {
		return model.Outcome{}, fmt.Errorf("refuse %s: %w", e.ID, err)
	}
	var b *attemptBatch
	err = s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, []model.Attempt{e.Attempt}, campaigns); err != nil {
			return err
		}
		return s.refuseBatch(tx, b, reason)
	})
	if err != nil {
		return model.Outcome{}, fmt.Errorf("refuse %s: %w", e.ID, err)
	}
	return b.answered()[0], nil
}

func (s *Store) refuseBatch(tx *gorm.DB, b *attemptBatch, reason model.Verdict) error {
	now, err := s.nowOn(tx)
	if err != nil {
		return err
	}
	b.refuseRest(reason)
	return insertRefusals(tx, b.refused(), now)
}

// lockBatch locks the buyers rows of the attempts' users, in the order of the users, and only then reads which attempts
// are known. campaigns must have been read before the transaction: with its first read, a transaction fixes what it sees.
// Every transaction that settles, refuses or deducts an attempt locks these rows first, so each attempt is decided once.
func (s *Store) lockBatch(tx *gorm.DB, attempts []model.Attempt, campaigns map[string]string) (*attemptBatch, error) {
	none := make([]userUnits, len(attempts))
	for i, a := range attempts {
		none[i].sale, none[i].user = a.SaleID, a.UserID
	}
	if err := s.addUnits(tx, inCampaigns(byUser(none), campaigns)); err != nil {
		return nil, err
	}
	known, err := s.knownOutcomes(tx, attempts)
	if err != nil {
		return nil, err
	}
	return newBatch(attempts, known), nil
}

// admitBatch judges the open attempts on a sale of a locked batch. It adds the units of those that stay open to the rows
// of their users.
func (s *Store) admitBatch(tx *gorm.DB, sale model.Sale, b *attemptBatch, available int64) error {
	limits, err := s.limitsOf(tx, sale, b.users())
	if err != nil {
		return err
	}
	b.judge(limits, available)
	return s.addUnits(tx, inCampaigns(b.unitsByUser(), map[string]string{sale.ID: sale.Campaign.ID}))
}

// limitsOf reads what users hold of a sale, and of the campaign that the sale belongs to, with the limits.
func (s *Store) limitsOf(db *gorm.DB, sale model.Sale, users []string) ([]userLimit, error) {
	own, err := s.unitsOf(db, sale.ID, users)
	limits := []userLimit{{sale.LimitPerUser, own}}
	if err == nil && sale.Campaign.ID != "" {
		var common map[string]int
		common, err = s.unitsOf(db, sale.Campaign.ID, users)
		limits = append(limits, userLimit{sale.Campaign.LimitPerUser, common})
	}
	return limits, err
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
