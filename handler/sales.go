package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	// pathLifetime is how long a purchase path holds: for a rush and its repeats, not for a trade in paths.
	pathLifetime = 10 * time.Minute
	// heartbeat is how often an unchanged stock is sent, so that proxies keep the stream.
	heartbeat = 15 * time.Second
	// saleMaxAge is how long caches may show a sale without asking, in seconds.
	saleMaxAge = 1
)

func (a *API) time(c *gin.Context) {
	now := a.Catalog.Now()
	c.JSON(http.StatusOK, gin.H{"now": stamp(now), "unix_ms": now.UnixMilli()})
}

// listSales answers with the JSON of all live sales.
func (a *API) listSales() gin.HandlerFunc {
	return a.allSales(func(c *gin.Context, live []model.Offer) *page {
		views := make([]saleView, len(live))
		for i, o := range live {
			views[i] = a.saleView(o)
		}
		return salesJSON(c, gin.H{"sales": views})
	})
}

// salesJSON makes a page of what everyone may see, or fails the request and gives nil.
func salesJSON(c *gin.Context, view any) *page {
	body, err := json.Marshal(view)
	if err != nil {
		middleware.Fail(c, err)
		return nil
	}
	return newPage(http.Header{"Cache-Control": {"public, max-age=" + strconv.Itoa(saleMaxAge)}}, jsonType, body)
}

// offer finds the route's sale, or ends the request.
func (a *API) offer(c *gin.Context) (model.Offer, bool) {
	offer, live := a.Catalog.InMemory(c.Param("sale"))
	if live {
		return offer, true
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), requestLimit)
	defer cancel()
	offer, ok, err := a.Catalog.Sale(ctx, c.Param("sale"))
	switch {
	case err != nil:
		middleware.Fail(c, fmt.Errorf("%w: %w", model.ErrUnavailable, err))
	case !ok:
		refuse(c, model.NotFound)
	default:
		return offer, true
	}
	return model.Offer{}, false
}

// getSale answers with a sale's JSON.
func (a *API) getSale() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		offer, ok := a.offer(c)
		if !ok {
			return
		}
		pages.send(c, offer, a.Catalog.Now(), func(state model.SaleState) *page {
			view := a.saleView(offer)
			view.State = state // by the clock as pages read it
			return salesJSON(c, view)
		})
	}
}

func (a *API) issuePath(c *gin.Context) {
	offer, ok := a.offer(c)
	if !ok {
		return
	}
	now := a.Catalog.Now()
	if v := offer.Judge(now); v != model.Accepted {
		refuse(c, v)
		return
	}
	lifetime := min(pathLifetime, offer.EndsAt.Sub(now)+time.Second)
	path, expiresAt := a.Paths.Issue(middleware.IdentityOf(c).UserID, offer.ID, lifetime)
	c.JSON(http.StatusOK, gin.H{"path": path, "expires_at": stamp(expiresAt)})
}

// saleEvents streams a sale's stock as server-sent events: at once, on change and every heartbeat.
func (a *API) saleEvents(c *gin.Context) {
	if _, ok := a.offer(c); !ok {
		return
	}
	// The server's write timeout is for answers that end.
	if err := http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}); err != nil {
		middleware.Fail(c, err)
		return
	}
	c.Header("Content-Type", "text/event-stream")
	c.Header("Cache-Control", "no-cache")
	c.Header("X-Accel-Buffering", "no")
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	last := ""
	for {
		_, changed := a.Catalog.Live()
		offer, ok, err := a.Catalog.Sale(c.Request.Context(), c.Param("sale"))
		if err != nil || !ok {
			return // the client connects again, and is told why
		}
		state := offer.State(a.Catalog.Now(), offer.Stock.Available)
		if figures := fmt.Sprintf("%d %s", offer.Stock.Available, state); figures != last {
			last = figures
			if !a.sendStock(c, offer.Stock.Available, state) {
				return
			}
		}
		select {
		case <-changed:
		case <-ticker.C:
			last = ""
		case <-time.After(untilTurn(offer, a.Catalog.Now())):
		case <-c.Request.Context().Done():
			return
		case <-a.Closing:
			return
		}
	}
}

func (a *API) sendStock(c *gin.Context, available int64, state model.SaleState) bool {
	data, err := json.Marshal(gin.H{"available": available, "state": state, "now": stamp(a.Catalog.Now())})
	if err != nil {
		return false
	}
	if _, err := fmt.Fprintf(c.Writer, "event: stock\ndata: %s\n\n", data); err != nil {
		return false
	}
	c.Writer.Flush()
	return true
}

// untilTurn is how long the sale's state stays as it is by the clock alone.
func untilTurn(o model.Offer, now time.Time) time.Duration {
	for _, turn := range []time.Time{o.StartsAt, o.EndsAt} {
		if turn.After(now) {
			return turn.Sub(now)
		}
	}
	return heartbeat
}

func (a *API) shortLink(c *gin.Context) {
	id, err := a.Sales.ByCode(c.Request.Context(), c.Param("code"))
	switch {
	case err != nil:
		middleware.Fail(c, fmt.Errorf("%w: %w", model.ErrUnavailable, err))
	case id == "":
		refuse(c, model.NotFound)
	default:
		c.Redirect(http.StatusFound, "/sales/"+id)
	}
}
