package handler

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Operations shows what operators did, and what the engine repaired.
type Operations struct {
	*Offers
	Service *service.Sales
}

// ofSale answers with a page of a sale's operations.
func (o *Operations) ofSale(c *gin.Context) {
	if offer, ok := o.offer(c); ok {
		o.answer(c, offer.ID)
	}
}

// ofCampaign answers with a page of what operators did to a campaign as a whole.
func (o *Operations) ofCampaign(c *gin.Context) {
	if sales, ok := o.campaign(c); ok {
		o.answer(c, sales[0].Campaign.ID)
	}
}

// of returns a handler that answers with a page of the operations on a fixed subject, such as the staff.
func (o *Operations) of(subject string) gin.HandlerFunc {
	return func(c *gin.Context) { o.answer(c, subject) }
}

func (o *Operations) answer(c *gin.Context, subject string) {
	view := func(e model.AuditEntry) gin.H {
		return gin.H{"at": stamp(e.At), "actor": e.Actor, "action": e.Action, "detail": e.Detail}
	}
	answerPage(c, "operations", view, func(cursor string, limit int) ([]model.AuditEntry, string, error) {
		return o.Service.Operations(c.Request.Context(), subject, cursor, limit)
	})
}
