package handler

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"flashsale/internal/prepared"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// home serves pages, and counts how often it makes one.
type home struct {
	made int
	page func(path string) (status int, text string)
}

func (h *home) Sales([]model.Offer) *prepared.Answer { return h.Page("/") }

func (h *home) Sale(o model.Offer) *prepared.Answer { return h.Page("/sales/" + o.ID) }

func (h *home) Campaign(sales []model.Offer) *prepared.Answer {
	return h.Page("/campaigns/" + sales[0].Campaign.ID)
}

func (h *home) Page(path string) *prepared.Answer {
	h.made++
	status, text := h.page(path)
	return prepared.Plain(status, http.Header{
		"Content-Type": {pageType}, "Cache-Control": {"no-cache"}, "Content-Security-Policy": {"default-src 'self'"},
	}, []byte(text))
}

const pageType = "text/html; charset=utf-8"

// A page is made once for all clients, and again as soon as the sale that it shows changes. A page about no sale is made once.
func TestPagesAreMadeOnChange(t *testing.T) {
	for path, changes := range map[string]int{"/": 6, "/sales/" + benchSale: 6, "/orders": 1} {
		s, now := newUpcoming(t)
		text := func() string {
			if path == "/orders" {
				return "orders"
			}
			return fmt.Sprintf("%s %q %d %s", path, s.offer.Title, s.offer.Stock.Available, s.offer.State(*now, s.offer.Stock.Available))
		}
		h := &home{page: func(asked string) (int, string) {
			check.Same(t, "path that Home is asked for", asked, path)
			return http.StatusOK, text()
		}}
		s.api.Pages.Home = h
		made := 0
		eachChange(s, now, func(name string) {
			name = path + " " + name
			for range 2 {
				w := s.get(path)
				check.Same(t, name+": status", w.Code, http.StatusOK)
				check.Same(t, name+": body", w.Body.String(), text())
				sameHeader(t, name, w.Header(), map[string]string{
					"Content-Type": pageType, "Cache-Control": "no-cache", "Content-Length": strconv.Itoa(len(text())),
					"Content-Security-Policy": "default-src 'self'",
				})
				known := s.get(path, "If-None-Match", w.Header().Get("ETag"))
				check.Same(t, name+": known", known.Code, http.StatusNotModified)
				check.Same(t, name+": body of a known page", known.Body.Len(), 0)
				sameHeader(t, name+": known", known.Header(), map[string]string{"Content-Security-Policy": "default-src 'self'"})
				s.refresh() // without a change
			}
			made = min(made+1, changes)
			check.Same(t, name+": pages made", h.made, made)
		})
	}
}

// Every page of buyers is made again, once, when the shop has changed.
func TestPagesAreMadeOnChangeOfTheShop(t *testing.T) {
	for _, path := range []string{"/", "/sales/" + benchSale, "/orders", "/login"} {
		s := newShop(t)
		h := &home{page: func(string) (int, string) { return http.StatusOK, s.face.Name }}
		s.api.Pages.Home = h
		for i, name := range []string{"Tea", "Tea & Co", "Tea"} {
			s.face = &model.Shop{Name: name}
			for range 2 {
				check.Same(t, path, s.get(path).Body.String(), name)
			}
			check.Same(t, path+": pages made", h.made, i+1)
		}
	}
	s := newShop(t)
	s.api.Pages.Home = &home{page: func(string) (int, string) { return http.StatusNotFound, s.face.Name }}
	for _, name := range []string{"Tea", "Tea & Co"} {
		s.face = &model.Shop{Name: name}
		check.Same(t, "an unknown page", s.get("/nothing", "Accept", "text/html").Body.String(), name)
	}
}

// The page of all sales follows a clock that is set back.
func TestPageOfSalesFollowsTheClockBack(t *testing.T) {
	s, now := newUpcoming(t)
	s.api.Pages.Home = &home{page: func(string) (int, string) {
		return http.StatusOK, string(s.offer.State(*now, s.offer.Stock.Available))
	}}
	for _, want := range []string{"open", "upcoming", "open"} {
		*now = s.offer.StartsAt
		if want == "upcoming" {
			*now = now.Add(-1)
		}
		check.Same(t, "page", s.get("/").Body.String(), want)
	}
}

// An answer that is prepared once is compressed once, for clients that accept that. An answer to one request is not.
func TestPreparedAnswersAreCompressed(t *testing.T) {
	s := newShop(t)
	s.offer.Description = strings.Repeat("Cast iron. ", 100)
	s.refresh()
	s.api.Pages.Home = &home{page: func(path string) (int, string) {
		if strings.HasPrefix(path, "/sales/B") || path == "/nothing" {
			return http.StatusNotFound, strings.Repeat("nothing here ", 1000)
		}
		return http.StatusOK, strings.Repeat("a page ", 1000)
	}}
	for path, compressed := range map[string]bool{
		"/": true, "/sales/" + benchSale: true, "/orders": true, "/console": true, "/api": true, "/openapi.yaml": true,
		"/nothing": true, "/api/v1/sales": true, "/api/v1/sales/" + benchSale: true,
		"/sales/BBBBBBBBBBBBBBBB": false, "/api/v1/time": false, "/healthz": false,
	} {
		plain, zipped := s.get(path, "Accept", "text/html"), s.get(path, "Accept", "text/html", "Accept-Encoding", "gzip, br")
		sameHeader(t, path+", plain", plain.Header(), map[string]string{"Content-Encoding": ""})
		if !compressed {
			sameHeader(t, path, zipped.Header(), map[string]string{"Content-Encoding": ""})
			continue
		}
		sameHeader(t, path, zipped.Header(), map[string]string{"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
		sameHeader(t, path+", plain", plain.Header(), map[string]string{"Vary": "Accept-Encoding"})
		check.Same(t, path, string(check.Must(io.ReadAll(check.Must(gzip.NewReader(zipped.Body))))), plain.Body.String())
	}
}

// A refusal of Home is passed on as it is, and is not kept for other clients.
func TestRefusedPagesAreNotKept(t *testing.T) {
	for _, path := range []string{"/", "/sales/" + benchSale, "/sales/BBBBBBBBBBBBBBBB", "/orders"} {
		s, h := newShop(t), &home{}
		s.api.Pages.Home = h
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusNotFound} {
			h.page = func(string) (int, string) { return status, "said by Home\n" }
			w := s.get(path, "If-None-Match", "*")
			check.Same(t, path+": status", w.Code, status)
			check.Same(t, path+": body", w.Body.String(), "said by Home\n")
			sameHeader(t, path, w.Header(), map[string]string{"ETag": ""})
		}
		h.page = func(string) (int, string) { return http.StatusOK, "a page" }
		check.Same(t, path+": a page", s.get(path, "If-None-Match", "*").Code, http.StatusNotModified)
	}
}

// A browser that asks for an unknown path gets Home's page for that, which is made once and does not depend on the path.
// Other clients get the problem, and so does a browser below /api.
func TestPagesThatAreNotThere(t *testing.T) {
	s := newShop(t)
	h := &home{page: func(path string) (int, string) {
		if strings.HasPrefix(path, "/console/sales/") {
			return http.StatusOK, "the console"
		}
		return http.StatusNotFound, "nothing here"
	}}
	s.api.Pages.Home = h
	s.handler()
	h.made = 0
	for _, tc := range []struct{ path, accept, want string }{
		{"/console/sales/a/b", "text/html", pageType},
		{"/nothing", "text/html,application/xhtml+xml,*/*;q=0.8", pageType},
		{"/nothing/at/all", "text/html", pageType},
		{"/nothing", "*/*", problemJS},
		{"/nothing", "", problemJS},
		{"/api/v1/nothing", "text/html", problemJS},
		{"/api/v1/sales/BBBBBBBBBBBBBBBB", "text/html", problemJS},
	} {
		w := s.get(tc.path, "Accept", tc.accept)
		check.Same(t, tc.path+": status", w.Code, http.StatusNotFound)
		sameHeader(t, tc.path+" for "+tc.accept, w.Header(), map[string]string{"Content-Type": tc.want})
		check.Same(t, tc.path+": the page", w.Body.String() == "nothing here", tc.want == pageType)
	}
	check.Same(t, "pages made", h.made, 1)
}
