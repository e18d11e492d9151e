package repository

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

func TestServer(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		f, err := d.Server(t.Context(), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		steps := int64(len(d.applied(t)))
		if f.Applied != steps || f.Newest != steps || f.RoundTrip <= 0 || f.Clock.Sub(f.At).Abs() > time.Second {
			t.Errorf("%+v, want %d steps", f, steps)
		}
		if version, _ := d.Version(t.Context()); version == "" || f.Version != version {
			t.Errorf("version %q, want %q", f.Version, version)
		}
		if d.sqlite {
			if f.Variables != nil {
				t.Errorf("SQLite has the variables %v", f.Variables)
			}
			return
		}
		for name, want := range map[string]string{
			"innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "max_connections": "500", "innodb_doublewrite": "ON",
			"tx_isolation": "READ-COMMITTED", "time_zone": "+00:00", "idle_transaction_timeout": "4",
			"sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
		} {
			if f.Variables[name] != want {
				t.Errorf("%s: %q, want %q", name, f.Variables[name], want)
			}
		}
		if f.Connections < 1 {
			t.Errorf("%d connections, and this is one", f.Connections)
		}
	})
}

// To look at an empty database makes nothing in it, and a step that is missing shows.
func TestServerChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		address := sqliteAddress(t)
		if !migrated.sqlite {
			address = mariadbAddress(t)
		}
		d := openStore(t, address, suiteConns)
		f, err := d.Server(t.Context(), time.Now)
		if err != nil || f.Applied != 0 || f.Newest == 0 {
			t.Errorf("%+v, %v", f, err)
		}
		if d.read.Migrator().HasTable("goose_db_version") || len(d.tables(t)) > 0 {
			t.Errorf("there are tables now: %v", d.tables(t))
		}
		if err := migrated.MigrateDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f, err = migrated.Server(t.Context(), time.Now); err != nil || f.Applied != f.Newest-1 {
			t.Errorf("a step was taken back: %+v, %v", f, err)
		}
		if err := migrated.MigrateUp(t.Context()); err != nil { // balanced looks at the tables
			t.Fatal(err)
		}
	})
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	server := kit.MariaDB(t)
	d := openStore(t, server.NewDatabase(t), suiteConns)
	server.Kill()
	if _, err := d.Server(t.Context(), time.Now); err == nil {
		t.Error("a dead server was looked at")
	}
}

func TestKeptKey(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		if key, err := d.KeptKey(t.Context(), "order-ids"); key != nil || err != nil {
			t.Errorf("before there is one: %x, %v", key, err)
		}
		if n := d.count(t, "SELECT COUNT(*) FROM data_keys"); n != 0 {
			t.Errorf("asking has made %d keys", n)
		}
		made, err := d.DataKey(t.Context(), "order-ids")
		if err != nil {
			t.Fatal(err)
		}
		if key, err := d.KeptKey(t.Context(), "order-ids"); !bytes.Equal(key, made) || err != nil {
			t.Errorf("%x, %v, want %x", key, err, made)
		}
	})
}

func TestShadowSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		d.newSale(t, 1)
		if ids, err := d.ShadowSales(t.Context()); len(ids) > 0 || err != nil {
			t.Errorf("%v, %v", ids, err)
		}
		hidden := d.newSale(t, 1, func(s *model.Sale) { s.Status = model.SaleShadow })
		if ids, err := d.ShadowSales(t.Context()); !slices.Equal(ids, []string{hidden.ID}) || err != nil {
			t.Errorf("%v, %v, want %s", ids, err, hidden.ID)
		}
		live, err := d.LiveOffers(t.Context(), 0)
		if err != nil || len(live) != 2 {
			t.Errorf("%d sales are live, %v", len(live), err)
		}
	})
}
