package service

import (
	"context"
	"encoding/hex"
	"time"

	"flashsale/internal/batch"
	"flashsale/internal/ranks"
	"flashsale/model"
	"flashsale/service/auth"
)

// LineStore keeps the entries of lines in the database.
type LineStore interface {
	Enter(ctx context.Context, saleID string, wishes []model.LineEntry) (entries []model.LineEntry, verdict model.Verdict, err error)
	EntryOf(ctx context.Context, saleID, userID string) (e model.LineEntry, ok bool, err error)
	Leave(ctx context.Context, saleID, userID string) (model.Verdict, error)
}

// enterLimits bounds the batches in which entries are made. Calls is 1, since each batch locks its line to give numbers.
var enterLimits = batch.Limits{Batch: 512, Queue: 8192, Calls: 1, Time: 5 * time.Second}

// closeLines is how long Close waits for batches before it cancels them.
const closeLines = time.Second

// Lines is the service for the users who enter lines.
type Lines struct {
	store   LineStore
	catalog *Catalog
	tickets *auth.Tickets
	works   *auth.Works
	enter   *batch.Batcher[model.LineEntry, entered]
}

type entered struct {
	entry   model.LineEntry
	verdict model.Verdict
}

// NewLines creates the service. The caller must close it.
func NewLines(store LineStore, catalog *Catalog, tickets *auth.Tickets, works *auth.Works) *Lines {
	l := &Lines{store: store, catalog: catalog, tickets: tickets, works: works}
	l.enter = batch.New(enterLimits, func(ctx context.Context, saleID string, wishes []model.LineEntry) ([]entered, error) {
		entries, verdict, err := store.Enter(ctx, saleID, wishes)
		made := make([]entered, len(entries))
		for i, e := range entries {
			if made[i] = (entered{e, model.Accepted}); e.State == "" {
				made[i].verdict = verdict
			}
		}
		return made, err
	})
	return l
}

// lineOf returns the sale that has a sale's line: the sale itself, or the one that has the line of its campaign. A sale
// without a line is returned itself. ok is false if there is no such sale.
func lineOf(ctx context.Context, catalog *Catalog, saleID string) (offer model.Offer, ok bool, err error) {
	offer, ok, err = catalog.Sale(ctx, saleID)
	if id := offer.LineID(); err == nil && ok && offer.HasLine() && id != saleID {
		return catalog.Sale(ctx, id)
	}
	return offer, ok, err
}

// Close refuses further entries. It waits a moment for the batches under way, and cancels those that take longer.
func (l *Lines) Close() { l.enter.Close(closeLines) }

// Enter makes a user's entry in a sale's line, or finds the one that the user has, and returns it with its ticket. The verdict is
// Accepted; BadRequest if the quantity is outside 1 to the limit; WorkRequired if "work" has to solve a challenge and does not;
// or the reason why the line takes no entry: NotFound, NotStarted, Ended, NoLine or EntriesClosed. The error wraps
// model.ErrUnavailable if too many entries wait, or after Close.
func (l *Lines) Enter(ctx context.Context, userID, saleID string, quantity int, work string) (e model.LineEntry, ticket string, verdict model.Verdict, err error) {
	offer, ok, err := lineOf(ctx, l.catalog, saleID)
	switch {
	case err != nil || !ok:
		return e, "", model.NotFound, err
	case !offer.HasLine():
		return e, "", model.NoLine, nil
	case quantity < 1 || quantity > offer.LimitPerUser:
		return e, "", model.BadRequest, nil
	case offer.EntryWork > 0 && !l.works.Check(work, userID, offer.ID):
		return e, "", model.WorkRequired, nil
	}
	made, err := l.enter.Do(ctx, offer.ID, model.LineEntry{UserID: userID, Quantity: quantity})
	if err != nil || made.verdict != model.Accepted {
		return e, "", made.verdict, err
	}
	return made.entry, l.tickets.Issue(userID, offer.ID, made.entry.Number), model.Accepted, nil
}

// Challenge returns the work that a user has to do before entering a sale's line: twice as much while this instance's queue of
// entries is more than half full. The verdict is Accepted, or NotFound if there is no such sale or it asks for no work.
func (l *Lines) Challenge(ctx context.Context, userID, saleID string) (c auth.Challenge, verdict model.Verdict, err error) {
	offer, ok, err := lineOf(ctx, l.catalog, saleID)
	if err != nil || !ok || offer.EntryWork == 0 {
		return c, model.NotFound, err
	}
	work := offer.EntryWork
	if l.enter.Waiting(offer.ID) > enterLimits.Queue/2 {
		work *= 2
	}
	return l.works.Issue(userID, offer.ID, work), model.Accepted, nil
}

// Mine returns a user's entry in a sale's line, and the entry's rank, which is -1 while the order is not fixed. The verdict is
// Accepted, or NotFound if there is no such line or the user has no entry in it.
func (l *Lines) Mine(ctx context.Context, userID, saleID string) (e model.LineEntry, rank int64, verdict model.Verdict, err error) {
	offer, ok, err := lineOf(ctx, l.catalog, saleID)
	if err != nil || !ok || !offer.HasLine() {
		return e, 0, model.NotFound, err
	}
	if e, ok, err = l.store.EntryOf(ctx, offer.ID, userID); err != nil || !ok {
		return e, 0, model.NotFound, err
	}
	return e, Rank(offer.Line, e.Number), model.Accepted, nil
}

// Leave ends a user's entry in a sale's line. The verdict is Accepted; NotFound if there is no such line, the line is over, or no
// entry of the user is stored as waiting; or EntriesClosed if a draw is sealed and not yet drawn.
func (l *Lines) Leave(ctx context.Context, userID, saleID string) (model.Verdict, error) {
	offer, ok, err := lineOf(ctx, l.catalog, saleID)
	if err != nil || !ok || !offer.HasLine() {
		return model.NotFound, err
	}
	return l.store.Leave(ctx, offer.ID, userID)
}

// Turn returns whether a user may buy in a sale that is in line. The verdict is Accepted, and "until" is the end of the call;
// CallEnded if the call ended by time; or NotYourTurn. The returned rank is that of the user's entry, or -1 if it is not known.
// If the ticket is valid, and the rank is not known or not below serving, the user is refused from memory.
func (l *Lines) Turn(ctx context.Context, userID string, offer model.Offer, ticket string) (until time.Time, rank int64, verdict model.Verdict, err error) {
	if number, ok := l.tickets.Check(ticket, userID, offer.LineID()); ok {
		if rank = Rank(offer.Line, number); rank >= offer.Line.Serving || rank < 0 {
			return until, rank, model.NotYourTurn, nil
		}
	}
	e, ok, err := l.store.EntryOf(ctx, offer.LineID(), userID)
	if err != nil || !ok {
		return until, -1, model.NotYourTurn, err
	}
	rank = Rank(offer.Line, e.Number)
	if e.State == model.EntryCalled {
		return e.Until, rank, model.Accepted, nil
	}
	if e.State == model.EntryLapsed {
		return until, rank, model.CallEnded, nil
	}
	return until, rank, model.NotYourTurn, nil
}

// Rank returns the rank of an entry in a line, or -1 while the order is not fixed.
func Rank(line model.Line, number int64) int64 {
	if order, ok := orderOf(line); ok {
		return order.Rank(number)
	}
	return -1
}

// orderOf returns the public order of a line; ok is false while it is not fixed.
func orderOf(line model.Line) (order ranks.Order, ok bool) {
	switch {
	case line.Seed != "":
		_, err := hex.Decode(order.Seed[:], []byte(line.Seed))
		order.N = line.Sealed
		return order, err == nil
	case line.Phase == model.PhaseCalling || line.Phase == model.PhaseOver:
		return order, line.Sealed == 0
	}
	return order, false
}
