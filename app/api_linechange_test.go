package app_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"flashsale/internal/ranks"
	"flashsale/test/kit/check"
)

// lineFigures are the figures of a line on the console.
type lineFigures struct {
	Line *struct {
		Phase                           string
		Entries, Waiting, Serving       int64
		Reserved, Called, Spent, Lapsed int64
		CallSeconds                     int `json:"call_seconds"`
	}
}

func (s *server) patch(saleID string, changes fields) *answer {
	s.t.Helper()
	return s.operator().call("PATCH", adminSales+"/"+saleID, changes)
}

func (s *server) operations(saleID string) (actions []string) {
	s.t.Helper()
	for _, o := range pages[struct{ Action string }](s.operator(), adminSales+"/"+saleID+"/operations", "operations", 100) {
		actions = append(actions, o.Action)
	}
	return actions
}

// An operator removes entries before the seal. The proof names them as void, and their users have no place.
func TestEntriesAreVoided(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"mode": "draw", "quota": 1, "starts_at": time.Now().Add(time.Hour / 2)}).ID
	void := adminSales + "/" + saleID + "/line/void"
	for _, user := range []string{"bot-1", "bot-2", "ann"} {
		s.buyer(user).enter(saleID)
	}
	for _, wrong := range []struct {
		field string
		rule  fields
	}{
		{"reason", fields{"from": 0, "to": 1}},
		{"from", fields{"reason": "bots"}},
		{"users", fields{"reason": "bots", "users": []string{}}},
		{"to", fields{"reason": "bots", "from": 0}},
		{"to", fields{"reason": "bots", "from": 3, "to": 2}},
		{"to", fields{"reason": "bots", "from": 0, "to": 100_000}},
	} {
		check.Same(t, "field", s.operator().call("POST", void, wrong.rule).refused(http.StatusBadRequest, "bad_request").Field, wrong.field)
	}
	s.buyer("ann").call("POST", void, fields{"from": 0, "to": 1, "reason": "bots"}).refused(http.StatusForbidden, "forbidden")
	var did struct{ Voided int }
	for _, step := range []struct {
		rule fields
		want int
	}{
		{fields{"users": []string{"bot-1", "nobody"}, "reason": "a bot"}, 1},
		{fields{"from": 0, "to": 1, "reason": "bots"}, 1}, // the first one is void already
		{fields{"from": 7, "to": 9, "reason": "bots"}, 0},
	} {
		s.operator().call("POST", void, step.rule).want(http.StatusOK).read(&did)
		check.Same(t, "voided", did.Voided, step.want)
	}
	check.Same(t, "the bot's state", s.buyer("bot-1").entry(saleID).State, "voided")
	s.buyer("bot-1").call("DELETE", "/api/v1/sales/"+saleID+"/entries/mine", nil).refused(http.StatusNotFound, "not_found")

	s.patch(saleID, fields{"starts_at": time.Now().Add(time.Second)}).want(http.StatusOK)
	s.eventually("the draw is over", func() bool { return s.line(saleID).Phase == "over" })
	doc, err := ranks.Read(bytes.NewReader(s.anyone().get("/api/v1/sales/" + saleID + "/draw.json").body))
	check.NoError(t, err)
	check.NoError(t, ranks.Check(doc, nil))
	check.Same(t, "winners, void", [][]int64{doc.Winners, doc.Void}, [][]int64{{2}, {0, 1}})
	s.operator().call("POST", void, fields{"from": 0, "to": 9, "reason": "late"}).refused(http.StatusConflict, "entries_closed")
	check.Same(t, "log", s.operations(saleID), []string{"patch", "void_entries", "void_entries", "void_entries", "create"})
	none := s.createSale(nil).ID
	s.operator().call("POST", adminSales+"/"+none+"/line/void", fields{"from": 0, "to": 1, "reason": "bots"}).refused(http.StatusConflict, "no_line")
}

// An operator lets calls end later, and changes how long the next ones last. The console counts calls that became orders
// and calls that did not.
func TestCallsAreExtended(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID, _ := s.soon(fields{"mode": "line", "quota": 2, "limit_per_user": 1, "call_seconds": 60}, "calling", "ann", "bob", "cat")
	live := s.console(saleID)
	var called []string
	s.eventually("two are called", func() bool {
		called = nil
		for _, user := range []string{"ann", "bob", "cat"} {
			if s.buyer(user).entry(saleID).State == "called" {
				called = append(called, user)
			}
		}
		return len(called) == 2
	})
	before := *s.buyer(called[0]).entry(saleID).Until
	extend := adminSales + "/" + saleID + "/line/extend"
	s.operator().call("POST", extend, fields{"seconds": 0}).refused(http.StatusBadRequest, "bad_request")
	var did struct{ Calls int }
	s.operator().call("POST", extend, fields{"seconds": 600}).want(http.StatusOK).read(&did)
	check.Same(t, "calls", did.Calls, 2)
	check.Same(t, "until", *s.buyer(called[0]).entry(saleID).Until, before.Add(10*time.Minute))
	s.patch(saleID, fields{"call_seconds": 300}).want(http.StatusOK)
	s.buyer(called[0]).buy(saleID, 1)
	s.exec("UPDATE calls SET until_ms = 1 WHERE sale_id = ?", saleID)
	f := hearUntil(live, "one call became an order, one lapsed, and the last one is called", func(f lineFigures) bool {
		return f.Line != nil && f.Line.Spent == 1 && f.Line.Lapsed == 1 && f.Line.Called == 1
	})
	check.Same(t, "figures", []any{f.Line.Phase, f.Line.Entries, f.Line.Waiting, f.Line.Serving, f.Line.Reserved, f.Line.CallSeconds},
		[]any{"calling", int64(3), int64(0), int64(3), int64(0), 300})
	for _, user := range []string{"ann", "bob", "cat"} {
		if e := s.buyer(user).entry(saleID); e.State == "called" && time.Until(*e.Until) < time.Minute {
			t.Errorf("%s is called until %v", user, e.Until)
		}
	}
	s.operator().call("POST", adminSales+"/"+s.createSale(nil).ID+"/line/extend", fields{"seconds": 5}).refused(http.StatusConflict, "no_line")
}

// A rush gets a waiting list while it sells, and keeps it once the list has begun.
func TestWaitingListIsTurnedOn(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 1}).ID
	s.patch(saleID, fields{"call_seconds": 60}).refused(http.StatusBadRequest, "bad_request")
	for _, on := range []bool{true, false, true} {
		s.patch(saleID, fields{"waiting_list": on}).want(http.StatusOK)
		s.eventually("the sale shows it", func() bool {
			return (s.anyone().get("/api/v1/sales/" + saleID).object()["waiting_list"] == true) == on
		})
	}
	bought := s.buyer("ann").buy(saleID, 1)
	s.buyer("bob").enter(saleID)
	s.patch(saleID, fields{"waiting_list": false}).refused(http.StatusConflict, "entries_closed")
	s.buyer("ann").cancel(bought.ID)
	s.eventually("bob is called", func() bool { return s.buyer("bob").entry(saleID).State == "called" })
	s.buyer("bob").buy(saleID, 1)

	saleID = s.createSale(fields{"quota": 1}).ID // turned on when it is sold out
	bought = s.buyer("ann").buy(saleID, 1)
	s.patch(saleID, fields{"waiting_list": true}).want(http.StatusOK)
	s.buyer("bob").enter(saleID)
	s.buyer("ann").cancel(bought.ID)
	s.eventually("bob is called", func() bool { return s.buyer("bob").entry(saleID).State == "called" })

	saleID = s.createSale(nil).ID
	s.operator().post(adminSales+"/"+saleID+"/close", nil)
	s.patch(saleID, fields{"waiting_list": true}).refused(http.StatusConflict, "entries_closed")
	start := time.Now().Add(10 * time.Minute)
	saleID = s.createSale(fields{"mode": "draw", "starts_at": start, "waiting_list": true}).ID
	s.buyer("ann").enter(saleID) // in the hope of the list as well
	s.patch(saleID, fields{"waiting_list": false}).refused(http.StatusConflict, "entries_closed")
	saleID = s.createSale(fields{"mode": "line", "starts_at": start}).ID
	s.patch(saleID, fields{"entries_at": start.Add(time.Minute)}).refused(http.StatusBadRequest, "bad_request")
	s.patch(saleID, fields{"entries_at": start.Add(-time.Minute)}).want(http.StatusOK)
	s.buyer("ann").call("POST", "/api/v1/sales/"+saleID+"/entries", fields{}).refused(http.StatusConflict, "not_started")
	s.patch(saleID, fields{"entries_at": time.Now().Add(-time.Minute), "starts_at": time.Now().Add(-time.Second)}).want(http.StatusOK)
	s.eventually("the line calls", func() bool { return s.line(saleID).Phase == "calling" })
	s.patch(saleID, fields{"entries_at": time.Now().Add(-time.Hour)}).refused(http.StatusConflict, "entries_closed")
}
