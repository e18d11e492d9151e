package handler

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// What a new sale has unless the operator says otherwise.
const (
	defaultLimit      = 1
	defaultPaySeconds = 30 * 60
	defaultCurrency   = "CNY"
)

func (a *API) createSale(c *gin.Context) {
	body := struct {
		Title              string    `json:"title"`
		Description        string    `json:"description"`
		ImageURL           string    `json:"image_url"`
		PriceCents         int64     `json:"price_cents"`
		OriginalPriceCents int64     `json:"original_price_cents"`
		Currency           string    `json:"currency"`
		Quota              int64     `json:"quota"`
		StartsAt           time.Time `json:"starts_at"`
		EndsAt             time.Time `json:"ends_at"`
		LimitPerUser       int       `json:"limit_per_user"`
		PayTimeoutSeconds  int       `json:"pay_timeout_seconds"`
	}{Currency: defaultCurrency, LimitPerUser: defaultLimit, PayTimeoutSeconds: defaultPaySeconds}
	if !decode(c, &body) {
		return
	}
	offer, invalid, err := a.Sales.Create(c.Request.Context(), model.Sale{
		Title: body.Title, Description: body.Description, ImageURL: body.ImageURL,
		PriceCents: body.PriceCents, OriginalPriceCents: body.OriginalPriceCents, Currency: body.Currency,
		LimitPerUser: body.LimitPerUser, PayTimeoutSeconds: body.PayTimeoutSeconds,
		StartsAt: body.StartsAt, EndsAt: body.EndsAt,
	}, body.Quota, middleware.IdentityOf(c).UserID)
	switch {
	case err != nil:
		middleware.Fail(c, err)
	case invalid != "":
		refuseBadRequest(c, string(invalid))
	default:
		c.Header("Location", "/api/v1/sales/"+offer.ID)
		c.JSON(http.StatusCreated, a.saleView(offer))
	}
}

func (a *API) patchSale(c *gin.Context) {
	var body struct {
		Title        *string    `json:"title"`
		Description  *string    `json:"description"`
		ImageURL     *string    `json:"image_url"`
		StartsAt     *time.Time `json:"starts_at"`
		EndsAt       *time.Time `json:"ends_at"`
		LimitPerUser *int       `json:"limit_per_user"`
		AddQuota     int64      `json:"add_quota"`
	}
	if !decode(c, &body) {
		return
	}
	offer, verdict, invalid, err := a.Sales.Patch(c.Request.Context(), c.Param("sale"), service.SalePatch{
		Title: body.Title, Description: body.Description, ImageURL: body.ImageURL,
		StartsAt: body.StartsAt, EndsAt: body.EndsAt, LimitPerUser: body.LimitPerUser, AddQuota: body.AddQuota,
	}, middleware.IdentityOf(c).UserID)
	if verdict == model.BadRequest {
		refuseBadRequest(c, string(invalid))
		return
	}
	answer(c, http.StatusOK, a.saleView(offer), verdict, err)
}

func (a *API) setStatus(status model.SaleStatus, action string) gin.HandlerFunc {
	return func(c *gin.Context) {
		offer, verdict, err := a.Sales.SetStatus(c.Request.Context(), c.Param("sale"), status, action, middleware.IdentityOf(c).UserID)
		answer(c, http.StatusOK, a.saleView(offer), verdict, err)
	}
}

func (a *API) auditSale(c *gin.Context) {
	offer, ok := a.offer(c)
	if !ok {
		return
	}
	audit, ok, err := a.Auditor.Audit(c.Request.Context(), offer.ID)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	if !ok {
		refuse(c, model.NotFound)
		return
	}
	stock := audit.Books.Stock
	c.JSON(http.StatusOK, gin.H{
		"quota": stock.Quota, "available": stock.Available, "held": stock.Held, "paid": stock.Paid,
		"orders": audit.Books.Orders, "units": audit.Books.Units,
		"gate": gin.H{
			"epoch": audit.Gate.Epoch, "left": audit.Gate.Left,
			"inflight": audit.Gate.Inflight, "stream": audit.Gate.Stream,
		},
		"drift": audit.Drift, "ok": audit.OK(),
	})
}

func (a *API) stats(c *gin.Context) {
	instances, err := a.Stats(c.Request.Context())
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"instances": instances})
}
