package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/migrations"
	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// tables lists the tables of a database, except those of goose.
func (d *testDB) tables(t *testing.T) []string {
	t.Helper()
	names, err := d.Store.tables(t.Context())
	check.NoError(t, err)
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "goose_") })
}

// applied returns, in the order of the steps, which of them are applied.
func (d *testDB) applied(t *testing.T) (list []bool) {
	t.Helper()
	status, err := d.MigrateStatus(t.Context())
	check.NoError(t, err)
	for i, m := range status {
		if i > 0 && m.Version <= status[i-1].Version || !strings.HasSuffix(m.Name, ".sql") {
			t.Errorf("step %d is %+v", i+1, m)
		}
		list = append(list, m.Applied)
	}
	return list
}

func TestMigrateUpAndDown(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		d := migrated.empty(t)
		steps := len(d.applied(t))
		if steps == 0 || slices.Contains(d.applied(t), true) || len(d.tables(t)) > 0 {
			t.Fatalf("before: %v, %v", d.applied(t), d.tables(t))
		}
		for range 2 { // the second round is up after down
			for range 2 { // the second time there is nothing to do
				check.NoError(t, d.MigrateUp(t.Context()))
			}
			check.Same(t, "applied steps", trues(d.applied(t)), steps)
			check.Same(t, "tables", d.tables(t), migrated.tables(t))
			sale := d.newSale(t, 3)
			d.buy(t, sale.ID, "me", 1)
			d.balanced(t)
			check.NoError(t, d.MigrateUp(t.Context()))
			check.Same(t, "held units after up with data", d.stock(t, sale.ID).Held, 1)
			check.Same(t, "sales", d.count(t, "SELECT COUNT(*) FROM sales"), 1)
			for left := steps - 1; left >= 0; left-- {
				check.NoError(t, d.MigrateDown(t.Context()))
				if got := d.applied(t); slices.Contains(got[left:], true) || slices.Contains(got[:left], false) {
					t.Errorf("down to %d: %v", left, got)
				}
			}
			check.NoError(t, d.MigrateDown(t.Context())) // below the first step
			check.Same(t, "number of tables after all steps down", len(d.tables(t)), 0)
		}
	})
}

// A migration that breaks off after any of its statements goes on at the next start, up and down.
func TestHole74_MigrationsGoOn(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		d := migrated.empty(t)
		steps := len(d.applied(t))
		for _, way := range []struct {
			name    string
			migrate func(context.Context) error
			applied int
		}{{"up", d.MigrateUp, steps}, {"down", d.MigrateDown, 0}, {"up again", d.MigrateUp, steps}} {
			// Each start does one statement that no start has done before, and then breaks off.
			began, broken := map[string]bool{}, errors.New("broken off")
			for done := false; !done; {
				fresh := 0
				d.breaksOff(func(statement string) error {
					if fresh == 1 {
						return broken
					}
					if !began[statement] {
						fresh++
					}
					began[statement] = true
					return nil
				})
				err := way.migrate(t.Context())
				d.breaksOff(nil)
				if err == nil {
					done = trues(d.applied(t)) == way.applied
				} else if !errors.Is(err, broken) || fresh == 0 {
					t.Fatalf("%s after %d statements: %v", way.name, len(began), err)
				}
			}
			check.NoError(t, way.migrate(t.Context()))
			if way.applied > 0 {
				check.Same(t, "schema "+way.name, d.schema(t), migrated.schema(t))
				check.Same(t, "rows of the shop", d.count(t, "SELECT COUNT(*) FROM shop"), 1)
				check.Same(t, "rows of the feed's number", d.count(t, "SELECT COUNT(*) FROM event_feed"), 1)
			} else {
				check.Same(t, "number of tables", len(d.tables(t)), 0)
			}
		}
	})
}

// The step smallest_units converts all amounts that were hundredths, and a step back makes hundredths of them.
func TestAmountsAreConverted(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		d := migrated.empty(t)
		check.NoError(t, d.MigrateUp(t.Context()))
		hundredths := map[string]int64{"CNY": 1250, "JPY": 125_000, "KWD": 125}
		for currency := range hundredths {
			sale := d.newSale(t, 1, func(s *model.Sale) { s.Currency, s.PriceCents, s.OriginalPriceCents = currency, 1250, 1250 })
			order := d.buy(t, sale.ID, "me", 1)
			payment := d.startPayment(t, order)
			check.NoError(t, d.SandboxCharge(t.Context(), model.SandboxTransaction{
				ID: "sbx-" + payment.ID, PaymentID: payment.ID, AmountCents: payment.AmountCents, Status: model.SandboxCharged,
			}))
		}
		amounts := func(currency string) (all []int64) {
			for _, query := range []string{
				"SELECT price_cents FROM sales WHERE currency = '%s'", "SELECT original_price_cents FROM sales WHERE currency = '%s'",
				"SELECT amount_cents FROM orders WHERE currency = '%s'",
				"SELECT payments.amount_cents FROM payments JOIN orders ON orders.id = order_id WHERE orders.currency = '%s'",
				`SELECT sandbox_transactions.amount_cents FROM sandbox_transactions JOIN payments ON payments.id = payment_id
					JOIN orders ON orders.id = order_id WHERE orders.currency = '%s'`,
			} {
				all = append(all, d.count(t, fmt.Sprintf(query, currency)))
			}
			return all
		}
		for currency := range hundredths {
			check.Same(t, currency+" at first", amounts(currency), slices.Repeat([]int64{1250}, 5))
		}
		for d.applied(t)[5] {
			check.NoError(t, d.MigrateDown(t.Context()))
		}
		for currency, want := range hundredths {
			check.Same(t, currency+" in hundredths", amounts(currency), slices.Repeat([]int64{want}, 5))
		}
		check.NoError(t, d.MigrateUp(t.Context()))
		for currency := range hundredths {
			check.Same(t, currency+" converted", amounts(currency), slices.Repeat([]int64{1250}, 5))
		}
	})
}

// The tables of another program stay as they are.
func TestMigrateBesideOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		d := migrated.empty(t)
		check.NoError(t, d.write.WithContext(t.Context()).Exec("CREATE TABLE orders (id INTEGER)").Error)
		_, err := d.MigrateStatus(t.Context())
		for what, err := range map[string]error{"up": d.MigrateUp(t.Context()), "down": d.MigrateDown(t.Context()), "status": err} {
			if err == nil || !strings.Contains(err.Error(), "want a database of its own") {
				t.Errorf("%s: %v", what, err)
			}
		}
		check.Same(t, "tables", d.tables(t), []string{"orders"})
	})
}

// Instances that start together take turns, and all of them find the newest schema.
func TestMigrateUpFromSeveralAtOnce(t *testing.T) {
	t.Parallel()
	first := openStore(t, mariaDB(t), suiteConns)
	stores := []*testDB{first, first.another(t), first.another(t), first.another(t)}
	check.Together(len(stores), func(i int) {
		check.Error(t, "migrate", stores[i].MigrateUp(t.Context()), nil)
		check.Same(t, "sales", stores[i].count(t, "SELECT COUNT(*) FROM sales"), 0)
	})
	applied := first.applied(t)
	check.Same(t, "applied steps", trues(applied), len(applied))
	check.Same(t, "recorded steps", first.count(t, "SELECT COUNT(*) FROM goose_db_version WHERE version_id > 0"), int64(len(applied)))
}

// An instance waits for another one that migrates, for longer than any other statement or silence of the server may
// last. A caller that leaves ends its wait.
func TestMigrateUpWaitsItsTurn(t *testing.T) {
	t.Parallel()
	d := openStore(t, mariaDB(t), suiteConns)
	pool, err := d.write.DB()
	check.NoError(t, err)
	locked, unlock, holder := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		holder <- underLock(t.Context(), pool, func() error {
			close(locked)
			<-unlock
			return nil
		})
	}()
	<-locked
	other, waiter := d.another(t), make(chan error, 1)
	go func() { waiter <- other.MigrateUp(t.Context()) }()
	ctx, cancel := context.WithCancel(t.Context())
	leaver := make(chan error, 1)
	go func() { leaver <- d.MigrateUp(ctx) }()
	cancel()
	if err := <-leaver; err == nil {
		t.Error("the caller that left has migrated without the lock")
	}
	select {
	case err := <-waiter:
		waiter <- err
		t.Errorf("the waiter did not wait: %v", err)
	case <-time.After(ioTimeout + time.Second): // no event marks the end of the time limits
	}
	close(unlock)
	check.NoError(t, <-holder, <-waiter)
}

// The migrations of both databases have the same checks.
func TestChecksAreTwins(t *testing.T) {
	t.Parallel()
	constraint := regexp.MustCompile(`CONSTRAINT \w+ CHECK \(.*\),?\n`)
	checks := func(file string) (list []string) {
		text, err := fs.ReadFile(migrations.FS, file)
		check.NoError(t, err)
		for _, found := range constraint.FindAllString(string(text), -1) {
			list = append(list, strings.TrimRight(found, ",\n"))
		}
		check.Same(t, "checks with a name and a line of their own in "+file, len(list), strings.Count(string(text), "CHECK"))
		return list
	}
	files, err := fs.Glob(migrations.FS, "mysql/*")
	check.NoError(t, err)
	for _, file := range files {
		check.Same(t, "checks in "+file, checks(file), checks("sqlite/"+path.Base(file)))
	}
}

// schema describes the tables in terms that both databases have: the columns in their order, whether they may be null,
// and the keys with their columns.
func (d *testDB) schema(t *testing.T) map[string][]string {
	t.Helper()
	columns := `SELECT TABLE_NAME AS tab, CONCAT(COLUMN_NAME, IF(IS_NULLABLE = 'YES', ' NULL', ' NOT NULL'),
			IF(DATA_TYPE IN ('char', 'varchar', 'text'), ' text', ' number')) AS line
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION`
	keys := `SELECT TABLE_NAME AS tab, CONCAT(
			IF(INDEX_NAME = 'PRIMARY', 'primary key', CONCAT(IF(NON_UNIQUE, 'key ', 'unique key '), INDEX_NAME)),
		' (', GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX), ')') AS line
		FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE`
	if d.sqlite {
		columns = `SELECT m.name AS tab, c.name || IIF(c."notnull", ' NOT NULL', ' NULL') ||
			IIF(c.type = 'TEXT', ' text', ' number') AS line
			FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid`
		keys = `SELECT tab, kind || ' (' || GROUP_CONCAT(name) || ')' AS line FROM (
				SELECT m.name AS tab, IIF(i."unique", 'unique key ', 'key ') || i.name AS kind, c.name, c.seqno AS place
				FROM sqlite_master m, pragma_index_list(m.name) i, pragma_index_info(i.name) c
				WHERE m.type = 'table' AND i.origin = 'c'
				UNION ALL SELECT m.name, 'primary key', c.name, c.pk FROM sqlite_master m, pragma_table_info(m.name) c
				WHERE m.type = 'table' AND c.pk > 0
				ORDER BY 1, 2, 4) GROUP BY tab, kind`
	}
	made := map[string][]string{}
	for _, query := range []string{columns, "SELECT tab, line FROM (" + keys + ") AS named ORDER BY line"} {
		var rows []struct{ Tab, Line string }
		check.NoError(t, d.read.WithContext(t.Context()).Raw(query).Scan(&rows).Error)
		for _, r := range rows {
			made[r.Tab] = append(made[r.Tab], r.Line)
		}
	}
	maps.DeleteFunc(made, func(name string, _ []string) bool {
		return strings.HasPrefix(name, "goose_") || strings.HasPrefix(name, "sqlite_")
	})
	return made
}

func TestSchemasAreTwins(t *testing.T) {
	t.Parallel()
	mariadb, sqlite := openDB(t, mariaDB(t)).schema(t), openDB(t, kit.SQLite(t)).schema(t)
	if len(mariadb) < 10 || len(mariadb["orders"]) < 14+4 {
		t.Fatalf("the schema is %v", mariadb)
	}
	check.Same(t, "tables", slices.Sorted(maps.Keys(mariadb)), slices.Sorted(maps.Keys(sqlite)))
	for name, lines := range mariadb {
		check.Same(t, name, strings.Join(lines, "\n"), strings.Join(sqlite[name], "\n"))
	}
}

// Columns with identifiers and codes compare byte by byte. Only texts for people follow the rules of a language.
func TestIdentifierColumnsAreBinary(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariaDB(t))
	var texts []string
	check.NoError(t, d.read.WithContext(t.Context()).Raw(`SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME) FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME NOT LIKE 'goose%' AND COLLATION_NAME IS NOT NULL
		AND COLLATION_NAME <> 'ascii_bin' ORDER BY 1`).Scan(&texts).Error)
	check.Same(t, "columns in a language", texts, []string{"audit_log.detail", "campaigns.description", "campaigns.image_url", "campaigns.title", "deliveries.answer", "endpoints.reason", "rehearsals.report", "sales.description", "sales.image_url", "sales.title", "sales.variant", "shop.home_url", "shop.imprint_url", "shop.logo_url", "shop.name", "shop.privacy_url", "shop.small_print", "shop.terms_url"})
}
