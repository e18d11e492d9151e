package handler

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/prepared"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

const (
	// pathLifetime is how long a purchase path is valid: long enough for a rush and its repeats, too short for a trade
	// in paths.
	pathLifetime = 10 * time.Minute
	// callGrace is how much longer than a call its path is valid: a call lasts until a caller ends it, a moment late.
	callGrace = 3 * time.Second
	// saleMaxAge is how long caches may show a sale without asking again, in seconds.
	saleMaxAge = 1
)

// Sales shows sales to buyers, and lets operators make and change them.
type Sales struct {
	*Offers
	Service *service.Sales
	Auditor *service.Auditor
}

func (s *Sales) time(c *gin.Context) {
	now := s.Catalog.Now()
	c.JSON(http.StatusOK, gin.H{"now": stamp(now), "unix_ms": now.UnixMilli()})
}

// live answers with the JSON of all live sales.
func (s *Sales) live() gin.HandlerFunc {
	return s.allSales(func(c *gin.Context, live []model.Offer) *prepared.Answer {
		return salesJSON(c, gin.H{"sales": each(live, s.saleView)})
	})
}

// salesJSON encodes a view that is the same for everybody. If that fails, it fails the request and returns nil.
func salesJSON(c *gin.Context, view any) *prepared.Answer {
	body, err := json.Marshal(view)
	if err != nil {
		middleware.Fail(c, err)
		return nil
	}
	return prepared.New(http.StatusOK, http.Header{
		"Content-Type": {jsonType}, "Cache-Control": {"public, max-age=" + strconv.Itoa(saleMaxAge)},
	}, body)
}

// get answers with a sale's JSON.
func (s *Sales) get() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		offer, ok := s.offer(c)
		if !ok {
			return
		}
		pages.send(c, offer, s.Catalog.Now(), func(state model.SaleState) *prepared.Answer {
			view := s.saleView(offer)
			view.State = state // the state for which send caches the page
			return salesJSON(c, view)
		})
	}
}

// Defaults of the fields that an operator may leave out of a new sale.
const (
	defaultLimit      = 1
	defaultPaySeconds = 30 * 60
	defaultCurrency   = "CNY"
)

func (s *Sales) create(c *gin.Context) {
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
		sale.ID = s.Service.IDUnder(actor, key)
		if s.answerRepeated(c, sale, body.Quota) {
			return
		}
	}
	offer, invalid, err := s.Service.Create(c.Request.Context(), sale, body.Quota, actor)
	switch {
	case err != nil && key != "" && s.answerRepeated(c, sale, body.Quota): // a concurrent request with this key made it
	case err != nil:
		middleware.Fail(c, err)
	case invalid != nil:
		refuseInvalid(c, invalid)
	default:
		s.answerNew(c, offer)
	}
}

// answerRepeated ends the request if a request with the same key has already made the sale: with that sale, with
// IdempotencyMismatch if that sale differs from the one that is asked for, or with an error. It returns false if there
// is no such sale.
func (s *Sales) answerRepeated(c *gin.Context, sale model.Sale, quota int64) bool {
	offer, verdict, err := s.Service.Repeated(c.Request.Context(), sale, quota)
	switch {
	case err != nil:
		middleware.Fail(c, err)
	case verdict == model.NotFound:
		return false
	case verdict != model.Accepted:
		middleware.Refuse(c, middleware.Refusal{Verdict: verdict})
	default:
		c.Header("Idempotent-Replayed", "true")
		s.answerNew(c, offer)
	}
	return true
}

func (s *Sales) answerNew(c *gin.Context, offer model.Offer) {
	c.Header("Location", "/api/v1/sales/"+offer.ID)
	c.JSON(http.StatusCreated, s.operatorSaleView(offer))
}

func (s *Sales) patch(c *gin.Context) {
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
	offer, verdict, invalid, err := s.Service.Patch(c.Request.Context(), c.Param("sale"), service.SalePatch{
		Title: body.Title, Description: body.Description, ImageURL: body.ImageURL,
		StartsAt: body.StartsAt, EndsAt: body.EndsAt, LimitPerUser: body.LimitPerUser,
		EntriesAt: body.EntriesAt, CallSeconds: body.CallSeconds, WaitingList: body.WaitingList,
		AddQuota: body.AddQuota, IfQuota: body.IfQuota,
	}, middleware.IdentityOf(c).UserID)
	answerChange(c, http.StatusOK, s.operatorSaleView(offer), verdict, invalid, err)
}

func (s *Sales) setStatus(status model.SaleStatus, action string) gin.HandlerFunc {
	return func(c *gin.Context) {
		offer, verdict, err := s.Service.SetStatus(c.Request.Context(), c.Param("sale"), status, action, middleware.IdentityOf(c).UserID)
		answerChange(c, http.StatusOK, s.operatorSaleView(offer), verdict, &service.Invalid{Field: "status", Reason: service.OfCampaign}, err)
	}
}

func (s *Sales) audit(c *gin.Context) {
	offer, ok := s.offer(c)
	if !ok {
		return
	}
	audit, ok, err := s.Auditor.Audit(c.Request.Context(), offer.ID)
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

// listAll answers with a page of all sales, or of those without a campaign, including those that ended long ago.
func (s *Sales) listAll(c *gin.Context) {
	alone, err := strconv.ParseBool(c.DefaultQuery("alone", "false"))
	if err != nil {
		refuseInvalid(c, &service.Invalid{Field: "alone", Reason: notAChoice, Value: "true, false"})
		return
	}
	answerPage(c, "sales", s.operatorSaleView, func(cursor string, limit int) ([]model.Offer, string, error) {
		return s.Service.List(c.Request.Context(), alone, cursor, limit)
	})
}
