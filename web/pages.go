// Package web holds the HTML pages: their templates, style, scripts, words and pictures. A page is the same for everybody: its
// scripts deal with who is logged in and which language is shown. See docs/pages.md.
package web

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
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
	// policy lets a page load scripts, styles and data only from this server, and pictures also from elsewhere.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https: data:; connect-src 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
	// pageMaxAge lets a CDN answer for a second without asking the server.
	pageMaxAge = "public, max-age=1"
	// apiPolicy lets the page /api load its style and picture. No script may run, since the page has none.
	apiPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	pageType  = "text/html; charset=utf-8"
	// mostChoices bounds the list of quantities on a page. A sale's limit may be far higher.
	mostChoices = 99
)

// Pages has the pages of sales and campaigns, the fixed pages, and the files of filesOf.
type Pages struct {
	now       func() time.Time // the catalog's clock
	publicURL func() string
	shop      func() *model.Shop
	engine    bool // while the shop has no name, buyers see what the engine is, and links to the console and to /api
	templates map[string]*template.Template
	head      template.HTML
	files     map[string]*prepared.Answer
}

// page is the data of a template.
type page struct {
	Name        string // of a fixed page's template
	Status      int    // 0: OK
	Title       string
	Description string
	Image       string // for previews of links to the page: the URL of the picture, if it begins with http
	Script      string // the module that runs the page; empty: page.js
	Console     string // which page of the console this is; empty: none of them
	Styles      []string
	Sales       []offer
	Sale        offer
	Shop        model.Shop // empty in the console
	Engine      bool       // show what the engine is
}

// offer is a sale as a template sees it, or a campaign as a whole.
type offer struct {
	model.Offer
	State     model.SaleState
	ShortURL  string
	Sales     []offer // of the campaign; empty for a sale
	MostCents int64   // the highest price of the campaign's sales, or the price of the sale
}

// LogIn says which ways to log in the pages show.
type LogIn struct {
	Register bool // buyers can make accounts here
	Issuer   bool // people can log in at the shop's issuer
}

// fixed are the pages that show nothing of the catalog, by their paths. The page at a path that ends in a slash is for all paths
// directly below: its script reads the id from the path.
var fixed = map[string]page{
	"/orders":             {Name: "orders", Title: "Orders"},
	"/login":              {Name: "login", Title: "Log in"},
	"/unavailable":        {Name: "unavailable", Status: http.StatusServiceUnavailable},
	"/api":                {Name: "api"},
	"/console":            {Name: "console", Title: "Console", Console: "sales"},
	"/console/sales/":     {Name: "console-sale", Title: "Console", Console: "sale", Styles: []string{"uplot.css"}},
	"/console/campaigns/": {Name: "console-campaign", Title: "Console", Console: "campaign", Styles: []string{"uplot.css"}},
	"/console/orders":     {Name: "console-search", Title: "Orders", Console: "orders"},
	"/console/payments":   {Name: "console-payments", Title: "Payments", Console: "payments"},
	"/console/endpoints":  {Name: "console-endpoints", Title: "Endpoints", Console: "endpoints"},
	"/console/staff":      {Name: "console-staff", Title: "Staff", Console: "staff"},
	"/console/shop":       {Name: "console-shop", Title: "Shop", Console: "shop"},
	"/console/lab":        {Name: "console-lab", Title: "Lab", Console: "lab"},
}

// acts returns the attributes that tell form.js in which modes a field acts.
func acts(field string) template.HTMLAttr {
	f := model.ModeFields[slices.IndexFunc(model.ModeFields, func(f model.ModeField) bool { return f.Name == field })]
	return template.HTMLAttr(fmt.Sprintf(`data-always="%v" data-with-list="%v" data-in-campaign="%v"`, f.Always, f.WithList, f.InCampaign)) //nolint:gosec // of constants
}

// NewPages makes the pages. now is the catalog's clock. publicURL returns the URL under which buyers reach the server. shop
// returns what buyers' pages show of the shop. Without a name of the shop, they show the name of the engine and, if "engine" is
// true, what the engine is. An error means that a template or the words are wrong.
func NewPages(now func() time.Time, assets *Assets, publicURL func() string, logIn LogIn, shop func() *model.Shop, engine bool) (*Pages, error) {
	all, err := readWords(shopWords, consoleWords)
	if err != nil {
		return nil, err
	}
	layout, err := template.New("layout.html").Funcs(template.FuncMap{
		"base": publicURL, "logIn": func() LogIn { return logIn }, "money": money, "number": number,
		"acts": acts, "currencies": func() []string { return strings.Fields(strings.Join(model.Currencies[:], " ")) }, "asset": assets.URL, "needs": func(name string) []string { return assets.needs[name] },
		"say": all.say, "word": func(language, key string) string { return all[language][key] }, "languages": all.languages,
		"shopStyle": func(color string) string { served, _ := shopStyle(color); return assetsPath + served },
	}).ParseFS(pageFiles, "pages/layout.html", "pages/console-parts.html", "pages/sale-parts.html")
	if err != nil {
		return nil, err
	}
	p := &Pages{now: now, publicURL: publicURL, shop: shop, engine: engine, templates: map[string]*template.Template{}, files: filesOf(assets)}
	files, _ := fs.Glob(pageFiles, "pages/*.html") // the pattern is well-formed
	for _, file := range files {
		clone, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		if p.templates[strings.TrimSuffix(path.Base(file), ".html")], err = clone.ParseFS(pageFiles, file); err != nil {
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

// Head returns what other pages need in their head element to look like these: among others, style and icon.
func (p *Pages) Head() template.HTML { return p.head }

// Page returns the page or file at a fixed path. The page at /unavailable has status 503, and that for an unknown path 404.
func (p *Pages) Page(at string) *prepared.Answer {
	if file, ok := p.files[at]; ok {
		return file
	}
	show, ok := fixed[at]
	if !ok {
		folder, _ := path.Split(at)
		show, ok = fixed[folder]
	}
	if !ok {
		return p.make("missing", page{Status: http.StatusNotFound})
	}
	if show.Status == 0 {
		show.Script = show.Name + ".js"
	}
	return p.make(show.Name, show)
}

// Sale returns the page of a sale, or for a sale of a campaign a redirect to the campaign's page, which shows all its sales.
func (p *Pages) Sale(o model.Offer) *prepared.Answer {
	if o.Campaign.ID != "" {
		url := "/campaigns/" + o.Campaign.ID + "#" + o.ID
		return prepared.Plain(http.StatusFound, http.Header{"Content-Type": {pageType}, "Location": {url}},
			fmt.Appendf(nil, "<a href=\"%s\">Found</a>.\n\n", template.HTMLEscapeString(url)))
	}
	return p.make("sale", pageOf(p.view(o), "sale.js", "line.js"))
}

// Campaign returns the page of a campaign, whose sales must not be empty.
func (p *Pages) Campaign(sales []model.Offer) *prepared.Answer {
	return p.make("campaign", pageOf(p.whole(sales), "campaign.js", "campaign-line.js"))
}

// pageOf returns the page of a sale or of a campaign. The page has one of the two scripts: "lined" if HasLine, else "script".
func pageOf(o offer, script, lined string) page {
	show := page{Title: o.Title, Description: o.Description, Script: script, Sale: o}
	if o.HasLine() {
		show.Script = lined
	}
	if strings.HasPrefix(o.ImageURL, "http") {
		show.Image = o.ImageURL
	}
	return show
}

// turn is the order of the states in the list of sales, the most interesting for buyers first.
var turn = map[model.SaleState]int{
	model.StateOpen: 0, model.StatePaused: 0, model.StateUpcoming: 1, model.StateSoldOut: 2, model.StateEnded: 3,
}

// Sales returns the page that lists these sales. The sales of a campaign are listed as one.
func (p *Pages) Sales(live []model.Offer) *prepared.Answer {
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
	return p.make("sales", show)
}

func (p *Pages) view(o model.Offer) offer {
	return offer{Offer: o, State: o.State(p.now(), o.Stock.Free()), ShortURL: p.publicURL() + "/s/" + o.Code, MostCents: o.PriceCents}
}

// whole returns a campaign as one offer: its texts and limit, the units of its sales, and their lowest and highest price.
func (p *Pages) whole(sales []model.Offer) offer {
	w := p.view(sales[0])
	campaign := w.Campaign
	w.ID, w.Title, w.Description, w.ImageURL, w.LimitPerUser = campaign.ID, campaign.Title, campaign.Description, campaign.ImageURL, campaign.LimitPerUser
	w.State, w.ShortURL, w.Stock = model.CampaignState(sales, p.now()), p.publicURL()+w.Path(), model.Stock{Lined: w.Stock.Lined}
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

// Exact reports whether buyers see the numbers of the stock.
func (o offer) Exact() bool { return o.StockShown != model.StockFew && o.StockShown != model.StockNone }

// Scarcity returns that of the sale or, for a campaign, the best one among its sales: plenty, few or nothing.
func (o offer) Scarcity() (best string) {
	if len(o.Sales) == 0 {
		return o.Offer.Scarcity()
	}
	for _, sale := range o.Sales {
		best = max(best, sale.Scarcity()) // in the order of the alphabet, plenty comes last
	}
	return best
}

// Choosable reports whether the campaign's page lets buyers choose the sale.
func (o offer) Choosable() bool { return o.State != model.StateSoldOut && o.State != model.StateEnded }

// InLine reports whether the units go only to buyers who are called or drawn.
func (o offer) InLine() bool { return o.Stock.Lined == model.InLine }

// Kind returns what buyers of a sale that is in line enter: line, draw or list.
func (o offer) Kind() string {
	if o.Mode == model.ModeRush {
		return "list"
	}
	return string(o.Mode)
}

// Choices returns the quantities that the page offers.
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
	switch {
	case o.State == model.StateUpcoming:
		key, at = "starts_at", o.StartsAt
	case o.State == model.StateEnded && o.Status == model.SaleClosed:
		return nil
	case o.State == model.StateEnded:
		key = "ended_at"
	}
	return &phrase{key, at.UTC().Format("2006-01-02 15:04 UTC")}
}

// Limit returns how many units one buyer may have.
func (o offer) Limit() int64 { return int64(o.LimitPerUser) }

// PayWithin returns the time to pay in hours, minutes or seconds: the largest unit that needs no fraction.
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
func (p *Pages) make(name string, show page) *prepared.Answer {
	layout, allows, cache := "layout.html", policy, "no-store"
	if name == "api" { // made from openapi.yaml, see openAPI
		layout, allows = "api.html", apiPolicy
	}
	status := cmp.Or(show.Status, http.StatusOK)
	if status == http.StatusOK {
		cache = pageMaxAge
	}
	if show.Console == "" {
		show.Shop = *p.shop()
	}
	show.Engine = p.engine && show.Shop.Name == ""
	var body bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&body, layout, show); err != nil {
		return prepared.Plain(http.StatusInternalServerError, http.Header{"Content-Type": {contentTypes[".txt"]}}, []byte("The page can't be shown.\n"))
	}
	header := http.Header{"Content-Type": {pageType}, "Content-Security-Policy": {allows}, "Cache-Control": {cache}}
	return prepared.Plain(status, header, body.Bytes())
}
