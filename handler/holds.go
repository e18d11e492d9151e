package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Holds lets the shop's own checkout read orders, report that they were paid or refunded, and release them.
type Holds struct {
	Service *service.Holds
	Keys    []byte // the JSON Web Key Set of hold tokens
}

// keys answers with the public keys of hold tokens.
func (h *Holds) keys(c *gin.Context) {
	c.Header("Cache-Control", "public, max-age=300")
	c.Data(http.StatusOK, "application/jwk-set+json", h.Keys)
}

// get answers with an order of any buyer.
func (h *Holds) get(c *gin.Context) {
	show(c, viewBuyersOrder)(h.Service.Hold(c.Request.Context(), c.Param("id")))
}

type settledBody struct {
	Reference   string `json:"reference"`
	AmountCents *int64 `json:"amount_cents"`
}

func (h *Holds) settle(c *gin.Context, body settledBody) {
	switch {
	case !isID(c, "reference", body.Reference):
	case body.AmountCents == nil:
		refuseInvalid(c, &service.Invalid{Field: "amount_cents", Reason: missingField})
	default:
		show(c, viewBuyersOrder)(h.Service.Settle(c.Request.Context(), c.Param("id"), body.Reference, *body.AmountCents))
	}
}

type refundedBody struct {
	Reference string `json:"reference"`
}

func (h *Holds) refunded(c *gin.Context, body refundedBody) {
	if isID(c, "reference", body.Reference) {
		show(c, viewBuyersOrder)(h.Service.Refunded(c.Request.Context(), c.Param("id"), body.Reference))
	}
}

func (h *Holds) release(c *gin.Context) {
	show(c, viewBuyersOrder)(h.Service.Release(c.Request.Context(), c.Param("id"), userOf(c)))
}

// isID reports whether id has the form of a user's id, which ids of transactions must have too. If not, it refuses the request.
func isID(c *gin.Context, field, id string) bool {
	ok := model.ValidUserID(id)
	if !ok {
		refuseInvalid(c, &service.Invalid{Field: field, Reason: notAnID, Min: 1, Max: model.MaxUserID})
	}
	return ok
}
