package handler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"

	"flashsale/middleware"
	"flashsale/model"
)

// maxSalePages bounds the sales whose JSON, and those whose page for people, is kept: some kilobytes each.
const maxSalePages = 4096

// page is an answer that is the same for all who ask, ready to be sent. They share the values of its headers:
// whoever sets or adds to a header gets a slice of its own.
type page struct {
	headers             []header // of the answer and of a 304 alike
	etag                string
	contentType, length []string
	body                []byte
}

type header struct {
	name   string
	values []string
}

// newPage makes a page with these headers and a tag.
func newPage(headers http.Header, contentType string, body []byte) *page {
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	p := &page{
		headers: []header{{"Etag", []string{etag}}}, etag: etag,
		contentType: []string{contentType}, length: []string{strconv.Itoa(len(body))}, body: body,
	}
	for name, values := range headers {
		p.headers = append(p.headers, header{name, values})
	}
	return p
}

// send answers with the page, or 304 if the client has it.
func (p *page) send(c *gin.Context) {
	answer := c.Writer.Header()
	for _, h := range p.headers {
		answer[h.name] = h.values
	}
	if known := headerOf(c, "If-None-Match"); known != "" && matches(known, p.etag) {
		c.Status(http.StatusNotModified)
		return
	}
	answer["Content-Type"], answer["Content-Length"] = p.contentType, p.length
	_, _ = c.Writer.Write(p.body) // where writing fails the client is gone
}

// matches reports whether an If-None-Match header names the tag, by weak comparison (RFC 9110, 13.1.2).
func matches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == etag {
			return true
		}
	}
	return false
}

// salePages keeps a page of each sale, made once for each change of what it shows.
type salePages struct {
	kept *otter.Cache[string, *salePage]
}

// salePage is a page, and of what it was made.
type salePage struct {
	*page
	offer model.Offer
	state model.SaleState
}

func newSalePages() salePages {
	return salePages{otter.Must(&otter.Options[string, *salePage]{MaximumSize: maxSalePages})}
}

// send answers with the sale's page as it is now. render makes one, or answers itself and gives nil.
func (s salePages) send(c *gin.Context, offer model.Offer, now time.Time, render func(model.SaleState) *page) {
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
	kept.send(c)
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
		pages.send(c, offer, a.Catalog.Now(), func(model.SaleState) *page { return a.render(c) })
	}
}

// allSales answers with a page of all live sales, made once for each change of any of them.
func (a *API) allSales(render func(c *gin.Context, live []model.Offer) *page) gin.HandlerFunc {
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
			if last.page = render(c, live); last.page == nil {
				return
			}
			kept.Store(last)
		}
		last.send(c)
	}
}

// showSales answers with the page of all sales for people.
func (a *API) showSales() gin.HandlerFunc {
	return a.allSales(func(c *gin.Context, _ []model.Offer) *page { return a.render(c) })
}

// showAlways answers with a page for people that never changes.
func (a *API) showAlways() gin.HandlerFunc {
	var kept atomic.Pointer[page]
	return func(c *gin.Context) {
		if kept.Load() == nil {
			made := a.render(c)
			if made == nil {
				return
			}
			kept.Store(made)
		}
		kept.Load().send(c)
	}
}

// salesPage is a page that holds until a sale changes, by the catalog or by the clock.
type salesPage struct {
	*page
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

// show answers with what Home says.
func (a *API) show(c *gin.Context) {
	if page := a.render(c); page != nil {
		page.send(c)
	}
}

// render makes a page of what Home says. If that isn't one to keep, it answers with it and gives nil.
func (a *API) render(c *gin.Context) *page {
	said := a.hear(c.Request)
	if said.status != http.StatusOK {
		said.send(c)
		return nil
	}
	contentType := said.header.Get("Content-Type")
	said.header.Del("Content-Type")
	return newPage(said.header, contentType, said.body.Bytes())
}

// missing answers a browser that came for a page which isn't there with Home's page about that, which is the same for
// all. Whoever asks for anything but HTML, or below the API, gets the problem.
func (a *API) missing() gin.HandlerFunc {
	var once sync.Once
	var said *heard
	return func(c *gin.Context) {
		c.Next()
		refusal, refused := middleware.RefusalOf(c)
		isPage := strings.Contains(headerOf(c, "Accept"), "text/html") && !strings.HasPrefix(c.Request.URL.Path, "/api/")
		if !refused || refusal.Verdict != model.NotFound || !isPage {
			return
		}
		once.Do(func() { said = a.hear(c.Request) })
		said.send(c)
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

func (h *heard) send(c *gin.Context) {
	maps.Copy(c.Writer.Header(), h.header)
	c.Data(h.status, h.header.Get("Content-Type"), h.body.Bytes())
}

func (h *heard) Header() http.Header            { return h.header }
func (h *heard) WriteHeader(status int)         { h.status = status }
func (h *heard) Write(part []byte) (int, error) { return h.body.Write(part) }
