package fault

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"flashsale/test/kit"
)

// failoverRows are planned failovers of a server. Their numbers are those of docs/holes.md.
var failoverRows = []row{
	{51, "the database moves: read-only under open connections", "202 or 503; /readyz tells; sales go on at the new primary", plannedFailover},
}

const (
	// toldReadOnly is how soon /readyz must report that the database takes no writes.
	toldReadOnly = 2 * time.Second
	// goesOn is how soon orders must be confirmed once a primary takes writes.
	goesOn = 5 * time.Second
)

// plannedFailover makes the primary read-only, copies its data to a second server and moves the address there. Open
// connections still lead to the first server, as behind a virtual IP address.
func plannedFailover(d *drill) {
	first, second := d.ownDatabase(), kit.MariaDB(d)
	link := d.proxy(first.Addr())
	gated, alone := d.gatedAndAlone("--database", strings.Replace(d.Database, first.Addr(), link.addr, 1))
	d.sell(size(900, 12_000), gated, alone)
	d.load = d.crowdAt(d.sale, manner{every: 4 * time.Millisecond, to: inTurn(d.urls...)})
	d.more(200)

	d.execute(first.Root(d), "SET GLOBAL read_only = ON")
	readOnly := time.Now()
	for _, url := range d.urls {
		d.until(toldReadOnly, "/readyz tells", func() (bool, error) {
			status, _, err := d.Call(http.MethodGet, url+"/readyz", "", nil)
			return status == http.StatusServiceUnavailable, err
		})
	}
	told := time.Since(readOnly)
	d.Database = d.copyTo(second, first)
	d.books = openLedger(d, d.Database)
	link.Redirect(second.Addr())
	moved := time.Now()
	var confirmed [2]time.Duration
	for at, url := range d.urls {
		d.until(goesOn, "orders are confirmed again", func() (bool, error) {
			for _, a := range d.since(moved) {
				if a.Confirmed() && a.URL == url {
					confirmed[at] = a.Answered.Sub(moved)
					return true, nil
				}
			}
			return false, nil
		})
	}
	d.more(200)
	all := d.stop(mostAnswers...)
	d.retire(alone)
	d.finish("/readyz told after %s; once there was a primary, the first orders after %s and, without Redis, %s; %s",
		ms(told), ms(confirmed[0]), ms(confirmed[1]), all)
}

// copyTo copies the database, with its account, to another server and returns its URL there.
func (d *drill) copyTo(to, from *kit.MariaDBServer) string {
	d.Helper()
	u := d.databaseURL()
	name, account := strings.Trim(u.Path, "/"), u.User.Username()+"@'127.0.0.1'"
	password, _ := u.User.Password()
	d.execute(to.Root(d), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4",
		"CREATE USER "+account+" IDENTIFIED BY '"+password+"'", "GRANT ALL ON "+name+".* TO "+account)
	const copied = "set -o pipefail; mariadb-dump --no-defaults -h127.0.0.1 -P%d -uroot --single-transaction %[3]s |" +
		" mariadb --no-defaults -h127.0.0.1 -P%[2]d -uroot %[3]s"
	d.command("bash", "-c", fmt.Sprintf(copied, from.Port(), to.Port(), name))
	return strings.Replace(d.Database, from.Addr(), to.Addr(), 1)
}
