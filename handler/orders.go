package handler

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Page sizes of all lists. The largest page has at most some 8 MB: 500 sales with the longest texts.
const (
	usualPage = 50
	maxPage   = 500
)

// Orders shows orders to their buyers and to the staff, and ends them.
type Orders struct {
	*Offers
	Service  *service.Orders
	Consoles *Consoles
}

func (o *Orders) get(c *gin.Context) {
	order, verdict, err := o.Service.Order(c.Request.Context(), middleware.IdentityOf(c).UserID, c.Param("id"))
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (o *Orders) cancel(c *gin.Context) {
	order, verdict, err := o.Service.Cancel(c.Request.Context(), middleware.IdentityOf(c).UserID, c.Param("id"))
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (o *Orders) cancelAny(c *gin.Context) {
	order, verdict, err := o.Service.CancelAny(c.Request.Context(), c.Param("id"), middleware.IdentityOf(c).UserID)
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (o *Orders) refund(c *gin.Context) {
	order, verdict, err := o.Service.Refund(c.Request.Context(), c.Param("id"), middleware.IdentityOf(c).UserID)
	answer(c, http.StatusOK, viewOrder(order), verdict, err)
}

func (o *Orders) list(c *gin.Context) {
	cursor, limit, ok := readPage(c)
	if !ok {
		return
	}
	list, next, err := o.Service.List(c.Request.Context(), model.OrderFilter{UserID: middleware.IdentityOf(c).UserID, Cursor: cursor, Limit: limit})
	answerPage(c, viewOrders(list, next, false), err)
}

func (o *Orders) listOfSale(c *gin.Context) {
	f, ok := o.ofSale(c)
	if !ok {
		return
	}
	if f.Cursor, f.Limit, ok = readPage(c); !ok {
		return
	}
	list, next, err := o.Service.Search(c.Request.Context(), f, c.Query("q"))
	answerPage(c, viewOrders(list, next, true), err)
}

// ofSale returns a filter for the orders of the route's sale that have the query's status. If there is no such
// sale or status, it ends the request and returns false.
func (o *Orders) ofSale(c *gin.Context) (f model.OrderFilter, ok bool) {
	offer, ok := o.offer(c)
	if !ok {
		return f, false
	}
	status := model.OrderStatus(c.Query("status"))
	if status != "" && !slices.Contains(model.StoredStatuses, status) {
		refuseInvalid(c, &service.Invalid{Field: "status", Reason: notAChoice, Value: "pending, paid, cancelled, expired, refunded"})
		return f, false
	}
	return model.OrderFilter{SaleID: offer.ID, Status: status}, true
}

// readPage returns the query's cursor and limit. If the limit is invalid, it refuses the request and returns false.
func readPage(c *gin.Context) (cursor string, limit int, ok bool) {
	limit = usualPage
	if text := c.Query("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			refuseInvalid(c, &service.Invalid{Field: "limit", Reason: service.OutOfRange, Min: 1, Max: maxPage})
			return "", 0, false
		}
	}
	return c.Query("cursor"), limit, true
}

// answerPage answers with a page of a list. It refuses the request if err is model.ErrBadCursor, and fails it with any
// other error.
func answerPage(c *gin.Context, view any, err error) {
	switch {
	case errors.Is(err, model.ErrBadCursor):
		refuseInvalid(c, &service.Invalid{Field: "cursor", Reason: notACursor})
	case err != nil:
		middleware.Fail(c, err)
	default:
		c.JSON(http.StatusOK, view)
	}
}
