package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"flashsale/model"
	"flashsale/test/kit"
)

// suiteConns is small, so that the tests' crowds have to share connections as a rush does.
const suiteConns = 8

func TestMain(m *testing.M) {
	if err := mysqldriver.SetLogger(driverLines); err != nil {
		panic(err)
	}
	// Reading the migrations takes megabytes each time, and each test has databases of its own: the collector
	// would be a sixth of all work.
	debug.SetGCPercent(400)
	kit.Main(m)
}

// driverLines takes what the MySQL driver writes by itself, past the errors that it returns.
var driverLines = make(lineRecorder, 1)

type lineRecorder chan string

func (r lineRecorder) Print(v ...any) {
	select {
	case r <- fmt.Sprint(v...):
	default: // one line is enough to complain about
	}
}

// orderIDs has the key of all tests.
var orderIDs = model.NewOrderIDs([]byte("the key of the suite"))

// testDB is a store over a database of its own.
type testDB struct {
	*Store
	address string
}

// onBoth runs a test over each kind of database. Whatever the test did, the books of all its sales have
// to balance afterwards.
func onBoth(t *testing.T, test func(t *testing.T, d *testDB)) {
	t.Helper()
	t.Parallel()
	for name, address := range map[string]func(*testing.T) string{"SQLite": sqliteAddress, "MariaDB": mariadbAddress} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDB(t, address(t))
			t.Cleanup(func() { d.balanced(t) })
			test(t, d)
		})
	}
}

func sqliteAddress(t *testing.T) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "folder", "shop.db")
}

func mariadbAddress(t *testing.T) string { return kit.SharedMariaDB(t).NewDatabase(t) }

// openDB opens a store and brings its schema up to date.
func openDB(t *testing.T, address string) *testDB {
	t.Helper()
	d := openStore(t, address, suiteConns)
	if err := d.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// openStore opens a store and leaves the database as it is.
func openStore(t *testing.T, address string, conns int) *testDB {
	t.Helper()
	store, err := Open(t.Context(), address, conns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &testDB{Store: store, address: address}
}

// another is the store of one more instance over the same database.
func (d *testDB) another(t *testing.T) *testDB {
	t.Helper()
	return openStore(t, d.address, suiteConns)
}

// peer is for crowds: another instance's store, or this one over SQLite, whose file one instance has to itself.
func (d *testDB) peer(t *testing.T) *testDB {
	t.Helper()
	if d.sqlite {
		return d
	}
	return d.another(t)
}

// balanced holds every sale's books against the invariants: I1 and I2 by the sums of Books, I4 and the sums of
// each buyer, and I5: no attempt has both an order and a refusal.
func (d *testDB) balanced(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var sales []string
	if err := d.read.WithContext(ctx).Raw("SELECT id FROM sales").Scan(&sales).Error; err != nil {
		t.Errorf("list the sales: %v", err)
	}
	for _, id := range sales {
		books, ok, err := d.Books(ctx, id)
		if err != nil || !ok {
			t.Errorf("sale %s has no books: %v", id, err)
			continue
		}
		for _, v := range books.Violations() {
			t.Errorf("sale %s: %s", id, v)
		}
		if s := books.Stock; min(s.Available, s.Held, s.Paid) < 0 {
			t.Errorf("sale %s owes units: %+v", id, s)
		}
	}
	for what, query := range map[string]string{
		"attempts that are both an order and refused": `SELECT id FROM orders JOIN refusals ON order_id = id`,
		"sales whose gate is not told all that it has to know": `SELECT sale_id FROM stock WHERE epoch > 0 AND available <> quota
			+ COALESCE((SELECT SUM(units) FROM gate_changes c WHERE c.sale_id = stock.sale_id AND order_id <> ''), 0)
			- COALESCE((SELECT SUM(quantity) FROM orders o WHERE o.sale_id = stock.sale_id AND source = 'stream'), 0)`,
		"buyers above the limit": `SELECT CONCAT(user_id, ': ', units) FROM buyers JOIN sales ON sales.id = sale_id
			WHERE units > limit_per_user`,
		"buyers whose units are not those of their orders": `SELECT CONCAT(buyers.user_id, ': ', units) FROM buyers LEFT JOIN
			(SELECT sale_id, user_id, SUM(quantity) AS had FROM orders WHERE status IN ('pending', 'paid') GROUP BY sale_id, user_id) AS live
			ON live.sale_id = buyers.sale_id AND live.user_id = buyers.user_id WHERE units <> COALESCE(had, 0)`,
		"orders whose user is no buyer": `SELECT orders.id FROM orders LEFT JOIN buyers ON buyers.sale_id = orders.sale_id
			AND buyers.user_id = orders.user_id WHERE units IS NULL`,
		"paid orders without the time or the money": `SELECT id FROM orders WHERE status = 'paid' AND (paid_at_ms IS NULL OR NOT EXISTS
			(SELECT 1 FROM payments WHERE order_id = orders.id AND payments.status = 'succeeded' AND payments.amount_cents = orders.amount_cents))`,
		"orders paid by two transactions": `SELECT order_id FROM payments WHERE status = 'succeeded' GROUP BY order_id HAVING COUNT(*) > 1`,
		"payments kept for an order that is not paid": `SELECT payments.id FROM payments JOIN orders ON orders.id = order_id
			WHERE payments.status = 'succeeded' AND orders.status <> 'paid'`,
	} {
		var found []string
		if err := d.read.WithContext(ctx).Raw(query).Scan(&found).Error; err != nil {
			t.Errorf("look for %s: %v", what, err)
		}
		if len(found) > 0 {
			t.Errorf("%d %s, the first is %s", len(found), what, found[0])
		}
	}
}

// newSale creates a sale that is open, at limit 1, unless an edit says otherwise.
func (d *testDB) newSale(t *testing.T, quota int64, edits ...func(*model.Sale)) model.Sale {
	t.Helper()
	now := d.now(t)
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "猫咪 mug", Description: "A mug", ImageURL: "/mug.webp",
		PriceCents: 1990, OriginalPriceCents: 4990, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 900, Parts: 1,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
	}
	sale.Code = sale.ID[:8]
	for _, edit := range edits {
		edit(&sale)
	}
	if err := d.CreateSale(t.Context(), sale, quota, "op"); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "UPDATE stock SET epoch = 1 WHERE sale_id = ?", sale.ID) // it has a gate, which has to be told of changes
	return sale
}

// told are the changes behind a version that the sale's gate has to be told.
func (d *testDB) told(t *testing.T, saleID string, after int64) []model.GateChange {
	t.Helper()
	changes, _, more, err := d.GateChanges(t.Context(), saleID, after, 1<<20)
	if err != nil || more {
		t.Fatalf("read the changes for the gate: %t, %v", more, err)
	}
	return changes
}

func limit(n int) func(*model.Sale) { return func(s *model.Sale) { s.LimitPerUser = n } }

func (d *testDB) now(t *testing.T) time.Time {
	t.Helper()
	now, err := d.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// change applies an operator's edit.
func (d *testDB) change(t *testing.T, saleID string, addQuota int64, edit func(*model.Sale)) model.Offer {
	t.Helper()
	offer, verdict, err := d.ChangeSale(t.Context(), model.SaleChange{
		SaleID: saleID, Actor: "op", Action: "patch", AddQuota: addQuota,
		Edit: func(s *model.Sale) model.Verdict {
			if edit != nil {
				edit(s)
			}
			return model.Accepted
		},
	})
	if err != nil || verdict != model.Accepted { // no Fatal: crowds call this, too
		t.Errorf("change sale %s: %s, %v", saleID, verdict, err)
	}
	return offer
}

func attempt(saleID, user, key string, quantity int) model.Attempt {
	return model.Attempt{
		ID: orderIDs.Derive(user, saleID, key), SaleID: saleID, UserID: user, Quantity: quantity,
		RequestKey: key, RequestHash: model.HashRequest(quantity),
	}
}

// attempts are of n users, one each, for one unit.
func attempts(saleID, users string, n int) []model.Attempt {
	list := make([]model.Attempt, n)
	for i := range list {
		list[i] = attempt(saleID, fmt.Sprintf("%s-%03d", users, i), "k", 1)
	}
	return list
}

func entries(list ...model.Attempt) []model.Entry {
	es := make([]model.Entry, len(list))
	for i, a := range list {
		es[i] = model.Entry{Attempt: a, StreamID: fmt.Sprintf("%d-0", i+1), Epoch: 1, Deliveries: 1}
	}
	return es
}

func (d *testDB) deduct(t *testing.T, saleID string, list ...model.Attempt) []model.Outcome {
	t.Helper()
	outcomes, err := d.Deduct(t.Context(), saleID, list)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// race deducts until no other writer comes between.
func (d *testDB) race(t *testing.T, saleID string, list ...model.Attempt) []model.Outcome {
	t.Helper()
	for {
		outcomes, err := d.Deduct(t.Context(), saleID, list)
		switch {
		case err == nil:
			return outcomes
		case !errors.Is(err, model.ErrLostRace):
			t.Errorf("deduct: %v", err)
			return make([]model.Outcome, len(list))
		}
	}
}

func (d *testDB) settle(t *testing.T, saleID string, list ...model.Attempt) []model.Outcome {
	t.Helper()
	outcomes, err := d.Settle(t.Context(), saleID, entries(list...))
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// buy gives a user a pending order.
func (d *testDB) buy(t *testing.T, saleID, user string, quantity int) model.Order {
	t.Helper()
	o := d.deduct(t, saleID, attempt(saleID, user, model.NewSaleID(), quantity))[0]
	if o.Verdict != model.Accepted || o.Order == nil {
		t.Fatalf("%s could not buy %d: %+v", user, quantity, o)
	}
	return *o.Order
}

// pay lets a provider report a transaction of a payment.
func (d *testDB) pay(t *testing.T, p model.Payment, txn string) (order model.Order, reinstated bool) {
	t.Helper()
	order, reinstated, verdict, err := d.ApplyCallback(t.Context(), p.Provider, model.Callback{
		PaymentID: p.ID, ProviderTxnID: txn, Succeeded: true, AmountCents: p.AmountCents,
	})
	if err != nil || verdict != model.Accepted {
		t.Errorf("pay: %s, %v", verdict, err)
	}
	return order, reinstated
}

func (d *testDB) startPayment(t *testing.T, o model.Order) model.Payment {
	t.Helper()
	p, verdict, err := d.StartPayment(t.Context(), o.UserID, o.ID, "bank")
	if err != nil || verdict != model.Accepted {
		t.Errorf("start the payment of %s: %s, %v", o.ID, verdict, err)
	}
	return p
}

// overdue moves the end of the orders' time to pay back by the database's clock.
func (d *testDB) overdue(t *testing.T, by time.Duration, ids ...string) {
	t.Helper()
	d.exec(t, "UPDATE orders SET expires_at_ms = "+d.nowMillis()+" - ? WHERE id IN ?", by.Milliseconds(), ids)
}

// expireAll expires what is due and gives the releases by order.
func (d *testDB) expireAll(t *testing.T) map[string]model.Release {
	t.Helper()
	byOrder := map[string]model.Release{}
	for {
		bySale, err := d.ExpireDue(t.Context(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(bySale) == 0 {
			return byOrder
		}
		for _, list := range bySale {
			for _, r := range list {
				if _, twice := byOrder[r.OrderID]; twice {
					t.Fatalf("order %s expired twice", r.OrderID)
				}
				byOrder[r.OrderID] = r
			}
		}
	}
}

func (d *testDB) order(t *testing.T, id string) model.Order {
	t.Helper()
	o, ok, err := d.Order(t.Context(), id)
	if err != nil || !ok {
		t.Fatalf("no order %s: %v", id, err)
	}
	return o
}

func (d *testDB) stock(t *testing.T, saleID string) model.Stock {
	t.Helper()
	offer, ok, err := d.Offer(t.Context(), saleID)
	if err != nil || !ok {
		t.Fatalf("no sale %s: %v", saleID, err)
	}
	return offer.Stock
}

// units are available, held and paid ones.
type units struct{ available, held, paid int64 }

func (d *testDB) wantUnits(t *testing.T, saleID string, want units) {
	t.Helper()
	s := d.stock(t, saleID)
	if got := (units{s.Available, s.Held, s.Paid}); got != want {
		t.Errorf("available, held and paid are %v, want %v", got, want)
	}
}

// live is how many units a user has against the limit.
func (d *testDB) live(t *testing.T, saleID, user string) int {
	t.Helper()
	byUser, err := d.unitsOf(d.read.WithContext(t.Context()), saleID, []string{user})
	if err != nil {
		t.Fatal(err)
	}
	return byUser[user]
}

func (d *testDB) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if err := d.write.WithContext(t.Context()).Exec(query, args...).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// count gives the single number that a query answers with.
func (d *testDB) count(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.read.WithContext(t.Context()).Raw(query, args...).Scan(&n).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func verdicts(outcomes []model.Outcome) []model.Verdict {
	list := make([]model.Verdict, len(outcomes))
	for i, o := range outcomes {
		list[i] = o.Verdict
	}
	return list
}

func wantVerdicts(t *testing.T, got []model.Outcome, want ...model.Verdict) {
	t.Helper()
	if !slices.Equal(verdicts(got), want) {
		t.Errorf("the outcomes are %q, want %q", verdicts(got), want)
	}
}

func tally(outcomes []model.Outcome) map[model.Verdict]int {
	counts := map[model.Verdict]int{}
	for _, o := range outcomes {
		counts[o.Verdict]++
	}
	return counts
}

// together runs n goroutines that one closed channel lets go, and waits for them.
func together(n int, run func(i int)) {
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-gate
			run(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

// between runs fn once, in the middle of this store's next Deduct: after its reads, which judge without writing,
// and before its transaction.
func (d *testDB) between(t *testing.T, fn func()) {
	t.Helper()
	pool, err := d.write.DB()
	if err != nil {
		t.Fatal(err)
	}
	hooked := &hookedPool{DB: pool, before: fn}
	d.write.ConnPool, d.write.Statement.ConnPool = hooked, hooked
}

// hookedPool is a pool that does something before its first transaction.
type hookedPool struct {
	*sql.DB
	once   sync.Once
	before func()
}

func (p *hookedPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	p.once.Do(p.before)
	return p.DB.BeginTx(ctx, opts)
}

// GetDBConn gives GORM what it wants for everything else.
func (p *hookedPool) GetDBConn() (*sql.DB, error) { return p.DB, nil }

// afterStockMoves runs what is armed once, when a transaction has moved units of the stock row and has not
// committed.
func (d *testDB) afterStockMoves(t *testing.T) (arm func(fn func())) {
	t.Helper()
	var armed atomic.Pointer[func()]
	err := d.write.Callback().Raw().After("gorm:raw").Register("suite:stock", func(tx *gorm.DB) {
		if !strings.HasPrefix(tx.Statement.SQL.String(), "UPDATE stock SET ") {
			return
		}
		if fn := armed.Swap(nil); fn != nil {
			(*fn)()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(fn func()) { armed.Store(&fn) }
}

// ExpireDue expires at most limit orders that are overdue, of all sales.
func (s *Store) ExpireDue(ctx context.Context, grace time.Duration, limit int) (map[string][]model.Release, error) {
	bySale, err := s.Overdue(ctx, grace, model.ClockStep{}, limit, nil)
	if err != nil {
		return nil, err
	}
	released := map[string][]model.Release{}
	for saleID, orderIDs := range bySale {
		releases, err := s.Expire(ctx, saleID, orderIDs)
		if err != nil {
			return nil, err
		}
		if len(releases) > 0 {
			released[saleID] = releases
		}
	}
	return released, nil
}

// gateContents reads what a new gate must know.
func (d *testDB) gateContents(t *testing.T, saleID string) kit.Contents {
	t.Helper()
	c, ok, err := d.GateContents(t.Context(), saleID)
	if err != nil || !ok {
		t.Fatalf("no contents: %t, %v", ok, err)
	}
	read, err := kit.ReadContents(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return read
}
