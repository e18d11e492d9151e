package handler

import (
	"net/http"
	"time"

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
	return s.eachCampaign(func(c *gin.Context, sales []model.Offer) *prepared.Answer {
		return salesJSON(c, viewCampaign(sales, s.Catalog.Now(), s.saleView))
	})
}

func (s *Campaigns) getForOperators(c *gin.Context) {
	if sales, ok := s.campaign(c); ok {
		c.JSON(http.StatusOK, s.viewOperatorCampaign(sales))
	}
}

// list answers with a page of all campaigns, including those that ended long ago.
func (s *Campaigns) list(c *gin.Context) {
	answerPage(c, "campaigns", s.viewOperatorCampaign, func(cursor string, limit int) ([][]model.Offer, string, error) {
		return s.Service.List(c.Request.Context(), cursor, limit)
	})
}

// variantBody is a sale of a new campaign, as operators write it.
type variantBody struct {
	Variant            string `json:"variant"`
	Quota              int64  `json:"quota"`
	PriceCents         int64  `json:"price_cents"`
	OriginalPriceCents int64  `json:"original_price_cents"`
	LimitPerUser       *int   `json:"limit_per_user"` // nil: that of the campaign
}

// campaignBody is a new campaign, as operators write it.
type campaignBody struct {
	Title             string        `json:"title"`
	Description       string        `json:"description"`
	ImageURL          string        `json:"image_url"`
	Currency          string        `json:"currency"`
	StartsAt          time.Time     `json:"starts_at"`
	EndsAt            time.Time     `json:"ends_at"`
	LimitPerUser      int           `json:"limit_per_user"`
	PayTimeoutSeconds int           `json:"pay_timeout_seconds"`
	Shards            int           `json:"parts"`
	Mode              model.Mode    `json:"mode"`
	EntriesAt         time.Time     `json:"entries_at"`
	CallSeconds       int           `json:"call_seconds"`
	Beacon            bool          `json:"beacon"`
	EntryWork         int64         `json:"entry_work"`
	Sales             []variantBody `json:"sales"`
}

func newCampaignBody() campaignBody {
	return campaignBody{
		Currency: defaultCurrency, LimitPerUser: defaultLimit, PayTimeoutSeconds: defaultPaySeconds, Shards: 1,
		Mode: model.ModeRush, CallSeconds: service.DefaultCallSeconds,
	}
}

func (b campaignBody) sales() []model.NewSale {
	list := make([]model.NewSale, len(b.Sales))
	for i, v := range b.Sales {
		list[i] = v.sale(b.LimitPerUser)
		list[i].Currency, list[i].PayTimeoutSeconds, list[i].Shards = b.Currency, b.PayTimeoutSeconds, b.Shards
		list[i].StartsAt, list[i].EndsAt, list[i].EntriesAt = b.StartsAt, b.EndsAt, b.EntriesAt
		list[i].Mode, list[i].CallSeconds, list[i].Beacon, list[i].EntryWork = b.Mode, b.CallSeconds, b.Beacon, b.EntryWork
	}
	return list
}

func (v variantBody) sale(campaignLimit int) model.NewSale {
	limit := campaignLimit
	if v.LimitPerUser != nil {
		limit = *v.LimitPerUser
	}
	return model.NewSale{Quota: v.Quota, Sale: model.Sale{
		Variant: v.Variant, PriceCents: v.PriceCents, OriginalPriceCents: v.OriginalPriceCents, LimitPerUser: limit,
	}}
}

// create creates a campaign from a JSON object, or from a sheet in CSV with a row for each sale.
func (s *Campaigns) create(c *gin.Context) {
	body := newCampaignBody()
	if isOf(headerOf(c, "Content-Type"), csvBody) {
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
	key, ok := idempotencyKey(c)
	if !ok {
		return
	}
	actor, sales := middleware.IdentityOf(c).UserID, body.sales()
	campaign := model.Campaign{Title: body.Title, Description: body.Description, ImageURL: body.ImageURL, LimitPerUser: body.LimitPerUser}
	if key != "" {
		campaign.ID = s.Service.IDUnder(actor, key)
		if s.answerRepeated(c, campaign, sales) {
			return
		}
	}
	made, invalid, err := s.Service.Create(c.Request.Context(), campaign, sales, actor)
	switch {
	case err != nil && key != "" && s.answerRepeated(c, campaign, sales): // a concurrent request with this key made it
	case err != nil:
		middleware.Fail(c, err)
	case invalid != nil:
		refuseInvalid(c, invalid)
	default:
		s.answerNew(c, made)
	}
}

// answerRepeated is answerRepeated for campaigns.
func (s *Campaigns) answerRepeated(c *gin.Context, campaign model.Campaign, sales []model.NewSale) bool {
	made, verdict, err := s.Service.Repeated(c.Request.Context(), campaign, sales)
	switch {
	case err != nil:
		middleware.Fail(c, err)
	case verdict == model.NotFound:
		return false
	case verdict != model.Accepted:
		refuse(c, verdict)
	default:
		c.Header("Idempotent-Replayed", "true")
		s.answerNew(c, made)
	}
	return true
}

func (s *Campaigns) answerNew(c *gin.Context, sales []model.Offer) {
	c.Header("Location", "/api/v1/campaigns/"+sales[0].Campaign.ID)
	c.JSON(http.StatusCreated, s.viewOperatorCampaign(sales))
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
	sale := body.sale(sales[0].Campaign.LimitPerUser)
	sale.PayTimeoutSeconds = sales[0].PayTimeoutSeconds
	list, verdict, invalid, err := s.Service.Add(c.Request.Context(), c.Param("campaign"), sale, middleware.IdentityOf(c).UserID)
	answerChange(c, http.StatusCreated, s.viewOperatorCampaign(list), verdict, invalid, err)
}

func (s *Campaigns) patch(c *gin.Context) {
	var body struct {
		Title        *string    `json:"title"`
		Description  *string    `json:"description"`
		ImageURL     *string    `json:"image_url"`
		StartsAt     *time.Time `json:"starts_at"`
		EndsAt       *time.Time `json:"ends_at"`
		LimitPerUser *int       `json:"limit_per_user"`
	}
	if !decode(c, maxOperatorBodyBytes, &body) {
		return
	}
	list, verdict, invalid, err := s.Service.Patch(c.Request.Context(), c.Param("campaign"), service.CampaignPatch(body), middleware.IdentityOf(c).UserID)
	answerChange(c, http.StatusOK, s.viewOperatorCampaign(list), verdict, invalid, err)
}

func (s *Campaigns) setStatus(status model.SaleStatus, action string) gin.HandlerFunc {
	return func(c *gin.Context) {
		list, verdict, err := s.Service.SetStatus(c.Request.Context(), c.Param("campaign"), status, action, middleware.IdentityOf(c).UserID)
		answer(c, http.StatusOK, s.viewOperatorCampaign(list), verdict, err)
	}
}
