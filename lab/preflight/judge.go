package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"flashsale/app"
	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/strategy"
)

const (
	// slowTrip is the round trip to a store above which a check warns.
	slowTrip = 5 * time.Millisecond
	// farTrip is the round trip to a store above which a check fails.
	farTrip = 100 * time.Millisecond
	// smallPool is the size of the database's buffer pool below which a check warns (docs/performance.md, What it costs).
	smallPool = 1 << 30
	// packetNeed has room for a statement with 512 orders of some 700 bytes each.
	packetNeed = 1 << 20
	// spareConnections are left for others, such as operators and backups.
	spareConnections = 10
	// spareFiles is room for open files besides connections.
	spareFiles = 64
	// offClock and wrongClock are the differences between the clocks of the stores above which a check warns, or fails. Gate and
	// database disagree about the start of a sale by this difference.
	offClock, wrongClock = 500 * time.Millisecond, 5 * time.Second
	// offMachine is how far this machine's clock may be off. Bearer tokens expire by this clock.
	offMachine = 5 * time.Second
	// laggingSeconds is the lag of a Redis replica above which a check warns.
	laggingSeconds = 5
	// fewNodes is the least size of a Galera cluster that still takes writes when one node dies.
	fewNodes = 3
	// longSync is the least time-out that a primary should have for its semi-synchronous replica. After the time-out, the primary
	// confirms orders that the replica lacks.
	longSync = time.Hour
	// shortPay is the time to pay, in seconds, below which a check warns.
	shortPay = 60
)

// judgeSettings checks settings that are valid. With embedded stores it checks the strategy only.
func judgeSettings(s config.Settings) []Finding {
	kind, _ := strategy.Of(s.Strategy)
	twice, hybrid := fmt.Sprintf("%s sells units twice when %s", s.Strategy, kind.Oversells), "--strategy hybrid"
	list := first(
		Fail.when(kind.Oversells == strategy.WithTwoBuyers, "settings.strategy", hybrid, "%s", twice),
		Warn.when(kind.Oversells != strategy.Never, "settings.strategy", hybrid, "%s", twice),
		Warn.when(kind.NeedsRedis, "settings.strategy", hybrid, "%s sells nothing while Redis is away", s.Strategy),
		good("settings.strategy", "%s", s.Strategy),
	)
	if s.Embedded() {
		return list
	}
	guessed := strings.Count(s.Secret, s.Secret[:1]) == len(s.Secret) || s.Secret == s.AdminPassword
	plainRedis := s.PlainRedis()
	host, _, none := net.SplitHostPort(s.OpsAddr)
	ops, name := netip.ParseAddr(host)
	public := none == nil && (host == "" || name == nil && !ops.IsLoopback() && !ops.IsPrivate())
	return append(list, first(
		Fail.when(guessed, "settings.secret", "openssl rand -hex 32", "--secret can be guessed"),
		good("settings.secret", "%d bytes", len(s.Secret)),
		Fail.when(s.BuiltIn() == "open", "settings.accounts", "--accounts closed, and --issuer or tokens signed with --secret for buyers",
			"everybody can register, so that one person can buy as many"),
		Fail.when(s.Provider() == "sandbox", "settings.payment", "--payment stripe, or handoff to the shop's own checkout",
			"the sandbox takes no money: anybody may pay with it"),
		Warn.when(plainRedis != "", "settings.redis_encryption", "a rediss:// address", "connections to Redis on %s are not encrypted", plainRedis),
		Warn.when(s.PublicURL == "", "settings.public_url", "set --public-url", "links to payments and sales would lead to %s", s.HTTPAddr),
		Warn.when(s.PublicURL != "" && s.IPRate > 0 && len(s.TrustedProxies) == 0, "settings.trusted_proxies", "set --trusted-proxies, if there is one",
			"a proxy in front would be one address to --ip-rate: %v requests a second for all buyers", s.IPRate),
		Warn.when(public, "settings.ops_addr", "an address that only operators reach", "figures and profiles have no log-in, and %s may be public", s.OpsAddr),
	)...)
}

// judgeRehearsal compares a plan with the largest rehearsal.
func judgeRehearsal(largest model.Rehearsal, buyers, units int64) Finding {
	found := fmt.Sprintf("%d buyers for %d units, at most %d in a second, on %s",
		largest.Buyers, largest.Units, largest.PerSecond, largest.At.UTC().Format(time.DateOnly))
	if buyers > largest.Buyers || units > largest.Units {
		return Warn.of("rehearsal", "flashsale rehearse with a larger crowd, or set --buyers", "%s; the plan is %d buyers for %d units", found, buyers, units)
	}
	return good("rehearsal", "%s", found)
}

// judgeTrip judges the round trip to a store.
func judgeTrip(check, what string, trip time.Duration) Finding {
	const do = "bring the instances near their stores"
	found := fmt.Sprintf("%s, round trip %s", what, trip.Round(time.Microsecond))
	return cmp.Or(Fail.when(trip > farTrip, check, do, "%s", found), Warn.when(trip > slowTrip, check, do, "%s", found), good(check, "%s", found))
}

// numbers matches a version of two or three numbers.
var numbers = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`)

// atLeast reports whether the first version in a text is "least" or newer. It returns false if the text has no version.
func atLeast(text string, least ...int) bool {
	found := numbers.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	have := make([]int, len(least))
	for i := range least {
		have[i], _ = strconv.Atoi(found[i+1]) // a missing number is 0
	}
	return slices.Compare(have, least) >= 0
}

// judgeDatabase checks a database that this number of instances is to use.
func judgeDatabase(d repository.Server, s config.Settings, instances int) []Finding {
	list := first(
		judgeTrip("database.reach", d.Version, d.RoundTrip),
		Fail.when(d.Applied < d.Newest, "database.schema", "flashsale migrate up, or start an instance", "at step %d of %d", d.Applied, d.Newest),
		Fail.when(d.Applied > d.Newest, "database.schema", "update this binary", "at step %d, and this binary knows %d", d.Applied, d.Newest),
		good("database.schema", "at step %d, the newest", d.Applied),
	)
	if d.Variables == nil {
		return append(list, Fail.when(instances > 1, "database.kind", "run MySQL, and set --database", "SQLite is for one instance, not %d", instances))
	}
	least, enough := "8.0.16", atLeast(d.Version, 8, 0, 16)
	mariadb := strings.HasPrefix(d.Version, "MariaDB")
	if mariadb {
		least, enough = "10.6", atLeast(d.Version, 10, 6)
	}
	return slices.Concat(list, first(
		Fail.when(!enough, "database.version", "update it", "%s, needed is %s", d.Version, least),
		OK.when(d.Encrypted, "database.encryption", "", "connections are encrypted"),
		OK.when(s.DatabaseIsNear(), "database.encryption", "", "connections are not encrypted, and stay on this machine"),
		Fail.of("database.encryption", "add ?tls=true or tls-ca=FILE to --database",
			"connections to another machine are not encrypted: orders, names and password hashes can be read on the way"),
	), judgeDurability(d.Variables), judgeServers(d), judgeSession(d.Variables, mariadb), judgeCapacity(d, s.DBMaxConns*instances))
}

// judgeServers checks a database of several servers: whether each can be used, and what happens if one of them dies.
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
	if source, ok := d.Variables["rpl_semi_sync_source_enabled"]; ok { // of newer versions of MySQL
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

// judgeDurability checks what a committed transaction survives, and whether the server accepts writes.
func judgeDurability(v map[string]string) []Finding {
	const check, do = "database.flush", "SET GLOBAL innodb_flush_log_at_trx_commit=1"
	flush, synced := v["innodb_flush_log_at_trx_commit"], v["sync_binlog"]
	return slices.Concat(first(
		OK.when(flush == "1", check, "", "a commit is on disk"),
		Warn.when(flush == "2", check, do, "a power cut loses up to a second of confirmed orders"),
		Fail.of(check, do, "innodb_flush_log_at_trx_commit=%s: when mysqld dies, up to a second of confirmed orders is lost", flush),
	), first(
		Warn.when(v["innodb_doublewrite"] == "OFF", check, "innodb_doublewrite=ON", "a page torn by a power cut can't be repaired"),
		Warn.when(!on(v["log_bin"]), "database.binlog", "log_bin, sync_binlog=1", "off: a restore ends at the last backup, and there can be no replica"),
		Warn.when(synced != "1", "database.binlog", "SET GLOBAL sync_binlog=1", "sync_binlog=%s: after a power cut replicas may lack confirmed orders", synced),
		good("database.binlog", "written with each commit"),
		Fail.when(on(v["read_only"]) || on(v["innodb_read_only"]), "database.writable", "name the primary in --database",
			"read-only: this is a replica, or closed for writing"),
	))
}

func on(value string) bool { return value == "1" || strings.EqualFold(value, "ON") }

// judgeSession checks variables that the engine sets in its sessions. A proxy may drop them.
func judgeSession(v map[string]string, mariadb bool) []Finding {
	const keep = "a proxy that keeps what a session has set"
	var lost []string
	if isolation := v["tx_isolation"] + v["transaction_isolation"]; !strings.Contains(isolation, "READ-COMMITTED") {
		lost = append(lost, "isolation "+isolation)
	}
	if !strings.Contains(v["sql_mode"], "STRICT_ALL_TABLES") {
		lost = append(lost, "sql_mode "+v["sql_mode"])
	}
	if v["time_zone"] != "+00:00" {
		lost = append(lost, "time_zone "+v["time_zone"])
	}
	idle := v["idle_transaction_timeout"]
	return first(
		Fail.when(len(lost) > 0, "database.session", keep, "what was set is not there: %s", strings.Join(lost, ", ")),
		good("database.session", "READ COMMITTED, strict, in UTC"),
		Warn.when(!mariadb, "database.idle", "end such an instance; its locks go with its connections",
			"MySQL has no idle_transaction_timeout: an instance that stands still in a transaction keeps its rows locked"),
		Fail.when(number(idle) == 0, "database.idle", keep, "idle_transaction_timeout is not set"),
		good("database.idle", "an idle transaction ends after %s s", idle),
	)
}

// judgeCapacity checks the server's limits. "pools" is the size of all instances' pools together.
func judgeCapacity(d repository.Server, pools int) []Finding {
	most := number(d.Variables["max_connections"])
	if user := number(d.Variables["max_user_connections"]); user > 0 {
		most = min(most, user+spareConnections)
	}
	need, packet, pool := int64(pools+spareConnections), number(d.Variables["max_allowed_packet"]), number(d.Variables["innodb_buffer_pool_size"])
	return first(
		Fail.when(most < need, "database.connections", fmt.Sprintf("max_connections=%d, or a smaller --db-max-conns", need),
			"the pools of all instances are %d connections, the server takes %d; %d are open", pools, most, d.Connections),
		good("database.connections", "%d of the %d that the server takes; %d are open", pools, most, d.Connections),
		Fail.when(packet < packetNeed, "database.packet", "SET GLOBAL max_allowed_packet=16777216",
			"max_allowed_packet is %s: a batch of orders may need %s", size(packet), size(packetNeed)),
		Warn.when(pool < smallPool, "database.buffer", "innodb_buffer_pool_size=1G or more",
			"%s of memory: past some 300,000 orders each costs twice as much", size(pool)),
	)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // a missing value is 0
	return n
}

// size formats a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

func judgeMachineClock(skew time.Duration) Finding {
	off := skew.Round(time.Millisecond)
	return cmp.Or(
		Warn.when(skew.Abs() > offMachine, "machine.clock", "chrony or ntpd", "%s off the database's: tokens end too early or too late here", off),
		good("machine.clock", "%s off the database's", off),
	)
}

// judgeRedisClock checks how far apart the clocks of Redis and of the database are. "skew" is positive if Redis's clock is ahead.
func judgeRedisClock(addr string, skew time.Duration) Finding {
	const check, do, says = "redis.clock", "chrony or ntpd on both", "%s: the gate opens at another time than the pages say"
	found := fmt.Sprintf("%s: %s off the database's", addr, skew.Round(time.Millisecond))
	return cmp.Or(Fail.when(skew.Abs() > wrongClock, check, do, says, found), Warn.when(skew.Abs() > offClock, check, do, says, found), good(check, "%s", found))
}

// judgeRedis checks a Redis that this number of instances is to use. The gates may take "room" bytes together.
func judgeRedis(r gate.Server, s config.Settings, instances int, room int64) []Finding {
	version, policy := r.Info["redis_version"], r.Info["maxmemory_policy"]
	need, most := int64(instances*gate.Connections+spareConnections), number(r.Setting("maxclients")) // 0: the limit is not known
	return slices.Concat(first(
		judgeTrip("redis.reach", "Redis "+version+" at "+r.Addr, r.RoundTrip),
		Fail.when(!atLeast(version, 6, 2), "redis.version", "update it", "%s, needed is 6.2", version),
		Warn.when(r.Config == nil, "redis.config", "ask who runs it for appendfsync and maxclients", "CONFIG GET is refused; judged by INFO alone"),
	), judgeRole(r), first(
		Fail.when(policy != "noeviction", "redis.policy", "CONFIG SET maxmemory-policy noeviction", "%s would evict gates", policy),
		good("redis.policy", "noeviction"),
		judgeMemory(r.Info, room),
		judgePersistence(r, s.Ack == "queued"),
		Fail.when(most > 0 && most < need, "redis.clients", fmt.Sprintf("CONFIG SET maxclients %d, or fewer instances", need),
			"%d instances may open %d connections, it takes %d", instances, need, most),
		OK.when(most > 0, "redis.clients", "", "%d of the %d that it takes; %s are open", need, most, r.Info["connected_clients"]),
	))
}

// judgeRole checks whether a Redis takes writes, and the state of its replicas.
func judgeRole(r gate.Server) (list []Finding) {
	const check = "redis.role"
	cluster, state := r.Info["cluster_enabled"] == "1", r.Info["cluster_state"]
	well, least := r.Info["min_slaves_good_slaves"], number(r.Config["min-replicas-to-write"])
	wrong := cmp.Or(
		Fail.when(r.Info["role"] != "master", check, "name the primary in --redis", "%s is a replica and takes no writes", r.Addr),
		Fail.when(r.Info["loading"] == "1", check, "wait", "%s still reads its data from disk", r.Addr),
		Fail.when(cluster && state == "", check, "name several of its nodes in --redis", "%s is a node of a Cluster, and is used as if it were alone", r.Addr),
		Fail.when(cluster && state != "ok", check, "redis-cli --cluster check", "the Cluster is %s", state),
		Fail.when(number(well) < least, check, "bring the replicas back", "it takes writes only with %d replicas, and has %s that are well", least, well),
	)
	if wrong != (Finding{}) {
		return []Finding{wrong}
	}
	replicas := number(r.Info["connected_slaves"])
	for i := range replicas {
		fields := map[string]string{}
		for field := range strings.SplitSeq(r.Info[fmt.Sprintf("slave%d", i)], ",") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		list = append(list, Warn.when(fields["state"] != "online" || number(fields["lag"]) > laggingSeconds, check,
			"look at it; after a fail-over to it more has to be rebuilt", "the replica %s:%s is %s, %s s behind",
			fields["ip"], fields["port"], fields["state"], fields["lag"]))
	}
	return append(list, good(check, "%s is a primary with %d replicas", r.Addr, replicas))
}

// judgeReplica checks a Redis of --redis-replicas. A primary is wrong there, except in a Cluster.
func judgeReplica(r gate.Server) Finding {
	const check = "replica"
	replica, silent := r.Info["role"] == "slave", number(r.Info["master_last_io_seconds_ago"])
	return cmp.Or(
		Warn.when(!replica && r.Info["cluster_enabled"] != "1", check, "name a replica in --redis-replicas, or none", "%s is a primary", r.Addr),
		Warn.when(replica && (r.Info["master_link_status"] != "up" || silent > gate.ReplicaSilence), check,
			"look at it; until then pages show the database's stock", "%s has lost its primary", r.Addr),
		good(check, "%s, round trip %s", r.Addr, r.RoundTrip.Round(time.Microsecond)),
	)
}

// judgeMemory compares the memory that the sales may take with the free memory.
func judgeMemory(info map[string]string, room int64) Finding {
	const check = "redis.memory"
	most, used := number(info["maxmemory"]), number(info["used_memory"])
	bounded := most > 0
	if !bounded {
		most = number(info["total_system_memory"])
	}
	found := fmt.Sprintf("the sales may take %s, %s are free", size(room), size(max(0, most-used)))
	return cmp.Or(
		Fail.when(room > most-used, check, "a larger maxmemory", "%s", found),
		Warn.when(!bounded, check, "maxmemory below what the machine has", "%s, and without a maxmemory the kernel ends it when there is no more", found),
		good(check, "%s", found),
	)
}

// judgePersistence reports what a restart of Redis loses.
func judgePersistence(r gate.Server, ackQueued bool) Finding {
	const check, do = "redis.persistence", "CONFIG SET appendfsync everysec"
	const none = "none: attempts that are queued when it restarts are lost, and end as rejected"
	broken := r.Info["aof_last_write_status"] == "err" || r.Info["rdb_last_bgsave_status"] == "err" && r.Setting("save") != ""
	off, fsync := r.Info["aof_enabled"] != "1", r.Setting("appendfsync")
	return cmp.Or(
		Fail.when(broken, check, "repair its disk", "it could not save its data, and may refuse every write"),
		Warn.when(off && ackQueued, check, "CONFIG SET appendonly yes", none+"; with --ack queued that is every attempt of the last moments"),
		OK.when(off, check, "", none),
		Warn.when(fsync == "always", check, do, "appendfsync always: nothing queued is lost, and each batch waits for the disk"),
		Warn.when(fsync == "no", check, do, "appendfsync no: a power cut loses what was queued in the last half minute"),
		good(check, "append-only file: a power cut loses what was queued in the last second"),
	)
}

// judgeInstances checks that enough instances run, reach the gate, and agree with each other and with this command.
func judgeInstances(running map[string]model.Instance, wanted int, version, strategy, mark string) []Finding {
	const check, differ = "instances.running", "the instances differ: "
	list := first(
		Fail.when(len(running) < wanted, check, "start them; one that runs uses another Redis or database", "%d of %d report to this Redis", len(running), wanted),
		Warn.when(len(running) == 0, check, "start them", "none"),
		good(check, "%d", len(running)),
	)
	if len(running) == 0 && wanted == 0 {
		return list
	}
	versions, strategies, marks := map[string]bool{version: true}, map[string]bool{strategy: true}, map[string]bool{mark: true}
	delete(marks, "") // this command may not know the mark
	for _, i := range running {
		versions[i.Version], strategies[i.Strategy], marks[i.Secrets] = true, true, true
	}
	names := func(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }
	list = append(list, first(
		Warn.when(len(versions) > 1, "instances.version", "finish the update", "%s", differ+names(versions)),
		good("instances.version", "%s", names(versions)),
		Fail.when(len(strategies) > 1, "instances.strategy", "one --strategy for all", "%s", differ+names(strategies)),
		good("instances.strategy", "%s", names(strategies)),
		Fail.when(len(marks) > 1, "instances.secrets", "the same --secret and --payment-secret for all, and for this command",
			differ+"who logs in at one instance is a stranger to another"),
		good("instances.secrets", "the same for all"),
	)...)
	for _, id := range slices.Sorted(maps.Keys(running)) {
		list = append(list, Fail.when(!running[id].GateReachable, "instances.gate", "see its log",
			"%s at %s does not reach Redis, or the circuit breaker is open", id, running[id].URL))
	}
	return list
}

// judgeSale checks one sale. "now" is the time by the database's clock.
func judgeSale(o model.Offer, audit service.Audit, s config.Settings, seesGate bool, now time.Time) []Finding {
	const window = "sale.window"
	b := audit.Books.Stock
	list := first(
		Fail.when(o.Status == model.SaleClosed, window, "create another one", "%s was closed", o.ID),
		Fail.when(!o.EndsAt.After(now), window, "create another one", "%s ended %s ago", o.ID, now.Sub(o.EndsAt).Round(time.Second)),
		Warn.when(o.Status == model.SalePaused, window, "resume it", "%s is paused", o.ID),
		OK.when(o.StartsAt.After(now), window, "", "%s starts in %s", o.ID, o.StartsAt.Sub(now).Round(time.Second)),
		good(window, "%s is open, for another %s", o.ID, o.EndsAt.Sub(now).Round(time.Second)),
		Fail.when(!audit.OK(), "sale.books", "flashsale audit --sale "+o.ID, "%s: drift %d; %s", o.ID, audit.Drift, strings.Join(audit.Violations, "; ")),
		good("sale.books", "%s: quota %d = available %d + held %d + paid %d", o.ID, b.Quota, b.Free(), b.Held, b.Paid),
	)
	kind, _ := strategy.Of(s.Strategy)
	// A sale in line needs no open gate.
	if seesGate && kind.UsesGate && o.Stock.Lined != model.InLine && o.Status != model.SaleClosed && o.EndsAt.After(now) {
		list = append(list, judgeGate(o.ID, audit))
	}
	return append(list, judgeTerms(o, s)...)
}

// judgeGate checks that the gate exists, is open, and is not of an older epoch.
func judgeGate(id string, audit service.Audit) Finding {
	const check = "sale.gate"
	const do = "start an instance, which installs it within a second"
	g, epoch := audit.Gate, audit.Books.Stock.Epoch
	return cmp.Or(
		Fail.when(!g.Exists, check, do, "%s has none", id),
		Fail.when(!g.Open, check, do, "%s: closed, or of another Redis", id),
		Fail.when(g.Epoch < epoch, check, do, "%s: of epoch %d, and the database is at %d", id, g.Epoch, epoch),
		good(check, "%s: warm at epoch %d, left %d", id, g.Epoch, g.Left),
	)
}

// judgeTerms warns of terms that are probably a mistake, and fails for orders that nobody could pay.
func judgeTerms(o model.Offer, s config.Settings) (list []Finding) {
	const check = "sale.terms"
	pay := time.Duration(o.PayTimeoutSeconds) * time.Second
	open := o.EndsAt.Sub(o.StartsAt)
	list = []Finding{
		Fail.when(service.Payable(o.Sale, app.Takes(s)) != nil, "sale.payment", "create another sale, or choose another --payment",
			"%s: orders of 1 to %d units at %s %s can't be paid by --payment %s",
			o.ID, o.LimitPerUser, o.Currency, model.Amount(o.PriceCents, o.Currency), s.Provider()),
		Warn.when(int64(o.LimitPerUser) > o.Stock.Quota, check, "a lower limit_per_user", "%s: a user may have %d units, and there are %d",
			o.ID, o.LimitPerUser, o.Stock.Quota),
		Warn.when(pay < s.PayGrace, check, "a longer time to pay, or a shorter --pay-grace", "%s: the time to pay is %s, and units come back %s after it",
			o.ID, pay, s.PayGrace),
		Warn.when(o.PayTimeoutSeconds < shortPay, check, "a longer time to pay", "%s: %s to pay", o.ID, pay),
		Warn.when(pay+s.PayGrace > open, check, "a later end, or another sale with a shorter time to pay",
			"%s: units that nobody pays come back after the sale's end: it is open for %s, the time to pay is %s", o.ID, open, pay),
		Warn.when(o.Stock.Free() == 0 && o.Stock.Lined != model.InLine, check, "add quota", "%s: nothing is left", o.ID),
	}
	if cmp.Or(list...) == (Finding{}) {
		return []Finding{good(check, "%s: %d units, %d a user, %s to pay", o.ID, o.Stock.Quota, o.LimitPerUser, pay)}
	}
	return list
}

// judgeFiles compares the limit of open files with what an instance may have open.
func judgeFiles(s config.Settings, connections, redisServers int) Finding {
	const check = "machine.files"
	need := connections + s.DBMaxConns + redisServers*gate.Connections + spareFiles
	limit, known := app.OpenFiles()
	return cmp.Or(
		Warn.when(!known, check, "make sure that it is above "+strconv.Itoa(need), "this system doesn't tell its limit of open files"),
		Fail.when(limit < uint64(need), check, fmt.Sprintf("ulimit -n %d, LimitNOFILE=%d", need, need), //nolint:gosec // no term is negative
			"an instance with %d connections of buyers needs %d open files, and may have %d", connections, need, limit),
		good(check, "%d may be open here, an instance with %d connections of buyers needs %d", limit, connections, need),
	)
}
