package service

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/maypok86/otter/v2"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// Linger is how long a sale is still watched after its end. After an outage of the database, its stream may have entries.
	Linger = 24 * time.Hour
	// filterSales and filterErrors size the Bloom filter, which has the id and the short code of each sale, and the ids of
	// campaigns. With half a million sales, about one guessed id in a thousand passes.
	filterSales, filterErrors = 1_000_000, 0.001
	// Each refresh of the filter also reads the sales made in this time before the last refresh: a slow transaction commits late.
	filterOverlap = time.Minute
	// filterPause is the least time between two refreshes that unknown ids cause, so that guessed ids cost few queries.
	filterPause = 50 * time.Millisecond
	pastSales   = 1000 // the most sales that stay cached after they are no longer watched
)

// CatalogStore reads the catalog's data from the database.
type CatalogStore interface {
	LiveOffers(ctx context.Context, linger time.Duration) ([]model.Offer, error)
	Offer(ctx context.Context, saleID string) (model.Offer, bool, error)
	CampaignSales(ctx context.Context, campaignID string) ([]model.Offer, error)
	SaleCodes(ctx context.Context, since time.Time) (codes map[string]string, asked time.Time, err error)
	Now(ctx context.Context) (time.Time, error)
}

// Catalog is this instance's memory of the sales: the data that pages show, a filter of the ids that exist, the sales
// that are sold out, and the database's clock. Refresh updates it.
type Catalog struct {
	store CatalogStore
	now   func() time.Time

	live    atomic.Pointer[snapshot]
	reading atomic.Pointer[reading]
	soldOut sync.Map // by sale id; an entry stays until a refresh reads available units, or Unlatch removes it
	past    *otter.Cache[string, model.Offer]

	refreshing sync.Mutex    // one refresh of the snapshot at a time, so that no older snapshot replaces a newer one
	filtering  chan struct{} // of capacity 1, held by a refresh of the filter
	filter     atomic.Pointer[bloom.BloomFilter]
	askedAt    time.Time // the database's clock at the last refresh of the filter
	filteredAt time.Time // when that refresh began, by this process's clock
}

// reading is one reading of the database's clock. "at" is about that instant on this process's clock, with its monotonic part.
type reading struct{ database, at time.Time }

type snapshot struct {
	offers    []model.Offer // by their start
	byID      map[string]*model.Offer
	campaigns map[string]*campaign
	changed   chan struct{} // closed when a newer snapshot differs

	// Replies of the database since this snapshot was read, about sales and campaigns that are not watched and about short codes.
	found  recent[model.Offer] // without an id if there is no such sale
	groups recent[[]model.Offer]
	coded  recent[string] // the id of a sale, by its short code
}

// campaign is the watched sales of a campaign.
type campaign struct {
	sales []model.Offer // in the order of the campaign
	limit model.CommonLimit
}

// NewCatalog creates an empty catalog; Refresh fills it. "now" is this process's clock.
func NewCatalog(store CatalogStore, now func() time.Time) *Catalog {
	c := &Catalog{store: store, now: now, filtering: make(chan struct{}, 1), past: otter.Must(&otter.Options[string, model.Offer]{MaximumSize: pastSales})}
	c.live.Store(&snapshot{changed: make(chan struct{})})
	at := now()
	c.reading.Store(&reading{at.UTC(), at})
	c.filter.Store(bloom.NewWithEstimates(filterSales, filterErrors))
	return c
}

// Refresh reads the live sales, new sale ids and the database's clock.
func (c *Catalog) Refresh(ctx context.Context) error {
	if err := c.refreshSnapshot(ctx); err != nil {
		return err
	}
	c.filtering <- struct{}{}
	defer func() { <-c.filtering }()
	return c.refreshFilter(ctx)
}

func (c *Catalog) refreshSnapshot(ctx context.Context) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	before := c.now()
	dbNow, err := c.store.Now(ctx)
	if err != nil {
		return err
	}
	after := c.now()
	c.reading.Store(&reading{dbNow, before.Add(after.Sub(before) / 2)})

	list, err := c.store.LiveOffers(ctx, Linger)
	if err != nil {
		return err
	}
	next := &snapshot{offers: list, byID: make(map[string]*model.Offer, len(list)), campaigns: group(list), changed: make(chan struct{})}
	for i, o := range list {
		next.byID[o.ID] = &list[i]
		if o.Stock.Available > 0 {
			c.soldOut.Delete(o.ID)
		}
	}
	old := c.live.Load()
	if slices.Equal(old.offers, next.offers) {
		next.changed = old.changed
	}
	c.live.Store(next)
	if next.changed != old.changed {
		close(old.changed)
	}
	return nil
}

// lookForNew refreshes the filter, unless a refresh has begun since the call. It may wait for filterPause.
func (c *Catalog) lookForNew(ctx context.Context) error {
	called := c.now()
	select {
	case c.filtering <- struct{}{}:
		defer func() { <-c.filtering }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.filteredAt.After(called) {
		return nil // a refresh for another caller began meanwhile
	}
	if !pause.For(ctx, filterPause-called.Sub(c.filteredAt)) {
		return ctx.Err()
	}
	return c.refreshFilter(ctx)
}

// refreshFilter adds the ids of new sales and campaigns, and short codes, to the filter. The caller holds filtering.
func (c *Catalog) refreshFilter(ctx context.Context) error {
	began := c.now()
	codes, asked, err := c.store.SaleCodes(ctx, c.askedAt.Add(-filterOverlap))
	if err != nil {
		return err
	}
	c.askedAt, c.filteredAt = asked, began
	maps.DeleteFunc(codes, func(id, code string) bool { return c.filter.Load().TestString(id) && c.filter.Load().TestString(code) })
	if len(codes) == 0 {
		return nil
	}
	filter := c.filter.Load().Copy() // readers still use the old filter
	for id, code := range codes {
		filter.AddString(id)
		filter.AddString(code)
	}
	c.filter.Store(filter)
	return nil
}

// Now returns the database's clock as last read, carried on by this process's monotonic clock.
func (c *Catalog) Now() time.Time {
	r := c.reading.Load()
	return r.database.Add(c.now().Sub(r.at)).UTC()
}

// Sale returns a sale from memory, else from the database; ok is false if no such sale is found. The stock of a sale that is not
// watched may be old.
func (c *Catalog) Sale(ctx context.Context, id string) (model.Offer, bool, error) {
	if offer := c.InMemory(id); offer != nil {
		return *offer, true, nil
	}
	if known, err := c.Known(ctx, id); err != nil || !known {
		return model.Offer{}, false, err
	}
	if offer, ok := c.past.GetIfPresent(id); ok {
		return offer, true, nil
	}
	offer, err := c.live.Load().found.get(ctx, id, func(ctx context.Context, id string) (model.Offer, error) {
		offer, _, err := c.store.Offer(ctx, id)
		return offer, err
	})
	if err != nil || offer.ID == "" {
		return model.Offer{}, false, err
	}
	if offer.EndsAt.Before(c.Now().Add(-Linger)) {
		c.past.Set(id, offer)
	}
	return offer, true, nil
}

// InMemory returns a watched sale as the last refresh read it, or nil if it isn't watched. The caller must not change it.
func (c *Catalog) InMemory(id string) *model.Offer { return c.live.Load().byID[id] }

// Known reports whether the id of a sale or a campaign, or a short code, may exist. It says no only after a look for new sales.
func (c *Catalog) Known(ctx context.Context, id string) (bool, error) {
	if c.filter.Load().TestString(id) {
		return true, nil
	}
	if err := c.lookForNew(ctx); err != nil {
		return false, err
	}
	return c.filter.Load().TestString(id), nil
}

// Live lists the watched sales in the order of their starts, without shadow sales and the lines of campaigns.
func (c *Catalog) Live() []model.Offer {
	return c.live.Load().those(func(o *model.Offer) bool { return !model.IsShadow(o.ID) && !o.IsCampaignLine() })
}

// Lines lists the watched sales that have a line of their own, or may get one, in the order of their starts.
func (c *Catalog) Lines() []model.Offer {
	return c.live.Load().those(func(o *model.Offer) bool { return o.HasLine() && o.LineID() == o.ID })
}

// group returns the sales of each campaign in the list, and the limit that they share.
func group(list []model.Offer) map[string]*campaign {
	campaigns := map[string]*campaign{}
	for _, o := range list {
		id := o.Campaign.ID
		if id == "" || o.IsCampaignLine() {
			continue
		}
		if campaigns[id] == nil {
			campaigns[id] = &campaign{limit: model.CommonLimit{Units: o.Campaign.LimitPerUser}}
		}
		campaigns[id].sales = append(campaigns[id].sales, o)
		campaigns[id].limit.SaleIDs = append(campaigns[id].limit.SaleIDs, o.ID)
	}
	for _, c := range campaigns {
		slices.SortFunc(c.sales, func(a, b model.Offer) int { return cmp.Compare(a.Place, b.Place) })
	}
	return campaigns
}

// CommonLimit returns the limit of a campaign, or nil if no sale of the campaign is watched.
func (c *Catalog) CommonLimit(campaignID string) *model.CommonLimit {
	if campaign := c.live.Load().campaigns[campaignID]; campaign != nil {
		return &campaign.limit
	}
	return nil
}

// Campaign returns the sales of a campaign in their order, from memory or else from the database. The list is empty if no such
// campaign is found. The caller must not change the list.
func (c *Catalog) Campaign(ctx context.Context, id string) ([]model.Offer, error) {
	if campaign := c.live.Load().campaigns[id]; campaign != nil {
		return campaign.sales, nil
	}
	if known, err := c.Known(ctx, id); err != nil || !known {
		return nil, err
	}
	return c.live.Load().groups.get(ctx, id, c.store.CampaignSales)
}

// those returns the sales for which the condition "which" holds.
func (s *snapshot) those(which func(o *model.Offer) bool) (list []model.Offer) {
	for i := range s.offers {
		if o := &s.offers[i]; which(o) {
			list = append(list, *o)
		}
	}
	return list
}

// Watched returns the number of the watched sales.
func (c *Catalog) Watched() int { return len(c.live.Load().offers) }

// LiveIDs lists the ids of the watched sales.
func (c *Catalog) LiveIDs() (ids []string) {
	for _, o := range c.live.Load().offers {
		ids = append(ids, o.ID)
	}
	return ids
}

// LiveGates names the gates of the watched sales.
func (c *Catalog) LiveGates() []model.GateRef { return model.GateRefs(c.live.Load().offers) }

// Changed returns a channel that closes when the watched sales have changed.
func (c *Catalog) Changed() <-chan struct{} { return c.live.Load().changed }

// Epoch returns the epoch of a sale's gate as the last refresh read it, or 0 if the sale isn't watched.
func (c *Catalog) Epoch(saleID string) int64 {
	if offer := c.InMemory(saleID); offer != nil {
		return offer.Stock.Epoch
	}
	return 0
}

// Judge returns whether a sale sells now, as model.Sale.Judge does, or NotFound if the sale isn't watched.
func (c *Catalog) Judge(saleID string) model.Verdict {
	offer := c.InMemory(saleID)
	if offer == nil {
		return model.NotFound
	}
	return offer.Judge(c.Now())
}

// Latch marks a sale as sold out for now.
func (c *Catalog) Latch(saleID string) { c.soldOut.Store(saleID, struct{}{}) }

// Unlatch removes the mark that a sale is sold out, since units may have come back.
func (c *Catalog) Unlatch(saleID string) { c.soldOut.Delete(saleID) }

// Latched reports whether a sale is marked as sold out.
func (c *Catalog) Latched(saleID string) bool {
	_, latched := c.soldOut.Load(saleID)
	return latched
}
