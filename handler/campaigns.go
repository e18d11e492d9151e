package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/internal/prepared"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Campaigns shows campaigns, and lets operators make and change them.
type Campaigns struct {
	*Offers
	Service *service.Campaigns
}

// get answers with a campaign's JSON.
func (s *Campaigns) get() gin.HandlerFunc {
	return s.eachCampaign(func(sales []model.Offer) *prepared.Answer {
		return salesJSON(viewCampaign(s.Offers, sales, s.saleView))
	})
}

func (s *Campaigns) getForOperators(c *gin.Context) {
	if sales, ok := s.campaign(c); ok {
		c.JSON(http.StatusOK, s.viewOperatorCampaign(sales))
	}
}

// variantBody is a new sale of a campaign, as operators write it.
type variantBody struct {
	Variant            string `json:"variant"`
	Quota              int64  `json:"quota"`
	PriceCents         int64  `json:"price_cents"`
	OriginalPriceCents int64  `json:"original_price_cents"`
	LimitPerUser       *int   `json:"limit_per_user"` // nil: the campaign's limit
}

// of returns a new sale of this variant with these terms.
func (v variantBody) of(terms model.Sale) model.NewSale {
	terms.Variant, terms.PriceCents, terms.OriginalPriceCents = v.Variant, v.PriceCents, v.OriginalPriceCents
	if v.LimitPerUser != nil {
		terms.LimitPerUser = *v.LimitPerUser
	}
	return model.NewSale{Quota: v.Quota, Sale: terms}
}

// campaignBody is a new campaign, as operators write it.
type campaignBody struct {
	termsBody
	Sales []variantBody `json:"sales"`
}

// create creates a campaign from a JSON object, or from a sheet in CSV with a row for each sale.
func (s *Campaigns) create(c *gin.Context) {
	body := campaignBody{termsBody: usualTerms()}
	if isOf(middleware.HeaderOf(c, "Content-Type"), csvBody) {
		raw, ok := readBody(c, csvBody, maxOperatorBodyBytes)
		if !ok {
			return
		}
		if invalid := readSheet(raw, &body); invalid != nil {
			refuseInvalid(c, invalid)
			return
		}
	} else if !decode(c, maxOperatorBodyBytes, &body) {
		return
	}
	if !body.hasMode(c) {
		return
	}
	sales := each(body.Sales, func(v variantBody) model.NewSale { return v.of(body.sale()) })
	campaign := model.Campaign{Title: body.Title, Description: body.Description, ImageURL: body.ImageURL, LimitPerUser: body.LimitPerUser}
	view := func(list []model.Offer) (any, string) {
		return s.viewOperatorCampaign(list), "/api/v1/campaigns/" + list[0].Campaign.ID
	}
	create(c, view, s.Service.Sales.IDs, "campaign ", func(id string) ([]model.Offer, model.Verdict, error) {
		campaign.ID = id
		return s.Service.Repeated(c.Request.Context(), campaign, sales)
	}, func(_, actor string) ([]model.Offer, model.Verdict, *service.Invalid, error) {
		list, invalid, err := s.Service.Create(c.Request.Context(), campaign, sales, actor)
		return list, model.Accepted, invalid, err
	})
}

func (s *Campaigns) add(c *gin.Context) {
	sales, ok := s.campaign(c)
	if !ok {
		return
	}
	var body variantBody
	if !decode(c, maxOperatorBodyBytes, &body) {
		return
	}
	sale := body.of(model.Sale{LimitPerUser: sales[0].Campaign.LimitPerUser, PayTimeoutSeconds: sales[0].PayTimeoutSeconds})
	list, verdict, invalid, err := s.Service.Add(c.Request.Context(), c.Param("campaign"), sale, userOf(c))
	answerChange(c, http.StatusCreated, s.viewOperatorCampaign(list), verdict, invalid, err)
}

func (s *Campaigns) patch(c *gin.Context, patch service.CampaignPatch) {
	list, verdict, invalid, err := s.Service.Patch(c.Request.Context(), c.Param("campaign"), patch, userOf(c))
	answerChange(c, http.StatusOK, s.viewOperatorCampaign(list), verdict, invalid, err)
}

func (s *Campaigns) setStatus(status model.SaleStatus, action string) gin.HandlerFunc {
	return func(c *gin.Context) {
		show(c, s.viewOperatorCampaign)(s.Service.SetStatus(c.Request.Context(), c.Param("campaign"), status, action, userOf(c)))
	}
}
