package repository

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// BenchmarkWrites settles and deducts batches of attempts by new buyers, each batch in one transaction.
func BenchmarkWrites(b *testing.B) {
	for kind, address := range map[string]func(testing.TB) string{"sqlite": kit.SQLite, "mariadb": mariaDB} {
		b.Run("database="+kind, func(b *testing.B) {
			store := openStore(b, address(b), 32).Store
			check.NoError(b, store.MigrateUp(b.Context()))
			for _, size := range []int{1, 50, 250} {
				b.Run(fmt.Sprintf("settle/size=%d", size), func(b *testing.B) { store.benchmark(b, size, store.Settle) })
				b.Run(fmt.Sprintf("enter/size=%d", size), func(b *testing.B) { store.benchmarkEnter(b, size) })
				b.Run(fmt.Sprintf("deduct/size=%d", size), func(b *testing.B) {
					store.benchmark(b, size, func(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
						return store.Deduct(ctx, saleID, attemptsOf(entries))
					})
				})
			}
		})
	}
}

// benchmarkEnter makes batches of entries in a line that is open.
func (s *Store) benchmarkEnter(b *testing.B, size int) {
	now := check.Must(s.Now(b.Context()))
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "line", Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 60, CallSeconds: 60, Mode: model.ModeLine,
		StartsAt: now.Add(time.Hour), EndsAt: now.Add(2 * time.Hour),
	}
	sale.Code = sale.ID[:8]
	check.NoError(b, s.CreateSale(b.Context(), sale, 1_000_000, "bench"))
	wishes, n := make([]model.LineEntry, size), 0
	b.ReportAllocs()
	for b.Loop() {
		for i := range wishes {
			n++
			wishes[i] = model.LineEntry{UserID: fmt.Sprintf("entrant-%d", n), Quantity: 1}
		}
		_, verdict, err := s.Enter(b.Context(), sale.ID, wishes)
		accepted(b, verdict, err)
	}
}

type batchWrite func(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error)

func (s *Store) benchmark(b *testing.B, size int, write batchWrite) {
	sale, n := s.benchmarkSale(b), 0
	entries := make([]model.Entry, size)
	b.ReportAllocs()
	for b.Loop() {
		for i := range entries {
			n++
			user := "u-" + strconv.Itoa(n)
			entries[i].Attempt = model.Attempt{
				ID: orderIDs.Derive(user, sale.ID, "key"), SaleID: sale.ID, UserID: user, Quantity: 1, IdempotencyKey: "key",
			}
		}
		outcomes, err := write(b.Context(), sale.ID, entries)
		if err != nil || outcomes[size-1].Verdict != model.Accepted {
			b.Fatal(outcomes, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*size), "µs/order")
}

// benchmarkSale makes an open sale with units for everybody.
func (s *Store) benchmarkSale(b *testing.B) model.Sale {
	b.Helper()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 600,
		StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), Status: model.SaleLive, Revision: 1,
	}
	sale.Code = sale.ID[:8]
	check.NoError(b, s.CreateSale(b.Context(), sale, 1<<30, "tester"))
	return sale
}
