package handler

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/prepared"
)

// maxSalePages bounds the sales whose JSON, and those whose page for people, is kept: some kilobytes each.
const maxSalePages = 4096

// salePages keeps a page of each sale, made once for each change of what it shows.
type salePages struct {
	kept *otter.Cache[string, *salePage]
}

// salePage is a page, and of what it was made.
type salePage struct {
	*prepared.Answer
	offer model.Offer
	state model.SaleState
}

func newSalePages() salePages {
	return salePages{otter.Must(&otter.Options[string, *salePage]{MaximumSize: maxSalePages})}
}

// send answers with the sale's page as it is now. render makes one, or answers itself and gives nil.
func (s salePages) send(c *gin.Context, offer model.Offer, now time.Time, render func(model.SaleState) *prepared.Answer) {
	state := offer.State(now, offer.Stock.Available)
	kept, ok := s.kept.GetIfPresent(offer.ID)
	if !ok || kept.state != state || kept.offer != offer {
		made := render(state)
		if made == nil {
			return
		}
		kept = &salePage{made, offer, state}
		s.kept.Set(offer.ID, kept)
	}
	kept.Send(c.Writer, c.Request)
}

// showSale answers with a sale's page for people. Home looks at the sale once more, so that a page may show what is
// newer than that under which it is kept, and never what is older.
func (a *API) showSale() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		offer, live := a.Catalog.InMemory(c.Param("sale"))
		if !live {
			a.show(c)
			return
		}
		pages.send(c, offer, a.Catalog.Now(), func(model.SaleState) *prepared.Answer { return a.render(c) })
	}
}

// allSales answers with a page of all live sales, made once for each change of any of them.
func (a *API) allSales(render func(c *gin.Context, live []model.Offer) *prepared.Answer) gin.HandlerFunc {
	var kept atomic.Pointer[salesPage]
	return func(c *gin.Context) {
		now := a.Catalog.Now()
		last := kept.Load()
		if last == nil || !last.holds(now) {
			live, changed := a.Catalog.Live() // before render looks at them: a change in between makes the page anew
			same := heartbeat
			for _, offer := range live {
				same = min(same, untilTurn(offer, now))
			}
			last = &salesPage{changed: changed, from: now, until: now.Add(same)}
			if last.Answer = render(c, live); last.Answer == nil {
				return
			}
			kept.Store(last)
		}
		last.Send(c.Writer, c.Request)
	}
}

// showSales answers with the page of all sales for people.
func (a *API) showSales() gin.HandlerFunc {
	return a.allSales(func(c *gin.Context, _ []model.Offer) *prepared.Answer { return a.render(c) })
}

// showAlways answers with a page for people that never changes.
func (a *API) showAlways() gin.HandlerFunc {
	var kept atomic.Pointer[prepared.Answer]
	return func(c *gin.Context) {
		if kept.Load() == nil {
			made := a.render(c)
			if made == nil {
				return
			}
			kept.Store(made)
		}
		kept.Load().Send(c.Writer, c.Request)
	}
}

// salesPage is a page that holds until a sale changes, by the catalog or by the clock.
type salesPage struct {
	*prepared.Answer
	changed     <-chan struct{}
	from, until time.Time
}

func (p *salesPage) holds(now time.Time) bool {
	select {
	case <-p.changed:
		return false
	default:
		return !now.Before(p.from) && now.Before(p.until)
	}
}

// show answers with what Home says, this once.
func (a *API) show(c *gin.Context) {
	said := a.hear(c.Request)
	prepared.Plain(said.status, said.header, said.body.Bytes()).Send(c.Writer, c.Request)
}

// render makes a page of what Home says. If that isn't one to keep, it answers with it and gives nil.
func (a *API) render(c *gin.Context) *prepared.Answer {
	said := a.hear(c.Request)
	if said.status != http.StatusOK {
		prepared.Plain(said.status, said.header, said.body.Bytes()).Send(c.Writer, c.Request)
		return nil
	}
	return prepared.New(said.status, said.header, said.body.Bytes())
}

// missing answers a browser that came for a page which isn't there with Home's page about that, which is the same for
// all. Whoever asks for anything but HTML, or below the API, gets the problem.
func (a *API) missing() gin.HandlerFunc {
	var once sync.Once
	var page *prepared.Answer
	return func(c *gin.Context) {
		c.Next()
		refusal, refused := middleware.RefusalOf(c)
		isPage := strings.Contains(headerOf(c, "Accept"), "text/html") && !strings.HasPrefix(c.Request.URL.Path, "/api/")
		if !refused || refusal.Verdict != model.NotFound || !isPage {
			return
		}
		once.Do(func() {
			said := a.hear(c.Request)
			page = prepared.New(said.status, said.header, said.body.Bytes())
		})
		page.Send(c.Writer, c.Request)
	}
}

// hear asks Home.
func (a *API) hear(r *http.Request) *heard {
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	said := &heard{header: http.Header{}, status: http.StatusOK}
	a.Home.ServeHTTP(said, r.WithContext(ctx))
	return said
}

// heard is an answer that isn't sent yet.
type heard struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heard) Header() http.Header            { return h.header }
func (h *heard) WriteHeader(status int)         { h.status = status }
func (h *heard) Write(part []byte) (int, error) { return h.body.Write(part) }
