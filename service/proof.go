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
	key     []byte // the public key of the beacon's chain
	running chan struct{}
}

// NewProofs creates the service. key is the public key of the beacon's chain.
func NewProofs(store ProofStore, catalog *Catalog, key []byte) *Proofs {
	return &Proofs{store: store, catalog: catalog, key: key, running: make(chan struct{}, proofsAtOnce)}
}

// begin returns a sealed line, and a function to call at the end. The verdict is Accepted; NotFound if there is no such
// sale, or nothing to prove yet: before the seal, and before the end of a draw; or RateLimited if too many proofs are
// under way.
func (p *Proofs) begin(ctx context.Context, saleID string) (offer model.Offer, end func(), verdict model.Verdict, err error) {
	offer, ok, err := lineOf(ctx, p.catalog, saleID)
	drawing := offer.Mode == model.ModeDraw && offer.Line.Phase == model.PhaseSealed
	if err != nil || !ok || offer.Line.Root == "" || offer.Line.AwaitsSeed() || drawing {
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
	head := ranks.Head{Sale: offer.ID, Mode: ranks.Line, N: line.Sealed}
	draws := offer.Mode == model.ModeDraw && !offer.IsCampaignLine() // there the winners are called, as in a line
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
	of, err := p.entries(ctx, offer.ID)
	if err != nil {
		return "", err
	}
	lists := ranks.Lists{Void: ranks.All(of.void), Quantities: ranks.All(of.quantities), Tags: ranks.All(of.tags)}
	if draws {
		winners, units, err := p.store.DrawnNumbers(ctx, offer.ID)
		if err != nil {
			return "", err
		}
		slices.SortFunc(winners, func(a, b int64) int { return cmp.Compare(order.Rank(a), order.Rank(b)) })
		head.Units, lists.Winners = &units, ranks.All(winners)
	}
	begun()
	return model.Accepted, ranks.Write(w, head, lists)
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

// Path returns what proves to a user that the own entry is under the root: its tag, and the audit path. The verdict is as
// with begin, or NotFound if the user has no entry from before the seal.
func (p *Proofs) Path(ctx context.Context, userID, saleID string) (number int64, tag ranks.Hash, path []ranks.Hash, verdict model.Verdict, err error) {
	offer, end, verdict, err := p.begin(ctx, saleID)
	if err != nil || verdict != model.Accepted {
		return 0, tag, nil, verdict, err
	}
	defer end()
	of, err := p.entries(ctx, offer.ID)
	if err != nil {
		return 0, tag, nil, "", err
	}
	tags := of.tags
	number = int64(slices.Index(tags, ranks.Tag(of.key[:], userID)))
	if number < 0 || number >= int64(len(tags)) || offer.Line.Sealed != int64(len(tags)) {
		return 0, tag, nil, model.NotFound, nil
	}
	return number, tags[number], ranks.NewTree(tags).Path(number), model.Accepted, nil
}

// provable is what a proof needs of the entries from before the seal, by their numbers: 40 bytes each.
type provable struct {
	key              [32]byte
	void, quantities []int64
	tags             []ranks.Hash
}

// entries reads the entries from before the seal once, so that an error of the database comes before the first byte of a
// document.
func (p *Proofs) entries(ctx context.Context, saleID string) (of provable, err error) {
	sealing, err := p.store.Sealing(ctx, saleID)
	if err != nil {
		return of, err
	}
	of.key, of.quantities, of.tags = sealing.LeafKey, make([]int64, 0, sealing.Entries), make([]ranks.Hash, 0, sealing.Entries)
	for page, err := range p.store.LineEntries(ctx, saleID, sealing.Entries) {
		if err != nil {
			return of, err
		}
		for _, e := range page {
			of.quantities, of.tags = append(of.quantities, int64(model.DrawQuantity(e.Quantity, sealing.DrawLimit))), append(of.tags, ranks.Tag(of.key[:], e.UserID))
			if e.State == model.EntryVoid || e.State == model.EntryVoided {
				of.void = append(of.void, e.Number)
			}
		}
	}
	return of, nil
}
