package web

import (
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

// site answers requests for the pages, as package handler does, which also compresses and keeps the pages.
type site struct {
	*Pages
	sales []model.Offer
}

func (s site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page := s.Page(r.URL.Path)
	of := func(id func(model.Offer) string) (list []model.Offer) {
		for _, o := range s.sales {
			if id(o) == path.Base(r.URL.Path) {
				list = append(list, o)
			}
		}
		return list
	}
	switch path.Dir(r.URL.Path) {
	case "/":
		if r.URL.Path == "/" {
			page = s.Sales(s.sales)
		}
	case "/sales":
		for _, o := range of(func(o model.Offer) string { return o.ID }) {
			page = s.Sale(o)
		}
	case "/campaigns":
		if sales := of(func(o model.Offer) string { return o.Campaign.ID }); len(sales) > 0 {
			page = s.Campaign(sales)
		}
	}
	page.Send(w, r)
}

func teapot(change func(*model.Offer)) model.Offer {
	o := model.Offer{
		Sale: model.Sale{
			ID: "TEAPOT", Code: "TEA", Title: "Teapot", Description: "Cast iron.", PriceCents: 990, OriginalPriceCents: 4990, Currency: "CNY",
			LimitPerUser: 3, PayTimeoutSeconds: 600, StartsAt: noon.Add(-time.Hour), EndsAt: noon.Add(time.Hour), Status: model.SaleLive,
		},
		Stock: model.Stock{SaleID: "TEAPOT", Quota: 1000, Available: 1000},
	}
	change(&o)
	return o
}

// teapots are the sales of a campaign.
func teapots() []model.Offer {
	made := func(id, variant string, cents, available int64) model.Offer {
		return teapot(func(o *model.Offer) {
			o.ID, o.Title, o.Variant, o.PriceCents, o.Stock.Available = id, "Teapots · "+variant, variant, cents, available
			o.Campaign = model.Campaign{ID: "TEAPOTS", Title: "Teapots", Description: "For all.", LimitPerUser: 2}
		})
	}
	return []model.Offer{made("SMALL", "0.5 l", 990, 0), made("LARGE", "1 l", 1990, 700)}
}

func pagesOf(t *testing.T, sales ...model.Offer) site {
	t.Helper()
	return pagesOfShop(t, model.Shop{}, true, sales...)
}

func pagesOfShop(t *testing.T, shop model.Shop, engine bool, sales ...model.Offer) site {
	t.Helper()
	return site{check.Must(NewPages(now, check.Must(NewAssets()), func() string { return "https://shop.example" }, LogIn{Register: true}, func() *model.Shop { return &shop }, engine)), sales}
}

func now() time.Time { return noon }

// wantTexts checks which texts a page contains.
func wantTexts(t *testing.T, page string, want, wantNot []string) {
	t.Helper()
	for i, text := range slices.Concat(want, wantNot) {
		check.Same(t, "the page has "+text, strings.Contains(page, text), i < len(want))
	}
	if t.Failed() {
		t.Log(page)
	}
}

// The page of a sale is complete without scripts: it contains the title, the price and the state.
func TestSaleIsInThePage(t *testing.T) {
	type test struct {
		change  func(*model.Offer)
		want    []string
		wantNot []string
	}
	check.Each(t, map[string]test{
		"open": {
			func(*model.Offer) {},
			[]string{
				"<title>Teapot · Flashsale</title>", `<meta name="description" content="Cast iron.">`, `<meta property="og:title" content="Teapot">`,
				"<h1>Teapot</h1>", "¥9.90", "<s>¥49.90</s>", "On sale now", "正在抢购", "1,000 of 1,000 left", "Buy for ¥9.90", "<option>3</option>", `<p>Cast iron.</p>`,
				"At most 3 for each buyer", "Pay within 10 min", "https://shop.example/s/TEA", `aria-disabled="true"`, "Ends 2026-11-11 13:00 UTC",
			},
			[]string{"<option>4</option>", "curl", "og:image"},
		},
		"upcoming": {func(o *model.Offer) { o.StartsAt = noon.Add(time.Minute) }, []string{"Coming", "即将开始", "Starts 2026-11-11 12:01 UTC"}, []string{"Buy for"}},
		"sold out": {func(o *model.Offer) { o.Stock.Available = 0 }, []string{"Sold out", "已售罄", "0 of 1,000 left"}, []string{"Buy for"}},
		"paused":   {func(o *model.Offer) { o.Status = model.SalePaused }, []string{"Paused"}, []string{"Buy for"}},
		"over":     {func(o *model.Offer) { o.EndsAt = noon }, []string{"Over", "Ended 2026-11-11 12:00 UTC"}, []string{"Buy for"}},
		"closed":   {func(o *model.Offer) { o.Status = model.SaleClosed }, []string{"Over"}, []string{"Buy for", "Ended"}},
		"markup": {
			func(o *model.Offer) {
				o.Title, o.Description = `</title><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`
				o.ImageURL = `https://pictures.example/a"onload="alert(1)`
			},
			[]string{"&lt;script&gt;", "&lt;img src=x", `content="https://pictures.example/a&#34;onload=&#34;alert(1)"`},
			[]string{"<script>alert", "<img src=x", `"onload="`},
		},
		"a script as picture": {func(o *model.Offer) { o.ImageURL = "javascript:alert(1)" }, nil, []string{"javascript:"}},
		"a picture":           {func(o *model.Offer) { o.ImageURL = "https://pictures.example/a.jpg" }, []string{`src="https://pictures.example/a.jpg"`, `<meta property="og:image" content="https://pictures.example/a.jpg">`}, nil},
		"no picture":          {func(*model.Offer) {}, []string{`src="/assets/picture.`}, nil},
		"no description":      {func(o *model.Offer) { o.Description = "" }, []string{`<meta name="description" content="Sells`}, []string{"About it"}},
		"one for each":        {func(o *model.Offer) { o.LimitPerUser = 1 }, []string{`id="choice" hidden`}, nil},
		"many for each":       {func(o *model.Offer) { o.LimitPerUser = 10_000 }, []string{"<option>99</option>", "At most 10,000"}, []string{"<option>100</option>"}},
		"no better price":     {func(o *model.Offer) { o.OriginalPriceCents = 990 }, nil, []string{"<s>"}},
		"seconds to pay":      {func(o *model.Offer) { o.PayTimeoutSeconds = 90 }, []string{"Pay within 90 s"}, nil},
		"hours to pay":        {func(o *model.Offer) { o.PayTimeoutSeconds = 7200 }, []string{"Pay within 2 h"}, nil},
	}, func(t *testing.T, tc test) {
		p := pagesOf(t, teapot(tc.change))
		w := ask(t, p, "/sales/TEAPOT")
		wantHeader(t, w, http.StatusOK, map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Cache-Control": "public, max-age=1",
		})
		wantTexts(t, w.Body.String(), tc.want, tc.wantNot)
	})
}

// The page of a campaign has all its sales, of which those that can be bought can be chosen, and links to it lead from the
// pages of its sales.
func TestCampaignIsInThePage(t *testing.T) {
	p := pagesOf(t, teapots()...)
	w := ask(t, p, "/campaigns/TEAPOTS")
	wantHeader(t, w, http.StatusOK, map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "public, max-age=1"})
	wantTexts(t, w.Body.String(), []string{
		"<title>Teapots · Flashsale</title>", `<meta name="description" content="For all.">`, "<h1>Teapots</h1>", "<p>For all.</p>",
		"<strong>¥9.90 – ¥19.90</strong>", "<s hidden>", "On sale now", "700 of 2,000 left", "At most 2 in all for each buyer", "<option>2</option>",
		`value="SMALL" disabled`, "<strong>0.5 l</strong>", `value="LARGE">`, "<strong>1 l</strong>", "700 left", "Choose one first",
		"https://shop.example/campaigns/TEAPOTS",
	}, []string{"<option>3</option>", "Buy for", `value="LARGE" disabled`})
	wantTexts(t, ask(t, p, "/sales/LARGE").Body.String(), []string{`href="/campaigns/TEAPOTS#LARGE"`}, nil)
	wantTexts(t, ask(t, p, "/").Body.String(), []string{
		`data-id="TEAPOTS"`, `href="/campaigns/TEAPOTS"`, "¥9.90 – ¥19.90", "700 of 2,000 left", "2 to choose from",
	}, []string{`href="/sales/LARGE"`})
}

// Open sales come first.
func TestSalesStandInTurn(t *testing.T) {
	made := func(id string, change func(*model.Offer)) model.Offer {
		o := teapot(change)
		o.ID = id
		return o
	}
	p := pagesOf(t,
		made("OVER", func(o *model.Offer) { o.EndsAt = noon }),
		made("GONE", func(o *model.Offer) { o.Stock.Available = 0 }),
		made("LATER", func(o *model.Offer) { o.StartsAt = noon.Add(time.Hour) }),
		made("OPEN", func(*model.Offer) {}),
		made("PAUSED", func(o *model.Offer) { o.Status = model.SalePaused }),
	)
	var turn []string
	for _, match := range regexp.MustCompile(`data-id="([A-Z]+)"`).FindAllStringSubmatch(ask(t, p, "/").Body.String(), -1) {
		turn = append(turn, match[1])
	}
	check.Same(t, "order of the sales", turn, []string{"OPEN", "PAUSED", "LATER", "GONE", "OVER"})
}

func TestNoSales(t *testing.T) {
	p := pagesOf(t)
	wantTexts(t, ask(t, p, "/").Body.String(), []string{`<p class="notice" id="none">`}, nil)
}

// Pages that are missing or can't be shown have the look of the others, show no details, and are not cached.
func TestPagesThatCantBeShown(t *testing.T) {
	p := pagesOf(t, teapot(func(*model.Offer) {}))
	for path, tc := range map[string]struct {
		status int
		want   string
	}{
		"/sales/NONE":   {http.StatusNotFound, "There is nothing here"},
		"/elsewhere":    {http.StatusNotFound, "There is nothing here"},
		"/campaigns/NO": {http.StatusNotFound, "There is nothing here"},
		"/unavailable":  {http.StatusServiceUnavailable, "One moment, please"},
	} {
		w := ask(t, p, path)
		wantHeader(t, w, tc.status, map[string]string{"Cache-Control": "no-store"})
		wantTexts(t, w.Body.String(), []string{tc.want, "/assets/base."}, nil)
	}
}

// Where buyers can't register, the dialog offers only the log-in: at the issuer, or in the console also by a password.
func TestRegistrationIsClosed(t *testing.T) {
	p := pagesOf(t, teapot(func(*model.Offer) {}))
	closed := site{check.Must(NewPages(now, check.Must(NewAssets()), p.publicURL, LogIn{Issuer: true}, p.shop, true)), p.sales}
	const noSwitch, issuer, noForm = `id="account-switch" hidden`, `id="account-issuer"`, `data-passwords="no"`
	wantTexts(t, ask(t, closed, "/").Body.String(), []string{noSwitch, issuer, noForm}, nil)
	wantTexts(t, ask(t, closed, "/console").Body.String(), []string{noSwitch, issuer}, []string{noForm})
	wantTexts(t, ask(t, p, "/").Body.String(), []string{`id="account-switch"`}, []string{noSwitch, issuer, noForm})
}

// A page conforms to its policy: it has no inline script, style or handler, and all its assets are served. The pages of
// the console contain nothing of a sale, and the storefront loads no asset of the console.
func TestPagesKeepTheirPolicy(t *testing.T) {
	p := pagesOfShop(t, wholeShop, true, append(teapots(), teapot(func(*model.Offer) {}))...)
	assets, isConsoles := check.Must(NewAssets()), consoleFiles()
	inline := regexp.MustCompile(`(?i)<style|<script(?:[^>]*)>[^<]|\son[a-z]+=|\sstyle=|javascript:|ZgotmplZ|<no value>`)
	linked := regexp.MustCompile(`"(/assets/([a-z0-9-]+)\.[0-9a-f]{12}(\.[a-z]+))"`)
	for path, isConsole := range map[string]bool{
		"/": false, "/sales/TEAPOT": false, "/campaigns/TEAPOTS": false, "/orders": false, "/login": false, "/sales/NONE": false,
		"/console": true, "/console/sales/TEAPOT": true, "/console/campaigns/TEAPOTS": true, "/console/orders": true, "/console/payments": true, "/console/endpoints": true,
		"/console/staff": true, "/console/shop": true, "/console/lab": true,
	} {
		t.Run(path, func(t *testing.T) {
			w := ask(t, p, path)
			body := w.Body.String()
			wantTexts(t, w.Header().Get("Content-Security-Policy"), []string{
				"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self'",
				"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'",
			}, nil)
			wantTexts(t, body, []string{`<html lang="en" data-languages="en zh"`}, nil)
			check.Same(t, "inline code", inline.FindString(body), "")
			links, ofConsole := linked.FindAllStringSubmatch(body, -1), 0
			for _, match := range links {
				wantHeader(t, ask(t, assets, match[1]), http.StatusOK, nil)
				if isConsoles(match[2] + match[3]) {
					ofConsole++
				}
			}
			if len(links) < 5 || len(links) != strings.Count(body, `"/assets/`) {
				t.Errorf("%d of %d assets have a hash", len(links), strings.Count(body, `"/assets/`))
			}
			if isConsole {
				wantHeader(t, w, http.StatusOK, nil)
				wantTexts(t, body, []string{`content="noindex"`}, []string{"Teapot"})
			}
			if isConsole && ofConsole < 4 || !isConsole && ofConsole > 0 {
				t.Errorf("%d assets of the console", ofConsole)
			}
			check.Same(t, "charts are loaded", strings.Contains(body, "/assets/uplot."), strings.HasPrefix(path, "/console/sales/") || strings.HasPrefix(path, "/console/campaigns/"))
		})
	}
}

// wholeShop is a shop with all fields.
var wholeShop = model.Shop{
	Name: "Tea <& Co>", LogoURL: "https://pictures.example/logo.png", Color: "#ffcc00", HomeURL: "https://tea.example", TermsURL: "https://tea.example/terms",
	PrivacyURL: "/privacy", ImprintURL: "https://tea.example/imprint", SmallPrint: "Prices include <VAT>.",
}

// Buyers' pages show the shop's own name, logo, colour, links and small print in place of the engine's. The console shows the
// engine's.
func TestShopIsInThePages(t *testing.T) {
	p := pagesOfShop(t, wholeShop, true, teapot(func(*model.Offer) {}))
	engine := []string{"Flashsale", "Sells a fixed quota", "For the operator", `href="/api"`, "mark."}
	own := []string{
		`<span>Tea &lt;&amp; Co&gt;</span>`, `<meta property="og:site_name" content="Tea &lt;&amp; Co&gt;">`, `<img src="https://pictures.example/logo.png"`,
		`<link rel="icon" href="https://pictures.example/logo.png">`, `<link rel="stylesheet" href="/assets/shop-ffcc00.`,
		`<a href="https://tea.example">`, `<a href="https://tea.example/terms">`, `<a href="/privacy">`, `<a href="https://tea.example/imprint">`,
		"Imprint", "经营者信息", "<p>Prices include &lt;VAT&gt;.</p>",
	}
	for path, title := range map[string]string{"/": "", "/sales/TEAPOT": "Teapot · ", "/orders": "Orders · ", "/login": "Log in · ", "/sales/NONE": ""} {
		wantTexts(t, ask(t, p, path).Body.String(), append(own, "<title>"+title+"Tea &lt;&amp; Co&gt;</title>"), engine)
	}
	wantTexts(t, ask(t, p, "/console").Body.String(), []string{"<title>Console · Flashsale</title>"}, own)
}

// A shop without a name shows what the engine is, and links to the console and the API, only with embedded stores.
func TestEngineIsInThePages(t *testing.T) {
	engine := []string{"Sells a fixed quota", "绝不多卖一件", "For the operator", `href="/api"`}
	for embedded, want := range map[bool][2][]string{true: {engine, nil}, false: {nil, engine}} {
		p := pagesOfShop(t, model.Shop{}, embedded, teapot(func(o *model.Offer) { o.Description = "" }))
		for _, path := range []string{"/", "/sales/TEAPOT", "/orders"} {
			body := ask(t, p, path).Body.String()
			wantTexts(t, body, append([]string{"<span>Flashsale</span>", `src="/assets/mark.`}, want[0]...), append([]string{"/assets/shop-"}, want[1]...))
		}
	}
}

// Head, for pages outside of this package, has the style, the icon, and the script that chooses the language before the
// first paint.
func TestHead(t *testing.T) {
	p := pagesOf(t)
	wantTexts(t, string(p.Head()), []string{
		`<link rel="stylesheet" href="/assets/base.`, `<script src="/assets/lang.`, `<link rel="icon"`,
	}, nil)
}

// Crawlers may read the pages of sales and nothing else. The icon is that of the pages.
func TestFiles(t *testing.T) {
	p := pagesOf(t)
	for path, contentType := range map[string]string{"/robots.txt": "text/plain; charset=utf-8", "/favicon.ico": "image/svg+xml"} {
		want := map[string]string{"Content-Type": contentType, "Cache-Control": "public, max-age=86400"}
		wantHeader(t, ask(t, p, path), http.StatusOK, want)
	}
	icon := regexp.MustCompile(`<link rel="icon" href="([^"]+)"`).FindStringSubmatch(string(p.Head()))
	check.Same(t, "icon", ask(t, check.Must(NewAssets()), icon[1]).Body.String(), ask(t, p, "/favicon.ico").Body.String())
	robots := ask(t, p, "/robots.txt").Body.String()
	for path, open := range map[string]bool{
		"/": true, "/sales/TEAPOT": true, "/campaigns/TEAPOTS": true, "/s/TEA": true, "/assets/base.css": true,
		"/api": false, "/api/v1/sales": false, "/openapi.yaml": false, "/console": false, "/console/lab": false, "/lab/reports/A": false, "/orders": false, "/pay/A": false,
	} {
		allowed := true
		for line := range strings.Lines(robots) {
			if prefix, ok := strings.CutPrefix(strings.TrimSpace(line), "Disallow: "); ok && strings.HasPrefix(path, prefix) {
				allowed = false
			}
		}
		check.Same(t, "crawlers may read "+path, allowed, open)
	}
}
