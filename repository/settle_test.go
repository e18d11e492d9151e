package repository

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// A gate may be replaced while entries wait, so each entry has an epoch of its own.
func TestSettleKeepsTheEpochOfEachEntry(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 10)
		list := entries(attempts(sale.ID, "u", 4)...)
		for i := range list {
			list[i].Epoch = int64(3 + i)
		}
		for _, batch := range [][]model.Entry{list[:2], list[1:]} { // all entries are new; one entry is known
			_, err := d.Settle(t.Context(), sale.ID, batch)
			check.NoError(t, err)
		}
		for i, e := range list {
			check.Same(t, fmt.Sprint("epoch of order ", i), d.order(t, e.ID).Epoch, e.Epoch)
		}
	})
}

// What was admitted in time is settled, although the sale has ended meanwhile.
func TestSettleAfterTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2)
		d.change(t, sale.ID, 0, shift(-2*time.Hour), status(model.SaleClosed))
		wantVerdicts(t, d.settle(t, attempts(sale.ID, "u", 2)...), model.Accepted, model.Accepted)
	})
}

func TestSettleOfAnUnknownSaleIsRefusedForGood(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before, a := d.now(t), attempt(model.NewSaleID(), "me", "k", 1)
		for range 2 {
			wantVerdicts(t, d.settle(t, a, a), model.NotFound, model.NotFound)
		}
		if o := d.order(t, a.ID); o.Status != model.OrderRejected || o.Reason != model.NotFound || o.CreatedAt.Before(before) {
			t.Errorf("the refusal is %+v", o)
		}
	})
}

// A refusal is durable, and changes no earlier outcome.
func TestRefuse(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		fresh, ordered, refused := attempt(sale.ID, "me", "k", 1), attempt(sale.ID, "owner", "k", 1), attempt(sale.ID, "greedy", "k", 2)
		wantVerdicts(t, d.settle(t, ordered, refused), model.Accepted, model.LimitReached)
		before := d.stock(t, sale.ID)
		for want, a := range map[model.Verdict]model.Attempt{
			model.ReasonFailed: fresh, model.Accepted: ordered, model.LimitReached: refused,
		} {
			for range 2 {
				check.Same(t, "the verdict of refuse", d.refuse(t, a, model.ReasonFailed).Verdict, want)
			}
			wantVerdicts(t, d.settle(t, a), want)
			if o := d.order(t, a.ID); want != model.Accepted && (o.Status != model.OrderRejected || o.Reason != want) {
				t.Errorf("the order is %s, %q", o.Status, o.Reason)
			}
		}
		check.Same(t, "the stock", d.stock(t, sale.ID), before)
		check.Same(t, "units of the refused user", d.live(t, sale.ID, "me"), 0)
	})
}

// One settler gives an attempt up while another one settles it. Both tell of the same outcome.
func TestRefuseAgainstSettle(t *testing.T) {
	const rounds, each = 10, 6
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, sale := d.pair(t), d.newSale(t, rounds*each)
		for round := range rounds {
			list := attempts(sale.ID, fmt.Sprint("r", round), each)
			told := check.Collect(2*each, func(i int) model.Verdict {
				if i%2 == 0 {
					return stores[0].refuse(t, list[i/2], model.ReasonFailed).Verdict
				}
				return stores[1].retry(t, settling, list[i/2])[0].Verdict
			})
			for i := range list {
				check.Same(t, "the verdicts of refuse and settle", told[2*i], told[2*i+1])
			}
		}
	})
}

// Batches that take SQLite many statements, by users with and without a row. The last entry of a batch is unlike the
// others.
func TestSettleManyStatements(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		const n = sqliteParameters/3 + 15 // a row of a buyer has three values
		sale := d.newSale(t, 5*n, limit(2))
		batch := func(key string, last model.Attempt) []model.Attempt {
			list := make([]model.Attempt, 0, n)
			for i := range n - 1 {
				list = append(list, attempt(sale.ID, fmt.Sprint("u-", key[:1], (i*7919)%n), key, 1))
			}
			return append(list, last)
		}
		known := attempt(sale.ID, "zz", "k1", 2)
		refused := batch("b1", attempt(sale.ID, "zz", "k2", 1))
		accepted := make([]model.Verdict, n-1)
		for i := range accepted {
			accepted[i] = model.Accepted
		}
		for _, step := range []struct {
			name     string
			list     []model.Attempt
			last     model.Verdict
			repeated int // the number of outcomes, at the end of the batch
		}{
			{"all users are new", batch("a1", known), model.Accepted, 0},
			{"nearly all users have a row", batch("a2", attempt(sale.ID, "y", "k1", 2)), model.Accepted, 0},
			{"the last user is at the limit", refused, model.LimitReached, 0},
			{"the refusal is durable", refused, model.LimitReached, n},
			{"new users beside a refusal", batch("c1", attempt(sale.ID, "x", "k1", 1)), model.Accepted, 0},
			{"the last attempt is known", batch("d1", known), model.Accepted, 1},
		} {
			got := d.settle(t, step.list...)
			wantVerdicts(t, got, append(slices.Clone(accepted), step.last)...)
			for i, o := range got {
				if o.Repeated != (i >= n-step.repeated) {
					t.Fatalf("%s: repeated of entry %d is %t", step.name, i, o.Repeated)
				}
			}
		}
		held := int64(5*(n-1)) + 2 + 2 + 1
		d.wantUnits(t, sale.ID, units{available: 5*n - held, held: held})
		check.Same(t, "orders", d.count(t, "SELECT COUNT(*) FROM orders WHERE sale_id = ?", sale.ID), 5*(n-1)+3)
	})
}

// Entries of several sales are settled in one transaction. No entry is settled if one of the sales does not exist or is
// short of units, or if one of the entries has a known id, a user above the limit, or a durable refusal.
func TestSettleSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, spoil := range map[string]func(t *testing.T, few, many model.Sale) model.Attempt{
			"": nil,
			"a sale does not exist": func(*testing.T, model.Sale, model.Sale) model.Attempt {
				return attempt(model.NewSaleID(), "me", "k", 1)
			},
			"a sale is short of units":  func(_ *testing.T, few, _ model.Sale) model.Attempt { return attempt(few.ID, "me", "k", 2) },
			"a user is above the limit": func(_ *testing.T, _, many model.Sale) model.Attempt { return attempt(many.ID, "u-000", "other", 2) },
			"a user had units before": func(t *testing.T, _, many model.Sale) model.Attempt {
				d.take(t, settling, attempt(many.ID, "me", "k", 2))
				return attempt(many.ID, "me", "other", 1)
			},
			"an id is known": func(t *testing.T, _, many model.Sale) model.Attempt {
				d.take(t, settling, attempt(many.ID, "me", "k", 1))
				return attempt(many.ID, "me", "k", 1)
			},
			"an id was refused": func(t *testing.T, _, many model.Sale) model.Attempt {
				wantVerdicts(t, d.settle(t, attempt(many.ID, "me", "k", 3)), model.LimitReached)
				return attempt(many.ID, "me", "k", 3)
			},
		} {
			few, many := d.newSale(t, 4, limit(2)), d.newSale(t, 20, limit(2))
			list := append(attempts(many.ID, "u", 3), attempts(few.ID, "u", 3)...)
			slices.Reverse(list) // the order of the batch is not that of the locks
			if spoil != nil {
				list = append(list, spoil(t, few, many))
			}
			before := d.dump(t)
			outcomes, err := d.SettleSales(t.Context(), entries(list...))
			if spoil != nil {
				if err == nil {
					t.Errorf("%s: %+v", name, outcomes)
				}
				check.Same(t, name+": all rows", d.dump(t), before)
				continue
			}
			check.NoError(t, err)
			for i, a := range list {
				check.Same(t, "the order", outcomes[i].Order.ID, a.ID)
				check.Same(t, "in the database", d.order(t, a.ID).Status, model.OrderPending)
			}
			d.wantUnits(t, few.ID, units{available: 1, held: 3})
			d.wantUnits(t, many.ID, units{available: 17, held: 3})
		}
	})
}

// A transaction of several sales that waits for the stock row of one of them ends with its context, and then holds no
// lock of the others: the other sale is settled at once.
func TestSettleSalesGivesUp(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariaDB(t))
	d.neverGivesUpALock(t)
	locked, other := d.newSale(t, 5), d.newSale(t, 5)
	tx, err := kit.OpenSQL(t, d.address).BeginTx(t.Context(), nil)
	check.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "UPDATE stock SET version = version + 1 WHERE sale_id = ?", locked.ID)
	check.NoError(t, err)
	list := append(attempts(locked.ID, "u", 2), attempts(other.ID, "u", 2)...)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.SettleSales(ctx, entries(list...)); err == nil {
		t.Fatal("it does not wait for the stock row")
	}
	wantVerdicts(t, d.settle(t, list[2:]...), model.Accepted, model.Accepted)
}

// neverGivesUpALock makes the statements of all connections wait for locks as long as it takes.
func (d *testDB) neverGivesUpALock(t *testing.T) {
	t.Helper()
	pool := check.Must(d.write.DB())
	conns := make([]*sql.Conn, suiteConns)
	for i := range conns {
		conns[i] = check.Must(pool.Conn(t.Context()))
		_, err := conns[i].ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 100000, max_statement_time = 0")
		check.NoError(t, err)
	}
	for _, conn := range conns {
		check.NoError(t, conn.Close())
	}
}
