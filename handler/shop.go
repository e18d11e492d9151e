package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Shop shows what buyers' pages show of the shop, and lets operators change it.
type Shop struct{ Service *service.Shop }

// viewShop shows a shop. If its colour is not empty, viewShop adds the readable colours that pages make of it.
func viewShop(shop model.Shop) any {
	view := gin.H{"shop": shop}
	if light, dark, ok := model.Schemes(shop.Color); ok {
		view["colors"] = gin.H{"light": light.Accent, "dark": dark.Accent}
	}
	return view
}

func (s *Shop) get(c *gin.Context) {
	shop, err := s.Service.Store.Shop(c.Request.Context())
	answer(c, http.StatusOK, viewShop(shop), model.Accepted, err)
}

func (s *Shop) set(c *gin.Context, body model.Shop) {
	shop, verdict, invalid, err := s.Service.Set(c.Request.Context(), body, userOf(c))
	answerChange(c, http.StatusOK, viewShop(shop), verdict, invalid, err)
}
