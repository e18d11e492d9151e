package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// The checkers are tested as well: each kind of violation is found, and a correct run has no findings.

// attempt returns a user's attempt under the key k, with its answer.
func attempt(user string, status int, order string) shop.Attempt {
	return shop.Attempt{User: user, Key: "k", Status: status, OrderID: order}
}

func TestJudge(t *testing.T) {
	pending := func(id, user string) written { return written{id, user, "k", "pending", 1} }
	for name, tc := range map[string]struct {
		attempts []shop.Attempt
		orders   []written
		status   string // of queued orders that are not in the database
		want     findings
	}{
		"nothing happened": {},
		"confirmed, refused, without an answer": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), attempt("b", 409, ""), attempt("c", 0, ""), attempt("d", 503, "")},
			orders:   []written{pending("1", "a"), pending("2", "c")},
			want:     findings{confirmed: 1},
		},
		"a queued one became an order": {
			attempts: []shop.Attempt{attempt("a", 202, "1")},
			orders:   []written{pending("1", "a")},
			want:     findings{confirmed: 1},
		},
		"a queued one was rejected": {attempts: []shop.Attempt{attempt("a", 202, "1")}, status: "rejected"},
		"a queued one is still queued": {
			attempts: []shop.Attempt{attempt("a", 202, "1")}, status: "queued",
			want: findings{open: []string{"1 is queued"}},
		},
		"a queued one is said to be an order and isn't there": {
			attempts: []shop.Attempt{attempt("a", 202, "1")}, status: "pending",
			want: findings{open: []string{"1 is pending"}},
		},
		"a repeated key has one order": {
			attempts: []shop.Attempt{attempt("a", 0, ""), attempt("a", 201, "1"), attempt("a", 201, "1")},
			orders:   []written{pending("1", "a")},
			want:     findings{confirmed: 2},
		},
		"a key was refused before it was confirmed": {
			attempts: []shop.Attempt{attempt("a", 429, ""), attempt("a", 201, "1")},
			orders:   []written{pending("1", "a")},
			want:     findings{confirmed: 1},
		},
		"without a key": {
			attempts: []shop.Attempt{{User: "a", Status: 201, OrderID: "1"}},
			orders:   []written{pending("1", "a")},
			want:     findings{confirmed: 1},
		},
		"cancelled, then bought again": {
			attempts: []shop.Attempt{{User: "a", Key: "old", Status: 201, OrderID: "1"}, attempt("a", 201, "2")},
			orders:   []written{{"1", "a", "old", "cancelled", 1}, pending("2", "a")},
			want:     findings{confirmed: 2},
		},
		"a confirmed order is not there": {
			attempts: []shop.Attempt{attempt("a", 201, "1")},
			want:     findings{confirmed: 1, lost: []string{"1"}},
		},
		"a confirmed order is another user's": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), attempt("b", 0, "")},
			orders:   []written{pending("1", "b")},
			want:     findings{confirmed: 1, lost: []string{"1"}},
		},
		"a confirmed order has another key": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), {User: "a", Key: "other"}},
			orders:   []written{{"1", "a", "other", "pending", 1}},
			want:     findings{confirmed: 1, lost: []string{"1"}},
		},
		"one order promised to two users": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), attempt("b", 201, "1")},
			orders:   []written{pending("1", "a")},
			want:     findings{confirmed: 2, lost: []string{"1"}, doubled: []string{"1 for two users"}},
		},
		"two orders of one key": {
			attempts: []shop.Attempt{attempt("a", 201, "1")},
			orders:   []written{pending("1", "a"), {"2", "a", "k", "cancelled", 1}},
			want:     findings{confirmed: 1, doubled: []string{"2 of a"}},
		},
		"two rows of one id": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), {User: "a", Key: "other"}},
			orders:   []written{pending("1", "a"), {"1", "a", "other", "cancelled", 1}},
			want:     findings{confirmed: 1, lost: []string{"1"}, doubled: []string{"1 of a"}},
		},
		"a user above the limit": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), {User: "a", Key: "other", Status: 201, OrderID: "2"}},
			orders:   []written{pending("1", "a"), {"2", "a", "other", "paid", 1}},
			want:     findings{confirmed: 2, over: []string{"a holds 2 of 1"}},
		},
		"more than the quota": {
			attempts: []shop.Attempt{attempt("a", 201, "1"), attempt("b", 201, "2"), attempt("c", 201, "3")},
			orders:   []written{pending("1", "a"), pending("2", "b"), pending("3", "c")},
			want:     findings{confirmed: 3, over: []string{"3 sold of 2"}},
		},
		"an order that nobody asked for": {
			orders: []written{pending("1", "a")},
			want:   findings{over: []string{"a has an order and never asked"}},
		},
		"an order of one who was only refused": {
			attempts: []shop.Attempt{attempt("a", 409, ""), attempt("a", 429, "")},
			orders:   []written{pending("1", "a")},
			want:     findings{over: []string{"a has an order and was only refused"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.attempts, tc.orders, 2, 1, func(shop.Attempt) string { return tc.status })
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if violated := len(tc.want.lost)+len(tc.want.doubled)+len(tc.want.over)+len(tc.want.open) > 0; got.clean() == violated {
				t.Errorf("clean is %t", got.clean())
			}
		})
	}
}

func TestKept(t *testing.T) {
	did := func(does string, status int) []deed { return []deed{{does, attempt("a", status, "1")}} }
	for name, tc := range map[string]struct {
		deeds  []deed
		status string
		broken bool
	}{
		"nothing was done":                        {nil, "pending", false},
		"cancelled":                               {did(toCancel, 200), "cancelled", false},
		"paid":                                    {did(toPay, 200), "paid", false},
		"perhaps cancelled, and is":               {did(toCancel, 0), "cancelled", false},
		"perhaps cancelled, and isn't":            {did(toCancel, 503), "pending", false},
		"perhaps paid, and is":                    {did(toPay, 500), "paid", false},
		"refused":                                 {did(toCancel, 409), "pending", false},
		"cancelled by nobody":                     {nil, "cancelled", true},
		"expired before its time":                 {nil, "expired", true},
		"cancelled, and still pending":            {did(toCancel, 200), "pending", true},
		"paid, and still pending":                 {did(toPay, 200), "pending", true},
		"paid, and cancelled":                     {did(toPay, 200), "cancelled", true},
		"perhaps cancelled, and paid":             {did(toCancel, 0), "paid", true},
		"cancelling was refused, and it happened": {did(toCancel, 409), "cancelled", true},
	} {
		t.Run(name, func(t *testing.T) {
			broken := kept([]written{{"1", "a", "k", tc.status, 1}}, tc.deeds)
			if (len(broken) > 0) != tc.broken {
				t.Errorf("found %q", broken)
			}
		})
	}
}

// The checks of the books run on tables without constraints.
func TestImbalance(t *testing.T) {
	t.Parallel()
	books, err := openLedger(kit.SharedMariaDB(t).NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(books.close)
	execute := func(t *testing.T, statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := books.db.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	execute(t, "CREATE TABLE stock (sale_id CHAR(1), quota BIGINT, available BIGINT, held BIGINT, paid BIGINT)",
		"CREATE TABLE orders (id CHAR(1), sale_id CHAR(1), user_id CHAR(1), request_key CHAR(1), status VARCHAR(9), quantity INT)",
		"CREATE TABLE buyers (sale_id CHAR(1), user_id CHAR(1), units INT)")
	const sold = "INSERT INTO orders VALUES ('1', 's', 'a', 'k', 'pending', 2), ('2', 's', 'b', 'k', 'paid', 1), ('3', 's', 'c', 'k', 'expired', 1)"
	const bought = "INSERT INTO buyers VALUES ('s', 'a', 2), ('s', 'b', 1), ('s', 'c', 0), ('t', 'a', 5)"
	for name, tc := range map[string]struct {
		rows []string
		want string
	}{
		"all is well":               {[]string{"INSERT INTO stock VALUES ('s', 10, 7, 2, 1)", sold, bought}, ""},
		"nothing sold":              {[]string{"INSERT INTO stock VALUES ('s', 10, 10, 0, 0)"}, ""},
		"a unit too many":           {[]string{"INSERT INTO stock VALUES ('s', 10, 8, 2, 1)", sold, bought}, "the stock doesn't add up"},
		"a unit too few":            {[]string{"INSERT INTO stock VALUES ('s', 10, 6, 2, 1)", sold, bought}, "the stock doesn't add up"},
		"below nothing":             {[]string{"INSERT INTO stock VALUES ('s', 2, -1, 2, 1)", sold, bought}, "negative stock"},
		"an order without its unit": {[]string{"INSERT INTO stock VALUES ('s', 10, 8, 1, 1)", sold, bought}, "stock and orders differ"},
		"a unit without its order":  {[]string{"INSERT INTO stock VALUES ('s', 10, 6, 2, 2)", sold, bought}, "stock and orders differ"},
		"paid for pending":          {[]string{"INSERT INTO stock VALUES ('s', 10, 7, 1, 2)", sold, bought}, "stock and orders differ"},
		"a buyer with less":         {[]string{"INSERT INTO stock VALUES ('s', 10, 7, 2, 1)", sold, bought, "UPDATE buyers SET units = 1 WHERE user_id = 'a'"}, "buyers and orders differ"},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, "DELETE FROM stock", "DELETE FROM orders", "DELETE FROM buyers")
			execute(t, tc.rows...)
			got, err := books.imbalance(t.Context(), "s")
			if err != nil || !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			patience := recoveryTime
			if tc.want == "" {
				patience = 3 * lookPeriod // it waits for all of this time, since nothing is wrong
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if seen := books.firstImbalance(ctx, "s"); seen != got {
				t.Errorf("the watch saw %q", seen)
			}
		})
	}
	execute(t, "DELETE FROM stock")
	if got, err := books.imbalance(t.Context(), "s"); err == nil {
		t.Errorf("a sale that isn't there: %q", got)
	}
}

// The end of a row runs here on a healthy engine. The checker believes the clients' answers, also invented ones.
func TestSellRest(t *testing.T) {
	t.Parallel()
	d := &drill{T: t}
	s := shop.New(t)
	a := s.Start()
	for name, tc := range map[string]struct {
		told  func(attempts []shop.Attempt) []shop.Attempt
		quota int64 // that the checker is given; the sale has 30
		ends  bool
		found string
	}{
		"the rest is sold": {func(list []shop.Attempt) []shop.Attempt { return list }, 30, true, ""},
		"a confirmed order was never there": {
			func(list []shop.Attempt) []shop.Attempt { return append(list, attempt("x", 201, "no-such-order")) }, 30, true, "lost 1",
		},
		"one of them was forgotten":  {func(list []shop.Attempt) []shop.Attempt { return list[1:] }, 30, true, "over 1"},
		"more sold than there were":  {func(list []shop.Attempt) []shop.Attempt { return list }, 29, true, "over 1"},
		"a unit that nobody can buy": {func(list []shop.Attempt) []shop.Attempt { return list }, 31, false, ""},
		"a queued one has no end": {
			func(list []shop.Attempt) []shop.Attempt { return append(list, attempt("x", 202, "no-such-order")) }, 30, false, "open 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sale := s.Sale(a.URL, 30)
			told := tc.told(s.Rush(sale, "first", 10, nil, a.URL))
			if tc.quota < 30 { // sell all 30 units now, so that sellRest has none left to sell
				told = append(told, s.Rush(sale, "second", 25, nil, a.URL)...)
			}
			patience := recoveryTime
			if !tc.ends {
				patience = time.Second // it waits for all of this time
			}
			f, err := d.sellRest(s, sale, terms{quota: tc.quota, limit: 1, within: patience}, told, a.URL)
			if (err == nil) != tc.ends || f.clean() != (tc.found == "") || !strings.Contains(f.String(), tc.found) {
				t.Errorf("%s: %v", f, err)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		told  []string // statuses of one order, in the order in which a client received them
		is    string
		wrong int
	}{
		"nothing was told":             {nil, "pending", 0},
		"nothing final":                {[]string{"queued", "pending", "paid"}, "refunded", 0},
		"lost, and still so":           {[]string{"queued", "rejected", "rejected"}, "rejected", 0},
		"cancelled, and still so":      {[]string{"cancelled"}, "cancelled", 0},
		"expired, and paid late":       {[]string{"expired"}, "paid", 0},
		"lost, and then it is there":   {[]string{"rejected"}, "pending", 1},
		"lost, and then it is queued":  {[]string{"rejected"}, "queued", 1},
		"lost, and nobody knows it":    {[]string{"rejected"}, "404 not_found", 1},
		"cancelled, and pending":       {[]string{"cancelled"}, "pending", 1},
		"refunded, and paid":           {[]string{"refunded"}, "paid", 1},
		"expired, and pending":         {[]string{"expired"}, "pending", 1},
		"told two ends":                {[]string{"cancelled", "rejected"}, "rejected", 1},
		"paid late, and then rejected": {[]string{"expired", "paid"}, "rejected", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var r record
			for _, status := range tc.told {
				r.ended(attempt("a", 202, "1"), status)
			}
			changed := r.changed(func(a shop.Attempt) string {
				if a.User != "a" || a.OrderID != "1" {
					t.Errorf("asked for %+v", a)
				}
				return tc.is
			})
			if len(changed) != tc.wrong {
				t.Errorf("found %q", changed)
			}
		})
	}
	var r record
	r.add(toCancel, attempt("a", 200, "1"), attempt("b", 409, "2"), attempt("c", 0, "3"))
	r.add(toPay, attempt("d", 200, "4"))
	if changed := r.changed(func(shop.Attempt) string { return "pending" }); len(changed) != 1 {
		t.Errorf("of the deeds were found %q", changed)
	}
}

func TestRecord(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	first := shop.Attempt{User: "a", Key: "k", URL: "http://one", Status: 201, OrderID: "1", Invoked: at(0), Answered: at(3)}
	second := shop.Attempt{User: "b", Key: "k", URL: "http://two", Status: 409, Code: "sold_out", Invoked: at(1), Answered: at(2)}
	third := shop.Attempt{User: "c", Key: "k", URL: "http://two", Invoked: at(4), Answered: at(5)}
	var r record
	r.add(toBuy, third, first)
	r.add(toBuy, first, second)
	r.add(toCancel, shop.Attempt{User: "a", Key: "k", URL: "http://one", OrderID: "1", Status: 200, Invoked: at(6), Answered: at(7)})
	path := artifact(t, "12 a Row: / of a name", ".jsonl")
	r.write(t, path)
	if filepath.Base(path) != "12-a-row-of-a-name.jsonl" {
		t.Errorf("its path is %s", path)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	var got []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintln(e.At.Second(), e.Does, e.Event, e.User, e.Status, e.Order)))
	}
	want := []string{
		"0 buy invoke a 0", "1 buy invoke b 0", "2 buy refused b 409", "3 buy ok a 201 1", "4 buy invoke c 0", "5 buy unknown c 0",
		"6 cancel invoke a 0", "7 cancel ok a 200 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSchedule(t *testing.T) {
	faults := []fault{{part: "x", name: "killed"}, {part: "x", name: "frozen"}, {part: "y", name: "cut"}, {part: "z", name: "cut"}}
	draw := func(seed uint64) []episode { return schedule(seed, time.Minute, time.Second, 2*time.Second, faults) }
	if !reflect.DeepEqual(draw(1), draw(1)) {
		t.Error("a seed has two schedules")
	}
	if reflect.DeepEqual(draw(1), draw(2)) {
		t.Error("two seeds have one schedule")
	}
	drawn, pairs, filled := map[int]bool{}, 0, time.Duration(0)
	for _, e := range draw(3) {
		filled += e.pause + e.lasts
		for _, i := range e.faults {
			drawn[i] = true
		}
		if len(e.faults) == 2 {
			pairs++
			if faults[e.faults[0]].part == faults[e.faults[1]].part {
				t.Errorf("two faults of one part: %v", e)
			}
		}
		if e.pause > time.Second || e.lasts > 2*time.Second || e.pause <= 0 || e.lasts <= 0 {
			t.Errorf("out of bounds: %v", e)
		}
	}
	if filled < time.Minute || filled > time.Minute+3*time.Second || len(drawn) != len(faults) || pairs == 0 {
		t.Errorf("%s are filled, with %d of the faults and %d pairs", filled, len(drawn), pairs)
	}
}

func TestReplaceOnce(t *testing.T) {
	if got, err := replaceOnce("one two", "two", "2"); got != "one 2" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"one", "two two"} {
		if got, err := replaceOnce(text, "two", "2"); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestBetween(t *testing.T) {
	const beginMark, endMark = "<!-- drill:begin -->\n", "<!-- drill:end -->"
	page := "before\n" + beginMark + "old\n" + endMark + "\nafter\n"
	for range 2 { // a second report replaces the first
		var err error
		if page, err = between(page, resultsTable([]result{{Number: 7, Fault: "a | b", Happened: "two\nlines", Passed: true}})); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"before\n" + beginMark, `| 7 | a \| b |  | two lines | 0 | 0 | 0 | 0 | - | pass |`, endMark + "\nafter\n"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
	if strings.Contains(page, "old") {
		t.Errorf("what was there stays:\n%s", page)
	}
	for _, page := range []string{"", beginMark, endMark} {
		if _, err := between(page, "text"); err == nil {
			t.Errorf("%q has both marks", page)
		}
	}
	raw, err := os.ReadFile(reportPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := between(string(raw), ""); err != nil {
		t.Error(err)
	}
}

// asked returns a request of an invented history, under the key k of a user, that lasts from one second to another.
func asked(from, to int, does, user string, status int, codeOrOrder string) act {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	a := shop.Attempt{User: user, Key: "k", Status: status, Invoked: at(from), Answered: at(to)}
	if said(status) == saidNo {
		a.Code = codeOrOrder
	} else {
		a.OrderID = codeOrOrder
	}
	return act{deed: deed{does, a}}
}

// under returns a request with another request key.
func under(key string, a act) act {
	a.Key = key
	return a
}

// The checker of histories accepts what the engine promises, and nothing else.
func TestStory(t *testing.T) {
	pending := func(id, user string) written { return written{id, user, "k", "pending", 1} }
	cancelled := func(id, user string) written { return written{id, user, "k", "cancelled", 1} }
	const fault = 50 // the second of the fault
	for name, tc := range map[string]struct {
		acts      []act
		orders    []written
		available int64
		ok        bool
	}{
		"one buys": {[]act{asked(0, 1, toBuy, "a", 201, "1")}, []written{pending("1", "a")}, 1, true},
		"two buy, a third is too late": {
			[]act{asked(0, 9, toBuy, "a", 201, "1"), asked(1, 9, toBuy, "b", 201, "2"), asked(5, 6, toBuy, "c", 409, "sold_out")},
			[]written{pending("1", "a"), pending("2", "b")},
			0, true,
		},
		"a key asked for twice": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "a", 201, "1")}, []written{pending("1", "a")}, 1, true,
		},
		"a second one at the limit": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), under("l", asked(2, 3, toBuy, "a", 409, "limit_reached"))}, []written{pending("1", "a")}, 1, true,
		},
		"no answer, and there is an order": {[]act{asked(0, 1, toBuy, "a", 0, "")}, []written{pending("1", "a")}, 1, true},
		"no answer, and there is none":     {[]act{asked(0, 1, toBuy, "a", 0, "")}, nil, 2, true},
		"queued, and there is an order":    {[]act{asked(0, 1, toBuy, "a", 202, "1")}, []written{pending("1", "a")}, 1, true},
		"queued, and lost":                 {[]act{asked(0, 1, toBuy, "a", 202, "1")}, nil, 2, true},
		"cancelled, and sold again": {
			[]act{
				asked(0, 1, toBuy, "a", 201, "1"), asked(0, 1, toBuy, "b", 201, "2"), asked(2, 3, toCancel, "a", 200, "1"),
				asked(4, 5, toBuy, "c", 201, "3"), asked(6, 7, toBuy, "d", 409, "sold_out"),
			},
			[]written{cancelled("1", "a"), pending("2", "b"), pending("3", "c")},
			0, true,
		},
		"perhaps cancelled, and is": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toCancel, "a", 0, "1")}, []written{cancelled("1", "a")}, 2, true,
		},
		"perhaps cancelled, and isn't": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toCancel, "a", 503, "1")}, []written{pending("1", "a")}, 1, true,
		},
		"cancelled twice": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toCancel, "a", 200, "1"), asked(4, 5, toCancel, "a", 409, "not_cancellable")},
			[]written{cancelled("1", "a")},
			2, true,
		},
		"sold out while attempts that are lost later hold the units": {
			[]act{asked(0, 9, toBuy, "a", 202, "1"), asked(0, 9, toBuy, "b", 0, ""), asked(5, 6, toBuy, "c", 409, "sold_out")}, nil, 2, true,
		},
		"at the limit because of an attempt that was lost, and made again": {
			[]act{
				asked(0, 9, toBuy, "a", 202, "1"), under("l", asked(1, 2, toBuy, "a", 409, "limit_reached")), under("m", asked(3, 4, toBuy, "a", 201, "2")),
				under("m", asked(5, 6, toCancel, "a", 200, "2")), asked(10, 11, toBuy, "a", 201, "1"),
			},
			[]written{pending("1", "a"), {"2", "a", "m", "cancelled", 1}},
			1, true,
		},
		"after the fault: sold out while refused ones hold the units": {
			[]act{
				asked(60, 69, toBuy, "a", 409, "limit_reached"), asked(60, 69, toBuy, "b", 409, "limit_reached"), asked(65, 66, toBuy, "c", 409, "sold_out"),
				under("l", asked(0, 1, toBuy, "a", 201, "1")), under("l", asked(0, 1, toBuy, "b", 201, "2")),
				under("l", asked(70, 71, toCancel, "a", 200, "1")), under("l", asked(70, 71, toCancel, "b", 200, "2")),
			},
			[]written{{"1", "a", "l", "cancelled", 1}, {"2", "b", "l", "cancelled", 1}},
			2, true,
		},
		"before the fault: a unit was held at the gate, which the fault let another one have first": {
			[]act{
				asked(0, 1, toBuy, "a", 201, "1"), asked(40, 80, toBuy, "b", 201, "2"), asked(41, 42, toBuy, "c", 409, "sold_out"),
				asked(60, 61, toBuy, "d", 201, "3"), asked(62, 63, toCancel, "d", 200, "3"),
			},
			[]written{pending("1", "a"), pending("2", "b"), cancelled("3", "d")},
			0, true,
		},
		"after the fault: a unit that came back isn't seen yet": {
			[]act{
				asked(0, 1, toBuy, "a", 201, "1"), asked(0, 1, toBuy, "b", 201, "2"), asked(60, 61, toCancel, "a", 200, "1"),
				asked(65, 66, toBuy, "c", 409, "sold_out"),
			},
			[]written{cancelled("1", "a"), pending("2", "b")},
			1, true,
		},
		"refused for good, and told so again": {
			[]act{
				asked(0, 9, toBuy, "a", 201, "1"), asked(0, 9, toBuy, "b", 201, "2"), asked(5, 6, toBuy, "c", 409, "sold_out"),
				asked(10, 11, toCancel, "a", 200, "1"), asked(20, 21, toBuy, "c", 409, "sold_out"),
			},
			[]written{cancelled("1", "a"), pending("2", "b")},
			1, true,
		},

		"oversold": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "b", 201, "2"), asked(4, 5, toBuy, "c", 201, "3")},
			[]written{pending("1", "a"), pending("2", "b"), pending("3", "c")},
			-1, false,
		},
		"oversold for a while": {
			[]act{
				asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "b", 201, "2"), asked(4, 5, toBuy, "c", 201, "3"),
				asked(6, 7, toCancel, "a", 200, "1"),
			},
			[]written{cancelled("1", "a"), pending("2", "b"), pending("3", "c")},
			0, false,
		},
		"a confirmed order is gone": {[]act{asked(0, 1, toBuy, "a", 201, "1")}, nil, 2, false},
		"a confirmed order is gone, its unit is not": {
			[]act{asked(0, 1, toBuy, "a", 201, "1")}, nil, 1, false,
		},
		"a key has two orders": {
			[]act{asked(0, 1, toBuy, "a", 201, "1")}, []written{pending("1", "a"), cancelled("2", "a")}, 1, false,
		},
		"a key was told two orders": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "a", 201, "2")}, []written{pending("1", "a")}, 1, false,
		},
		"two users were told one order": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "b", 201, "1")}, []written{pending("1", "a")}, 1, false,
		},
		"a user above the limit": {
			[]act{asked(0, 1, toBuy, "a", 201, "1"), under("l", asked(2, 3, toBuy, "a", 201, "2"))},
			[]written{pending("1", "a"), {"2", "a", "l", "pending", 1}},
			0, false,
		},
		"an order that nobody asked for":   {[]act{asked(0, 1, toBuy, "a", 201, "1")}, []written{pending("1", "a"), pending("2", "b")}, 0, false},
		"an order of one who was refused":  {[]act{asked(0, 1, toBuy, "a", 409, "limit_reached")}, []written{pending("1", "a")}, 1, false},
		"sold out while units are left":    {[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "b", 409, "sold_out")}, []written{pending("1", "a")}, 1, false},
		"at the limit with nothing bought": {[]act{asked(0, 1, toBuy, "a", 409, "limit_reached")}, nil, 2, false},
		"refused after it was confirmed":   {[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toBuy, "a", 409, "sold_out")}, []written{pending("1", "a")}, 1, false},
		"cancelled, and still pending":     {[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toCancel, "a", 200, "1")}, []written{pending("1", "a")}, 1, false},
		"cancelled by nobody":              {[]act{asked(0, 1, toBuy, "a", 201, "1")}, []written{cancelled("1", "a")}, 2, false},
		"not cancellable while it is":      {[]act{asked(0, 1, toBuy, "a", 201, "1"), asked(2, 3, toCancel, "a", 409, "not_cancellable")}, []written{pending("1", "a")}, 1, false},
		"a unit is gone":                   {[]act{asked(0, 1, toBuy, "a", 201, "1")}, []written{pending("1", "a")}, 0, false},
		"an answer that is none of these":  {[]act{asked(0, 1, toBuy, "a", 404, "not_found")}, nil, 2, false},
		"an order before it was asked for": {[]act{asked(0, 1, toBuy, "a", 409, "limit_reached"), under("l", asked(2, 3, toBuy, "a", 201, "1"))}, []written{{"1", "a", "l", "pending", 1}}, 1, false},
		"before the fault: a cancelled unit": {
			[]act{
				asked(0, 1, toBuy, "a", 201, "1"), asked(0, 1, toBuy, "b", 201, "2"), asked(2, 3, toCancel, "a", 200, "1"),
				asked(5, 6, toBuy, "c", 409, "sold_out"),
			},
			[]written{cancelled("1", "a"), pending("2", "b")},
			1, false,
		},
		"long after it came back, a unit is not seen": {
			[]act{
				asked(0, 1, toBuy, "a", 201, "1"), asked(0, 1, toBuy, "b", 201, "2"), asked(60, 61, toCancel, "a", 200, "1"),
				asked(90, 91, toBuy, "c", 409, "sold_out"),
			},
			[]written{cancelled("1", "a"), pending("2", "b")},
			1, false,
		},
		"more were refused than can have been held": {
			[]act{asked(0, 9, toBuy, "a", 202, "1"), asked(5, 6, toBuy, "c", 409, "sold_out")}, nil, 2, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{linearSale{quota: 2, limit: 1}, tc.acts, tc.orders, tc.available, time.Unix(fault, 0)}
			if err := s.explained(artifact(t, name, ".html")); (err == nil) != tc.ok {
				t.Errorf("explained: %v", err)
			}
		})
	}
	if err := (&story{linearSale: linearSale{quota: 2, limit: 1}}).explained(""); err == nil {
		t.Error("an empty story is explained")
	}
}
