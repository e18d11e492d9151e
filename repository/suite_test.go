package repository

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// suiteConns is small, so that crowds share connections as the buyers of a rush do.
const suiteConns = 8

func TestMain(m *testing.M) {
	if err := mysqldriver.SetLogger(driverLines); err != nil {
		panic(err)
	}
	// Each test migrates databases of its own, which allocates megabytes. By default, the garbage collector would do a
	// sixth of all work.
	debug.SetGCPercent(400)
	kit.Main(m)
}

// driverLines records the first line that the MySQL driver logs by itself.
var driverLines = make(lineRecorder, 1)

type lineRecorder chan string

func (r lineRecorder) Print(v ...any) {
	select {
	case r <- fmt.Sprint(v...):
	default:
	}
}

// accepted fails the test unless the verdict is Accepted. It does not end the test.
func accepted(t testing.TB, verdict model.Verdict, err error) {
	t.Helper()
	if err != nil || verdict != model.Accepted {
		t.Errorf("got %q, %v, want accepted", verdict, err)
	}
}

// testDB is a store over a database of its own.
type testDB struct {
	*Store
	address string
	hooks   *hooks
}

// onBoth runs a test on each kind of database.
func onBoth(t *testing.T, test func(t *testing.T, d *testDB)) {
	t.Helper()
	t.Parallel()
	for name, address := range map[string]func(testing.TB) string{"SQLite": kit.SQLite, "MariaDB": mariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openDB(t, address(t)))
		})
	}
}

func mariaDB(t testing.TB) string { return kit.SharedMariaDB(t).NewDatabase(t) }

// openDB opens a store with the newest schema. When the test ends, the books of all sales must balance.
func openDB(t *testing.T, address string) *testDB {
	t.Helper()
	d := openStore(t, address, suiteConns)
	check.NoError(t, d.MigrateUp(t.Context()))
	t.Cleanup(func() { d.balanced(t) })
	return d
}

// openStore opens a store and leaves the database as it is.
func openStore(t testing.TB, address string, conns int) *testDB {
	t.Helper()
	h := &hooks{}
	store, err := OpenBy(t.Context(), address, conns, h.open)
	check.NoError(t, err)
	t.Cleanup(func() { check.Error(t, "close", store.Close(), nil) })
	return &testDB{Store: store, address: address, hooks: h}
}

// empty opens a new database of the same kind, which has no tables.
func (d *testDB) empty(t *testing.T) *testDB {
	t.Helper()
	if d.sqlite {
		return openStore(t, kit.SQLite(t), suiteConns)
	}
	return openStore(t, mariaDB(t), suiteConns)
}

// another opens the store of another instance on the same database.
func (d *testDB) another(t *testing.T) *testDB {
	t.Helper()
	return openStore(t, d.address, suiteConns)
}

// pair returns the stores of two instances on the same database. On SQLite it returns the same store twice, because
// in production only one instance uses the file.
func (d *testDB) pair(t *testing.T) [2]*testDB {
	t.Helper()
	if d.sqlite {
		return [2]*testDB{d, d}
	}
	return [2]*testDB{d, d.another(t)}
}

// wrongRows are queries for rows that contradict each other, by what they find.
var wrongRows = map[string]string{
	"attempts with an order and a refusal": `SELECT id FROM orders JOIN refusals ON order_id = id`,
	"sales whose gate is not told of all changes": `SELECT sale_id FROM stock WHERE epoch > 0 AND lined < 2 AND available <> quota
		+ COALESCE((SELECT SUM(units) FROM gate_changes c WHERE c.sale_id = stock.sale_id AND order_id <> ''), 0)
		- COALESCE((SELECT SUM(quantity) FROM orders o WHERE o.sale_id = stock.sale_id AND source = 'stream'), 0)`,
	"buyers above the limit": `SELECT CONCAT(user_id, ': ', units) FROM buyers JOIN sales ON sales.id = sale_id
		WHERE units > limit_per_user
		UNION SELECT CONCAT(user_id, ': ', units) FROM buyers JOIN campaigns ON campaigns.id = sale_id WHERE units > limit_per_user`,
	"buyers whose units differ from those of their orders": `SELECT CONCAT(buyers.user_id, ': ', units) FROM buyers LEFT JOIN
		(SELECT place, user_id, SUM(quantity) AS had FROM
			(SELECT sale_id AS place, user_id, quantity FROM orders WHERE status IN ('pending', 'paid')
			UNION ALL SELECT campaign_id, user_id, quantity FROM orders JOIN sales ON sales.id = sale_id
				WHERE orders.status IN ('pending', 'paid') AND campaign_id IS NOT NULL) AS each_order
			GROUP BY place, user_id)
		AS live ON live.place = buyers.sale_id AND live.user_id = buyers.user_id WHERE units <> COALESCE(had, 0)`,
	"orders whose user is not a buyer": `SELECT orders.id FROM orders LEFT JOIN buyers ON buyers.sale_id = orders.sale_id
		AND buyers.user_id = orders.user_id WHERE units IS NULL`,
	"orders of a line whose users have no spent entry, or the reverse": `SELECT orders.id FROM orders JOIN sales ON sales.id = sale_id
		WHERE source IN ('line', 'draw') AND NOT EXISTS (SELECT 1 FROM entries e
			WHERE e.sale_id = COALESCE(campaign_id, sales.id) AND e.user_id = orders.user_id AND state = 'spent')
		UNION SELECT user_id FROM entries WHERE state = 'spent' AND NOT EXISTS (SELECT 1 FROM orders JOIN sales ON sales.id = orders.sale_id
			WHERE COALESCE(campaign_id, sales.id) = entries.sale_id AND orders.user_id = entries.user_id AND source IN ('line', 'draw'))`,
	"calls of entries that don't wait": `SELECT calls.user_id FROM calls JOIN entries e ON e.sale_id = calls.sale_id AND e.number = calls.number
		WHERE state <> 'waiting'`,
	"lines whose count of entries is wrong": `SELECT sale_lines.sale_id FROM sale_lines WHERE entries <>
		(SELECT COUNT(*) FROM entries e WHERE e.sale_id = sale_lines.sale_id)`,
	"paid orders without a time or a payment": `SELECT id FROM orders WHERE status = 'paid' AND (paid_at_ms IS NULL OR NOT EXISTS
		(SELECT 1 FROM payments WHERE order_id = orders.id AND payments.status = 'succeeded'
			AND payments.amount_cents = orders.amount_cents))`,
	"orders paid by two transactions": `SELECT order_id FROM payments WHERE status = 'succeeded'
		GROUP BY order_id HAVING COUNT(*) > 1`,
	"payments kept for an order that is not paid": `SELECT payments.id FROM payments JOIN orders ON orders.id = order_id
		WHERE payments.status = 'succeeded' AND orders.status <> 'paid'`,
}

// balanced checks the invariants of all sales: I1 and I2 by the sums of Books, the others by wrongRows.
func (d *testDB) balanced(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	read := func(query string) (list []string) {
		if err := d.read.WithContext(ctx).Raw(query).Scan(&list).Error; err != nil {
			t.Errorf("%s: %v", query, err)
		}
		return list
	}
	for _, id := range read("SELECT id FROM sales") {
		books, ok, err := d.Books(ctx, id)
		if err != nil || !ok {
			t.Errorf("sale %s has no books: %v", id, err)
			continue
		}
		for _, v := range books.Violations() {
			t.Errorf("sale %s: %s", id, v)
		}
		if s := books.Stock; min(s.Available, s.Held, s.Paid) < 0 {
			t.Errorf("sale %s has negative units: %+v", id, s)
		}
	}
	for what, query := range wrongRows {
		if found := read(query); len(found) > 0 {
			t.Errorf("%d %s; the first is %s", len(found), what, found[0])
		}
	}
}

// newSale creates an open sale with limit 1, unless an edit changes that.
func (d *testDB) newSale(t *testing.T, quota int64, edits ...func(*model.Sale)) model.Sale {
	t.Helper()
	now := d.now(t)
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "猫咪 mug", Description: "A mug", ImageURL: "/mug.webp",
		PriceCents: 1990, OriginalPriceCents: 4990, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 900, Shards: 1, StockShown: model.StockExact, Mode: model.ModeRush,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
	}
	sale.Code = sale.ID[:8]
	for _, edit := range edits {
		edit(&sale)
	}
	check.NoError(t, d.CreateSale(t.Context(), sale, quota, "op"))
	d.exec(t, "UPDATE stock SET epoch = 1 WHERE sale_id = ?", sale.ID) // the sale has a gate, which must be told of changes
	return sale
}

func limit(n int) func(*model.Sale) { return func(s *model.Sale) { s.LimitPerUser = n } }

func status(status model.SaleStatus) func(*model.Sale) {
	return func(s *model.Sale) { s.Status = status }
}

// shadow makes a shadow sale of a sale.
func shadow(s *model.Sale) {
	s.ID, s.Status = model.NewShadowID(), model.SaleShadow
	s.Code = s.ID[len(s.ID)-8:]
}

// shift moves the window of a sale.
func shift(by time.Duration) func(*model.Sale) {
	return func(s *model.Sale) { s.StartsAt, s.EndsAt = s.StartsAt.Add(by), s.EndsAt.Add(by) }
}

// change applies an operator's edit. It does not end the test, because crowds call it too.
func (d *testDB) change(t *testing.T, saleID string, addQuota int64, edits ...func(*model.Sale)) model.Offer {
	t.Helper()
	offer, verdict := d.tryChange(t, saleID, addQuota, edits...)
	accepted(t, verdict, nil)
	return offer
}

// tryChange changes a sale and returns the verdict.
func (d *testDB) tryChange(t *testing.T, saleID string, addQuota int64, edits ...func(*model.Sale)) (model.Offer, model.Verdict) {
	t.Helper()
	offer, verdict, err := d.ChangeSale(t.Context(), model.SaleChange{
		SaleID: saleID, Actor: "op", Action: "patch", AddQuota: addQuota,
		Edit: func(s *model.Sale) model.Verdict {
			for _, edit := range edits {
				edit(s)
			}
			return model.Accepted
		},
	})
	check.NoError(t, err)
	return offer, verdict
}

func (d *testDB) nextEpoch(t *testing.T, saleID string, seen int64) {
	t.Helper()
	if _, won, err := d.NextEpoch(t.Context(), saleID, seen, seen, 0); err != nil || !won {
		t.Fatalf("no epoch after %d: %v", seen, err)
	}
}

// told returns the changes after a version that the sale's gate must be told.
func (d *testDB) told(t *testing.T, saleID string, after int64) []model.GateChange {
	t.Helper()
	changes, _, more, err := d.GateChanges(t.Context(), saleID, after, 1<<20)
	if err != nil || more {
		t.Fatalf("read the changes for the gate: %t, %v", more, err)
	}
	return changes
}

func (d *testDB) now(t *testing.T) time.Time {
	t.Helper()
	now, err := d.Now(t.Context())
	check.NoError(t, err)
	return now
}

// overdue moves the end of the orders' time to pay into the past, by the database's clock.
func (d *testDB) overdue(t *testing.T, by time.Duration, ids ...string) {
	t.Helper()
	d.exec(t, "UPDATE orders SET expires_at_ms = "+d.nowMillis()+" - ? WHERE id IN ?", by.Milliseconds(), ids)
}

// expireDue expires at most limit overdue orders and returns their releases by sale.
func (d *testDB) expireDue(ctx context.Context, grace time.Duration, limit int) (map[string][]model.Release, error) {
	bySale, err := d.Overdue(ctx, grace, model.ClockStep{}, limit, nil)
	if err != nil {
		return nil, err
	}
	released := map[string][]model.Release{}
	for saleID, orderIDs := range bySale {
		releases, err := d.Expire(ctx, saleID, orderIDs)
		if err != nil {
			return nil, err
		}
		if len(releases) > 0 {
			released[saleID] = releases
		}
	}
	return released, nil
}

// expire makes orders overdue and expires them.
func (d *testDB) expire(t *testing.T, orders ...model.Order) {
	t.Helper()
	for _, o := range orders {
		d.overdue(t, time.Second, o.ID)
		released, err := d.Expire(t.Context(), o.SaleID, []string{o.ID})
		if err != nil || len(released) != 1 {
			t.Fatalf("expire order %s: %v, %v", o.ID, released, err)
		}
	}
}

func (d *testDB) order(t *testing.T, id string) model.Order {
	t.Helper()
	o, ok, err := d.Order(t.Context(), id)
	if err != nil || !ok {
		t.Fatalf("order %s does not exist: %v", id, err)
	}
	return o
}

// noOrder checks that an attempt has neither an order nor a refusal.
func (d *testDB) noOrder(t *testing.T, a model.Attempt) {
	t.Helper()
	if o, ok, err := d.Order(t.Context(), a.ID); ok || err != nil {
		t.Errorf("%s has the order %+v, %v", a.UserID, o, err)
	}
}

func (d *testDB) offer(t *testing.T, saleID string) model.Offer {
	t.Helper()
	offer, ok, err := d.Offer(t.Context(), saleID)
	if err != nil || !ok {
		t.Fatalf("sale %s does not exist: %v", saleID, err)
	}
	return offer
}

func (d *testDB) stock(t *testing.T, saleID string) model.Stock {
	t.Helper()
	return d.offer(t, saleID).Stock
}

type units struct{ available, held, paid int64 }

func (d *testDB) wantUnits(t *testing.T, saleID string, want units) {
	t.Helper()
	s := d.stock(t, saleID)
	check.Same(t, "available, held and paid units", units{s.Available, s.Held, s.Paid}, want)
}

// live returns how many units of a user count against the limit.
func (d *testDB) live(t *testing.T, saleID, user string) int {
	t.Helper()
	byUser, err := d.unitsOf(d.read.WithContext(t.Context()), saleID, []string{user})
	check.NoError(t, err)
	return byUser[user]
}

func (d *testDB) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if err := d.write.WithContext(t.Context()).Exec(query, args...).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// count returns the single number that a query answers.
func (d *testDB) count(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.read.WithContext(t.Context()).Raw(query, args...).Scan(&n).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// dump returns all rows of all tables as text.
func (d *testDB) dump(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, table := range d.tables(t) {
		var rows []map[string]any
		check.NoError(t, d.read.WithContext(t.Context()).Table(table).Find(&rows).Error)
		for _, r := range rows {
			lines = append(lines, fmt.Sprintf("%s %q", table, fmt.Sprint(r)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// wantPages reads a list in pages and checks their rows by their ids. All pages but the last must be full.
func wantPages[T any](t *testing.T, size int, read func(cursor string) ([]T, string, error), id func(T) string, want []string) {
	t.Helper()
	var got []string
	pages, cursor := 0, ""
	for more := true; more && pages <= len(want); pages++ {
		list, next, err := read(cursor)
		check.NoError(t, err)
		if len(list) > size || next != "" && len(list) < size {
			t.Errorf("page %d of size %d has %d rows; the next is at %q", pages, size, len(list), next)
		}
		for _, row := range list {
			got = append(got, id(row))
		}
		cursor, more = next, next != ""
	}
	check.Same(t, fmt.Sprintf("%d rows in pages of %d", len(want), size), got, want)
	check.Same(t, fmt.Sprintf("number of pages of %d", size), pages, max(1, (len(want)+size-1)/size))
}

// gateContents reads what a new gate must know.
func (d *testDB) gateContents(t *testing.T, saleID string) kit.Contents {
	t.Helper()
	c, ok, err := d.GateContents(t.Context(), saleID)
	if err != nil || !ok {
		t.Fatalf("sale %s has no contents: %t, %v", saleID, ok, err)
	}
	read, err := kit.ReadContents(t.Context(), c)
	check.NoError(t, err)
	return read
}
