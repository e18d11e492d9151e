package browser

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
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

	w.visit("/sales/" + sales[1])
	w.see(".part a", "All of Running shoe")
	w.click(".part a")
	w.sees(texts{"h1": "Running shoe", "#left": "8 of 8 left"})
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
	s := serve(t)
	id, sales := s.campaign(fields{"starts_at": time.Now().Add(8 * time.Second)})
	w := s.open(phone, "/campaigns/"+id, "status of 409")
	w.sees(texts{"#line": "Live", "#button": "Starts in 00:0", "#left": "14 of 14 left"})
	w.click(size(sales[1]))
	w.see("#left", "8 of 8 left")
	w.click("#account-button")
	w.register("ann")
	w.see("#notice", "It has started")
	w.wakes("#button")
	w.click("#button")
	w.see("#yours-title", "Yours until")
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
