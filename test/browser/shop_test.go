package browser

import (
	"testing"

	"flashsale/test/kit/check"
)

// An operator gives the shop a name, a colour, links and small print, and buyers see them.
func TestShop(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(desktop, "/console/shop")
	w.operate()
	w.see("#shop-facts", "Name of the shop")
	w.show("console-shop")
	w.click("#edit")
	w.see("#shop-form-title", "Change what buyers see")
	w.write("#shop-name", "Tea & Company, purveyors since 1848")
	w.write("#shop-color", "yellow")
	w.write("#shop-terms_url", "tea.example/terms")
	w.click("#shop-form-send")
	w.sees(texts{"#shop-color-error": "A colour such as #0f6b54", "#shop-terms_url-error": "https://"})
	w.show("console-shop-form")
	w.fill("#shop-color", "#FFCC00")
	w.fill("#shop-terms_url", "https://tea.example/terms")
	w.write("#shop-home_url", "https://tea.example")
	w.write("#shop-logo_url", "/favicon.ico")
	w.write("#shop-privacy_url", "/privacy")
	w.write("#shop-imprint_url", "https://tea.example/imprint")
	w.write("#shop-small_print", "Prices include VAT. Delivery within the Union.")
	w.click("#shop-form-send")
	w.sees(texts{
		"#notice": "Buyers see it within two seconds", "#shop-facts": "https://tea.example/terms", "#log": `name: "" -> "Tea & Company`,
		"#colors": "#ffcc00 on dark ones",
	})
	check.Same(t, "the swatches have the colours", js[string](w, `getComputedStyle(document.querySelectorAll(".swatch")[1]).backgroundColor`), "rgb(255, 204, 0)")
	w.show("console-shop-set")
	w.click("#edit") // the other fields stay as they are
	w.see("#shop-form-title", "Change what buyers see")
	w.fill("#shop-privacy_url", "/data")
	w.click("#shop-form-send")
	w.gone("#shop-form")
	w.see("#shop-facts", "https://tea.example/terms")

	for _, page := range []string{"/", "/sales/" + sale, "/orders"} {
		w.visit(page)
		w.sees(texts{".brand": "Tea & Company", "footer": "Prices include VAT"})
		w.hasNo("body", "Flashsale", "For the operator", "Sells a fixed quota")
		w.becomes("the shop's colour is used", `getComputedStyle(document.documentElement).getPropertyValue("--accent") !== "#0f6b54"`)
	}
	w.show("shop-orders")
	w.visit("/")
	w.see(".card", "Teapot")
	w.show("shop-sales")
	w.visit("/sales/" + sale)
	w.see("#line", "Live")
	w.wakes("#button")
	w.show("shop-sale")
	check.Same(t, "the address of the terms", js[string](w, `document.querySelector("footer a:nth-of-type(2)").href`), "https://tea.example/terms")
}
