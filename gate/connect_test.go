package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

func TestConnectToOne(t *testing.T) {
	for address, want := range map[string]redis.Options{
		"redis://user:pass@example.com:6380/3":    {Addr: "example.com:6380", DB: 3, Username: "user", Password: "pass"},
		"rediss://user:p%40ss@example.com:6380/3": {Addr: "example.com:6380", DB: 3, Username: "user", Password: "p@ss"},
	} {
		got := dial(t, Connect, address).(*redis.Client).Options()
		if got.Addr != want.Addr || got.DB != want.DB || got.Username != want.Username || got.Password != want.Password ||
			(got.TLSConfig != nil) != strings.HasPrefix(address, "rediss") {
			t.Errorf("%s is read as %+v", address, got)
		}
	}
	for _, url := range []string{"", "embedded", "http://example.com", "redis://example.com/x"} {
		if _, err := Connect(url); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}

// TestClientsAreBounded: the waits, retries and connections of every kind of client are those of the constants.
func TestClientsAreBounded(t *testing.T) {
	want := fmt.Sprint(dialTimeout, ioTimeout, ioTimeout, poolTimeout, poolSize, retries, true)
	for _, address := range []string{"redis://a:1/0", "redis+sentinel://127.0.0.1:1/shop"} {
		o := dial(t, Connect, address).(*redis.Client).Options()
		got := fmt.Sprint(o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout,
			o.PoolSize, o.DialerRetries, o.ContextTimeoutEnabled)
		if got != want || o.MaxRetries != retries {
			t.Errorf("%s: the limits are %s and %d retries, want %s and %d", address, got, o.MaxRetries, want, retries)
		}
	}
	o := dial(t, ConnectReplicas, "redis://a:1,redis://b:2").(*redis.ClusterClient).Options()
	got := fmt.Sprint(o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout,
		o.PoolSize, o.DialerRetries, o.ContextTimeoutEnabled)
	if got != want || o.MaxRedirects != redirects || o.MaxRetries > 0 || !o.ReadOnly {
		t.Errorf("a Cluster: the limits are %s and %d redirects, want %s and %d", got, o.MaxRedirects, want, redirects)
	}
}

// TestUnreachableRedisIsReportedSoon: an attempt waits for every dial, and a dial may take a second.
func TestUnreachableRedisIsReportedSoon(t *testing.T) {
	opts := dial(t, Connect, "redis://example.invalid:6379/0").(*redis.Client).Options()
	var dials atomic.Int64
	opts.Dialer = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("no route")
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	if got, err := (&bench{TB: t}).over(client).tryAdmit(attempt(offer(), "u-1", 1), 1); err == nil {
		t.Errorf("%+v", got)
	}
	if n := dials.Load(); n > 1+retries {
		t.Errorf("one attempt dialled %d times, want at most %d", n, 1+retries)
	}
}

// TestConnectShowsNoPassword: errors are written to logs.
func TestConnectShowsNoPassword(t *testing.T) {
	for _, address := range []string{
		"redis://user:hunter2/@host:1", "redis://user:hunter2\x7f@host:1", "redis://user:hunter2@host:1/x",
		"redis://user:hunter2@host:x/0", "redis://user:hunter2@host:1/0?option=1",
		"http://user:hunter2@host:1", "redis://user:%zzhunter2@host:1,b:2", "redis://user:hunter2@a:1,redis://user:hunter3@b:2",
		"redis://user:hunter2@a:1,rediss://b:2", "redis://user:hunter2@a:1,b:2/4", "redis+sentinel://user:hunter2@a:1",
		"redis+sentinel://user:%zzhunter2@a:1/shop", "redis+sentinel://user:hunter2@a:1/shop/x",
		"redis+sentinel://a:1/shop?sentinel_password=hunter2%zz",
	} {
		client, err := Connect(address)
		if err == nil {
			t.Errorf("%q is accepted", address)
			_ = client.Close()
		} else if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestReplicas: replicas report the recent state of gates; a replica that has lost its primary reports an error.
func TestReplicas(t *testing.T) {
	primary := kit.Redis(t, "--repl-diskless-sync-delay", "0")
	replica := kit.ReplicaOf(t, primary)
	b, behind := newBench(t, primary.URL()), newBench(t, replica.URL())
	one, missing, several := b.sale(), offer(), b.open(offerIn(4))
	b.admit(attempt(one, "u-1", 2))
	b.admit(attempt(several, "u-1", 1))
	must(b, b.client.Wait(t.Context(), 1, check.Patience))
	sales := []model.Offer{one, missing, several}
	want := []model.GateState{
		{Exists: true, Open: true, Epoch: 1, Left: 8, Inflight: 2, Stream: 1, Revision: 1, Version: 5},
		{},
		{Exists: true, Open: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1, Revision: 1, Version: 5},
	}
	peek := func(of redis.UniversalClient) ([]model.GateState, error) {
		return NewReplicas(of).Peek(t.Context(), model.GateRefs(sales)...)
	}
	states, err := b.gate.Peek(t.Context(), model.GateRefs(sales)...)
	check.NoError(t, err)
	check.Same(t, "the gates", states, want)
	client := dial(t, ConnectReplicas, replica.URL())
	for _, of := range []redis.UniversalClient{client, b.client} {
		if got, err := peek(of); err != nil || !slices.Equal(got, want) {
			t.Errorf("the gates are %+v, %v; want %+v", got, err, want)
		}
	}
	must(behind, behind.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1"))
	if got, err := peek(client); err == nil {
		t.Errorf("a replica without its primary reports %+v", got)
	}
	must(behind, behind.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", primary.Port()))
	check.Eventually(t, "the replica follows again", func() bool {
		_, err := peek(client)
		return err == nil
	})
	replica.Kill()
	if got, err := peek(client); err == nil {
		t.Errorf("a dead replica reports %+v", got)
	}
}

// TestSilentReplicaIsBehind: a replica that has received nothing for more than 15 seconds is cut off, even if its
// connection seems to be up.
func TestSilentReplicaIsBehind(t *testing.T) {
	for text, want := range map[string]error{
		"role:master\r\n": nil,
		"role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:15\r\n":   nil,
		"role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:16\r\n":   errBehind,
		"role:slave\r\nmaster_link_status:down\r\nmaster_last_io_seconds_ago:0\r\n":  errBehind,
		"role:slave\r\nmaster_link_status:down\r\nmaster_last_io_seconds_ago:-1\r\n": errBehind,
		"role:slave\r\n": errBehind,
	} {
		check.Error(t, fmt.Sprintf("%q", text), isBehind(redis.NewStringResult(text, nil)), want)
	}
	check.Error(t, "a replica that does not answer", isBehind(redis.NewStringResult("", redis.ErrClosed)), redis.ErrClosed)
}

// TestClusterLosesANode: a gate is on the node of its tag, and one in six shards is on all three nodes. If a node dies,
// only its gates and shards are lost. The Cluster would refuse a script whose keys are in two slots.
func TestClusterLosesANode(t *testing.T) {
	t.Parallel()
	pace.Try(t, clusterLosesANode)
}

func clusterLosesANode(t *pace.Trial) {
	c := kit.Cluster(t, 3, 0)
	client := dial(t, Connect, c.URL())
	client.(*redis.ClusterClient).AddHook(tagged(t))
	b := newBench(t, c.Nodes[0].URL()).over(client)
	several := offerIn(6)
	several.Stock.Available = 60
	sales, nodes := []model.Offer{b.open(several)}, map[string]*kit.RedisServer{} // by sale
	of := map[*kit.RedisServer]model.Offer{}                                      // one sale of each node
	for len(of) < 3 || len(sales) < 20 {
		b.life()
		o := b.open(offer())
		node := c.Of(gateKey(tag(o)))
		sales, nodes[o.ID], of[node] = append(sales, o), node, o
	}
	shards := map[*kit.RedisServer]int{} // one shard of each node
	for shard, tag := range tagsOf(several.GateRef()) {
		shards[c.Of(gateKey(tag))] = shard
	}
	check.Same(t, "the nodes with a shard", len(shards), 3)
	admit := func(o model.Offer, user string) (model.Verdict, error) {
		start := time.Now()
		got, err := b.tryAdmit(attempt(o, user, 1), 1)
		if took := time.Since(start); took > 2*time.Second {
			t.Slowf("an answer took %s", took)
		}
		return got.Verdict, err
	}
	for _, o := range sales {
		b.admit(attempt(o, "u-1", 1))
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: o.Stock.Available - 1, Inflight: 1, Stream: 1})
	}

	dead := c.Of(gateKey(tagsOf(several.GateRef())[0]))
	dead.Kill()
	states, err := b.gate.Peek(t.Context(), model.GateRefs(sales)...)
	check.NoError(b, err)
	for i, o := range sales {
		gone := o.ID == several.ID || nodes[o.ID] == dead
		if states[i].Away != gone || states[i].Open == gone {
			t.Errorf("gate %d, on the dead node: %t, is %+v", i, gone, states[i])
		}
		if o.ID == several.ID {
			continue
		}
		if got, err := admit(o, "u-2"); (err != nil) != gone || !gone && got != model.Accepted {
			t.Errorf("gate %d, on the dead node: %t, says %s, %v", i, gone, got, err)
		}
	}
	if states, err := b.gate.Peek(t.Context(), of[dead].GateRef()); err == nil {
		t.Errorf("a look at the dead node only: %+v", states)
	}
	if _, err := b.gate.StreamLengths(t.Context(), several.GateRef()); err == nil {
		t.Error("the length of a stream on the dead node is not missed")
	}
	if entries, _, err := b.gate.Leftovers(t.Context(), []model.GateRef{several.GateRef()}, 0, 100); err != nil || len(entries) > 1 {
		t.Errorf("the entries of the other shards: %v, %v", entries, err)
	}
	for node, shard := range shards {
		a := attempt(several, userAt(several, shard, 9), 1)
		if _, _, err := b.gate.Knows(t.Context(), a.GateRef(), a.UserID, a.ID); (err == nil) == (node == dead) {
			t.Errorf("whether an id is known, on the dead node: %t: %v", node == dead, err)
		}
		got := map[model.Verdict]int{}
		for i := range 60 { // far more than the shard has
			verdict, err := admit(several, userAt(several, shard, 10+i))
			if err != nil {
				verdict = "error"
			}
			got[verdict]++
		}
		good := got[model.Accepted] >= 9 && got[model.Unsure]+got[model.Accepted] == 60
		if node == dead {
			good = got["error"] == 60
		}
		if !good {
			t.Errorf("the verdicts of a shard, on the dead node: %t, are %v", node == dead, got)
		}
	}

	dead.Restart() // empty
	check.Eventually(t, "the node is back", func() bool {
		states, err := b.gate.Peek(t.Context(), several.GateRef(), of[dead].GateRef())
		return err == nil && !states[0].Away && !states[0].Open && states[1] == model.GateState{}
	})
}
