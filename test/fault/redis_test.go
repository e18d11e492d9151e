package fault

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// redisRows are faults of Redis.
var redisRows = []row{
	{1, "redis-server is killed and comes back empty", "the database sells on; the gate is rebuilt", func(d *drill) { d.killAndRestart() }},
	{1, "redis-server is killed and comes back from its AOF", "the database sells on; the gate, which missed that, is rebuilt", func(d *drill) { d.killAndRestart(onDisk...) }},
	{2, "the AOF's tail is lost: the gate is rolled back under load", "rebuild; no confirmed order lost, no user above the limit", tailLost},
	{2, "the AOF's tail is lost while nobody buys", "the engine finds out by itself: rebuild", tailLostInSilence},
	{3, "a stale replica becomes the primary", "as when the tail is lost", staleReplica},
	{4, "FLUSHALL in mid-sale, twice", "the database sells on; the gate is rebuilt", flushedAll},
	{4, "SCRIPT FLUSH in mid-sale, again and again", "scripts are loaded again, nobody notices", flushedScripts},
	{5, "one of two instances is cut off from Redis", "both sell on, or say 503; the gate is told", oneCutOff},
	{5, "one of two instances is cut off, to the last unit", "both sell, or say 503; not one unit too many", oneCutOffToTheEnd},
	{6, "Redis's replies are lost after the scripts ran", "one order for each attempt", repliesLost},
	{7, "Redis is stopped (SIGSTOP) for a while", "breaker, the database sells on, the gate is told", stopped},
	{8, "Redis is out of memory", "no half-done admit; the database sells on", outOfMemory},
	{8, "Redis is busy in an endless script", "no half-done admit; the database sells on", busy},
	{17, "Redis takes three clients and no more", "fast answers from the database; recovers", fewClients},
}

var (
	// redisPhase is how many buyers are answered in each phase: before, in and after a fault. redisRest is about how
	// many units are left for new buyers.
	redisPhase = size(100, 2_500)
	redisRest  = size(600, 3_000)
)

// ackWait is the engine's default. After it an attempt that Redis lost, or whose buyer was not woken, is answered as
// queued.
const ackWait = "--ack-wait=800ms"

// onDisk makes Redis write every command to disk before it answers.
var onDisk = []string{"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"}

// scene starts most of these rows: two instances, and a sale whose quota leaves a rest after so many phases. The first
// phase is over.
func (d *drill) scene(phases int, redisArgs ...string) {
	d.Helper()
	d.stores(redisArgs...)
	d.sceneOf(phases*redisPhase+redisRest, d.Start(ackWait), d.Start(ackWait))
}

func (d *drill) sceneOf(quota int, instances ...*shop.Instance) {
	d.Helper()
	d.open(quota, instances...)
	d.rush()
	d.phase()
}

// phase waits until the crowd has redisPhase more answers.
func (d *drill) phase() {
	d.Helper()
	d.more(redisPhase)
}

// trickle lets buyers come slowly for as long as a fault is to last: a crowd would buy all units meanwhile. Then the
// fault ends, and a phase follows.
func (d *drill) trickle(lasts time.Duration, end func()) {
	d.Helper()
	d.pause()
	d.load = d.crowdAt(d.sale, manner{every: 50 * time.Millisecond, to: inTurn(d.urls...)})
	<-time.After(lasts)
	d.pause()
	end()
	d.rush()
	d.phase()
}

// confirmed returns the attempts that were both sent and confirmed between two times.
func (d *drill) confirmed(from, to time.Time) (list []shop.Attempt) {
	for _, a := range within(d.soFar(), from, to) {
		if a.Confirmed() {
			list = append(list, a)
		}
	}
	return list
}

// holdersAskAgain has some buyers who hold an order ask twice more: under its key, which gives the same order, and under
// another key, which is above their limit. Then a phase follows.
func (d *drill) holdersAskAgain(holders []shop.Attempt) {
	d.Helper()
	if len(holders) == 0 {
		d.FatalSlowf("nobody was confirmed on what Redis has lost: the row shows nothing")
	}
	d.pause()
	inParallel(20, min(len(holders), 20), func(i int) {
		held, url := holders[i], inTurn(d.urls...)
		same := d.buy(held.User, held.Key, url(i))
		if same.OrderID != held.OrderID {
			failed := d.Errorf
			if same.OrderID == "" {
				failed = d.wrong(same.Status)
			}
			failed("%s has order %s, asks again and is told %+v", held.User, held.OrderID, same)
		}
		other := d.buy(held.User, "other-"+held.Key, url(i+1))
		for end := time.Now().Add(recoveryTime); other.Code == "unavailable" && time.Now().Before(end); { // there is no gate yet
			other = d.buy(held.User, other.Key, other.URL)
		}
		if other.Code != "limit_reached" {
			d.wrong(other.Status)("%s asked for more and was told %d %s", held.User, other.Status, other.Code)
		}
		d.record.add(toBuy, same, other)
	})
	d.rush()
	d.phase()
}

// settle ends these rows. If no answers are given, the database was up and units were left: every buyer got 201 or 202.
// detail is added to the report.
func (d *drill) settle(detail string, answers ...string) {
	d.Helper()
	if detail != "" {
		detail += "; "
	}
	all := d.stop(append(answers, "201", "202")...)
	longest, _ := slowest(d.attempts)
	start := time.Now()
	d.finish("%s; %sslowest answer %s", all, detail, longest.Round(10*time.Millisecond))
	agreed := time.Since(start)
	gate, alone := d.ways()
	d.result.Happened += fmt.Sprintf("; %d sold by the gate, %d by the database alone; gates: %s; gate and database agreed after %s",
		gate, alone, strings.Join(d.gates(), ", "), agreed.Round(10*time.Millisecond))
	if agreed > recoveryTime {
		d.Slowf("gate and database agreed after %s", agreed)
	}
}

// ways counts the orders by their source: admitted by the gate, or sold by the database alone.
func (d *drill) ways() (gate, alone int) {
	d.Helper()
	d.ok(d.sql("SELECT COALESCE(SUM(source = 'stream'), 0), COALESCE(SUM(source = 'database'), 0) FROM orders WHERE sale_id = ?",
		d.sale).Scan(&gate, &alone))
	return gate, alone
}

// gates returns the reasons for all gates that the sale has had, in order.
func (d *drill) gates() []string {
	d.Helper()
	var reasons string
	d.ok(d.sql(`SELECT COALESCE(GROUP_CONCAT(SUBSTRING_INDEX(detail, ': ', -1) ORDER BY id SEPARATOR ', '), '')
		FROM audit_log WHERE action = 'install_gate' AND subject = ?`, d.sale).Scan(&reasons))
	return strings.Split(reasons, ", ")
}

// newGate waits until the sale has had more gates than before, which are recorded a moment after they are open.
func (d *drill) newGate(before int) {
	d.Helper()
	d.until(time.Minute, "a new gate", func() (bool, error) { return len(d.gates()) > before, nil })
}

// killAndRestart restarts Redis, which keeps what redisArgs make it keep.
func (d *drill) killAndRestart(redisArgs ...string) {
	d.scene(3, redisArgs...)
	d.Redis.Kill()
	d.phase()
	d.Redis.Restart()
	d.phase()
	d.settle("")
	d.newGate(1)
}

// appended returns the file to which Redis appends its commands, and its size.
func (d *drill) appended() (path string, bytes int64) {
	d.Helper()
	files, err := filepath.Glob(filepath.Join(d.Redis.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		d.Fatalf("the AOF is %q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	d.ok(err)
	return files[0], info.Size()
}

// killAndCut kills Redis, truncates its AOF a few bytes after the size kept, in the middle of a command, and restarts
// it.
func (d *drill) killAndCut(kept int64) (lost string) {
	d.Helper()
	d.Redis.Kill()
	path, had := d.appended()
	const torn = 9 // bytes of the first lost command
	if had <= kept+torn {
		d.FatalSlowf("the AOF had %d bytes and has %d: nothing to cut", kept, had)
	}
	d.ok(os.Truncate(path, kept+torn))
	d.Redis.Restart()
	return fmt.Sprintf("%d of %d bytes of the AOF cut", had-kept-torn, had)
}

func tailLost(d *drill) {
	d.scene(3, onDisk...)
	_, kept := d.appended()
	from := time.Now()
	d.phase()
	to := time.Now()
	cut := d.killAndCut(kept)
	forgotten := d.confirmed(from, to)
	d.holdersAskAgain(forgotten)
	d.settle(fmt.Sprintf("%s, on which %d were confirmed", cut, len(forgotten)))
	d.newGate(1)
}

func tailLostInSilence(d *drill) {
	d.scene(3, onDisk...)
	d.pause()
	d.Audited(d.urls[0], d.sale)
	_, kept := d.appended()
	from := time.Now()
	d.rush()
	d.phase()
	d.pause()
	d.Audited(d.urls[0], d.sale)
	before := len(d.gates())
	cut := d.killAndCut(kept)
	to := time.Now()
	d.newGate(before)
	found := time.Since(to)
	d.Audited(d.urls[0], d.sale)
	forgotten := d.confirmed(from, to)
	d.holdersAskAgain(forgotten)
	d.settle(fmt.Sprintf("%s, on which %d were confirmed; found and repaired in %s",
		cut, len(forgotten), found.Round(10*time.Millisecond)))
}

func staleReplica(d *drill) {
	d.stores("--repl-diskless-sync-delay", "0")
	link, front := d.proxy(d.Redis.Addr()), d.proxy(d.Redis.Addr())
	host, port, err := net.SplitHostPort(link.addr)
	d.ok(err)
	replica := kit.Redis(d, "--replicaof", host, port)
	to := d.client(replica)
	d.until(time.Minute, "the replica follows", func() (bool, error) {
		return strings.Contains(d.tell(to, "INFO", "replication"), "master_link_status:up"), nil
	})
	d.sceneOf(3*redisPhase+redisRest, d.Start(ackWait, "--redis", front.RedisURL()), d.Start(ackWait, "--redis", front.RedisURL()))
	link.Cut()
	cut := time.Now()
	d.phase()
	killed := time.Now()
	d.Redis.Kill()
	d.tell(to, "REPLICAOF", "NO", "ONE")
	front.Point(replica.Addr())
	forgotten := d.confirmed(cut, killed)
	d.holdersAskAgain(forgotten)
	d.settle(fmt.Sprintf("%d were confirmed on what the replica has never heard of", len(forgotten)))
	d.newGate(1)
}

func flushedAll(d *drill) {
	d.scene(4)
	to := d.client(d.Redis)
	for range 2 {
		before := len(d.gates())
		d.tell(to, "FLUSHALL")
		d.phase()
		d.pause()
		d.newGate(before)
		d.rush()
	}
	d.phase()
	d.settle("")
}

func flushedScripts(d *drill) {
	d.scene(3)
	to := d.client(d.Redis)
	const times = 20
	for range times {
		d.tell(to, "SCRIPT", "FLUSH")
		d.more(2 * redisPhase / times)
	}
	loaded := d.figure(to, "errorstats", "errorstat_NOSCRIPT")
	d.settle(fmt.Sprintf("%d calls met no script", loaded))
	if loaded < times {
		d.Slowf("%d flushes, but only %d calls met no script", times, loaded)
	}
	if gate, alone := d.ways(); len(d.gates()) != 1 || alone > gate/100 {
		d.Slowf("it was noticed: %d sold by the gate, %d by the database alone; gates: %q", gate, alone, d.gates())
	}
}

// sceneOfTwo starts an instance near to Redis, and one that reaches it through a link.
func (d *drill) sceneOfTwo(rest int) (link *proxy, near, far *shop.Instance) {
	d.Helper()
	d.stores()
	link = d.proxy(d.Redis.Addr())
	near, far = d.Start(ackWait), d.Start(ackWait, "--redis", link.RedisURL())
	d.sceneOf(3*redisPhase+rest, near, far)
	return link, near, far
}

func oneCutOff(d *drill) {
	link, near, far := d.sceneOfTwo(redisRest)
	from := time.Now()
	link.Cut()
	d.phase()
	sold := map[string]int{}
	for _, a := range d.confirmed(from, time.Now()) {
		sold[a.URL]++
	}
	link.Restore()
	d.phase()
	// The instance without Redis may lose too many races against the other one.
	detail := fmt.Sprintf("meanwhile %d were confirmed by the one with Redis, %d by the other", sold[near.URL], sold[far.URL])
	d.settle(detail, "503 unavailable")
	if sold[near.URL] == 0 || sold[far.URL] == 0 {
		d.Slowf("not both have sold: %v", sold)
	}
}

// oneCutOffToTheEnd sells to the last unit. The gate has too many units, since the other instance sells without it.
func oneCutOffToTheEnd(d *drill) {
	link, near, far := d.sceneOfTwo(0)
	link.Cut()
	// A buyer with an idempotency key gets a refusal only where the gate can be asked.
	for told := map[string]bool{}; len(told) < 2 && !d.Failed(); {
		d.phase()
		for _, a := range d.soFar() {
			if a.URL == near.URL && a.Code == "sold_out" || a.URL == far.URL && a.Code == "unavailable" {
				told[a.URL] = true
			}
		}
	}
	link.Restore()
	d.phase()
	d.settle(fmt.Sprintf("%d units", d.quota), "409 sold_out", "503 unavailable")
}

func repliesLost(d *drill) {
	d.stores()
	link := d.proxy(d.Redis.Addr())
	d.sceneOf(5*redisPhase+redisRest, d.Start(ackWait, "--redis", link.RedisURL()), d.Start(ackWait, "--redis", link.RedisURL()))
	whole := d.watchGate()
	times := size(30, 200)
	for range times { // one at a time: the client repeats the call, and the script meets its own effects
		link.LoseReplyTo("evalsha", 1)
		d.more(redisPhase / times)
	}
	broken := link.Lost()
	for range 2 {
		link.LoseReplies()
		d.phase()
		link.Restore()
	}
	silent := link.Lost() - broken
	d.phase()
	whole()
	d.settle(fmt.Sprintf("%d replies lost with their connections, %d in silence", broken, silent))
	if broken == 0 || silent == 0 {
		d.Slowf("no reply was lost: the row shows nothing")
	}
}

func stopped(d *drill) {
	d.scene(3)
	whole := d.watchGate()
	over := time.Now().Add(size(4*time.Second, 10*time.Second))
	d.Redis.Stop()
	d.phase()
	d.trickle(time.Until(over), d.Redis.Continue)
	whole()
	d.settle("")
}

func outOfMemory(d *drill) {
	d.scene(4)
	whole := d.watchGate()
	to := d.client(d.Redis)
	// At first some commands still fit into the memory, then none does.
	for _, share := range []int{1, 2} {
		d.tell(to, "CONFIG", "SET", "maxmemory", d.figure(to, "memory", "used_memory")/share)
		d.phase()
	}
	refused := d.figure(to, "errorstats", "errorstat_OOM")
	d.tell(to, "CONFIG", "SET", "maxmemory", 0)
	d.phase()
	whole()
	d.settleRefused(refused, "commands refused for want of memory")
}

// settleRefused ends a row in which Redis must have refused commands or connections.
func (d *drill) settleRefused(refused int, what string) {
	d.Helper()
	d.settle(fmt.Sprint(refused, " ", what))
	if refused == 0 {
		d.Slowf("Redis has refused nothing: the row shows nothing")
	}
}

func busy(d *drill) {
	d.scene(3)
	whole := d.watchGate()
	to, loop := d.client(d.Redis), d.client(d.Redis)
	d.tell(to, "CONFIG", "SET", "busy-reply-threshold", 50)
	ended := make(chan error, 1)
	go func() { ended <- loop.Do(context.WithoutCancel(d.Context()), "EVAL", "while true do end", 0).Err() }()
	d.phase()
	refused := 0
	d.trickle(size(time.Second, 5*time.Second), func() {
		d.tell(to, "SCRIPT", "KILL")
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
			d.Errorf("the script ended with %v", err)
		}
		refused = d.figure(to, "errorstats", "errorstat_BUSY")
	})
	whole()
	d.settleRefused(refused, "commands refused as busy")
}

func fewClients(d *drill) {
	d.scene(3)
	to := d.client(d.Redis)
	d.tell(to, "CONFIG", "SET", "maxclients", 3)
	d.tell(to, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	d.tell(to, "CLIENT", "KILL", "TYPE", "pubsub")
	d.phase()
	refused := 0
	d.trickle(size(time.Second, 5*time.Second), func() {
		refused = d.figure(to, "stats", "rejected_connections")
		d.tell(to, "CONFIG", "SET", "maxclients", 10_000)
	})
	d.settleRefused(refused, "connections refused")
}

// wholeness reads a gate at one instant: units left, entries of the stream, and fields of the hash of units.
const wholeness = `
local left = redis.call('HGET', KEYS[1], 'left')
return left and {tonumber(left), redis.call('XLEN', KEYS[2]), redis.call('HLEN', KEYS[3])}`

// watchGate checks the gate until the returned function is called. That function fails the row if an admit or an
// acknowledgement was ever half done: every unit is left or belongs to a user, and there are no more entries than units sold.
// Each buyer must buy one unit.
func (d *drill) watchGate() (end func()) {
	d.Helper()
	client := d.client(d.Redis)
	keys := []string{gateKey(d.sale, "gate"), gateKey(d.sale, "stream"), gateKey(d.sale, "units")}
	looks, wrong := 0, ""
	ctx, cancel := context.WithCancel(d.Context())
	stop := d.meanwhile(1, 20*time.Millisecond, func(int, int) {
		v, err := client.Eval(ctx, wholeness, keys).Int64Slice()
		if err != nil { // no gate, or no answer from Redis
			return
		}
		looks++
		// One field of the hash is a mark of the gate. Each buyer has two fields: the user's, and that of the order's id.
		sold, stream, fields := int64(d.quota)-v[0], v[1], v[2]-1
		if wrong == "" && (2*sold != fields || stream > sold) {
			wrong = fmt.Sprintf("%d sold of %d, %d fields of users and ids, %d entries", sold, d.quota, fields, stream)
		}
	})
	return func() {
		d.Helper()
		cancel()
		stop()
		if wrong != "" {
			d.Errorf("the gate, looked at %d times: %s", looks, wrong)
		}
		if looks == 0 {
			d.Slowf("nobody has looked at the gate")
		}
	}
}
