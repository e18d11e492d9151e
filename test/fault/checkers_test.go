package fault

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// The checkers are tested as well: each kind of violation is found, and a correct run has no findings. The runs are
// invented, and written as texts whose items are separated by semicolons.

// items returns the words of each item of a text.
func items(text string) (list [][]string) {
	for item := range strings.SplitSeq(text, ";") {
		if words := strings.Fields(item); len(words) > 0 {
			list = append(list, words)
		}
	}
	return list
}

// attempts reads purchases such as "ann/k 201 1": a user with an idempotency key, the status of the answer and the order.
func attempts(text string) (list []shop.Attempt) {
	for _, words := range items(text) {
		a := shop.Attempt{Status: number(words[1]), OrderID: strings.Join(words[2:], "")}
		a.User, a.Key, _ = strings.Cut(words[0], "/")
		list = append(list, a)
	}
	return list
}

// orders reads orders such as "1 ann/k" or "1 ann/k paid": an id, a user with an idempotency key, and a status other than
// pending.
func orders(text string) (list []written) {
	for _, words := range items(text) {
		w := written{id: words[0], status: cmp.Or(strings.Join(words[2:], ""), "pending"), units: 1}
		w.user, w.key, _ = strings.Cut(words[1], "/")
		list = append(list, w)
	}
	return list
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name, attempts, orders string
		status                 string // what the engine reports for orders that are not in the database
		want                   string // findings
	}{
		{"nothing happened", "", "", "", `0 confirmed`},
		{"one got it, one did not, two had no answer", "a/k 201 1; b/k 409; c/k 0; d/k 503", "1 a/k; 2 c/k", "", `1 confirmed`},
		{"a queued one became an order", "a/k 202 1", "1 a/k", "", `1 confirmed`},
		{"a queued one was rejected", "a/k 202 1", "", "rejected", `0 confirmed`},
		{"a queued one is still queued", "a/k 202 1", "", "queued", `0 confirmed; open 1 ["1 is queued"]`},
		{"a queued one is said to be an order", "a/k 202 1", "", "pending", `0 confirmed; open 1 ["1 is pending"]`},
		{"a repeated key has one order", "a/k 0; a/k 201 1; a/k 201 1", "1 a/k", "", `2 confirmed`},
		{"a key was refused before it was confirmed", "a/k 429; a/k 201 1", "1 a/k", "", `1 confirmed`},
		{"without a key", "a/ 201 1", "1 a/k", "", `1 confirmed`},
		{"cancelled, then bought again", "a/old 201 1; a/k 201 2", "1 a/old cancelled; 2 a/k", "", `2 confirmed`},
		{"a confirmed order is not there", "a/k 201 1", "", "", `1 confirmed; lost 1 ["1"]`},
		{"a confirmed order is another user's", "a/k 201 1; b/k 0", "1 b/k", "", `1 confirmed; lost 1 ["1"]`},
		{"a confirmed order has another key", "a/k 201 1; a/l 0", "1 a/l", "", `1 confirmed; lost 1 ["1"]`},
		{
			"one order promised to two users", "a/k 201 1; b/k 201 1", "1 a/k", "",
			`2 confirmed; lost 1 ["1"]; doubled 1 ["1 for two users"]`,
		},
		{"two orders of one key", "a/k 201 1", "1 a/k; 2 a/k cancelled", "", `1 confirmed; doubled 1 ["2 of a"]`},
		{
			"two rows of one id", "a/k 201 1; a/l 0", "1 a/k; 1 a/l cancelled", "",
			`1 confirmed; lost 1 ["1"]; doubled 1 ["1 of a"]`,
		},
		{"a user above the limit", "a/k 201 1; a/l 201 2", "1 a/k; 2 a/l paid", "", `2 confirmed; over 1 ["a holds 2 of 1"]`},
		{
			"more than the quota", "a/k 201 1; b/k 201 2; c/k 201 3", "1 a/k; 2 b/k; 3 c/k", "",
			`3 confirmed; over 1 ["3 sold of 2"]`,
		},
		{"an order that nobody asked for", "", "1 a/k", "", `0 confirmed; over 1 ["a has an order and never asked"]`},
		{
			"an order of one who was only refused", "a/k 409; a/k 429", "1 a/k", "",
			`0 confirmed; over 1 ["a has an order and was only refused"]`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := judge(attempts(tc.attempts), orders(tc.orders), 2, 1, func(shop.Attempt) string { return tc.status })
			if got.String() != tc.want || got.clean() == strings.Contains(tc.want, ";") {
				t.Errorf("got %s, clean %t, want %s", got, got.clean(), tc.want)
			}
		})
	}
}

func TestKept(t *testing.T) {
	for name, tc := range map[string]struct {
		does      string
		status    int // of the answer
		is        string
		unchanged bool
	}{
		"nothing was done":                        {"", 0, "pending", true},
		"cancelled":                               {toCancel, 200, "cancelled", true},
		"paid":                                    {toPay, 200, "paid", true},
		"perhaps cancelled, and is":               {toCancel, 0, "cancelled", true},
		"perhaps cancelled, and isn't":            {toCancel, 503, "pending", true},
		"perhaps paid, and is":                    {toPay, 500, "paid", true},
		"refused":                                 {toCancel, 409, "pending", true},
		"cancelled by nobody":                     {"", 0, "cancelled", false},
		"expired before its time":                 {"", 0, "expired", false},
		"cancelled, and still pending":            {toCancel, 200, "pending", false},
		"paid, and still pending":                 {toPay, 200, "pending", false},
		"paid, and cancelled":                     {toPay, 200, "cancelled", false},
		"perhaps cancelled, and paid":             {toCancel, 0, "paid", false},
		"cancelling was refused, and it happened": {toCancel, 409, "cancelled", false},
	} {
		t.Run(name, func(t *testing.T) {
			var deeds []deed
			if tc.does != "" {
				deeds = []deed{{tc.does, shop.Attempt{User: "a", Status: tc.status, OrderID: "1"}}}
			}
			if broken := kept(orders("1 a/k "+tc.is), deeds); (len(broken) == 0) != tc.unchanged {
				t.Errorf("found %q", broken)
			}
		})
	}
}

// The checks of the books run on tables without constraints.
func TestImbalance(t *testing.T) {
	t.Parallel()
	d := &drill{TB: t, books: openLedger(t, kit.SharedMariaDB(t).NewDatabase(t))}
	d.execute(d.books.db, "CREATE TABLE stock (sale_id CHAR(1), quota BIGINT, available BIGINT, held BIGINT, paid BIGINT, reserved BIGINT, called BIGINT)",
		"CREATE TABLE orders (id CHAR(1), sale_id CHAR(1), user_id CHAR(1), idempotency_key CHAR(1), status VARCHAR(9), quantity INT)",
		"CREATE TABLE buyers (sale_id CHAR(1), user_id CHAR(1), units INT)",
		"INSERT INTO orders VALUES ('1', 's', 'a', 'k', 'pending', 2), ('2', 's', 'b', 'k', 'paid', 1)",
		"INSERT INTO orders VALUES ('3', 's', 'c', 'k', 'expired', 1)",
		"INSERT INTO buyers VALUES ('s', 'b', 1), ('s', 'c', 0), ('t', 'a', 5)")
	for name, tc := range map[string]struct {
		sale, stock string // quota, available, held, paid
		units       int    // of the buyer a
		want        string
	}{
		"all is well":               {"s", "10, 7, 2, 1", 2, ""},
		"nothing sold":              {"u", "10, 10, 0, 0", 2, ""},
		"a unit too many":           {"s", "10, 8, 2, 1", 2, "the stock doesn't add up"},
		"a unit too few":            {"s", "10, 6, 2, 1", 2, "the stock doesn't add up"},
		"below nothing":             {"s", "2, -1, 2, 1", 2, "negative stock"},
		"an order without its unit": {"s", "10, 8, 1, 1", 2, "stock and orders differ"},
		"a unit without its order":  {"s", "10, 6, 2, 2", 2, "stock and orders differ"},
		"paid for pending":          {"s", "10, 7, 1, 2", 2, "stock and orders differ"},
		"a buyer with less":         {"s", "10, 7, 2, 1", 1, "buyers and orders differ"},
	} {
		t.Run(name, func(t *testing.T) {
			d.execute(d.books.db, "DELETE FROM stock", "DELETE FROM buyers WHERE sale_id = 's' AND user_id = 'a'",
				fmt.Sprintf("INSERT INTO stock VALUES ('%s', %s, 0, 0)", tc.sale, tc.stock),
				fmt.Sprintf("INSERT INTO buyers VALUES ('s', 'a', %d)", tc.units))
			end := d.watch(tc.sale)
			got, err := d.books.imbalance(t.Context(), tc.sale)
			if err != nil || !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			if seen := end(); seen != got {
				t.Errorf("the watch saw %q", seen)
			}
		})
	}
	d.execute(d.books.db, "DELETE FROM stock")
	if got, err := d.books.imbalance(t.Context(), "s"); err == nil {
		t.Errorf("a sale that isn't there: %q", got)
	}
}

// The end of a row runs here on a healthy engine. The checker believes the clients' answers, also invented ones.
func TestSellRest(t *testing.T) {
	t.Parallel()
	d := &drill{TB: t}
	d.stores()
	d.urls = []string{d.Start().URL}
	rush := func(t *pace.Trial, sale, prefix string, buyers, buy int) []shop.Attempt {
		t.Helper()
		told := d.Rush(sale, prefix, buyers, nil, d.urls...)
		if counts := shop.Tally(told); counts["201 "] != buy {
			t.FatalSlowf("the buyers were told %v", counts)
		}
		return told
	}
	for name, tc := range map[string]struct {
		invented  string // another attempt
		forgotten int    // attempts that the checker is not told of
		quota     int    // the quota that the checker is given; the sale has 30
		ends      bool
		found     string
	}{
		"the rest is sold":                  {"", 0, 30, true, ""},
		"a confirmed order was never there": {"x/k 201 no-such-order", 0, 30, true, "lost 1"},
		"one of them was forgotten":         {"", 1, 30, true, "over 1"},
		"more sold than there were":         {"", 0, 29, true, "over 1"},
		"a unit that nobody can buy":        {"", 0, 31, false, ""},
		"a queued one has no end":           {"x/k 202 no-such-order", 0, 30, false, "open 1"},
	} {
		t.Run(name, func(t *testing.T) {
			pace.Try(t, func(t *pace.Trial) {
				sale := d.Sale(d.urls[0], 30)
				told := append(rush(t, sale, "first", 10, 10)[tc.forgotten:], attempts(tc.invented)...)
				if tc.quota < 30 { // sell all 30 units now, so that sellRest has none left to sell
					told = append(told, rush(t, sale, "second", 25, 20)...)
				}
				patience := recoveryTime
				if !tc.ends {
					patience = time.Second // sellRest waits this long for what never comes
				}
				f, err := d.sellRest(sale, tc.quota, 1, patience, told)
				if (err == nil) != tc.ends || f.clean() != (tc.found == "") || !strings.Contains(f.String(), tc.found) {
					t.Errorf("%s: %v", f, err)
				}
			})
		})
	}
}

// complaints keeps how a row has failed.
type complaints struct {
	testing.TB
	last string
}

func (*complaints) Helper()                 {}
func (c *complaints) Errorf(string, ...any) { c.last = "wrong" }
func (c *complaints) Slowf(string, ...any)  { c.last = "slow" }

// An answer that leaves the outcome open is one of time, any other is one of substance.
func TestTold(t *testing.T) {
	for status, want := range map[string]string{"201": "", "0": "slow", "202": "slow", "503": "slow", "200": "wrong", "409": "wrong", "429": "wrong"} {
		c := &complaints{TB: t}
		if (&drill{TB: c}).told(attempts("a/k "+status), "201"); c.last != want {
			t.Errorf("%s fails as %q, want %q", status, c.last, want)
		}
	}
}

func TestChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		told  string // statuses of one order, in the order in which a client received them
		is    string
		wrong int
	}{
		"nothing was told":             {"", "pending", 0},
		"nothing final":                {"queued pending paid", "refunded", 0},
		"lost, and still so":           {"queued rejected rejected", "rejected", 0},
		"cancelled, and still so":      {"cancelled", "cancelled", 0},
		"expired, and paid late":       {"expired", "paid", 0},
		"lost, and then it is there":   {"rejected", "pending", 1},
		"lost, and then it is queued":  {"rejected", "queued", 1},
		"lost, and nobody knows it":    {"rejected", "404 not_found", 1},
		"cancelled, and pending":       {"cancelled", "pending", 1},
		"refunded, and paid":           {"refunded", "paid", 1},
		"expired, and pending":         {"expired", "pending", 1},
		"told two ends":                {"cancelled rejected", "rejected", 1},
		"paid late, and then rejected": {"expired paid", "rejected", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var r record
			for _, status := range strings.Fields(tc.told) {
				r.ended(shop.Attempt{User: "a", OrderID: "1"}, status)
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
	r.add(toCancel, attempts("a/k 200 1; b/k 409 2; c/k 0 3")...)
	r.add(toPay, attempts("d/k 200 4")...)
	if changed := r.changed(func(shop.Attempt) string { return "pending" }); len(changed) != 1 {
		t.Errorf("of the deeds were found %q", changed)
	}
}

// A record has each request and its answer once, in the order of time.
func TestRecord(t *testing.T) {
	var r record
	for _, a := range acts("0-3 a/k 201 1; 1-2 b/k 409 sold_out; 4-5 c/k 0; 6-7 a/k cancel 200 1; 0-3 a/k 201 1") {
		r.add(a.does, a.Attempt)
	}
	var got []string
	for _, e := range r.events() {
		got = append(got, strings.TrimSpace(fmt.Sprintln(e.At.Unix(), e.Does, e.Event, e.User, e.Status, e.Order)))
	}
	const want = "0 buy invoke a 0; 1 buy invoke b 0; 2 buy refused b 409; 3 buy ok a 201 1; 4 buy invoke c 0; " +
		"5 buy unknown c 0; 6 cancel invoke a 0; 7 cancel ok a 200 1"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

// A seed decides the faults of a marathon, of which no two of one part last at once.
func TestSchedule(t *testing.T) {
	kinds := [][]fault{{{part: "x", name: "killed"}}, {{part: "x", name: "frozen"}}, {{part: "y", name: "cut"}, {part: "z", name: "cut"}}}
	draw := func(seed uint64) []episode { return schedule(seed, time.Minute, time.Second, 2*time.Second, kinds) }
	if !reflect.DeepEqual(draw(1), draw(1)) || reflect.DeepEqual(draw(1), draw(2)) {
		t.Error("a seed has two schedules, or two seeds have one")
	}
	drawn, pairs := map[string]bool{}, 0
	for _, e := range draw(3) {
		for _, f := range e.faults {
			drawn[f.part+" "+f.name] = true
		}
		if len(e.faults) == 2 {
			pairs++
			if e.faults[0].part == e.faults[1].part || e.faults[0].name == "cut" && e.faults[1].name != "cut" {
				t.Errorf("two faults of one part, or in another order: %v", e)
			}
		}
	}
	if len(drawn) != 4 || pairs == 0 {
		t.Errorf("%d of the four faults and %d pairs were drawn", len(drawn), pairs)
	}
}

// acts reads requests such as "0-3 ann/k 201 1" or "4-5 ann/k cancel 200 1": the seconds from request to answer, a user
// with an idempotency key, whether the user cancels, the status of the answer, and the order, or the code of a refusal.
func acts(text string) (list []deed) {
	for _, words := range items(text) {
		from, to, _ := strings.Cut(words[0], "-")
		a := deed{does: toBuy}
		if words[2] == toCancel {
			a.does, words = toCancel, slices.Delete(words, 2, 3)
		}
		a.Attempt = attempts(words[1] + " " + words[2])[0]
		a.Invoked, a.Answered = time.Unix(int64(number(from)), 0), time.Unix(int64(number(to)), 0)
		last := strings.Join(words[3:], "")
		if said(a.Status) == saidNo {
			a.Code = last
		} else {
			a.OrderID = last
		}
		list = append(list, a)
	}
	return list
}

// The checker of histories accepts what the engine promises, and nothing else.
func TestStory(t *testing.T) {
	const fault = 50 // the second of the fault
	for _, tc := range []struct {
		name, acts, orders string
		available          string // after the run, of two units; with "!": no order of the requests explains the answers
	}{
		{"one buys", "0-1 a/k 201 1", "1 a/k", "1"},
		{"two buy, a third is too late", "0-9 a/k 201 1; 1-9 b/k 201 2; 5-6 c/k 409 sold_out", "1 a/k; 2 b/k", "0"},
		{"a key asked for twice", "0-1 a/k 201 1; 2-3 a/k 201 1", "1 a/k", "1"},
		{"a second one at the limit", "0-1 a/k 201 1; 2-3 a/l 409 limit_reached", "1 a/k", "1"},
		{"no answer, and there is an order", "0-1 a/k 0", "1 a/k", "1"},
		{"no answer, and there is none", "0-1 a/k 0", "", "2"},
		{"queued, and there is an order", "0-1 a/k 202 1", "1 a/k", "1"},
		{"queued, and lost", "0-1 a/k 202 1", "", "2"},
		{
			"cancelled, and sold again",
			"0-1 a/k 201 1; 0-1 b/k 201 2; 2-3 a/k cancel 200 1; 4-5 c/k 201 3; 6-7 d/k 409 sold_out",
			"1 a/k cancelled; 2 b/k; 3 c/k", "0",
		},
		{"perhaps cancelled, and is", "0-1 a/k 201 1; 2-3 a/k cancel 0 1", "1 a/k cancelled", "2"},
		{"perhaps cancelled, and isn't", "0-1 a/k 201 1; 2-3 a/k cancel 503 1", "1 a/k", "1"},
		{"cancelled twice", "0-1 a/k 201 1; 2-3 a/k cancel 200 1; 4-5 a/k cancel 409 not_cancellable", "1 a/k cancelled", "2"},
		{
			"sold out while attempts that are lost later hold the units",
			"0-9 a/k 202 1; 0-9 b/k 0; 5-6 c/k 409 sold_out", "", "2",
		},
		{
			"at the limit because of an attempt that was lost, and made again",
			"0-9 a/k 202 1; 1-2 a/l 409 limit_reached; 3-4 a/m 201 2; 5-6 a/m cancel 200 2; 10-11 a/k 201 1",
			"1 a/k; 2 a/m cancelled", "1",
		},
		{
			"after the fault: sold out while refused ones hold the units",
			"60-69 a/k 409 limit_reached; 60-69 b/k 409 limit_reached; 65-66 c/k 409 sold_out; " +
				"0-1 a/l 201 1; 0-1 b/l 201 2; 70-71 a/l cancel 200 1; 70-71 b/l cancel 200 2",
			"1 a/l cancelled; 2 b/l cancelled", "2",
		},
		{
			"before the fault: a unit was held at the gate, which the fault let another one have first",
			"0-1 a/k 201 1; 40-80 b/k 201 2; 41-42 c/k 409 sold_out; 60-61 d/k 201 3; 62-63 d/k cancel 200 3",
			"1 a/k; 2 b/k; 3 d/k cancelled", "0",
		},
		{
			"after the fault: a unit that came back isn't seen yet",
			"0-1 a/k 201 1; 0-1 b/k 201 2; 60-61 a/k cancel 200 1; 65-66 c/k 409 sold_out",
			"1 a/k cancelled; 2 b/k", "1",
		},
		{
			"refused for good, and told so again",
			"0-9 a/k 201 1; 0-9 b/k 201 2; 5-6 c/k 409 sold_out; 10-11 a/k cancel 200 1; 20-21 c/k 409 sold_out",
			"1 a/k cancelled; 2 b/k", "1",
		},

		{"oversold", "0-1 a/k 201 1; 2-3 b/k 201 2; 4-5 c/k 201 3", "1 a/k; 2 b/k; 3 c/k", "!-1"},
		{
			"oversold for a while", "0-1 a/k 201 1; 2-3 b/k 201 2; 4-5 c/k 201 3; 6-7 a/k cancel 200 1",
			"1 a/k cancelled; 2 b/k; 3 c/k", "!0",
		},
		{"a confirmed order is gone", "0-1 a/k 201 1", "", "!2"},
		{"a confirmed order is gone, its unit is not", "0-1 a/k 201 1", "", "!1"},
		{"a key has two orders", "0-1 a/k 201 1", "1 a/k; 2 a/k cancelled", "!1"},
		{"a key was told two orders", "0-1 a/k 201 1; 2-3 a/k 201 2", "1 a/k", "!1"},
		{"two users were told one order", "0-1 a/k 201 1; 2-3 b/k 201 1", "1 a/k", "!1"},
		{"a user above the limit", "0-1 a/k 201 1; 2-3 a/l 201 2", "1 a/k; 2 a/l", "!0"},
		{"an order that nobody asked for", "0-1 a/k 201 1", "1 a/k; 2 b/k", "!0"},
		{"an order of one who was refused", "0-1 a/k 409 limit_reached", "1 a/k", "!1"},
		{"sold out while units are left", "0-1 a/k 201 1; 2-3 b/k 409 sold_out", "1 a/k", "!1"},
		{"at the limit with nothing bought", "0-1 a/k 409 limit_reached", "", "!2"},
		{"refused after it was confirmed", "0-1 a/k 201 1; 2-3 a/k 409 sold_out", "1 a/k", "!1"},
		{"cancelled, and still pending", "0-1 a/k 201 1; 2-3 a/k cancel 200 1", "1 a/k", "!1"},
		{"cancelled by nobody", "0-1 a/k 201 1", "1 a/k cancelled", "!2"},
		{"not cancellable while it is", "0-1 a/k 201 1; 2-3 a/k cancel 409 not_cancellable", "1 a/k", "!1"},
		{"a unit is gone", "0-1 a/k 201 1", "1 a/k", "!0"},
		{"an answer that is none of these", "0-1 a/k 404 not_found", "", "!2"},
		{"an order before it was asked for", "0-1 a/k 409 limit_reached; 2-3 a/l 201 1", "1 a/l", "!1"},
		{
			"before the fault: a cancelled unit",
			"0-1 a/k 201 1; 0-1 b/k 201 2; 2-3 a/k cancel 200 1; 5-6 c/k 409 sold_out",
			"1 a/k cancelled; 2 b/k", "!1",
		},
		{
			"long after it came back, a unit is not seen",
			"0-1 a/k 201 1; 0-1 b/k 201 2; 60-61 a/k cancel 200 1; 90-91 c/k 409 sold_out",
			"1 a/k cancelled; 2 b/k", "!1",
		},
		{"more were refused than can have been held", "0-9 a/k 202 1; 5-6 c/k 409 sold_out", "", "!2"},
		{"an empty story", "", "", "!2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			available, wrong := strings.CutPrefix(tc.available, "!")
			left, err := strconv.Atoi(available)
			if err != nil {
				t.Fatal(err)
			}
			s := &story{linearSale{quota: 2, limit: 1}, acts(tc.acts), orders(tc.orders), left, time.Unix(fault, 0), 0}
			if err := s.explained(artifact(t, tc.name, ".html")); (err != nil) != wrong {
				t.Errorf("explained: %v", err)
			}
		})
	}
}
