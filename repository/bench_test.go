package repository

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
)

// BenchmarkWrites settles and deducts batches of attempts by ever new buyers: one transaction each.
func BenchmarkWrites(b *testing.B) {
	for _, kind := range []string{"sqlite", "mariadb"} {
		b.Run("database="+kind, func(b *testing.B) {
			address := "sqlite:" + filepath.Join(b.TempDir(), "shop.db")
			if kind == "mariadb" {
				address = kit.SharedMariaDB(b).NewDatabase(b)
			}
			store, err := Open(b.Context(), address, 32)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = store.Close() })
			if err := store.MigrateUp(b.Context()); err != nil {
				b.Fatal(err)
			}
			for _, size := range []int{1, 50, 250} {
				b.Run(fmt.Sprintf("settle/size=%d", size), func(b *testing.B) {
					store.benchmark(b, size, func(saleID string, entries []model.Entry) ([]model.Outcome, error) {
						return store.Settle(b.Context(), saleID, entries)
					})
				})
				b.Run(fmt.Sprintf("deduct/size=%d", size), func(b *testing.B) {
					store.benchmark(b, size, func(saleID string, entries []model.Entry) ([]model.Outcome, error) {
						attempts := make([]model.Attempt, len(entries))
						for i, e := range entries {
							attempts[i] = e.Attempt
						}
						return store.Deduct(b.Context(), saleID, attempts)
					})
				})
			}
		})
	}
}

func (s *Store) benchmark(b *testing.B, size int, write func(saleID string, entries []model.Entry) ([]model.Outcome, error)) {
	ids := model.NewOrderIDs([]byte("a key for benchmarks"))
	sale := s.benchmarkSale(b)
	hash, n := model.HashRequest(1), 0
	entries := make([]model.Entry, size)
	b.ReportAllocs()
	for b.Loop() {
		for i := range entries {
			n++
			user := "u-" + strconv.Itoa(n)
			entries[i].Attempt = model.Attempt{
				ID: ids.Derive(user, sale.ID, "key"), SaleID: sale.ID, UserID: user, Quantity: 1, RequestKey: "key", RequestHash: hash,
			}
		}
		outcomes, err := write(sale.ID, entries)
		if err != nil || outcomes[size-1].Verdict != model.Accepted {
			b.Fatal(outcomes, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*size), "µs/order")
}

// benchmarkSale makes a sale that is open and has units for all.
func (s *Store) benchmarkSale(b *testing.B) model.Sale {
	b.Helper()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 600,
		StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), Status: model.SaleLive, Revision: 1,
	}
	sale.Code = sale.ID[:8]
	if err := s.CreateSale(b.Context(), sale, 1<<30, "tester"); err != nil {
		b.Fatal(err)
	}
	return sale
}

// BenchmarkRefusedWithKey is the way of a purchase that is refused under a key: a crowd whose every request asks the
// database whether the key is known.
func BenchmarkRefusedWithKey(b *testing.B) {
	for _, kind := range []string{"sqlite", "mariadb"} {
		for _, crowd := range []int{1, 100} {
			b.Run(fmt.Sprintf("database=%s/crowd=%d", kind, crowd), func(b *testing.B) {
				address := "sqlite:" + filepath.Join(b.TempDir(), "shop.db")
				if kind == "mariadb" {
					address = kit.SharedMariaDB(b).NewDatabase(b)
				}
				store, err := Open(b.Context(), address, 32)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = store.Close() })
				if err := store.MigrateUp(b.Context()); err != nil {
					b.Fatal(err)
				}
				store.benchmarkRefusals(b, crowd)
			})
		}
	}
}

func (s *Store) benchmarkRefusals(b *testing.B, crowd int) {
	sale := s.benchmarkSale(b)
	catalog := service.NewCatalog(NewLiveSales(s), time.Now)
	if err := catalog.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	purchases := &service.Purchases{
		Catalog: catalog, IDs: model.NewOrderIDs([]byte("a key for benchmarks")), Strategy: soldOut{}, Orders: s,
		Waiters: service.NewWaiters(), Meter: soldOut{}, Now: time.Now,
	}
	requests := make(chan string, crowd)
	b.ReportAllocs()
	b.ResetTimer()
	var buyers sync.WaitGroup
	for range crowd {
		buyers.Go(func() {
			for user := range requests {
				r := service.Request{UserID: user, SaleID: sale.ID, Quantity: 1, Key: "key"}
				if outcome, err := purchases.Purchase(b.Context(), r); err != nil || outcome.Verdict != model.SoldOut {
					b.Error(outcome, err)
				}
			}
		})
	}
	for i := range b.N {
		requests <- "u-" + strconv.Itoa(i)
	}
	close(requests)
	buyers.Wait()
}

// soldOut is a strategy that has nothing left, and a meter that nobody reads.
type soldOut struct{}

func (soldOut) Deduct(context.Context, model.Attempt) (model.Outcome, error) {
	return model.Outcome{Verdict: model.SoldOut}, nil
}

func (soldOut) Stage(string, time.Duration) {}
func (soldOut) Verdict(model.Verdict)       {}
