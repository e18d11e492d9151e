package gate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/test/kit"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and some are meant to happen
	kit.Main(m)
}

// patience bounds each wait for an event that has to come.
const patience = time.Minute

// bench is one Redis with a gate on it, and the test's own look behind the gate.
type bench struct {
	*testing.T
	url    string
	client *redis.Client
	gate   *Gate
}

// eachRedis runs a test on every kind of Redis that the engine runs on.
func eachRedis(t *testing.T, run func(b *bench)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		server, err := embedded.StartRedis()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		run(newBench(t, server.URL()))
	})
	t.Run("redis-server", func(t *testing.T) { run(newBench(t, kit.Redis(t).URL())) })
}

func newBench(t *testing.T, url string) *bench {
	t.Helper()
	b := &bench{T: t, url: url}
	b.client = b.connect()
	b.gate = New(b.client, "here", partsOf)
	return b
}

// inParts are the sales of these tests whose gates are in several parts, with their number.
var inParts sync.Map

func partsOf(_ context.Context, saleID string) (int, error) {
	n, several := inParts.Load(saleID)
	if !several {
		return 1, nil
	}
	return n.(int), nil
}

func (b *bench) connect() *redis.Client {
	b.Helper()
	opts, err := Options(b.url)
	if err != nil {
		b.Fatal(err)
	}
	opts.ReadTimeout = patience // a test may read more at once than the engine does, on a busy machine
	client := redis.NewClient(opts)
	client.AddHook(oneTag{b.T})
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// instance is the gate of another instance of the engine on the same Redis.
func (b *bench) instance(name string) *Gate { return New(b.connect(), name, partsOf) }

// oneTag fails the test when a script gets keys that a Redis Cluster would not let it have together.
type oneTag struct{ t *testing.T }

func (oneTag) DialHook(next redis.DialHook) redis.DialHook { return next }

func (oneTag) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h oneTag) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			n, _ := cmd.Args()[2].(int)
			for _, key := range cmd.Args()[3 : 3+n] {
				if first := cmd.Args()[3]; hashTag(key) == "" || hashTag(key) != hashTag(first) {
					h.t.Errorf("one script with the keys %v and %v", first, key)
				}
			}
		}
		return next(ctx, cmd)
	}
}

// hashTag is the part of a key that decides its slot, empty if the whole key would.
func hashTag(key any) string {
	_, rest, _ := strings.Cut(fmt.Sprint(key), "{")
	tag, _, found := strings.Cut(rest, "}")
	if !found {
		return ""
	}
	return tag
}

var ids = model.NewOrderIDs([]byte("a key for tests"))

// offer is an open sale of 10 units, at most 2 for each user, at version 5 of its stock.
func offer() model.Offer {
	now := time.Now().Truncate(time.Millisecond)
	id := model.NewSaleID()
	return model.Offer{
		Sale: model.Sale{
			ID: id, LimitPerUser: 2, PriceCents: 100, Status: model.SaleLive, Revision: 1,
			StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		},
		Stock: model.Stock{SaleID: id, Quota: 10, Available: 10, Version: 5},
	}
}

// offerIn is an offer whose gate is in parts.
func offerIn(parts int) model.Offer {
	o := offer()
	o.Parts = parts
	inParts.Store(o.ID, parts)
	return o
}

func contents(o model.Offer) kit.Contents { return kit.ContentsOf(o) }

// install calls Install with the lengths that the streams have now.
func install(g *Gate, epoch int64, c kit.Contents) error {
	lengths, err := g.StreamLengths(context.Background(), c.Of.ID)
	if err != nil {
		return err
	}
	_, err = g.Install(context.Background(), epoch, lengths, c)
	return err
}

// entries are all of a sale's streams, taken by nobody.
func (b *bench) entries(o model.Offer) (entries []model.Entry) {
	b.Helper()
	for _, tag := range tagsOf(o.ID, max(o.Parts, 1)) {
		for _, m := range must(b, b.client.XRange(b.Context(), streamKey(tag), "-", "+")) {
			e, ok := parseEntry(o.ID, m)
			if !ok {
				b.Fatalf("no entry: %v", m)
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// open installs the gate of an offer with epoch 1.
func (b *bench) open(o model.Offer) model.Offer {
	b.Helper()
	if err := install(b.gate, 1, contents(o)); err != nil {
		b.Fatal(err)
	}
	return o
}

// attempt is a user's wish for n units, under a request key of its own.
func attempt(o model.Offer, user string, n int) model.Attempt {
	return attemptUnder(o, user, n, "key-"+strconv.FormatInt(time.Now().UnixNano(), 36))
}

func attemptUnder(o model.Offer, user string, n int, key string) model.Attempt {
	return model.Attempt{
		ID: ids.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: n,
		RequestKey: key, RequestHash: model.HashRequest(n),
	}
}

// told tells the gate of changes that follow each other behind what it was installed with.
func (b *bench) told(o model.Offer, changes ...model.GateChange) {
	b.Helper()
	if err := b.gate.CatchUp(b.Context(), o.ID, o.Stock.Version, changes[len(changes)-1].Version, changes); err != nil {
		b.Fatal(err)
	}
}

// admit sends an attempt that has to be admitted.
func (b *bench) admit(a model.Attempt) {
	b.Helper()
	got, err := admitOne(b.Context(), b.gate, a, 0)
	if err != nil || got != (model.Outcome{Verdict: model.Accepted}) {
		b.Fatalf("admit: %+v, %v", got, err)
	}
}

// code runs admit.lua itself; the quantity goes in as it is.
func (b *bench) code(a model.Attempt, quantity any, epoch int64) int64 {
	b.Helper()
	keys := []string{gateKey(a.SaleID), unitsKey(a.SaleID), idsKey(a.SaleID), streamKey(a.SaleID), counterKey(a.SaleID, a.UserID)}
	reply, err := admitScript.Run(b.Context(), b.client, keys, "here", epoch,
		a.ID, a.UserID, quantity, a.RequestHash, a.RequestKey, a.Frequency.Limit, a.Frequency.Window.Milliseconds()).Int64Slice()
	if err != nil || len(reply) != 2 {
		b.Fatalf("admit.lua: %v, %v", reply, err)
	}
	return reply[0]
}

// read takes all new entries of a sale for the gate's instance.
func (b *bench) read(g *Gate, saleID string) []model.Entry {
	b.Helper()
	entries, bad, err := g.Read(b.Context(), saleID, 1000)
	if err != nil || len(bad) > 0 {
		b.Fatalf("read: bad %q, %v", bad, err)
	}
	return entries
}

func (b *bench) settled(o model.Offer, entries []model.Entry, outcomes ...model.Outcome) {
	b.Helper()
	if err := b.gate.Settled(b.Context(), o.ID, entries, outcomes); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) peek(saleID string) model.GateState {
	b.Helper()
	states, err := b.gate.Peek(b.Context(), saleID)
	if err != nil {
		b.Fatal(err)
	}
	return core(states[0])
}

// core leaves of a gate's state what the tests here speak of.
func core(s model.GateState) model.GateState {
	return model.GateState{Exists: s.Exists, Open: s.Open, Epoch: s.Epoch, Left: s.Left, Inflight: s.Inflight, Stream: s.Stream}
}

// want compares the gate with the state that it should have.
func (b *bench) want(o model.Offer, want model.GateState) {
	b.Helper()
	if got := b.peek(o.ID); got != want {
		b.Errorf("the gate is %+v, want %+v", got, want)
	}
}

// units are the users' live units as the gate counts them.
func (b *bench) units(o model.Offer) map[string]string {
	b.Helper()
	units := must(b, b.client.HGetAll(b.Context(), unitsKey(o.ID)))
	delete(units, "") // nobody: a gate may keep its hash alive by such a field
	return units
}

// unitsOf gives the units by user of all parts.
func (b *bench) unitsOf(o model.Offer) map[string]int {
	b.Helper()
	units := map[string]int{}
	for _, tag := range tagsOf(o.ID, max(o.Parts, 1)) {
		for user, n := range must(b, b.client.HGetAll(b.Context(), unitsKey(tag))) {
			if user != nobody {
				units[user] = int(number(n))
			}
		}
	}
	return units
}

func (b *bench) wantUnits(o model.Offer, want map[string]string) {
	b.Helper()
	if got := b.units(o); !maps.Equal(got, want) {
		b.Errorf("units by user are %v, want %v", got, want)
	}
}

// dump is all that Redis holds, but for the counters of requests.
func (b *bench) dump() string {
	b.Helper()
	ctx := b.Context()
	keys := must(b, b.client.Keys(ctx, "*"))
	slices.Sort(keys)
	var text strings.Builder
	for _, key := range keys {
		var value any
		switch kind := must(b, b.client.Type(ctx, key)); kind {
		case "hash":
			value = must(b, b.client.HGetAll(ctx, key))
		case "set":
			members := must(b, b.client.SMembers(ctx, key))
			slices.Sort(members)
			value = members
		case "stream":
			value = must(b, b.client.XRange(ctx, key, "-", "+"))
		case "string":
			if strings.Contains(key, ":requests:") {
				continue
			}
			value = must(b, b.client.Get(ctx, key))
		default:
			b.Fatalf("%s is a %s", key, kind)
		}
		fmt.Fprintln(&text, key, value)
	}
	return text.String()
}

// unchanged runs fn, which must change nothing in Redis.
func (b *bench) unchanged(fn func()) {
	b.Helper()
	before := b.dump()
	fn()
	if after := b.dump(); after != before {
		b.Errorf("it changed\n%sto\n%s", before, after)
	}
}

// must gives the value of a command that has to succeed.
func must[T any](b *bench, cmd interface{ Result() (T, error) }) T {
	b.Helper()
	value, err := cmd.Result()
	if err != nil {
		b.Fatal(err)
	}
	return value
}

// ends checks that a key ends with the sale's linger.
func (b *bench) ends(key string, o model.Offer) {
	b.Helper()
	got := must(b, b.client.PExpireTime(b.Context(), key)).Milliseconds()
	if want := o.EndsAt.Add(24 * time.Hour).UnixMilli(); got < want-1 || got > want+1 {
		b.Errorf("%s ends at %d ms, want %d", key, got, want)
	}
}

// eventually waits until check is content: for what nothing announces.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !check() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// admitOne admits an attempt by itself.
func admitOne(ctx context.Context, g *Gate, a model.Attempt, epoch int64) (model.Outcome, error) {
	outcomes, err := g.Admit(ctx, a.SaleID, []model.Attempt{a}, epoch)
	if err != nil {
		return model.Outcome{}, err
	}
	if outcomes[0].Verdict == model.NoGate {
		return model.Outcome{}, model.ErrNoGate
	}
	return outcomes[0], nil
}
