package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// product is a product that the shop sells outside of flash sales.
type product struct {
	Name, About string
	Picture     string // the data of an SVG path, 120 by 80
	Cents       int64
}

// sale is a flash sale in the engine.
type sale struct {
	ID         string    `json:"id"`
	Title      string    `json:"title"`
	State      string    `json:"state"`
	PriceCents int64     `json:"price_cents"`
	Currency   string    `json:"currency"`
	Available  int64     `json:"available"` // 0 also if the sale hides its stock
	StartsAt   time.Time `json:"starts_at"`
	URL        string    `json:"-"` // of the sale's page in the engine's storefront
}

// showCatalogue shows the products and, if nextSale finds a sale, a banner that leads to it.
func (s *Shop) showCatalogue(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, "catalogue.html", map[string]any{
		"Banner": s.nextSale(r.Context()),
		"Products": []product{
			{"Tea tin, 250 g", "Keeps the leaves dry and dark. Tin plate with an inner lid.", "M8 30h64v36H8zM8 20h64v10H8zM22 20v-8h36v8M24 44h32v12H24z", 1490},
			{"Two cups", "White porcelain, thin at the rim. They hold 120 ml each.", "M8 24h40v18a16 16 0 0 1-16 16h-8A16 16 0 0 1 8 42zM48 30h6a7 7 0 0 1 0 14h-6M68 24h40v18a16 16 0 0 1-16 16h-8a16 16 0 0 1-16-16zM8 68h100", 2200},
		},
	})
}

// nextSale returns the first sale of the engine's list that has not ended. It returns nil if the list has none, or can't be read.
func (s *Shop) nextSale(ctx context.Context) *sale {
	c, err := s.connection()
	if err != nil {
		return nil
	}
	var list struct{ Sales []sale }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Engine+"/api/v1/sales", nil)
	if err != nil {
		return nil
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&list) != nil {
		return nil
	}
	for _, found := range list.Sales {
		if found.State != "ended" {
			found.URL = c.Engine + "/sales/" + found.ID
			return &found
		}
	}
	return nil
}
