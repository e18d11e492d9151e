package fault

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"flashsale/test/kit/shop"
)

// gatherRows are faults of a settle while other attempts gather at the gate.
var gatherRows = []row{
	{96, "attempts gather at the gate while a settle fails, loses the reply to its commit, or waits for a locked row", "each attempt becomes one order", gatheredAttempts},
}

// gatheredAttempts lets the settle of one attempt wait for the stock row. Meanwhile a crowd comes, whose attempts are admitted in few
// calls of the gate. Then the settle is killed, or commits without a reply, or waits on until its buyer is told that he is queued.
func gatheredAttempts(d *drill) {
	root := d.ownDatabase().Root(d)
	host := d.databaseURL().Host
	link := d.proxy(host)
	i := d.Start("--ack-wait", "300ms", "--ops-addr", "127.0.0.1:0", "--database", strings.Replace(d.Database, host, link.addr, 1))
	rounds := size(2, 20)
	d.open(3*rounds*(1+crowd)+50, i)
	d.gateThere(d.sale, i.URL)
	streams, client, figures := d.client(d.Redis), d.manyConnections(), []string{i.OpsURL()}
	inParallel(crowd, crowd, func(int) { d.called(client, http.MethodGet, i.URL+"/api/v1/sales/"+d.sale, "", "") }) // opens the connections

	const settles = "UPDATE stock SET available = available - "
	killed := func() {
		var id int
		d.ok(root.QueryRowContext(d.Context(), "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&id))
		d.execute(root, fmt.Sprint("KILL ", id))
		d.until(recoveryTime, "the settle has ended", func() (bool, error) {
			var n int
			err := root.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", id).Scan(&n)
			return n == 0, err
		})
	}
	lost := int64(0)
	for round := range rounds {
		for _, trouble := range []struct {
			name                 string
			before, during, then func() // before, during and after the lock; during nil: the lock lasts until the first buyer has an answer
		}{
			{"fails", func() {}, killed, func() {}},
			{"unknown", func() { link.LoseReplyTo(settles, 1) }, func() {}, func() {
				lost++
				d.until(recoveryTime, "the reply to the commit is lost", func() (bool, error) { return link.Lost() >= lost, nil })
			}},
			{"locked", func() {}, nil, func() {}},
		} {
			attempts := make([]shop.Attempt, 1+crowd)
			var buyers sync.WaitGroup
			buys := func(n int) {
				a := &attempts[n]
				a.User, a.URL = fmt.Sprintf("%s-%d-%d", trouble.name, round, n), i.URL
				a.Key = a.User
				_, err := d.knock(client, a, d.sale)
				d.mustBe(err == nil, a.Status, "%s: %v", a.User, err)
			}
			trouble.before()
			d.whileLocked(d.sale, func(*sql.Tx) {
				var first sync.WaitGroup
				first.Go(func() { buys(0) })
				buyers.Go(first.Wait)
				d.until(recoveryTime, "a settle waits for the stock", func() (bool, error) { return d.waiting(root) })
				for n := 1; n <= crowd; n++ {
					buyers.Go(func() { buys(n) })
				}
				d.until(recoveryTime, "all are admitted", func() (bool, error) {
					n, err := streams.XLen(d.Context(), gateKey(d.sale, "stream")).Result()
					return n == 1+crowd, err
				})
				if trouble.during == nil {
					first.Wait()
				} else {
					trouble.during()
				}
			})
			trouble.then()
			buyers.Wait()
			d.attempts = append(d.attempts, attempts...)
			d.told(attempts, "201", "202")
			d.until(recoveryTime, "all are settled", d.streamEmpty(streams))
		}
	}
	calls := d.metric(figures, "flashsale_admit_batch_attempts_count") - 3*rounds
	gathered := 3 * rounds * crowd
	all := d.stop("201", "202")
	if calls*4 > gathered {
		d.Slowf("%d attempts came to the gate in %d calls", gathered, calls)
	}
	if n := strings.Count(i.Log.String(), "a batch can't be settled; it is tried again"); n < 2*rounds {
		d.Slowf("%d settles have failed, want %d", n, 2*rounds)
	}
	d.finish("%d attempts came to the gate in %d calls while %d settles failed, %d lost their replies and %d waited; %s",
		gathered, calls, rounds, rounds, rounds, all)
}
