package fault

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/internal/ranks"
)

// entrant is an entry in a sale's line, as stored in the database.
type entrant struct {
	number      int64
	user, state string
}

// turn is a call under way.
type turn struct {
	number int64
	user   string
	units  int64
	over   bool // its time has passed
}

// sold is an order of a sale in line.
type sold struct {
	id, user, status, source string
	units                    int64
}

// lineBooks are the books of a sale in line at one instant. Those of a campaign have the quotas and the orders of all its sizes,
// while reserved and called are those of its line.
type lineBooks struct {
	quota, available, reserved, called, held, paid int64
	lined                                          bool

	mode, phase, secret, leafKey, root, seed, randomness string
	entries, sealed, serving                             int64
	passed                                               bool // an entry of a draw wanted more units than were left

	entrants []entrant // in the order of their numbers
	turns    []turn
	orders   []sold
}

// line reads the books of a sale in line, in one snapshot.
func (l *ledger) line(ctx context.Context, sale string) (b lineBooks, err error) {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return b, err
	}
	defer func() { _ = tx.Rollback() }()
	err = tx.QueryRowContext(ctx, `SELECT SUM(CASE WHEN sales.id = campaign_id THEN 0 ELSE quota END), SUM(available),
		SUM(CASE WHEN sales.id = sale_lines.sale_id THEN reserved ELSE 0 END), SUM(called), SUM(held), SUM(paid), MIN(lined = 2), mode, phase,
		secret, leaf_key, root, seed, beacon_randomness, entries, sealed, serving, passed IS NOT NULL
		FROM sale_lines JOIN sales ON sale_lines.sale_id IN (sales.id, campaign_id) JOIN stock ON stock.sale_id = sales.id
		WHERE sale_lines.sale_id = ? GROUP BY sale_lines.sale_id`, sale).Scan(&b.quota, &b.available, &b.reserved, &b.called, &b.held, &b.paid, &b.lined, &b.mode,
		&b.phase, &b.secret, &b.leafKey, &b.root, &b.seed, &b.randomness, &b.entries, &b.sealed, &b.serving, &b.passed)
	if err != nil {
		return b, err
	}
	each := func(query string, scan func(rows *sql.Rows) error) {
		if err != nil {
			return
		}
		var rows *sql.Rows
		if rows, err = tx.QueryContext(ctx, query, sale); err != nil {
			return
		}
		defer func() { _ = rows.Close() }()
		for err == nil && rows.Next() {
			err = scan(rows)
		}
		if err == nil {
			err = rows.Err()
		}
	}
	each("SELECT number, user_id, state FROM entries WHERE sale_id = ? ORDER BY number", func(rows *sql.Rows) error {
		var e entrant
		defer func() { b.entrants = append(b.entrants, e) }()
		return rows.Scan(&e.number, &e.user, &e.state)
	})
	each("SELECT number, user_id, units, until_ms < 1000 * UNIX_TIMESTAMP(NOW(3)) FROM calls WHERE sale_id = ? ORDER BY number", func(rows *sql.Rows) error {
		var t turn
		defer func() { b.turns = append(b.turns, t) }()
		return rows.Scan(&t.number, &t.user, &t.units, &t.over)
	})
	each("SELECT id, user_id, status, source, quantity FROM orders WHERE "+ofSale, func(rows *sql.Rows) error {
		var o sold
		defer func() { b.orders = append(b.orders, o) }()
		return rows.Scan(&o.id, &o.user, &o.status, &o.source, &o.units)
	})
	return b, err
}

// order returns the public order of the entries; ok is false while there is none.
func (b *lineBooks) order() (order ranks.Order, ok bool) {
	seed, err := hex.DecodeString(b.seed)
	if err != nil || b.phase == "entering" || b.phase == "sealed" && (b.root == "" || b.seed == "" && b.sealed > 0) {
		return order, false
	}
	copy(order.Seed[:], seed)
	order.N = b.sealed
	return order, true
}

// waiting returns how many entrants wait or are called.
func (b *lineBooks) waiting() (n int) {
	for _, e := range b.entrants {
		if e.state == "waiting" {
			n++
		}
	}
	return n
}

// usersIn returns the users whose entries are in a state, in the order of their numbers.
func (b *lineBooks) usersIn(state string) (users []string) {
	for _, e := range b.entrants {
		if e.state == state {
			users = append(users, e.user)
		}
	}
	return users
}

// lineChecker compares the books of a sale in line with the invariants L1 to L5, and with what it saw before.
type lineChecker struct {
	before *lineBooks      // at the last look
	open   map[string]bool // the orders from when the sale was not yet in line
}

// look returns what is wrong with the books, each with the invariant that it breaks.
func (c *lineChecker) look(b *lineBooks) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	// A line and a draw are in line from the start. A waiting list begins at some moment before the look that shows it.
	if b.mode == "rush" && (c.before == nil || !c.before.lined) {
		c.open = map[string]bool{}
		for _, o := range b.orders {
			c.open[o.id] = true
		}
	}
	c.units(b, bad)
	states := c.people(b, bad)
	c.inOrder(b, bad)
	c.sales(b, states, bad)
	if c.before != nil {
		since(c.before, b, bad)
	}
	c.before = b
	return wrong
}

// units checks L1: the units behind calls are there, and none is open to all.
func (c *lineChecker) units(b *lineBooks, bad func(string, ...any)) {
	called, held, paid := int64(0), int64(0), int64(0)
	for _, t := range b.turns {
		called += t.units
	}
	for _, o := range b.orders {
		switch o.status {
		case "pending":
			held += o.units
		case "paid":
			paid += o.units
		}
	}
	switch {
	case min(b.available, b.reserved, b.called, b.held, b.paid) < 0:
		bad("L1: negative stock, so more is called than there is: reserved %d, called %d", b.reserved, b.called)
	case b.available+b.reserved+b.called+b.held+b.paid != b.quota:
		bad("L1: the stock doesn't add up to %d", b.quota)
	}
	if b.called != called {
		bad("L1: the stock has %d called units, the calls %d", b.called, called)
	}
	if b.lined && b.available != 0 {
		bad("L1: %d units are open to all, and the sale is in line", b.available)
	}
	if b.held != held || b.paid != paid {
		bad("L1: the stock has %d held and %d paid units, the orders %d and %d", b.held, b.paid, held, paid)
	}
}

// people checks L2: a user has one entry and at most one call, which belongs to it. It returns the states of the entries by
// user.
func (c *lineChecker) people(b *lineBooks, bad func(string, ...any)) map[string]string {
	states, numbers, called := map[string]string{}, map[int64]string{}, map[string]bool{}
	for i, e := range b.entrants {
		if states[e.user] != "" {
			bad("L2: %s has two entries", e.user)
		}
		if e.number != int64(i) {
			bad("L2: entry %d of %s is at place %d", e.number, e.user, i)
		}
		states[e.user], numbers[e.number] = e.state, e.user
	}
	if int64(len(b.entrants)) != b.entries {
		bad("L2: the line has %d entries, and counts %d", len(b.entrants), b.entries)
	}
	for _, t := range b.turns {
		if called[t.user] {
			bad("L2: %s has two calls", t.user)
		}
		if called[t.user] = true; numbers[t.number] != t.user || states[t.user] != "waiting" {
			bad("L2: %s has a call for entry %d, which is %q", t.user, t.number, states[t.user])
		}
	}
	return states
}

// inOrder checks the second part of L3: everybody below serving was called or has left, and nobody else was called.
func (c *lineChecker) inOrder(b *lineBooks, bad func(string, ...any)) {
	order, ok := b.order()
	if !ok {
		if len(b.turns) > 0 || b.serving > 0 {
			bad("L3: %d calls before there is an order, serving %d", len(b.turns), b.serving)
		}
		return
	}
	if b.passed {
		return // a draw has passed over a large entry, and serving is there
	}
	called := map[int64]bool{}
	for _, t := range b.turns {
		called[t.number] = true
	}
	for _, e := range b.entrants {
		rank := order.Rank(e.number)
		switch {
		case rank < b.serving && e.state == "waiting" && !called[e.number] && b.phase != "over": // whose call the end has ended
			bad("L3: rank %d was passed over, serving %d", rank, b.serving)
		case rank >= b.serving && (e.state == "spent" || e.state == "lapsed" || called[e.number]):
			bad("L3: rank %d had its turn before its time, serving %d", rank, b.serving)
		}
	}
}

// sales checks the first part of L3, and L5: an order since the sale is in line is that of an entry which was called, and each
// such entry has one order.
func (c *lineChecker) sales(b *lineBooks, states map[string]string, bad func(string, ...any)) {
	bought, waiting := map[string]int{}, b.waiting()
	for _, o := range b.orders {
		inLine := o.source == "line" || o.source == "draw"
		switch {
		case !inLine && !c.open[o.id] && states[o.user] == "" && waiting > 0:
			bad("L5: %s never entered and has an order from %s, while %d wait", o.user, o.source, waiting)
		case !inLine && !c.open[o.id]:
			bad("L3: %s has an order from %s, not from the line", o.user, o.source)
		case inLine && states[o.user] != "spent":
			bad("L3: %s has an order, and the entry is %q", o.user, states[o.user])
		}
		if inLine {
			bought[o.user]++
		}
	}
	for user, state := range states {
		if state == "spent" && bought[user] != 1 {
			bad("L3: %s has spent the call on %d orders", user, bought[user])
		}
	}
}

// since checks what may never change between two looks, L4 among it.
func since(a, b *lineBooks, bad func(string, ...any)) {
	if _, fixed := a.order(); fixed && (a.sealed != b.sealed || a.root != b.root || a.seed != b.seed) {
		bad("L4: the seal was %d %q %q, and is %d %q %q", a.sealed, a.root, a.seed, b.sealed, b.root, b.seed)
	}
	if a.phase == "sealed" && (a.sealed != b.sealed || a.root != "" && a.root != b.root) {
		bad("L4: %d were sealed under root %q, and now %d under %q", a.sealed, a.root, b.sealed, b.root)
	}
	if b.serving < a.serving && !b.passed {
		bad("L3: serving went back from %d to %d", a.serving, b.serving)
	}
	if a.lined && !b.lined {
		bad("L5: the sale is no longer in line")
	}
	for i, e := range a.entrants {
		if i >= len(b.entrants) || b.entrants[i].user != e.user {
			bad("L4: entry %d of %s is another one", e.number, e.user)
		} else if now := b.entrants[i].state; e.state != "waiting" && now != e.state {
			bad("L2: entry %d of %s was %s, and is %s", e.number, e.user, e.state, now)
		}
	}
}

// sealRight checks that the seed is the one of the entries before the seal.
func (b *lineBooks) sealRight() error {
	if b.root == "" {
		return nil
	}
	key, err := hex.DecodeString(b.leafKey)
	if err != nil {
		return err
	}
	var secret ranks.Hash
	if err := secret.UnmarshalText([]byte(b.secret)); err != nil {
		return err
	}
	var root ranks.Root
	for _, e := range b.entrants[:b.sealed] {
		root.Add(ranks.Tag(key, e.user))
	}
	seed := ""
	if b.sealed > 0 {
		randomness, err := hex.DecodeString(b.randomness)
		if err != nil {
			return err
		}
		seed = ranks.Seed(secret, root.Sum(), randomness).String()
	}
	if got := root.Sum().String(); got != b.root || seed != b.seed {
		return fmt.Errorf("L4: root %s and seed %s follow from the entries, not %s and %s", got, seed, b.root, b.seed)
	}
	return nil
}

// watchLine is watch for a sale in line. It compares the books with the invariants of lines at every look, and reports the
// first violation of each at once: the row may not come to its end.
func (d *drill) watchLine(sale string) (end func() string) {
	checker, first, told := &lineChecker{}, "", map[string]bool{}
	look := func(int, int) {
		b, err := d.books.line(d.Context(), sale)
		if err != nil {
			return // the database may be down
		}
		all := checker.look(&b)
		for _, id := range d.variants {
			if wrong, err := d.books.imbalance(d.Context(), id); err == nil && wrong != "" {
				all = append(all, "L1: a size: "+wrong)
			}
		}
		for _, wrong := range all {
			first = cmp.Or(first, wrong)
			if invariant, _, _ := strings.Cut(wrong, ":"); !told[invariant] {
				told[invariant] = true
				d.Error(wrong)
			}
		}
	}
	stop := d.meanwhile(1, lookPeriod, look)
	return func() string {
		stop()
		look(0, 0)
		return first
	}
}

// healthyLine returns the books of a sale with four entries, of which the first two ranks were called: one has bought.
func healthyLine() *lineBooks {
	b := &lineBooks{
		quota: 2, called: 1, held: 1, lined: true, mode: "line", phase: "calling", root: "ab", seed: strings.Repeat("5", 64),
		entries: 4, sealed: 3, serving: 2,
	}
	order, _ := b.order()
	for i := range b.entries {
		b.entrants = append(b.entrants, entrant{i, fmt.Sprint("u", i), "waiting"})
	}
	first, second := &b.entrants[order.Number(0)], b.entrants[order.Number(1)]
	first.state = "spent"
	b.orders = []sold{{"1", first.user, "pending", "line", 1}}
	b.turns = []turn{{second.number, second.user, 1, false}}
	return b
}

func TestLineChecker(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *lineBooks)
		says   string
	}{
		"all is well":                {func(*lineBooks) {}, ""},
		"the one who waits leaves":   {func(b *lineBooks) { b.entrants[3].state = "left" }, ""},
		"more called than there are": {func(b *lineBooks) { b.reserved, b.called, b.turns[0].units = -1, 2, 2 }, "L1: negative"},
		"a unit is lost":             {func(b *lineBooks) { b.held = 0 }, "L1: the stock doesn't add up"},
		"a call without its unit":    {func(b *lineBooks) { b.called, b.reserved = 0, 1 }, "L1: the stock has 0 called"},
		"a unit open to all":         {func(b *lineBooks) { b.available, b.quota = 1, 3 }, "L1: 1 units are open"},
		"an order without its unit":  {func(b *lineBooks) { b.held, b.reserved = 0, 1 }, "L1: the stock has 0 held"},
		"two entries of one":         {func(b *lineBooks) { b.entrants[3].user = b.turns[0].user }, "L2: .* two entries"},
		"a number is missing":        {func(b *lineBooks) { b.entrants[3].number = 4 }, "L2: entry 4"},
		"an entry is not counted":    {func(b *lineBooks) { b.entries = 3 }, "L2: the line has 4"},
		"two calls of one":           {func(b *lineBooks) { b.turns = append(b.turns, b.turns[0]); b.called, b.quota = 2, 3 }, "L2: .* two calls"},
		"a call for another's entry": {func(b *lineBooks) { b.turns[0].user = "eve" }, "L2: eve"},
		"a rank is passed over":      {func(b *lineBooks) { b.serving = 3 }, "L3: rank 2 was passed over"},
		"a call before its time":     {func(b *lineBooks) { b.serving = 1 }, "L3: rank 1 had its turn"},
		"calls before the order":     {func(b *lineBooks) { b.phase = "entering" }, "L3: 1 calls before"},
		"an order of one who waits":  {func(b *lineBooks) { b.orders[0].user = "u3" }, "L3: u3 has an order"},
		"an order of a stranger":     {func(b *lineBooks) { b.orders[0].user = "eve" }, "L3: eve has an order"},
		"a stranger, past the line":  {func(b *lineBooks) { b.orders[0].user, b.orders[0].source = "eve", "stream" }, "L5: eve"},
		"an entrant, past the line":  {func(b *lineBooks) { b.orders[0].source = "stream" }, "L3: .* from stream"},
		"a call spent on two orders": {func(b *lineBooks) { b.orders = append(b.orders, b.orders[0]); b.held, b.quota = 2, 3 }, "L3: .* on 2 orders"},
		"a call spent on nothing":    {func(b *lineBooks) { b.orders, b.held, b.reserved = nil, 0, 1 }, "L3: .* on 0 orders"},
		"another seed":               {func(b *lineBooks) { b.seed = strings.Repeat("6", 64); b.entries = 0 }, "L4: the seal was"},
		"another n":                  {func(b *lineBooks) { b.sealed = 4 }, "L4: the seal was"},
		"another root":               {func(b *lineBooks) { b.root = "cd" }, "L4: the seal was"},
		"another user at a number":   {func(b *lineBooks) { b.entrants[3].user = "eve" }, "L4: entry 3"},
		"serving goes back":          {func(b *lineBooks) { b.serving = 0 }, "L3: serving went back"},
		"open to all again":          {func(b *lineBooks) { b.lined = false }, "L5: .* no longer in line"},
		"spent, and waits again": {func(b *lineBooks) {
			b.entrants[0].state, b.entrants[1].state, b.entrants[2].state = "waiting", "waiting", "waiting"
		}, "L2: .* was spent"},
		"the rest of a waiting list": {func(b *lineBooks) { b.mode, b.orders[0].source = "rush", "stream" }, "L3: "},
	} {
		t.Run(name, func(t *testing.T) {
			checker := &lineChecker{}
			if wrong := checker.look(healthyLine()); len(wrong) > 0 {
				t.Fatalf("healthy books: %q", wrong)
			}
			b := healthyLine()
			tc.change(b)
			wrong := checker.look(b)
			if found := slices.ContainsFunc(wrong, matches(tc.says)); tc.says != "" && !found || tc.says == "" && len(wrong) > 0 {
				t.Errorf("got %q, want %q", wrong, tc.says)
			}
		})
	}
}

// The orders from before a waiting list are no entrants' orders, and stay.
func TestLineCheckerBeforeTheLine(t *testing.T) {
	b := func(available int64, lined bool, orders ...sold) *lineBooks {
		return &lineBooks{quota: 2, available: available, held: int64(len(orders)), lined: lined, mode: "rush", phase: "calling", orders: orders}
	}
	ann, bob, eve := sold{"1", "ann", "pending", "stream", 1}, sold{"2", "bob", "pending", "database", 1}, sold{"3", "eve", "pending", "stream", 1}
	checker := &lineChecker{}
	for _, books := range []*lineBooks{b(2, false), b(1, false, ann), b(0, true, ann, bob), b(0, true, ann, bob)} {
		if wrong := checker.look(books); len(wrong) > 0 {
			t.Errorf("%+v: %q", books, wrong)
		}
	}
	bob.status = "cancelled"
	stolen := b(0, true, ann, bob, eve)
	stolen.held, stolen.entries, stolen.entrants = 2, 1, []entrant{{0, "cat", "waiting"}}
	if wrong := checker.look(stolen); len(wrong) != 1 || !matches("^L5: eve")(wrong[0]) {
		t.Errorf("a unit that came back was sold past the line: %q", wrong)
	}
}

// matches returns whether a text matches a pattern.
func matches(pattern string) func(text string) bool { return regexp.MustCompile(pattern).MatchString }
