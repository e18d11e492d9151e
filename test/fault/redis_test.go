package fault

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// redisRows are faults of Redis.
var redisRows = []row{
	{1, "redis-server is killed and comes back empty", "the database sells on; the gate is rebuilt", killedAndEmpty},
	{1, "redis-server is killed and comes back from its AOF", "the database sells on; the gate, which missed that, is rebuilt", killedAndBack},
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

// units returns a quota that leaves a rest after so many phases.
func units(phases int) int { return phases*redisPhase + redisRest }

// scene is the start of these rows: a sale, watched books, and a crowd that buys.
type scene struct {
	*drill
	shop  *shop.Shop
	urls  []string
	sale  string
	quota int

	watched  func()
	load     *load // nil: no crowd
	attempts []shop.Attempt
}

// scene makes a sale and waits for the first phase.
func (d *drill) scene(s *shop.Shop, quota int, instances ...*shop.Instance) *scene {
	d.Helper()
	sc := &scene{drill: d, shop: s, quota: quota}
	for _, i := range instances {
		sc.urls = append(sc.urls, i.URL)
	}
	sc.sale = s.Sale(sc.urls[0], quota)
	sc.watched = d.watch(s, sc.sale)
	sc.resume()
	sc.phase()
	return sc
}

// resume starts a crowd; pause stops it and waits until every buyer has an answer.
func (sc *scene) resume() { sc.load = sc.rush(sc.shop, sc.sale, sc.urls...) }

func (sc *scene) pause() {
	if sc.load != nil {
		sc.attempts = append(sc.attempts, sc.load.stop()...)
		sc.load = nil
	}
}

// phase waits until the crowd has redisPhase more answers.
func (sc *scene) phase() {
	sc.Helper()
	sc.load.more(redisPhase, time.Minute)
}

// soFar returns all attempts so far.
func (sc *scene) soFar() []shop.Attempt {
	if sc.load == nil {
		return sc.attempts
	}
	return append(slices.Clone(sc.attempts), sc.load.soFar()...)
}

// trickle lets buyers come slowly for as long as a fault is to last: a crowd would buy all units meanwhile.
func (sc *scene) trickle(lasts time.Duration) {
	few := sc.rushAs(sc.shop, sc.sale, manner{every: 50 * time.Millisecond, to: func(buyer int) string { return sc.urls[buyer%len(sc.urls)] }})
	<-time.After(lasts)
	sc.attempts = append(sc.attempts, few.stop()...)
}

// confirmed returns the attempts that were both sent and confirmed between two times.
func (sc *scene) confirmed(from, to time.Time) (list []shop.Attempt) {
	for _, a := range sc.soFar() {
		if a.Confirmed() && a.Invoked.After(from) && a.Answered.Before(to) {
			list = append(list, a)
		}
	}
	return list
}

// askAgain has some buyers who hold an order ask twice more: under its key, which gives the same order, and under
// another key, which is above their limit.
func (sc *scene) askAgain(holders []shop.Attempt) {
	sc.Helper()
	if len(holders) == 0 {
		sc.Fatal("nobody was confirmed on what Redis has lost: the row shows nothing")
	}
	var asking sync.WaitGroup
	for i, held := range holders[:min(len(holders), 20)] {
		asking.Go(func() {
			same := shop.Attempt{User: held.User, Key: held.Key, URL: sc.urls[i%len(sc.urls)]}
			sc.shop.Buy(&same, sc.sale)
			if same.OrderID != held.OrderID {
				sc.Errorf("%s asked again and was told %d %s %s; the order is %s", held.User, same.Status, same.Code, same.OrderID, held.OrderID)
			}
			other := shop.Attempt{User: held.User, Key: "other-" + held.Key, URL: sc.urls[(i+1)%len(sc.urls)]}
			sc.shop.Buy(&other, sc.sale)
			for end := time.Now().Add(recoveryTime); other.Code == "unavailable" && time.Now().Before(end); { // there is no gate yet
				sc.shop.Buy(&other, sc.sale)
			}
			if other.Code != "limit_reached" {
				sc.Errorf("%s asked for more and was told %d %s", held.User, other.Status, other.Code)
			}
			sc.record.add(toBuy, same, other)
		})
	}
	asking.Wait()
}

// finish ends rows in which the database was up and units were left: every buyer got 201 or 202, and new buyers buy
// exactly the rest. detail is added to the report.
func (sc *scene) finish(detail string) {
	sc.Helper()
	sc.nothingElse(http.StatusCreated, http.StatusAccepted)
	sc.settle(detail)
}

// nothingElse fails the row if an answer had another status.
func (sc *scene) nothingElse(statuses ...int) {
	sc.Helper()
	sc.pause()
	others := slices.DeleteFunc(slices.Clone(sc.attempts), func(a shop.Attempt) bool { return slices.Contains(statuses, a.Status) })
	if len(others) > 0 {
		sc.Errorf("buyers were told: %s", sc.tally(others))
	}
}

// settle ends a row.
func (sc *scene) settle(detail string) {
	sc.Helper()
	sc.pause()
	sc.watched()
	slowest := time.Duration(0)
	for _, a := range sc.attempts {
		slowest = max(slowest, a.Answered.Sub(a.Invoked))
	}
	if detail != "" {
		detail += "; "
	}
	sc.result.Happened = fmt.Sprintf("%s; %sslowest answer %s", sc.tally(sc.attempts), detail, slowest.Round(10*time.Millisecond))
	start := time.Now()
	sc.recovered(sc.shop, sc.sale, int64(sc.quota), sc.attempts, sc.urls...)
	agreed := time.Since(start)
	gate, alone := sc.ways()
	sc.result.Happened += fmt.Sprintf("; %d sold by the gate, %d by the database alone; gates: %s; gate and database agreed after %s",
		gate, alone, strings.Join(sc.gates(), ", "), agreed.Round(10*time.Millisecond))
	if agreed > recoveryTime {
		sc.Errorf("gate and database agreed after %s", agreed)
	}
}

// ways counts the orders by their source: admitted by the gate, or sold by the database alone.
func (sc *scene) ways() (gate, alone int) {
	sc.Helper()
	sc.ask("SELECT COALESCE(SUM(source = 'stream'), 0), COALESCE(SUM(source = 'database'), 0) FROM orders WHERE sale_id = ?", &gate, &alone)
	return gate, alone
}

// gates returns the reasons for all gates that the sale has had, in order.
func (sc *scene) gates() []string {
	sc.Helper()
	var reasons string
	sc.ask("SELECT COALESCE(GROUP_CONCAT(SUBSTRING_INDEX(detail, ': ', -1) ORDER BY id SEPARATOR ', '), '') FROM operations WHERE action = 'install_gate' AND subject = ?", &reasons)
	return strings.Split(reasons, ", ")
}

// ask reads one row about the sale from the database.
func (sc *scene) ask(query string, into ...any) {
	sc.Helper()
	books, err := openLedger(sc.shop.Database)
	if err != nil {
		sc.Fatal(err)
	}
	defer books.close()
	if err := books.db.QueryRowContext(sc.Context(), query, sc.sale).Scan(into...); err != nil {
		sc.Fatal(err)
	}
}

// rebuilt waits until the gate has been replaced, which is recorded a moment after the new gate is open.
func (sc *scene) rebuilt() {
	sc.Helper()
	shop.Recovered(sc, "the gate is replaced", func() error {
		if gates := sc.gates(); len(gates) < 2 {
			return fmt.Errorf("gates: %q", gates)
		}
		return nil
	})
}

// newGate waits until the sale has had more gates than before, also without any buyer.
func (sc *scene) newGate(before int) {
	sc.Helper()
	shop.Recovered(sc, "a new gate", func() error {
		if gates := sc.gates(); len(gates) == before {
			return fmt.Errorf("there is none after %q", gates)
		}
		return nil
	})
}

// client returns a client for a Redis, besides those of the engine, with one connection.
func (d *drill) client(r *kit.RedisServer) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, PoolSize: 1, ReadTimeout: 2 * time.Minute})
	d.Cleanup(func() { _ = c.Close() })
	return c
}

// tell runs a command that must succeed, and returns its reply.
func (d *drill) tell(c *redis.Client, command ...any) string {
	d.Helper()
	reply, err := c.Do(d.Context(), command...).Result()
	if err != nil {
		d.Fatalf("%v: %v", command, err)
	}
	return fmt.Sprint(reply)
}

// figure reads one figure of a section of INFO. It returns 0 if the figure is missing, as is a count of errors that
// have not happened.
func (d *drill) figure(c *redis.Client, section, name string) int {
	d.Helper()
	for line := range strings.Lines(d.tell(c, "INFO", section)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.Atoi(strings.TrimPrefix(text, "count="))
			if err != nil {
				d.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func killedAndEmpty(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	s.Redis.Kill()
	sc.phase()
	s.Redis.Restart()
	sc.phase()
	sc.finish("")
	sc.rebuilt()
}

func killedAndBack(d *drill) {
	s := shop.On(d, kit.SharedMariaDB(d).NewDatabase(d), kit.Redis(d, onDisk...))
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	s.Redis.Kill()
	sc.phase()
	s.Redis.Restart()
	sc.phase()
	sc.finish("")
	sc.rebuilt()
}

// appended returns the file to which Redis appends its commands, and its size.
func (d *drill) appended(r *kit.RedisServer) (path string, bytes int64) {
	d.Helper()
	files, err := filepath.Glob(filepath.Join(r.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		d.Fatalf("the AOF is %q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		d.Fatal(err)
	}
	return files[0], info.Size()
}

// killAndCut kills Redis, truncates its AOF a few bytes after the size kept, in the middle of a command, and restarts
// it.
func (d *drill) killAndCut(r *kit.RedisServer, kept int64) (lost string) {
	d.Helper()
	r.Kill()
	path, had := d.appended(r)
	const torn = 9 // bytes of the first lost command
	if had <= kept+torn {
		d.Fatalf("the AOF had %d bytes and has %d: nothing to cut", kept, had)
	}
	if err := os.Truncate(path, kept+torn); err != nil {
		d.Fatal(err)
	}
	r.Restart()
	return fmt.Sprintf("%d of %d bytes of the AOF cut", had-kept-torn, had)
}

func tailLost(d *drill) {
	s := shop.On(d, kit.SharedMariaDB(d).NewDatabase(d), kit.Redis(d, onDisk...))
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	_, kept := d.appended(s.Redis)
	from := time.Now()
	sc.phase()
	to := time.Now()
	cut := d.killAndCut(s.Redis, kept)
	forgotten := sc.confirmed(from, to)
	sc.pause()
	sc.askAgain(forgotten)
	sc.resume()
	sc.phase()
	sc.finish(fmt.Sprintf("%s, on which %d were confirmed", cut, len(forgotten)))
	sc.rebuilt()
}

func tailLostInSilence(d *drill) {
	s := shop.On(d, kit.SharedMariaDB(d).NewDatabase(d), kit.Redis(d, onDisk...))
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	sc.pause()
	s.Audited(sc.urls[0], sc.sale)
	_, kept := d.appended(s.Redis)
	from := time.Now()
	sc.resume()
	sc.phase()
	sc.pause()
	s.Audited(sc.urls[0], sc.sale)
	before := len(sc.gates())
	cut := d.killAndCut(s.Redis, kept)
	to := time.Now()
	sc.newGate(before)
	found := time.Since(to)
	s.Audited(sc.urls[0], sc.sale)
	forgotten := sc.confirmed(from, to)
	sc.askAgain(forgotten)
	sc.resume()
	sc.phase()
	sc.finish(fmt.Sprintf("%s, on which %d were confirmed; found and repaired in %s", cut, len(forgotten), found.Round(10*time.Millisecond)))
}

func staleReplica(d *drill) {
	primary := kit.Redis(d, "--repl-diskless-sync-delay", "0")
	link, front := d.proxy(primary.Addr()), d.proxy(primary.Addr())
	host, port, err := net.SplitHostPort(link.Addr())
	if err != nil {
		d.Fatal(err)
	}
	replica := kit.Redis(d, "--replicaof", host, port)
	s := shop.On(d, kit.SharedMariaDB(d).NewDatabase(d), primary)
	to := d.client(replica)
	shop.Recovered(d, "the replica follows", func() error {
		if info := d.tell(to, "INFO", "replication"); !strings.Contains(info, "master_link_status:up") {
			return fmt.Errorf("%s", info)
		}
		return nil
	})
	sc := d.scene(s, units(3), s.Start(ackWait, "--redis", front.RedisURL()), s.Start(ackWait, "--redis", front.RedisURL()))
	link.Cut()
	cut := time.Now()
	sc.phase()
	killed := time.Now()
	primary.Kill()
	d.tell(to, "REPLICAOF", "NO", "ONE")
	front.Point(replica.Addr())
	forgotten := sc.confirmed(cut, killed)
	sc.pause()
	sc.askAgain(forgotten)
	sc.resume()
	sc.phase()
	sc.finish(fmt.Sprintf("%d were confirmed on what the replica has never heard of", len(forgotten)))
	sc.rebuilt()
}

func flushedAll(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(4), s.Start(ackWait), s.Start(ackWait))
	to := d.client(s.Redis)
	for range 2 {
		before := len(sc.gates())
		d.tell(to, "FLUSHALL")
		sc.phase()
		sc.pause()
		sc.newGate(before)
		sc.resume()
	}
	sc.phase()
	sc.finish("")
}

func flushedScripts(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	to := d.client(s.Redis)
	const times = 20
	for range times {
		d.tell(to, "SCRIPT", "FLUSH")
		sc.load.more(2*redisPhase/times, time.Minute)
	}
	loaded := d.figure(to, "errorstats", "errorstat_NOSCRIPT")
	sc.finish(fmt.Sprintf("%d calls met no script", loaded))
	if loaded < times {
		d.Errorf("%d flushes, but only %d calls met no script", times, loaded)
	}
	if gate, alone := sc.ways(); len(sc.gates()) != 1 || alone > gate/100 {
		d.Errorf("it was noticed: %d sold by the gate, %d by the database alone; gates: %q", gate, alone, sc.gates())
	}
}

func oneCutOff(d *drill) {
	s := shop.New(d)
	link := d.proxy(s.Redis.Addr())
	near, far := s.Start(ackWait), s.Start(ackWait, "--redis", link.RedisURL())
	sc := d.scene(s, units(3), near, far)
	from := time.Now()
	link.Cut()
	sc.phase()
	sold := map[string]int{}
	for _, a := range sc.confirmed(from, time.Now()) {
		sold[a.URL]++
	}
	link.Restore()
	sc.phase()
	// The instance without Redis may lose too many races against the other one.
	sc.nothingElse(http.StatusCreated, http.StatusAccepted, http.StatusServiceUnavailable)
	sc.settle(fmt.Sprintf("meanwhile %d were confirmed by the one with Redis, %d by the other", sold[near.URL], sold[far.URL]))
	if sold[near.URL] == 0 || sold[far.URL] == 0 {
		d.Errorf("not both have sold: %v", sold)
	}
}

// oneCutOffToTheEnd sells to the last unit. The gate has too many units, since the other instance sells without it.
func oneCutOffToTheEnd(d *drill) {
	s := shop.New(d)
	link := d.proxy(s.Redis.Addr())
	near, far := s.Start(ackWait), s.Start(ackWait, "--redis", link.RedisURL())
	sc := d.scene(s, 3*redisPhase, near, far)
	link.Cut()
	// A buyer with a request key gets a refusal only where the gate can be asked.
	for told := map[string]bool{}; len(told) < 2 && !d.Failed(); {
		sc.phase()
		for _, a := range sc.load.soFar() {
			if a.URL == near.URL && a.Code == "sold_out" || a.URL == far.URL && a.Code == "unavailable" {
				told[a.URL] = true
			}
		}
	}
	link.Restore()
	sc.phase()
	sc.nothingElse(http.StatusCreated, http.StatusAccepted, http.StatusConflict, http.StatusServiceUnavailable)
	sc.settle(fmt.Sprintf("%d units", sc.quota))
}

func repliesLost(d *drill) {
	s := shop.New(d)
	link := d.proxy(s.Redis.Addr())
	sc := d.scene(s, units(5), s.Start(ackWait, "--redis", link.RedisURL()), s.Start(ackWait, "--redis", link.RedisURL()))
	whole := sc.watchGate()
	times := size(30, 200)
	for range times { // one at a time: the client repeats the call, and the script meets its own effects
		link.LoseReplyTo("evalsha", 1)
		sc.load.more(redisPhase/times, time.Minute)
	}
	broken := link.Lost()
	for range 2 {
		link.LoseReplies()
		sc.phase()
		link.Restore()
	}
	silent := link.Lost() - broken
	sc.phase()
	whole()
	sc.finish(fmt.Sprintf("%d replies lost with their connections, %d in silence", broken, silent))
	if broken == 0 || silent == 0 {
		d.Error("no reply was lost: the row shows nothing")
	}
}

func stopped(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	whole := sc.watchGate()
	over := time.Now().Add(span(4*time.Second, 10*time.Second))
	s.Redis.Stop()
	sc.phase()
	sc.pause()
	sc.trickle(time.Until(over))
	s.Redis.Continue()
	sc.resume()
	sc.phase()
	whole()
	sc.finish("")
}

func outOfMemory(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(4), s.Start(ackWait), s.Start(ackWait))
	whole := sc.watchGate()
	to := d.client(s.Redis)
	// At first some commands still fit into the memory, then none does.
	d.tell(to, "CONFIG", "SET", "maxmemory", d.figure(to, "memory", "used_memory"))
	sc.phase()
	d.tell(to, "CONFIG", "SET", "maxmemory", d.figure(to, "memory", "used_memory")/2)
	sc.phase()
	refused := d.figure(to, "errorstats", "errorstat_OOM")
	d.tell(to, "CONFIG", "SET", "maxmemory", 0)
	sc.phase()
	whole()
	sc.finish(fmt.Sprintf("%d commands refused for want of memory", refused))
	if refused == 0 {
		d.Error("there was memory enough: the row shows nothing")
	}
}

func busy(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	whole := sc.watchGate()
	to, loop := d.client(s.Redis), d.client(s.Redis)
	d.tell(to, "CONFIG", "SET", "busy-reply-threshold", 50)
	ended := make(chan error, 1)
	go func() { ended <- loop.Do(context.WithoutCancel(d.Context()), "EVAL", "while true do end", 0).Err() }()
	sc.phase()
	sc.pause()
	sc.trickle(span(time.Second, 5*time.Second))
	d.tell(to, "SCRIPT", "KILL")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		d.Errorf("the script ended with %v", err)
	}
	refused := d.figure(to, "errorstats", "errorstat_BUSY")
	sc.resume()
	sc.phase()
	whole()
	sc.finish(fmt.Sprintf("%d commands refused as busy", refused))
	if refused == 0 {
		d.Error("Redis was never busy: the row shows nothing")
	}
}

func fewClients(d *drill) {
	s := shop.New(d)
	sc := d.scene(s, units(3), s.Start(ackWait), s.Start(ackWait))
	to := d.client(s.Redis)
	d.tell(to, "CONFIG", "SET", "maxclients", 3)
	d.tell(to, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	d.tell(to, "CLIENT", "KILL", "TYPE", "pubsub")
	sc.phase()
	sc.pause()
	sc.trickle(span(time.Second, 5*time.Second))
	refused := d.figure(to, "stats", "rejected_connections")
	d.tell(to, "CONFIG", "SET", "maxclients", 10_000)
	sc.resume()
	sc.phase()
	sc.finish(fmt.Sprintf("%d connections refused", refused))
	if refused == 0 {
		d.Error("there was room for all: the row shows nothing")
	}
}

// wholeness reads a gate at one instant: units left, in flight, entries of the stream, and fields of the hash of users.
const wholeness = `
local gate = redis.call('HMGET', KEYS[1], 'left', 'inflight')
if not gate[1] then return false end
return {tonumber(gate[1]), tonumber(gate[2]), redis.call('XLEN', KEYS[2]), redis.call('HLEN', KEYS[3])}`

// watchGate checks the gate until the returned function is called. That function fails the row if an admit or an
// acknowledgement was ever half done: every unit is left or belongs to a user, and every unit in flight has an entry.
// Each buyer must buy one unit.
func (sc *scene) watchGate() (end func()) {
	sc.Helper()
	c := sc.client(sc.shop.Redis)
	key := func(name string) string { return "fs:{" + sc.sale + "}:" + name }
	ctx, cancel := context.WithCancel(sc.Context())
	looks, wrong := 0, ""
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for wrong == "" {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			v, err := c.Eval(ctx, wholeness, []string{key("gate"), key("stream"), key("units")}).Int64Slice()
			if err != nil { // no gate, or no answer from Redis
				continue
			}
			looks++
			// One field of the users' hash is a mark of the gate, not a user.
			if left, inflight, stream, users := v[0], v[1], v[2], v[3]-1; left+users != int64(sc.quota) || inflight != stream {
				wrong = fmt.Sprintf("%d left and %d with users, of %d; %d in flight in %d entries", left, users, sc.quota, inflight, stream)
			}
		}
	}()
	return func() {
		sc.Helper()
		cancel()
		<-done
		if wrong != "" || looks == 0 {
			sc.Errorf("the gate, looked at %d times: %s", looks, wrong)
		}
	}
}
