package repository

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/migrations"
)

// tables lists the tables of a database, goose's own left out.
func (d *testDB) tables(t *testing.T) (names []string) {
	t.Helper()
	query := "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME"
	if d.sqlite {
		query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
	}
	if err := d.read.WithContext(t.Context()).Raw(query).Scan(&names).Error; err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "goose_") })
}

// applied tells which steps are, in their order.
func (d *testDB) applied(t *testing.T) (list []bool) {
	t.Helper()
	status, err := d.MigrateStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range status {
		if m.Version != int64(i+1) || !strings.HasSuffix(m.Name, ".sql") {
			t.Errorf("step %d is %+v", i+1, m)
		}
		list = append(list, m.Applied)
	}
	return list
}

func TestMigrateUpAndDown(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		address := sqliteAddress(t)
		if !migrated.sqlite {
			address = mariadbAddress(t)
		}
		d := openStore(t, address, suiteConns)
		steps := len(d.applied(t))
		if steps == 0 || slices.Contains(d.applied(t), true) || len(d.tables(t)) > 0 {
			t.Fatalf("before: %v, %v", d.applied(t), d.tables(t))
		}
		all := migrated.tables(t)
		for _, round := range []string{"up", "up after down"} {
			for range 2 { // the second time there is nothing to do
				if err := d.MigrateUp(t.Context()); err != nil {
					t.Fatalf("%s: %v", round, err)
				}
			}
			if slices.Contains(d.applied(t), false) || !slices.Equal(d.tables(t), all) {
				t.Errorf("%s: %v, %v", round, d.applied(t), d.tables(t))
			}
			sale := d.newSale(t, 3)
			d.buy(t, sale.ID, "me", 1)
			d.balanced(t)
			if n := d.count(t, "SELECT COUNT(*) FROM sales"); n != 1 {
				t.Errorf("%s: %d sales", round, n)
			}
			if err := d.MigrateUp(t.Context()); err != nil {
				t.Fatalf("%s, with data: %v", round, err)
			}
			if n := d.stock(t, sale.ID).Held; n != 1 {
				t.Errorf("%s: up again touched the data: %d units are held", round, n)
			}
			for left := steps - 1; left >= 0; left-- {
				if err := d.MigrateDown(t.Context()); err != nil {
					t.Fatalf("down after %s: %v", round, err)
				}
				if got := d.applied(t); slices.Contains(got[left:], true) || slices.Contains(got[:left], false) {
					t.Errorf("down to %d: %v", left, got)
				}
			}
			if err := d.MigrateDown(t.Context()); err != nil {
				t.Errorf("down below the first step: %v", err)
			}
			if got := d.tables(t); len(got) > 0 {
				t.Errorf("down left %v", got)
			}
		}
	})
}

// Instances that start together take turns, and all of them find the schema up to date.
func TestMigrateUpFromSeveralAtOnce(t *testing.T) {
	t.Parallel()
	address := mariadbAddress(t)
	stores := make([]*testDB, 4)
	for i := range stores {
		stores[i] = openStore(t, address, suiteConns)
	}
	together(len(stores), func(i int) {
		if err := stores[i].MigrateUp(t.Context()); err != nil {
			t.Errorf("instance %d: %v", i, err)
		}
		if n := stores[i].count(t, "SELECT COUNT(*) FROM sales"); n != 0 {
			t.Errorf("instance %d finds %d sales", i, n)
		}
	})
	if got := stores[0].applied(t); slices.Contains(got, false) {
		t.Errorf("applied: %v", got)
	}
	if n := stores[0].count(t, "SELECT COUNT(*) FROM goose_db_version WHERE version_id > 0"); n != int64(len(stores[0].applied(t))) {
		t.Errorf("%d steps were noted", n)
	}
	stores[1].newSale(t, 1)
	stores[0].balanced(t)
}

// An instance waits for one that migrates for longer than any statement, or any silence of the server, may
// last; a caller that leaves ends the wait.
func TestMigrateUpWaitsItsTurn(t *testing.T) {
	t.Parallel()
	d := openStore(t, mariadbAddress(t), suiteConns)
	pool, err := d.write.DB()
	if err != nil {
		t.Fatal(err)
	}
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
		t.Error("who left has migrated under the lock of another one")
	}
	select {
	case err := <-waiter:
		waiter <- err
		t.Errorf("it didn't wait: %v", err)
	case <-time.After(ioTimeout + time.Second): // which passes without any event
	}
	close(unlock)
	if err := <-holder; err != nil {
		t.Errorf("the holder: %v", err)
	}
	if err := <-waiter; err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// files gives the names of a folder's migrations and what is in them.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	names, err := fs.Glob(migrations.FS, folder+"/*")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		list[strings.TrimPrefix(name, folder+"/")] = string(text)
	}
	return list
}

var constraint = regexp.MustCompile(`CONSTRAINT (\w+) CHECK \((.*)\),?\n`)

// Each numbered file is there twice, with the same checks, and can be taken back.
func TestMigrationFilesAreTwins(t *testing.T) {
	t.Parallel()
	ours, twins := files(t, "mysql"), files(t, "sqlite")
	names := slices.Sorted(maps.Keys(ours))
	if len(names) == 0 || !slices.Equal(names, slices.Sorted(maps.Keys(twins))) {
		t.Fatalf("mysql has %v, sqlite has %v", names, slices.Sorted(maps.Keys(twins)))
	}
	for i, name := range names {
		if want := fmt.Sprintf("%05d_", i+1); !strings.HasPrefix(name, want) {
			t.Errorf("%s doesn't begin with %s", name, want)
		}
		checks := constraint.FindAllStringSubmatch(ours[name], -1)
		others := constraint.FindAllStringSubmatch(twins[name], -1)
		for j := range max(len(checks), len(others)) {
			if j >= len(checks) || j >= len(others) || !slices.Equal(checks[j][1:], others[j][1:]) {
				t.Fatalf("%s: from check %d on they differ: %v, %v", name, j, checks, others)
			}
		}
		if strings.Count(ours[name], "CHECK") != len(checks) || strings.Count(twins[name], "CHECK") != len(checks) {
			t.Errorf("%s: a check has no name of its own line", name)
		}
		for _, text := range []string{ours[name], twins[name]} {
			if strings.Count(text, "-- +goose Up\n") != 1 || strings.Count(text, "-- +goose Down\n") != 1 {
				t.Errorf("%s has not one way up and one down", name)
			}
		}
	}
}

// schema describes what the migrations made, in words that both databases have: columns in their order, whether
// they may be null, and keys with their columns.
func (d *testDB) schema(t *testing.T) map[string][]string {
	t.Helper()
	columns := `SELECT TABLE_NAME AS tab, CONCAT(COLUMN_NAME, IF(IS_NULLABLE = 'YES', ' NULL', ' NOT NULL'), IF(DATA_TYPE IN ('char', 'varchar'), ' text', ' number')) AS line
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION`
	keys := `SELECT TABLE_NAME AS tab, CONCAT(IF(INDEX_NAME = 'PRIMARY', 'primary key', CONCAT(IF(NON_UNIQUE, 'key ', 'unique key '), INDEX_NAME)),
		' (', GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX), ')') AS line
		FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE`
	if d.sqlite {
		columns = `SELECT m.name AS tab, c.name || IIF(c."notnull", ' NOT NULL', ' NULL') || IIF(c.type = 'TEXT', ' text', ' number') AS line
			FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid`
		keys = `SELECT tab, kind || ' (' || GROUP_CONCAT(name) || ')' AS line FROM (
				SELECT m.name AS tab, IIF(i."unique", 'unique key ', 'key ') || i.name AS kind, c.name, c.seqno AS place
				FROM sqlite_master m, pragma_index_list(m.name) i, pragma_index_info(i.name) c WHERE m.type = 'table' AND i.origin = 'c'
				UNION ALL SELECT m.name, 'primary key', c.name, c.pk FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.pk > 0
				ORDER BY 1, 2, 4) GROUP BY tab, kind`
	}
	made := map[string][]string{}
	for _, query := range []string{columns, keys} {
		var rows []struct{ Tab, Line string }
		if err := d.read.WithContext(t.Context()).Raw(query).Scan(&rows).Error; err != nil {
			t.Fatal(err)
		}
		found := map[string][]string{}
		for _, r := range rows {
			if !strings.HasPrefix(r.Tab, "goose_") && !strings.HasPrefix(r.Tab, "sqlite_") {
				found[r.Tab] = append(found[r.Tab], r.Line)
			}
		}
		for name, lines := range found {
			if query == keys {
				slices.Sort(lines)
			}
			made[name] = append(made[name], lines...)
		}
	}
	return made
}

// The two databases end up with the same tables, columns and keys.
func TestSchemasAreTwins(t *testing.T) {
	t.Parallel()
	mariadb, sqlite := openDB(t, mariadbAddress(t)).schema(t), openDB(t, sqliteAddress(t)).schema(t)
	if len(mariadb) < 10 || len(mariadb["orders"]) < 14+4 {
		t.Fatalf("the schema is %v", mariadb)
	}
	names := slices.Sorted(maps.Keys(mariadb))
	if others := slices.Sorted(maps.Keys(sqlite)); !slices.Equal(names, others) {
		t.Errorf("MariaDB has the tables %v, SQLite %v", names, others)
	}
	for _, name := range names {
		if !slices.Equal(mariadb[name], sqlite[name]) {
			t.Errorf("%s is\n%s\non MariaDB, and\n%s\non SQLite", name, strings.Join(mariadb[name], "\n"), strings.Join(sqlite[name], "\n"))
		}
	}
}

// Columns that hold identifiers and codes compare byte by byte; only texts for people follow a language.
func TestIdentifierColumnsAreBinary(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariadbAddress(t))
	var texts []string
	err := d.read.WithContext(t.Context()).Raw(`SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
		AND TABLE_NAME NOT LIKE 'goose%' AND COLLATION_NAME IS NOT NULL AND COLLATION_NAME <> 'ascii_bin' ORDER BY 1`).Scan(&texts).Error
	want := []string{"operations.detail", "sales.description", "sales.image_url", "sales.title"}
	if err != nil || !slices.Equal(texts, want) {
		t.Errorf("columns in a language are %v, %v, want %v", texts, err, want)
	}
	sale := d.newSale(t, 1)
	if offer, _, err := d.Offer(t.Context(), sale.ID); err != nil || offer.Title != sale.Title {
		t.Errorf("the title %q came back as %q, %v", sale.Title, offer.Title, err)
	}
}
