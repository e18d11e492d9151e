package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Holds lets the shop's own checkout read, settle, refund and release orders.
type Holds struct {
	Service *service.Holds
	Keys    []byte // the JSON Web Key Set of hold tokens
}

// keys answers with the public keys of hold tokens.
func (h *Holds) keys(c *gin.Context) {
	c.Header("Cache-Control", "public, max-age=300")
	c.Data(http.StatusOK, "application/jwk-set+json", h.Keys)
}

func (h *Holds) get(c *gin.Context) {
	order, verdict, err := h.Service.Hold(c.Request.Context(), c.Param("id"))
	answerHold(c, order, verdict, err)
}

func (h *Holds) settle(c *gin.Context) {
	var body struct {
		Reference   string `json:"reference"`
		AmountCents *int64 `json:"amount_cents"`
	}
	if !decode(c, maxBodyBytes, &body) || !isID(c, "reference", body.Reference) {
		return
	}
	if body.AmountCents == nil {
		refuseInvalid(c, &service.Invalid{Field: "amount_cents", Reason: missingField})
		return
	}
	order, verdict, err := h.Service.Settle(c.Request.Context(), c.Param("id"), body.Reference, *body.AmountCents)
	answerHold(c, order, verdict, err)
}

func (h *Holds) refunded(c *gin.Context) {
	var body struct {
		Reference string `json:"reference"`
	}
	if !decode(c, maxBodyBytes, &body) || !isID(c, "reference", body.Reference) {
		return
	}
	order, verdict, err := h.Service.Refunded(c.Request.Context(), c.Param("id"), body.Reference)
	answerHold(c, order, verdict, err)
}

func (h *Holds) release(c *gin.Context) {
	order, verdict, err := h.Service.Release(c.Request.Context(), c.Param("id"), middleware.IdentityOf(c).UserID)
	answerHold(c, order, verdict, err)
}

// isID reports whether a field has the form of a user's id: 1 to 64 letters, digits and . _ : - of ASCII. If not, it refuses the
// request.
func isID(c *gin.Context, field, id string) bool {
	ok := model.ValidUserID(id)
	if !ok {
		refuseInvalid(c, &service.Invalid{Field: field, Reason: notAnID, Min: 1, Max: model.MaxUserID})
	}
	return ok
}

// answerHold shows the order with its buyer: the shop's server asks about the orders of all buyers.
func answerHold(c *gin.Context, order model.Order, verdict model.Verdict, err error) {
	answer(c, http.StatusOK, viewBuyersOrder(order), verdict, err)
}
