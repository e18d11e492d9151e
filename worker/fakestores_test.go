package worker

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// fakeStores are the database and the gate of one sale, for the auditor and the controller. The gate counts no units of
// users.
type fakeStores struct {
	offer     model.Offer
	shop      model.Shop
	others    int            // more live sales, which are like the offer
	units     map[string]int // by user
	holder    string         // of the lease
	errAway   error          // of Lease and LiveOffers
	errNow    error
	leaseTTL  time.Duration
	booksRead int
	logged    []string
	epochs    int
	rebuilt   time.Time

	gate     model.GateState
	errGate  error
	installs int

	log      *check.Log
	catalog  *service.Catalog
	found    []int64 // drifts
	replaced int
	violated int
}

func newFakeStores() *fakeStores {
	now := time.Now()
	f := &fakeStores{holder: "here", log: &check.Log{}, offer: model.Offer{
		Sale:  model.Sale{ID: saleA, Status: model.SaleLive, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), LimitPerUser: 1},
		Stock: model.Stock{SaleID: saleA, Quota: 10, Available: 10, Version: 1, Epoch: 1},
	}}
	f.drift(0)
	f.catalog = service.NewCatalog(f, time.Now)
	return f
}

func (f *fakeStores) Shop(context.Context) (model.Shop, error) {
	defer locked()()
	return f.shop, nil
}

func (*fakeStores) SetShop(context.Context, model.Shop, string) error { return nil }

func (f *fakeStores) lease(_ context.Context, loop string, ttl time.Duration) (bool, error) {
	defer locked()()
	f.leaseTTL = ttl
	return loop == "auditor" && f.holder == "here", f.errAway
}

func (f *fakeStores) Log(_ context.Context, actor, action, subject, detail string) error {
	defer locked()()
	f.logged = append(f.logged, strings.Join([]string{actor, action, subject, detail}, " "))
	return nil
}

func (f *fakeStores) Books(context.Context, string) (model.Books, bool, error) {
	defer locked()()
	f.booksRead++
	return model.Books{Stock: f.offer.Stock, Line: f.offer.Line, Units: map[model.OrderStatus]int64{}}, true, nil
}

func (f *fakeStores) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	defer locked()()
	list := slices.Repeat([]model.Offer{f.offer}, 1+f.others)
	for i := range f.others {
		list[1+i].ID = fmt.Sprintf("%s-%d", f.offer.ID, i)
	}
	return list, f.errAway
}

func (f *fakeStores) Buyers(ctx context.Context, _ string) iter.Seq2[[]model.Buyer, error] {
	defer locked()()
	return kit.Contents{Units: maps.Clone(f.units)}.Buyers(ctx)
}

func (f *fakeStores) Offer(context.Context, string) (model.Offer, bool, error) {
	defer locked()()
	return f.offer, true, nil
}

func (*fakeStores) CampaignSales(context.Context, string) ([]model.Offer, error) { return nil, nil }

func (*fakeStores) SaleCodes(context.Context, time.Time) (map[string]string, time.Time, error) {
	return map[string]string{saleA: "CODEAAAA"}, time.Now(), nil
}

func (f *fakeStores) Now(context.Context) (time.Time, error) {
	defer locked()()
	return time.Now(), f.errNow
}

func (f *fakeStores) NextEpoch(_ context.Context, _ string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	defer locked()()
	if time.Since(f.rebuilt) < pause {
		return 0, false, nil
	}
	f.epochs++
	f.rebuilt, f.offer.Stock.Epoch = time.Now(), max(seen, gates)+1
	return f.offer.Stock.Epoch, true, nil
}

func (*fakeStores) RenewEpoch(context.Context, string, int64) error { return nil }

func (f *fakeStores) GateContents(context.Context, string) (model.GateContents, bool, error) {
	defer locked()()
	return kit.ContentsOf(f.offer), true, nil
}

func (*fakeStores) GateChanges(_ context.Context, _ string, after int64, _ int) ([]model.GateChange, int64, bool, error) {
	return nil, after, false, nil
}

func (*fakeStores) ForgetGateChanges(context.Context, string, int64) error { return nil }

func (*fakeStores) Count(context.Context, model.GateRef, string, model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	return 0, true, nil
}

// drift gives the gate so many units more than the stock has.
func (f *fakeStores) drift(units int64) {
	defer locked()()
	f.gate = model.GateState{Exists: true, Open: true, Epoch: max(f.gate.Epoch, 1), Left: 10 + units}
}

func (f *fakeStores) loseGate() { with(func() { f.gate = model.GateState{} }) }

// fakeGate has the methods of the gate, one of which the database has as well.
type fakeGate struct{ *fakeStores }

func (fakeGate) Units(_ context.Context, _ model.GateRef, users []string) ([]int, error) {
	return make([]int, len(users)), nil
}

func (fakeGate) Buyers(context.Context, model.GateRef) (int64, error) { return 0, nil }

func (f fakeGate) Peek(_ context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	defer locked()()
	return slices.Repeat([]model.GateState{f.gate}, len(gates)), f.errGate
}

func (fakeGate) Close(context.Context, model.GateRef, int64) (bool, error) { return true, nil }

func (fakeGate) StreamLengths(context.Context, model.GateRef) ([]int64, error) {
	return []int64{0}, nil
}

func (f fakeGate) Install(_ context.Context, epoch int64, _ []int64, c model.GateContents) ([]string, error) {
	defer locked()()
	f.installs++
	f.gate = model.GateState{Exists: true, Open: true, Epoch: epoch, Left: c.Offer().Stock.Available}
	return nil, f.errGate
}

func (fakeGate) CatchUp(context.Context, model.GateRef, int64, int64, []model.GateChange) error {
	return nil
}
