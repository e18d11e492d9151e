package handler

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/prepared"
	"flashsale/middleware"
	"flashsale/model"
)

const (
	// pathLifetime is how long a purchase path is valid: long enough for a rush and its repeats, too short for a trade
	// in paths.
	pathLifetime = 10 * time.Minute
	// callGrace is how much longer than a call its path is valid: a call lasts until a caller ends it, a moment late.
	callGrace = 3 * time.Second
	// saleMaxAge is how long caches may show a sale without asking again, in seconds.
	saleMaxAge = 1
)

func (a *API) time(c *gin.Context) {
	now := a.Catalog.Now()
	c.JSON(http.StatusOK, gin.H{"now": stamp(now), "unix_ms": now.UnixMilli()})
}

// listSales answers with the JSON of all live sales.
func (a *API) listSales() gin.HandlerFunc {
	return a.allSales(func(c *gin.Context, live []model.Offer) *prepared.Answer {
		views := make([]saleView, len(live))
		for i, o := range live {
			views[i] = a.saleView(o)
		}
		return salesJSON(c, gin.H{"sales": views})
	})
}

// salesJSON encodes a view that is the same for everybody. If that fails, it fails the request and returns nil.
func salesJSON(c *gin.Context, view any) *prepared.Answer {
	body, err := json.Marshal(view)
	if err != nil {
		middleware.Fail(c, err)
		return nil
	}
	return prepared.New(http.StatusOK, http.Header{
		"Content-Type": {jsonType}, "Cache-Control": {"public, max-age=" + strconv.Itoa(saleMaxAge)},
	}, body)
}

// getSale answers with a sale's JSON.
func (a *API) getSale() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		offer, ok := a.offer(c)
		if !ok {
			return
		}
		pages.send(c, offer, a.Catalog.Now(), func(state model.SaleState) *prepared.Answer {
			view := a.saleView(offer)
			view.State = state // the state for which send caches the page
			return salesJSON(c, view)
		})
	}
}
