package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// Prices are typed and shown with the digits of their currency, down to the page of the payment.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console", "status of 400")
	w.operate()
	for _, tc := range []struct{ currency, wrong, example, typed, written, shown string }{
		{"EUR", "29,905", "such as 12.50, at most €100,000,000.00", "29,90", "29.90", "€29.90"},
		{"JPY", "1,250", "such as 1250, at most 10,000,000,000\u00a0JPY", "1250", "1250", "1,250\u00a0JPY"},
		{"KWD", "1,250", "such as 12.500, at most 10,000,000.000\u00a0KWD", "1.25", "1.250", "1.250\u00a0KWD"},
	} {
		w.describe("In " + tc.currency)
		w.fill("#currency", "ABC")
		w.fill("#price_cents", tc.wrong)
		w.click("#form-send")
		w.see("#currency-error", "The code of a currency in three letters")
		w.fill("#currency", tc.currency)
		w.click("#form-send")
		w.see("#price_cents-error", tc.example)
		w.fill("#price_cents", tc.typed)
		w.fillTime("#starts_at", time.Now().Add(-time.Hour))
		w.click("#form-send")
		w.sees(texts{"h1": "In " + tc.currency, "#price": tc.shown, "#line": "Live"})
		sale := w.path()[len("/console/sales/"):]
		buyer := s.open(phone, "/sales/"+sale)
		buyer.sees(texts{"#button": "Buy for " + tc.shown, "main": tc.shown})
		buyer.buyAs("ann-" + tc.currency)
		buyer.click("#yours-pay")
		buyer.see("main", tc.written+" "+tc.currency)
		w.visit("/console")
		w.see("#sales", tc.shown)
	}
}

// A form shows first what every sale needs, and the fields of a mode only in that mode. What was typed into a field that is hidden
// then is not sent.
func TestFieldsByMode(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console")
	w.operate()
	label := func(field string) string { return `label[for="` + field + `"]` }
	fieldsOf := func(prefix string, present, absent []string) {
		t.Helper()
		for _, field := range present {
			w.see(label(prefix+field), "")
		}
		for _, field := range absent {
			w.gone(label(prefix + field))
		}
	}
	choose := func(field, text string) { w.do(chromedp.SendKeys(chromedp.CSS(field), text)) }
	w.describe("By mode")
	fieldsOf("", []string{"title", "price_cents", "currency", "quota", "limit_per_user", "starts_at", "ends_at", "mode"},
		[]string{"description", "image_url", "original_price_cents", "pay_timeout_seconds", "waiting_list", "call_seconds", "parts"})
	check.Same(t, "the mark of a needed field", js[string](w, `getComputedStyle(document.querySelector('label[for="title"]'), "::after").content`), `" *"`)
	w.show("console-form-first")
	w.click("#rest summary")
	fieldsOf("", []string{"description", "waiting_list", "parts"}, []string{"beacon", "entries_at", "entry_work", "call_seconds"})
	choose("#waiting_list", "Yes")
	fieldsOf("", []string{"entry_work", "call_seconds"}, []string{"beacon", "entries_at"})
	choose("#mode", "Line")
	fieldsOf("", []string{"beacon", "entries_at", "entry_work", "call_seconds"}, []string{"waiting_list"})
	w.fill("#entry_work", "many")
	w.show("console-form-line")
	choose("#mode", "Draw")
	fieldsOf("", []string{"beacon", "entries_at", "entry_work", "waiting_list"}, nil)
	choose("#waiting_list", "No")
	fieldsOf("", nil, []string{"call_seconds"})
	choose("#mode", "Rush")
	fieldsOf("", nil, []string{"beacon", "entries_at", "entry_work", "call_seconds"})
	w.click("#form-send")
	w.sees(texts{"h1": "By mode", "#line": "Live"})
	w.click("#edit")
	fieldsOf("", []string{"description", "waiting_list", "price_cents"}, []string{"mode", "parts", "entries_at", "call_seconds"})

	w.visit("/console")
	w.click("#new-campaign")
	w.see(label("campaign-title"), "")
	w.click("#campaign-rest summary")
	fieldsOf("campaign-", []string{"description", "parts"}, []string{"beacon", "entries_at", "entry_work", "call_seconds"})
	choose("#campaign-mode", "Draw")
	fieldsOf("campaign-", []string{"beacon", "entries_at", "entry_work", "call_seconds"}, nil)
}

// Until the start the form has the terms of a sale. Buyers are shown the changed terms, and of the stock what the operator has
// chosen.
func TestTermsAndStock(t *testing.T) {
	t.Parallel()
	var sale string
	s, front, _ := shopOf(t, func(s *server) string {
		sale = s.sale(fields{
			"quota": 20, "limit_per_user": 9, "stock_shown": "few", "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour),
		})
		return element(sale)
	})
	e := embedded{front.open(phone, "/"), 0}
	e.says("[part=left]", "Plenty left")
	e.hides("[part=bar]")
	buyer := s.open(phone, "/sales/"+sale)
	buyer.sees(texts{"#line": "Live", "#left": "Plenty left", "#price": "¥9.90"})
	buyer.lacks("#stock")
	buyer.show("sale-few")
	w := s.open(desktop, "/console/sales/"+sale)
	w.operate()
	w.sees(texts{"#line": "Live", "#tile-available .value": "20"})
	edit := func(change func(), want texts) {
		t.Helper()
		w.click("#edit")
		w.see("#form-title", "Edit the sale")
		change()
		w.click("#form-send")
		w.gone("#form-title")
		w.sees(want)
	}
	edit(func() {
		w.show("console-form-terms")
		w.fill("#currency", "JPY")
		w.fill("#original_price_cents", "")
		w.fill("#price_cents", "1250")
		w.fill("#quota", "8")
		w.fill("#pay_timeout_seconds", "5")
	}, texts{"#price": "1,250\u00a0JPY", "#tile-available .value": "8", "#log": "currency: CNY -> JPY"})
	buyer.sees(texts{"#price": "1,250\u00a0JPY", "#left": "Plenty left", "#terms": "Pay within 5 min"})
	e.says("[part=price]", "1,250\u00a0JPY")
	_, err := kit.OpenSQL(t, s.Database).ExecContext(t.Context(), "UPDATE sales SET terms_at_ms = terms_at_ms - 30000") // as if they were older
	check.NoError(t, err)
	edit(func() { w.fillTime("#starts_at", time.Now().Add(-time.Hour)) }, texts{"#state": "On sale now"})
	buyer.see("#button", "Buy for 1,250\u00a0JPY")
	list := s.open(phone, "/")
	list.see(".card .left", "Plenty left")
	list.lacks(".card progress")

	ann := s.buyer("ann")
	s.buy(sale, ann, 7)
	buyer.see("#left", "Only a few left")
	e.says("[part=left]", "Only a few left")
	list.see(".card .left", "Only a few left")
	edit(func() {
		w.gone(`label[for="price_cents"]`)
		w.lacks("#currency", "#quota", "#pay_timeout_seconds")
		w.do(chromedp.SendKeys(chromedp.CSS("#stock_shown"), "Nothing"))
	}, texts{"#log": "stock_shown: few -> none", "#tile-available .value": "1"})
	for _, page := range []*window{buyer, list} {
		page.becomes("the stock is hidden", `document.querySelector(".left").textContent === ""`)
	}
	e.hides("[part=left]")
	s.buy(sale, ann, 1)
	buyer.see("#state", "Sold out")
}
