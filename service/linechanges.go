package service

import (
	"cmp"
	"context"
	"time"

	"flashsale/model"
)

// Bounds of what an operator may ask of a line.
const (
	maxExtension   = 24 * 3600 // seconds
	maxVoidUsers   = 1000
	maxVoidReason  = 200
	maxVoidNumbers = 100_000 // in one transaction, during which nobody can enter the line
	maxNumber      = 1 << 40 // far more entries than a line can have
)

// ExtendCalls makes all calls of a sale's line end this many seconds later, and returns the number of calls. The line may be that
// of the sale's campaign. The verdict is Accepted; NotFound; NoLine; or BadRequest with the invalid field.
func (s *Sales) ExtendCalls(ctx context.Context, saleID string, seconds int, actor string) (calls int64, verdict model.Verdict, invalid *Invalid, err error) {
	if invalid := Outside("seconds", int64(seconds), 1, maxExtension); invalid != nil {
		return 0, model.BadRequest, invalid, nil
	}
	offer, ok, err := s.Catalog.Sale(ctx, saleID)
	if err != nil || !ok {
		return 0, model.NotFound, nil, err
	}
	calls, verdict, err = s.Store.ExtendCalls(ctx, offer.LineID(), time.Duration(seconds)*time.Second, actor)
	return calls, verdict, nil, err
}

// VoidEntries removes from a sale's line the waiting entries that a rule names by users or by numbers, and returns how many
// entries these were. The verdict is Accepted; NotFound; NoLine; EntriesClosed after the seal, and for the waiting list of a
// rush, which has no seal; or BadRequest with the first invalid field.
func (s *Sales) VoidEntries(ctx context.Context, saleID string, rule model.VoidRule, actor string) (voided int64, verdict model.Verdict, invalid *Invalid, err error) {
	which := cmp.Or(Outside("from", rule.From, 0, maxNumber), Outside("to", rule.To, rule.From, rule.From+maxVoidNumbers-1))
	if rule.Users != nil {
		which = Outside("users", int64(len(rule.Users)), 1, maxVoidUsers)
	}
	readable := text(rule.Reason, maxVoidReason) && visible(rule.Reason)
	reason := Invalid{Field: "reason", Reason: BadText, Min: 1, Max: maxVoidReason}.If(!readable)
	if invalid := cmp.Or(reason, which); invalid != nil {
		return 0, model.BadRequest, invalid, nil
	}
	offer, ok, err := s.Catalog.Sale(ctx, saleID)
	if err != nil || !ok {
		return 0, model.NotFound, nil, err
	}
	voided, verdict, err = s.Store.VoidEntries(ctx, offer.LineID(), rule, actor)
	return voided, verdict, nil, err
}
