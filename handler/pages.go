package handler

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"

	"flashsale/internal/prepared"
	"flashsale/middleware"
	"flashsale/model"
)

// Pages shows the HTML pages.
type Pages struct {
	*Offers
	Home Home
	Shop func() *model.Shop // as service.Shop.Shown
}

// Home makes the pages, which are the same for everybody. Its answers have no compressed form yet.
type Home interface {
	Sales(live []model.Offer) *prepared.Answer
	Sale(offer model.Offer) *prepared.Answer
	Campaign(sales []model.Offer) *prepared.Answer
	Page(path string) *prepared.Answer
}

// maxSalePages bounds each cache with an entry for each sale. An entry takes some kilobytes.
const maxSalePages = 4096

// pageCache keeps one page for each id, with the value that it was made for. A page is made again when the value has changed.
type pageCache[V any] struct {
	kept *otter.Cache[string, *keptPage[V]]
	same func(a, b V) bool
}

type keptPage[V any] struct {
	*prepared.Answer
	of V
}

// offerNow is a sale, and its state at a time.
type offerNow struct {
	model.Offer
	state model.SaleState
}

func newSalePages() pageCache[offerNow] {
	return pageCache[offerNow]{
		otter.Must(&otter.Options[string, *keptPage[offerNow]]{MaximumSize: maxSalePages}), func(a, b offerNow) bool { return a == b },
	}
}

// send answers with the page that is kept under the id, if that was made for this value, and else with a new page. A new page
// with status 200 is kept.
func (p pageCache[V]) send(c *gin.Context, id string, of V, render func() *prepared.Answer) {
	page, ok := p.kept.GetIfPresent(id)
	if !ok || !p.same(page.of, of) {
		page = &keptPage[V]{render(), of}
		if page.Status() == http.StatusOK {
			page.Answer = page.Compressed()
			p.kept.Set(id, page)
		}
	}
	page.Send(c.Writer, c.Request)
}

// renewed returns a handler of pages that fresh makes. When the shop has changed, fresh makes another one, which has kept no page.
func (p *Pages) renewed(fresh func() gin.HandlerFunc) gin.HandlerFunc {
	type handler struct {
		of    *model.Shop
		serve gin.HandlerFunc
	}
	var kept atomic.Pointer[handler]
	return func(c *gin.Context) {
		now := kept.Load()
		if shop := p.Shop(); now == nil || now.of != shop {
			now = &handler{shop, fresh()}
			kept.Store(now)
		}
		now.serve(c)
	}
}

// now returns an offer with its state.
func (f *Offers) now(offer model.Offer) offerNow {
	return offerNow{offer, offer.State(f.Catalog.Now(), offer.Stock.Free())}
}

// ofSale answers with a sale's HTML page. Only pages of sales in memory are cached.
func (p *Pages) ofSale() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		if offer := p.Catalog.InMemory(c.Param("sale")); offer != nil {
			pages.send(c, offer.ID, p.now(*offer), func() *prepared.Answer { return p.Home.Sale(*offer) })
			return
		}
		ctx, cancel := context.WithTimeout(c.Request.Context(), requestLimit)
		defer cancel()
		offer, ok, err := p.Catalog.Sale(ctx, c.Param("sale"))
		switch {
		case err != nil:
			p.Home.Page("/unavailable").Send(c.Writer, c.Request)
		case !ok:
			p.showMissing(c)
		default:
			p.Home.Sale(offer).Send(c.Writer, c.Request)
		}
	}
}

// allSales answers with a page of the sales that Catalog.Live lists.
func (f *Offers) allSales(render func(live []model.Offer) *prepared.Answer) gin.HandlerFunc {
	var kept atomic.Pointer[salesPage]
	return func(c *gin.Context) {
		now := f.Catalog.Now()
		last := kept.Load()
		if last == nil || !last.holds(now) {
			// The channel is taken before the sales are read, so that a change in between makes the page again.
			changed, live := f.Catalog.Changed(), f.Catalog.Live()
			same := heartbeat
			for _, offer := range live {
				same = min(same, untilTurn(offer, now))
			}
			last = &salesPage{render(live), changed, now, now.Add(same)}
			if last.Status() == http.StatusOK {
				last.Answer = last.Compressed()
				kept.Store(last)
			}
		}
		last.Send(c.Writer, c.Request)
	}
}

// always answers with a page or file of Home that changes only with the shop.
func (p *Pages) always() gin.HandlerFunc {
	var kept atomic.Pointer[prepared.Answer]
	return func(c *gin.Context) {
		page := kept.Load()
		if page == nil {
			page = p.Home.Page(c.Request.URL.Path)
			if page.Status() == http.StatusOK {
				page = page.Compressed()
				kept.Store(page)
			}
		}
		page.Send(c.Writer, c.Request)
	}
}

// salesPage is a page that is valid until the catalog changes or a sale starts or ends, and at most for heartbeat.
type salesPage struct {
	*prepared.Answer
	changed     <-chan struct{}
	from, until time.Time
}

func (p *salesPage) holds(now time.Time) bool {
	select {
	case <-p.changed:
		return false
	default:
		return !now.Before(p.from) && now.Before(p.until)
	}
}

// unknownPage is a path at which Home has no page.
const unknownPage = "/missing"

// missing answers a request that is refused as NotFound with Home's page for unknown paths. It leaves a request to Problems if
// Accept does not name text/html, or if the path is below /api/.
func (p *Pages) missing() gin.HandlerFunc {
	page := sync.OnceValue(func() *prepared.Answer { return p.Home.Page(unknownPage).Compressed() })
	return func(c *gin.Context) {
		c.Next()
		refusal, refused := middleware.RefusalOf(c)
		isPage := strings.Contains(middleware.HeaderOf(c, "Accept"), "text/html") && !strings.HasPrefix(c.Request.URL.Path, "/api/")
		if refused && refusal.Verdict == model.NotFound && isPage {
			page().Send(c.Writer, c.Request)
		}
	}
}

// showMissing answers with the page for a sale that does not exist.
func (p *Pages) showMissing(c *gin.Context) { p.Home.Page(unknownPage).Send(c.Writer, c.Request) }

// campaignNow is the sales of a campaign, and their states at a time.
type campaignNow struct {
	sales  []model.Offer
	states []model.SaleState
}

// eachCampaign answers with a page of the route's campaign, which is made again when the campaign's sales or their states change.
func (f *Offers) eachCampaign(render func(sales []model.Offer) *prepared.Answer) gin.HandlerFunc {
	pages := pageCache[campaignNow]{
		otter.Must(&otter.Options[string, *keptPage[campaignNow]]{MaximumSize: maxSalePages / model.MaxVariants}),
		func(a, b campaignNow) bool { return slices.Equal(a.states, b.states) && slices.Equal(a.sales, b.sales) },
	}
	return func(c *gin.Context) {
		if sales, ok := f.campaign(c); ok {
			of := campaignNow{sales, model.StatesOf(sales, f.Catalog.Now())}
			pages.send(c, sales[0].Campaign.ID, of, func() *prepared.Answer { return render(sales) })
		}
	}
}
