// Package web holds the HTML pages: their templates, and the style, scripts, words and pictures that browsers load
// once. A page is the same for everybody. The scripts in the browser deal with who is logged in and which language is
// shown. See docs/pages.md.
package web

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

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
	// mostChoices bounds the list of quantities.
	mostChoices = 99
)

// Catalog provides the sales that the pages show, as service.Catalog does.
type Catalog interface {
	Live() []model.Offer
	Sale(ctx context.Context, id string) (offer model.Offer, ok bool, err error)
	Campaign(ctx context.Context, id string) ([]model.Offer, error)
	Now() time.Time
}

// Pages serves the sales (/), one sale (/sales/ID), a campaign (/campaigns/ID), a buyer's orders (/orders), the return from the
// shop's issuer (/login), the operator's console (/console and paths below it) and the description of the API (/api,
// /openapi.yaml, /openapi.json). It also serves the files that browsers and crawlers request by themselves (/favicon.ico,
// /robots.txt).
type Pages struct {
	catalog   Catalog
	publicURL func() string
	templates map[string]*template.Template
	head      template.HTML
	files     map[string]file
	// describe makes the description of the API at the first request for that. It takes some fifty milliseconds, which would
	// otherwise delay every start.
	describe func() (map[string]file, error)
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
	for _, name := range []string{"sales", "sale", "campaign", "orders", "login", "missing", "unavailable", "console", "console-sale", "console-campaign", "console-payments", "console-endpoints", "console-staff", "console-lab"} {
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
	p.describe = sync.OnceValues(func() (map[string]file, error) { return makeAPI(assets, publicURL()) })
	return p, nil
}

// Head returns what other pages of this server need in their head element to look alike: the style, and the script that
// chooses the language.
func (p *Pages) Head() template.HTML { return p.head }

// ServeHTTP answers with the page or file at the request's path. An unknown path gets a page with status 404. If the catalog
// can't be read, a page with status 503 says so.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	folder, id := path.Split(r.URL.Path)
	show, isFixed := fixed[r.URL.Path]
	if !isFixed {
		show, isFixed = fixed[folder]
	}
	file, isFile := p.files[r.URL.Path]
	switch {
	case isFile:
		file.send(w)
	case isFixed:
		show.Script = show.Name + ".js"
		p.send(w, http.StatusOK, show.Name, show)
	case folder == "/sales/":
		p.sale(w, r, id)
	case folder == "/campaigns/":
		p.campaign(w, r, id)
	case r.URL.Path == "/":
		p.sales(w)
	case r.URL.Path == "/api", r.URL.Path == "/openapi.yaml", r.URL.Path == "/openapi.json":
		p.api(w, r.URL.Path)
	default:
		p.send(w, http.StatusNotFound, "missing", page{})
	}
}

// api answers with the description of the API.
func (p *Pages) api(w http.ResponseWriter, name string) {
	files, err := p.describe()
	if err != nil {
		http.Error(w, "The page can't be shown.", http.StatusInternalServerError)
		return
	}
	files[name].send(w)
}

func (p *Pages) sale(w http.ResponseWriter, r *http.Request, id string) {
	found, ok, err := p.catalog.Sale(r.Context(), id)
	switch {
	case err != nil:
		p.send(w, http.StatusServiceUnavailable, "unavailable", page{})
	case !ok:
		p.send(w, http.StatusNotFound, "missing", page{})
	case found.Campaign.ID != "": // the buyer sees the sale beside the others of the campaign
		http.Redirect(w, r, "/campaigns/"+found.Campaign.ID+"#"+found.ID, http.StatusFound)
	default:
		script := "sale.js"
		if found.HasLine() {
			script = "line.js"
		}
		p.send(w, http.StatusOK, "sale", pageOf(p.view(found), script))
	}
}

func (p *Pages) campaign(w http.ResponseWriter, r *http.Request, id string) {
	sales, err := p.catalog.Campaign(r.Context(), id)
	switch {
	case err != nil:
		p.send(w, http.StatusServiceUnavailable, "unavailable", page{})
	case len(sales) == 0:
		p.send(w, http.StatusNotFound, "missing", page{})
	default:
		script := "campaign.js"
		if sales[0].HasLine() {
			script = "campaign-line.js"
		}
		p.send(w, http.StatusOK, "campaign", pageOf(p.whole(sales), script))
	}
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

func (p *Pages) sales(w http.ResponseWriter) {
	live := p.catalog.Live()
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
	p.send(w, http.StatusOK, "sales", show)
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

// send writes a page. Only a page with status 200 may be cached.
func (p *Pages) send(w http.ResponseWriter, status int, name string, show page) {
	var body bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&body, "layout.html", show); err != nil {
		http.Error(w, "The page can't be shown.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusOK {
		w.Header().Set("Cache-Control", pageMaxAge)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the visitor may have left
}
