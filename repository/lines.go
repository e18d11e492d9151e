package repository

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Transactions that give numbers, move the phase or make calls lock the line's row in sale_lines. So two callers at once are
// safe: the second waits, and then sees that the line has moved. The order of locks is in docs/architecture.md.

// If callers have not looked at a line for longer than outageTime, TendLine counts this as an outage.
const outageTime = 5 * time.Second

// creatingLine returns the statement that creates a sale's line. It is empty if the sale has none, or shares a campaign's.
func creatingLine(sale model.Sale) statement {
	if !sale.HasLine() || sale.LineID() != sale.ID {
		return statement{}
	}
	var secret, leafKey [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	_, _ = rand.Read(leafKey[:])
	commitment := sha256.Sum256(secret[:])
	phase := model.PhaseEntering
	if sale.Mode == model.ModeRush {
		phase = model.PhaseCalling // the waiting list of a rush has no order to seal
	}
	return do(`INSERT INTO sale_lines (sale_id, mode, entries_at_ms, call_seconds, waiting_list, phase, entries, sealed, serving,
		secret, leaf_key, commitment, root, seed, beacon, entry_work, seen_at_ms) VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?, ?, '', '', ?, ?, 0)`,
		sale.ID, string(sale.Mode), toMillis(sale.EntriesAt), sale.CallSeconds, sale.WaitingList, string(phase),
		hex.EncodeToString(secret[:]), hex.EncodeToString(leafKey[:]), hex.EncodeToString(commitment[:]), sale.Beacon, sale.EntryWork)
}

// lockedLine is what a transaction needs of a line that it has locked.
type lockedLine struct {
	Mode                               model.Mode
	Phase                              model.Phase
	Entries, Sealed, Serving           int64
	EntriesAtMs, SeenAtMs, CallSeconds int64
	WaitingList                        bool
	Seed                               string
	Passed                             *int64
	DrawUnits, DrawLimit, Drawn        int64
	Stopped                            bool
}

func (l lockedLine) goesOn(phase model.Phase) bool { return l.Phase == phase && !l.Stopped }

func (s *Store) lockLine(tx *gorm.DB, saleID string) (line lockedLine, ok bool, err error) {
	res := tx.Raw(`SELECT mode, phase, entries, sealed, serving, entries_at_ms, seen_at_ms, call_seconds, waiting_list, seed, passed,
		draw_units, draw_limit, drawn, stopped FROM sale_lines WHERE sale_id = ?`+s.forUpdate(), saleID).Scan(&line)
	return line, res.RowsAffected > 0, wrap("lock a line", res.Error)
}

// TendLine brings the state of a line up to date, and returns the sale with this state, or an empty sale if there is no line. It
// seals the line once the sale sells, ends the line once the sale has ended, and stops a sealed or calling line while the sale is
// paused or has not begun. If the line goes on after a stop, or no caller has seen it for longer than outageTime, the calls end
// later by the time since it was last seen. If the clock shows an earlier time than then, they end earlier by the difference.
func (s *Store) TendLine(ctx context.Context, saleID string) (offer model.Offer, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		line, ok, err := s.lockLine(tx, saleID)
		if err != nil || !ok {
			return err
		}
		var now time.Time
		if offer, now, _, err = s.offerOn(tx, saleID); err != nil {
			return err
		}
		verdict, phase, sealed := offer.Judge(now), line.Phase, line.Sealed
		if verdict != model.Accepted && verdict != model.Ended {
			return stopLine(tx, &offer)
		}
		var longer statement
		gap := time.Duration(now.UnixMilli()-line.SeenAtMs) * time.Millisecond
		if line.SeenAtMs > 0 && (line.Stopped || gap > outageTime || gap < 0) {
			longer = do("UPDATE calls SET until_ms = until_ms + ? WHERE sale_id = ?", gap.Milliseconds(), saleID)
		}
		switch {
		case verdict == model.Ended:
			phase = model.PhaseOver
		case phase == model.PhaseEntering:
			phase, sealed = model.PhaseSealed, line.Entries
		}
		moved := phase != line.Phase
		if !moved && !line.Stopped && gap >= 0 && gap < time.Second {
			return nil
		}
		offer.Line.Phase, offer.Line.Sealed, offer.Line.Stopped = phase, sealed, false
		return s.run(tx, longer, do("UPDATE sale_lines SET phase = ?, sealed = ?, seen_at_ms = ?, stopped = 0 WHERE sale_id = ?",
			string(phase), sealed, now.UnixMilli(), saleID))
	})
	return offer, wrap("look after the line of sale "+saleID, err)
}

// stopLine stops a locked line if it is sealed or calling.
func stopLine(tx *gorm.DB, offer *model.Offer) error {
	if phase := offer.Line.Phase; offer.Line.Stopped || phase != model.PhaseSealed && phase != model.PhaseCalling {
		return nil
	}
	offer.Line.Stopped = true
	return wrap("stop a line", tx.Exec("UPDATE sale_lines SET stopped = 1 WHERE sale_id = ?", offer.LineID()).Error)
}

// Sealing reads what the seal of a line needs.
func (s *Store) Sealing(ctx context.Context, saleID string) (sealing model.Sealing, err error) {
	what, secret, leafKey := "read the seal of sale "+saleID, "", ""
	sealing, _, err = one(scan(s.read.WithContext(ctx), what, func(to *model.Sealing) []any {
		return []any{&secret, &leafKey, &to.Entries, &to.DrawLimit}
	}, "SELECT secret, leaf_key, sealed, draw_limit FROM sale_lines WHERE sale_id = ?", saleID))
	if err != nil {
		return sealing, err
	}
	_, err = hex.Decode(sealing.Secret[:], []byte(secret))
	_, errLeaf := hex.Decode(sealing.LeafKey[:], []byte(leafKey))
	return sealing, wrap(what, errors.Join(err, errLeaf))
}

// LineEntries returns the entries of a line with numbers smaller than "below", in pages, by number and without their calls.
func (s *Store) LineEntries(ctx context.Context, saleID string, below int64) iter.Seq2[[]model.LineEntry, error] {
	return pages(int64(-1), func(after int64) ([]model.LineEntry, error) {
		return scan(s.read.WithContext(ctx), "read the entries of sale "+saleID, func(e *model.LineEntry) []any {
			return []any{&e.Number, &e.UserID, &e.Quantity, &e.State}
		}, "SELECT number, user_id, quantity, state FROM entries WHERE sale_id = ? AND number > ? AND number < ? ORDER BY number LIMIT ?",
			saleID, after, below, pageRows)
	}, func(e model.LineEntry) int64 { return e.Number })
}

// SetSeed publishes root and seed of a sealed line, both in hex, so that calls or the draw can begin. The seed is empty if there
// are no entries. If SetRoot has published a root, it must be this one. A repetition changes nothing. With a beacon, a constraint
// rejects a seed before the randomness is stored.
func (s *Store) SetSeed(ctx context.Context, saleID, root, seed string) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		// MySQL assigns from left to right, so what depends on the old root comes first.
		return publish(tx, "seal the line of sale "+saleID, saleID, "UPDATE sale_lines SET "+fixDraw+`,
			root = ?, seed = ?, phase = CASE WHEN mode = 'draw' AND `+ofOneSale+` THEN phase ELSE 'calling' END
			WHERE sale_id = ? AND phase = 'sealed' AND (root = '' OR root = ? AND beacon_round > 0 AND seed = '')`, root, seed, saleID, root)
	})
}

// SetRoot publishes the root, in hex, of a sealed line with a beacon that has no root yet, and the number of the round from which
// the seed will follow. The function "round" returns the number for a time of the database's clock. The round must not be public
// yet, so that nobody who knows it can choose the root.
func (s *Store) SetRoot(ctx context.Context, saleID, root string, round func(now time.Time) int64) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		// The clock is read under the lock: the round for a time before the wait might be public already.
		if _, ok, err := s.lockLine(tx, saleID); err != nil || !ok {
			return err
		}
		now, err := s.nowOn(tx)
		if err != nil {
			return err
		}
		return publish(tx, "name a round for sale "+saleID, saleID, "UPDATE sale_lines SET "+fixDraw+`, root = ?, beacon_round = ?
			WHERE sale_id = ? AND phase = 'sealed' AND root = '' AND beacon = 1`, root, round(now), saleID)
	})
}

// SetRandomness publishes what a round of the beacon has brought. It changes nothing if the line has randomness already, or waits
// for another round. The caller must have checked the signature.
func (s *Store) SetRandomness(ctx context.Context, saleID string, round int64, signature []byte, randomness [32]byte) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		return publish(tx, "store the round of sale "+saleID, saleID, `UPDATE sale_lines SET beacon_signature = ?, beacon_randomness = ?
			WHERE sale_id = ? AND beacon_round = ? AND beacon_randomness = ''`,
			hex.EncodeToString(signature), hex.EncodeToString(randomness[:]), saleID, round)
	})
}

// publish runs an UPDATE of a line and, if that changes it, raises the sale's revision, so that instances read the sale again.
func publish(tx *gorm.DB, what, saleID, update string, args ...any) error {
	changed, err := exec(tx, what, update, args...)
	if err != nil || changed == 0 {
		return err
	}
	return wrap(what, tx.Exec("UPDATE sales SET revision = revision + 1 WHERE id = ?", saleID).Error)
}

// ofOneSale is a condition, false for a campaign's line: the winners of its draw are called, to choose a sale.
const ofOneSale = "NOT EXISTS (SELECT 1 FROM campaigns WHERE id = sale_lines.sale_id)"

// fixDraw is the part of an UPDATE of a line that fixes a draw's units and its limit per entry, when the line gets its root.
const fixDraw = `draw_units = CASE WHEN mode = 'draw' AND root = '' THEN (SELECT reserved FROM stock WHERE stock.sale_id = sale_lines.sale_id) ELSE draw_units END,
	draw_limit = CASE WHEN mode = 'draw' AND root = '' THEN (SELECT limit_per_user FROM sales WHERE sales.id = sale_lines.sale_id) ELSE draw_limit END`

// Call calls the entries with these numbers that still wait, as long as the line has units. The numbers belong to the ranks from
// "serving" on. A call gets the units that the entry wants, but at most the limit per user and at most what is left. looked is
// how many ranks were looked at; left is true if units are left. If the line now serves another rank, is stopped or is not
// calling, Call does nothing, and returns 0 and false.
func (s *Store) Call(ctx context.Context, saleID string, serving int64, numbers []int64) (looked int, left bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		looked, left = 0, false
		line, ok, err := s.lockLine(tx, saleID)
		if err != nil || !ok || line.Serving != serving || !line.goesOn(model.PhaseCalling) {
			return err
		}
		var stock struct{ Reserved, NowMs, LimitPerUser int64 }
		// Whoever takes from these units has locked the line, so the row need not be locked yet.
		if err := tx.Raw("SELECT reserved, limit_per_user, "+s.nowMillis()+" AS now_ms FROM stock JOIN sales ON id = sale_id WHERE sale_id = ?", saleID).Scan(&stock).Error; err != nil {
			return err
		}
		entries, err := s.lockEntries(tx, saleID, numbers)
		if err != nil {
			return err
		}
		var values []any
		units := int64(0)
		for _, number := range numbers {
			e, found := entries[number]
			if !found || units == stock.Reserved {
				break
			}
			looked++
			if e.State != model.EntryWaiting {
				continue
			}
			n := min(int64(e.Quantity), stock.LimitPerUser, stock.Reserved-units)
			units += n
			values = append(values, saleID, number, e.UserID, n, stock.NowMs+line.CallSeconds*1000)
		}
		left = units < stock.Reserved
		if looked == 0 {
			return nil
		}
		return s.run(tx, append(s.inserting("calls (sale_id, number, user_id, units, until_ms)", places(5), values, ""),
			do("UPDATE sale_lines SET serving = ? WHERE sale_id = ?", serving+int64(looked), saleID),
			do("UPDATE stock SET reserved = reserved - ?, called = called + ?, version = version + 1 WHERE sale_id = ?", units, units, saleID))...)
	})
	return looked, left, wrap("call on sale "+saleID, err)
}

func (s *Store) lockEntries(tx *gorm.DB, saleID string, numbers []int64) (map[int64]model.LineEntry, error) {
	rows, err := scan(tx, "lock entries", func(e *model.LineEntry) []any { return []any{&e.Number, &e.UserID, &e.State, &e.Quantity} },
		"SELECT number, user_id, state, quantity FROM entries WHERE sale_id = ? AND number IN ? ORDER BY number"+s.forUpdate(), saleID, numbers)
	return byKey(rows, func(e model.LineEntry) int64 { return e.Number }), err
}

// EndCalls ends at most "limit" calls of a sale's line, and gives their units back to the line. If "all" is false, it ends calls
// whose time is over, unless the line is stopped, and the entries lapse. If "all" is true, because the sale has ended, it ends
// any calls, and the entries wait again. more is true if "limit" calls were ended, so that others may be left.
func (s *Store) EndCalls(ctx context.Context, saleID string, all bool, limit int) (more bool, err error) {
	when, state := " AND until_ms <= "+s.nowMillis(), model.EntryLapsed
	if all {
		when, state = "", model.EntryWaiting
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		more = false
		if line, ok, err := s.lockLine(tx, saleID); err != nil || !ok || line.Stopped && !all {
			return err
		}
		// A call that a purchase has locked is left to the purchase.
		var rows []struct{ Number, Units int64 }
		err := tx.Raw("SELECT number, units FROM calls WHERE sale_id = ?"+when+" ORDER BY number LIMIT ?"+s.skipLocked(), saleID, limit).Scan(&rows).Error
		if more = len(rows) == limit; err != nil || len(rows) == 0 {
			return err
		}
		numbers, units := make([]any, len(rows)), int64(0)
		for i, r := range rows {
			numbers[i], units = r.Number, units+r.Units
		}
		return s.endCalls(tx, saleID, numbers, state, units)
	})
	return more, wrap("end calls of sale "+saleID, err)
}

// endCalls ends locked calls of a sale's line, and gives their units back to the line.
func (s *Store) endCalls(tx *gorm.DB, saleID string, numbers []any, state model.EntryState, units int64) error {
	return wrap("end calls", s.run(tx, endingCalls(model.Sale{ID: saleID}, numbers, state, units, 0)...))
}

// endingCalls returns the statements that end calls. Of their units, "held" are in orders of the sale now, and the others belong
// to the line again. In a campaign, units in orders are not counted in the line's stock row.
func endingCalls(sale model.Sale, numbers []any, state model.EntryState, units, held int64) []statement {
	saleID, ordered, taken := sale.LineID(), "held = held + ?", statement{}
	if saleID != sale.ID {
		ordered = "quota = quota - ?"
		taken = do("UPDATE stock SET reserved = reserved - ?, held = held + ?, version = version + 1 WHERE sale_id = ?", held, held, sale.ID)
	}
	ended := map[model.EntryState]int{state: len(numbers)}
	return []statement{
		taken,
		do("DELETE FROM calls WHERE sale_id = ? AND number IN "+places(len(numbers)), slices.Concat([]any{saleID}, numbers)...),
		entriesBecome(saleID, numbers, state),
		do("UPDATE stock SET called = called - ?, reserved = reserved + ?, "+ordered+", spent_calls = spent_calls + ?, lapsed_calls = lapsed_calls + ?, "+
			"version = version + 1 WHERE sale_id = ?", units, units-held, held, ended[model.EntrySpent], ended[model.EntryLapsed], saleID),
	}
}

func entriesBecome(saleID string, numbers []any, state model.EntryState) statement {
	return do("UPDATE entries SET state = ? WHERE sale_id = ? AND number IN "+places(len(numbers)), slices.Concat([]any{string(state), saleID}, numbers)...)
}

// Draw makes orders of the entries with these numbers that still wait, as long as the draw has units; serving, numbers and looked
// are as with Call. An entry gets the units that it wants, but at most the limit at the seal. If fewer are left, the entry is
// passed over. The function "id" makes an order's id. over is true if this step ends the draw. If the line now serves another
// rank, is stopped or is not in the phase sealed, Draw does nothing, and returns 0 and false.
func (s *Store) Draw(
	ctx context.Context, saleID string, serving int64, numbers []int64, id func(userID string) string,
) (looked int, over bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		looked, over = 0, false
		line, ok, err := s.lockLine(tx, saleID)
		if err != nil || !ok || line.Serving != serving || !line.goesOn(model.PhaseSealed) {
			return err
		}
		offer, now, _, err := s.offerOn(tx, saleID)
		if err != nil {
			return err
		}
		entries, err := s.lockEntries(tx, saleID, numbers)
		if err != nil {
			return err
		}
		left, passed := line.DrawUnits-line.Drawn, line.Passed
		var attempts []model.Attempt
		var winners []any
		for ; looked < len(numbers) && left > 0; looked++ {
			number, rank := numbers[looked], serving+int64(looked)
			e := entries[number]
			quantity := model.DrawQuantity(e.Quantity, int(line.DrawLimit))
			switch {
			case e.State != model.EntryWaiting:
			case int64(quantity) > left:
				passed = cmp.Or(passed, &rank)
			default:
				left -= int64(quantity)
				winners = append(winners, number)
				a := model.Attempt{ID: id(e.UserID), SaleID: saleID, UserID: e.UserID, Quantity: quantity, IdempotencyKey: "draw"}
				attempts = append(attempts, a)
			}
		}
		if len(winners) > 0 {
			b := newBatch(attempts, nil)
			if err := s.addUnits(tx, b.unitsByUser()); err != nil {
				return err
			}
			if err := s.sell(tx, b, supply{guard: byDraw, source: model.FromDraw, terms: termsOf(offer), now: now, spent: winners}); err != nil {
				return err
			}
		}
		phase, next := line.Phase, serving+int64(looked)
		if over = left == 0 || next >= line.Sealed; over {
			// With a waiting list, returned units go by call to those who wait, from the first rank that was passed over.
			if phase = model.PhaseOver; line.WaitingList {
				phase = model.PhaseCalling
			}
			if passed != nil {
				next = *passed
			}
		}
		return tx.Exec("UPDATE sale_lines SET serving = ?, passed = ?, phase = ?, drawn = ? WHERE sale_id = ?",
			next, passed, string(phase), line.DrawUnits-left, saleID).Error
	})
	return looked, over, wrap(fmt.Sprintf("draw on sale %s from rank %d", saleID, serving), err)
}

// DrawnNumbers returns, in no particular order, the numbers of the entries that a draw has drawn, and how many units it had.
func (s *Store) DrawnNumbers(ctx context.Context, saleID string) (numbers []int64, units int64, err error) {
	db, what := s.read.WithContext(ctx), "read the draw of sale "+saleID
	if units, err = cell[int64](db, what, "SELECT draw_units FROM sale_lines WHERE sale_id = ?", saleID); err != nil {
		return nil, 0, err
	}
	// The query names all statuses, so that it can use the index orders_status.
	numbers, err = column[int64](db, what,
		"SELECT number FROM entries WHERE sale_id = ? AND user_id IN (SELECT user_id FROM orders WHERE sale_id = ? AND status IN ? AND source = ?)",
		saleID, saleID, model.StoredStatuses, string(model.FromDraw))
	return numbers, units, err
}
