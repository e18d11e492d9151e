package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and some tests cause errors on purpose
	kit.Main(m)
}

var (
	errAway = errors.New("the store is away")
	discard = slog.New(slog.DiscardHandler)
)

// fakeStores are a database and a Redis with gates. The database's clock is this process's plus an offset.
type fakeStores struct {
	SaleStore

	offset time.Duration
	peeked func() // called after each read of gates, if not nil

	mu      sync.Mutex
	offers  []model.Offer
	ended   []model.Offer // no longer live
	created map[string]time.Time
	books   model.Books
	states  map[string]model.GateState
	err     error // of the database
	errGate error
	calls   map[string]int
	codes   int   // the number returned by the last look for new sales
	version int64 // if not 0, it grows with each read of the live sales
}

func newFakeStores(offers ...model.Offer) *fakeStores {
	f := &fakeStores{created: map[string]time.Time{}, states: map[string]model.GateState{}, calls: map[string]int{}}
	for _, o := range offers {
		f.add(o)
	}
	return f
}

// locked locks the fake until the returned function is called.
func (f *fakeStores) locked() (unlock func()) {
	f.mu.Lock()
	return f.mu.Unlock
}

func (f *fakeStores) add(o model.Offer) {
	defer f.locked()()
	f.offers = append(f.offers, o)
	f.created[o.ID] = time.Now().Add(f.offset)
}

func (f *fakeStores) change(fn func(f *fakeStores)) {
	defer f.locked()()
	fn(f)
}

func (f *fakeStores) count(call string) int {
	defer f.locked()()
	return f.calls[call]
}

func (f *fakeStores) LiveOffers(_ context.Context, linger time.Duration) (live []model.Offer, err error) {
	defer f.locked()()
	if f.version > 0 {
		f.version++
		f.offers[0].Stock.Version = f.version
	}
	for _, o := range f.offers {
		if o.EndsAt.After(time.Now().Add(f.offset - linger)) {
			live = append(live, o)
		}
	}
	return live, f.err
}

func (f *fakeStores) CampaignSales(_ context.Context, id string) (sales []model.Offer, err error) {
	defer f.locked()()
	f.calls["campaign"]++
	for _, o := range slices.Concat(f.offers, f.ended) {
		if o.Campaign.ID == id {
			sales = append(sales, o)
		}
	}
	return sales, f.err
}

func (f *fakeStores) SaleByCode(_ context.Context, code string) (string, error) {
	defer f.locked()()
	f.calls["code"]++
	for _, o := range slices.Concat(f.offers, f.ended) {
		if o.Code == code {
			return o.ID, f.err
		}
	}
	return "", f.err
}

func (f *fakeStores) Offer(_ context.Context, id string) (model.Offer, bool, error) {
	defer f.locked()()
	f.calls["offer"]++
	for _, o := range slices.Concat(f.offers, f.ended) {
		if o.ID == id {
			return o, true, f.err
		}
	}
	return model.Offer{}, false, f.err
}

func (f *fakeStores) SaleCodes(_ context.Context, since time.Time) (map[string]string, time.Time, error) {
	defer f.locked()()
	f.calls["codes"]++
	codes := map[string]string{}
	for _, o := range slices.Concat(f.offers, f.ended) {
		if !f.created[o.ID].Before(since) {
			codes[o.ID] = o.Code
		}
	}
	f.codes = len(codes)
	return codes, time.Now().Add(f.offset), f.err
}

func (f *fakeStores) Now(context.Context) (time.Time, error) {
	defer f.locked()()
	return time.Now().Add(f.offset), f.err
}

func (f *fakeStores) Books(context.Context, string) (books model.Books, ok bool, err error) {
	defer f.locked()()
	return f.books, f.books.Units != nil, f.err
}

func (f *fakeStores) Peek(_ context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	defer f.locked()()
	states := make([]model.GateState, len(gates))
	for i, gate := range gates {
		states[i] = f.states[gate.SaleID]
	}
	if f.peeked != nil {
		f.peeked()
	}
	return states, f.errGate
}

// openOffer returns a sale of 10 units, at most 2 for each user, which began an hour ago and ends in an hour.
func openOffer() model.Offer {
	id := model.NewSaleID()
	return model.Offer{
		Sale: model.Sale{
			ID: id, Code: "C" + id[:7], LimitPerUser: 2, PriceCents: 150, Currency: "CNY", Status: model.SaleLive, Revision: 1, Shards: 1, Mode: model.ModeRush, StockShown: model.StockExact,
			StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), PayTimeoutSeconds: 600, Title: "a sale",
		},
		Stock: model.Stock{SaleID: id, Quota: 10, Available: 10, Version: 1, Epoch: 1},
	}
}

// openGate is a gate of an epoch with as many units left.
func openGate(epoch, left int64) model.GateState {
	return model.GateState{Exists: true, Open: true, Epoch: epoch, Left: left}
}

func refreshed(t testing.TB, store CatalogStore) *Catalog {
	t.Helper()
	c := NewCatalog(store, time.Now)
	check.Done(c.Refresh(t.Context()))
	return c
}
