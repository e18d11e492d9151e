package handler

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	pageOfOrders    = 50
	maxPageOfOrders = 500
)

func (a *API) getOrder(c *gin.Context) {
	order, verdict, err := a.Orders.Order(c.Request.Context(), middleware.IdentityOf(c).UserID, c.Param("id"))
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (a *API) cancelOrder(c *gin.Context) {
	order, verdict, err := a.Orders.Cancel(c.Request.Context(), middleware.IdentityOf(c).UserID, c.Param("id"))
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (a *API) refundOrder(c *gin.Context) {
	order, verdict, err := a.Orders.Refund(c.Request.Context(), c.Param("id"), middleware.IdentityOf(c).UserID)
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (a *API) listOrders(c *gin.Context) {
	a.answerOrders(c, model.OrderFilter{UserID: middleware.IdentityOf(c).UserID}, false)
}

func (a *API) listSaleOrders(c *gin.Context) {
	offer, ok := a.offer(c)
	if !ok {
		return
	}
	status := model.OrderStatus(c.Query("status"))
	switch status {
	case "", model.OrderPending, model.OrderPaid, model.OrderCancelled, model.OrderExpired, model.OrderRefunded:
	default:
		refuseBadRequest(c, "status must be pending, paid, cancelled, expired or refunded")
		return
	}
	a.answerOrders(c, model.OrderFilter{SaleID: offer.ID, Status: status}, true)
}

// answerOrders lists orders by a filter and the query's cursor and limit.
func (a *API) answerOrders(c *gin.Context, f model.OrderFilter, withUser bool) {
	f.Cursor, f.Limit = c.Query("cursor"), pageOfOrders
	if limit := c.Query("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > maxPageOfOrders {
			refuseBadRequest(c, fmt.Sprintf("limit must be 1 to %d", maxPageOfOrders))
			return
		}
		f.Limit = n
	}
	list, next, err := a.Orders.List(c.Request.Context(), f)
	switch {
	case errors.Is(err, model.ErrBadCursor):
		refuseBadRequest(c, "cursor must be a next_cursor of an earlier page")
	case err != nil:
		middleware.Fail(c, err)
	default:
		c.JSON(http.StatusOK, viewOrders(list, next, withUser))
	}
}
