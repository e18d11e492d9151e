package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Reports shows what came of sales and campaigns.
type Reports struct {
	*Offers
	Service *service.Reports
}

// reportView adds to a report what is the same for all sales of a campaign. Amounts are in the smallest unit of the currency.
type reportView struct {
	*service.Report
	ID           string     `json:"id"`
	Now          stamp      `json:"now"`
	StartsAt     stamp      `json:"starts_at"`
	Mode         model.Mode `json:"mode"`
	Currency     string     `json:"currency"`
	OrdersAt     *stamp     `json:"orders_at"`     // when the orders were summed; null: that took too long
	GrossCents   int64      `json:"gross_cents"`   // of orders that were paid, also if refunded later
	RefundsCents int64      `json:"refunds_cents"` // of refunded orders
}

func (r *Reports) get(c *gin.Context) {
	sales, id, ok := r.sales(c)
	if !ok {
		return
	}
	report, err := r.Service.Report(c.Request.Context(), id, sales)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	of, refunds := sales[0], report.Orders[model.OrderRefunded].AmountCents
	c.JSON(http.StatusOK, reportView{
		Report: report, ID: id, Now: stamp(report.Now), StartsAt: stamp(of.StartsAt), Mode: of.Mode, Currency: of.Currency,
		OrdersAt: optional(report.OrdersAt), GrossCents: report.Orders[model.OrderPaid].AmountCents + refunds, RefundsCents: refunds,
	})
}
