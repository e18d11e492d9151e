package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
	"flashsale/test/kit/drand"
	"flashsale/test/kit/pace"
)

// queue is a sale that starts in an hour, in a mode, with these changes.
func (s *server) queue(mode string, changes fields) string {
	s.t.Helper()
	sale := fields{"mode": mode, "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour), "quota": 1}
	for name, value := range changes {
		sale[name] = value
	}
	return s.sale(sale)
}

// begin lets a sale start now.
func (s *server) begin(saleID string) {
	s.t.Helper()
	s.call("PATCH", "/admin/sales/"+saleID, s.operator, fields{"starts_at": time.Now()}, http.StatusOK)
}

// entrant is a buyer with a window.
type entrant struct {
	*window
	name, token string
}

// enters opens the page of a sale or a campaign for a new buyer, who enters its line.
func (s *server) enters(look look, page, name, button string) entrant {
	s.t.Helper()
	e := entrant{s.open(look, page, "status of 404", "status of 409"), name, s.buyer(name)}
	e.wakes("#button")
	e.see("#button", button)
	e.logInAs(name)
	e.wakes("#button")
	e.click("#button")
	e.see("#place-leave", "")
	e.gone("#button")
	return e
}

// entry returns a buyer's entry by the API.
func (s *server) entry(saleID, token string) fields {
	s.t.Helper()
	return s.call("GET", "/sales/"+saleID+"/entries/mine", token, nil, http.StatusOK)
}

// byRank waits until the order is drawn, and sorts entrants by it.
func (s *server) byRank(saleID string, list []entrant) {
	s.t.Helper()
	rank := func(e entrant) float64 {
		at, known := s.entry(saleID, e.token)["rank"].(float64)
		if !known {
			at = -1
		}
		return at
	}
	list[0].until("the order is drawn", func() (string, bool) { return "", rank(list[0]) >= 0 })
	slices.SortFunc(list, func(a, b entrant) int { return int(rank(a) - rank(b)) })
}

// beeps counts the tones that a window plays from now on.
func (w *window) beeps() (count func() int) {
	w.t.Helper()
	js[bool](w, `{
		window.tones = 0;
		const start = OscillatorNode.prototype.start;
		OscillatorNode.prototype.start = function (...at) { window.tones++; return start.apply(this, at); };
		true;
	}`)
	return func() int { return js[int](w, `window.tones`) }
}

// Three buyers enter a line. The first is called and buys; the second keeps the place over a reload and is told of a call
// by sound; the third leaves.
func TestLine(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.queue("line", nil)
	list := []entrant{
		s.enters(phone, "/sales/"+sale, "ann", "Enter the line"), s.enters(phone, "/sales/"+sale, "bob", "Enter the line"),
		s.enters(phone, "/sales/"+sale, "cat", "Enter the line"),
	}
	for _, e := range list {
		e.sees(texts{"#place-title": "You are entered", "#place-more": "drawn at the start"})
	}
	list[0].focused("place-title")
	list[0].visit("/sales/" + sale) // a reload
	list[0].see("#place-title", "You are entered")
	list[0].lacks("#button")
	list[0].show("line-entered")

	s.begin(sale)
	s.byRank(sale, list)
	first, second, third := list[0], list[1], list[2]
	first.sees(texts{"#place-title": "It is your turn", "#place-clock": "left, until", "#button": "Buy for ¥9.90"})
	first.becomes("the title calls", `document.title.startsWith("Your turn! Teapot")`)
	first.show("line-called")
	second.see("#place-title", "You are next")
	third.see("#place-title", "1 before you")
	third.lacks("#button")
	third.click("#proof summary")
	third.see("#proof-result", "your rank follows from the seed")
	third.see("#proof-rank", "2")
	third.show("line-waiting")
	third.visit("/sales/" + sale)
	third.see("#place-title", "1 before you")
	third.click("#place-leave")
	third.see("#leave", "Leave the line?")
	third.show("line-leave")
	third.click("#leave [data-leave]")
	third.see("#place-title", "1 before you")
	third.click("#place-leave", "#leave-yes")
	third.see("#place-title", "You have left the line")
	third.visit("/sales/" + sale)
	third.see("#place-title", "You have left the line")

	first.wakes("#button")
	first.click("#button")
	first.see("#yours-title", "Yours until")
	first.lacks("#place")
	second.click("#place-sound")
	second.see("#place-sound", "Sound: off")
	second.visit("/sales/" + sale)
	second.sees(texts{"#place-title": "You are next", "#place-sound": "Sound: off"})
	second.click("#place-sound")
	second.see("#place-sound", "Sound: on")
	tones := second.beeps()
	first.click("#yours-cancel", "#ask-yes")
	first.sees(texts{"#notice": "The order is cancelled"})
	second.see("#place-title", "It is your turn")
	second.until("a sound is played", func() (string, bool) { return "", tones() == 2 })
	second.click("#place-leave", "#leave-yes")
	second.see("#place-title", "You have left the line")
	second.becomes("the title is quiet", `document.title.startsWith("Teapot")`)
}

// Before the entry, the page says how a line or a draw works, how many can win, what that costs, and when it ends.
func TestRulesBeforeTheEntry(t *testing.T) {
	t.Parallel()
	s := serve(t)
	price := fields{"quota": 3, "price_cents": 1250, "call_seconds": 120, "pay_timeout_seconds": 900}
	draw, line := s.queue("draw", price), s.queue("line", price)
	s.call("POST", "/sales/"+draw+"/entries", s.buyer("ann"), fields{"quantity": 1}, http.StatusCreated)
	w := s.open(phone, "/sales/"+draw, "status of 404") // of a buyer who has no entry
	w.sees(texts{
		"#how-when": "The winners are drawn at the start", "#how-units": "Units to be won: 3", "#how-entries": "Entries so far: 1",
		"#how-cost": "at ¥12.50 for each unit. You then have 15 minutes to pay", "#how-end": "GMT+8, in 01:",
	})
	first := w.text("#how-when")
	w.until("the time to the draw is counted down", func() (string, bool) { return first, w.text("#how-when") != first })
	w.show("draw-rules")
	w.speak("zh")
	w.sees(texts{"#how-when": "开始时抽签", "#how-cost": "每件 ¥12.50；请在 15分钟内付款"})
	w.visit("/sales/" + line)
	w.speak("en")
	w.sees(texts{
		"#how-when": "The order of all who have entered is drawn at the start", "#how-units": "Units: 3. They are sold to those in line",
		"#how-cost": "you have 2 minutes to buy, at ¥12.50 for each unit. You then have 15 minutes to pay",
	})
	s.begin(line)
	w.see("#how-when", "You queue behind those who have entered before you")
	w.signUp("bob")
	w.click("#button")
	w.see("#place-title", "It is your turn")
	w.lacks("#how")

	sizes := []fields{{"variant": "41", "quota": 2, "price_cents": 900}, {"variant": "42", "quota": 2, "price_cents": 1100}}
	campaign, _ := s.campaign(fields{"mode": "draw", "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour), "sales": sizes})
	w.visit("/campaigns/" + campaign)
	w.sees(texts{"#how-units": "Units to be won: 4", "#how-cost": "you choose and buy within 2 minutes, at ¥9.00 – ¥11.00"})

	list := s.sale(fields{"quota": 1, "waiting_list": true})
	w.visit("/sales/" + list)
	w.see("#button", "Buy for")
	w.lacks("#how")
	s.buy(list, s.buyer("cat"), 1)
	w.sees(texts{"#how-units": "those of orders that are not paid come back", "#how-cost": "Joining is free"})
}

// Before entries open, the button says when they do.
func TestEntriesOpen(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := serve(t)
		opens := time.Now().Add(soon(t, 8*time.Second))
		w := s.open(phone, "/sales/"+s.queue("draw", fields{"entries_at": opens}))
		w.see("#button", "Entries open in 00:")
		grey := w.grey("#button")
		early(t, opens)
		check.Same(t, "the button is grey", grey, true)
		w.see("#button", "Enter the draw")
		w.wakes("#button")
	})
}

// A call that ends without a purchase goes to the next. Whoever comes late queues behind, and chooses at most as many units
// as a call has.
func TestCallEnds(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := serve(t)
		sale := s.queue("line", fields{"limit_per_user": 3, "call_seconds": soon(t, 12*time.Second).Seconds()})
		ann := s.enters(desktop, "/sales/"+sale, "ann", "Enter the line")
		s.begin(sale)
		ann.see("#place-title", "It is your turn")
		bob := s.open(phone, "/sales/"+sale, "status of 404")
		bob.see("#button", "Enter the line")
		bob.wakes("#button")
		bob.click("#button")
		bob.see("#account-reason", "So that the place is yours")
		bob.register("bob")
		bob.see("#place-title", "It is your turn")
		bob.see("#button", "Buy for ¥9.90")
		bob.lacks("#quantity")
		bob.click("#proof summary")
		bob.see("#proof-result", "You entered after the start")
		ann.see("#place-title", "Your call has ended")
		ann.lacks("#button")
		ann.show("line-lapsed")
	})
}

// Who entered for two units and is called is offered two, also after a reload.
func TestCallKeepsItsUnits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.queue("line", fields{"quota": 2, "limit_per_user": 2})
	s.call("POST", "/sales/"+sale+"/entries", s.buyer("ann"), fields{"quantity": 2}, http.StatusCreated)
	ann := s.open(phone, "/sales/"+sale, "status of 404")
	ann.wakes("#button")
	ann.logInAs("ann")
	ann.see("#place-title", "You are entered")
	s.begin(sale)
	for range 2 {
		ann.sees(texts{"#place-title": "It is your turn", "#button": "¥19.80"})
		ann.visit("/sales/" + sale)
	}
}

// A draw tells each buyer the result, and how to check it.
func TestDraw(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.queue("draw", nil)
	list := []entrant{s.enters(desktop, "/sales/"+sale, "ann", "Enter the draw"), s.enters(phone, "/sales/"+sale, "bob", "Enter the draw")}
	list[0].sees(texts{"#place-title": "You are entered", "#place-more": "winners are drawn"})
	s.begin(sale)
	s.byRank(sale, list)
	won, lost := list[0], list[1]
	won.sees(texts{"#yours-title": "You have won. Yours until", "#yours-more": "left to pay", "#yours-pay": "Pay ¥9.90"})
	won.becomes("the title tells the winner", `document.title.startsWith("You have won! Teapot")`)
	won.show("draw-won")
	won.visit("/sales/" + sale)
	won.see("#yours-pay", "Pay ¥9.90")
	elsewhere := s.open(phone, "/sales/"+sale)
	elsewhere.see("#button", "Entries are closed")
	elsewhere.logInAs(won.name)
	elsewhere.see("#yours-pay", "Pay ¥9.90") // this browser has not seen the order before
	lost.see("#place-title", "You have not won")
	lost.lacks("#place-orders", "#place-leave", "#yours")
	lost.click("#proof summary")
	lost.see("#proof-result", "your rank follows from the seed")
	line := s.call("GET", "/sales/"+sale+"/line", "", nil, http.StatusOK)
	for _, name := range []string{"commitment", "root", "secret", "seed"} {
		lost.see("#proof-"+name, text(line[name]))
	}
	lost.sees(texts{"#proof-n": "2", "#proof-rank": "1"})
	lost.show("draw-lost")
	won.click("#yours-pay", `button[value="pay"]`)
	won.see("[role=status]", "Paid. Thank you")
	won.visit("/sales/" + sale)
	won.see("#yours-title", "Paid. It is yours")
	won.becomes("the title is quiet", `document.title.startsWith("Teapot")`)
	late := s.open(phone, "/sales/"+sale)
	late.see("#button", "Entries are closed")
	check.Same(t, "the button is grey", late.grey("#button"), true)
}

// A draw with a beacon waits for the round that was named at the start, and the page checks the result with its randomness.
func TestDrawWithBeacon(t *testing.T) {
	t.Parallel()
	relay := drand.Serve(t)
	relay.Break(func(w http.ResponseWriter, _ int64) { w.WriteHeader(http.StatusServiceUnavailable) })
	s := serve(t, "--beacon="+relay.URL, "--beacon-chain="+relay.Info())
	sale := s.queue("draw", fields{"beacon": true})
	ann := s.enters(phone, "/sales/"+sale, "ann", "Enter the draw")
	s.begin(sale)
	ann.see("#place-more", "The draw waits for round")
	line := s.call("GET", "/sales/"+sale+"/line", "", nil, http.StatusOK)
	round, _ := line["round"].(float64)
	ann.see("#place-more", fmt.Sprintf("round %.0f of drand", round))
	ann.click("#proof summary")
	ann.sees(texts{"#proof-result": "not drawn yet", "#proof-round": fmt.Sprintf("%.0f", round), "#proof-root": text(line["root"]), "#proof-seed": "–"})
	ann.show("draw-beacon")
	relay.Break(nil)
	ann.see("#place-title", "You have won")
	ann.see("#proof-result", "your rank follows from the seed")
	ann.see("#yours-pay", "Pay ¥9.90") // the proof stays beside the order
	ann.see("#proof-randomness", text(s.call("GET", "/sales/"+sale+"/line", "", nil, http.StatusOK)["randomness"]))
	ann.show("draw-beacon-won")
}

// The page does the work that a sale asks of its entrants.
func TestEntryWork(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ann := s.enters(phone, "/sales/"+s.queue("draw", fields{"entry_work": 50_000}), "ann", "Enter the draw")
	ann.see("#place-title", "You are entered")
}

// Once a rush is sold out, buyers join its waiting list. A unit that comes back is offered to the first of them, and to
// nobody else.
func TestWaitingList(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 1, "waiting_list": true})
	early := s.buyer("early")
	other := s.open(phone, "/sales/"+sale)
	other.see("#button", "Buy for")
	order := s.buy(sale, early, 1)
	other.sees(texts{"#notice": "go to the waiting list", "#button": "Join the waiting list"})
	ann := s.enters(phone, "/sales/"+sale, "ann", "Join the waiting list")
	ann.see("#place-title", "You are next")
	bob := s.enters(phone, "/sales/"+sale, "bob", "Join the waiting list")
	bob.sees(texts{"#place-title": "1 before you", "#place-pace": "No unit has come back yet"})
	bob.lacks("#proof")
	bob.show("list-waiting")
	s.call("DELETE", "/orders/"+order, early, nil, http.StatusOK)
	ann.see("#place-title", "It is your turn")
	bob.sees(texts{"#place-title": "You are next", "#place-pace": "At the pace so far it is your turn in about"})
	bob.show("list-pace")
	if said := other.text("#button"); strings.Contains(said, "Buy") {
		t.Errorf("a buyer who is not called may click on %q", said)
	}
	ann.wakes("#button")
	ann.click("#button")
	ann.see("#yours-title", "Yours until")
	s.hasOrders("ann", 1)
	bob.speak("zh")
	bob.see("#place-title", "下一个就是您")
}

// The event stream of the sale brings the place and the call, even if the line can't be read otherwise.
func TestPlaceByStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.queue("line", fields{"quota": 1})
	ann := s.enters(phone, "/sales/"+sale, "ann", "Enter the line")
	js[bool](ann.window, `const real = fetch; window.fetch = (to, ...rest) => (String(to.url ?? to).endsWith("/line") ? Promise.reject(new TypeError()) : real(to, ...rest)); true`)
	s.begin(sale)
	ann.see("#place-title", "It is your turn")
}

// A page without crypto.subtle, as on plain http, shows the rank that the server gives. While the line can't be read, the
// page keeps showing the last place.
func TestPlaceWithoutCrypto(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.queue("line", fields{"quota": 1})
	ann, bob := s.enters(phone, "/sales/"+sale, "ann", "Enter the line"), s.enters(phone, "/sales/"+sale, "bob", "Enter the line")
	for _, e := range []entrant{ann, bob} {
		js[bool](e.window, `Object.defineProperty(crypto, "subtle", { value: undefined }), true`)
	}
	s.begin(sale)
	list := []entrant{ann, bob}
	s.byRank(sale, list)
	list[0].see("#place-title", "It is your turn")
	list[1].see("#place-title", "You are next")
	list[1].click("#proof summary")
	list[1].sees(texts{"#proof-result": "only on pages from https", "#proof-rank": fmt.Sprint(1)})
}
