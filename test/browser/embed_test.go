package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
)

// shopPage is a page of a shop with a style of its own, and shopScript its log-in, which takes a token from the fragment of the
// address, or asks for one by a button.
const (
	shopPage = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Leaf &amp; Cup</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/shop.css">
<script src="/shop.js" defer></script><script type="module" src="ENGINE/embed.js"></script></head>
<body><main><h1>Leaf &amp; Cup</h1>ELEMENTS<p id="asked"></p></main></body></html>`
	shopStyle = `body { margin: 0; background: #fdf3e7; color: #3b2417; font: 1.125rem/1.5 Georgia, serif; }
a { color: inherit; }
main { max-width: 30rem; margin: 0 auto; padding: 1rem; }
flash-sale { margin: 1rem 0; --flash-sale-accent: #8a2b0a; --flash-sale-radius: 2rem; }
flash-sale::part(price) { font-style: italic; }
@media (prefers-color-scheme: dark) { body { background: #1d130d; color: #f4e3d3; } flash-sale { --flash-sale-accent: #ffb38a; --flash-sale-on-accent: #2b1206; } }`
	shopScript = `window.orders = [];
document.addEventListener("flash-sale-order", ({detail}) => orders.push(detail.status));
document.addEventListener("flash-sale-login", (event) => { event.preventDefault(); document.querySelector("#asked").textContent = "Log in"; });
if (location.hash) document.querySelector("flash-sale").token = location.hash.slice(1);`
)

// shopOf starts an engine behind a road, and a shop of another origin whose page has elements made by "elements".
func shopOf(t testing.TB, elements func(s *server) string) (engine, front *server, way *road) {
	t.Helper()
	page := http.NotFoundHandler()
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(w, r) }))
	t.Cleanup(shop.Close)
	engine, way = roadTo(t, "--allow-origin", shop.URL)
	body := strings.NewReplacer("ENGINE", engine.url).Replace(strings.Replace(shopPage, "ELEMENTS", elements(engine), 1))
	page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; script-src 'self' "+engine.url+"; connect-src "+engine.url)
		contentType, text := "text/html", body
		switch r.URL.Path {
		case "/shop.css":
			contentType, text = "text/css", shopStyle
		case "/shop.js":
			contentType, text = "text/javascript", shopScript
		case "/favicon.ico":
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = fmt.Fprint(w, text)
	})
	copied := *engine
	copied.url = shop.URL
	return engine, &copied, way
}

// embedded is one of the elements of a page.
type embedded struct {
	*window
	n int
}

// in returns a JavaScript expression for what a selector finds in the element.
func (e embedded) in(selector string) string {
	return fmt.Sprintf(`document.querySelectorAll("flash-sale")[%d].shadowRoot?.querySelector(%q)`, e.n, selector)
}

// says waits until a part of the element shows a text.
func (e embedded) says(selector, want string) {
	e.t.Helper()
	e.until(fmt.Sprintf("%s says %q", selector, want), func() (string, bool) {
		got, _ := evaluate[string](e.window, fmt.Sprintf(`(() => { const e = %s; return e?.checkVisibility() ? e.innerText : ""; })()`, e.in(selector)))
		return got, got != "" && strings.Contains(got, want)
	})
}

// hides waits until that part of the element can not be seen.
func (e embedded) hides(selector string) {
	e.t.Helper()
	e.becomes(selector+" is hidden", "!"+e.in(selector)+".checkVisibility()")
}

// push clicks on a part of the element with the mouse, once it is live.
func (e embedded) push(selector string) {
	e.t.Helper()
	e.becomes(selector+" is live", fmt.Sprintf(`(() => { const e = %s; return Boolean(e?.checkVisibility()) && e.getAttribute("aria-disabled") !== "true"; })()`, e.in(selector)))
	at := js[[]float64](e.window, fmt.Sprintf(`(() => { const e = %s; e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, e.in(selector)))
	e.do(chromedp.MouseClickXY(at[0], at[1]))
}

const (
	theButton = "button[part=button]"
	theTitle  = "[part=panel-title]"
	thePay    = "[part=panel] button[part=button]:not([hidden])"
)

func element(id string) string {
	return fmt.Sprintf(`<flash-sale sale="%s"><a href="ENGINE/sales/%[1]s">Buy in the flash sale</a></flash-sale>`, id)
}

// A buyer buys on a page of another origin, with that shop's log-in and style, pays, and comes back.
func TestEmbed(t *testing.T) {
	t.Parallel()
	var sale string
	s, front, _ := shopOf(t, func(s *server) string {
		sale = s.sale(fields{"limit_per_user": 2})
		return element(sale)
	})
	ann := s.buyer("ann")
	w := front.open(phone, "/")
	e := embedded{w, 0}
	e.says("[part=left]", "10 of 10 left")
	e.says("[part=live]", "Live")
	e.says("[part=price]", "¥9.90")
	e.says("[part=clock]", "Ends in")
	e.says("[part=terms]", "At most 2 for each buyer · Pay within 10 min")
	e.says(theButton, "Buy for ¥9.90")
	check.Same(t, "the fallback is visible", js[bool](w, `document.querySelector("flash-sale a").checkVisibility()`), false)
	check.Same(t, "the colour is the shop's", js[string](w, "getComputedStyle("+e.in(theButton)+").backgroundColor"), "rgb(138, 43, 10)")
	check.Same(t, "a part has the shop's style", js[string](w, "getComputedStyle("+e.in("[part=price]")+").fontStyle"), "italic")
	e.push(theButton)
	w.see("#asked", "Log in")
	check.Same(t, "the page stays", js[string](w, `location.pathname`), "/")
	s.hasOrders("ann", 0)
	js[bool](w, fmt.Sprintf(`document.querySelector("flash-sale").token = %q, true`, ann))
	e.says(theTitle, "Yours until")
	e.says("[part=left]", "9 of 10 left")
	w.becomes("the focus is on the order", e.in(theTitle)+` === document.activeElement.shadowRoot.activeElement`)
	check.Same(t, "orders that the page heard of", js[string](w, `orders.join()`), "pending")
	check.Same(t, "what the engine stores for the shop's page has its name", js[bool](w,
		`[...Object.keys(localStorage), ...Object.keys(sessionStorage)].every((key) => key.startsWith("flashsale "))`), true)
	check.Same(t, "the token is stored", js[bool](w, fmt.Sprintf(`JSON.stringify([{...localStorage}, {...sessionStorage}]).includes(%q)`, ann)), false)
	w.visit("/?again#" + ann)
	e.says(theTitle, "Yours until")
	e.push(thePay)
	w.see(".payment .amount", "9.90 CNY")
	w.click(`button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	w.visit("/#" + ann)
	e.says(theTitle, "Paid. It is yours.")
	s.hasOrders("ann", 1)
}

// The element shows what becomes of its sale, keeps an attempt while there is no connection, and can be removed and put back.
func TestEmbedLives(t *testing.T) {
	t.Parallel()
	var open, other string
	s, front, road := shopOf(t, func(s *server) string {
		open, other = s.sale(fields{"quota": 2}), s.sale(fields{"title": "Kettle", "price_cents": 500})
		return element(open) + element(other)
	})
	ann := s.buyer("ann")
	w := front.open(desktop, "/#"+ann, slices.Concat(brokenRoad, []string{"status of 409"})...)
	first, second := embedded{w, 0}, embedded{w, 1}
	first.says(theButton, "Buy for ¥9.90")
	second.says(theButton, "Buy for ¥5.00")
	second.says("[part=live]", "Live")

	s.act("pause", other)
	second.says("[part=notice]", "paused for a moment")
	second.says(theButton, "Paused")
	w.becomes("the state is an attribute", `document.querySelectorAll("flash-sale")[1].getAttribute("state") === "paused"`)
	s.act("resume", other)
	second.says(theButton, "Buy for")

	js[bool](w, `document.documentElement.lang = "zh-CN", true`)
	first.says(theButton, "¥9.90")
	second.says("[part=state]", "正在抢购")
	js[bool](w, `document.documentElement.lang = "de", true`)
	second.says("[part=state]", "On sale now")
	check.Same(t, "the language of the texts", js[string](w, second.in("[part=sale]")+".lang"), "en")

	// Both elements buy for the buyer whose token one of them has, by keys alone.
	js[bool](w, second.in(theButton)+".focus(), true")
	w.press(kb.Enter)
	second.says(theTitle, "Yours until")
	first.says("[part=left]", "2 of 2 left")
	first.hides("[part=panel]")

	// Without a connection the attempt is kept, also while the element is away.
	online := func(is bool) {
		w.must(chromedp.Call(w.ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: !is, DownloadThroughput: -1, UploadThroughput: -1}))
	}
	road.meet(fate{lost: true}, isPost)
	online(false)
	first.push(theButton)
	first.says(theTitle, "No connection")
	js[bool](w, `window.removed = document.querySelector("flash-sale"), removed.remove(), true`)
	road.free()
	online(true)
	js[bool](w, `document.querySelector("h1").after(removed), true`)
	first.says(theTitle, "Yours until")
	s.hasOrders("ann", 2)

	// Another sale in the same element, which sells out and ends.
	last := s.sale(fields{"title": "Cup", "quota": 1})
	js[bool](w, fmt.Sprintf(`removed.sale = %q, true`, last))
	first.says("[part=left]", "1 of 1 left")
	first.hides("[part=panel]")
	first.says("[part=live]", "Live")
	s.buy(last, s.buyer("bob"), 1)
	first.says("[part=notice]", "Units of unpaid orders come back")
	first.says(theButton, "Sold out")
	s.act("close", last)
	first.says(theButton, "Over")
}

// An element that cannot sell says why: before the start, for a line, for an id without a sale. Without the shop's log-in the
// button leads to the engine's page, and so does the link into a line.
func TestEmbedLeads(t *testing.T) {
	t.Parallel()
	var draw, plain string
	s, front, _ := shopOf(t, func(s *server) string {
		plain = s.sale(nil)
		later := s.sale(tomorrow())
		draw = s.sale(fields{"mode": "draw", "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)})
		return element(later) + element(draw) + element("NONE") + element(plain)
	})
	w := front.open(desktop, "/", "status of 404")
	later, line, none, last := embedded{w, 0}, embedded{w, 1}, embedded{w, 2}, embedded{w, 3}
	later.says(theButton, "Starts in 1 d")
	later.says("[part=price]", "€1,234.56")
	line.says("a[part=button]", "Enter the draw")
	none.says("[part=notice]", "nothing here")
	w.becomes("the fallback of an unknown sale stays", `document.querySelectorAll("flash-sale a")[2].checkVisibility()`)
	last.says(theButton, "Buy for")
	w.show("embed")
	js[bool](w, `document.addEventListener("flash-sale-login", (event) => event.stopImmediatePropagation(), true), true`)
	last.push(theButton)
	w.see("#button", "Buy for")
	check.Same(t, "the page", js[string](w, `location.href`), s.url+"/sales/"+plain)
	w.visit("/")
	line.push("a[part=button]")
	w.see("h1", "Teapot")
	check.Same(t, "the page", js[string](w, `location.href`), s.url+"/sales/"+draw)
}
