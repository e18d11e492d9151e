package handler

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// Whatever caches may keep depends on the path and the encoding alone: not on the origin of the page that asks first, on its
// language, or on who is logged in. Pages of other origins may read it if it is part of the API.
func TestSharedAnswersAreTheSameForEverybody(t *testing.T) {
	const campaign, shopOrigin = "CCCCCCCCCCCCCCCC", "https://shop.example"
	ofAPI := map[string]bool{}
	for _, of := range []string{"", campaign} { // the line of a campaign's sale is another sale
		s := newShop(t)
		s.api.Door.Limits.Origins = []string{shopOrigin, "https://www.shop.example"}
		hash := strings.Repeat("00", 32)
		s.offer.Campaign.ID, s.offer.Mode, s.offer.Stock.Lined = of, model.ModeLine, model.InLine
		s.offer.Line = model.Line{Phase: model.PhaseOver, Sealed: entrantsPage, Root: hash, Commitment: hash, Secret: hash, Seed: hash}
		s.refresh()
		s.api.Lines.Proofs = service.NewProofs(&entrants{pages: 1}, s.offers.Catalog, nil)
		s.api.Links.Service = &service.Sales{Catalog: s.offers.Catalog, Store: &codes{}}
		for _, route := range s.handler().(*gin.Engine).Routes() {
			path := strings.NewReplacer(":sale", benchSale, ":campaign", campaign, ":code", "abc").Replace(route.Path)
			if route.Method != http.MethodGet || strings.Contains(path, ":") || strings.HasSuffix(path, "/events") || strings.HasPrefix(path, "/api/v1/admin/") {
				continue
			}
			first := s.get(path)
			if !strings.Contains(first.Header().Get("Cache-Control"), "public") {
				continue
			}
			for _, headers := range [][]string{
				{"Origin", shopOrigin},
				{"Origin", "https://www.shop.example"},
				{"Origin", "https://evil.example"},
				{"Origin", "http://" + "example.com"},
				{"Accept-Language", "zh-CN"},
				{"Authorization", s.token(model.RoleOperator)},
				{"Accept", "text/html"},
				{"Cookie", "a=b"},
			} {
				other := s.get(path, headers...)
				for _, header := range []http.Header{first.Header(), other.Header()} {
					header.Del("X-Request-Id")
				}
				check.Same(t, path+": headers with "+headers[0], other.Header(), first.Header())
				check.Same(t, path+": body with "+headers[0], other.Body.String(), first.Body.String())
			}
			for _, vary := range first.Header().Values("Vary") {
				check.Same(t, path+": varies by", vary, "Accept-Encoding")
			}
			if strings.HasPrefix(path, "/api/v1/") {
				ofAPI[strings.TrimPrefix(path, "/api/v1")] = true
				check.Same(t, path+": who may read it", first.Header().Values("Access-Control-Allow-Origin"), []string{"*"})
			}
		}
	}
	check.Same(t, "shared answers of the API", slices.Sorted(maps.Keys(ofAPI)), []string{
		"/campaigns/" + campaign, "/sales", "/sales/" + benchSale, "/sales/" + benchSale + "/draw.json", "/sales/" + benchSale + "/line",
	})
}
