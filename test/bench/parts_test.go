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

	"golang.org/x/sync/errgroup"

	"flashsale/gate"
	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

const (
	// partsOrders is how many orders each measurement of partsAlone makes, and partsLines how many calls are under way.
	partsOrders, partsLines = 30_000, 4
)

// parts calls the stores as an instance does, without HTTP and without anybody who waits.
type parts struct {
	*engine
	db     *repository.Store
	ids    model.OrderIDs
	bought int
}

// twoWaits is how long a call of the gate and a transaction take when 100 connections buy.
const twoWaits = "WAITS=1ms 4ms"

// partsAlone measures the processor time of the parts of a purchase: a request of the control, the two waits of a request,
// and the calls of the gate and the database for batches of some sizes. Their sums bound what can be reached on this machine,
// however the parts are put together. It also measures how long settles take one after another, which bounds the tail of the
// waits, and, by the benchmarks of package handler, what the stages of a refusal add to a request.
func partsAlone(inProcess bool) func(t *testing.T, b *run, r *Result) {
	return func(t *testing.T, b *run, r *Result) {
		p := parts{engine: start(t, r, inProcess), ids: model.NewOrderIDs([]byte("bench"))}
		const sales = 100
		for range sales {
			p.sale(manyUnits, manyEach)
		}
		p.status = http.StatusCreated
		load := wrk(t, buyers, wrkConnections, false, func(i int) string { return p.purchase(p.sales[0], i) })
		// turns returns the turns of a control, and the processor time that a request took it.
		turns := func(env ...string) (samples []Sample, each float64) {
			control := p.control(b, "POST", buyRoute, env...)
			_ = load(control.URL)(warmUpSeconds, 0)
			before, requests := cpu(t, control.PID()), int64(0)
			for range b.rounds {
				samples = append(samples, load(control.URL)(b.seconds, 0))
				requests += samples[len(samples)-1].Requests
			}
			each = (cpu(t, control.PID()) - before) / float64(requests)
			control.Kill()
			return samples, each
		}
		var alone, waiting float64
		r.Control, alone = turns()
		_, waiting = turns(twoWaits)
		waits := waiting - alone
		whole := float64(runtime.NumCPU()) * 1e6 // µs of CPU in a second
		request := whole / spreadOf(collect(r.Control, rate)).median
		p.instance.Stop()
		p.connect(inProcess)
		for _, shape := range []struct{ size, sales int }{{10, 1}, {50, 1}, {50, sales}, {500, 1}, {500, sales}} {
			admit, settle, deduct := p.costs(shape.size, p.sales[:shape.sales])
			confirmed := request / (request + waits + admit.sum() + settle.sum())
			r.Values = append(r.Values, confirmed)
			r.note("batches of %d on %d sales, µs of CPU an order: a request of the control %.1f, to wait twice %.1f, to admit %s, to settle %s, to deduct "+
				"without Redis %s; so at most %.2f of the control confirmed, %.2f without Redis, and %.0f orders/s settled",
				shape.size, shape.sales, request, waits, admit, settle, deduct, confirmed, request/(request+waits/2+deduct.sum()), whole/settle.sum())
		}
		for _, size := range []int{10, 50} {
			r.note("batches of %d, settled one after another: %s", size, p.tail(size))
		}
		refusal := output(t, "go", "test", "-C", "../..", profile, "-run=^$", "-bench=^Benchmark(SoldOut|BareGin)$", "flashsale/handler")
		stages := (nanoseconds(refusal, "SoldOut") - nanoseconds(refusal, "BareGin")) / 1e3
		r.note("a refusal from memory adds %.1f µs of CPU to a request of the control, without HTTP; so at most %.2f of the control", stages, request/(request+stages))
		r.Unit, r.Measured = "of the control", fmt.Sprintf("at most %.2f of the control, with batches of 500", slices.Max(r.Values))
	}
}

// connect opens the stores of the engine, which has stopped. Gates in the Redis inside its process are installed anew.
func (p *parts) connect(inProcess bool) {
	p.t.Helper()
	var err error
	p.db, err = repository.Open(p.t.Context(), p.Database, 4)
	check.NoError(p.t, err)
	p.t.Cleanup(func() { check.NoError(p.t, p.db.Close()) })
	if !inProcess {
		return
	}
	server, err := embedded.StartRedis()
	check.NoError(p.t, err)
	p.t.Cleanup(server.Close)
	client, err := gate.Connect(server.URL())
	check.NoError(p.t, err)
	p.t.Cleanup(func() { _ = client.Close() })
	p.gate = gate.New(client, "bench")
	for _, sale := range p.sales {
		offer, _, err := p.db.Offer(p.t.Context(), sale)
		check.NoError(p.t, err)
		_, err = p.gate.Install(p.t.Context(), offer.Stock.Epoch+1, []int64{0}, kit.ContentsOf(offer))
		check.NoError(p.t, err)
	}
}

// costs are the processor time of an order, in µs: of this process, of MariaDB and of Redis.
type costs [3]float64

func (c costs) sum() float64 { return sum(c[:]) }

func (c costs) String() string {
	return fmt.Sprintf("%.1f (Go %.1f, MariaDB %.1f, Redis %.1f)", c.sum(), c[0], c[1], c[2])
}

// costs measures batches of size attempts, whose sales take turns. First all batches are admitted, and then all are settled,
// each time with partsLines calls under way. At last as many attempts are deducted, one batch after the other, because of
// several calls at once only one would succeed.
func (p *parts) costs(size int, sales []string) (admit, settle, deduct costs) {
	p.t.Helper()
	entries := make([][]model.Entry, partsOrders/size)
	each := func(lines int, do func(attempts []model.Attempt, entries *[]model.Entry) error) (used costs) {
		batches := make([][]model.Attempt, len(entries))
		for i := range batches {
			batches[i] = p.attempts(size, sales)
		}
		before := p.used()
		var g errgroup.Group
		g.SetLimit(lines)
		for i, attempts := range batches {
			g.Go(func() error { return do(attempts, &entries[i]) })
		}
		check.NoError(p.t, g.Wait())
		for i, now := range p.used() {
			used[i] = (now - before[i]) / float64(len(batches)*size)
		}
		return used
	}
	admit = each(partsLines, func(attempts []model.Attempt, entries *[]model.Entry) (err error) {
		*entries, err = p.admit(attempts)
		return err
	})
	settle = each(partsLines, func(_ []model.Attempt, entries *[]model.Entry) error { return p.settle(*entries) })
	sales = sales[:1]
	deduct = each(1, func(attempts []model.Attempt, _ *[]model.Entry) error {
		_, err := p.db.Deduct(p.t.Context(), sales[0], attempts)
		return err
	})
	return admit, settle, deduct
}

func (p *parts) admit(attempts []model.Attempt) (entries []model.Entry, err error) {
	for _, answer := range p.gate.Admit(p.t.Context(), attempts) {
		if answer.Entry == nil {
			return nil, fmt.Errorf("not admitted: %+v", answer)
		}
		entries = append(entries, *answer.Entry)
	}
	return entries, nil
}

func (p *parts) settle(entries []model.Entry) error {
	outcomes, err := p.db.SettleSales(p.t.Context(), entries)
	if err == nil {
		_, err = p.gate.Settled(p.t.Context(), entries, outcomes)
	}
	return err
}

// tail settles batches of one sale one after another, as the settler does, and tells how long one settle takes, and two in turn:
// a buyer waits for the settle that is under way, and then for his own.
func (p *parts) tail(size int) string {
	p.t.Helper()
	var one, two []float64
	for i := range partsOrders / size {
		entries, err := p.admit(p.attempts(size, p.sales[:1]))
		check.NoError(p.t, err)
		begun := time.Now()
		check.NoError(p.t, p.settle(entries))
		if one = append(one, float64(time.Since(begun))/float64(time.Millisecond)); i > 0 {
			two = append(two, one[i-1]+one[i])
		}
	}
	times := func(list []float64) string {
		slices.Sort(list)
		mean, late := sum(list)/float64(len(list)), list[len(list)*99/100]
		return fmt.Sprintf("%.1f ms, %.1f at p99, which is %.2f x the mean", mean, late, late/mean)
	}
	return "one takes " + times(one) + "; two in turn take " + times(two)
}

// nanoseconds returns the time of one operation of a benchmark in the output of go test.
func nanoseconds(output, benchmark string) float64 {
	return total(output, `Benchmark`+benchmark+`\S*\s+\d+`)
}

func sum(list []float64) (all float64) {
	for _, n := range list {
		all += n
	}
	return all
}

func (p *parts) attempts(n int, sales []string) []model.Attempt {
	list := make([]model.Attempt, n)
	for i := range list {
		user, sale, key := userID(p.bought%buyers), sales[p.bought%len(sales)], strconv.Itoa(p.bought)
		list[i] = model.Attempt{
			ID: p.ids.Derive(user, sale, key), SaleID: sale, UserID: user, Quantity: 1, IdempotencyKey: key,
			Frequency: model.Frequency{Limit: 100_000, Window: time.Second}, Shards: 1,
		}
		p.bought++
	}
	return list
}

// used returns what this process, MariaDB and Redis have used so far, in µs of CPU.
func (p *parts) used() (c costs) {
	p.t.Helper()
	c[0] = cpu(p.t, os.Getpid())
	if p.mariadb != nil {
		c[1], c[2] = cpu(p.t, p.mariadb.PID()), cpu(p.t, p.Redis.PID())
	}
	return c
}
