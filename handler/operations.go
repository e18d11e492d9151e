package handler

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Operations shows the audit log.
type Operations struct {
	*Offers
	Service *service.Sales
}

// ofSales answers with a page of the operations on the route's sale or campaign.
func (o *Operations) ofSales(c *gin.Context) {
	if _, id, ok := o.sales(c); ok {
		o.answer(c, id)
	}
}

// of returns a handler that answers with a page of the operations on a fixed subject, such as the staff.
func (o *Operations) of(subject string) gin.HandlerFunc {
	return func(c *gin.Context) { o.answer(c, subject) }
}

func (o *Operations) answer(c *gin.Context, subject string) {
	answerPage(c, "operations", viewOperation, func(cursor string, limit int) ([]model.AuditEntry, string, error) {
		return o.Service.Operations(c.Request.Context(), subject, cursor, limit)
	})
}

func viewOperation(e model.AuditEntry) gin.H {
	return gin.H{"at": stamp(e.At), "actor": e.Actor, "action": e.Action, "detail": e.Detail}
}
