package app_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/internal/ranks"
	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

type lineState struct {
	Mode       string
	Phase      string
	Entries    int64
	N          *int64
	Root, Seed string
	Secret     string
	Commitment string
	Serving    int64
	Left       int64
	Round      int64
	Signature  string
	Randomness string
	FirstAt    time.Time `json:"first_at"`
}

type ticket struct {
	Number   int64
	Quantity int
	Ticket   string
}

type lineEntry struct {
	Number   int64
	Rank     *int64
	Quantity int
	State    string
	Units    int
	Until    *time.Time
}

func (s *server) line(saleID string) (state lineState) {
	s.t.Helper()
	s.anyone().get("/api/v1/sales/" + saleID + "/line").read(&state)
	return state
}

func (c *client) enter(saleID string) (made ticket) {
	c.t.Helper()
	c.call("POST", "/api/v1/sales/"+saleID+"/entries", fields{}).want(http.StatusCreated).read(&made)
	return made
}

func (c *client) entry(saleID string) (e lineEntry) {
	c.t.Helper()
	c.get("/api/v1/sales/" + saleID + "/entries/mine").read(&e)
	return e
}

// soon makes a sale with a line, lets the users enter, starts the sale, and waits until the line is in a phase.
func (s *server) soon(changes fields, phase string, users ...string) (saleID string, tickets map[string]ticket) {
	s.t.Helper()
	saleID = s.createSale(fields{"starts_at": time.Now().Add(time.Hour / 2)}.changed(changes)).ID
	tickets = map[string]ticket{}
	for _, user := range users {
		tickets[user] = s.buyer(user).enter(saleID)
	}
	s.patchSale(saleID, fields{"starts_at": time.Now()})
	s.eventually("the line is "+phase, func() bool { return s.line(saleID).Phase == phase })
	return saleID, tickets
}

// The entrants of a line are called in the public order, which everybody can compute. Only who is called gets a path and
// an order.
func TestLine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hybrid", "optimistic", "mutex"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(s *config.Settings) { s.Strategy = name })
			saleID, tickets := s.soon(fields{"mode": "line", "quota": 2, "limit_per_user": 1}, "calling", "ann", "bob", "cat", "dan")
			s.eventually("two are called", func() bool { return s.line(saleID).Serving == 2 })
			state := s.line(saleID)
			check.Same(t, "line", []any{state.Mode, state.Entries, *state.N, state.Left}, []any{"line", int64(4), int64(4), int64(2)})
			order := ranks.Order{N: 4}
			check.NoError(t, second(hex.Decode(order.Seed[:], []byte(state.Seed))))
			byRank := map[int64]string{}
			for user, ticket := range tickets {
				e := s.buyer(user).entry(saleID)
				check.Same(t, user+"'s place", []int64{e.Number, *e.Rank}, []int64{ticket.Number, order.Rank(ticket.Number)})
				byRank[*e.Rank] = user
			}
			first, second, third, fourth := s.buyer(byRank[0]), s.buyer(byRank[1]), s.buyer(byRank[2]), s.buyer(byRank[3])
			pathURL := "/api/v1/sales/" + saleID + "/path"
			refusal := third.call("POST", pathURL, nil).refused(http.StatusConflict, "not_your_turn")
			check.Same(t, "place in the refusal", []int64{*refusal.Rank, *refusal.Serving}, []int64{2, 2})
			fourth.call("POST", pathURL, nil, "Line-Ticket", tickets[byRank[3]].Ticket).refused(http.StatusConflict, "not_your_turn")
			s.buyer("eve").call("POST", pathURL, nil).refused(http.StatusConflict, "not_your_turn")
			third.purchase(saleID, 1).refused(http.StatusConflict, "not_your_turn") // under a path from before

			bought := first.buy(saleID, 1)
			check.Same(t, "first", first.entry(saleID).State, "spent")
			second.call("DELETE", "/api/v1/sales/"+saleID+"/entries/mine", nil).want(http.StatusOK)
			s.eventually("the third is called", func() bool { return third.entry(saleID).State == "called" })
			third.buy(saleID, 1)
			first.cancel(bought.ID)
			s.eventually("the fourth is called", func() bool { return fourth.entry(saleID).State == "called" })
			fourth.buy(saleID, 1)
			s.wantStock(saleID, stock{held: 2})
		})
	}
}

// A rush becomes a line when it is sold out.
func TestWaitingList(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hybrid", "optimistic", "mutex"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(s *config.Settings) { s.Strategy = name })
			saleID := s.createSale(fields{"quota": 1, "waiting_list": true}).ID
			entries := "/api/v1/sales/" + saleID + "/entries"
			s.buyer("bob").call("POST", entries, fields{}).refused(http.StatusConflict, "no_line")
			s.anyone().call("GET", "/api/v1/sales/"+saleID+"/line", nil).refused(http.StatusConflict, "no_line")
			bought := s.buyer("ann").buy(saleID, 1)
			made := s.buyer("bob").enter(saleID)
			var again ticket
			s.buyer("bob").post(entries, fields{}).read(&again)
			check.Same(t, "the same entry", again, made)
			s.buyer("ann").cancel(bought.ID)
			s.eventually("bob is called", func() bool { return s.buyer("bob").entry(saleID).State == "called" })
			s.buyer("eve").purchase(saleID, 1).refused(http.StatusConflict, "not_your_turn")
			s.buyer("bob").buy(saleID, 1)
			s.wantStock(saleID, stock{held: 1})
		})
	}
}

// The winners of a draw get orders without doing anything.
func TestDraw(t *testing.T) {
	t.Parallel()
	s := start(t)
	users := make([]string, 20)
	for i := range users {
		users[i] = fmt.Sprintf("user-%d", i)
	}
	saleID := s.createSale(fields{"mode": "draw", "quota": 5, "starts_at": time.Now().Add(time.Hour / 2)}).ID
	s.anyone().call("GET", "/api/v1/sales/"+saleID+"/draw.json", nil).refused(http.StatusNotFound, "not_found")
	s.buyer("gone").enter(saleID)
	s.buyer("gone").call("DELETE", "/api/v1/sales/"+saleID+"/entries/mine", nil).want(http.StatusOK)
	tickets := map[string]ticket{}
	for _, user := range users {
		tickets[user] = s.buyer(user).enter(saleID)
	}
	s.patchSale(saleID, fields{"starts_at": time.Now()})
	s.eventually("the draw is over", func() bool { return s.line(saleID).Phase == "over" })
	state := s.line(saleID)
	public := ranks.Order{N: 21}
	check.NoError(t, second(hex.Decode(public.Seed[:], []byte(state.Seed))))
	won := 0
	for user, ticket := range tickets {
		before := public.Rank(ticket.Number)
		if public.Rank(0) < before {
			before-- // the entry that was left took no part
		}
		e, wins := s.buyer(user).entry(saleID), before < 5
		list := pages[order](s.buyer(user), "/api/v1/orders", "orders", 10)
		want := map[bool]string{true: "spent", false: "lost"}[wins]
		if e.State != want || (len(list) == 1) != wins {
			t.Errorf("rank %d: %s, %d orders", *e.Rank, e.State, len(list))
		}
		won += len(list)
	}
	check.Same(t, "orders", won, 5)

	doc, err := ranks.Read(bytes.NewReader(s.anyone().get("/api/v1/sales/" + saleID + "/draw.json").body))
	check.NoError(t, err)
	check.NoError(t, ranks.Check(doc, nil))
	check.Same(t, "winners, void", []int{len(doc.Winners), len(doc.Void)}, []int{5, 1})
	var proof struct {
		Number int64
		Tag    ranks.Hash
		Path   []ranks.Hash
	}
	s.buyer(users[7]).get("/api/v1/sales/" + saleID + "/entries/mine/proof").read(&proof)
	check.Same(t, "the own tag", proof.Tag, doc.Tags[proof.Number])
	check.Same(t, "the path of the own entry to the root", proof.Path, ranks.Path(doc.Tags, proof.Number))
	s.buyer("late").call("GET", "/api/v1/sales/"+saleID+"/entries/mine/proof", nil).refused(http.StatusNotFound, "not_found")
	s.buyer("late").call("POST", "/api/v1/sales/"+saleID+"/entries", fields{}).refused(http.StatusConflict, "entries_closed")
	s.wantStock(saleID, stock{held: 5})
}

// What is wrong with a line is told by field.
func TestLineInput(t *testing.T) {
	t.Parallel()
	s := usual(t)
	for field, wrong := range map[string]fields{
		"mode":         {"mode": "auction"},
		"call_seconds": {"mode": "line", "call_seconds": 1},
		"entries_at":   {"mode": "draw", "entries_at": time.Now().Add(time.Hour)},
	} {
		got := s.operator().call("POST", adminSales, newSale(wrong)).refused(http.StatusBadRequest, "bad_request")
		check.Same(t, "field", got.Field, field)
	}
	for _, field := range model.ModeFields {
		values := fields{"waiting_list": true, "beacon": true, "entries_at": time.Now().Add(-time.Hour), "entry_work": 1000, "call_seconds": 90, "stock_shown": "few"}
		if got := values[field.Name]; got == nil {
			t.Errorf("no value of %s", field.Name)
		}
		for _, mode := range model.Modes {
			if field.ActsIn(model.Sale{Mode: mode, WaitingList: field.Name == "waiting_list"}) {
				s.createSale(fields{"mode": mode, "starts_at": time.Now().Add(time.Hour / 2), field.Name: values[field.Name]})
				continue
			}
			got := s.operator().call("POST", adminSales, newSale(fields{"mode": mode, field.Name: values[field.Name]})).refused(http.StatusBadRequest, "bad_request")
			check.Same(t, "the field", got.Field, field.Name)
			if !strings.HasPrefix(got.Detail, field.Name+" has no effect in the mode "+string(mode)) {
				t.Errorf("%s in a %s: %s", field.Name, mode, got.Detail)
			}
		}
	}
	saleID := s.createSale(fields{"mode": "line", "starts_at": time.Now().Add(time.Hour / 2)}).ID
	for _, quantity := range []int{0, 3} {
		s.buyer("ann").call("POST", "/api/v1/sales/"+saleID+"/entries", fields{"quantity": quantity}).refused(http.StatusBadRequest, "bad_request")
	}
	s.buyer("ann").call("GET", "/api/v1/sales/"+saleID+"/entries/mine", nil).refused(http.StatusNotFound, "not_found")
	saleID = s.createSale(nil).ID
	s.buyer("ann").call("POST", "/api/v1/sales/"+saleID+"/entries", fields{}).refused(http.StatusConflict, "no_line")
}

func second[T any](_ T, err error) error { return err }

// The event stream of a sale brings the state of its line before the stock. A client that knows both hears nothing.
func TestLineEvents(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"mode": "line", "quota": 1, "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)}).ID
	entering := s.events(saleID)
	first, second := entering.next(), entering.next()
	check.Same(t, "events", []string{first.name, second.name}, []string{"line", "stock"})
	var shown lineState
	check.NoError(t, json.Unmarshal([]byte(first.data), &shown))
	check.Same(t, "the line", shown, s.line(saleID))
	s.buyer("ann").enter(saleID)
	s.patch(saleID, fields{"starts_at": time.Now().Add(time.Second)}).want(http.StatusOK)
	hearUntil(entering, "ann is called", func(l lineState) bool { return l.Serving == 1 && l.Seed != "" && !l.FirstAt.IsZero() })
	known := entering.next() // the stock, with the id of both
	check.Same(t, "name", known.name, "stock")
	again := s.events(saleID, "Last-Event-Id", known.id)
	s.buyer("ben").enter(saleID) // no reason for an event
	s.buyer("ann").buy(saleID, 1)
	line := entering.next()
	check.Same(t, "name", line.name, "line")
	check.Same(t, "the first event of a client that knew the one before", again.next().data, line.data)
}

// A sale may ask its entrants for work, which each has to do for the own entry.
func TestEntryWork(t *testing.T) {
	t.Parallel()
	for name, stores := range map[string]func(*config.Settings){"embedded": asTheyAre, "servers": withStores(kit.ServerStores(t))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stores)
			got := s.operator().call("POST", adminSales, newSale(fields{"mode": "line", "entry_work": -1})).refused(http.StatusBadRequest, "bad_request")
			check.Same(t, "field", got.Field, "entry_work")
			saleID := s.createSale(fields{"mode": "line", "entry_work": 1000}).ID
			entries := "/api/v1/sales/" + saleID + "/entries"
			work := func(user string) string {
				t.Helper()
				var c auth.Challenge
				s.buyer(user).get(entries + "/challenge").read(&c)
				check.Same(t, "most hashes", c.MaxNumber, int64(1000))
				for number := range c.MaxNumber + 1 {
					if fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, c.Salt, number))) == c.Challenge {
						return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"algorithm":"SHA-256","challenge":%q,"number":%d,"salt":%q,"signature":%q}`,
							c.Challenge, number, c.Salt, c.Signature))
					}
				}
				t.Fatal("the challenge has no solution")
				return ""
			}
			ann, bob := s.buyer("ann"), s.buyer("bob")
			ann.call("POST", entries, fields{}).refused(http.StatusForbidden, "work_required")
			ann.call("POST", entries, fields{"altcha": work("bob")}).refused(http.StatusForbidden, "work_required")
			done := work("ann")
			ann.call("POST", entries, fields{"altcha": done}).want(http.StatusCreated)
			ann.call("POST", entries, fields{"altcha": done}).want(http.StatusOK) // the same entry
			bob.call("POST", entries, fields{"altcha": work("bob")}).want(http.StatusCreated)
			s.eventually("both are counted", func() bool { return s.line(saleID).Entries == 2 })
			free := s.createSale(fields{"mode": "line"}).ID
			ann.call("GET", "/api/v1/sales/"+free+"/entries/challenge", nil).refused(http.StatusNotFound, "not_found")
		})
	}
}
