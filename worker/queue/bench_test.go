package queue

import (
	"fmt"
	"testing"

	"flashsale/model"
	"flashsale/test/kit"
)

// BenchmarkSettle is how long an admitted attempt takes until it is an order, by each queue, when a rush has left them
// all in the stream: a MariaDB, one instance, one sale.
func BenchmarkSettle(b *testing.B) {
	for _, kind := range []struct {
		name  string
		start func(testing.TB) func(testing.TB) *broker
	}{
		{"redis-stream", func(testing.TB) func(testing.TB) *broker { return func(testing.TB) *broker { return nil } }},
		{"redis-list", startRedisList},
		{"rabbitmq", startRabbitMQ},
		{"kafka", startKafka},
	} {
		b.Run(kind.name, func(b *testing.B) {
			fresh := kind.start(b)
			b.Run("orders", func(b *testing.B) {
				e := newShop(b, kit.SharedMariaDB(b).NewDatabase(b)).engine("here", fresh(b))
				o := e.sale(int64(b.N))
				const together = 256 // as many as the engine sends in one call
				for i := 0; i < b.N; i += together {
					attempts := make([]model.Attempt, min(together, b.N-i))
					for j := range attempts {
						attempts[j] = attempt(o, fmt.Sprint("u-", i+j))
					}
					if _, err := e.gate.Admit(b.Context(), o.ID, attempts, 0); err != nil {
						b.Fatal(err)
					}
				}
				b.ResetTimer()
				e.running()
				e.settler.Notify(o.ID)
				eventually(b, "all is settled", func() bool { return e.peek(o).Stream == 0 })
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
				e.settled(o, int64(b.N))
			})
		})
	}
}
