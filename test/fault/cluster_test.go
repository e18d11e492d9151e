package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// clusterRows are faults of databases that have several servers.
var clusterRows = []row{
	{77, "nodes of a Galera cluster are killed, those of the writers, and return", "sales go on at another node", nodesKilled},
	{78, "the writers' node of a Galera cluster hangs, and goes on", "sales go on at another node", nodeHangs},
	{79, "the writers' node of a Galera cluster is cut off, and returns", "it takes no order; sales go on at another node", nodeCutOff},
	{80, "the primary dies, its semi-synchronous replica is promoted by hand, the old primary returns read-only", "202 or 503; then sales go on at the replica", replicaPromoted},
}

// otherServer is how soon orders must be confirmed by another server: what hangs costs a statement its limit of ten seconds
// and a new connection its limit of three, and the cluster excludes a node after four.
var otherServer = func() time.Duration {
	if timed {
		return 30 * time.Second
	}
	return 2 * time.Minute
}()

// leisurely is the period of buyers in rows that last long, so that the sale does not sell out before the end.
var leisurely = size(20*time.Millisecond, 4*time.Millisecond)

// cluster makes the row's shop on a Galera cluster, with an instance that sells through the gate and one that has lost
// Redis. The books are read at the last node, which nothing happens to. Both instances use the first node, or, if apart is
// true, one of the first two nodes each.
func (d *drill) cluster(apart bool) (c *kit.GaleraCluster, alone *shop.Instance) {
	d.Helper()
	c = kit.Galera(d)
	database := c.NewDatabase(d)
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr())
	}
	at := func(order ...int) string {
		named := make([]string, len(order))
		for i, node := range order {
			named[i] = addrs[node]
		}
		return strings.Replace(database, strings.Join(addrs, ","), strings.Join(named, ","), 1)
	}
	d.useStores(at(2), kit.Redis(d))
	orders := []string{at(0, 1, 2), at(0, 1, 2)}
	if apart {
		orders[1] = at(1, 0, 2)
	}
	return c, d.sellsOn(orders...)
}

// sellsOn starts an instance that sells through the gate and one that has lost Redis, each with its address of the database,
// and a crowd at both.
func (d *drill) sellsOn(databases ...string) (alone *shop.Instance) {
	d.Helper()
	down := kit.Redis(d)
	gated := d.Start("--ack-wait", "300ms", "--database", databases[0])
	alone = d.Start("--ack-wait", "300ms", "--database", databases[len(databases)-1], "--redis", down.URL())
	down.Kill()
	d.open(size(2_500, 20_000), gated, alone)
	d.load = d.crowdAt(d.sale, manner{every: leisurely, to: inTurn(d.urls...)})
	d.more(100)
	return alone
}

// sellsAgain waits until each instance has confirmed an order that was asked for after a fault, and says how long that took.
func (d *drill) sellsAgain(fault time.Time, within time.Duration) string {
	d.Helper()
	took := make([]string, len(d.urls))
	for i, url := range d.urls {
		d.until(within, "orders are confirmed again", func() (bool, error) {
			for _, a := range d.since(fault) {
				if a.Confirmed() && a.URL == url {
					after := a.Answered.Sub(fault)
					took[i], d.result.Recovery = ms(after).String(), max(d.result.Recovery, after)
					return true, nil
				}
			}
			return false, nil
		})
	}
	return "first orders after " + strings.Join(took, " and, without Redis, ")
}

// ended compares what all buyers were told with the books at the surviving server.
func (d *drill) ended(alone *shop.Instance, what ...string) {
	d.Helper()
	all := d.stop(mostAnswers...)
	d.retire(alone)
	d.finish("%s; %s", strings.Join(what, "; "), all)
}

func nodesKilled(d *drill) {
	c, alone := d.cluster(true)
	var took []string
	for i, name := range []string{"a first node", "then the second"} {
		c.Nodes[i].Kill()
		took = append(took, name+" killed: "+d.sellsAgain(time.Now(), otherServer))
		d.more(100)
		c.Nodes[i].Restart()
		d.more(100)
	}
	d.ended(alone, took...)
}

func nodeHangs(d *drill) {
	c, alone := d.cluster(false)
	c.Nodes[0].Stop()
	took := d.sellsAgain(time.Now(), otherServer)
	d.more(100)
	c.Nodes[0].Continue()
	c.Synced(0)
	d.more(200)
	d.ended(alone, took)
}

func nodeCutOff(d *drill) {
	c, alone := d.cluster(false)
	c.CutOff(0)
	took := d.sellsAgain(time.Now(), otherServer)
	d.more(100)
	c.Rejoin(0)
	d.more(200)
	d.ended(alone, took)
}

func replicaPromoted(d *drill) {
	primary, replica := kit.Replicated(d)
	root := replica.Root(d)
	database := primary.NewDatabase(d)
	u, err := url.Parse(database)
	d.ok(err)
	name := strings.Trim(u.Path, "/")
	both := strings.Replace(database, primary.Addr(), primary.Addr()+","+replica.Addr(), 1)
	d.until(time.Minute, "the replica has the account", func() (bool, error) {
		n := 0
		err := root.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM mysql.db WHERE db = ?", name).Scan(&n)
		return n == 1, err
	})
	d.useStores(strings.Replace(database, primary.Addr(), replica.Addr(), 1), kit.Redis(d))
	alone := d.sellsOn(both)
	primary.Kill()
	killed := time.Now()
	d.more(20)
	meanwhile := d.since(killed)
	d.told(meanwhile, "202", "503 unavailable", "409 sold_out")
	d.execute(root, "STOP SLAVE IO_THREAD")
	d.until(time.Minute, "all that the replica has got is applied", func() (bool, error) {
		state, err := replicaState(d.Context(), root)
		return strings.HasPrefix(state["Slave_SQL_Running_State"], "Slave has read all relay log"), err
	})
	d.execute(root, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
	promoted := d.sellsAgain(time.Now(), otherServer)
	primary.RestartWith("--read-only=ON", "--rpl-semi-sync-master-enabled=OFF")
	d.more(200)
	d.ended(alone, fmt.Sprintf("without a primary: %s; promoted: %s", tally(meanwhile), promoted))
}

// replicaState returns the values of SHOW SLAVE STATUS by the names of its columns.
func replicaState(ctx context.Context, root *sql.DB) (state map[string]string, err error) {
	rows, err := root.QueryContext(ctx, "SHOW SLAVE STATUS")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return nil, errors.Join(err, rows.Err())
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	state = map[string]string{}
	err = rows.Scan(into...)
	for i, name := range columns {
		state[name] = values[i].String
	}
	return state, err
}
