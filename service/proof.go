package service

import (
	"cmp"
	"context"
	"encoding/hex"
	"io"
	"iter"
	"slices"

	"flashsale/internal/ranks"
	"flashsale/model"
)

// proofsAtOnce is how many proofs an instance writes or computes at the same time. Each reads all entries of a sale.
const proofsAtOnce = 2

// ProofStore reads what proves the order of a line.
type ProofStore interface {
	Sealing(ctx context.Context, saleID string) (model.Sealing, error)
	LineEntries(ctx context.Context, saleID string, below int64) iter.Seq2[[]model.LineEntry, error]
	DrawnNumbers(ctx context.Context, saleID string) (numbers []int64, units int64, err error)
}

// Proofs proves the order of lines to everybody.
type Proofs struct {
	store   ProofStore
	catalog *Catalog
	running chan struct{}
}

// NewProofs creates the service.
func NewProofs(store ProofStore, catalog *Catalog) *Proofs {
	return &Proofs{store: store, catalog: catalog, running: make(chan struct{}, proofsAtOnce)}
}

// begin returns a sealed line, and a function to call at the end. The verdict is Accepted; NotFound if there is no such
// sale, or nothing to prove yet: before the seal, and before the end of a draw; or RateLimited if too many proofs are
// under way.
func (p *Proofs) begin(ctx context.Context, saleID string) (offer model.Offer, end func(), verdict model.Verdict, err error) {
	offer, ok, err := p.catalog.Sale(ctx, saleID)
	drawing := offer.Mode == model.ModeDraw && offer.Line.Phase == model.PhaseSealed
	if err != nil || !ok || offer.Line.Root == "" || drawing {
		return offer, nil, model.NotFound, err
	}
	select {
	case p.running <- struct{}{}:
		return offer, func() { <-p.running }, model.Accepted, nil
	default:
		return offer, nil, model.RateLimited, nil
	}
}

// Write writes the document that proves the order of a line and the winners of a draw, for ranks.Check. begun is called
// before the first byte. The verdict is as with begin.
func (p *Proofs) Write(ctx context.Context, w io.Writer, saleID string, begun func()) (model.Verdict, error) {
	offer, end, verdict, err := p.begin(ctx, saleID)
	if err != nil || verdict != model.Accepted {
		return verdict, err
	}
	defer end()
	line := offer.Line
	head := ranks.Head{Sale: saleID, Mode: ranks.Mode(offer.Mode), N: line.Sealed}
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
	sealing, err := p.store.Sealing(ctx, saleID)
	if err != nil {
		return "", err
	}
	lists := ranks.Lists{
		Void: column(p.entries(ctx, offer), func(e model.LineEntry) (int64, bool) {
			return e.Number, e.State == model.EntryVoid || e.State == model.EntryVoided
		}),
		Quantities: column(p.entries(ctx, offer), func(e model.LineEntry) (int64, bool) { return int64(e.Quantity), true }),
		Tags: column(p.entries(ctx, offer), func(e model.LineEntry) (ranks.Hash, bool) {
			return ranks.Tag(sealing.LeafKey[:], e.UserID), true
		}),
	}
	if offer.Mode == model.ModeDraw {
		winners, units, err := p.store.DrawnNumbers(ctx, saleID)
		if err != nil {
			return "", err
		}
		slices.SortFunc(winners, func(a, b int64) int { return cmp.Compare(order.Rank(a), order.Rank(b)) })
		head.Units, lists.Winners = &units, ranks.All(winners)
	}
	begun()
	return model.Accepted, ranks.Write(w, head, lists)
}

// Path returns what proves to a user that the own entry is under the root: its tag, and the audit path. The verdict is as
// with begin, or NotFound if the user has no entry from before the seal.
func (p *Proofs) Path(ctx context.Context, userID, saleID string) (number int64, tag ranks.Hash, path []ranks.Hash, verdict model.Verdict, err error) {
	offer, end, verdict, err := p.begin(ctx, saleID)
	if err != nil || verdict != model.Accepted {
		return 0, tag, nil, verdict, err
	}
	defer end()
	sealing, err := p.store.Sealing(ctx, saleID)
	if err != nil {
		return 0, tag, nil, "", err
	}
	tags, number := make([]ranks.Hash, 0, sealing.Entries), int64(-1)
	for page, err := range p.store.LineEntries(ctx, saleID, sealing.Entries) {
		if err != nil {
			return 0, tag, nil, "", err
		}
		for _, e := range page {
			tags = append(tags, ranks.Tag(sealing.LeafKey[:], e.UserID))
			if e.UserID == userID {
				number = e.Number
			}
		}
	}
	if number < 0 || number >= int64(len(tags)) || offer.Line.Sealed != int64(len(tags)) {
		return 0, tag, nil, model.NotFound, nil
	}
	return number, tags[number], ranks.NewTree(tags).Path(number), model.Accepted, nil
}

func (p *Proofs) entries(ctx context.Context, offer model.Offer) iter.Seq2[[]model.LineEntry, error] {
	return p.store.LineEntries(ctx, offer.ID, offer.Line.Sealed)
}

// column returns one value of each entry for which value returns true.
func column[T any](entries iter.Seq2[[]model.LineEntry, error], value func(e model.LineEntry) (T, bool)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range entries {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, e := range page {
				if v, ok := value(e); ok && !yield(v, nil) {
					return
				}
			}
		}
	}
}
