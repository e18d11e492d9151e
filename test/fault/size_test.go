package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/test/kit/shop"
)

// sizeRows are faults of a sale with very many orders. Their numbers are those of docs/holes.md.
var sizeRows = []row{
	{53, "the gate of a sale with very many orders is lost, and then wrong", "replaced in pages: soon, in little memory, without a pause of Redis", largeGate},
}

const (
	// gateReads, gateMemory and gatePause bound the replacement of a gate with a million orders. gateReads is how often the test
	// could read all orders meanwhile: on a quiet machine the replacement takes some seven times as long as that, and how long
	// it takes exactly is for benchmarks.
	gateReads  = 20
	gateMemory = 64 << 20
	gatePause  = 20 * time.Millisecond
)

func largeGate(d *drill) {
	d.ownDatabase("--innodb-buffer-pool-size=1G", "--innodb-max-dirty-pages-pct=0") // settings for so many orders
	// With GOGC=400, the engine's setting, the garbage of a log-in would remain and be measured as memory of the rebuild.
	collecting := []string{"GOGC=100"}
	instances := []*shop.Instance{d.StartWith(collecting), d.StartWith(collecting)}
	orders, rest := size(20_000, 1_000_000), 20
	d.sell(orders+rest, instances...)
	d.gateThere(d.sale, d.urls[0])
	// All units but the rest belong to orders of one unit each; some buyers have another, cancelled order.
	const insert = `INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch,
		idempotency_key, created_at_ms, expires_at_ms)
		SELECT CONCAT('%[1]s', LPAD(seq, 32, '%[2]s')), '%[1]s', CONCAT('buyer-', seq), 1, 100, 'CNY', '%[3]s', 'stream', 1,
		CONCAT('%[2]s', seq), seq, %[4]d FROM seq_%[5]d_to_%[6]d`
	const atOnce = 20_000
	for from := 1; from <= orders; from += atOnce {
		to := from + atOnce - 1
		d.execute(d.books.db,
			fmt.Sprintf(insert, d.sale, "A", "pending", time.Now().Add(time.Hour).UnixMilli(), from, to),
			fmt.Sprintf(insert, d.sale, "B", "cancelled", 0, from, from+atOnce/10-1),
			fmt.Sprintf("INSERT INTO buyers (sale_id, user_id, units) SELECT '%s', CONCAT('buyer-', seq), 1 FROM seq_%d_to_%d",
				d.sale, from, to))
	}
	d.until(2*time.Minute, "what was written is on the disk", func() (bool, error) {
		dirty, err := d.status(d.books.db, "Innodb_buffer_pool_pages_dirty")
		return dirty < 1000, err
	})
	d.execute(d.books.db, fmt.Sprintf(
		"UPDATE stock SET available = available - %[1]d, held = held + %[1]d, version = version + 1 WHERE sale_id = '%[2]s'", orders, d.sale))
	client, gate := d.client(d.Redis), gateKey(d.sale, "gate")
	d.tell(client, "CONFIG", "SET", "slowlog-log-slower-than", strconv.Itoa(int(gatePause.Microseconds())))

	var told []string
	for _, spoil := range [][]any{{"FLUSHALL", "ASYNC"}, {"HINCRBY", gate, "left", "3"}} {
		d.gateThere(d.sale, d.urls[0])
		d.tell(client, "SLOWLOG", "RESET")
		before := make([]int64, len(instances))
		for i, instance := range instances {
			before[i] = d.resident(instance)
			d.ok(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", instance.PID()), []byte("5"), 0)) // resets VmHWM
		}
		epoch := number(d.tell(client, "HGET", gate, "epoch"))
		d.tell(client, spoil...)
		took, reading := d.replaced(client, epoch), d.readOrders()
		more := int64(0)
		for i, instance := range instances {
			more = max(more, d.memory(instance, "VmHWM")-before[i])
		}
		slow, err := client.SlowLogGet(d.Context(), 100).Result()
		d.ok(err)
		longest := time.Duration(0)
		for _, entry := range slow {
			longest = max(longest, entry.Duration)
		}
		if timed && (took > gateReads*reading || more > gateMemory || longest > gatePause) {
			failed := d.Slowf
			if more > gateMemory {
				failed = d.Errorf
			}
			failed("%s: %s, %s to read, %d MiB more, a command of Redis took %s", spoil[0], took, reading, more>>20, longest)
		}
		told = append(told, fmt.Sprintf("after %s not open for %s, %.1f times as long as to read the orders, %d MiB more, commands of Redis within %s",
			spoil[0], took.Round(10*time.Millisecond), took.Seconds()/reading.Seconds(), more>>20, max(longest, gatePause)))
		d.repaired(time.Now())
	}
	d.result.Happened = fmt.Sprintf("%d orders, %d of them cancelled. %s", orders+orders/10, orders/10, strings.Join(told, "; "))
	d.Audited(d.urls[1], d.sale)
	d.AuditCommand()
	sold := d.Rush(d.sale, "late", 2*rest, nil, d.urls...)
	failed := d.Errorf
	if undecided(sold) {
		failed = d.Slowf
	}
	if shop.Tally(sold)["201 "] != rest {
		failed("%d were left, and sold are %v", rest, shop.Tally(sold))
	}
	if left := d.Books(d.sale).Stock.Available; left != 0 {
		failed("%d are left", left)
	}
}

// replaced waits until the gate has a newer epoch, and returns how long it was not open.
func (d *drill) replaced(client *redis.Client, than int) time.Duration {
	d.Helper()
	var closed, opened time.Time
	d.until(2*time.Minute, "the gate is replaced", func() (bool, error) {
		fields, err := client.HMGet(d.Context(), gateKey(d.sale, "gate"), "open", "epoch").Result()
		if err != nil {
			return false, err
		}
		if fields[0] != "1" && closed.IsZero() {
			closed = time.Now()
		}
		epoch, _ := fields[1].(string)
		opened = time.Now()
		return fields[0] == "1" && number(epoch) > than, nil
	})
	if closed.IsZero() { // it was closed only between two looks
		return 0
	}
	return opened.Sub(closed)
}

// readOrders returns how long it takes to read the orders of the sale.
func (d *drill) readOrders() time.Duration {
	d.Helper()
	start := time.Now()
	rows, err := d.books.db.QueryContext(d.Context(), "SELECT id, user_id, quantity FROM orders WHERE sale_id = ?", d.sale)
	d.ok(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, user string
		var quantity int
		d.ok(rows.Scan(&id, &user, &quantity))
	}
	d.ok(rows.Err())
	return time.Since(start)
}
