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
}

// Home makes the pages, the same for everybody. Its answers have no compressed form yet.
type Home interface {
	Sales(live []model.Offer) *prepared.Answer
	Sale(offer model.Offer) *prepared.Answer
	Campaign(sales []model.Offer) *prepared.Answer
	Page(path string) *prepared.Answer
}

// maxSalePages bounds each cache with an entry for each sale: of its HTML page, of its JSON, and of the state of its line. An
// entry takes some kilobytes.
const maxSalePages = 4096

// salePages caches one page of each sale. A page is made again when what it shows has changed.
type salePages struct {
	kept *otter.Cache[string, *salePage]
}

// salePage is a page, with the offer and the state that it was made for.
type salePage struct {
	*prepared.Answer
	offer model.Offer
	state model.SaleState
}

func newSalePages() salePages {
	return salePages{otter.Must(&otter.Options[string, *salePage]{MaximumSize: maxSalePages})}
}

// send answers with the sale's page as it is now. render makes the page; if render can't, it answers the request itself and
// returns nil.
func (s salePages) send(c *gin.Context, offer model.Offer, now time.Time, render func(model.SaleState) *prepared.Answer) {
	state := offer.State(now, offer.Stock.Free())
	kept, ok := s.kept.GetIfPresent(offer.ID)
	if !ok || kept.state != state || kept.offer != offer {
		made := render(state)
		if made == nil {
			return
		}
		kept = &salePage{made, offer, state}
		s.kept.Set(offer.ID, kept)
	}
	kept.Send(c.Writer, c.Request)
}

// ofSale answers with a sale's HTML page. It is cached while the sale is in memory.
func (p *Pages) ofSale() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		if offer := p.Catalog.InMemory(c.Param("sale")); offer != nil {
			pages.send(c, *offer, p.Catalog.Now(), func(model.SaleState) *prepared.Answer { return toKeep(c, p.Home.Sale(*offer)) })
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

// allSales answers with a page of all sales that the catalog lists. The page is made again when one of the sales changes, starts
// or ends, and at the latest after heartbeat.
func (f *Offers) allSales(render func(c *gin.Context, live []model.Offer) *prepared.Answer) gin.HandlerFunc {
	var kept atomic.Pointer[salesPage]
	return func(c *gin.Context) {
		now := f.Catalog.Now()
		last := kept.Load()
		if last == nil || !last.holds(now) {
			// The channel is taken before render reads the sales, so that a change in between makes the page again.
			live, changed := f.Catalog.Live()
			same := heartbeat
			for _, offer := range live {
				same = min(same, untilTurn(offer, now))
			}
			last = &salesPage{changed: changed, from: now, until: now.Add(same)}
			if last.Answer = render(c, live); last.Answer == nil {
				return
			}
			kept.Store(last)
		}
		last.Send(c.Writer, c.Request)
	}
}

// ofSales answers with the HTML page of all sales.
func (p *Pages) ofSales() gin.HandlerFunc {
	return p.allSales(func(c *gin.Context, live []model.Offer) *prepared.Answer { return toKeep(c, p.Home.Sales(live)) })
}

// always answers with a page or file of Home that never changes.
func (p *Pages) always() gin.HandlerFunc {
	var kept atomic.Pointer[prepared.Answer]
	return func(c *gin.Context) {
		if kept.Load() == nil {
			made := toKeep(c, p.Home.Page(c.Request.URL.Path))
			if made == nil {
				return
			}
			kept.Store(made)
		}
		kept.Load().Send(c.Writer, c.Request)
	}
}

// salesPage is a page that is valid until the catalog changes, until a sale starts or ends, and at most for heartbeat.
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

// toKeep returns an answer of Home in a form that can be cached. If its status is not 200, toKeep sends it and returns nil.
func toKeep(c *gin.Context, page *prepared.Answer) *prepared.Answer {
	if page.Status() != http.StatusOK {
		page.Send(c.Writer, c.Request)
		return nil
	}
	return page.Compressed()
}

// unknownPage is a path at which Home has no page.
const unknownPage = "/missing"

// missing answers a browser's request for an unknown page with Home's page for that case. The page is the same for
// everybody and made once. Requests that do not accept HTML, and all requests below /api/, get the problem document
// instead.
func (p *Pages) missing() gin.HandlerFunc {
	var once sync.Once
	var page *prepared.Answer
	return func(c *gin.Context) {
		c.Next()
		refusal, refused := middleware.RefusalOf(c)
		isPage := strings.Contains(middleware.HeaderOf(c, "Accept"), "text/html") && !strings.HasPrefix(c.Request.URL.Path, "/api/")
		if !refused || refusal.Verdict != model.NotFound || !isPage {
			return
		}
		once.Do(func() { page = p.Home.Page(unknownPage).Compressed() })
		page.Send(c.Writer, c.Request)
	}
}

// showMissing answers as Home does for a sale that does not exist.
func (p *Pages) showMissing(c *gin.Context) { p.Home.Page(unknownPage).Send(c.Writer, c.Request) }

// campaignPage is a page of a campaign, with the sales and the states that it was made for.
type campaignPage struct {
	*prepared.Answer
	sales  []model.Offer
	states []model.SaleState
}

// eachCampaign answers with a page of the route's campaign, which is made again when what it shows has changed.
func (f *Offers) eachCampaign(render func(c *gin.Context, sales []model.Offer) *prepared.Answer) gin.HandlerFunc {
	pages := otter.Must(&otter.Options[string, *campaignPage]{MaximumSize: maxSalePages / model.MaxVariants})
	return func(c *gin.Context) {
		sales, ok := f.campaign(c)
		if !ok {
			return
		}
		id, states := sales[0].Campaign.ID, model.StatesOf(sales, f.Catalog.Now())
		kept, ok := pages.GetIfPresent(id)
		if !ok || !slices.Equal(kept.states, states) || !slices.Equal(kept.sales, sales) {
			kept = &campaignPage{render(c, sales), sales, states}
			if kept.Answer == nil {
				return
			}
			pages.Set(id, kept)
		}
		kept.Send(c.Writer, c.Request)
	}
}

// ofCampaign answers with a campaign's HTML page.
func (p *Pages) ofCampaign() gin.HandlerFunc {
	return p.eachCampaign(func(c *gin.Context, sales []model.Offer) *prepared.Answer { return toKeep(c, p.Home.Campaign(sales)) })
}
