package preflight

import (
	"cmp"
	"strings"
	"time"

	"flashsale/repository"
)

const (
	// fewNodes is the least size of a Galera cluster that still takes writes when one node dies.
	fewNodes = 3
	// longSync is the least time-out that a primary should have for its semi-synchronous replica: longer than anybody takes to
	// promote the replica. A primary whose time-out is over confirms orders that the replica lacks.
	longSync = time.Hour
)

// judgeServers checks whether sales can go on with what was confirmed if one of several servers of the database dies.
func judgeServers(d repository.Server) (list []Finding) {
	const check = "database.servers"
	var hosts []string
	for _, server := range d.Servers {
		hosts = append(hosts, server.Host)
		if server.Err != nil && !server.ReadOnly {
			list = append(list, Warn.of(check, "start it, or correct --database", "%s can't be used: %s", server.Host, oneLine(server.Err)))
		}
	}
	enabled, wait := d.Variables["rpl_semi_sync_master_enabled"], number(d.Variables["rpl_semi_sync_master_timeout"])
	if source, ok := d.Variables["rpl_semi_sync_source_enabled"]; ok { // in MySQL 8
		enabled, wait = source, number(d.Variables["rpl_semi_sync_source_timeout"])
	}
	if d.Nodes == 0 && len(d.Servers) == 0 {
		return list
	}
	return append(list, cmp.Or(
		Warn.when(d.Nodes > 0 && d.Nodes < fewNodes, check, "run three nodes or more", "when a node of %d dies, the rest of the cluster takes no writes", d.Nodes),
		OK.when(d.Nodes > 0, check, "", "a Galera cluster of %d nodes", d.Nodes),
		Warn.when(!on(enabled), check, "semi-synchronous replication", "a replica that is promoted may lack confirmed orders"),
		Warn.when(time.Duration(wait)*time.Millisecond < longSync, check, "rpl_semi_sync_master_timeout of an hour or more",
			"when the replica is silent for %d ms, orders are confirmed that it lacks", wait),
		good(check, "semi-synchronous: %s", strings.Join(hosts, ", ")),
	))
}
