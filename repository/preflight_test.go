package repository

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestServer(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before := time.Now().Truncate(time.Millisecond) // test and database run on this machine
		f, err := d.Server(t.Context(), time.Now)
		after := time.Now()
		check.NoError(t, err)
		steps := int64(len(d.applied(t)))
		if f.Applied != steps || f.Newest != steps || f.RoundTrip <= 0 ||
			f.Clock.Before(before) || f.Clock.After(after) || f.At.Before(before) || f.At.After(after) {
			t.Errorf("%+v, want %d steps, and times from %s to %s", f, steps, before, after)
		}
		version := `^MariaDB \d+\.\d+\.\d+$`
		if d.sqlite {
			version = `^SQLite \d+\.\d+\.\d+$`
		}
		if !regexp.MustCompile(version).MatchString(f.Version) {
			t.Errorf("the version is %q", f.Version)
		}
		if d.sqlite {
			check.Same(t, "variables of SQLite", f.Variables, nil)
			return
		}
		for name, want := range map[string]string{
			"innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "max_connections": "500", "innodb_doublewrite": "ON",
			"tx_isolation": "READ-COMMITTED", "time_zone": "+00:00", "idle_transaction_timeout": "4",
			"sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
		} {
			check.Same(t, name, f.Variables[name], want)
		}
		if f.Connections < 1 {
			t.Errorf("%d connections, want at least the one of this test", f.Connections)
		}
	})
}

// Server makes no table in an empty database, and shows a missing step.
func TestServerChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, migrated *testDB) {
		d := migrated.empty(t)
		f, err := d.Server(t.Context(), time.Now)
		if err != nil || f.Applied != 0 || f.Newest == 0 {
			t.Errorf("got %+v, %v", f, err)
		}
		if d.read.Migrator().HasTable("goose_db_version") || len(d.tables(t)) > 0 {
			t.Errorf("the database has the tables %v", d.tables(t))
		}
		check.NoError(t, migrated.MigrateDown(t.Context()))
		if f, err = migrated.Server(t.Context(), time.Now); err != nil || f.Applied != f.Newest-1 {
			t.Errorf("after a step was reverted: %+v, %v", f, err)
		}
		check.NoError(t, migrated.MigrateUp(t.Context())) // balanced reads the tables
	})
}

func TestShadowSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		wantIDs := func(want ...string) {
			t.Helper()
			ids, err := d.ShadowSales(t.Context())
			if err != nil || !slices.Equal(ids, want) {
				t.Errorf("shadow sales are %v, %v, want %v", ids, err, want)
			}
		}
		d.newSale(t, 1)
		wantIDs()
		hidden := d.newSale(t, 1, shadow)
		wantIDs(hidden.ID)
		d.change(t, hidden.ID, 0, status(model.SaleClosed)) // by an operator
		wantIDs(hidden.ID)
		live, err := d.LiveOffers(t.Context(), 0)
		check.NoError(t, err)
		check.Same(t, "number of live sales", len(live), 2)
	})
}
