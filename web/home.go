// Package web holds the pages for people.
package web

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"flashsale/model"
)

//go:embed home.html
var homeSource string

var homeTemplate = template.Must(template.New("home").Parse(homeSource))

// Catalog is where the pages find the sales.
type Catalog interface {
	Live() (list []model.Offer, changed <-chan struct{})
	Sale(ctx context.Context, id string) (offer model.Offer, ok bool, err error)
	Now() time.Time
}

// Home shows the sales (/) and one sale (/sales/ID) with how to buy in it.
type Home struct {
	Catalog   Catalog
	PublicURL func() string
}

type homePage struct {
	*Home
	Sales []model.Offer
	Sale  *model.Offer
}

// URL is where the server is reached.
func (p homePage) URL() string { return p.PublicURL() }

// State is a sale's state now.
func (p homePage) State(o model.Offer) model.SaleState {
	return o.State(p.Catalog.Now(), o.Stock.Available)
}

// Price is a sale's price in words.
func (homePage) Price(o model.Offer) string {
	return fmt.Sprintf("%d.%02d %s", o.PriceCents/100, o.PriceCents%100, o.Currency)
}

// ServeHTTP answers with the page.
func (h *Home) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page := homePage{Home: h}
	if id, one := strings.CutPrefix(r.URL.Path, "/sales/"); one {
		offer, ok, err := h.Catalog.Sale(r.Context(), id)
		switch {
		case err != nil:
			http.Error(w, "The sale can't be shown at the moment.", http.StatusServiceUnavailable)
			return
		case !ok:
			http.NotFound(w, r)
			return
		}
		page.Sale = &offer
	} else {
		page.Sales, _ = h.Catalog.Live()
	}
	var body bytes.Buffer
	if err := homeTemplate.Execute(&body, page); err != nil {
		http.Error(w, "The page can't be shown.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(body.Bytes()) // the visitor may have left
}
