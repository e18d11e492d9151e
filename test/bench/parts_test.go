//go:build bench && linux

package bench

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit/check"
)

// partsAlone measures the processor time of the parts of a confirmed purchase, one after the other: a request of the
// control, and the calls of the gate and the database for a batch, without HTTP and without anybody who waits. Their sum
// bounds the rate of confirmed purchases, however they are put together.
func partsAlone(t *testing.T, b *run, r *Result) {
	e := start(t, r, false)
	sale := e.sale(manyUnits, manyEach)
	e.status = http.StatusCreated
	control := wrk(t, buyers, wrkConnections, false, func(i int) string { return e.purchase(sale, i) })(e.mirror(b, "POST", buyRoute))
	_ = control(warmUpSeconds, 0)
	for range b.rounds {
		r.Control = append(r.Control, control(b.seconds, 0))
	}
	request := float64(runtime.NumCPU()) * 1e6 / spreadOf(collect(r.Control, rate)).median
	e.instance.Stop()
	db, err := repository.Open(t.Context(), e.Database, 4)
	check.NoError(t, err)
	defer func() { check.NoError(t, db.Close()) }()
	ids, bought := model.NewOrderIDs([]byte("bench")), 0
	for _, n := range []int{25, 50, 500} {
		attempts := func() (list []model.Attempt) {
			for range n {
				user, key := userID(bought%buyers), strconv.Itoa(bought)
				list = append(list, model.Attempt{
					ID: ids.Derive(user, sale, key), SaleID: sale, UserID: user, Quantity: 1, IdempotencyKey: key,
					RequestHash: model.HashRequest(1), Frequency: model.Frequency{Limit: 100_000, Window: time.Second}, Shards: 1,
				})
				bought++
			}
			return list
		}
		const orders = 30_000
		before := e.parts()
		for range orders / n {
			var entries []model.Entry
			for _, answer := range e.gate.Admit(t.Context(), attempts()) {
				check.NoError(t, answer.Err)
				entries = append(entries, *answer.Entry)
			}
			outcomes, err := db.Settle(t.Context(), sale, entries)
			check.NoError(t, err)
			_, err = e.gate.Settled(t.Context(), entries, outcomes)
			check.NoError(t, err)
		}
		sum := request
		text := fmt.Sprintf("a request of the control %.1f", request)
		for i, used := range e.parts() {
			each := (used - before[i]) / float64(orders/n*n)
			sum += each
			text += fmt.Sprintf(", %s %.1f", []string{"the calls in Go", "MariaDB", "Redis"}[i], each)
		}
		r.Values = append(r.Values, request/sum)
		r.note("batches of %d, µs of an order: %s; together %.1f, so at most %.2f of the control", n, text, sum, request/sum)
	}
	r.Unit = "of the control"
	r.Measured = fmt.Sprintf("at most %.2f of the control", slices.Max(r.Values))
}

// parts returns what this process, MariaDB and Redis have used so far, in µs of CPU.
func (e *engine) parts() [3]float64 {
	e.t.Helper()
	return [3]float64{cpu(e.t, os.Getpid()), cpu(e.t, e.mariadb.PID()), cpu(e.t, e.Redis.PID())}
}
