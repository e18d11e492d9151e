package gate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis would log the broken connections that tests cause on purpose
	kit.Main(m)
}

// all is more entries than any of these tests reads at a time.
const all = 1000

var (
	accepted     = model.Outcome{Verdict: model.Accepted}
	repeated     = model.Outcome{Verdict: model.Accepted, Repeated: true}
	mismatch     = model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}
	soldOut      = model.Outcome{Verdict: model.SoldOut}
	limitReached = model.Outcome{Verdict: model.LimitReached}
)

// bench is one Redis, the gates of one instance on it, and a client for what a test reads or changes behind the gates.
type bench struct {
	testing.TB
	url    string
	client *redis.Client
	gate   *Gate
	shards int // of the gates of the offers that sale and offer return
}

// eachRedis runs a test on every kind of Redis that the engine supports.
func eachRedis(t *testing.T, run func(b *bench)) {
	t.Helper()
	onEach(t, 1, run)
}

// eachGate runs a test on every kind of Redis, with gates in one shard and in three shards.
func eachGate(t *testing.T, run func(b *bench)) {
	t.Helper()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) { onEach(t, shards, run) })
	}
}

func onEach(t *testing.T, shards int, run func(b *bench)) {
	t.Helper()
	on := func(t *testing.T, url string) {
		b := newBench(t, url)
		b.shards = shards
		run(b)
	}
	t.Run("embedded", func(t *testing.T) { on(t, embeddedRedis(t)) })
	t.Run("redis-server", func(t *testing.T) { on(t, kit.Redis(t).URL()) })
}

// embeddedRedis starts a Redis inside the process, which ends with the test.
func embeddedRedis(t testing.TB) (url string) {
	t.Helper()
	server, err := embedded.StartRedis()
	check.NoError(t, err)
	t.Cleanup(server.Close)
	return server.URL()
}

func newBench(t testing.TB, url string) *bench {
	t.Helper()
	return (&bench{TB: t, url: url, shards: 1}).as("here")
}

// as returns the bench of another instance of the engine on the same Redis.
func (b *bench) as(instance string) *bench {
	b.Helper()
	other := *b
	other.client = b.connect()
	other.gate = New(other.client, instance)
	other.gate.TransferTime = check.Patience
	return &other
}

// over returns a bench whose gates are reached by another client.
func (b *bench) over(client redis.UniversalClient) *bench {
	other := *b
	other.gate = New(client, "here")
	other.gate.TransferTime = check.Patience
	return &other
}

func (b *bench) connect() *redis.Client {
	b.Helper()
	client := kit.RedisClient(b, b.url)
	client.AddHook(tagged(b))
	return client
}

// dial returns a client that Connect or ConnectReplicas has made.
func dial(t testing.TB, connect func(address string) (redis.UniversalClient, error), address string) redis.UniversalClient {
	t.Helper()
	client, err := connect(address)
	check.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// scriptHook replaces each run of a script.
type scriptHook func(ctx context.Context, script *redis.Cmd, run redis.ProcessHook) error

func (scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" {
			return next(ctx, cmd)
		}
		return h(ctx, cmd.(*redis.Cmd), next)
	}
}

// tagged fails the test if a script gets a key without a hash tag, except the one that all sales share without a Cluster. A
// Redis Cluster refuses a script whose keys are in several slots, see TestClusterLosesANode.
func tagged(t testing.TB) scriptHook {
	return func(ctx context.Context, script *redis.Cmd, run redis.ProcessHook) error {
		for _, key := range script.Args()[3 : 3+script.Args()[2].(int)] {
			if hashTag(key) == "" && key != countersKey("", false) {
				t.Errorf("a script has the key %v without a tag", key)
			}
		}
		return run(ctx, script)
	}
}

// hashTag returns the shard of a key in braces, which decides the key's slot, or an empty string if the key has none.
func hashTag(key any) string {
	_, rest, _ := strings.Cut(fmt.Sprint(key), "{")
	tag, _, found := strings.Cut(rest, "}")
	if !found {
		return ""
	}
	return tag
}

var ids = model.NewOrderIDs([]byte("a key for tests"))

// offer returns an open sale of 10 units, at most 2 for each user, at version 5 of its stock.
func offer() model.Offer {
	now := time.Now().Truncate(time.Millisecond)
	id := model.NewSaleID()
	return model.Offer{
		Sale: model.Sale{
			ID: id, LimitPerUser: 2, PriceCents: 100, Status: model.SaleLive, Revision: 1,
			StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Shards: 1,
		},
		Stock: model.Stock{SaleID: id, Quota: 10, Available: 10, Version: 5},
	}
}

// offerIn returns an offer whose gate has several shards.
func offerIn(shards int) model.Offer {
	o := offer()
	o.Shards = shards
	return o
}

// offer returns an offer whose gate has as many shards as the bench says.
func (b *bench) offer() model.Offer { return offerIn(b.shards) }

// home returns the hash tag of the shard that holds the data of a user.
// tag returns the tag of the first shard of a sale's gate.
func tag(o model.Offer) string { return tagsOf(o.GateRef())[0] }

func home(gate model.GateRef, user string) string { return homeTag(gate, user) }

// userAt returns the n-th user whose data is in a shard of a sale's gate.
func userAt(o model.Offer, shard, n int) string {
	for i := 0; ; i++ {
		if user := fmt.Sprint("u-", i); homeOf(user, len(tagsOf(o.GateRef()))) == shard {
			if n--; n < 0 {
				return user
			}
		}
	}
}

// attempt returns a purchase of n units under an idempotency key of its own.
func attempt(o model.Offer, user string, n int) model.Attempt {
	return attemptUnder(o, user, n, "key-"+strconv.FormatInt(time.Now().UnixNano(), 36))
}

func attemptUnder(o model.Offer, user string, n int, key string) model.Attempt {
	return model.Attempt{
		ID: ids.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: n,
		IdempotencyKey: key, Shards: o.Shards,
	}
}

// must returns the result of a command that has to succeed.
func must[T any](b *bench, cmd interface{ Result() (T, error) }) T {
	b.Helper()
	value, err := cmd.Result()
	check.NoError(b, err)
	return value
}

// tryInstall calls Install with the present lengths of the streams.
func (b *bench) tryInstall(epoch int64, c kit.Contents) error {
	lengths, err := b.gate.StreamLengths(b.Context(), c.Of.GateRef())
	if err != nil {
		return err
	}
	_, err = b.gate.Install(b.Context(), epoch, lengths, c)
	return err
}

func (b *bench) install(epoch int64, c kit.Contents) {
	b.Helper()
	check.NoError(b, b.tryInstall(epoch, c))
}

// open installs the gate of an offer with epoch 1.
func (b *bench) open(o model.Offer) model.Offer {
	b.Helper()
	b.install(1, kit.ContentsOf(o))
	return o
}

// sale returns an offer with an open gate.
func (b *bench) sale() model.Offer {
	b.Helper()
	return b.open(b.offer())
}

func (b *bench) close(o model.Offer, epoch int64) (ok bool) {
	b.Helper()
	ok, err := b.gate.Close(b.Context(), o.GateRef(), epoch)
	check.NoError(b, err)
	return ok
}

// catchUp applies changes to a gate, from the version with which it was installed to that of the last change.
func (b *bench) catchUp(o model.Offer, changes ...model.GateChange) {
	b.Helper()
	check.NoError(b, b.gate.CatchUp(b.Context(), o.GateRef(), o.Stock.Version, changes[len(changes)-1].Version, changes))
}

// tryAdmit judges one attempt.
func (b *bench) tryAdmit(a model.Attempt, epoch int64) (model.Outcome, error) {
	a.LeastEpoch = epoch
	answer := b.gate.Admit(b.Context(), []model.Attempt{a})[0]
	return answer.Outcome, answer.Err
}

// judgeAll judges a batch of attempts.
func (b *bench) judgeAll(attempts []model.Attempt) []model.Outcome {
	b.Helper()
	outcomes := make([]model.Outcome, len(attempts))
	for i, answer := range b.gate.Admit(b.Context(), attempts) {
		check.NoError(b, answer.Err)
		outcomes[i] = answer.Outcome
	}
	return outcomes
}

func (b *bench) judge(a model.Attempt, epoch int64) model.Outcome {
	b.Helper()
	got, err := b.tryAdmit(a, epoch)
	check.NoError(b, err)
	return got
}

func (b *bench) verdict(a model.Attempt) model.Verdict {
	b.Helper()
	return b.judge(a, 0).Verdict
}

// admit sends an attempt that has to be admitted.
func (b *bench) admit(a model.Attempt) {
	b.Helper()
	if got := b.judge(a, 0); got != accepted {
		b.Fatalf("admit: %+v", got)
	}
}

// admitAll sends attempts that have to be admitted, in batches of the largest size that callers use.
func (b *bench) admitAll(attempts []model.Attempt) {
	b.Helper()
	for some := range slices.Chunk(attempts, 512) {
		for i, got := range b.judgeAll(some) {
			if got.Verdict != model.Accepted {
				b.Fatalf("attempt %s: %+v", some[i].IdempotencyKey, got)
			}
		}
	}
}

// count counts a request and returns after which time it may be repeated; 0: it is allowed.
func (b *bench) count(gate model.GateRef, user string, limit model.Frequency) (retryAfter time.Duration) {
	b.Helper()
	retryAfter, ok, err := b.gate.Count(b.Context(), gate, user, limit)
	check.NoError(b, err)
	check.Same(b, "whether the request is allowed", ok, retryAfter == 0)
	return retryAfter
}

// read returns entries of a sale's streams, at most count of each shard. All of them must be readable.
func (b *bench) read(o model.Offer, count int) []model.Entry {
	b.Helper()
	return b.leftovers(0, count, o)
}

func (b *bench) leftovers(idle time.Duration, count int, offers ...model.Offer) []model.Entry {
	b.Helper()
	var gates []model.GateRef
	for _, o := range offers {
		gates = append(gates, o.GateRef())
	}
	entries, bad, err := b.gate.Leftovers(b.Context(), gates, idle, count)
	if err != nil || len(bad) > 0 {
		b.Fatalf("unreadable entries: %q, error: %v", bad, err)
	}
	return entries
}

func (b *bench) unsettled(entries []model.Entry) []model.Entry {
	b.Helper()
	rest, err := b.gate.Unsettled(b.Context(), entries)
	check.NoError(b, err)
	return rest
}

// settle settles entries with the outcomes in the same order; a single outcome is that of all entries.
func (b *bench) settle(entries []model.Entry, outcomes ...model.Outcome) {
	b.Helper()
	if len(outcomes) == 1 {
		outcomes = slices.Repeat(outcomes, len(entries))
	}
	_, err := b.gate.Settled(b.Context(), entries, outcomes)
	check.NoError(b, err)
}

// entries returns the entries of a sale's streams, and takes none.
func (b *bench) entries(o model.Offer) (entries []model.Entry) {
	b.Helper()
	for _, tag := range tagsOf(o.GateRef()) {
		for _, m := range must(b, b.client.XRange(b.Context(), streamKey(tag), "-", "+")) {
			e, ok := parseEntry(o.GateRef(), m)
			if !ok {
				b.Fatalf("not an entry: %v", m)
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// peek returns the state of a gate without revision and version.
func (b *bench) peek(o model.Offer) model.GateState {
	b.Helper()
	states, err := b.gate.Peek(b.Context(), o.GateRef())
	check.NoError(b, err)
	states[0].Revision, states[0].Version = 0, 0
	return states[0]
}

func (b *bench) want(o model.Offer, want model.GateState) {
	b.Helper()
	check.Same(b, "the gate", b.peek(o), want)
}

// wantKnown checks whether a gate knows an attempt and its quantity.
func (b *bench) wantKnown(a model.Attempt, want bool) {
	b.Helper()
	got, known, err := b.gate.Knows(b.Context(), a.GateRef(), a.UserID, a.ID)
	if err != nil || known != want || known && got != a.Quantity {
		b.Errorf("the quantity of %s is %d, known: %t, %v; want %d, %t", a.UserID, got, known, err, a.Quantity, want)
	}
}

// units returns the live units of users in all shards of a gate.
func (b *bench) units(o model.Offer) map[string]int {
	b.Helper()
	units := map[string]int{}
	for _, tag := range tagsOf(o.GateRef()) {
		for user, n := range must(b, b.client.HGetAll(b.Context(), unitsKey(tag))) {
			if model.ValidUserID(user) {
				units[user] = int(number(n))
			}
		}
	}
	return units
}

func (b *bench) wantUnits(o model.Offer, want map[string]int) {
	b.Helper()
	check.Same(b, "the units of users", b.units(o), want)
}

// counters returns the key of the counters of requests.
func (b *bench) counters(tag string) string { return countersKey(tag, b.gate.isCluster()) }

func (b *bench) keys(pattern string) []string {
	b.Helper()
	return slices.Sorted(slices.Values(must(b, b.client.Keys(b.Context(), pattern))))
}

// dump returns the contents of Redis, except the counters of requests.
func (b *bench) dump() string {
	b.Helper()
	ctx := b.Context()
	var text strings.Builder
	for _, key := range b.keys("*") {
		if strings.HasSuffix(key, ":requests") {
			continue
		}
		var value any
		switch kind := must(b, b.client.Type(ctx, key)); kind {
		case "hash":
			value = must(b, b.client.HGetAll(ctx, key))
		case "stream":
			value = must(b, b.client.XRange(ctx, key, "-", "+"))
		default:
			b.Fatalf("%s is a %s", key, kind)
		}
		fmt.Fprintln(&text, key, value)
	}
	return text.String()
}

// unchanged runs fn, which must not change the contents of Redis.
func (b *bench) unchanged(fn func()) {
	b.Helper()
	before := b.dump()
	fn()
	check.Same(b, "what Redis contains", b.dump(), before)
}

// ends checks that keys expire a day after the end of the sale.
func (b *bench) ends(o model.Offer, keys ...string) {
	b.Helper()
	for _, key := range keys {
		got := must(b, b.client.PExpireTime(b.Context(), key)).Milliseconds()
		if want := o.EndsAt.Add(24 * time.Hour).UnixMilli(); got < want-1 || got > want+1 {
			b.Errorf("%s expires at %d ms, want %d", key, got, want)
		}
	}
}
