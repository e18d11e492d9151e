package handler

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Defaults of the fields that an operator may leave out of a new sale.
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
		Shards             int       `json:"parts"`
		Mode               string    `json:"mode"`
		EntriesAt          time.Time `json:"entries_at"`
		CallSeconds        int       `json:"call_seconds"`
		WaitingList        bool      `json:"waiting_list"`
		Beacon             bool      `json:"beacon"`
		EntryWork          int64     `json:"entry_work"`
	}{
		Currency: defaultCurrency, LimitPerUser: defaultLimit, PayTimeoutSeconds: defaultPaySeconds, Shards: 1,
		Mode: string(model.ModeRush), CallSeconds: service.DefaultCallSeconds,
	}
	if !decode(c, maxOperatorBodyBytes, &body) {
		return
	}
	if body.Mode == "" { // for the service, this is the usual mode
		refuseInvalid(c, &service.Invalid{Field: "mode", Reason: service.BadMode})
		return
	}
	key, ok := idempotencyKey(c)
	if !ok {
		return
	}
	sale := model.Sale{
		Title: body.Title, Description: body.Description, ImageURL: body.ImageURL,
		PriceCents: body.PriceCents, OriginalPriceCents: body.OriginalPriceCents, Currency: body.Currency,
		LimitPerUser: body.LimitPerUser, PayTimeoutSeconds: body.PayTimeoutSeconds,
		StartsAt: body.StartsAt, EndsAt: body.EndsAt, Shards: body.Shards,
		Mode: model.Mode(body.Mode), EntriesAt: body.EntriesAt, CallSeconds: body.CallSeconds, WaitingList: body.WaitingList,
		Beacon: body.Beacon, EntryWork: body.EntryWork,
	}
	actor := middleware.IdentityOf(c).UserID
	if key != "" {
		sale.ID = a.Sales.IDUnder(actor, key)
		if a.answerRepeated(c, sale, body.Quota) {
			return
		}
	}
	offer, invalid, err := a.Sales.Create(c.Request.Context(), sale, body.Quota, actor)
	switch {
	case err != nil && key != "" && a.answerRepeated(c, sale, body.Quota): // a concurrent request with this key made it
	case err != nil:
		middleware.Fail(c, err)
	case invalid != nil:
		refuseInvalid(c, invalid)
	default:
		a.answerNewSale(c, offer)
	}
}

// answerRepeated ends the request if a request with the same key has already made the sale: with that sale, with
// IdempotencyMismatch if that sale differs from the one that is asked for, or with an error. It returns false if there
// is no such sale.
func (a *API) answerRepeated(c *gin.Context, sale model.Sale, quota int64) bool {
	offer, verdict, err := a.Sales.Repeated(c.Request.Context(), sale, quota)
	switch {
	case err != nil:
		middleware.Fail(c, err)
	case verdict == model.NotFound:
		return false
	case verdict != model.Accepted:
		middleware.Refuse(c, middleware.Refusal{Verdict: verdict})
	default:
		c.Header("Idempotent-Replayed", "true")
		a.answerNewSale(c, offer)
	}
	return true
}

func (a *API) answerNewSale(c *gin.Context, offer model.Offer) {
	c.Header("Location", "/api/v1/sales/"+offer.ID)
	c.JSON(http.StatusCreated, a.operatorSaleView(offer))
}

func (a *API) patchSale(c *gin.Context) {
	var body struct {
		Title        *string    `json:"title"`
		Description  *string    `json:"description"`
		ImageURL     *string    `json:"image_url"`
		StartsAt     *time.Time `json:"starts_at"`
		EndsAt       *time.Time `json:"ends_at"`
		LimitPerUser *int       `json:"limit_per_user"`
		EntriesAt    *time.Time `json:"entries_at"`
		CallSeconds  *int       `json:"call_seconds"`
		WaitingList  *bool      `json:"waiting_list"`
		AddQuota     int64      `json:"add_quota"`
		IfQuota      *int64     `json:"if_quota"`
	}
	if !decode(c, maxOperatorBodyBytes, &body) {
		return
	}
	offer, verdict, invalid, err := a.Sales.Patch(c.Request.Context(), c.Param("sale"), service.SalePatch{
		Title: body.Title, Description: body.Description, ImageURL: body.ImageURL,
		StartsAt: body.StartsAt, EndsAt: body.EndsAt, LimitPerUser: body.LimitPerUser,
		EntriesAt: body.EntriesAt, CallSeconds: body.CallSeconds, WaitingList: body.WaitingList,
		AddQuota: body.AddQuota, IfQuota: body.IfQuota,
	}, middleware.IdentityOf(c).UserID)
	answerChange(c, http.StatusOK, a.operatorSaleView(offer), verdict, invalid, err)
}

func (a *API) setStatus(status model.SaleStatus, action string) gin.HandlerFunc {
	return func(c *gin.Context) {
		offer, verdict, err := a.Sales.SetStatus(c.Request.Context(), c.Param("sale"), status, action, middleware.IdentityOf(c).UserID)
		answerChange(c, http.StatusOK, a.operatorSaleView(offer), verdict, &service.Invalid{Field: "status", Reason: service.OfCampaign}, err)
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
		"quota": stock.Quota, "available": stock.Free(), "held": stock.Held, "paid": stock.Paid,
		"orders": audit.Books.Orders, "units": audit.Books.Units,
		"gate": gin.H{
			"epoch": audit.Gate.Epoch, "left": audit.Gate.Left,
			"inflight": audit.Gate.Inflight, "stream": audit.Gate.Stream,
		},
		"drift": audit.Drift, "ok": audit.OK(),
	})
}

// stats answers with what the running instances report. It leaves out the figures that liveFigures sums up: requests by
// sale, and latencies.
func (a *API) stats(c *gin.Context) {
	views := map[string]gin.H{}
	for id, i := range a.Instances(c.Request.Context()) {
		views[id] = gin.H{
			"url": i.URL, "strategy": i.Strategy, "gate_reachable": i.GateReachable, "purchases": i.Purchases, "reported_at_ms": i.ReportedAtMs,
		}
	}
	c.JSON(http.StatusOK, gin.H{"instances": views})
}

// listAllSales answers with a page of all sales, or of those without a campaign, including those that ended long ago.
func (a *API) listAllSales(c *gin.Context) {
	alone, err := strconv.ParseBool(c.DefaultQuery("alone", "false"))
	if err != nil {
		refuseInvalid(c, &service.Invalid{Field: "alone", Reason: notAChoice, Value: "true, false"})
		return
	}
	cursor, limit, ok := readPage(c)
	if !ok {
		return
	}
	list, next, err := a.Sales.List(c.Request.Context(), alone, cursor, limit)
	views := make([]operatorSaleView, len(list))
	for i, o := range list {
		views[i] = a.operatorSaleView(o)
	}
	answerPage(c, gin.H{"sales": views, "next_cursor": next}, err)
}

// listOperations answers with a page of a sale's operations: what operators did, and what the engine repaired.
func (a *API) listOperations(c *gin.Context) {
	if offer, ok := a.offer(c); ok {
		a.answerOperations(c, offer.ID)
	}
}

func (a *API) answerOperations(c *gin.Context, subject string) {
	cursor, limit, ok := readPage(c)
	if !ok {
		return
	}
	list, next, err := a.Sales.Operations(c.Request.Context(), subject, cursor, limit)
	views := make([]gin.H, len(list))
	for i, o := range list {
		views[i] = gin.H{"at": stamp(o.At), "actor": o.Actor, "action": o.Action, "detail": o.Detail}
	}
	answerPage(c, gin.H{"operations": views, "next_cursor": next}, err)
}
