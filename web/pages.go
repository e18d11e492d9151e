// Package web holds the HTML pages: their templates, and the style, scripts, words and pictures that browsers load
// once. A page is the same for everybody. The scripts in the browser deal with who is logged in and which language is
// shown. See docs/pages.md.
package web

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"flashsale/internal/prepared"
	"flashsale/model"
)

//go:embed pages
var pageFiles embed.FS

const (
	// policy lets a page load scripts, styles and data of this server only, and pictures also from elsewhere. It allows no inline
	// script or style.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https: data:; connect-src 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
	// pageMaxAge lets a CDN answer for a second without asking the server. If a page is outdated by then, its scripts correct it.
	pageMaxAge = "public, max-age=1"
	// apiPolicy lets the page /api load its style and picture. No script may run, since the page has none.
	apiPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	pageType  = "text/html; charset=utf-8"
	// mostChoices bounds the list of quantities.
	mostChoices = 99
)

// Catalog provides the sales that the pages show, as service.Catalog does.
type Catalog interface {
	Live() (list []model.Offer, changed <-chan struct{})
	Sale(ctx context.Context, id string) (offer model.Offer, ok bool, err error)
	Campaign(ctx context.Context, id string) ([]model.Offer, error)
	Now() time.Time
}

// Pages has the sales (/), one sale (/sales/ID), a campaign (/campaigns/ID), a buyer's orders (/orders), the return from the
// shop's issuer (/login), the operator's console (/console and paths below it) and the description of the API (/api,
// /openapi.yaml, /openapi.json). It also has the files that browsers and crawlers request by themselves (/favicon.ico,
// /robots.txt).
type Pages struct {
	catalog   Catalog
	publicURL func() string
	templates map[string]*template.Template
	head      template.HTML
	files     map[string]*prepared.Answer
}

// page is the data of a template.
type page struct {
	Name        string // of a fixed page's template
	Title       string
	Description string
	Image       string // the URL of the sale's picture, for previews of links to the page; empty unless it begins with http
	Script      string // the module that runs the page; empty: page.js
	Console     string // which page of the console this is; empty: none of them
	Styles      []string
	Sales       []offer
	Sale        offer
}

// offer is a sale as a template sees it, or a campaign as a whole.
type offer struct {
	model.Offer
	State     model.SaleState
	ShortURL  string
	Sales     []offer // of the campaign; empty for a sale
	MostCents int64   // the highest price of the campaign's sales
}

// LogIn says how people log in, besides the staff's passwords in the console.
type LogIn struct {
	Register bool // buyers can make accounts here
	Issuer   bool // people can log in at the shop's issuer
}

// fixed are the pages that show nothing of the catalog, by their paths. A path that ends in a slash stands for all paths below
// it: these share one page, whose script reads the id from the path.
var fixed = map[string]page{
	"/orders":             {Name: "orders", Title: "Orders"},
	"/login":              {Name: "login", Title: "Log in"},
	"/api":                {Name: "api"},
	"/console":            {Name: "console", Title: "Console", Console: "sales"},
	"/console/sales/":     {Name: "console-sale", Title: "Console", Console: "sale", Styles: []string{"uplot.css"}},
	"/console/campaigns/": {Name: "console-campaign", Title: "Console", Console: "campaign"},
	"/console/payments":   {Name: "console-payments", Title: "Payments", Console: "payments"},
	"/console/endpoints":  {Name: "console-endpoints", Title: "Endpoints", Console: "endpoints"},
	"/console/staff":      {Name: "console-staff", Title: "Staff", Console: "staff"},
	"/console/lab":        {Name: "console-lab", Title: "Lab", Console: "lab"},
}

// NewPages makes the pages of the sales in a catalog. publicURL returns the URL under which buyers reach the server. An error
// means that a template or the words are wrong.
func NewPages(catalog Catalog, assets *Assets, publicURL func() string, logIn LogIn) (*Pages, error) {
	all, err := readWords(shopWords, consoleWords)
	if err != nil {
		return nil, err
	}
	layout, err := template.New("layout.html").Funcs(template.FuncMap{
		"asset":     assets.URL,
		"base":      publicURL,
		"logIn":     func() LogIn { return logIn },
		"needs":     func(name string) []string { return assets.needs[name] },
		"say":       all.say,
		"word":      func(language, key string) string { return all[language][key] },
		"languages": all.languages,
		"money":     money,
		"number":    number,
	}).ParseFS(pageFiles, "pages/layout.html", "pages/console-parts.html", "pages/sale-parts.html")
	if err != nil {
		return nil, err
	}
	p := &Pages{catalog: catalog, publicURL: publicURL, templates: map[string]*template.Template{}, files: filesOf(assets)}
	for _, name := range []string{"sales", "sale", "campaign", "orders", "login", "missing", "unavailable", "api", "console", "console-sale", "console-campaign", "console-payments", "console-endpoints", "console-staff", "console-lab"} {
		clone, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		if p.templates[name], err = clone.ParseFS(pageFiles, "pages/"+name+".html"); err != nil {
			return nil, err
		}
	}
	var head strings.Builder
	if err := layout.ExecuteTemplate(&head, "look", nil); err != nil {
		return nil, err
	}
	p.head = template.HTML(head.String()) //nolint:gosec // a template's own output
	return p, nil
}

// Head returns what other pages of this server need in their head element to look alike: the style, and the script that
// chooses the language.
func (p *Pages) Head() template.HTML { return p.head }

// Page answers a request for a path with the page or file there. For an unknown path it is a page with status 404. If the
// catalog can't be read, a page with status 503 says so.
func (p *Pages) Page(ctx context.Context, of string) *prepared.Answer {
	folder, id := path.Split(of)
	show, isFixed := fixed[of]
	if !isFixed {
		show, isFixed = fixed[folder]
	}
	file, isFile := p.files[of]
	switch {
	case isFile:
		return file
	case isFixed:
		show.Script = show.Name + ".js"
		return p.make(http.StatusOK, show.Name, show)
	case folder == "/sales/":
		return p.sale(ctx, id)
	case folder == "/campaigns/":
		return p.campaign(ctx, id)
	case of == "/":
		return p.sales()
	}
	return p.make(http.StatusNotFound, "missing", page{})
}

func (p *Pages) sale(ctx context.Context, id string) *prepared.Answer {
	found, ok, err := p.catalog.Sale(ctx, id)
	switch {
	case err != nil:
		return p.make(http.StatusServiceUnavailable, "unavailable", page{})
	case !ok:
		return p.make(http.StatusNotFound, "missing", page{})
	case found.Campaign.ID != "": // the buyer sees the sale beside the others of the campaign
		url := "/campaigns/" + found.Campaign.ID + "#" + found.ID
		return prepared.Plain(http.StatusFound, http.Header{"Content-Type": {pageType}, "Location": {url}},
			fmt.Appendf(nil, "<a href=\"%s\">Found</a>.\n\n", template.HTMLEscapeString(url)))
	}
	script := "sale.js"
	if found.HasLine() {
		script = "line.js"
	}
	return p.make(http.StatusOK, "sale", pageOf(p.view(found), script))
}

func (p *Pages) campaign(ctx context.Context, id string) *prepared.Answer {
	sales, err := p.catalog.Campaign(ctx, id)
	switch {
	case err != nil:
		return p.make(http.StatusServiceUnavailable, "unavailable", page{})
	case len(sales) == 0:
		return p.make(http.StatusNotFound, "missing", page{})
	}
	script := "campaign.js"
	if sales[0].HasLine() {
		script = "campaign-line.js"
	}
	return p.make(http.StatusOK, "campaign", pageOf(p.whole(sales), script))
}

// pageOf returns the page of a sale or of a campaign.
func pageOf(o offer, script string) page {
	show := page{Title: o.Title, Description: o.Description, Script: script, Sale: o}
	if strings.HasPrefix(o.ImageURL, "http") {
		show.Image = o.ImageURL
	}
	return show
}

// turn is the order of the states in the list of sales, the most interesting for buyers first. Sales of one state stay
// in the order of their start.
var turn = map[model.SaleState]int{
	model.StateOpen: 0, model.StatePaused: 0, model.StateUpcoming: 1, model.StateSoldOut: 2, model.StateEnded: 3,
}

func (p *Pages) sales() *prepared.Answer {
	live, _ := p.catalog.Live()
	show := page{Script: "sales.js"}
	campaigns := map[string][]model.Offer{}
	for _, o := range live {
		campaigns[o.Campaign.ID] = append(campaigns[o.Campaign.ID], o)
	}
	for _, o := range live {
		switch sales := campaigns[o.Campaign.ID]; {
		case o.Campaign.ID == "":
			show.Sales = append(show.Sales, p.view(o))
		case sales[0].ID == o.ID: // the campaign has the place of the first of its sales
			show.Sales = append(show.Sales, p.whole(sales))
		}
	}
	slices.SortStableFunc(show.Sales, func(a, b offer) int { return cmp.Compare(turn[a.State], turn[b.State]) })
	return p.make(http.StatusOK, "sales", show)
}

func (p *Pages) view(o model.Offer) offer {
	return offer{Offer: o, State: o.State(p.catalog.Now(), o.Stock.Free()), ShortURL: p.publicURL() + "/s/" + o.Code, MostCents: o.PriceCents}
}

// whole returns a campaign as one offer, which has the texts and the limit of the campaign, the units of all its sales, and
// their lowest and highest price. The sales must not be empty.
func (p *Pages) whole(sales []model.Offer) offer {
	w := p.view(sales[0])
	campaign := w.Campaign
	w.ID, w.Title, w.Description, w.ImageURL, w.LimitPerUser = campaign.ID, campaign.Title, campaign.Description, campaign.ImageURL, campaign.LimitPerUser
	w.State, w.ShortURL, w.Stock = model.CampaignState(sales, p.catalog.Now()), p.publicURL()+w.Path(), model.Stock{}
	for _, o := range sales {
		one := p.view(o)
		w.Sales = append(w.Sales, one)
		w.Stock.Available += o.Stock.Free()
		w.Stock.Quota += o.Stock.Quota
		if o.OriginalPriceCents != w.OriginalPriceCents || o.PriceCents != sales[0].PriceCents {
			w.OriginalPriceCents = 0
		}
		w.PriceCents, w.MostCents = min(w.PriceCents, o.PriceCents), max(w.MostCents, o.PriceCents)
	}
	return w
}

// Path returns the path of the page.
func (o offer) Path() string {
	if o.Campaign.ID == o.ID {
		return "/campaigns/" + o.ID
	}
	return "/sales/" + o.ID
}

// Price returns the price, or the lowest and the highest price of a campaign.
func (o offer) Price() string {
	if o.MostCents > o.PriceCents {
		return money(o.PriceCents, o.Currency) + " – " + money(o.MostCents, o.Currency)
	}
	return money(o.PriceCents, o.Currency)
}

// Choosable reports whether a buyer of the campaign may choose the sale.
func (o offer) Choosable() bool { return o.State != model.StateSoldOut && o.State != model.StateEnded }

// InLine reports whether units go only to buyers who are called or drawn.
func (o offer) InLine() bool { return o.Stock.Lined == model.InLine }

// Kind returns what buyers of a sale that is in line enter: line, draw or list.
func (o offer) Kind() string {
	if o.Mode == model.ModeRush {
		return "list"
	}
	return string(o.Mode)
}

// Choices returns the quantities that a buyer may choose.
func (o offer) Choices() []int {
	list := make([]int, min(o.LimitPerUser, mostChoices))
	for i := range list {
		list[i] = i + 1
	}
	return list
}

// Key returns the key of the words for the sale's state.
func (o offer) Key() string { return "state_" + string(o.State) }

// phrase is a value, with the key of the text around it.
type phrase struct {
	Key   string
	Value any
}

// Clock returns when the sale starts, ends or ended, or nil if the operator has closed the sale.
func (o offer) Clock() *phrase {
	key, at := "ends_at", o.EndsAt
	switch o.State {
	case model.StateUpcoming:
		key, at = "starts_at", o.StartsAt
	case model.StateEnded:
		if o.Status == model.SaleClosed {
			return nil
		}
		key = "ended_at"
	default:
	}
	return &phrase{key, at.UTC().Format("2006-01-02 15:04 UTC")}
}

// LimitKey returns the key of the words for Limit.
func (o offer) LimitKey() string {
	if len(o.Sales) > 0 {
		return "limit_all"
	}
	return "limit"
}

// Limit returns how many units one buyer may have.
func (o offer) Limit() int64 { return int64(o.LimitPerUser) }

// PayWithin returns the time to pay in the largest unit that needs no fraction.
func (o offer) PayWithin() phrase {
	seconds := int64(o.PayTimeoutSeconds)
	switch {
	case seconds%3600 == 0:
		return phrase{"pay_within_hours", seconds / 3600}
	case seconds%60 == 0:
		return phrase{"pay_within_minutes", seconds / 60}
	}
	return phrase{"pay_within_seconds", seconds}
}

// make makes a page from a template. Only a page with status 200 may be cached.
func (p *Pages) make(status int, name string, show page) *prepared.Answer {
	layout, allows, cache := "layout.html", policy, "no-store"
	if name == "api" { // made from openapi.yaml, see openAPI
		layout, allows = "api.html", apiPolicy
	}
	if status == http.StatusOK {
		cache = pageMaxAge
	}
	var body bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&body, layout, show); err != nil {
		return prepared.Plain(http.StatusInternalServerError, http.Header{"Content-Type": {contentTypes[".txt"]}}, []byte("The page can't be shown.\n"))
	}
	return prepared.Plain(status, http.Header{
		"Content-Type": {pageType}, "Content-Security-Policy": {allows}, "Cache-Control": {cache},
	}, body.Bytes())
}
