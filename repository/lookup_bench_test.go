package repository

import (
	"path/filepath"
	"strconv"
	"testing"

	"flashsale/model"
	"flashsale/testkit"
)

// BenchmarkLookUp asks for orders that are not there, by many at once: what a refusal under an Idempotency-Key costs.
func BenchmarkLookUp(b *testing.B) {
	for _, kind := range []string{"sqlite", "mariadb"} {
		b.Run("database="+kind, func(b *testing.B) {
			address := "sqlite:" + filepath.Join(b.TempDir(), "shop.db")
			if kind == "mariadb" {
				address = testkit.SharedMariaDB(b).NewDatabase(b)
			}
			store, err := Open(b.Context(), address, 32)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = store.Close() })
			if err := store.MigrateUp(b.Context()); err != nil {
				b.Fatal(err)
			}
			ids, saleID := model.NewOrderIDs([]byte("a key for benchmarks")), model.NewSaleID()
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, ok, err := store.Order(b.Context(), ids.Derive("u-"+strconv.Itoa(i), saleID, "key")); ok || err != nil {
						b.Error(ok, err)
						return
					}
				}
			})
		})
	}
}
