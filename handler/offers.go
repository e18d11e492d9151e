package handler

import (
	"context"
	"fmt"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Offers finds the sales and campaigns that routes name, and shows them.
type Offers struct {
	Catalog *service.Catalog
	// PublicURL returns the URL under which buyers reach the server, without a slash at the end.
	PublicURL func() string
}

// offer returns the route's sale. If there is none, offer ends the request as found does.
func (f *Offers) offer(c *gin.Context) (model.Offer, bool) {
	if offer := f.Catalog.InMemory(c.Param("sale")); offer != nil {
		return *offer, true
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), requestLimit)
	defer cancel()
	offer, ok, err := f.Catalog.Sale(ctx, c.Param("sale"))
	return offer, found(c, ok, err)
}

// campaign returns the sales of the route's campaign. If there is none, campaign ends the request as found does.
func (f *Offers) campaign(c *gin.Context) ([]model.Offer, bool) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), requestLimit)
	defer cancel()
	sales, err := f.Catalog.Campaign(ctx, c.Param("campaign"))
	return sales, found(c, len(sales) > 0, err)
}

// sales returns the sales of the route's campaign and the campaign's id, or the route's sale and its id. If there is none, sales
// ends the request as found does.
func (f *Offers) sales(c *gin.Context) (list []model.Offer, id string, ok bool) {
	if id = c.Param("campaign"); id != "" {
		list, ok = f.campaign(c)
		return list, id, ok
	}
	offer, ok := f.offer(c)
	return []model.Offer{offer}, offer.ID, ok
}

// found reports whether a look-up has found something. Otherwise it refuses the request as NotFound, or fails it with an error
// that wraps model.ErrUnavailable.
func found(c *gin.Context, ok bool, err error) bool {
	switch {
	case err != nil:
		middleware.Fail(c, fmt.Errorf("%w: %w", model.ErrUnavailable, err))
	case !ok:
		refuse(c, model.NotFound)
	}
	return ok && err == nil
}

// stockFigures are what buyers see of a sale's stock, see model.StockShown, and what the staff sees, which is always exact.
type stockFigures struct {
	Available *int64 `json:"available,omitempty"`
	Quota     *int64 `json:"quota,omitempty"`
	Scarcity  string `json:"stock,omitempty"`
}

func stockFor(o model.Offer, shown model.StockShown) stockFigures {
	if shown == model.StockFew || shown == model.StockNone {
		return stockFigures{Scarcity: o.Scarcity()}
	}
	return stockFigures{Available: new(o.Stock.Free()), Quota: &o.Stock.Quota}
}

type saleView struct {
	ID                 string `json:"id"`
	Title              string `json:"title"`
	Description        string `json:"description"`
	ImageURL           string `json:"image_url"`
	PriceCents         int64  `json:"price_cents"`
	OriginalPriceCents int64  `json:"original_price_cents"`
	Currency           string `json:"currency"`
	stockFigures
	State             model.SaleState `json:"state"`
	Revision          int64           `json:"revision"`
	StartsAt          stamp           `json:"starts_at"`
	EndsAt            stamp           `json:"ends_at"`
	LimitPerUser      int             `json:"limit_per_user"`
	PayTimeoutSeconds int             `json:"pay_timeout_seconds"`
	ShortURL          string          `json:"short_url"`
	Mode              model.Mode      `json:"mode"`
	EntriesAt         *stamp          `json:"entries_at,omitempty"`
	CallSeconds       int             `json:"call_seconds,omitempty"`
	WaitingList       bool            `json:"waiting_list,omitempty"`
	Beacon            bool            `json:"beacon,omitempty"`
	EntryWork         int64           `json:"entry_work,omitempty"`
	CampaignID        string          `json:"campaign_id,omitempty"`
	Variant           string          `json:"variant,omitempty"`
	InLine            bool            `json:"in_line,omitempty"` // units go only to those whose turn it is
}

func (f *Offers) saleView(o model.Offer) saleView {
	return saleView{
		ID: o.ID, Title: o.Title, Description: o.Description, ImageURL: o.ImageURL,
		PriceCents: o.PriceCents, OriginalPriceCents: o.OriginalPriceCents, Currency: o.Currency,
		stockFigures: stockFor(o, o.StockShown), State: o.State(f.Catalog.Now(), o.Stock.Free()), Revision: o.Revision,
		StartsAt: stamp(o.StartsAt), EndsAt: stamp(o.EndsAt), LimitPerUser: o.LimitPerUser,
		PayTimeoutSeconds: o.PayTimeoutSeconds, ShortURL: f.PublicURL() + "/s/" + o.Code,
		Mode: o.Mode, EntriesAt: optional(o.EntriesAt), CallSeconds: o.CallSeconds, WaitingList: o.WaitingList,
		Beacon: o.Beacon, EntryWork: o.EntryWork, CampaignID: o.Campaign.ID, Variant: o.Variant,
		InLine: o.Stock.Lined == model.InLine,
	}
}

// operatorSaleView adds what buyers do not see. Before the start, Status says whether the sale is paused, while State does not.
type operatorSaleView struct {
	saleView
	Status     model.SaleStatus `json:"status"`
	StockShown model.StockShown `json:"stock_shown"`
	Shards     int              `json:"parts"`
	Held       int64            `json:"held"`
	Paid       int64            `json:"paid"`
}

func (f *Offers) operatorSaleView(o model.Offer) operatorSaleView {
	view := f.saleView(o)
	view.stockFigures = stockFor(o, model.StockExact)
	return operatorSaleView{view, o.Status, o.StockShown, o.Shards, o.Stock.Held, o.Stock.Paid}
}

// campaignView is a campaign with its sales. S is saleView for buyers and operatorSaleView for the staff.
type campaignView[S any] struct {
	ID           string          `json:"id"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	ImageURL     string          `json:"image_url"`
	Currency     string          `json:"currency"`
	State        model.SaleState `json:"state"`
	StartsAt     stamp           `json:"starts_at"`
	EndsAt       stamp           `json:"ends_at"`
	LimitPerUser int             `json:"limit_per_user"`
	Mode         model.Mode      `json:"mode"`
	ShortURL     string          `json:"short_url"`
	Sales        []S             `json:"sales"`
}

// viewCampaign shows a campaign, whose sales must not be empty.
func viewCampaign[S any](f *Offers, sales []model.Offer, view func(model.Offer) S) campaignView[S] {
	first := sales[0]
	return campaignView[S]{
		ID: first.Campaign.ID, Title: first.Campaign.Title, Description: first.Campaign.Description, ImageURL: first.Campaign.ImageURL,
		Currency: first.Currency, State: model.CampaignState(sales, f.Catalog.Now()), StartsAt: stamp(first.StartsAt), EndsAt: stamp(first.EndsAt),
		LimitPerUser: first.Campaign.LimitPerUser, Mode: first.Mode, ShortURL: f.PublicURL() + "/s/" + first.Campaign.ID,
		Sales: each(sales, view),
	}
}

func (f *Offers) viewOperatorCampaign(sales []model.Offer) any {
	if len(sales) == 0 {
		return nil
	}
	return viewCampaign(f, sales, f.operatorSaleView)
}
