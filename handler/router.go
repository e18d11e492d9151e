// Package handler is the HTTP API. Handlers decode, call a service, and encode. problem.go decides what a client of the API sees
// of a refusal or an error.
package handler

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/observe"
	"flashsale/middleware"
	"flashsale/model"
)

// requestLimit bounds most requests that ask a store. It is well within the server's write timeout.
const requestLimit = 10 * time.Second

// Rates of token buckets, against a sender that has a right secret and sends too much. A request is charged after the check of
// its secret, so that strangers can't use up these buckets.
const (
	// callbackRate is how many callbacks of the sandbox and requests of the shop's checkout may pass in a second.
	callbackRate = 5_000
	// operatorRate is how many requests of the staff may pass in a second.
	operatorRate = 500
)

// API has the handlers of each resource, and the Door in front of them.
type API struct {
	Door       Door
	Health     Health
	Pages      Pages
	Assets     http.Handler // the style, scripts and pictures of the pages, at /assets/NAME
	Sales      Sales
	Campaigns  Campaigns
	Links      Links
	Streams    *Streams
	Lines      Lines
	Purchases  Purchases
	Orders     Orders
	Reports    Reports
	Payments   Payments
	Holds      *Holds // nil: the shop has no checkout of its own
	Accounts   *Accounts
	Staff      Staff
	Shop       Shop
	Endpoints  Endpoints
	Operations Operations
	Live       Live
	Lab        *Lab
	Rehearsals Rehearsals
}

// Router returns the handler of all routes, or an error if a trusted proxy is malformed.
func Router(a *API) (http.Handler, error) {
	r, d := gin.New(), &a.Door
	r.HandleMethodNotAllowed, r.RedirectTrailingSlash = true, false
	if d.Trace != nil {
		r.Use(d.Trace) // before the stages that write lines of the log, so that these have the trace
	}
	if err := middleware.TrustProxies(r, d.Limits.TrustedProxies, d.Log); err != nil {
		return nil, err
	}
	r.Use(middleware.RequestID(), d.observe, middleware.AccessLog(d.Log, d.Now), Problems(d.Log), middleware.Recovery(), middleware.Headers(),
		middleware.MaxBody(maxOperatorBodyBytes, map[string]int64{"/api/v1/payments/notices": maxNoticeBytes}))
	if len(d.Limits.Origins) > 0 {
		r.Use(middleware.Origins(d.Limits.Origins))
	}
	missing := a.Pages.renewed(a.Pages.missing)
	refused := func(v model.Verdict) gin.HandlerFunc { return func(c *gin.Context) { refuse(c, v) } }
	r.NoRoute(missing, refused(model.NotFound))
	r.NoMethod(refused(methodNotAllowed)) // gin has set Allow

	deadline := middleware.Deadline(requestLimit)
	callbackLimit, operatorLimit := middleware.TokenBucket(callbackRate, callbackRate, 0), middleware.TokenBucket(operatorRate, operatorRate, 0)
	instance := d.timed("token_bucket", middleware.TokenBucket(d.Limits.Rate, d.Limits.Burst, d.Limits.Wait))
	if d.Limits.Leaky {
		instance = d.timed("leaky_bucket", middleware.LeakyBucket(d.Limits.Rate, d.Limits.Burst, d.Limits.Wait))
	}
	address := d.timed("address_limit", middleware.AddressLimit(d.Limits.AddressRate))
	login := d.timed("authenticate", middleware.Authenticate(a.Staff.Service))
	shadows := middleware.Shadows(a.Staff.Service, refused(model.NotFound))
	path := d.timed("path_token", middleware.PathToken(a.Purchases.Paths))
	counter := d.timed("user_counter", middleware.UserCounter(d.Limits.User, d.Counter, func(error) { d.Observe.Note(observe.Event{Name: observe.Uncounted}) }))

	all := routes{&r.RouterGroup}
	// Routes without a limit. They cost little, and must answer even when the limits are used up: load balancers need an answer,
	// pages need their style and scripts, and operators need their console.
	all.GET("/healthz", a.Health.live)
	all.GET("/readyz", a.Health.ready())
	all.GET("/assets/:name", gin.WrapH(a.Assets))
	for _, path := range []string{
		"/embed.js", "/console", "/console/sales/:sale", "/console/campaigns/:campaign", "/console/orders", "/console/payments", "/console/endpoints", "/console/staff", "/console/shop", "/console/lab",
	} {
		all.GET(path, a.Pages.always())
	}

	api := all.Group("/api/v1")
	// Requests with a right secret have no limit by address: one provider, or one server of the shop, acts for all buyers.
	strangers := middleware.Strangers(address, instance)
	if a.Payments.Sandbox != nil {
		api.POST("/payments/callback", deadline, strangers, a.Payments.signed, callbackLimit, a.Payments.callback)
	}
	if a.Payments.Notices {
		api.POST("/payments/notices", deadline, strangers, a.Payments.notice)
	}
	if a.Holds != nil {
		all.GET("/.well-known/jwks.json", instance, address, a.Holds.keys)
		hold := api.Group("/holds/:id", deadline, strangers, login, middleware.RequireRole(model.RoleHolds), callbackLimit, shadows, ofIDs)
		hold.GET("", a.Holds.get)
		hold.POST("/settle", takes(maxBodyBytes, a.Holds.settle))
		hold.POST("/refunded", takes(maxBodyBytes, a.Holds.refunded))
		hold.POST("/release", a.Holds.release)
	}

	memory := api.Group("", instance, address)
	shown := memory.Group("", shadows)
	shown.GET("/sales/:sale/events", a.Streams.ofSales) // no deadline: a stream has no end
	// Caches may keep the answers of these routes. The routes have no deadline: a handler that asks a store sets a limit itself.
	shared := memory.Group("")
	if len(d.Limits.Origins) > 0 {
		shared.Use(middleware.AnyOrigin())
	}
	shared.Use(shadows) // behind AnyOrigin, which deletes Vary
	shared.GET("/sales", a.Sales.live())
	shared.GET("/sales/:sale", a.Sales.get())
	shared.GET("/sales/:sale/line", a.Lines.get())
	shared.GET("/sales/:sale/draw.json", a.Lines.draw())
	shared.GET("/campaigns/:campaign", a.Campaigns.get())
	shown.GET("/campaigns/:campaign/events", a.Streams.ofSales)
	memory.POST("/sales/:sale/:path/orders", login, middleware.RequireBuyer, path, shadows, counter, a.Purchases.purchase)

	public := memory.Group("", deadline)
	public.GET("/time", a.Sales.time)
	public.POST("/users", a.Accounts.register)
	public.POST("/sessions", a.Accounts.logIn)
	public.GET("/login", a.Accounts.showOutside)
	public.POST("/sessions/code", takes(maxBodyBytes, a.Accounts.logInByCode))

	buyer := public.Group("", login, middleware.RequireBuyer, shadows)
	buyer.POST("/sales/:sale/path", a.Purchases.issuePath)
	buyer.POST("/sales/:sale/entries", a.Lines.enter)
	buyer.GET("/sales/:sale/entries/challenge", a.Lines.challenge)
	buyer.GET("/sales/:sale/entries/mine", a.Lines.mine)
	buyer.DELETE("/sales/:sale/entries/mine", a.Lines.leave)
	buyer.GET("/sales/:sale/entries/mine/proof", a.Lines.proof)
	buyer.GET("/orders", a.Orders.list)
	buyer.GET("/orders/:id", a.Orders.get)
	buyer.DELETE("/orders/:id", a.Orders.cancel)
	buyer.POST("/orders/:id/payments", a.Payments.start)

	viewers, support, operators := middleware.RequireRole(model.RoleViewer), middleware.RequireRole(model.RoleSupport), middleware.RequireRole(model.RoleOperator)
	console := api.Group("/admin", strangers, login, viewers, operatorLimit, ofIDs) // no deadline: streams have no end
	console.GET("/sales/:sale/live", a.Live.figures)
	console.GET("/sales/:sale/orders.csv", a.Orders.export)
	console.GET("/campaigns/:campaign/live", a.Live.figures)
	console.GET("/campaigns/:campaign/orders.csv", a.Orders.export)
	console.GET("/orders.csv", a.Orders.export)
	console.GET("/lab/events", a.Lab.there, a.Lab.events)

	viewer := console.Group("", deadline)
	viewer.GET("/catalog", a.Sales.catalog)
	viewer.GET("/sales", a.Sales.listAll)
	viewer.GET("/sales/:sale", a.Sales.getForOperators)
	viewer.GET("/sales/:sale/audit", a.Sales.audit)
	viewer.GET("/sales/:sale/orders", a.Orders.listOfSales)
	viewer.GET("/sales/:sale/report", a.Reports.get)
	viewer.GET("/sales/:sale/operations", a.Operations.ofSales)
	viewer.GET("/campaigns/:campaign", a.Campaigns.getForOperators)
	viewer.GET("/campaigns/:campaign/orders", a.Orders.listOfSales)
	viewer.GET("/campaigns/:campaign/report", a.Reports.get)
	viewer.GET("/campaigns/:campaign/sales.csv", a.Campaigns.export)
	viewer.GET("/campaigns/:campaign/operations", a.Operations.ofSales)
	viewer.GET("/stats", a.Live.stats)
	viewer.GET("/lab", a.Lab.there, a.Lab.show)
	viewer.GET("/rehearsals", a.Rehearsals.list)
	viewer.GET("/rehearsals/:rehearsal", a.Rehearsals.get)
	viewer.GET("/payments", a.Payments.list)
	viewer.GET("/staff", a.Staff.list)
	viewer.GET("/staff-operations", a.Operations.of(model.StaffSubject))
	viewer.GET("/shop", a.Shop.get)
	viewer.GET("/shop-operations", a.Operations.of(model.ShopSubject))
	viewer.GET("/events", a.Endpoints.events)
	viewer.GET("/endpoints", a.Endpoints.list)
	viewer.GET("/endpoints/:endpoint/deliveries", a.Endpoints.deliveries)
	viewer.GET("/endpoint-operations", a.Operations.of(model.EndpointSubject))
	viewer.GET("/orders", a.Orders.search)
	viewer.GET("/orders/:id", a.Orders.record)
	viewer.POST("/orders/:id/refund", support, a.Orders.refund)
	viewer.POST("/orders/:id/cancel", support, a.Orders.cancelAny)

	operator := viewer.Group("", operators)
	operator.POST("/sales", a.Sales.create)
	operator.PATCH("/sales/:sale", takes(maxOperatorBodyBytes, a.Sales.patch))
	operator.POST("/sales/:sale/pause", a.Sales.setStatus(model.SalePaused, "pause"))
	operator.POST("/sales/:sale/resume", a.Sales.setStatus(model.SaleLive, "resume"))
	operator.POST("/sales/:sale/line/extend", takes(maxOperatorBodyBytes, a.Lines.extend))
	operator.POST("/sales/:sale/line/void", a.Lines.void)
	operator.POST("/sales/:sale/close", a.Sales.setStatus(model.SaleClosed, "close"))
	operator.POST("/campaigns", a.Campaigns.create)
	operator.PATCH("/campaigns/:campaign", takes(maxOperatorBodyBytes, a.Campaigns.patch))
	operator.POST("/campaigns/:campaign/sales", a.Campaigns.add)
	operator.POST("/campaigns/:campaign/pause", a.Campaigns.setStatus(model.SalePaused, "pause"))
	operator.POST("/campaigns/:campaign/resume", a.Campaigns.setStatus(model.SaleLive, "resume"))
	operator.POST("/campaigns/:campaign/close", a.Campaigns.setStatus(model.SaleClosed, "close"))
	operator.POST("/staff", a.Staff.create)
	operator.PATCH("/staff/:name", takes(maxBodyBytes, a.Staff.change))
	operator.POST("/staff/:name/secret", a.Staff.renewSecret)
	operator.DELETE("/staff/:name", a.Staff.remove)
	operator.PUT("/shop", takes(maxOperatorBodyBytes, a.Shop.set))
	operator.POST("/endpoints", takes(maxBodyBytes, a.Endpoints.create))
	operator.PATCH("/endpoints/:endpoint", takes(maxBodyBytes, a.Endpoints.change))
	operator.POST("/endpoints/:endpoint/secret", a.Endpoints.renewSecret)
	operator.DELETE("/endpoints/:endpoint", a.Endpoints.remove)
	operator.POST("/endpoints/:endpoint/deliveries/:delivery", a.Endpoints.redeliver)
	operator.POST("/lab", a.Lab.there, takes(maxOperatorBodyBytes, a.Lab.start))
	operator.DELETE("/lab", a.Lab.there, a.Lab.stop)

	pages := all.Group("", instance, address, missing)
	pages.GET("/", a.Pages.renewed(func() gin.HandlerFunc { return a.Pages.allSales(a.Pages.Home.Sales) }))
	pages.GET("/sales/:sale", middleware.Shadows(a.Staff.Service, a.Pages.showMissing), a.Pages.renewed(a.Pages.ofSale))
	pages.GET("/campaigns/:campaign", deadline, shadows, a.Pages.renewed(func() gin.HandlerFunc { return a.Pages.eachCampaign(a.Pages.Home.Campaign) }))
	for _, path := range []string{"/orders", "/login", "/api", "/openapi.yaml", "/openapi.json", "/robots.txt", "/favicon.ico"} {
		pages.GET(path, a.Pages.renewed(a.Pages.always))
	}
	pages.GET("/lab/reports/:report", deadline, a.Lab.there, a.Lab.report)
	pages.GET("/s/:code", deadline, a.Links.follow)
	pages.GET("/s/:code/qr.svg", deadline, a.Links.qrCode())
	if a.Payments.Sandbox != nil {
		pages.GET("/pay/:payment", deadline, gin.WrapH(a.Payments.Sandbox))
		pages.POST("/pay/:payment", deadline, form, gin.WrapH(a.Payments.Sandbox))
	}
	return r, nil
}

// ofIDs refuses a path as NotFound if a parameter has a character that is not visible ASCII. No id has one, and databases compare
// such texts in different ways.
func ofIDs(c *gin.Context) {
	for _, p := range c.Params {
		if strings.ContainsFunc(p.Value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			refuse(c, model.NotFound)
			return
		}
	}
}

// routes is a group of routes. A route that answers GET also answers HEAD, for which net/http omits the body.
type routes struct{ *gin.RouterGroup }

func (r routes) Group(path string, stages ...gin.HandlerFunc) routes {
	return routes{r.RouterGroup.Group(path, stages...)}
}

func (r routes) GET(path string, stages ...gin.HandlerFunc) {
	r.Match([]string{http.MethodGet, http.MethodHead}, path, stages...)
}

func isHead(c *gin.Context) bool { return c.Request.Method == http.MethodHead }
