package repository

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Whoever holds the row in sale_lines is the only one who gives numbers, moves the phase, calls, or ends calls. So two callers
// at once are safe: the second one waits, and then sees that the line has moved. docs/architecture.md has the order in which
// each transaction locks its rows; where two of them meet in another order, the loser of a deadlock is run again.

// outageTime is the longest time between two visits of a caller to a line that does not count as an outage. After a longer
// one, the line's calls are lengthened by it. outageTime is far longer than a caller's period, and far shorter than a call.
const outageTime = 5 * time.Second

// createLine creates the line of a new sale, if the sale has one or may get one.
func createLine(tx *gorm.DB, sale model.Sale) error {
	if !sale.HasLine() || sale.LineID() != sale.ID {
		return nil
	}
	var secret, leafKey [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	_, _ = rand.Read(leafKey[:])
	commitment := sha256.Sum256(secret[:])
	phase := model.PhaseEntering
	if sale.Mode == model.ModeRush {
		phase = model.PhaseCalling // a waiting list has no order to seal
	}
	err := tx.Exec(`INSERT INTO sale_lines (sale_id, mode, entries_at_ms, call_seconds, waiting_list, phase, entries, sealed, serving,
		secret, leaf_key, commitment, root, seed, beacon, entry_work, seen_at_ms) VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?, ?, '', '', ?, ?, 0)`,
		sale.ID, string(sale.Mode), toMillis(sale.EntriesAt), sale.CallSeconds, sale.WaitingList, string(phase),
		hex.EncodeToString(secret[:]), hex.EncodeToString(leafKey[:]), hex.EncodeToString(commitment[:]), sale.Beacon, sale.EntryWork).Error
	return wrap("create line", err)
}

// lockedLine is what a transaction needs of a line that it has locked.
type lockedLine struct {
	Mode                               string
	Phase                              string
	Entries, Sealed, Serving           int64
	EntriesAtMs, SeenAtMs, CallSeconds int64
	WaitingList                        bool
	Seed                               string
	Passed                             *int64
	DrawUnits, DrawLimit, Drawn        int64
	Stopped                            bool
}

// goesOn reports whether the line is in a phase and is not stopped.
func (l lockedLine) goesOn(phase model.Phase) bool { return l.Phase == string(phase) && !l.Stopped }

func (s *Store) lockLine(tx *gorm.DB, saleID string) (line lockedLine, ok bool, err error) {
	res := tx.Raw(`SELECT mode, phase, entries, sealed, serving, entries_at_ms, seen_at_ms, call_seconds, waiting_list, seed, passed,
		draw_units, draw_limit, drawn, stopped FROM sale_lines WHERE sale_id = ?`+s.forUpdate(), saleID).Scan(&line)
	return line, res.RowsAffected > 0, wrap("lock a line", res.Error)
}

// TendLine is the first step of a caller's look at a line, and returns the line's state after it. The line is sealed at the
// sale's start, and over at the end. It stops while the sale does not sell. If no caller has seen the line for a while, because
// the database or all callers were away, or if it was stopped, all calls get this time back. After a step of the database's
// clock they keep the time that they had left.
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
		verdict, phase, sealed := offer.Judge(now), model.Phase(line.Phase), line.Sealed
		if verdict != model.Accepted && verdict != model.Ended {
			return stopLine(tx, &offer)
		}
		gap := time.Duration(now.UnixMilli()-line.SeenAtMs) * time.Millisecond
		if line.SeenAtMs > 0 && (line.Stopped || gap > outageTime || gap < 0) {
			if err := tx.Exec("UPDATE calls SET until_ms = until_ms + ? WHERE sale_id = ?", gap.Milliseconds(), saleID).Error; err != nil {
				return wrap("lengthen calls", err)
			}
		}
		switch {
		case verdict == model.Ended:
			phase = model.PhaseOver
		case phase == model.PhaseEntering:
			phase, sealed = model.PhaseSealed, line.Entries
		}
		moved := phase != model.Phase(line.Phase)
		if !moved && !line.Stopped && gap >= 0 && gap < time.Second {
			return nil
		}
		offer.Line.Phase, offer.Line.Sealed, offer.Line.Stopped = phase, sealed, false
		return wrap("look after a line", tx.Exec("UPDATE sale_lines SET phase = ?, sealed = ?, seen_at_ms = ?, stopped = 0 WHERE sale_id = ?",
			string(phase), sealed, now.UnixMilli(), saleID).Error)
	})
	return offer, wrap("look after the line of sale "+saleID, err)
}

// stopLine stops a locked line whose sale does not sell, if anybody waits for a call or is called. Before the seal there is
// nothing to stop.
func stopLine(tx *gorm.DB, offer *model.Offer) error {
	if phase := offer.Line.Phase; offer.Line.Stopped || phase != model.PhaseSealed && phase != model.PhaseCalling {
		return nil
	}
	offer.Line.Stopped = true
	return wrap("stop a line", tx.Exec("UPDATE sale_lines SET stopped = 1 WHERE sale_id = ?", offer.LineID()).Error)
}

// Sealing reads what the seal of a line needs.
func (s *Store) Sealing(ctx context.Context, saleID string) (sealing model.Sealing, err error) {
	var row struct {
		Secret, LeafKey string
		Sealed          int64
		DrawLimit       int
	}
	err = s.read.WithContext(ctx).Raw("SELECT secret, leaf_key, sealed, draw_limit FROM sale_lines WHERE sale_id = ?", saleID).Scan(&row).Error
	if err != nil {
		return sealing, wrap("read the seal of sale "+saleID, err)
	}
	sealing.Entries, sealing.DrawLimit = row.Sealed, row.DrawLimit
	if _, err = hex.Decode(sealing.Secret[:], []byte(row.Secret)); err == nil {
		_, err = hex.Decode(sealing.LeafKey[:], []byte(row.LeafKey))
	}
	return sealing, wrap("read the seal of sale "+saleID, err)
}

// LineEntries returns the entries of a line whose numbers are smaller than below, in pages and in the order of their numbers.
// An entry has its user, number, quantity and stored state; the fields of its call are empty.
func (s *Store) LineEntries(ctx context.Context, saleID string, below int64) iter.Seq2[[]model.LineEntry, error] {
	return pages(int64(-1), func(after int64) ([]model.LineEntry, error) {
		return scan(s.read.WithContext(ctx), "read the entries of sale "+saleID, func(e *model.LineEntry) []any {
			return []any{&e.Number, &e.UserID, &e.Quantity, &e.State}
		}, "SELECT number, user_id, quantity, state FROM entries WHERE sale_id = ? AND number > ? AND number < ? ORDER BY number LIMIT ?",
			saleID, after, below, pageRows)
	}, func(e model.LineEntry) int64 { return e.Number })
}

// SetSeed publishes the seed of a sealed line and, unless SetRoot has done so, its root, in hex, once: a later call changes
// nothing. Calls begin, or the draw. The database takes no seed of a line with a beacon before the randomness.
func (s *Store) SetSeed(ctx context.Context, saleID, root, seed string) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		// MySQL assigns from left to right, so what depends on the old root comes first.
		return publish(tx, "seal the line of sale "+saleID, saleID, "UPDATE sale_lines SET "+fixDraw+`,
			root = ?, seed = ?, phase = CASE WHEN mode = 'draw' AND `+ofOneSale+` THEN phase ELSE 'calling' END
			WHERE sale_id = ? AND phase = 'sealed' AND (root = '' OR root = ? AND beacon_round > 0 AND seed = '')`, root, seed, saleID, root)
	})
}

// SetRoot publishes the root of a sealed line with a beacon, in hex, and with it the round from which the seed will follow,
// once: a later call changes nothing. round returns the round to name at a time of the database's clock. Since both become
// public at the same moment, nothing that the seed follows from can be chosen when the round is known.
func (s *Store) SetRoot(ctx context.Context, saleID, root string, round func(now time.Time) int64) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		// The clock is read under the lock, so that no wait makes the round one that is known already.
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

// SetRandomness publishes what the named round of the beacon has brought, once: a later call changes nothing. The caller has
// checked the signature.
func (s *Store) SetRandomness(ctx context.Context, saleID string, round int64, signature []byte, randomness [32]byte) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		return publish(tx, "store the round of sale "+saleID, saleID, `UPDATE sale_lines SET beacon_signature = ?, beacon_randomness = ?
			WHERE sale_id = ? AND beacon_round = ? AND beacon_randomness = ''`,
			hex.EncodeToString(signature), hex.EncodeToString(randomness[:]), saleID, round)
	})
}

// publish runs an UPDATE of a line. If it has changed the line, all instances read the sale as a whole again.
func publish(tx *gorm.DB, what, saleID, update string, args ...any) error {
	res := tx.Exec(update, args...)
	if res.Error != nil || res.RowsAffected == 0 {
		return wrap(what, res.Error)
	}
	return wrap(what, tx.Exec("UPDATE sales SET revision = revision + 1 WHERE id = ?", saleID).Error)
}

// ofOneSale is the condition that a line is not that of a campaign. The winners of a campaign's draw are called, since they have
// to choose a sale.
const ofOneSale = "NOT EXISTS (SELECT 1 FROM campaigns WHERE id = sale_lines.sale_id)"

// fixDraw is the part of an UPDATE that seals a line, unless it is sealed, which fixes how many units a draw has to give, and how
// many it gives to one entry at most.
const fixDraw = `draw_units = CASE WHEN mode = 'draw' AND root = '' THEN (SELECT reserved FROM stock WHERE stock.sale_id = sale_lines.sale_id) ELSE draw_units END,
	draw_limit = CASE WHEN mode = 'draw' AND root = '' THEN (SELECT limit_per_user FROM sales WHERE sales.id = sale_lines.sale_id) ELSE draw_limit END`

// Call calls the entries that wait, in the order of numbers, which are those of the ranks from serving on. Each call gets
// as many of the line's units as the entry wants and its user may have, or those that are left. It returns how many ranks were
// looked at, and whether units are left. If another caller has moved the line on, or the line is stopped, nothing is done.
func (s *Store) Call(ctx context.Context, saleID string, serving int64, numbers []int64) (looked int, left bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		looked, left = 0, false
		line, ok, err := s.lockLine(tx, saleID)
		if err != nil || !ok || line.Serving != serving || !line.goesOn(model.PhaseCalling) {
			return err
		}
		var stock struct{ Reserved, NowMs, LimitPerUser int64 }
		// Only who has locked the line takes from these units, so the row need not be locked yet.
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
		statements := append(s.inserting("calls (sale_id, number, user_id, units, until_ms)", places(5), values, ""),
			statement{"UPDATE sale_lines SET serving = ? WHERE sale_id = ?", []any{serving + int64(looked), saleID}},
			statement{"UPDATE stock SET reserved = reserved - ?, called = called + ?, version = version + 1 WHERE sale_id = ?", []any{units, units, saleID}})
		_, err = s.execute(tx, statements...)
		return err
	})
	return looked, left, wrap("call on sale "+saleID, err)
}

func (s *Store) lockEntries(tx *gorm.DB, saleID string, numbers []int64) (map[int64]model.LineEntry, error) {
	rows, err := scan(tx, "lock entries", func(e *model.LineEntry) []any { return []any{&e.Number, &e.UserID, &e.State, &e.Quantity} },
		"SELECT number, user_id, state, quantity FROM entries WHERE sale_id = ? AND number IN ? ORDER BY number"+s.forUpdate(), saleID, numbers)
	return byKey(rows, func(e model.LineEntry) int64 { return e.Number }), err
}

// EndCalls ends calls, at most limit of them, and gives their units back to the line. If all is false, it ends the calls whose
// time is over, unless the line is stopped; their entries have lapsed. If all is true, because the sale has ended, it ends calls that still run as well.
// Their entries return to waiting, as the buyers did not fail to come; in a line that is over, waiting means that the entry
// has lost. more is true if there may be other calls to end.
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
		// A call whose buyer is just buying is left to that transaction.
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

// endCalls ends calls in a sale's line that this transaction has locked. Their units belong to the line again.
func (s *Store) endCalls(tx *gorm.DB, saleID string, numbers []any, state model.EntryState, units int64) error {
	_, err := s.execute(tx, endingCalls(model.Sale{ID: saleID}, numbers, state, units, 0)...)
	return wrap("end calls", err)
}

// endingCalls returns the statements that end calls. held of their units are in orders on the sale now; the others belong to
// the line again. If the line is that of a campaign, the units in orders leave its stock and are counted in the sale's stock only.
func endingCalls(sale model.Sale, numbers []any, state model.EntryState, units, held int64) []statement {
	saleID, ordered, taken := sale.LineID(), "held = held + ?", statement{}
	if saleID != sale.ID {
		ordered = "quota = quota - ?"
		taken = statement{"UPDATE stock SET reserved = reserved - ?, held = held + ?, version = version + 1 WHERE sale_id = ?", []any{held, held, sale.ID}}
	}
	spent, lapsed := 0, 0
	if state == model.EntrySpent {
		spent = len(numbers)
	}
	if state == model.EntryLapsed {
		lapsed = len(numbers)
	}
	return []statement{
		taken,
		{"DELETE FROM calls WHERE sale_id = ? AND number IN " + places(len(numbers)), slices.Concat([]any{saleID}, numbers)},
		entriesBecome(saleID, numbers, state),
		{
			"UPDATE stock SET called = called - ?, reserved = reserved + ?, " + ordered + ", spent_calls = spent_calls + ?, " +
				"lapsed_calls = lapsed_calls + ?, version = version + 1 WHERE sale_id = ?",
			[]any{units, units - held, held, spent, lapsed, saleID},
		},
	}
}

func entriesBecome(saleID string, numbers []any, state model.EntryState) statement {
	return statement{
		"UPDATE entries SET state = ? WHERE sale_id = ? AND number IN " + places(len(numbers)), slices.Concat([]any{string(state), saleID}, numbers),
	}
}

// Draw makes orders of winning entries: those of numbers, which are the ones of the ranks from serving on, as long as the
// units last. An entry wants at most as many units as the limit was at the seal. One that wants more than are left is passed
// over. id returns the id of a winner's order. looked is how many ranks were looked at; over is true when the draw is over. If
// another caller has moved the draw on, or the line is stopped, nothing is done.
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
		for i, number := range numbers {
			if left == 0 {
				break
			}
			looked++
			e := entries[number]
			quantity := model.DrawQuantity(e.Quantity, int(line.DrawLimit))
			switch {
			case e.State != model.EntryWaiting:
			case int64(quantity) > left:
				if rank := serving + int64(i); passed == nil {
					passed = &rank
				}
			default:
				left -= int64(quantity)
				winners = append(winners, number)
				attempts = append(attempts, model.Attempt{
					ID: id(e.UserID), SaleID: saleID, UserID: e.UserID, Quantity: quantity,
					IdempotencyKey: "draw",
				})
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
			// With a waiting list, returned units go to the waiting entries by call. Calls begin at the first rank that the
			// draw passed over for its quantity, since that entry is the first one that still waits.
			if phase = string(model.PhaseOver); line.WaitingList {
				phase = string(model.PhaseCalling)
			}
			if passed != nil {
				next = *passed
			}
		}
		return tx.Exec("UPDATE sale_lines SET serving = ?, passed = ?, phase = ?, drawn = ? WHERE sale_id = ?",
			next, passed, phase, line.DrawUnits-left, saleID).Error
	})
	return looked, over, wrap(fmt.Sprintf("draw on sale %s from rank %d", saleID, serving), err)
}

// DrawnNumbers returns the numbers of the entries that a draw has drawn, in no order.
func (s *Store) DrawnNumbers(ctx context.Context, saleID string) (numbers []int64, units int64, err error) {
	db, what := s.read.WithContext(ctx), "read the draw of sale "+saleID
	if units, err = cell[int64](db, what, "SELECT draw_units FROM sale_lines WHERE sale_id = ?", saleID); err != nil {
		return nil, 0, err
	}
	// The index orders_status begins with the sale and the status.
	numbers, err = column[int64](db, what,
		"SELECT number FROM entries WHERE sale_id = ? AND user_id IN (SELECT user_id FROM orders WHERE sale_id = ? AND status IN ? AND source = ?)",
		saleID, saleID, model.StoredStatuses, string(model.FromDraw))
	return numbers, units, err
}
