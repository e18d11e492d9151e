package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"flashsale/internal/observe"
	"flashsale/internal/ranks"
	"flashsale/model"
)

// callBatch is the most ranks that a caller looks at, or calls that it ends, in one transaction, which keeps the line locked.
const callBatch = 500

// beaconMargin is the least time between the naming of a round and the publication of the round. It must be longer than the
// error of the database's clock, and longer than the root takes to become public.
const beaconMargin = 5 * time.Second

// CallerStore is what callers need of the database.
type CallerStore interface {
	TendLine(ctx context.Context, saleID string) (model.Offer, error)
	Sealing(ctx context.Context, saleID string) (model.Sealing, error)
	LineEntries(ctx context.Context, saleID string, below int64) iter.Seq2[[]model.LineEntry, error]
	SetRoot(ctx context.Context, saleID, root string, round func(now time.Time) int64) error
	SetRandomness(ctx context.Context, saleID string, round int64, signature []byte, randomness [32]byte) error
	SetSeed(ctx context.Context, saleID, root, seed string) error
	Call(ctx context.Context, saleID string, serving int64, numbers []int64) (looked int, left bool, err error)
	EndCalls(ctx context.Context, saleID string, all bool, limit int) (more bool, err error)
	Draw(ctx context.Context, saleID string, serving int64, numbers []int64, id func(userID string) string) (looked int, over bool, err error)
}

// Beacon is a public source of randomness, which publishes a round every few seconds.
type Beacon interface {
	After(t time.Time) (round int64) // the first round that is published later than t
	At(round int64) time.Time        // when a round is published
	// Round asks for a round, and checks its signature. An error means that there is no valid answer yet.
	Round(ctx context.Context, round int64) (signature []byte, randomness [32]byte, err error)
}

// Caller looks after lines: it seals lines, draws winners, calls entrants and ends calls. It may die at any point, and several
// callers may work on a line at once.
type Caller struct {
	Store   CallerStore
	Catalog *Catalog
	IDs     model.OrderIDs
	Beacon  Beacon
	Observe observe.All
}

// Due lists the watched sales in line whose lines a caller has to look after: a line that is not over, or still has calls.
func (c *Caller) Due() (saleIDs []string) {
	for _, o := range c.Catalog.Lines() {
		if o.Stock.Lined == model.InLine && (o.Line.Phase != model.PhaseOver || o.Stock.Called > 0) {
			saleIDs = append(saleIDs, o.ID)
		}
	}
	return saleIDs
}

// Tend does what a line needs now: it seals the line, or draws, or ends calls and calls entrants. It does nothing more to a line
// that stays stopped. Tend may run for several lines at the same time.
func (c *Caller) Tend(ctx context.Context, saleID string) error {
	offer, err := c.Store.TendLine(ctx, saleID)
	if err != nil || offer.Line.Stopped {
		return err
	}
	switch line := offer.Line; {
	case line.Phase == model.PhaseOver:
		return c.endCalls(ctx, saleID, true)
	case line.Phase == model.PhaseSealed && (line.Root == "" || line.AwaitsSeed()):
		return c.seal(ctx, offer)
	case line.Phase == model.PhaseSealed:
		return c.draw(ctx, offer)
	case line.Phase == model.PhaseCalling:
		return errors.Join(c.endCalls(ctx, saleID, false), c.call(ctx, offer))
	}
	return nil
}

// seal publishes the root over the entries from before the seal, and the seed. With a beacon, it publishes the root and names a
// round. A later run publishes the seed, when the round's randomness is stored. A line without entries gets no round and no seed.
func (c *Caller) seal(ctx context.Context, offer model.Offer) (err error) {
	line := offer.Line
	if line.Root != "" && line.Randomness == "" {
		return nil // AskForRound gets the randomness
	}
	ctx, end := c.Observe.Begin(ctx, observe.Step{Name: observe.SealLine})
	defer func() { end(err) }()
	sealing, err := c.Store.Sealing(ctx, offer.ID)
	if err != nil {
		return err
	}
	if line.Root != "" {
		var root, randomness ranks.Hash
		if err := errors.Join(root.UnmarshalText([]byte(line.Root)), randomness.UnmarshalText([]byte(line.Randomness))); err != nil {
			return fmt.Errorf("seed of sale %s: %w", offer.ID, err)
		}
		return c.Store.SetSeed(ctx, offer.ID, line.Root, ranks.Seed(sealing.Secret, root, randomness[:]).String())
	}
	var tree ranks.Root
	for tag, err := range tagsOf(c.Store.LineEntries(ctx, offer.ID, sealing.Entries), sealing) {
		if err != nil {
			return err
		}
		tree.Add(tag)
	}
	root, seed := tree.Sum(), ""
	switch {
	case sealing.Entries == 0:
	case offer.Beacon:
		return c.Store.SetRoot(ctx, offer.ID, root.String(), func(now time.Time) int64 { return c.Beacon.After(now.Add(beaconMargin)) })
	default:
		seed = ranks.Seed(sealing.Secret, root, nil).String()
	}
	return c.Store.SetSeed(ctx, offer.ID, root.String(), seed)
}

// next returns the numbers of the entries with the ranks "serving" to "below" - 1, at most callBatch, or none without an order.
func next(line model.Line, serving, below int64) []int64 {
	order, ok := orderOf(line)
	if !ok {
		return nil
	}
	var numbers []int64
	for rank := serving; rank < below && len(numbers) < callBatch; rank++ {
		numbers = append(numbers, order.Number(rank))
	}
	return numbers
}

// call calls entrants as long as units are left and entrants wait.
func (c *Caller) call(ctx context.Context, offer model.Offer) error {
	for serving, left := offer.Line.Serving, true; left; {
		numbers := next(offer.Line, serving, offer.Line.Entries)
		if len(numbers) == 0 {
			return nil
		}
		calling, called := c.Observe.Begin(ctx, observe.Step{Name: observe.CallNext})
		looked, more, err := c.Store.Call(calling, offer.ID, serving, numbers)
		if called(err); err != nil || looked == 0 {
			return err
		}
		serving, left = serving+int64(looked), more
	}
	return nil
}

// draw makes the winners' orders, beginning with the line's serving rank.
func (c *Caller) draw(ctx context.Context, offer model.Offer) error {
	id := func(userID string) string { return c.IDs.Derive(userID, offer.ID, "draw") }
	for serving, over := offer.Line.Serving, false; !over; {
		numbers := next(offer.Line, serving, offer.Line.Sealed)
		drawing, drawn := c.Observe.Begin(ctx, observe.Step{Name: observe.DrawWinners})
		looked, done, err := c.Store.Draw(drawing, offer.ID, serving, numbers, id)
		if drawn(err); err != nil || looked == 0 && !done {
			return err
		}
		serving, over = serving+int64(looked), done
	}
	return nil
}

func (c *Caller) endCalls(ctx context.Context, saleID string, all bool) (err error) {
	for more := true; more && err == nil; {
		ending, ended := c.Observe.Begin(ctx, observe.Step{Name: observe.EndCalls})
		more, err = c.Store.EndCalls(ending, saleID, all, callBatch)
		ended(err)
	}
	return err
}

// DueRounds lists the sales whose lines wait for a round that should be published by now, and that is not stored yet.
func (c *Caller) DueRounds() (saleIDs []string) {
	for _, o := range c.Catalog.Lines() {
		waits := o.Line.Phase == model.PhaseSealed && o.Line.AwaitsSeed() && o.Line.Randomness == ""
		if waits && !c.Catalog.Now().Before(c.Beacon.At(o.Line.Round)) {
			saleIDs = append(saleIDs, o.ID)
		}
	}
	return saleIDs
}

// AskForRound asks once for the round for which a sale's line waits, and stores a valid answer. It does nothing if the sale isn't
// watched. An error means that there is no valid answer yet, or that a valid answer could not be stored.
func (c *Caller) AskForRound(ctx context.Context, saleID string) error {
	offer := c.Catalog.InMemory(saleID)
	if offer == nil {
		return nil
	}
	signature, randomness, err := c.Beacon.Round(ctx, offer.Line.Round)
	if err != nil {
		return err
	}
	return c.Store.SetRandomness(ctx, saleID, offer.Line.Round, signature, randomness)
}
