package gate

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
)

func TestConnectToOne(t *testing.T) {
	client, err := Connect("rediss://user:p%40ss@example.com:6380/3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	opts := client.(*redis.Client).Options()
	if opts.Addr != "example.com:6380" || opts.DB != 3 || opts.Username != "user" || opts.Password != "p@ss" || opts.TLSConfig == nil {
		t.Errorf("the options are %+v", opts)
	}
}

func TestConnectToACluster(t *testing.T) {
	for address, want := range map[string]redis.UniversalOptions{
		"redis://a:1,redis://b:2":            {Addrs: []string{"a:1", "b:2"}},
		"a:1,b:2,c:3":                        {Addrs: []string{"a:1", "b:2", "c:3"}},
		"redis://a:1/,redis://b:2/0":         {Addrs: []string{"a:1", "b:2"}},
		"redis://u:p%40%2C@a:1,b:2":          {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p@,"},
		"redis://:p@a:1,redis://:p@b:2":      {Addrs: []string{"a:1", "b:2"}, Password: "p"},
		"rediss://u:p@a:1,rediss://b:2":      {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p", TLSConfig: secured("rediss")},
		"redis://[::1]:1,redis://[fe80::]:2": {Addrs: []string{"[::1]:1", "[fe80::]:2"}},
	} {
		got, err := clusterOptions(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !slices.Equal(got.Addrs, want.Addrs) || got.Username != want.Username || got.Password != want.Password || !reflect.DeepEqual(got.TLSConfig, want.TLSConfig) {
			t.Errorf("%s is read as %+v", address, got)
		}
	}
	client, err := ConnectReplicas("redis://a:1,redis://b:2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	opts := client.(*redis.ClusterClient).Options()
	if !opts.ReadOnly || opts.MaxRetries > 0 || opts.MaxRedirects != redirects ||
		opts.DialTimeout != dialTimeout || opts.ReadTimeout != ioTimeout || opts.WriteTimeout != ioTimeout || opts.PoolSize != poolSize ||
		opts.PoolTimeout != poolTimeout || opts.DialerRetries != retries || !opts.ContextTimeoutEnabled {
		t.Errorf("a wait or the pool has another bound: %+v", opts)
	}
}

func TestConnectBehindSentinels(t *testing.T) {
	for address, want := range map[string]redis.UniversalOptions{
		"a:1,b:2/shop":        {Addrs: []string{"a:1", "b:2"}, MasterName: "shop"},
		"a:1/shop/5":          {Addrs: []string{"a:1"}, MasterName: "shop", DB: 5},
		"u:p%2F@a:1,b:2/shop": {Addrs: []string{"a:1", "b:2"}, MasterName: "shop", Username: "u", Password: "p/"},
		"u:p@a:1/shop/0?sentinel_username=s&sentinel_password=q%26": {
			Addrs: []string{"a:1"}, MasterName: "shop", Username: "u", Password: "p", SentinelUsername: "s", SentinelPassword: "q&",
		},
	} {
		got, err := sentinelOptions("rediss", address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		expected := bounded()
		expected.Addrs, expected.MasterName, expected.DB, expected.TLSConfig = want.Addrs, want.MasterName, want.DB, secured("rediss")
		expected.Username, expected.Password = want.Username, want.Password
		expected.SentinelUsername, expected.SentinelPassword = want.SentinelUsername, want.SentinelPassword
		if !reflect.DeepEqual(got, expected) {
			t.Errorf("%s is read as %+v", address, got)
		}
	}
	client, err := Connect("redis+sentinel://127.0.0.1:1/shop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	opts := client.(*redis.Client).Options()
	if opts.MaxRetries != retries || opts.DialTimeout != dialTimeout || opts.ReadTimeout != ioTimeout || opts.PoolSize != poolSize || !opts.ContextTimeoutEnabled {
		t.Errorf("a wait or the pool has another bound: %+v", opts)
	}
}

// An error ends up in logs: it may say what is wrong, and not the password.
func TestConnectShowsNoPassword(t *testing.T) {
	for _, address := range []string{
		"redis://user:hunter2/@host:1", "redis://user:hunter2\x7f@host:1", "redis://user:hunter2@host:1/x", "redis://user:hunter2@host:x/0",
		"http://user:hunter2@host:1", "redis://user:%zzhunter2@host:1,b:2", "redis://user:hunter2@a:1,redis://user:hunter3@b:2",
		"redis://user:hunter2@a:1,rediss://b:2", "redis://user:hunter2@a:1,b:2/4", "redis+sentinel://user:hunter2@a:1",
		"redis+sentinel://user:%zzhunter2@a:1/shop", "redis+sentinel://user:hunter2@a:1/shop/x", "redis+sentinel://a:1/shop?sentinel_password=hunter2%zz",
	} {
		client, err := Connect(address)
		if err == nil {
			t.Errorf("%q passes", address)
			_ = client.Close()
		} else if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// An attempt whose batch makes the connection itself, to a Redis that took over the gates of another one: nothing is
// admitted, although nobody could know before.
func TestGateOfAnotherRedisOnAFreshConnection(t *testing.T) {
	before, after := kit.Redis(t), kit.Redis(t)
	b, stale := newBench(t, before.URL()), newBench(t, after.URL())
	o := b.open(offer())
	g := New(b.client, "here", partsOf)
	if got := b.verdict(g, attempt(o, "u-1", 1)); got != model.Accepted {
		t.Fatal(got)
	}
	for _, key := range []string{gateKey(o.ID), unitsKey(o.ID), idsKey(o.ID), streamKey(o.ID)} {
		value := must(b, b.client.Dump(t.Context(), key))
		must(stale, stale.client.RestoreReplace(t.Context(), key, 0, value))
	}
	for range 3 { // each time by the first connection of a client
		if got := b.verdict(New(stale.connect(), "here", partsOf), attempt(o, "u-2", 1)); got != model.NoGate {
			t.Errorf("admitted by the gate of another Redis: %s", got)
		}
	}
	if got := stale.peek(o.ID); got.Open || !got.Exists || got.Left != 9 {
		t.Errorf("there the gate is %+v", got)
	}
}

// Who may not ask a Redis which process it is has to trust its gates, as of one that doesn't tell.
func TestRedisThatWontSayWhoItIs(t *testing.T) {
	server := kit.Redis(t)
	operator := newBench(t, server.URL())
	must(operator, operator.client.Do(t.Context(), "ACL", "SETUSER", "shop", "on", ">word", "~*", "&*", "+@all", "-info"))
	b := newBench(t, "redis://shop:word@"+server.Addr()+"/0")
	for _, o := range []model.Offer{b.open(offer()), b.open(offerIn(2))} {
		if got := b.verdict(b.gate, attempt(o, "u-1", 1)); got != model.Accepted {
			t.Errorf("it says %s", got)
		}
		if state := b.peek(o.ID); !state.Open || state.Left != 9 {
			t.Errorf("the gate is %+v", state)
		}
	}
}

// A replica that is promoted has all that the primary had a moment ago. Its gates admit nothing before they are rebuilt.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	s := kit.SentinelRedis(t)
	client, err := Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	b := newBench(t, s.Primary.URL())
	g, o := New(client, "here", partsOf), offerIn(3)
	if err := install(g, 1, contents(o)); err != nil {
		t.Fatal(err)
	}
	if got := b.verdict(g, attempt(o, "u-1", 1)); got != model.Accepted {
		t.Fatal(got)
	}
	if n := must(b, b.client.Wait(t.Context(), 1, patience)); n != 1 {
		t.Fatalf("%d replicas have it", n)
	}
	s.Primary.Kill()
	s.AwaitPromotion()
	eventually(t, "the client finds the new primary", func() bool { return client.Ping(t.Context()).Err() == nil })
	if got := b.verdict(g, attempt(o, "u-2", 1)); got != model.NoGate {
		t.Errorf("the promoted replica says %s", got)
	}
	states, err := g.Peek(t.Context(), o.ID)
	if err != nil || states[0].Open || !states[0].Exists || states[0].Left != 9 {
		t.Errorf("there the gate is %+v, %v", states, err)
	}
	if ok, err := g.Close(t.Context(), o.ID, 2); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := install(g, 2, contents(o)); err != nil {
		t.Fatal(err)
	}
	if states, err := g.Peek(t.Context(), o.ID); err != nil || states[0].Left != 9 || states[0].Inflight != 1 {
		t.Errorf("there the new gate is %+v, %v", states, err)
	}
	if got := b.verdict(g, attempt(o, "u-2", 1)); got != model.Accepted {
		t.Errorf("the new gate says %s", got)
	}
}

// Replicas say what the primary said a moment ago. One that lost it, or is gone, says nothing.
func TestReplicas(t *testing.T) {
	primary := kit.Redis(t, "--repl-diskless-sync-delay", "0")
	replica := kit.ReplicaOf(t, primary)
	b := newBench(t, primary.URL())
	one, several := b.open(offer()), b.open(offerIn(4))
	b.admit(attempt(one, "u-1", 2))
	b.admit(attempt(several, "u-1", 1))
	must(b, b.client.Wait(t.Context(), 1, patience))
	client, err := ConnectReplicas(replica.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	replicas := NewReplicas(client)
	sales := []model.Offer{one, offer(), several}
	got, err := replicas.Peek(t.Context(), sales)
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for i, want := range []model.GateState{
		{Exists: true, Open: true, Epoch: 1, Left: 8, Inflight: 2, Stream: 1}, {}, {Exists: true, Open: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1},
	} {
		if core(got[i]) != want {
			t.Errorf("gate %d is %+v, want %+v", i, got[i], want)
		}
	}

	cutOff := newBench(t, replica.URL())
	must(cutOff, cutOff.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1"))
	if got, err := replicas.Peek(t.Context(), sales); err == nil {
		t.Errorf("a replica without its primary: %+v", got)
	}
	must(cutOff, cutOff.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", primary.Port()))
	eventually(t, "the replica follows again", func() bool {
		_, err := replicas.Peek(t.Context(), sales)
		return err == nil
	})
	replica.Kill()
	if got, err := replicas.Peek(t.Context(), sales); err == nil {
		t.Errorf("a replica that is gone: %+v", got)
	}
	if got, err := NewReplicas(b.client).Peek(t.Context(), sales); err != nil || core(got[0]).Left != 8 {
		t.Errorf("the primary itself: %+v, %v", got, err)
	}
}

// The primary speaks to its replicas every ten seconds: one that has heard nothing for longer is cut off, though its
// connection may not know.
func TestSilentReplicaIsBehind(t *testing.T) {
	info := func(text string) *redis.StringCmd { return redis.NewStringResult(text, nil) }
	for text, want := range map[string]error{
		"role:master\r\n": nil,
		"role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:15\r\n":   nil,
		"role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:16\r\n":   errBehind,
		"role:slave\r\nmaster_link_status:down\r\nmaster_last_io_seconds_ago:0\r\n":  errBehind,
		"role:slave\r\nmaster_link_status:down\r\nmaster_last_io_seconds_ago:-1\r\n": errBehind,
		"role:slave\r\n": errBehind,
	} {
		if got := isBehind(info(text)); got != want { //nolint:errorlint // these very ones
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if isBehind(redis.NewStringResult("", redis.ErrClosed)) == nil {
		t.Error("a replica that doesn't say is believed")
	}
}

// On a real Cluster: a sale's gate is on the node of its tag, one in parts is on all of them, and a node that dies takes
// along what it has, and nothing else.
func TestClusterLosesANode(t *testing.T) {
	t.Parallel()
	c := kit.Cluster(t, 3, 0)
	client, err := Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	client.AddHook(oneTag{t})
	t.Cleanup(func() { _ = client.Close() })
	b, g := newBench(t, c.Nodes[0].URL()), New(client, "here", partsOf)
	several := offerIn(6)
	several.Stock.Available = 60
	of := map[*kit.RedisServer][]model.Offer{} // sales by their node
	sales := []model.Offer{several}
	for len(of) < 3 || len(sales) < 20 {
		o := offer()
		sales = append(sales, o)
		node := c.Of(gateKey(o.ID))
		of[node] = append(of[node], o)
	}
	for _, o := range sales {
		if err := install(g, 1, contents(o)); err != nil {
			t.Fatal(err)
		}
	}
	homes := map[*kit.RedisServer][]int{}
	for part := range several.Parts {
		node := c.Of(gateKey(tagOf(several.ID, part, several.Parts)))
		homes[node] = append(homes[node], part)
	}
	if len(homes) != 3 {
		t.Errorf("the parts are on %d nodes", len(homes))
	}
	admit := func(o model.Offer, user string) (model.Verdict, error) {
		start := time.Now()
		got, err := g.Admit(t.Context(), o.ID, []model.Attempt{attempt(o, user, 1)}, 1)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("an answer took %s", took)
		}
		if err != nil {
			return "", err
		}
		return got[0].Verdict, nil
	}
	for i, o := range sales {
		if got, err := admit(o, "u-1"); got != model.Accepted {
			t.Errorf("sale %d: %s, %v", i, got, err)
		}
	}
	states, err := g.Peek(t.Context(), idsOf(sales)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range states {
		if !s.Open || s.Away || s.Left != sales[i].Stock.Available-1 {
			t.Errorf("gate %d is %+v", i, s)
		}
	}

	dead := c.Of(gateKey(tagOf(several.ID, 0, several.Parts)))
	dead.Kill()
	if states, err = g.Peek(t.Context(), idsOf(sales)...); err != nil {
		t.Fatal(err)
	}
	for i, o := range sales {
		gone := slices.ContainsFunc(of[dead], func(d model.Offer) bool { return d.ID == o.ID }) || o.ID == several.ID
		if states[i].Away != gone || states[i].Open == gone {
			t.Errorf("gate %d, on the dead node %t, is %+v", i, gone, states[i])
		}
		if o.ID == several.ID {
			continue
		}
		if got, err := admit(o, "u-2"); gone && err == nil || !gone && got != model.Accepted {
			t.Errorf("sale %d, on the dead node %t: %s, %v", i, gone, got, err)
		}
	}
	if states, err := g.Peek(t.Context(), of[dead][0].ID); err == nil {
		t.Errorf("a look at nothing but the dead node: %+v", states)
	}
	if _, err := g.StreamLengths(t.Context(), several.ID); err == nil {
		t.Error("the entries of a part that is away are not missed")
	}
	if entries, _, err := g.Read(t.Context(), several.ID, 100); err != nil || len(entries) > 1 {
		t.Errorf("the entries of the others: %v, %v", entries, err)
	}
	if _, _, err := g.Knows(t.Context(), attempt(several, "u-9", 1).ID); err == nil {
		t.Error("an id was said to be unknown, and not all were asked")
	}
	for node, parts := range homes {
		told := map[model.Verdict]int{}
		for i := range 60 { // far more than the part has
			got, err := admit(several, at(several, parts[0], 10+i))
			if err != nil {
				got = "an error"
			}
			told[got]++
		}
		switch {
		case node == dead && told["an error"] != 60:
			t.Errorf("the part on the dead node said %v", told)
		case node != dead && (told[model.Accepted] < 9 || told[model.Unsure]+told[model.Accepted] != 60):
			t.Errorf("a part on a living node said %v", told)
		}
	}

	dead.Restart() // empty
	eventually(t, "the node is back", func() bool {
		states, err = g.Peek(t.Context(), several.ID, of[dead][0].ID)
		return err == nil && !states[0].Away && !states[1].Away
	})
	if states[0].Open || states[1].Open || states[1].Exists {
		t.Errorf("an empty node's gates are %+v", states)
	}
	if got, err := admit(of[dead][0], "u-3"); got != model.NoGate {
		t.Errorf("an empty node says %s, %v", got, err)
	}
	b.Logf("%d sales, %d of them on the dead node", len(sales), len(of[dead]))
}

func idsOf(sales []model.Offer) []string {
	list := make([]string, len(sales))
	for i, o := range sales {
		list[i] = o.ID
	}
	return list
}

// A node's replica that takes its place has its gates, and admits nothing by them.
func TestClusterPromotesAReplica(t *testing.T) {
	t.Parallel()
	c := kit.Cluster(t, 3, 1)
	client, err := Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	g, o := New(client, "here", partsOf), offer()
	if err := install(g, 1, contents(o)); err != nil {
		t.Fatal(err)
	}
	dead := c.Of(gateKey(o.ID))
	b := newBench(t, dead.URL())
	if got := b.verdict(g, attempt(o, "u-1", 1)); got != model.Accepted {
		t.Fatal(got)
	}
	if n := must(b, b.client.Wait(t.Context(), 1, patience)); n != 1 {
		t.Fatalf("%d replicas have it", n)
	}
	dead.Kill()
	var states []model.GateState
	eventually(t, "the replica takes over", func() bool {
		states, err = g.Peek(t.Context(), o.ID)
		return err == nil
	})
	if states[0].Open || !states[0].Exists || states[0].Left != 9 {
		t.Errorf("the promoted replica's gate is %+v", states[0])
	}
	if got := b.verdict(g, attempt(o, "u-2", 1)); got != model.NoGate {
		t.Errorf("it says %s", got)
	}
	if _, err := g.Install(t.Context(), 2, []int64{0}, contents(o)); !errors.Is(err, model.ErrStreamMoved) {
		t.Errorf("an install that does not know of the entry there: %v", err)
	}
	if err := install(g, 2, contents(o)); err != nil {
		t.Fatal(err)
	}
	if got := b.verdict(g, attempt(o, "u-2", 1)); got != model.Accepted {
		t.Errorf("the new gate says %s", got)
	}
}
