package browser

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// campaign makes a campaign of three sizes that is open for an hour, with these changes. It returns its id, and the ids of
// its sales.
func (s *server) campaign(changes fields) (id string, sales []string) {
	s.t.Helper()
	campaign := fields{
		"title": "Running shoe", "description": "Light, with a wide toe box.", "currency": "CNY", "limit_per_user": 2, "pay_timeout_seconds": 600,
		"starts_at": time.Now().Add(-time.Minute), "ends_at": time.Now().Add(time.Hour),
		"sales": []fields{
			{"variant": "EU 41", "quota": 5, "price_cents": 19900, "original_price_cents": 29900},
			{"variant": "EU 42", "quota": 8, "price_cents": 19900, "original_price_cents": 29900},
			{"variant": "EU 43", "quota": 1, "price_cents": 21900},
		},
	}
	maps.Copy(campaign, changes)
	made := s.call("POST", "/admin/campaigns", s.operator, campaign, http.StatusCreated)
	list, _ := made["sales"].([]any)
	for _, sale := range list {
		sales = append(sales, text(sale.(fields)["id"]))
	}
	return text(made["id"]), sales
}

// size returns the selector of a size of a campaign.
func size(saleID string) string { return fmt.Sprintf(`.variant:has([value=%q])`, saleID) }

// A buyer finds a campaign in the list, buys two of its sizes, and is refused at the limit over all sizes. Other pages show
// the stock of each size live.
func TestCampaign(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id, sales := s.campaign(nil)
	w := s.open(phone, "/", "status of 409")
	w.sees(texts{".card h2": "Running shoe", ".card .price": "¥199.00 – ¥219.00", ".card .left": "14 of 14 left", ".card .count": "3 to choose from"})
	check.Same(t, "cards", js[int](w, `document.querySelectorAll(".card").length`), 1)
	other := s.open(desktop, "/campaigns/"+id+"#"+sales[2])
	other.sees(texts{"#line": "Live", "#left": "1 of 1 left", "#price": "¥219.00"})

	w.click(".card a")
	w.sees(texts{"#line": "Live", "#left": "14 of 14 left", "#button": "Choose one first", "#limit": "At most 2 in all"})
	w.click("#button")
	w.becomes("the focus is on the choice", fmt.Sprintf(`document.activeElement.value === %q`, sales[0]))
	w.click(size(sales[0]))
	w.sees(texts{"#left": "5 of 5 left", "#button": "Buy for ¥199.00", "#price s": "¥299.00"})
	w.buyAs("ann")
	w.sees(texts{"#yours-title": "Yours until", "#yours-amount": "¥199.00"})
	other.see(size(sales[0]), "4 left")

	w.click(size(sales[2]))
	w.see("#button", "Buy for ¥219.00")
	w.lacks("#yours", "#price s")
	w.wakes("#button")
	w.click("#button")
	w.see("#yours-amount", "¥219.00")
	other.sees(texts{size(sales[2]): "Sold out", "#state": "Sold out", "#notice": "Keep this page open"})
	other.rests("#button")

	w.click(size(sales[1]))
	w.see("#button", "Buy for ¥199.00")
	w.wakes("#button")
	w.click("#button")
	w.sees(texts{"#notice": "as many as one buyer may have", "#notice a": "See your orders"})

	// A reload keeps the choice, and the order of another size is still known.
	w.visit("/orders")
	w.see(".order h2", "Running shoe · EU 43")
	w.visit("/campaigns/" + id + "#" + sales[1])
	w.sees(texts{"#line": "Live", "#left": "8 of 8 left"})
	w.click(size(sales[0]))
	w.see("#yours-title", "Yours until")
	w.click("#yours-cancel", "#ask-yes")
	w.sees(texts{"#notice": "The order is cancelled", "#left": "5 of 5 left"})
	other.see(size(sales[0]), "5 left")

	w.visit("/sales/" + sales[1]) // leads to the campaign
	w.sees(texts{"h1": "Running shoe", "#limit": "At most 2 in all", "#left": "8 of 8 left"})
}

// Two buyers enter the line of a campaign, one on the page of a size. Who is called chooses a size that has units.
func TestCampaignInLine(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id, sales := s.campaign(fields{
		"mode": "line", "limit_per_user": 1, "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour),
		"sales": []fields{{"variant": "EU 41", "quota": 1, "price_cents": 19900}, {"variant": "EU 42", "quota": 1, "price_cents": 19900}},
	})
	list := []entrant{s.enters(phone, "/campaigns/"+id, "ann", "Enter the line"), s.enters(desktop, "/sales/"+sales[1], "bob", "Enter the line")}
	s.call("PATCH", "/admin/campaigns/"+id, s.operator, fields{"starts_at": time.Now()}, http.StatusOK)
	s.byRank(id, list)
	for _, e := range list {
		e.visit("/campaigns/" + id)
		e.sees(texts{"#place-title": "It is your turn", "#button": "Choose one first"})
	}
	first, second := list[0], list[1]
	first.show("campaign-called")
	first.click(size(sales[0]))
	first.wakes("#button")
	first.click("#button")
	first.see("#yours-title", "Yours until")
	second.see(size(sales[0]), "Sold out")
	second.click(size(sales[1]))
	second.wakes("#button")
	second.click("#button")
	second.see("#yours-title", "Yours until")
	third := s.enters(phone, "/campaigns/"+id, "cat", "Enter the line")
	third.see("#place-title", "You are next")
	third.click("#proof summary")
	third.see("#proof-result", "your rank is your number")
	third.show("campaign-line")
	second.click("#yours-cancel", "#ask-yes")
	third.sees(texts{"#place-title": "It is your turn", size(sales[1]): "1 left"})
}

// A size is chosen by keys. Those that are sold out are skipped.
func TestCampaignByKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id, sales := s.campaign(fields{"sales": []fields{
		{"variant": "S", "quota": 5, "price_cents": 990}, {"variant": "M", "quota": 1, "price_cents": 990, "limit_per_user": 1}, {"variant": "L", "quota": 5, "price_cents": 990, "limit_per_user": 1},
	}})
	s.buy(sales[1], s.buyer("other"), 1)
	w := s.open(desktop, "/campaigns/"+id)
	w.sees(texts{"#line": "Live", size(sales[1]): "Sold out", "#button": "Choose one first"})
	w.focus("#button")
	w.press(kb.Enter, " ")
	w.sees(texts{"#left": "5 of 5 left", "#limit": "At most 2 in all"})
	w.press(kb.ArrowDown)
	w.see("#limit", "At most 1 of this, 2 in all")
	check.Same(t, "the choice is in the address", js[string](w, `location.hash`), "#"+sales[2])
	w.signUp("ann")
	w.focus("#button")
	w.press(kb.Enter)
	w.see("#yours-title", "Yours until")
	w.focused("yours-title")
}

// The start of a campaign wakes the button for the size that was chosen before.
func TestCampaignStarts(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := serve(t)
		id, sales := s.campaign(fields{"starts_at": time.Now().Add(soon(t, 8*time.Second))})
		w := s.open(phone, "/campaigns/"+id, "status of 409")
		w.sees(texts{"#line": "Live", "#button": "Starts in 00:", "#left": "14 of 14 left"})
		w.click(size(sales[1]))
		w.see("#left", "8 of 8 left")
		w.click("#account-button")
		w.register("ann")
		w.see("#notice", "It has started")
		w.wakes("#button")
		w.click("#button")
		w.see("#yours-title", "Yours until")
	})
}

// An attempt without an answer stays with its size, while the buyer buys another. A broken stream is opened again.
func TestCampaignHeals(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	id, sales := s.campaign(nil)
	w := s.open(phone, "/campaigns/"+id+"#"+sales[0], brokenRoad...)
	w.see("#left", "5 of 5 left")
	w.signUp("ann")
	road.meet(fate{status: http.StatusServiceUnavailable}, isPurchase)
	w.click("#button")
	w.see("#hold-more", "still no answer")
	road.free()
	w.click(size(sales[1]))
	w.see("#button", "Buy for")
	w.lacks("#hold")
	w.wakes("#button")
	w.click("#button")
	w.see("#yours-units", "EU 42: 1 ×")
	w.click(size(sales[0]))
	w.see("#hold-more", "still no answer")
	w.click("#hold-again")
	w.see("#yours-units", "EU 41: 1 ×")
	s.hasOrders("ann", 2)

	road.closed(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/events") })
	w.see("#line", "Connection lost")
	s.buy(sales[2], s.buyer("ben"), 1)
	w.see(size(sales[2]), "Sold out") // the page reads the figures meanwhile
	road.free()
	w.see("#line", "Live")
}

// Every stage of a campaign's page is accessible and fits on a phone.
func TestCampaignScreens(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sizes := []fields{{"variant": "EU 40 ⅔, extra wide", "quota": 1, "price_cents": 990}}
	for n := range 23 {
		sizes = append(sizes, fields{"variant": fmt.Sprintf("EU %d", 35+n), "quota": 10 + 40*n, "price_cents": 199_00 + 1000*(n/12), "original_price_cents": 299_00})
	}
	many, sales := s.campaign(fields{"sales": sizes, "limit_per_user": 3})
	s.buy(sales[0], s.buyer("other"), 1)
	later, _ := s.campaign(fields{"title": "跑鞋 Running shoe", "starts_at": time.Now().Add(26 * time.Hour), "ends_at": time.Now().Add(50 * time.Hour)})
	s.sale(nil)
	w := s.open(desktop, "/")
	w.sees(texts{".card": "", "#sales": "24 to choose from"})
	w.show("sales-campaigns")
	w.visit("/campaigns/" + later)
	w.sees(texts{"#line": "Live", "#button": "Starts in"})
	w.show("campaign-upcoming")
	w.visit("/campaigns/" + many)
	w.sees(texts{"#line": "Live", "#button": "Choose one first"})
	w.show("campaign")
	w.click(size(sales[3]))
	w.buyAs("ann")
	w.see("#yours-title", "Yours until")
	w.show("campaign-yours")
	w.visit("/sales/" + sales[3])
	w.see("#line", "Live")
	w.show("campaign-sale")
}

// upload gives a file to a field, as if it was chosen in the browser's dialog.
func (w *window) upload(selector, content string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`{
		const file = new DataTransfer();
		file.items.add(new File([%q], "sheet.csv", {type: "text/csv"}));
		document.querySelector(%q).files = file.files;
		document.querySelector(%q).dispatchEvent(new Event("change"));
	}`, content, selector, selector))
}

// The life of a campaign in the console: from a sheet, after a mistake in it, through a pause of all sizes and of one of
// them, a new size and other terms, to its export and its end.
func TestConsoleCampaign(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console", "status of 400", "status of 409")
	w.operate()
	w.see("#sales", "There is no sale yet")
	w.click("#new-sheet", "#sheet-send")
	w.see("#sheet-error", "Choose a file first")
	sheet := "title,starts_at,ends_at,campaign_limit,variant,quota,price\n" +
		"Running shoe," + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) + "," + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + ",2,EU 41,5,199.00\n,,,,EU 42,%s,219\n"
	w.upload("#sheet-file", fmt.Sprintf(sheet, "eight"))
	w.click("#sheet-send")
	w.see("#sheet-error", "row 3, quota")
	w.upload("#sheet-file", fmt.Sprintf(sheet, "8"))
	w.click("#sheet-send")
	w.sees(texts{"h1": "Running shoe", "#line": "Live", "#state": "On sale now", "#tile-available .value": "13", "#price": "¥199.00 – ¥219.00", "#log": "Created"})
	w.has("variants", 2)
	id := w.path()[strings.LastIndex(w.path(), "/")+1:]

	buyer := s.open(phone, "/campaigns/"+id)
	buyer.see("#line", "Live")
	buyer.click(".variant:nth-of-type(2)")
	buyer.see("#button", "Buy for ¥219.00")
	buyer.buyAs("ann")
	buyer.see("#yours-title", "Yours until")
	w.sees(texts{"#tile-available .value": "12", "#tile-held .value": "1", "#variants tr:nth-child(2) td:nth-child(4)": "1"})
	buyer.click("#yours-pay", `button[value="pay"]`)
	w.sees(texts{
		"#tile-held .value": "0", "#tile-paid .value": "1", "#variants tr:nth-child(2) td:nth-child(5)": "1",
		"#tile-sold .value": "1", "#tile-revenue .value": "¥219.00", "#tile-time .note": "until the end",
	})
	w.asASale(id)
	buyer.visit("/campaigns/" + id)
	buyer.see("#line", "Live")

	w.confirm("#pause", "nobody can buy until you resume")
	w.sees(texts{"#notice": "The campaign is paused", "#state": "Paused"})
	buyer.see("#state", "Paused")
	w.focused("resume")
	w.confirm("#resume", "12 units are available")
	w.sees(texts{"#notice": "The campaign goes on", "#state": "On sale now"})
	buyer.see("#state", "On sale now")
	w.confirm(`#variants tr:nth-child(1) [data-action="pause"]`, "Nobody can buy this variant")
	w.sees(texts{"#notice": "EU 41 is paused", "#variants tr:nth-child(1) .state": "Paused", "#variants tr:nth-child(2) .state": "On sale now"})
	buyer.see(".variant:nth-of-type(1)", "Paused")

	w.click("#add", "#variant-form-send")
	w.sees(texts{"#variant-variant-error": "1 to 60", "#variant-quota-error": "A whole number", "#variant-price_cents-error": "An amount"})
	w.write("#variant-variant", "EU 42")
	w.write("#variant-quota", "3")
	w.write("#variant-price_cents", "229")
	w.click("#variant-form-send")
	w.see("#variant-variant-error", "must differ")
	w.fill("#variant-variant", "EU 43")
	w.click("#variant-form-send")
	w.see("#notice", "The variant is added")
	w.has("variants", 3)
	buyer.see(".variant:nth-of-type(3)", "EU 43")
	added := js[string](w, `document.querySelector("#variants tr:nth-child(3) a").href.split("/").at(-1)`)
	s.buy(added, s.buyer("ben"), 1)
	w.see("#variants tr:nth-child(3) td:nth-child(4)", "1") // the stream has begun anew

	w.click("#edit")
	w.lacks("#campaign-currency", "#campaign-more")
	w.fill("#campaign-title", "Trail shoe")
	w.fill("#campaign-limit_per_user", "3")
	w.click("#campaign-form-send")
	w.sees(texts{"h1": "Trail shoe", "#limit": "At most 3 in all", "#log": "Trail shoe"})

	lines := w.download("campaign-"+id+".csv", "#sheet", "#sheet-told")
	check.Same(t, "rows of the sheet", len(lines), 4)
	check.Same(t, "title and size", []string{lines[1][0], lines[3][slices.Index(lines[0], "variant")]}, []string{"Trail shoe", "EU 43"})

	w.click("#variants a")
	w.sees(texts{"h1": "Trail shoe · EU 41", "#line": "Live"})
	w.click("#edit")
	w.see("#form-title", "Edit the sale")
	w.lacks("#title", "#ends_at", "#extend")
	w.click("#form-leave", "#campaign-link")
	w.see("#line", "Live")
	w.confirm("#close", "it cannot be opened again")
	w.see("#state", "Over")
	w.gone("#pause", "#resume", "#add", "#close", "#variants button")
	w.click(".bar nav a")
	w.sees(texts{"#sales": "Trail shoe", "#sales .state": "Over"})
}

// asASale looks at what the page of a campaign, in which one unit was sold and paid, has as that of a sale: the curves, the orders,
// the short link with its QR code, and the engine's figures.
func (w *window) asASale(id string) {
	w.t.Helper()
	w.sees(texts{
		"#books": "Paid\t1\t1", "#verdicts": "Sold", "#stock-chart .legend": "12", "#rate-chart .legend": "Sold out",
		"#orders tr:first-child td:first-child": "EU 42", "#orders .state": "Paid", "#short": "/s/" + id,
	})
	w.becomes("the short link has a picture", `document.getElementById("qr").naturalWidth > 0`)
	w.click("#short")
	w.sees(texts{"h1": "Running shoe", "#left": "12 of 13 left"})
	w.visit("/console/campaigns/" + id)
	w.see("#line", "Live")
	lines := w.download("orders-"+id+".csv", "#csv", "#csv-told")
	check.Same(w.t, "rows of the orders", len(lines), 2)
	w.click(`#views [href="#engine"]`)
	w.sees(texts{"#tile-requests .note": "1 in all", "#tile-gate .value": "Open", "#tile-drift .value": "0", "#instances td:nth-child(4)": "1"})
	w.click(`#views [href="#overview"]`)
}

// A campaign is made by the form, with mistakes at first. A viewer sees it and may not change it.
func TestConsoleCampaignForm(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console", "status of 400")
	w.operate()
	w.click("#new-campaign")
	field := func(i int, name string) string { return fmt.Sprintf(`[id="campaign-sales[%d].%s"]`, i, name) }
	w.write("#campaign-title", "T-shirt")
	w.write(field(0, "variant"), "S")
	w.write(field(0, "price_cents"), "12.50")
	w.write(field(0, "original_price_cents"), "10")
	w.click("#campaign-more")
	w.write(field(1, "variant"), "S")
	w.write(field(1, "quota"), "7")
	w.write(field(1, "price_cents"), "12.50")
	w.click("#campaign-more")
	w.write(field(2, "variant"), "no such size")
	w.click("#campaign-form-send")
	w.sees(texts{
		field(0, "quota-error"): "A whole number", field(0, "original_price_cents-error"): "more than the price", field(2, "quota-error"): "A whole number",
	})
	w.fill(field(0, "quota"), "5")
	w.fill(field(0, "original_price_cents"), "")
	w.click("fieldset:nth-of-type(3) button")
	w.gone(field(2, "variant"))

	w.visit("/console") // a reload loses nothing
	w.see("#campaign-form-title", "New campaign")
	w.keeps(texts{field(0, "quota"): "5", field(1, "variant"): "S", field(1, "quota"): "7"})
	w.click("#campaign-form-send")
	w.see(field(1, "variant-error"), "must differ")
	w.fill(field(1, "variant"), "M")
	w.fill("#campaign-limit_per_user", "2")
	w.click("#campaign-form-send")
	w.sees(texts{"h1": "T-shirt", "#state": "Coming", "#limit": "At most 2 in all"})
	w.has("variants", 2)

	secret := text(s.call("POST", "/admin/staff", s.operator, fields{"name": "vera", "role": "viewer"}, http.StatusCreated)["secret"])
	vera := s.open(phone, w.path())
	vera.click("#outside-enter")
	vera.see("#account-title", "Log in")
	vera.enter("vera", secret)
	vera.sees(texts{"#line": "Live", "#variants": "M"})
	vera.lacks("#actions", "#variants button")
}

// Every stage of a campaign in the console is accessible and fits on a phone.
func TestConsoleCampaignScreens(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(nil)
	sizes := make([]fields, 12)
	for n := range sizes {
		sizes[n] = fields{"variant": fmt.Sprintf("EU %d", 36+n), "quota": 1 + n, "price_cents": 199_00 + 1000*(n/6)}
	}
	id, sales := s.campaign(fields{"sales": sizes})
	s.buy(sales[0], s.buyer("other"), 1)
	w := s.open(desktop, "/console")
	w.operate()
	w.sees(texts{"#sales tr:first-child": "Running shoe", "#sales tr:last-child": "Teapot"})
	w.show("console-campaigns")
	w.click("#new-sheet", "#sheet-send")
	w.see("#sheet-error", "")
	w.show("console-campaign-sheet")
	w.click("#sheet-leave", "#new-campaign", "#campaign-more", "#campaign-form-send")
	w.see(`[id="campaign-sales[1].quota-error"]`, "")
	w.show("console-campaign-form")
	w.visit("/console/campaigns/" + id)
	w.sees(texts{"#line": "Live", "#log": "Created", "#orders": "EU 36", "#books td.n": "1"})
	w.show("console-campaign")
	w.click(`#views [href="#engine"]`)
	w.see("#tile-gate", "Open")
	w.show("console-campaign-engine")
	w.click(`#views [href="#overview"]`)
	w.click("#add", "#variant-form-send")
	w.see("#variant-quota-error", "")
	w.show("console-campaign-add")
}
