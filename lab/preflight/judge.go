package preflight

import (
	"fmt"
	"maps"
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
	// slowTrip is the round trip to a store from which batches wait longer for the network than for the store: a
	// settle runs about five statements, one after the other.
	slowTrip = 5 * time.Millisecond
	// farTrip is the round trip from which a settle takes longer than a buyer waits by default.
	farTrip = 100 * time.Millisecond
	// smallPool is the size of MySQL's buffer pool below which 300,000 orders may no longer fit, so that each costs
	// twice as much (docs/performance.md, What it costs).
	smallPool = 1 << 30
	// packetNeed is larger than the largest statement: 512 orders at some 700 bytes each.
	packetNeed = 1 << 20
	// spareConnections are left for operators and backups.
	spareConnections = 10
	// spareFiles are the files that a process has open besides connections: logs, the binary, timers.
	spareFiles = 64
	// offClock and wrongClock are differences between the clocks of the two stores. Above offClock, buyers at the
	// gate and buyers at the database get different answers as to whether the sale has begun. Above wrongClock, any
	// monitor reports the difference at once.
	offClock, wrongClock = 500 * time.Millisecond, 5 * time.Second
	// offMachine is how far a machine's clock may be off. Only the machine's bearer tokens are checked by its clock.
	offMachine = 5 * time.Second
	// laggingSeconds is how long a replica may be silent. A healthy one reports every second.
	laggingSeconds = 5
	// shortPay in seconds is too short a time to pay with any provider.
	shortPay = 60
)

// judgeSettings checks settings that are valid, but may still be wrong for a sale.
func judgeSettings(s config.Settings) (list []Finding) {
	kind, _ := strategy.Of(s.Strategy)
	switch {
	case kind.Oversells == strategy.WithTwoBuyers:
		list = append(list, Fail.of("settings.strategy", "--strategy hybrid", "%s sells units twice when %s", s.Strategy, kind.Oversells))
	case kind.Oversells != strategy.Never:
		list = append(list, Warn.of("settings.strategy", "--strategy hybrid", "%s sells units twice when %s", s.Strategy, kind.Oversells))
	case kind.NeedsRedis:
		list = append(list, Warn.of("settings.strategy", "--strategy hybrid", "%s sells nothing while Redis is away", s.Strategy))
	default:
		list = append(list, good("settings.strategy", "%s", s.Strategy))
	}
	if s.Embedded() {
		return list
	}
	switch {
	case strings.Count(s.Secret, s.Secret[:1]) == len(s.Secret) || s.Secret == s.AdminPassword:
		list = append(list, Fail.of("settings.secret", "openssl rand -hex 32", "--secret can be guessed"))
	default:
		list = append(list, good("settings.secret", "%d bytes", len(s.Secret)))
	}
	if s.BuiltIn() == "open" {
		list = append(list, Fail.of("settings.accounts", "--accounts closed, and --issuer or tokens signed with --secret for buyers",
			"everybody can register, so that one person can buy as many"))
	}
	if s.Provider() == "sandbox" {
		list = append(list, Fail.of("settings.payment", "--payment stripe, or handoff to the shop's own checkout", "the sandbox takes no money: anybody may pay with it"))
	}
	if server := s.PlainRedis(); server != "" {
		list = append(list, Warn.of("settings.redis_encryption", "a rediss:// address", "connections to Redis on %s are not encrypted", server))
	}
	if s.PublicURL == "" {
		list = append(list, Warn.of("settings.public_url", "set --public-url", "links to payments and sales would lead to %s", s.HTTPAddr))
	}
	if s.PublicURL != "" && s.IPRate > 0 && len(s.TrustedProxies) == 0 {
		list = append(list, Warn.of("settings.trusted_proxies", "set --trusted-proxies, if there is one",
			"a proxy in front would be one address to --ip-rate: %v requests a second for all buyers", s.IPRate))
	}
	if addr, err := netip.ParseAddrPort(s.OpsAddr); err == nil && !addr.Addr().IsLoopback() && !addr.Addr().IsPrivate() {
		list = append(list, Warn.of("settings.ops_addr", "an address that only operators reach", "figures and profiles have no log-in, and %s may be public", s.OpsAddr))
	}
	return list
}

// judgeRehearsal compares a plan with the largest rehearsal that has passed.
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
	found := fmt.Sprintf("%s, round trip %s", what, trip.Round(time.Microsecond))
	switch {
	case trip > farTrip:
		return Fail.of(check, "bring the instances near their stores", "%s", found)
	case trip > slowTrip:
		return Warn.of(check, "bring the instances near their stores", "%s", found)
	}
	return good(check, "%s", found)
}

// numbers matches a version of two or three numbers.
var numbers = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`)

// atLeast reports whether the first version in text is least or newer.
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
	list := []Finding{judgeTrip("database.reach", d.Version, d.RoundTrip)}
	switch {
	case d.Applied < d.Newest:
		list = append(list, Fail.of("database.schema", "flashsale migrate up, or start an instance", "at step %d of %d", d.Applied, d.Newest))
	case d.Applied > d.Newest:
		list = append(list, Fail.of("database.schema", "update this binary", "at step %d, and this binary knows %d", d.Applied, d.Newest))
	default:
		list = append(list, good("database.schema", "at step %d, the newest", d.Applied))
	}
	if d.Variables == nil {
		if instances > 1 {
			list = append(list, Fail.of("database.kind", "run MySQL, and set --database", "SQLite is for one instance, not %d", instances))
		}
		return list
	}
	least, enough := "8.0.16", atLeast(d.Version, 8, 0, 16)
	mariadb := strings.HasPrefix(d.Version, "MariaDB")
	if mariadb {
		least, enough = "10.6", atLeast(d.Version, 10, 6)
	}
	if !enough {
		list = append(list, Fail.of("database.version", "update it", "%s, needed is %s", d.Version, least))
	}
	switch {
	case d.Encrypted:
		list = append(list, good("database.encryption", "connections are encrypted"))
	case s.DatabaseIsNear():
		list = append(list, good("database.encryption", "connections are not encrypted, and stay on this machine"))
	default:
		list = append(list, Fail.of("database.encryption", "add ?tls=true or tls-ca=FILE to --database",
			"connections to another machine are not encrypted: orders, names and password hashes can be read on the way"))
	}
	list = append(list, judgeDurability(d.Variables)...)
	list = append(list, judgeServers(d)...)
	list = append(list, judgeSession(d.Variables, mariadb)...)
	return append(list, judgeCapacity(d, s.DBMaxConns*instances)...)
}

// judgeDurability checks what a committed transaction survives, and whether the server accepts writes.
func judgeDurability(v map[string]string) (list []Finding) {
	const check = "database.flush"
	switch flush := v["innodb_flush_log_at_trx_commit"]; flush {
	case "1":
		list = append(list, good(check, "a commit is on disk"))
	case "2":
		list = append(list, Warn.of(check, "SET GLOBAL innodb_flush_log_at_trx_commit=1", "a power cut loses up to a second of confirmed orders"))
	default:
		list = append(list, Fail.of(check, "SET GLOBAL innodb_flush_log_at_trx_commit=1",
			"innodb_flush_log_at_trx_commit=%s: when mysqld dies, up to a second of confirmed orders is lost", flush))
	}
	if v["innodb_doublewrite"] == "OFF" {
		list = append(list, Warn.of(check, "innodb_doublewrite=ON", "a page torn by a power cut can't be repaired"))
	}
	switch {
	case v["log_bin"] != "ON" && v["log_bin"] != "1":
		list = append(list, Warn.of("database.binlog", "log_bin, sync_binlog=1", "off: a restore ends at the last backup, and there can be no replica"))
	case v["sync_binlog"] != "1":
		list = append(list, Warn.of("database.binlog", "SET GLOBAL sync_binlog=1", "sync_binlog=%s: after a power cut replicas may lack confirmed orders", v["sync_binlog"]))
	default:
		list = append(list, good("database.binlog", "written with each commit"))
	}
	if on(v["read_only"]) || on(v["innodb_read_only"]) {
		list = append(list, Fail.of("database.writable", "name the primary in --database", "read-only: this is a replica, or closed for writing"))
	}
	return list
}

func on(value string) bool { return value == "1" || strings.EqualFold(value, "ON") }

// judgeSession checks the variables of an ordinary session of the engine. The session sets all of them when it
// begins, so a different value means that a proxy has dropped the setting.
func judgeSession(v map[string]string, mariadb bool) (list []Finding) {
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
	if len(lost) > 0 {
		list = append(list, Fail.of("database.session", "a proxy that keeps what a session has set", "what was set is not there: %s", strings.Join(lost, ", ")))
	} else {
		list = append(list, good("database.session", "READ COMMITTED, strict, in UTC"))
	}
	switch {
	case !mariadb:
		list = append(list, Warn.of("database.idle", "end such an instance; its locks go with its connections",
			"MySQL has no idle_transaction_timeout: an instance that stands still in a transaction keeps its rows locked"))
	case v["idle_transaction_timeout"] == "0" || v["idle_transaction_timeout"] == "":
		list = append(list, Fail.of("database.idle", "a proxy that keeps what a session has set", "idle_transaction_timeout is not set"))
	default:
		list = append(list, good("database.idle", "an idle transaction ends after %s s", v["idle_transaction_timeout"]))
	}
	return list
}

// judgeCapacity checks the server's limits of connections, packet size and memory. pools is the size of all
// instances' pools.
func judgeCapacity(d repository.Server, pools int) (list []Finding) {
	most := number(d.Variables["max_connections"])
	if user := number(d.Variables["max_user_connections"]); user > 0 {
		most = min(most, user+spareConnections)
	}
	if need := int64(pools + spareConnections); most < need {
		list = append(list, Fail.of("database.connections", fmt.Sprintf("max_connections=%d, or a smaller --db-max-conns", need),
			"the pools of all instances are %d connections, the server takes %d; %d are open", pools, most, d.Connections))
	} else {
		list = append(list, good("database.connections", "%d of the %d that the server takes; %d are open", pools, most, d.Connections))
	}
	if packet := number(d.Variables["max_allowed_packet"]); packet < packetNeed {
		list = append(list, Fail.of("database.packet", "SET GLOBAL max_allowed_packet=16777216", "max_allowed_packet is %s: a batch of orders may need %s", size(packet), size(packetNeed)))
	}
	if pool := number(d.Variables["innodb_buffer_pool_size"]); pool < smallPool {
		list = append(list, Warn.of("database.buffer", "innodb_buffer_pool_size=1G or more", "%s of memory: past some 300,000 orders each costs twice as much", size(pool)))
	}
	return list
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
	if skew.Abs() > offMachine {
		return Warn.of("machine.clock", "chrony or ntpd", "%s off the database's: tokens end too early or too late here", skew.Round(time.Millisecond))
	}
	return good("machine.clock", "%s off the database's", skew.Round(time.Millisecond))
}

// judgeRedisClock checks how far Redis's clock is ahead of the database's.
func judgeRedisClock(addr string, skew time.Duration) Finding {
	const check = "redis.clock"
	do := "chrony or ntpd on both"
	switch found := fmt.Sprintf("%s: %s off the database's", addr, skew.Round(time.Millisecond)); {
	case skew.Abs() > wrongClock:
		return Fail.of(check, do, "%s: the gate opens at another time than the pages say", found)
	case skew.Abs() > offClock:
		return Warn.of(check, do, "%s: the gate opens at another time than the pages say", found)
	default:
		return good(check, "%s", found)
	}
}

// judgeRedis checks a Redis that this number of instances is to use, for gates that take room bytes.
func judgeRedis(r gate.Server, s config.Settings, instances int, room int64) []Finding {
	list := []Finding{judgeTrip("redis.reach", "Redis "+r.Info["redis_version"]+" at "+r.Addr, r.RoundTrip)}
	if !atLeast(r.Info["redis_version"], 6, 2) {
		list = append(list, Fail.of("redis.version", "update it", "%s, needed is 6.2", r.Info["redis_version"]))
	}
	if r.Config == nil {
		list = append(list, Warn.of("redis.config", "ask who runs it for appendfsync and maxclients", "CONFIG GET is refused; judged by INFO alone"))
	}
	list = append(list, judgeRole(r)...)
	if policy := r.Info["maxmemory_policy"]; policy != "noeviction" {
		list = append(list, Fail.of("redis.policy", "CONFIG SET maxmemory-policy noeviction", "%s would evict gates", policy))
	} else {
		list = append(list, good("redis.policy", "noeviction"))
	}
	list = append(list, judgeMemory(r.Info, room), judgePersistence(r, s.Ack == "queued"))
	need := int64(instances*gate.Connections + spareConnections)
	switch most := number(r.Setting("maxclients")); {
	case most == 0: // the limit is not known
	case most < need:
		list = append(list, Fail.of("redis.clients", fmt.Sprintf("CONFIG SET maxclients %d, or fewer instances", need), "%d instances may open %d connections, it takes %d", instances, need, most))
	default:
		list = append(list, good("redis.clients", "%d of the %d that it takes; %s are open", need, most, r.Info["connected_clients"]))
	}
	return list
}

// judgeRole checks whether a Redis takes writes, and the state of its replicas.
func judgeRole(r gate.Server) (list []Finding) {
	const check = "redis.role"
	switch {
	case r.Info["role"] != "master":
		return append(list, Fail.of(check, "name the primary in --redis", "%s is a replica and takes no writes", r.Addr))
	case r.Info["loading"] == "1":
		return append(list, Fail.of(check, "wait", "%s still reads its data from disk", r.Addr))
	case r.Info["cluster_enabled"] == "1" && r.Info["cluster_state"] == "":
		return append(list, Fail.of(check, "name several of its nodes in --redis", "%s is a node of a Cluster, and is used as if it were alone", r.Addr))
	case r.Info["cluster_enabled"] == "1" && r.Info["cluster_state"] != "ok":
		return append(list, Fail.of(check, "redis-cli --cluster check", "the Cluster is %s", r.Info["cluster_state"]))
	}
	replicas := number(r.Info["connected_slaves"])
	if least := number(r.Config["min-replicas-to-write"]); least > 0 && number(r.Info["min_slaves_good_slaves"]) < least {
		return append(list, Fail.of(check, "bring the replicas back", "it takes writes only with %d replicas, and has %s that are well", least, r.Info["min_slaves_good_slaves"]))
	}
	for i := range replicas {
		state := r.Info[fmt.Sprintf("slave%d", i)]
		fields := map[string]string{}
		for field := range strings.SplitSeq(state, ",") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		if fields["state"] != "online" || number(fields["lag"]) > laggingSeconds {
			list = append(list, Warn.of(check, "look at it; after a fail-over to it more has to be rebuilt", "the replica %s:%s is %s, %s s behind",
				fields["ip"], fields["port"], fields["state"], fields["lag"]))
		}
	}
	return append(list, good(check, "%s is a primary with %d replicas", r.Addr, replicas))
}

// judgeReplica checks a Redis that --redis-replicas names. With a Cluster or sentinels the client finds the replicas by
// itself.
func judgeReplica(r gate.Server) Finding {
	const check = "replica"
	silent := number(r.Info["master_last_io_seconds_ago"])
	switch {
	case r.Info["role"] != "slave" && r.Info["cluster_enabled"] != "1":
		return Warn.of(check, "name a replica in --redis-replicas, or none", "%s is a primary", r.Addr)
	case r.Info["role"] == "slave" && (r.Info["master_link_status"] != "up" || silent > laggingSeconds):
		return Warn.of(check, "look at it; until then pages show the database's stock", "%s has lost its primary", r.Addr)
	}
	return good(check, "%s, round trip %s", r.Addr, r.RoundTrip.Round(time.Microsecond))
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
	switch {
	case room > most-used:
		return Fail.of(check, "a larger maxmemory", "%s", found)
	case !bounded:
		return Warn.of(check, "maxmemory below what the machine has", "%s, and without a maxmemory the kernel ends it when there is no more", found)
	}
	return good(check, "%s", found)
}

// judgePersistence reports what a restart of Redis loses, which is never a confirmed order.
func judgePersistence(r gate.Server, ackQueued bool) Finding {
	const check = "redis.persistence"
	if r.Info["aof_last_write_status"] == "err" || r.Info["rdb_last_bgsave_status"] == "err" && r.Setting("save") != "" {
		return Fail.of(check, "repair its disk", "it could not save its data, and may refuse every write")
	}
	if r.Info["aof_enabled"] != "1" {
		found := "none: attempts that are queued when it restarts are lost, and end as rejected"
		if ackQueued {
			return Warn.of(check, "CONFIG SET appendonly yes", "%s; with --ack queued that is every attempt of the last moments", found)
		}
		return good(check, "%s", found)
	}
	switch fsync := r.Setting("appendfsync"); fsync {
	case "always":
		return Warn.of(check, "CONFIG SET appendfsync everysec", "appendfsync always: nothing queued is lost, and each batch waits for the disk")
	case "no":
		return Warn.of(check, "CONFIG SET appendfsync everysec", "appendfsync no: a power cut loses what was queued in the last half minute")
	}
	return good(check, "append-only file: a power cut loses what was queued in the last second")
}

// judgeInstances checks what the running instances report: that at least wanted of them run, and that all are alike.
func judgeInstances(running map[string]model.Instance, wanted int, version, strategy, mark string) []Finding {
	const check = "instances.running"
	ids := slices.Sorted(maps.Keys(running))
	var list []Finding
	switch {
	case len(running) < wanted:
		list = append(list, Fail.of(check, "start them; one that runs uses another Redis or database", "%d of %d report to this Redis", len(running), wanted))
	case len(running) == 0:
		return append(list, Warn.of(check, "start them", "none"))
	default:
		list = append(list, good(check, "%d", len(running)))
	}
	distinct := func(of func(model.Instance) string, mine string) []string {
		seen := map[string]bool{}
		if mine != "" {
			seen[mine] = true
		}
		for _, id := range ids {
			seen[of(running[id])] = true
		}
		return slices.Sorted(maps.Keys(seen))
	}
	if versions := distinct(func(i model.Instance) string { return i.Version }, version); len(versions) > 1 {
		list = append(list, Warn.of("instances.version", "finish the update", "the instances differ: %s", strings.Join(versions, ", ")))
	} else {
		list = append(list, good("instances.version", "%s", versions[0]))
	}
	if strategies := distinct(func(i model.Instance) string { return i.Strategy }, strategy); len(strategies) > 1 {
		list = append(list, Fail.of("instances.strategy", "one --strategy for all", "the instances differ: %s", strings.Join(strategies, ", ")))
	} else {
		list = append(list, good("instances.strategy", "%s", strategies[0]))
	}
	if marks := distinct(func(i model.Instance) string { return i.Secrets }, mark); len(marks) > 1 {
		list = append(list, Fail.of("instances.secrets", "the same --secret and --payment-secret for all, and for this command",
			"the instances differ: who logs in at one instance is a stranger to another"))
	} else {
		list = append(list, good("instances.secrets", "the same for all"))
	}
	for _, id := range ids {
		if !running[id].GateReachable {
			list = append(list, Fail.of("instances.gate", "see its log", "%s at %s does not reach Redis, or the circuit breaker is open", id, running[id].URL))
		}
	}
	return list
}

// judgeSale checks one sale at an instant of the database's clock.
func judgeSale(o model.Offer, audit service.Audit, s config.Settings, seesGate bool, now time.Time) []Finding {
	list := []Finding{judgeWindow(o, now)}
	switch {
	case !audit.OK():
		list = append(list, Fail.of("sale.books", "flashsale audit --sale "+o.ID, "%s: drift %d; %s", o.ID, audit.Drift, strings.Join(audit.Violations, "; ")))
	default:
		b := audit.Books.Stock
		list = append(list, good("sale.books", "%s: quota %d = available %d + held %d + paid %d", o.ID, b.Quota, b.Free(), b.Held, b.Paid))
	}
	if kind, _ := strategy.Of(s.Strategy); seesGate && kind.UsesGate && o.Status != model.SaleClosed && o.EndsAt.After(now) {
		list = append(list, judgeGate(o.ID, audit))
	}
	return append(list, judgeTerms(o, s)...)
}

func judgeWindow(o model.Offer, now time.Time) Finding {
	const check = "sale.window"
	switch {
	case o.Status == model.SaleClosed:
		return Fail.of(check, "create another one", "%s was closed", o.ID)
	case !o.EndsAt.After(now):
		return Fail.of(check, "create another one", "%s ended %s ago", o.ID, now.Sub(o.EndsAt).Round(time.Second))
	case o.Status == model.SalePaused:
		return Warn.of(check, "resume it", "%s is paused", o.ID)
	case o.StartsAt.After(now):
		return good(check, "%s starts in %s", o.ID, o.StartsAt.Sub(now).Round(time.Second))
	}
	return good(check, "%s is open, for another %s", o.ID, o.EndsAt.Sub(now).Round(time.Second))
}

// judgeGate checks whether the gate would admit the first buyer.
func judgeGate(id string, audit service.Audit) Finding {
	const check = "sale.gate"
	const do = "start an instance, which installs it within a second"
	g, epoch := audit.Gate, audit.Books.Stock.Epoch
	switch {
	case !g.Exists:
		return Fail.of(check, do, "%s has none", id)
	case !g.Open:
		return Fail.of(check, do, "%s: closed, or of another Redis", id)
	case g.Epoch < epoch:
		return Fail.of(check, do, "%s: of epoch %d, and the database is at %d", id, g.Epoch, epoch)
	}
	return good(check, "%s: warm at epoch %d, left %d", id, g.Epoch, g.Left)
}

// judgeTerms warns of terms that an operator has probably not intended, and fails for orders that nobody could pay.
func judgeTerms(o model.Offer, s config.Settings) (list []Finding) {
	const check = "sale.terms"
	pay := time.Duration(o.PayTimeoutSeconds) * time.Second
	if service.Payable(o.Sale, app.Takes(s)) != nil {
		list = append(list, Fail.of("sale.payment", "create another sale, or choose another --payment",
			"%s: orders of 1 to %d units at %s %d.%02d can't be paid by --payment %s", o.ID, o.LimitPerUser, o.Currency, o.PriceCents/100, o.PriceCents%100, s.Provider()))
	}
	odd := func(do, found string, args ...any) {
		list = append(list, Warn.of(check, do, "%s: "+found, append([]any{o.ID}, args...)...))
	}
	if int64(o.LimitPerUser) > o.Stock.Quota {
		odd("a lower limit_per_user", "a user may have %d units, and there are %d", o.LimitPerUser, o.Stock.Quota)
	}
	if pay < s.PayGrace {
		odd("a longer time to pay, or a shorter --pay-grace", "the time to pay is %s, and units come back %s after it", pay, s.PayGrace)
	}
	if o.PayTimeoutSeconds < shortPay {
		odd("a longer time to pay", "%s to pay", pay)
	}
	if pay+s.PayGrace > o.EndsAt.Sub(o.StartsAt) {
		odd("a shorter time to pay, or a later end", "units that nobody pays come back after the sale's end: it is open for %s, the time to pay is %s", o.EndsAt.Sub(o.StartsAt), pay)
	}
	if o.Stock.Free() == 0 {
		odd("add quota", "nothing is left")
	}
	if len(list) == 0 {
		list = append(list, good(check, "%s: %d units, %d a user, %s to pay", o.ID, o.Stock.Quota, o.LimitPerUser, pay))
	}
	return list
}

// judgeFiles compares the limit of open files with what an instance may have open.
func judgeFiles(s config.Settings, connections, redisServers int) Finding {
	const check = "machine.files"
	need := connections + s.DBMaxConns + redisServers*gate.Connections + spareFiles
	limit, known := app.OpenFiles()
	switch {
	case !known:
		return Warn.of(check, "make sure that it is above "+strconv.Itoa(need), "this system doesn't tell its limit of open files")
	case limit < uint64(need): //nolint:gosec // no term is negative
		return Fail.of(check, fmt.Sprintf("ulimit -n %d, LimitNOFILE=%d", need, need), "an instance with %d connections of buyers needs %d open files, and may have %d", connections, need, limit)
	}
	return good(check, "%d may be open here, an instance with %d connections of buyers needs %d", limit, connections, need)
}
