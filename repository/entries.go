package repository

import (
	"context"
	"math"
	"slices"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Enter makes an entry in a sale's line for each user in "wishes" who has none, and returns the users' entries in the order of
// the wishes. Of a wish it uses only the user and the quantity. The verdict is about users who had no entry: Accepted; or
// NotFound, NotStarted, Ended, NoLine or EntriesClosed, and then their entries are empty.
func (s *Store) Enter(ctx context.Context, saleID string, wishes []model.LineEntry) (entries []model.LineEntry, verdict model.Verdict, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		line, ok, err := s.lockLine(tx, saleID)
		if err != nil {
			return err
		}
		rows, err := scan(tx, "look for entries", func(e *model.LineEntry) []any { return []any{&e.UserID, &e.Number, &e.Quantity, &e.State} },
			"SELECT user_id, number, quantity, state FROM entries WHERE sale_id = ? AND user_id IN ?",
			saleID, each(wishes, func(wish model.LineEntry) string { return wish.UserID }))
		if err != nil {
			return err
		}
		known := byKey(rows, func(e model.LineEntry) string { return e.UserID }) // without their calls
		var now time.Time
		if verdict, now, err = s.mayEnter(tx, saleID, line, ok); err != nil {
			return err
		}
		entries = make([]model.LineEntry, len(wishes))
		next, values := line.Entries, []any(nil)
		for i, wish := range wishes {
			e, has := known[wish.UserID]
			if !has && verdict == model.Accepted {
				e = model.LineEntry{UserID: wish.UserID, Number: next, Quantity: wish.Quantity, State: model.EntryWaiting}
				known[wish.UserID] = e
				values = append(values, saleID, next, e.UserID, e.Quantity, string(e.State), now.UnixMilli())
				e.New = true
				next++
			}
			entries[i] = e
		}
		if len(values) == 0 {
			return nil
		}
		// MySQL assigns from left to right, so what depends on the old value of "entries" comes first.
		numbered := do("UPDATE sale_lines SET first_at_ms = CASE entries WHEN 0 THEN ? ELSE first_at_ms END, entries = ? WHERE sale_id = ?",
			now.UnixMilli(), next, saleID)
		return s.run(tx, append(s.inserting("entries (sale_id, number, user_id, quantity, state, entered_at_ms)", places(6), values, ""), numbered)...)
	})
	return entries, verdict, wrap("enter the line of sale "+saleID, err)
}

// mayEnter judges whether a locked line takes entries now; ok is false if there is no line. If the sale has begun and the line is
// not sealed, mayEnter seals it, except for a draw. If a rush has sold out, mayEnter begins its waiting list.
func (s *Store) mayEnter(tx *gorm.DB, saleID string, line lockedLine, ok bool) (verdict model.Verdict, now time.Time, err error) {
	offer, now, exists, err := s.offerOn(tx, saleID)
	phase, draw := line.Phase, line.Mode == model.ModeDraw
	// Entries that come after the start must not be among the sealed ones, even if no caller has sealed the line yet.
	late := phase == model.PhaseEntering && !now.Before(offer.StartsAt)
	switch {
	case err != nil || !exists:
		return model.NotFound, now, err
	case !ok:
		return model.NoLine, now, nil
	case offer.Status == model.SaleClosed || !now.Before(offer.EndsAt):
		return model.Ended, now, nil
	case now.UnixMilli() < line.EntriesAtMs:
		return model.NotStarted, now, nil
	case phase == model.PhaseOver, draw && phase == model.PhaseCalling && !line.WaitingList, draw && phase == model.PhaseSealed, draw && late:
		return model.EntriesClosed, now, nil
	case late:
		err := tx.Exec("UPDATE sale_lines SET phase = 'sealed', sealed = entries WHERE sale_id = ?", saleID).Error
		return model.Accepted, now, wrap("seal a line", err)
	case offer.Stock.Lined != model.LinedAtSoldOut:
		return model.Accepted, now, nil
	case offer.Stock.Available > 0 || now.Before(offer.StartsAt):
		return model.NoLine, now, nil
	}
	begun, err := exec(tx, "begin a waiting list",
		"UPDATE stock SET lined = 2, version = version + 1 WHERE sale_id = ? AND lined = 1 AND available = 0", saleID)
	if err != nil || begun > 0 {
		return model.Accepted, now, err
	}
	// The stock row has changed since the read, for example because units that came back have begun the waiting list.
	if offer, now, _, err = s.offerOn(tx, saleID); offer.Stock.Lined == model.InLine {
		return model.Accepted, now, err
	}
	return model.NoLine, now, err
}

// EntryOf reads a user's entry in a sale's line, with its call; ok is false if the user has no entry. If the line is over, a
// waiting entry counts as lost, even with a call. A void entry is shown as left.
func (s *Store) EntryOf(ctx context.Context, saleID, userID string) (e model.LineEntry, ok bool, err error) {
	var phase model.Phase
	e, ok, err = one(scan(s.read.WithContext(ctx), "read an entry", func(e *model.LineEntry) []any {
		return []any{&e.UserID, &e.Number, &e.Quantity, &e.State, optional(&e.Units), millis(&e.Until), &phase}
	}, `SELECT entries.user_id, entries.number, quantity, state, units, until_ms, phase FROM entries
		JOIN sale_lines ON sale_lines.sale_id = entries.sale_id
		LEFT JOIN calls ON calls.sale_id = entries.sale_id AND calls.number = entries.number
		WHERE entries.sale_id = ? AND entries.user_id = ?`, saleID, userID))
	switch {
	case phase == model.PhaseOver && e.State == model.EntryWaiting:
		e.State, e.Units, e.Until = model.EntryLost, 0, time.Time{}
	case e.Units > 0:
		e.State = model.EntryCalled
	case e.State == model.EntryVoid:
		e.State = model.EntryLeft
	}
	return e, ok, err
}

// InLine reports whether a sale is in line. Look-ups share statements. The errors are those of Order.
func (s *Store) InLine(ctx context.Context, saleID string) (bool, error) {
	inLine, err := s.lined.Do(ctx, "", saleID)
	return inLine, wrap("look whether a sale is in line", err)
}

func (s *Store) areInLine(ctx context.Context, _ string, saleIDs []string) ([]bool, error) {
	those, err := column[string](s.read.WithContext(ctx), "look for lines",
		"SELECT sale_id FROM stock WHERE sale_id IN ? AND lined = ?", saleIDs, int(model.InLine))
	return each(saleIDs, func(id string) bool { return slices.Contains(those, id) }), err
}

// Leave ends a user's entry. If it has a call, the units of the call belong to the line again. Before the seal, the entry becomes
// void. The verdict is Accepted; NotFound if there is no line, the line is over, or no entry of the user is stored as waiting; or
// EntriesClosed if the line is a draw in the phase sealed.
func (s *Store) Leave(ctx context.Context, saleID, userID string) (model.Verdict, error) {
	verdict, err := s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		line, ok, err := s.lockLine(tx, saleID)
		if err != nil || !ok {
			return model.NotFound, err
		}
		state := model.EntryLeft
		switch {
		case line.Phase == model.PhaseEntering:
			state = model.EntryVoid
		case line.Phase == model.PhaseSealed && line.Mode == model.ModeDraw:
			return model.EntriesClosed, nil
		}
		offer, now, _, err := s.offerOn(tx, saleID)
		if err != nil || line.Phase == model.PhaseOver || offer.Judge(now) == model.Ended { // the entry has lost
			return model.NotFound, err
		}
		number, waits, err := one(column[int64](tx, "lock the entry", "SELECT number FROM entries WHERE sale_id = ? AND user_id = ? AND state = ?"+s.forUpdate(),
			saleID, userID, string(model.EntryWaiting)))
		if err != nil || !waits {
			return model.NotFound, err
		}
		units, called, err := one(column[int64](tx, "lock the call", "SELECT units FROM calls WHERE sale_id = ? AND number = ?"+s.forUpdate(), saleID, number))
		if err == nil && called {
			err = s.endCalls(tx, saleID, []any{number}, model.EntryLeft, units)
		} else if err == nil {
			err = s.run(tx, entriesBecome(saleID, []any{number}, state))
		}
		return model.Accepted, err
	})
	return verdict, wrap("leave the line of sale "+saleID, err)
}

// SellCalled makes orders for buyers who are called, and ends their calls, in one transaction. The verdicts are those of Deduct,
// and NotYourTurn if the buyer is not called. LimitReached may also mean that the call has too few units. In a campaign, SoldOut
// means that this sale has too few units. A refusal ends no call.
func (s *Store) SellCalled(ctx context.Context, saleID string, attempts []model.Attempt) (outcomes []model.Outcome, err error) {
	err = underTerms(func() error {
		outcomes, err = s.sellJudged(ctx, saleID, attempts, supply{guard: byCalls, source: model.FromLine})
		return err
	})
	return outcomes, wrap("sell on sale "+saleID, err)
}

// judgeCalls refuses open attempts of buyers without a call, and those for more units than the call has or, in a campaign, the
// sale has. It locks the calls and the stock row. For attempts that stay open, it adds the calls to the supply.
func (s *Store) judgeCalls(tx *gorm.DB, b *attemptBatch, offer model.Offer, from *supply) error {
	type call struct {
		user          string
		number, units int64
	}
	rows, err := scan(tx, "lock calls", func(c *call) []any { return []any{&c.user, &c.number, &c.units} },
		"SELECT user_id, number, units FROM calls WHERE sale_id = ? AND user_id IN ?"+s.forUpdate(), offer.LineID(), b.users())
	if err != nil {
		return err
	}
	calls := byKey(rows, func(c call) string { return c.user })
	stock, err := s.lockTerms(tx, offer)
	if err != nil {
		return err
	}
	left := int64(math.MaxInt64) // without a campaign, the units behind the calls are this sale's own, so they suffice
	if offer.Campaign.ID != "" {
		left = stock.Reserved
	}
	b.open = slices.DeleteFunc(b.open, func(i int) bool {
		a := b.attempts[i]
		c, called := calls[a.UserID]
		switch {
		case !called:
			b.refuse(i, model.NotYourTurn)
		case int64(a.Quantity) > c.units:
			b.refuse(i, model.LimitReached)
		case int64(a.Quantity) > left:
			b.refuse(i, model.SoldOut)
		default:
			left -= int64(a.Quantity)
			delete(calls, a.UserID) // another attempt of the same user has no call any more
			from.spent, from.called = append(from.spent, c.number), from.called+c.units
			return false
		}
		return true
	})
	return nil
}
