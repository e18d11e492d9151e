package handler

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/prepared"
	"flashsale/model"
	"flashsale/service"
)

const (
	// pathLifetime is how long a purchase path is valid at most: not long, against a trade in paths.
	pathLifetime = 10 * time.Minute
	// callGrace is how long a called buyer's path may outlive the call, since a worker ends the call a little later.
	callGrace  = 3 * time.Second
	saleMaxAge = "public, max-age=1" // the Cache-Control of the answers of salesJSON
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

// live answers with the JSON of the sales that Catalog.Live lists.
func (s *Sales) live() gin.HandlerFunc {
	return s.allSales(func(live []model.Offer) *prepared.Answer { return salesJSON(gin.H{"sales": each(live, s.saleView)}) })
}

// salesJSON encodes a view that is the same for everybody.
func salesJSON(view any) *prepared.Answer {
	body, _ := json.Marshal(view) // texts, times and numbers always encode
	return prepared.Plain(http.StatusOK, http.Header{"Content-Type": {jsonType}, "Cache-Control": {saleMaxAge}}, body)
}

// get answers with a sale's JSON.
func (s *Sales) get() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		if offer, ok := s.offer(c); ok {
			of := s.now(offer)
			pages.send(c, offer.ID, of, func() *prepared.Answer {
				view := s.saleView(offer)
				view.State = of.state
				return salesJSON(view)
			})
		}
	}
}

func (s *Sales) getForOperators(c *gin.Context) {
	if offer, ok := s.offer(c); ok {
		c.JSON(http.StatusOK, s.operatorSaleView(offer))
	}
}

func (s *Sales) create(c *gin.Context) {
	body := struct {
		termsBody
		PriceCents         int64 `json:"price_cents"`
		OriginalPriceCents int64 `json:"original_price_cents"`
		Quota              int64 `json:"quota"`
		WaitingList        bool  `json:"waiting_list"`
	}{termsBody: usualTerms()}
	if !decode(c, maxOperatorBodyBytes, &body) {
		return
	}
	if !body.hasMode(c) {
		return
	}
	sale := body.sale()
	sale.PriceCents, sale.OriginalPriceCents, sale.WaitingList = body.PriceCents, body.OriginalPriceCents, body.WaitingList
	view := func(o model.Offer) (any, string) { return s.operatorSaleView(o), "/api/v1/sales/" + o.ID }
	create(c, view, s.Service.IDs, "", func(id string) (model.Offer, model.Verdict, error) {
		sale.ID = id
		return s.Service.Repeated(c.Request.Context(), sale, body.Quota)
	}, func(_, actor string) (model.Offer, model.Verdict, *service.Invalid, error) {
		offer, invalid, err := s.Service.Create(c.Request.Context(), sale, body.Quota, actor)
		return offer, model.Accepted, invalid, err
	})
}

func (s *Sales) patch(c *gin.Context, patch service.SalePatch) {
	offer, verdict, invalid, err := s.Service.Patch(c.Request.Context(), c.Param("sale"), patch, userOf(c))
	answerChange(c, http.StatusOK, s.operatorSaleView(offer), verdict, invalid, err)
}

func (s *Sales) setStatus(status model.SaleStatus, action string) gin.HandlerFunc {
	return func(c *gin.Context) {
		offer, verdict, err := s.Service.SetStatus(c.Request.Context(), c.Param("sale"), status, action, userOf(c))
		answerChange(c, http.StatusOK, s.operatorSaleView(offer), verdict, &service.Invalid{Field: "status", Reason: service.OfCampaign}, err)
	}
}

func (s *Sales) audit(c *gin.Context) {
	offer, ok := s.offer(c)
	if !ok {
		return
	}
	audit, ok, err := s.Auditor.Audit(c.Request.Context(), offer.ID)
	verdict := model.Accepted
	if !ok {
		verdict = model.NotFound
	}
	stock := audit.Books.Stock
	answer(c, http.StatusOK, gin.H{
		"quota": stock.Quota, "available": stock.Free(), "held": stock.Held, "paid": stock.Paid,
		"orders": audit.Books.Orders, "units": audit.Books.Units,
		"gate":  gin.H{"epoch": audit.Gate.Epoch, "left": audit.Gate.Left, "inflight": audit.Gate.Inflight, "stream": audit.Gate.Stream},
		"drift": audit.Drift, "ok": audit.OK(),
	}, verdict, err)
}

func viewSummary(s model.Summary) gin.H {
	return gin.H{
		"id": s.ID, "title": s.Title, "campaign": s.Campaign, "mode": s.Mode, "state": s.State, "starts_at": stamp(s.StartsAt), "ends_at": stamp(s.EndsAt),
		"sales": s.Sales, "lowest_price_cents": s.LowCents, "highest_price_cents": s.HighCents, "currency": s.Currency,
		"limit_per_user": s.LimitPerUser, "quota": s.Quota, "available": s.Available, "held": s.Held, "paid": s.Paid,
	}
}

// catalog answers with a page of the campaigns, and of the sales without a campaign, that fit the query.
func (s *Sales) catalog(c *gin.Context) {
	f := model.SummaryFilter{
		Words: strings.ToValidUTF8(c.Query("q"), ""), State: model.SaleState(c.Query("state")), Mode: model.Mode(c.Query("mode")),
		Sort: c.DefaultQuery("sort", model.SummarySorts[0]),
	}
	if invalid := cmp.Or(unlessOneOf("state", f.State, model.States), unlessOneOf("mode", f.Mode, model.Modes),
		unlessOneOf("sort", f.Sort, model.SummarySorts)); invalid != nil {
		refuseInvalid(c, invalid)
		return
	}
	answerPage(c, "entries", viewSummary, func(cursor string, limit int) ([]model.Summary, string, error) {
		f.Cursor, f.Limit = cursor, limit
		return s.Service.Summaries(c.Request.Context(), f)
	})
}

// listAll answers with a page of the sales, also of those that ended long ago.
func (s *Sales) listAll(c *gin.Context) {
	answerPage(c, "sales", s.operatorSaleView, func(cursor string, limit int) ([]model.Offer, string, error) {
		return s.Service.Sales(c.Request.Context(), cursor, limit)
	})
}
