package repository

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
)

func (d *testDB) erase(t *testing.T, saleID string) {
	t.Helper()
	if err := d.EraseSale(t.Context(), saleID); err != nil {
		t.Fatal(err)
	}
}

// contents is every row of every table, as text.
func (d *testDB) contents(t *testing.T) string {
	t.Helper()
	db := d.read.WithContext(t.Context())
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name"
	if d.sqlite {
		query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
	}
	var tables []string
	if err := db.Raw(query).Scan(&tables).Error; err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, table := range tables {
		var rows []map[string]any
		if err := db.Raw("SELECT * FROM " + table).Scan(&rows).Error; err != nil {
			t.Fatal(err)
		}
		lines := make([]string, len(rows))
		for i, row := range rows {
			lines[i] = fmt.Sprintf("%s %q", table, fmt.Sprint(row))
		}
		slices.Sort(lines)
		fmt.Fprintln(&text, strings.Join(lines, "\n"))
	}
	return text.String()
}

// fill leaves rows about a sale in every table that the lab's runs write to.
func (d *testDB) fill(t *testing.T) model.Sale {
	t.Helper()
	sale := d.newSale(t, 4, limit(2))
	d.settle(t, sale.ID, attempts(sale.ID, "settled", 3)...)
	d.buy(t, sale.ID, "buyer", 1)
	wantVerdicts(t, d.settle(t, sale.ID, attempt(sale.ID, "late", "k", 1)), model.SoldOut)
	gone := d.order(t, attempts(sale.ID, "settled", 1)[0].ID)
	if _, verdict, err := d.Cancel(t.Context(), gone.UserID, gone.ID); err != nil || verdict != model.Accepted {
		t.Fatalf("cancel: %s, %v", verdict, err)
	}
	d.change(t, sale.ID, 3, nil)
	if err := d.Log(t.Context(), "engine", "install_gate", sale.ID, "epoch 1"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"orders", "refusals", "buyers", "stock"} {
		if d.count(t, "SELECT COUNT(*) FROM "+table+" WHERE sale_id = ?", sale.ID) == 0 {
			t.Fatalf("the sale has nothing in %s", table)
		}
	}
	return sale
}

// An erased sale is as if it had never been, and nobody else's row is touched.
func TestEraseSale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		kept := d.fill(t)
		d.pay(t, d.startPayment(t, d.buy(t, kept.ID, "payer", 1)), "txn")
		before := d.contents(t)
		if !strings.Contains(before, kept.ID) {
			t.Fatal("the test sees no rows")
		}
		sale := d.fill(t)
		if !strings.Contains(d.contents(t), sale.ID) {
			t.Fatal("the test sees no rows of the sale")
		}
		for range 2 { // once more is harmless
			d.erase(t, sale.ID)
			if after := d.contents(t); after != before {
				t.Errorf("there was\n%sand is\n%s", before, after)
			}
		}
		if _, ok, err := d.Offer(t.Context(), sale.ID); ok || err != nil {
			t.Errorf("the sale is there: %t, %v", ok, err)
		}
		if got := d.deduct(t, sale.ID, attempt(sale.ID, "buyer", "k", 1)); got[0].Verdict != model.NotFound {
			t.Errorf("an attempt on it: %+v", got[0])
		}
	})
}

func TestVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		want := `^MariaDB \d+\.\d+\.\d+$`
		if d.sqlite {
			want = `^SQLite \d+\.\d+\.\d+$`
		}
		if got, err := d.Version(t.Context()); err != nil || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
