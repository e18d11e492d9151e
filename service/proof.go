package service

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"slices"

	"flashsale/internal/ranks"
	"flashsale/model"
)

const (
	// pagesAtOnce is how many pages of entries are read from the database at the same time, for all documents together.
	pagesAtOnce = 2
	pathsAtOnce = 2 // the paths that an instance computes at the same time; for each, all tags of a line are in memory
)

// ProofStore reads what proves the order of a line.
type ProofStore interface {
	Sealing(ctx context.Context, saleID string) (model.Sealing, error)
	EntryOf(ctx context.Context, saleID, userID string) (e model.LineEntry, ok bool, err error)
	LineEntries(ctx context.Context, saleID string, below int64) iter.Seq2[[]model.LineEntry, error]
	DrawnNumbers(ctx context.Context, saleID string) (numbers []int64, units int64, err error)
}

// Proofs proves the order of lines.
type Proofs struct {
	store            ProofStore
	catalog          *Catalog
	key              []byte // the public key of the beacon's chain
	reading, running chan struct{}
}

// NewProofs creates the service. The key is the public key of the beacon's chain.
func NewProofs(store ProofStore, catalog *Catalog, key []byte) *Proofs {
	return &Proofs{store, catalog, key, make(chan struct{}, pagesAtOnce), make(chan struct{}, pathsAtOnce)}
}

// Ready returns the sale that has the line of a sale, if the order of the line can be proved. The verdict is Accepted, or
// NotFound if there is no such sale, if its line has no finished seal, or if a draw is under way.
func (p *Proofs) Ready(ctx context.Context, saleID string) (offer model.Offer, verdict model.Verdict, err error) {
	offer, ok, err := lineOf(ctx, p.catalog, saleID)
	drawing := offer.Mode == model.ModeDraw && offer.Line.Phase == model.PhaseSealed
	ready := ok && offer.Line.Root != "" && !offer.Line.AwaitsSeed() && !drawing
	return offer, acceptedIf(ready, model.NotFound), err
}

// Write writes the document that proves the order of a line and the winners of a draw, for ranks.Check. The verdict is that of
// Ready. If Write returns an error, a part of the document may be written.
func (p *Proofs) Write(ctx context.Context, w io.Writer, saleID string) (model.Verdict, error) {
	offer, verdict, err := p.Ready(ctx, saleID)
	if err != nil || verdict != model.Accepted {
		return verdict, err
	}
	line := offer.Line
	head := ranks.Head{Sale: offer.ID, Mode: ranks.Line, N: line.Sealed}
	draws := offer.Mode == model.ModeDraw && !offer.IsCampaignLine() // the winners of a campaign's draw are called, as in a line
	if draws {
		head.Mode = ranks.Draw
	}
	for text, into := range map[string]*ranks.Hash{line.Commitment: &head.Commitment, line.Root: &head.Root, line.Secret: &head.Secret} {
		if _, err := hex.Decode(into[:], []byte(text)); err != nil {
			return "", err
		}
	}
	order, ok := orderOf(line)
	if ok && line.Sealed > 0 {
		seed := ranks.Hash(order.Seed)
		head.Seed = &seed
	}
	if head.Beacon, err = p.beacon(line); err != nil {
		return "", err
	}
	sealing, err := p.store.Sealing(ctx, offer.ID)
	if err != nil {
		return "", err
	}
	// Each list reads the entries from the database anew, so that they need not all be in memory.
	pages := p.pages(ctx, offer.ID, sealing.Entries)
	lists := ranks.Lists{
		Void: each(pages, func(e model.LineEntry) (int64, bool) {
			return e.Number, e.State == model.EntryVoid || e.State == model.EntryVoided
		}),
		Quantities: each(pages, func(e model.LineEntry) (int64, bool) {
			return int64(model.DrawQuantity(e.Quantity, sealing.DrawLimit)), true
		}),
		Tags: tagsOf(pages, sealing),
	}
	if draws {
		winners, units, err := p.store.DrawnNumbers(ctx, offer.ID)
		if err != nil {
			return "", err
		}
		slices.SortFunc(winners, func(a, b int64) int { return cmp.Compare(order.Rank(a), order.Rank(b)) })
		head.Units, lists.Winners = &units, ranks.All(winners)
	}
	return model.Accepted, ranks.Write(w, head, lists)
}

// pages returns the entries from before the seal, in pages. Before it reads a page, it waits for its turn, see pagesAtOnce.
func (p *Proofs) pages(ctx context.Context, saleID string, entries int64) iter.Seq2[[]model.LineEntry, error] {
	return func(yield func([]model.LineEntry, error) bool) {
		next, stop := iter.Pull2(p.store.LineEntries(ctx, saleID, entries))
		defer stop()
		read := func() (page []model.LineEntry, more bool, err error) {
			select {
			case p.reading <- struct{}{}:
				defer func() { <-p.reading }()
			case <-ctx.Done():
				return nil, true, ctx.Err()
			}
			page, err, more = next()
			return page, more, err
		}
		for {
			page, more, err := read()
			if !more || !yield(page, err) || err != nil {
				return
			}
		}
	}
}

// each applies the function "of" to the entries, in their order, and returns the values for which the function also returns true.
func each[T any](pages iter.Seq2[[]model.LineEntry, error], of func(model.LineEntry) (T, bool)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for page, err := range pages {
			if err != nil {
				yield(none, err)
				return
			}
			for _, e := range page {
				if value, ok := of(e); ok && !yield(value, nil) {
					return
				}
			}
		}
	}
}

func tagsOf(pages iter.Seq2[[]model.LineEntry, error], sealing model.Sealing) iter.Seq2[ranks.Hash, error] {
	return each(pages, func(e model.LineEntry) (ranks.Hash, bool) { return ranks.Tag(sealing.LeafKey[:], e.UserID), true })
}

// beacon returns the round of the beacon from which a seed followed, or nil if there is none.
func (p *Proofs) beacon(line model.Line) (*ranks.Beacon, error) {
	if line.Round == 0 {
		return nil, nil //nolint:nilnil // most lines have no beacon
	}
	round := &ranks.Beacon{PublicKey: p.key, Round: uint64(line.Round)} //nolint:gosec // rounds are positive
	signature, err := hex.DecodeString(line.Signature)
	round.Signature = signature
	return round, errors.Join(err, round.Randomness.UnmarshalText([]byte(line.Randomness)))
}

// Path returns the proof that a user's entry is under the root: the entry's number, its tag and the audit path. The verdict is
// that of Ready; NotFound if the user has no entry from before the seal; or RateLimited if too many paths are being computed.
func (p *Proofs) Path(ctx context.Context, userID, saleID string) (number int64, tag ranks.Hash, path []ranks.Hash, verdict model.Verdict, err error) {
	offer, verdict, err := p.Ready(ctx, saleID)
	if err != nil || verdict != model.Accepted {
		return 0, tag, nil, verdict, err
	}
	e, ok, err := p.store.EntryOf(ctx, offer.ID, userID)
	if err != nil || !ok || e.Number >= offer.Line.Sealed {
		return 0, tag, nil, model.NotFound, err
	}
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	default:
		return 0, tag, nil, model.RateLimited, nil
	}
	tags, err := p.tags(ctx, offer.ID)
	if err != nil || offer.Line.Sealed != int64(len(tags)) {
		return 0, tag, nil, model.NotFound, err
	}
	return e.Number, tags[e.Number], ranks.Path(tags, e.Number), model.Accepted, nil
}

// tags returns the tags of the entries from before the seal, by their numbers: 32 bytes each.
func (p *Proofs) tags(ctx context.Context, saleID string) ([]ranks.Hash, error) {
	sealing, err := p.store.Sealing(ctx, saleID)
	if err != nil {
		return nil, err
	}
	tags := make([]ranks.Hash, 0, sealing.Entries)
	for tag, err := range tagsOf(p.store.LineEntries(ctx, saleID, sealing.Entries), sealing) {
		if err != nil {
			return nil, err
		}
		tags = append(tags, tag)
	}
	return tags, nil
}
