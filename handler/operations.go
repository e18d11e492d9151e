package handler

import (
	"github.com/gin-gonic/gin"

	"flashsale/service"
)

// Operations are what operators did, and what the engine repaired.
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

// of returns a handler that answers with a page of the operations on a subject that no route names.
func (o *Operations) of(subject string) gin.HandlerFunc {
	return func(c *gin.Context) { o.answer(c, subject) }
}

func (o *Operations) answer(c *gin.Context, subject string) {
	cursor, limit, ok := readPage(c)
	if !ok {
		return
	}
	list, next, err := o.Service.Operations(c.Request.Context(), subject, cursor, limit)
	views := make([]gin.H, len(list))
	for i, o := range list {
		views[i] = gin.H{"at": stamp(o.At), "actor": o.Actor, "action": o.Action, "detail": o.Detail}
	}
	answerPage(c, gin.H{"operations": views, "next_cursor": next}, err)
}
