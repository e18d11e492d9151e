package repository

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// changeLine applies a change of a sale to its line. A rush gets its line when the waiting list is turned on, and loses the line
// when the list is turned off. A sealed or calling line stops if the changed sale is paused or has not begun.
//
// The verdict is Accepted; a refusal of mayChange; or EntriesClosed for three changes: entries of a line or draw
// that open at another time, after the seal; a waiting list turned on or off, after the sale has ended or the line is over; and a
// waiting list turned off, after somebody has entered or, in a rush, after the sale has got in line.
func (s *Store) changeLine(tx *gorm.DB, before model.Offer, after *model.Offer, now time.Time) (model.Verdict, error) {
	rush, listed := after.Mode == model.ModeRush, before.WaitingList != after.WaitingList
	opens := !before.EntriesAt.Equal(after.EntriesAt)
	if verdict := mayChange(before, *after, now); verdict != model.Accepted {
		return verdict, nil
	}
	if verdict := after.Judge(now); verdict != model.Accepted && verdict != model.Ended && after.LineID() == after.ID {
		if err := stopLine(tx, after); err != nil {
			return "", err
		}
	}
	var changing statement
	switch {
	case !opens && !listed && before.CallSeconds == after.CallSeconds && before.Beacon == after.Beacon && before.EntryWork == after.EntryWork:
		return model.Accepted, nil
	case opens && !rush && before.Line.Phase != model.PhaseEntering,
		listed && (before.Judge(now) == model.Ended || before.Line.Phase == model.PhaseOver),
		listed && before.WaitingList && (before.Line.Entries > 0 || rush && before.Stock.Lined == model.InLine):
		return model.EntriesClosed, nil
	case rush && listed && after.WaitingList:
		after.Stock.Lined = model.LinedAtSoldOut
		changing = creatingLine(after.Sale)
	case rush && listed:
		after.Stock.Lined = model.Unlined
		changing = do("DELETE FROM sale_lines WHERE sale_id = ?", after.ID)
	default:
		changing = do("UPDATE sale_lines SET entries_at_ms = ?, call_seconds = ?, waiting_list = ?, beacon = ?, entry_work = ? WHERE sale_id = ?",
			toMillis(after.EntriesAt), after.CallSeconds, after.WaitingList, after.Beacon, after.EntryWork, after.ID)
	}
	return model.Accepted, wrap("change a line", s.run(tx, changing, do("UPDATE stock SET lined = ? WHERE sale_id = ?", int(after.Stock.Lined), after.ID)))
}

// noticeTime is how long before the start the terms are fixed. By the start, pages and caches have heard of earlier changes, so that
// no buyer gets an order with other terms than those that the buyer was shown. It is also far longer than clocks differ.
const noticeTime = 30 * time.Second

// newTerms reports whether a change gives a sale other terms or fewer units.
func newTerms(before, after model.Offer) bool {
	of := func(o model.Offer) [6]any {
		return [...]any{o.PriceCents, o.OriginalPriceCents, o.Currency, o.PayTimeoutSeconds, o.Beacon, o.EntryWork}
	}
	return of(before) != of(after) || after.Stock.Quota < before.Stock.Quota
}

// mayChange judges changes that could break a promise. The verdict is one of these:
//   - Ended, if the sale has ended and was in line, and would get a later end or more units, since those who waited have heard
//     that they lost. Also Ended, if the sale was closed and would get more units, which nobody could buy.
//   - EntriesClosed, if a draw outside a campaign has its root, and the sale would get more units without having a waiting list,
//     or a lower limit before the winners are drawn.
//   - Started, if the sale has started once, or starts within noticeTime, and would get other terms or fewer units.
//     Also Started, if it would start earlier, and within noticeTime after such a change.
//   - Entered, if the sale has entries and would get other terms or fewer units, since those who entered were promised these.
//   - Accepted otherwise.
func mayChange(before, after model.Offer, now time.Time) model.Verdict {
	ended, inLine := before.Judge(now) == model.Ended, before.Stock.Lined == model.InLine
	longer, more := after.EndsAt.After(before.EndsAt), after.Stock.Quota > before.Stock.Quota
	drawn := after.Mode == model.ModeDraw && after.Campaign.ID == "" && before.Line.Root != ""
	terms := newTerms(before, after)
	soon, seen := now.Add(noticeTime), before.TermsAt.Add(noticeTime)
	switch {
	case ended && (inLine && longer || more && (inLine || before.Status == model.SaleClosed)):
		return model.Ended
	case drawn && (more && !after.WaitingList || before.Line.Phase == model.PhaseSealed && after.LimitPerUser < before.LimitPerUser):
		return model.EntriesClosed
	case terms && (before.Started || before.StartsAt.Before(soon) || after.StartsAt.Before(soon)),
		after.StartsAt.Before(before.StartsAt) && after.StartsAt.Before(seen) && now.Before(seen):
		return model.Started
	case terms && before.Line.Entries > 0:
		return model.Entered
	}
	return model.Accepted
}

// usersInLog is the most users that VoidEntries names in one entry of the audit log, so that the reason fits as well.
const usersInLog = 8

// ExtendCalls makes all calls of a sale's line last longer by the time "by", and returns the number of calls. The verdict is
// Accepted, or NoLine if the sale has no line.
func (s *Store) ExtendCalls(ctx context.Context, saleID string, by time.Duration, actor string) (calls int64, verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		if _, ok, err := s.lockLine(tx, saleID); err != nil || !ok {
			return model.NoLine, err
		}
		calls, err = exec(tx, "write the calls", "UPDATE calls SET until_ms = until_ms + ? WHERE sale_id = ?", by.Milliseconds(), saleID)
		if err != nil {
			return "", err
		}
		return model.Accepted, s.run(tx, s.logging(actor, "extend_calls", saleID, fmt.Sprintf("%d calls end %s later", calls, by)))
	})
	return calls, verdict, wrap("extend calls of sale "+saleID, err)
}

// VoidEntries gives the state voided to the waiting entries that a rule names, and returns their number. The verdict is Accepted;
// NoLine if the sale has no line; or EntriesClosed if the line is not in the phase entering.
func (s *Store) VoidEntries(ctx context.Context, saleID string, rule model.VoidRule, actor string) (voided int64, verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		line, ok, err := s.lockLine(tx, saleID)
		switch {
		case err != nil || !ok:
			return model.NoLine, err
		case line.Phase != model.PhaseEntering:
			return model.EntriesClosed, nil
		}
		query, args := "UPDATE entries SET state = ? WHERE sale_id = ? AND state = ?", []any{string(model.EntryVoided), saleID, string(model.EntryWaiting)}
		var named []string
		if len(rule.Users) > 0 {
			query, args = query+" AND user_id IN ?", append(args, rule.Users)
			for users := range slices.Chunk(rule.Users, usersInLog) {
				named = append(named, "users "+strings.Join(users, ", "))
			}
		} else {
			query, args = query+" AND number BETWEEN ? AND ?", append(args, rule.From, rule.To)
			named = []string{fmt.Sprintf("numbers %d to %d", rule.From, rule.To)}
		}
		if voided, err = exec(tx, "write the entries", query, args...); err != nil {
			return "", err
		}
		return model.Accepted, s.run(tx, each(named, func(part string) statement {
			return s.logging(actor, "void_entries", saleID, fmt.Sprintf("%d entries in all; reason %q; %s", voided, rule.Reason, part))
		})...)
	})
	return voided, verdict, wrap("void entries of sale "+saleID, err)
}
