package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"flashsale/model"
)

const (
	betweenTitles = " · " // in the title of a sale, between the title of its campaign and its variant
	// maxCampaignTitle leaves room for betweenTitles and a variant in the title of a sale, which has at most maxTitle characters.
	maxCampaignTitle = 130
	maxVariant       = 60 // characters
)

// ofOneSale are fields that each sale has for itself. In a new campaign, an error in one of them names the sale.
var ofOneSale = []string{"variant", "quota", "price_cents", "original_price_cents", "limit_per_user", "waiting_list"}

// CampaignStore writes campaigns to the database.
type CampaignStore interface {
	CreateCampaign(ctx context.Context, campaign model.Campaign, sales []model.NewSale, actor string) error
	AddToCampaign(ctx context.Context, campaignID, actor string, build func(others []model.Offer, now time.Time) (model.NewSale, model.Verdict)) (model.Verdict, error)
	ChangeCampaign(ctx context.Context, change model.CampaignChange) (model.Verdict, error)
}

// Campaigns is the service of the operators for sales that belong together.
type Campaigns struct {
	Store CampaignStore
	Sales *Sales
}

// Repeated returns the sales of the campaign that an earlier request created under campaign.ID. The verdict is Accepted,
// NotFound, or IdempotencyMismatch if the campaign differs from what is asked for now, perhaps because it was changed since.
func (s *Campaigns) Repeated(ctx context.Context, campaign model.Campaign, sales []model.NewSale) ([]model.Offer, model.Verdict, error) {
	list, err := s.Sales.Catalog.Campaign(ctx, campaign.ID)
	if err != nil || len(list) == 0 {
		return nil, model.NotFound, err
	}
	sales = inCampaign(campaign, sales)
	for i, o := range list {
		if len(sales) != len(list) || sales[i].Quota != o.Stock.Quota || wish(sales[i].Sale) != wish(o.Sale) {
			return nil, model.IdempotencyMismatch, nil
		}
	}
	return list, model.Accepted, nil
}

// inCampaign returns sales with the fields that they get from their campaign, and with the defaults that completed sets.
func inCampaign(campaign model.Campaign, sales []model.NewSale) []model.NewSale {
	list := make([]model.NewSale, len(sales))
	for i, sale := range sales {
		sale.Sale = completed(sale.Sale)
		sale.Campaign, sale.Place = campaign, i
		sale.Variant = strings.TrimSpace(sale.Variant) // MySQL compares texts without the spaces at their ends
		sale.Title, sale.Description, sale.ImageURL = campaign.Title+betweenTitles+sale.Variant, campaign.Description, campaign.ImageURL
		list[i] = sale
	}
	return list
}

// Create creates a campaign with its sales, under campaign.ID or, if that is empty, under a new id, and preheats their gates. The
// texts of a sale are made of its variant and the campaign's texts. Create returns the created sales, or the first invalid field.
func (s *Campaigns) Create(ctx context.Context, campaign model.Campaign, sales []model.NewSale, actor string) (list []model.Offer, invalid *Invalid, err error) {
	campaign.ID = cmp.Or(campaign.ID, model.NewSaleID())
	sales = inCampaign(campaign, sales)
	if invalid := cmp.Or(validateCampaign(campaign), Outside("sales", int64(len(sales)), 1, model.MaxVariants), s.validateVariants(sales)); invalid != nil {
		return nil, invalid, nil
	}
	if err := s.Store.CreateCampaign(ctx, campaign, sales, actor); err != nil {
		return nil, nil, err
	}
	ids := make([]string, len(sales))
	for i, sale := range sales {
		ids[i] = sale.ID
	}
	s.Sales.created(ctx, ids...)
	list, err = s.Sales.Catalog.Campaign(ctx, campaign.ID)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("campaign %s is gone", campaign.ID)
	}
	return list, nil, err
}

// validateVariants is validateVariant for all sales of a campaign. A field in ofOneSale is returned with the place of its sale.
func (s *Campaigns) validateVariants(sales []model.NewSale) *Invalid {
	taken := map[string]bool{}
	for i := range sales {
		if invalid := s.validateVariant(&sales[i], taken); invalid != nil {
			if slices.Contains(ofOneSale, invalid.Field) {
				invalid.Field = fmt.Sprintf("sales[%d].%s", i, invalid.Field)
			}
			return invalid
		}
		taken[sales[i].Variant] = true
	}
	return nil
}

// validateVariant prepares a new sale, and returns its first invalid field. "taken" has the other sales' variants.
func (s *Campaigns) validateVariant(sale *model.NewSale, taken map[string]bool) *Invalid {
	sale.ID, sale.Code, sale.Status, sale.Revision = model.NewSaleID(), rand.Text()[:codeLength], model.SaleLive, 1
	return cmp.Or(
		Invalid{Field: "variant", Reason: BadText, Min: 1, Max: maxVariant}.If(!text(sale.Variant, maxVariant) || !visible(sale.Variant)),
		Invalid{Field: "waiting_list", Reason: OfCampaign}.If(sale.WaitingList), // this sale alone would have the waiting list
		s.Sales.validateNew(sale.Sale, sale.Quota),
		Invalid{Field: "variant", Reason: RepeatedName}.If(taken[sale.Variant]),
	)
}

func validateCampaign(campaign model.Campaign) *Invalid {
	return cmp.Or(validateTexts(campaign.Title, campaign.Description, campaign.ImageURL, maxCampaignTitle),
		Outside("limit_per_user", int64(campaign.LimitPerUser), 1, maxLimit))
}

// Add adds a sale to a campaign, and returns all sales of the campaign. The new sale gets what these share, such as times, texts
// and mode, and is paused if no other sale is live. The verdict is Accepted; NotFound; TooMany if the campaign has as many sales
// as it may have; Ended if the campaign is over; or BadRequest with the first invalid field.
func (s *Campaigns) Add(ctx context.Context, campaignID string, sale model.NewSale, actor string) (list []model.Offer, verdict model.Verdict, invalid *Invalid, err error) {
	if known, err := s.Sales.Catalog.Known(ctx, campaignID); err != nil || !known {
		return nil, model.NotFound, nil, err
	}
	var added model.NewSale
	verdict, err = s.Store.AddToCampaign(ctx, campaignID, actor, func(others []model.Offer, now time.Time) (model.NewSale, model.Verdict) {
		if model.CampaignState(others, now) == model.StateEnded {
			return added, model.Ended
		}
		added = besides(others, sale)
		taken, live := map[string]bool{}, false
		for _, o := range others {
			taken[o.Variant], live = true, live || o.Status == model.SaleLive
		}
		if invalid = s.validateVariant(&added, taken); invalid != nil {
			return added, model.BadRequest
		}
		if !live {
			added.Status = model.SalePaused
		}
		return added, model.Accepted
	})
	if err != nil || verdict != model.Accepted {
		return nil, verdict, invalid, err
	}
	s.Sales.created(ctx, added.ID)
	list, err = s.Sales.Catalog.Campaign(ctx, campaignID)
	return list, verdict, nil, err
}

// besides returns a sale with the fields that it gets from the other sales of its campaign.
func besides(others []model.Offer, sale model.NewSale) model.NewSale {
	first := others[0].Sale
	sale.StartsAt, sale.EndsAt, sale.Shards, sale.Currency = first.StartsAt, first.EndsAt, first.Shards, first.Currency
	sale.Mode, sale.CallSeconds, sale.EntriesAt = first.Mode, first.CallSeconds, first.EntriesAt
	sale.Beacon, sale.EntryWork, sale.StockShown = first.Beacon, first.EntryWork, first.StockShown
	return inCampaign(first.Campaign, []model.NewSale{sale})[0]
}

// CampaignPatch is what an operator changes of a campaign, with the names of the API; nil leaves a field as it is.
type CampaignPatch struct {
	Title             *string           `json:"title"`
	Description       *string           `json:"description"`
	ImageURL          *string           `json:"image_url"`
	Currency          *string           `json:"currency"`
	StartsAt          *time.Time        `json:"starts_at"`
	EndsAt            *time.Time        `json:"ends_at"`
	LimitPerUser      *int              `json:"limit_per_user"`
	PayTimeoutSeconds *int              `json:"pay_timeout_seconds"`
	StockShown        *model.StockShown `json:"stock_shown"`
}

// badStockShown returns why stock_shown is refused, or nil. In a patch, an empty value is not the usual one.
func (p CampaignPatch) badStockShown() *Invalid {
	return Invalid{Field: "stock_shown", Reason: BadStockShown}.If(p.StockShown != nil && !slices.Contains(model.StocksShown, *p.StockShown))
}

// common changes what the sales of a campaign have in common.
func (p CampaignPatch) common(sale *model.Sale) {
	set(&sale.Description, p.Description)
	set(&sale.ImageURL, p.ImageURL)
	set(&sale.Currency, p.Currency)
	set(&sale.StartsAt, p.StartsAt)
	set(&sale.EndsAt, p.EndsAt)
	set(&sale.PayTimeoutSeconds, p.PayTimeoutSeconds)
	set(&sale.StockShown, p.StockShown)
}

// Patch changes a campaign and all its sales, and returns the sales. The verdict is Accepted; NotFound; Ended if the campaign has
// ended in line and would get a later end; Started or Entered if it would get other terms too late; or BadRequest with the first invalid field.
func (s *Campaigns) Patch(ctx context.Context, id string, p CampaignPatch, actor string) (list []model.Offer, verdict model.Verdict, invalid *Invalid, err error) {
	var changed model.Campaign
	verdictOf := func(found *Invalid) model.Verdict {
		if invalid = found; invalid != nil {
			return model.BadRequest
		}
		return model.Accepted
	}
	list, verdict, err = s.change(ctx, model.CampaignChange{
		CampaignID: id, Actor: actor, Action: "patch",
		Edit: func(campaign *model.Campaign) model.Verdict {
			set(&campaign.Title, p.Title)
			set(&campaign.Description, p.Description)
			set(&campaign.ImageURL, p.ImageURL)
			set(&campaign.LimitPerUser, p.LimitPerUser)
			changed = *campaign
			return verdictOf(validateCampaign(changed))
		},
		EditSale: func(sale *model.Sale) model.Verdict {
			if p.Title != nil {
				sale.Title = changed.Title + betweenTitles + sale.Variant
			}
			before := *sale
			if p.common(sale); sale.IsCampaignLine() {
				sale.Title, sale.LimitPerUser = changed.Title, changed.LimitPerUser
			}
			found := cmp.Or(p.badStockShown(), outOfMode(before, *sale), validate(*sale))
			if found == nil && !sale.IsCampaignLine() { // which sells nothing
				found = s.Sales.stillPayable(before, *sale)
			}
			return verdictOf(found)
		},
	})
	return list, verdict, invalid, err
}

// SetStatus pauses, resumes or closes all sales of a campaign, and returns them. Closed sales stay closed. The verdict is
// Accepted, NotFound, or Ended if all sales are closed and would be paused or resumed.
func (s *Campaigns) SetStatus(ctx context.Context, id string, status model.SaleStatus, action, actor string) ([]model.Offer, model.Verdict, error) {
	list, err := s.Sales.Catalog.Campaign(ctx, id)
	if err != nil || len(list) == 0 {
		return nil, model.NotFound, err
	}
	open := slices.ContainsFunc(list, func(o model.Offer) bool { return o.Status != model.SaleClosed })
	if !open && status != model.SaleClosed {
		return nil, model.Ended, nil
	}
	return s.change(ctx, model.CampaignChange{
		CampaignID: id, Actor: actor, Action: action,
		Edit: func(*model.Campaign) model.Verdict { return model.Accepted },
		EditSale: func(sale *model.Sale) model.Verdict {
			if sale.Status != model.SaleClosed {
				sale.Status = status
			}
			return model.Accepted
		},
	})
}

// change applies a change, tells gates and instances, and returns the sales. The verdict is NotFound, or that of ChangeCampaign.
func (s *Campaigns) change(ctx context.Context, c model.CampaignChange) ([]model.Offer, model.Verdict, error) {
	if known, err := s.Sales.Catalog.Known(ctx, c.CampaignID); err != nil || !known {
		return nil, model.NotFound, err
	}
	if verdict, err := s.Store.ChangeCampaign(ctx, c); err != nil || verdict != model.Accepted {
		return nil, verdict, err
	}
	ctx = context.WithoutCancel(ctx)
	list, err := s.Sales.Catalog.store.CampaignSales(ctx, c.CampaignID)
	ids := make([]string, len(list))
	for i, o := range list {
		ids[i] = o.ID
		s.Sales.configure(ctx, o.Sale)
	}
	s.Sales.tell(ctx, ids...)
	return list, model.Accepted, err
}
