package repository

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// guard says which units of a stock row new orders get, and what keeps other orders from getting the same ones.
type guard int

// With the first six, orders get available units.
const (
	byConstraint guard = iota // a constraint fails if too few units are available
	byTerms                   // the same constraint also fails if the sale has other terms than those of the supply
	byStock                   // the row is locked, and read, before the orders are written
	byVersion                 // the row must still have the version that was read
	byLock                    // the row is locked, and read, after the orders were written
	byNothing                 // the row is overwritten with what follows from an earlier read, whatever has changed since
	byCalls                   // the units behind the buyers' calls, which end
	byDraw                    // units reserved for the line, for entries that were drawn
)

// supply is where the units of a batch come from.
type supply struct {
	guard  guard
	source model.Source     // of the orders
	epochs []int64          // of the orders, one for each attempt; nil: all have the sale's epoch
	terms  map[string]terms // of the sales, by id; nil: not read yet
	now    time.Time        // the database's clock at the last read, which the orders get as CreatedAt
	spent  []any            // the numbers of the entries in line that get the units
	called int64            // the units behind the calls of these entries
}

// readTerms stores in "from" the terms of a sale and the time of the read, but no terms if there is no such sale.
func (s *Store) readTerms(db *gorm.DB, saleID string, from *supply) error {
	offer, now, ok, err := s.offerOn(db, saleID)
	if from.terms, from.now = map[string]terms{}, now; ok {
		from.terms = termsOf(offer)
	}
	return err
}

func termsOf(offer model.Offer) map[string]terms {
	return map[string]terms{offer.ID: {offer, offer.Stock.Terms}}
}

// limits returns the limit per user of each sale and of each campaign, by id.
func (f supply) limits() map[string]int {
	limits := make(map[string]int, len(f.terms))
	for id, t := range f.terms {
		limits[id], limits[t.offer.Campaign.ID] = t.offer.LimitPerUser, t.offer.Campaign.LimitPerUser
	}
	return limits
}

// errShort means that fewer units are left than a batch needs or, with byTerms, that the terms may have changed. errNotNew means
// that each attempt has to be judged.
var errShort, errNotNew = errors.New("stock is short"), errors.New("not all entries are new and fit")

// sell makes an order of each open attempt of a batch, and takes the units from the stock. The users' rows are locked and have
// the units already. The stock row, the most contended one, is changed after the orders are written. The statements in "end",
// such as COMMIT, follow that change. "end" must be empty with byVersion, and if the gate has to be told.
//
// sell returns errShort; model.ErrLostRace if the stock row has another version; errOtherTerms if, with byLock, the sale was
// changed before its row was locked; or gorm.ErrDuplicatedKey if one of the orders exists.
func (s *Store) sell(tx *gorm.DB, b *attemptBatch, from supply, end ...statement) error {
	sales := bySale(b.unitsByUser())
	write := s.insertingOrders(b.accept(from))
	if from.guard == byLock {
		if _, err := s.execute(tx, write...); err != nil {
			return wrap("insert orders", err)
		}
		stock, err := s.lockTerms(tx, from.terms[sales[0].sale].offer)
		if err != nil {
			return err
		}
		if stock.Available < sales[0].n {
			return errShort
		}
		write = nil
	}
	changed, err := s.execute(tx, slices.Concat(write, taking(sales, from), end)...)
	switch {
	case (from.guard == byTerms || from.guard == byConstraint) && violated(err):
		return errShort
	case err != nil:
		return wrap("insert orders and take their units", err)
	case from.guard == byVersion && changed == 0:
		return model.ErrLostRace
	case from.source == model.FromDatabase:
		return s.tellGateOfSold(tx, from.terms[sales[0].sale].offer, b)
	}
	return nil
}

// taking returns the statements that take the units of new orders. The last of them changes a stock row.
func taking(sales []saleUnits, from supply) []statement {
	sale, n := sales[0].sale, sales[0].n // the only sale, except with byTerms
	offer := from.terms[sale].offer
	const move = "UPDATE stock SET available = available - ?, held = held + ?, " + nextGateVersion + " WHERE sale_id = ?"
	switch from.guard {
	case byTerms:
		return []statement{holding(sales, from.terms)}
	case byConstraint, byStock:
		return []statement{holding(sales, nil)}
	case byVersion:
		return []statement{{move + " AND version = ?", []any{n, n, sale, offer.Stock.Version}}}
	case byLock:
		return []statement{{move, []any{n, n, sale}}}
	case byNothing:
		left := offer.Stock.Available - n
		const set = "UPDATE stock SET available = ?, held = quota - paid - ?, " + nextGateVersion + " WHERE sale_id = ?"
		return []statement{{set, []any{left, left, sale}}}
	case byCalls:
		return endingCalls(offer.Sale, from.spent, model.EntrySpent, from.called, n)
	case byDraw:
		return []statement{
			entriesBecome(sale, from.spent, model.EntrySpent),
			{"UPDATE stock SET reserved = reserved - ?, held = held + ?, version = version + 1 WHERE sale_id = ?", []any{n, n, sale}},
		}
	}
	return nil
}

// sellNew sells to all attempts of a batch in one transaction, in few calls of the database. If not all attempts are new and fit,
// it changes nothing and returns errNotNew. Its other errors are those of sell and of transact.
func (s *Store) sellNew(ctx context.Context, b *attemptBatch, from supply) (_ []model.Outcome, err error) {
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
	if from.guard == byTerms { // sell finds out whether these terms have changed
		from.terms = s.knownTerms(sales)
		defer func() {
			if errors.Is(err, errNotNew) || errors.Is(err, errShort) {
				for _, u := range sales {
					s.terms.Delete(u.sale)
				}
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
		from := from
		allNew, connection, err := s.beginNew(tx, units, sales, &from)
		if err != nil {
			return err
		}
		running.on(connection)
		defer running.on(0)
		limits := from.limits()
		if len(from.terms) < len(sales) || slices.ContainsFunc(units, func(u userUnits) bool { return u.n > limits[u.sale] }) {
			return errNotNew
		}
		if !allNew {
			err = s.fits(tx, units, from, sales, b.attempts)
		}
		if err = cmp.Or(err, caller.Err()); err != nil {
			return err
		}
		if from.guard == byTerms && !s.sqlite { // a constraint decides, so the commit goes with the last call
			err = s.sell(tx, b, from, s.commit())
		} else if err = cmp.Or(s.sell(tx, b, from), caller.Err()); err == nil {
			_, err = s.execute(tx, s.commit())
		}
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			err = errNotNew
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.outcomes, nil
}

// beginNew begins the transaction of sellNew: it adds the units to the users' rows, and reads the clock and, unless they are
// known, the terms of the sales. allNew is true if no user had a row before, so that none of the attempts was refused before. On
// SQLite it is false. connection is the id of the transaction's connection on MySQL.
func (s *Store) beginNew(tx *gorm.DB, units []userUnits, sales []saleUnits, from *supply) (allNew bool, connection int64, err error) {
	read := statement{query: "SELECT " + s.dialect("ROW_COUNT(), CONNECTION_ID()", "0, 0") + ", " + s.nowMillis()}
	known := len(from.terms) > 0
	var changed int64
	var t terms
	into := []any{&changed, &connection, millis(&from.now)}
	if !known {
		from.terms = make(map[string]terms, len(sales))
		read.args = each(sales, func(u saleUnits) any { return u.sale })
		read.query += `, sales.id, price_cents, currency, sales.limit_per_user, pay_timeout_seconds, COALESCE(campaigns.id, ''),
			COALESCE(campaigns.limit_per_user, 0), terms
			FROM sales JOIN stock ON stock.sale_id = sales.id LEFT JOIN campaigns ON campaigns.id = campaign_id
			WHERE sales.id IN ` + places(len(sales))
		into = append(into, &t.offer.ID, &t.offer.PriceCents, &t.offer.Currency, &t.offer.LimitPerUser, &t.offer.PayTimeoutSeconds,
			&t.offer.Campaign.ID, &t.offer.Campaign.LimitPerUser, &t.version)
	}
	calls := s.calls(slices.Concat([]statement{s.begin()}, s.adding(units), []statement{read})...)
	if _, err := s.execute(tx, calls[:len(calls)-1]...); err != nil {
		return false, 0, wrap("count buyers' units", err)
	}
	last := calls[len(calls)-1]
	rows, err := tx.Statement.ConnPool.QueryContext(tx.Statement.Context, last.query, last.args...)
	if err != nil {
		return false, 0, wrap("count buyers' units and read the sales", outages{tx.Dialector}.Translate(err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return false, 0, wrap("read the sales", err)
		}
		if !known {
			from.terms[t.offer.ID] = t
			s.terms.Store(t.offer.ID, t)
		}
	}
	return changed == int64(len(units)), connection, wrap("read the sales", outages{tx.Dialector}.Translate(rows.Err()))
}

// fits returns errNotNew if one of the users has more units than the sale or its campaign allows, or if one of the attempts was
// refused before. It puts the rows of all sales with the same limit into one list, in which the database finds a row faster than
// in many short ones. It looks for refused attempts only if one of the sales has refusals.
func (s *Store) fits(tx *gorm.DB, units []userUnits, from supply, sales []saleUnits, attempts []model.Attempt) error {
	rows, limits := map[int][]any{}, from.limits() // the sale and the user of each row, by limit
	for _, u := range units {
		// A user within the limit of the campaign is within that of the sale, unless the sale's limit is lower.
		if campaign := from.terms[u.sale].offer.Campaign; campaign.ID == "" || limits[u.sale] < campaign.LimitPerUser {
			rows[limits[u.sale]] = append(rows[limits[u.sale]], u.sale, u.user)
		}
	}
	list := s.dialect("", "VALUES ") // SQLite needs the word before a list of rows
	over, args := "", []any(nil)
	for most, of := range rows {
		over += " OR (sale_id, user_id) IN (" + list + strings.Repeat(", (?, ?)", len(of)/2)[len(", "):] + ") AND units > ?"
		args = append(append(args, of...), most)
	}
	unfit, err := cell[int](tx, "look for limits and refusals", "SELECT (SELECT COUNT(*) FROM buyers WHERE"+strings.TrimPrefix(over, " OR")+
		") + CASE WHEN EXISTS (SELECT 1 FROM refusals WHERE sale_id IN ?) THEN (SELECT COUNT(*) FROM refusals WHERE order_id IN ?) ELSE 0 END",
		append(args, idsOfSales(sales), idsOf(attempts))...)
	if err == nil && unfit > 0 {
		err = errNotNew
	}
	return err
}

// holding returns the statement that moves units from available to held. It violates stock_not_negative if a sale has too few
// units available or, if "of" is not nil, if a sale has other terms than those in "of".
func holding(sales []saleUnits, of map[string]terms) statement {
	ids := each(sales, func(u saleUnits) any { return u.sale })
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

// caseOf returns an SQL expression that has a value for each sale. Sales with the same value share a list of ids, in which the
// database finds an id faster than in one case for each sale.
func caseOf(sales []saleUnits, value func(u saleUnits) int64) (expression string, args []any) {
	ids := map[int64][]any{} // by value
	often := value(sales[0]) // the most frequent value
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

// sellJudged judges each attempt of a batch on one sale, and sells to those that fit, in one transaction. If the attempts come
// from a gate, it stores their refusals. The errors are those of sell, transact and judgeCalls.
func (s *Store) sellJudged(ctx context.Context, saleID string, attempts []model.Attempt, from supply) ([]model.Outcome, error) {
	campaigns, err := s.campaignsOf(s.read.WithContext(ctx), saleID)
	if err != nil {
		return nil, err
	}
	var b *attemptBatch
	err = s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, attempts, campaigns); err != nil {
			return err
		}
		from := from
		if err := s.judge(tx, b, saleID, &from); err != nil {
			return err
		}
		if from.source == model.FromStream {
			if err := s.refuseDurably(tx, b); err != nil || len(b.open) == 0 {
				return err
			}
		}
		if len(b.open) == 0 {
			return errTakenBack
		}
		if err := s.addUnits(tx, inCampaigns(b.unitsByUser(), campaigns)); err != nil {
			return err
		}
		return s.sell(tx, b, from)
	})
	if err != nil && !errors.Is(err, errTakenBack) {
		return nil, err
	}
	return b.answered(), nil
}

// judge refuses open attempts that the sale, the limits or the supply do not allow. It adds terms and calls to "from".
func (s *Store) judge(db *gorm.DB, b *attemptBatch, saleID string, from *supply) error {
	if from.terms == nil {
		if err := s.readTerms(db, saleID, from); err != nil {
			return err
		}
	}
	sale, ok := from.terms[saleID]
	offer, verdict := sale.offer, model.Accepted
	switch {
	case !ok:
		verdict = model.NotFound
	case from.source != model.FromStream: // the gate judged the sale when it admitted the attempts
		verdict = offer.Judge(from.now)
	}
	if verdict != model.Accepted {
		b.refuseRest(verdict)
	}
	if len(b.open) == 0 {
		return nil
	}
	available := int64(math.MaxInt64) // with the other guards, sell or judgeCalls finds out whether there are enough
	switch from.guard {
	case byStock:
		stock, _, err := s.lockStock(db, saleID)
		if err != nil {
			return err
		}
		available = stock.Available
	case byVersion, byNothing:
		available = offer.Stock.Available
	case byTerms, byConstraint, byLock, byCalls, byDraw:
	}
	limits, err := s.limitsOf(db, offer.Sale, b.users())
	if err != nil {
		return err
	}
	if b.decide(limits, available); from.guard == byCalls && len(b.open) > 0 {
		err = s.judgeCalls(db, b, offer, from)
	}
	return err
}

// lockBatch locks the rows of the attempts' users in buyers, in the order of byUser, and only then reads which attempts are
// known. So a transaction sees what an earlier one with the same attempt has stored.
func (s *Store) lockBatch(tx *gorm.DB, attempts []model.Attempt, campaigns map[string]string) (*attemptBatch, error) {
	none := each(attempts, func(a model.Attempt) userUnits { return userUnits{sale: a.SaleID, user: a.UserID} })
	if err := s.addUnits(tx, inCampaigns(byUser(none), campaigns)); err != nil {
		return nil, err
	}
	known, err := s.knownOutcomes(tx, attempts)
	if err != nil {
		return nil, err
	}
	return newBatch(attempts, known), nil
}

// limitsOf reads how many units users hold of a sale and of its campaign, if it has one, with the limits.
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
	rows, err := scan(db, "read buyers", func(b *model.Buyer) []any { return []any{&b.UserID, &b.Units} },
		"SELECT user_id, units FROM buyers WHERE sale_id = ? AND user_id IN ?", saleID, users)
	for _, b := range rows {
		units[b.UserID] = b.Units
	}
	return units, err
}
