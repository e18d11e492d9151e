package browser

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// walk is a buyer's way through a sale in two tabs, over a slow connection that breaks.
type walk struct {
	*window
	s     *server
	road  *road
	other *window
}

// slow gives a window the connection of a train: 400 kbit/s, and 400 ms until an answer begins.
func (w *window) slow() {
	w.t.Helper()
	const bytesPerSecond = 400_000 / 8
	w.must(chromedp.Call(w.ctx, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Latency: 400, DownloadThroughput: bytesPerSecond, UploadThroughput: bytesPerSecond}},
	}))
}

// begins opens the page of a sale or a campaign in two tabs of the buyer ann.
func (k *walk) begins(page string) {
	k.s.t.Helper()
	k.window = k.s.open(phone, page, append(slices.Clip(brokenRoad), "status of 404")...)
	k.slow()
	k.signUp("ann")
	k.other = k.s.tab(k.window, phone, page)
	k.other.slow()
}

// step waits until the page shows these texts. Then the buyer reloads it, leaves it and comes back, and loses the connection for
// a moment. Each time, and in the other tab, the page shows the same.
func (k *walk) step(shows texts) {
	k.t.Helper()
	k.sees(shows)
	k.do(chromedp.Reload())
	k.sees(shows)
	k.visit("/orders")
	k.do(chromedp.NavigateBack())
	k.sees(shows)
	k.see("#line", "Live")
	k.road.closed(func(*http.Request) bool { return true })
	k.see("#line", "Connection lost")
	k.sees(shows)
	k.road.free()
	k.see("#line", "Live")
	k.sees(shows)
	k.other.sees(shows)
}

// presses clicks on the button once it says this.
func (k *walk) presses(word string) {
	k.t.Helper()
	k.see("#button", word)
	k.wakes("#button")
	k.click("#button")
}

// pays pays the order at the sandbox, and goes back to the page.
func (k *walk) pays(page string) {
	k.t.Helper()
	k.click("#yours-pay", `button[value="pay"]`)
	k.see("[role=status]", "Paid. Thank you")
	k.visit(page)
}

// At each step of each mode the page outlasts a slow connection, a broken one, a reload, the way back, and a second tab.
func TestStepsOfEachMode(t *testing.T) {
	t.Parallel()
	unpaid, paid := texts{"#yours-title": "Yours until", "#yours-pay": "Pay", "#unpaid": "1 to pay"}, texts{"#yours-title": "Paid. It is yours"}
	entered, called := texts{"#place-title": "You are entered"}, texts{"#place-title": "It is your turn", "#place-clock": "left, until"}
	for name, way := range map[string]func(*walk){
		"rush": func(k *walk) {
			page := "/sales/" + k.s.sale(nil)
			k.begins(page)
			k.step(texts{"#button": "Buy for ¥9.90", "#left": "10 of 10 left"})
			k.presses("Buy")
			k.step(unpaid)
			k.pays(page)
			k.step(paid)
		},
		"waiting list": func(k *walk) {
			sale, early := k.s.sale(fields{"quota": 1, "waiting_list": true}), k.s.buyer("early")
			order := k.s.buy(sale, early, 1)
			k.begins("/sales/" + sale)
			k.step(texts{"#button": "Join the waiting list"})
			k.presses("Join")
			k.step(texts{"#place-title": "You are next"})
			k.s.call("DELETE", "/orders/"+order, early, nil, http.StatusOK)
			k.step(called)
			k.presses("Buy")
			k.step(unpaid)
		},
		"line": func(k *walk) {
			sale := k.s.queue("line", nil)
			k.begins("/sales/" + sale)
			k.step(texts{"#button": "Enter the line", "#how-units": "1"})
			k.presses("Enter")
			k.step(entered)
			k.s.begin(sale)
			k.step(called)
			k.presses("Buy")
			k.step(unpaid)
			k.pays("/sales/" + sale)
			k.step(paid)
		},
		"draw": func(k *walk) {
			sale := k.s.queue("draw", nil)
			k.begins("/sales/" + sale)
			k.step(texts{"#button": "Enter the draw", "#how-units": "1"})
			k.presses("Enter")
			k.step(entered)
			k.s.begin(sale)
			k.step(texts{"#yours-title": "You have won. Yours until", "#yours-pay": "Pay"})
			k.pays("/sales/" + sale)
			k.step(paid)
		},
		"campaign": func(k *walk) {
			id, sales := k.s.campaign(nil)
			page := "/campaigns/" + id + "#" + sales[0]
			k.begins(page)
			k.step(texts{"#button": "Buy for ¥199.00", "#left": "5 of 5 left"})
			k.presses("Buy")
			k.step(unpaid)
			k.pays(page)
			k.step(paid)
		},
		"campaign in line": func(k *walk) {
			id, sales := k.s.campaign(fields{
				"mode": "line", "limit_per_user": 1, "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour),
			})
			k.begins("/campaigns/" + id)
			k.presses("Enter the line")
			k.step(entered)
			k.s.call("PATCH", "/admin/campaigns/"+id, k.s.operator, fields{"starts_at": time.Now()}, http.StatusOK)
			k.step(called)
			k.click(size(sales[1]))
			k.other.click(size(sales[1]))
			k.presses("Buy for ¥199.00")
			k.step(unpaid)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, road := roadTo(t)
			way(&walk{s: s, road: road})
		})
	}
}
