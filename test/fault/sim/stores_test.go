package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit"
)

// pipe returns the settings of a client for the Redis in the bubble. Keys don't expire in this Redis: no world lasts a
// minute, which is the shortest life of a key.
func pipe(m *miniredis.Miniredis) *redis.Options {
	return &redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		Protocol: 2, DisableIdentity: true, PoolSize: 16, ReadTimeout: -2, WriteTimeout: -2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// view is a store as one part of one instance uses it: each call waits for the scheduler.
type view struct {
	s    *sim
	from *instance
	part string
	to   store
}

// reads returns a call that changes nothing.
func (v view) reads(format string, args ...any) *call {
	return &call{label: v.from.name + " " + v.part + ": " + fmt.Sprintf(format, args...), store: v.to, from: v.from}
}

func (v view) writes(format string, args ...any) *call {
	c := v.reads(format, args...)
	c.writes = true
	return c
}

// nothing stands for a result that a call does not have.
type nothing struct{}

// ask3 makes a call that runs do. It returns do's results, or the error that the scheduler gives the caller instead.
func ask3[A, B, C any](ctx context.Context, c *call, do func(context.Context) (A, B, C, error)) (a A, b B, d C, err error) {
	var first A
	var second B
	var third C
	var failed error
	c.run = func(ctx context.Context) error {
		first, second, third, failed = do(ctx)
		c.from.s.told(first, second, third, failed)
		if expected(failed) {
			return nil
		}
		return failed
	}
	if err := c.from.s.await(ctx, c); err != nil {
		return a, b, d, err
	}
	return first, second, third, failed
}

func ask2[A, B any](ctx context.Context, c *call, do func(context.Context) (A, B, error)) (A, B, error) {
	a, b, _, err := ask3(ctx, c, func(ctx context.Context) (A, B, nothing, error) {
		a, b, err := do(ctx)
		return a, b, nothing{}, err
	})
	return a, b, err
}

func ask[A any](ctx context.Context, c *call, do func(context.Context) (A, error)) (A, error) {
	a, _, err := ask2(ctx, c, func(ctx context.Context) (A, nothing, error) {
		a, err := do(ctx)
		return a, nothing{}, err
	})
	return a, err
}

func ask0(ctx context.Context, c *call, do func(context.Context) error) error {
	_, err := ask(ctx, c, func(ctx context.Context) (nothing, error) { return nothing{}, do(ctx) })
	return err
}

// expected reports whether a sound store may return err.
func expected(err error) bool {
	return err == nil || errors.Is(err, model.ErrStreamMoved) || errors.Is(err, model.ErrNewerGate)
}

// gateView is Redis as a part of an instance uses it.
type gateView struct {
	*gate.Gate
	view
}

func (g gateView) Admit(ctx context.Context, gate model.GateRef, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	return ask(ctx, g.writes("admit %s of epoch %d", g.s.attempts(attempts), epoch), func(ctx context.Context) ([]model.Outcome, error) {
		return g.Gate.Admit(ctx, gate, attempts, epoch)
	})
}

func (g gateView) Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	name := func(gate model.GateRef) string { return g.s.name(gate.SaleID) }
	return ask(ctx, g.reads("peek %s", listed(gates, name)), func(ctx context.Context) ([]model.GateState, error) {
		return g.Gate.Peek(ctx, gates...)
	})
}

func (g gateView) Read(ctx context.Context, gate model.GateRef, count int) ([]model.Entry, []string, error) {
	return ask2(ctx, g.writes("read %s", g.s.name(gate.SaleID)), func(ctx context.Context) ([]model.Entry, []string, error) {
		return g.Gate.Read(ctx, gate, count)
	})
}

func (g gateView) Claim(ctx context.Context, gate model.GateRef, idle time.Duration, count int) ([]model.Entry, []string, error) {
	return ask2(ctx, g.writes("claim %s", g.s.name(gate.SaleID)), func(ctx context.Context) ([]model.Entry, []string, error) {
		return g.Gate.Claim(ctx, gate, idle, count)
	})
}

func (g gateView) Settled(ctx context.Context, gate model.GateRef, entries []model.Entry, outcomes []model.Outcome) error {
	return ask0(ctx, g.writes("settled %s", g.s.entries(entries)), func(ctx context.Context) error {
		return g.Gate.Settled(ctx, gate, entries, outcomes)
	})
}

// Wake sends a message, which may arrive late or never. It contains only the ids, as over Redis.
func (g gateView) Wake(_ context.Context, name string, outcomes map[string]model.Outcome) error {
	ids := slices.Sorted(maps.Keys(outcomes))
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = g.s.name(id)
	}
	slices.Sort(names)
	g.send(g.writes("wake %s of %s", name, names), func(to *instance) {
		if to.name == name {
			to.waiters.Look(ids)
		}
	})
	return nil
}

func (g gateView) Announce(_ context.Context, sale string) error {
	g.send(g.writes("announce %s", g.s.name(sale)), (*instance).hear)
	return nil
}

// send delivers a message to every instance that runs when the message arrives.
func (g gateView) send(c *call, deliver func(to *instance)) {
	c.run = func(context.Context) error {
		for _, to := range g.s.places {
			if to != nil {
				deliver(to)
			}
		}
		return nil
	}
	g.s.post(c)
}

func (g gateView) Close(ctx context.Context, gate model.GateRef, epoch int64) (bool, error) {
	return ask(ctx, g.writes("close %s for epoch %d", g.s.name(gate.SaleID), epoch), func(ctx context.Context) (bool, error) {
		return g.Gate.Close(ctx, gate, epoch)
	})
}

func (g gateView) StreamLengths(ctx context.Context, gate model.GateRef) ([]int64, error) {
	return ask(ctx, g.reads("measure %s", g.s.name(gate.SaleID)), func(ctx context.Context) ([]int64, error) {
		return g.Gate.StreamLengths(ctx, gate)
	})
}

func (g gateView) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	o := c.Offer()
	install := g.writes("install %s of epoch %d, %d available, over %v entries", g.s.name(o.ID), epoch, o.Stock.Available, lengths)
	return ask(ctx, install, func(ctx context.Context) ([]string, error) { return g.Gate.Install(ctx, epoch, lengths, c) })
}

func (g gateView) CatchUp(ctx context.Context, gate model.GateRef, after, upTo int64, changes []model.GateChange) error {
	return ask0(ctx, g.writes("tell %s of %s", g.s.name(gate.SaleID), g.s.changes(changes)), func(ctx context.Context) error {
		return g.Gate.CatchUp(ctx, gate, after, upTo, changes)
	})
}

func (g gateView) Knows(ctx context.Context, gate model.GateRef, userID, orderID string) (model.Request, bool, error) {
	return ask2(ctx, g.reads("knows %s", g.s.name(orderID)), func(ctx context.Context) (model.Request, bool, error) {
		return g.Gate.Knows(ctx, gate, userID, orderID)
	})
}

func (g gateView) Configure(ctx context.Context, sale model.Sale) error {
	return ask0(ctx, g.writes("configure %s revision %d", g.s.name(sale.ID), sale.Revision), func(ctx context.Context) error {
		return g.Gate.Configure(ctx, sale)
	})
}

// storeView is the database as a part of an instance uses it.
type storeView struct {
	*repository.Store
	view
}

func (d storeView) Offer(ctx context.Context, sale string) (model.Offer, bool, error) {
	return ask2(ctx, d.reads("offer %s", d.s.name(sale)), func(ctx context.Context) (model.Offer, bool, error) {
		return d.Store.Offer(ctx, sale)
	})
}

func (d storeView) NextEpoch(ctx context.Context, sale string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	next := d.writes("next epoch of %s after %d, the gate's is %d", d.s.name(sale), seen, gates)
	return ask2(ctx, next, func(ctx context.Context) (int64, bool, error) {
		return d.Store.NextEpoch(ctx, sale, seen, gates, pause)
	})
}

func (d storeView) GateContents(ctx context.Context, sale string) (model.GateContents, bool, error) {
	return ask2(ctx, d.reads("contents of %s", d.s.name(sale)), func(ctx context.Context) (model.GateContents, bool, error) {
		snapshot, ok, err := d.Store.GateContents(ctx, sale)
		if !ok || err != nil {
			return kit.Contents{}, false, err
		}
		contents, err := kit.ReadContents(ctx, snapshot) // an answer may be lost, so it must not hold a connection
		return contents, true, err
	})
}

func (d storeView) GateChanges(ctx context.Context, sale string, after int64, limit int) ([]model.GateChange, int64, bool, error) {
	changes := d.reads("changes of %s after %d", d.s.name(sale), after)
	return ask3(ctx, changes, func(ctx context.Context) ([]model.GateChange, int64, bool, error) {
		return d.Store.GateChanges(ctx, sale, after, limit)
	})
}

func (d storeView) ForgetGateChanges(ctx context.Context, sale string, upTo int64) error {
	return ask0(ctx, d.writes("forget the changes of %s up to %d", d.s.name(sale), upTo), func(ctx context.Context) error {
		return d.Store.ForgetGateChanges(ctx, sale, upTo)
	})
}

func (d storeView) Log(ctx context.Context, actor, action, subject, detail string) error {
	return ask0(ctx, d.writes("log %s", action), func(ctx context.Context) error {
		return d.Store.Log(ctx, actor, action, subject, detail)
	})
}

func (d storeView) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	return ask(ctx, d.writes("lease %s", name), func(ctx context.Context) (bool, error) {
		return d.Store.Lease(ctx, name, holder, ttl)
	})
}

// auditView is the database as the auditor of one sale reads it: other calls may happen between two of its reads.
type auditView struct {
	storeView
	sale string
}

func (a auditView) LiveOffers(ctx context.Context, _ time.Duration) ([]model.Offer, error) {
	return ask(ctx, a.reads("live offers"), func(ctx context.Context) ([]model.Offer, error) { return a.s.offers(ctx, a.sale) })
}

func (d storeView) Books(ctx context.Context, sale string) (model.Books, bool, error) {
	return ask2(ctx, d.reads("books of %s", d.s.name(sale)), func(ctx context.Context) (model.Books, bool, error) {
		return d.Store.Books(ctx, sale)
	})
}

func (d storeView) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	settle := d.writes("settle %s", d.s.entries(entries))
	settle.odd = []error{model.ErrBroken}
	return ask(ctx, settle, func(ctx context.Context) ([]model.Outcome, error) { return d.Store.Settle(ctx, sale, entries) })
}

func (d storeView) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	return ask(ctx, d.writes("refuse %s", d.s.name(e.ID)), func(ctx context.Context) (model.Outcome, error) {
		return d.Store.Refuse(ctx, e, reason)
	})
}

func (d storeView) Deduct(ctx context.Context, sale string, attempts []model.Attempt) ([]model.Outcome, error) {
	deduct := d.writes("deduct %s", d.s.attempts(attempts))
	deduct.odd = []error{model.ErrLostRace}
	return ask(ctx, deduct, func(ctx context.Context) ([]model.Outcome, error) { return d.Store.Deduct(ctx, sale, attempts) })
}

func (d storeView) Order(ctx context.Context, id string) (model.Order, bool, error) {
	return ask2(ctx, d.reads("order %s", d.s.name(id)), func(ctx context.Context) (model.Order, bool, error) {
		return d.Store.Order(ctx, id)
	})
}

func (d storeView) Cancel(ctx context.Context, user, id string) (model.Order, model.Verdict, error) {
	return ask2(ctx, d.writes("cancel %s", d.s.name(id)), func(ctx context.Context) (model.Order, model.Verdict, error) {
		return d.Store.Cancel(ctx, user, id)
	})
}

func (d storeView) RefundOrder(ctx context.Context, id, actor string) (model.Order, model.Verdict, error) {
	return ask2(ctx, d.writes("refund %s", d.s.name(id)), func(ctx context.Context) (model.Order, model.Verdict, error) {
		return d.Store.RefundOrder(ctx, id, actor)
	})
}

func (d storeView) StartPayment(ctx context.Context, user, id, provider string) (model.Payment, model.Verdict, error) {
	return ask2(ctx, d.writes("start payment of %s", d.s.name(id)), func(ctx context.Context) (model.Payment, model.Verdict, error) {
		return d.Store.StartPayment(ctx, user, id, provider)
	})
}

func (d storeView) ApplyCallback(ctx context.Context, provider string, cb model.Callback) (model.Order, bool, model.Verdict, error) {
	callback := d.writes("callback of %s", cb.ProviderTxnID)
	return ask3(ctx, callback, func(ctx context.Context) (model.Order, bool, model.Verdict, error) {
		return d.Store.ApplyCallback(ctx, provider, cb)
	})
}

func (d storeView) Overdue(
	ctx context.Context, grace time.Duration, step model.ClockStep, limit int, except []string,
) (map[string][]string, error) {
	return ask(ctx, d.reads("look for overdue orders"), func(ctx context.Context) (map[string][]string, error) {
		return d.Store.Overdue(ctx, grace, step, limit, except)
	})
}

func (d storeView) Expire(ctx context.Context, sale string, orders []string) ([]model.Release, error) {
	return ask(ctx, d.writes("expire on %s", d.s.name(sale)), func(ctx context.Context) ([]model.Release, error) {
		return d.Store.Expire(ctx, sale, orders)
	})
}

func (d storeView) RefundsDue(ctx context.Context, limit int) ([]model.Payment, error) {
	return ask(ctx, d.reads("refunds due"), func(ctx context.Context) ([]model.Payment, error) {
		return d.Store.RefundsDue(ctx, limit)
	})
}

func (d storeView) MarkRefunded(ctx context.Context, payment string) error {
	return ask0(ctx, d.writes("mark a payment refunded"), func(ctx context.Context) error {
		return d.Store.MarkRefunded(ctx, payment)
	})
}

func (d storeView) ChangeSale(ctx context.Context, change model.SaleChange) (model.Offer, model.Verdict, error) {
	what := d.writes("%s %s by %d", change.Action, d.s.name(change.SaleID), change.AddQuota)
	return ask2(ctx, what, func(ctx context.Context) (model.Offer, model.Verdict, error) { return d.Store.ChangeSale(ctx, change) })
}

// catalogView is the database as the catalog of one sale reads it. The catalog reads often and changes nothing, so it
// doesn't wait for the scheduler. Its only fault is a database that can't be reached.
type catalogView struct {
	view
	sale string
}

func (c catalogView) here() error {
	if c.from.killed() || c.s.away(inDatabase, c.from.place) {
		return errDatabase
	}
	return nil
}

func (c catalogView) LiveOffers(ctx context.Context, _ time.Duration) ([]model.Offer, error) {
	if err := c.here(); err != nil {
		return nil, err
	}
	return c.s.offers(ctx, c.sale)
}

func (c catalogView) Offer(ctx context.Context, sale string) (model.Offer, bool, error) {
	list, err := c.LiveOffers(ctx, 0)
	i := slices.IndexFunc(list, func(o model.Offer) bool { return o.ID == sale })
	if err != nil || i < 0 {
		return model.Offer{}, false, err
	}
	return list[i], true, nil
}

func (c catalogView) SaleCodes(ctx context.Context, _ time.Time) (map[string]string, time.Time, error) {
	list, err := c.LiveOffers(ctx, 0)
	codes := map[string]string{}
	for _, o := range list {
		codes[o.ID] = o.Code
	}
	return codes, time.Now(), err
}

func (c catalogView) Now(context.Context) (time.Time, error) {
	return time.Now().Truncate(time.Millisecond), c.here()
}

// offers returns the live offer of a sale. It queries the database only if something was written since the last query.
func (s *sim) offers(ctx context.Context, sale string) ([]model.Offer, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if s.known.list == nil {
		list, err := s.live.LiveOffers(ctx, time.Hour)
		if err != nil {
			return nil, err
		}
		s.known.list = list
	}
	return slices.DeleteFunc(slices.Clone(s.known.list), func(o model.Offer) bool { return o.ID != sale }), nil
}

// snapshot is a copy of the contents of Redis.
type snapshot struct {
	hashes  map[string][]string
	sets    map[string][]string
	streams map[string]streamCopy
}

type streamCopy struct {
	entries []miniredis.StreamEntry
	groups  []redis.XInfoGroup
	pending []redis.XPendingExt
	at      time.Time
}

// settlers is the consumer group of every stream.
const settlers = "settlers"

func (s *sim) copyRedis() *snapshot {
	ctx := context.Background()
	c := &snapshot{hashes: map[string][]string{}, sets: map[string][]string{}, streams: map[string]streamCopy{}}
	for _, key := range s.redis.Keys() {
		var err error
		switch kind := s.redis.Type(key); kind {
		case "hash":
			fields, err := s.redis.HKeys(key)
			s.must(err)
			for _, f := range fields {
				c.hashes[key] = append(c.hashes[key], f, s.redis.HGet(key, f))
			}
		case "set":
			c.sets[key], err = s.redis.Members(key)
			s.must(err)
		case "stream":
			copied := streamCopy{at: time.Now()}
			entries, err := s.redis.Stream(key)
			s.must(err)
			copied.entries = slices.Clone(entries)
			copied.groups, err = s.client.XInfoGroups(ctx, key).Result()
			s.must(err)
			if len(copied.groups) > 0 {
				all := &redis.XPendingExtArgs{Stream: key, Group: settlers, Start: "-", End: "+", Count: 1000}
				copied.pending, err = s.client.XPendingExt(ctx, all).Result()
				s.must(err)
			}
			c.streams[key] = copied
		default:
			s.must(fmt.Errorf("%s is a %s", key, kind))
		}
	}
	return c
}

// putBack restores Redis to a copy. In production such a Redis is another process, from a disk or a replica, with a run
// id of its own. The Redis in the bubble has no run id, so putBack stores another one in the gates.
func (s *sim) putBack(c *snapshot) {
	ctx := context.Background()
	s.redis.FlushAll()
	for _, key := range sorted(c.hashes) {
		s.redis.HSet(key, c.hashes[key]...)
		if strings.HasSuffix(key, ":gate") {
			s.redis.HSet(key, "server", "another")
		}
	}
	for _, key := range sorted(c.sets) {
		_, err := s.redis.SetAdd(key, c.sets[key]...)
		s.must(err)
	}
	for _, key := range sorted(c.streams) {
		stream := c.streams[key]
		for _, e := range stream.entries {
			_, err := s.redis.XAdd(key, e.ID, e.Values)
			s.must(err)
		}
		for _, g := range stream.groups {
			s.must(s.client.XGroupCreateMkStream(ctx, key, g.Name, g.LastDeliveredID).Err())
		}
		for _, p := range stream.pending {
			idle := (p.Idle + time.Since(stream.at)).Milliseconds()
			s.must(s.client.Do(ctx, "XCLAIM", key, settlers, p.Consumer, 0, p.ID,
				"IDLE", idle, "RETRYCOUNT", p.RetryCount, "FORCE", "JUSTID").Err())
		}
	}
}

// name returns the short name of an order's or a sale's id.
func (s *sim) name(id string) string {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.names[id]
}

// listed formats the elements of a list.
func listed[T any](list []T, show func(T) string) string {
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i] = show(element)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (s *sim) attempts(list []model.Attempt) string {
	return listed(list, func(a model.Attempt) string { return s.name(a.ID) })
}

func (s *sim) entries(list []model.Entry) string {
	return listed(list, func(e model.Entry) string { return s.name(e.ID) })
}

func (s *sim) changes(list []model.GateChange) string {
	return listed(list, func(c model.GateChange) string {
		return fmt.Sprintf("%s %d by version %d", s.name(c.OrderID), c.Units, c.Version)
	})
}

// told adds the results of a call to the trace.
func (s *sim) told(results ...any) {
	var texts []string
	for _, result := range results {
		switch r := result.(type) {
		case []model.Outcome:
			texts = append(texts, listed(r, func(o model.Outcome) string {
				if o.Order == nil {
					return fmt.Sprintf("%s, known before: %t", o.Verdict, o.Repeated)
				}
				return fmt.Sprintf("%s %s, known before: %t", o.Verdict, o.Order.Status, o.Repeated)
			}))
		case []model.Entry:
			texts = append(texts, s.entries(r))
		case []model.GateChange:
			texts = append(texts, s.changes(r))
		case []model.Release:
			texts = append(texts, listed(r, func(r model.Release) string { return fmt.Sprintf("%s %d", s.name(r.OrderID), r.Units) }))
		case model.Offer:
			texts = append(texts, fmt.Sprintf("%+v, revision %d", r.Stock, r.Revision))
		case model.GateContents:
			texts = append(texts, fmt.Sprintf("%+v", r.Offer().Stock))
		case model.Order:
			texts = append(texts, fmt.Sprintf("%s %s", r.Status, r.Reason))
		case []model.GateState, []int64, int64, bool, model.Verdict, error:
			texts = append(texts, fmt.Sprintf("%+v", r))
		}
	}
	if len(texts) > 0 {
		s.note("  %s", strings.Join(texts, "; "))
	}
}
