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
}

// ask makes a call that runs do. It returns do's result, or the error that the scheduler gives the caller instead.
func ask[T any](ctx context.Context, v view, to store, writes bool, what string, do func(context.Context) (T, error), odd ...error) (T, error) {
	var value, none T
	var failed error
	err := v.s.await(ctx, &call{
		label: v.from.name + " " + v.part + ": " + what, store: to, writes: writes, from: v.from, odd: odd,
		run: func(ctx context.Context) error {
			if value, failed = do(ctx); expected(failed) {
				return nil
			}
			return failed
		},
	})
	if err != nil {
		return none, err
	}
	return value, failed
}

// expected reports whether a sound store may return err.
func expected(err error) bool {
	return err == nil || errors.Is(err, model.ErrStreamMoved) || errors.Is(err, model.ErrNewerGate)
}

// nothing is the result of a call that returns only an error.
type nothing = struct{}

func only(err error) (nothing, error) { return nothing{}, err }

// gateView is Redis as a part of an instance uses it.
type gateView struct {
	*gate.Gate
	view
}

func (g gateView) Admit(ctx context.Context, sale string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	return ask(ctx, g.view, inRedis, true, fmt.Sprintf("admit %s of epoch %d", g.s.attempts(attempts), epoch), func(ctx context.Context) ([]model.Outcome, error) {
		outcomes, err := g.Gate.Admit(ctx, sale, attempts, epoch)
		g.s.tellOutcomes(outcomes)
		return outcomes, err
	})
}

func (g gateView) Peek(ctx context.Context, sales ...string) ([]model.GateState, error) {
	return ask(ctx, g.view, inRedis, false, "peek "+g.s.names(sales), func(ctx context.Context) ([]model.GateState, error) {
		states, err := g.Gate.Peek(ctx, sales...)
		g.s.note("  %+v", states)
		return states, err
	})
}

// taken is the result of a read of the stream.
type taken struct {
	entries []model.Entry
	bad     []string
}

func (g gateView) Read(ctx context.Context, sale string, count int) ([]model.Entry, []string, error) {
	t, err := ask(ctx, g.view, inRedis, true, "read "+g.s.name(sale), func(ctx context.Context) (t taken, err error) {
		t.entries, t.bad, err = g.Gate.Read(ctx, sale, count)
		g.s.tellEntries(t.entries)
		return t, err
	})
	return t.entries, t.bad, err
}

func (g gateView) Claim(ctx context.Context, sale string, idle time.Duration, count int) ([]model.Entry, []string, error) {
	t, err := ask(ctx, g.view, inRedis, true, "claim "+g.s.name(sale), func(ctx context.Context) (t taken, err error) {
		t.entries, t.bad, err = g.Gate.Claim(ctx, sale, idle, count)
		g.s.tellEntries(t.entries)
		return t, err
	})
	return t.entries, t.bad, err
}

func (g gateView) Settled(ctx context.Context, sale string, entries []model.Entry, outcomes []model.Outcome) error {
	_, err := ask(ctx, g.view, inRedis, true, "settled "+g.s.entries(entries), func(ctx context.Context) (nothing, error) {
		return only(g.Gate.Settled(ctx, sale, entries, outcomes))
	})
	return err
}

// Wake sends a message, which may arrive late or never. It contains only the ids, as over Redis.
func (g gateView) Wake(_ context.Context, name string, outcomes map[string]model.Outcome) error {
	ids := slices.Sorted(maps.Keys(outcomes))
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = g.s.name(id)
	}
	slices.Sort(names)
	g.send(fmt.Sprintf("wake %s of %s", name, names), func(to *instance) {
		if to.name == name {
			to.waiters.Look(ids)
		}
	})
	return nil
}

func (g gateView) Announce(_ context.Context, sale string) error {
	g.send("announce "+g.s.name(sale), func(to *instance) { to.hear() })
	return nil
}

// send delivers a message to every instance that runs when the message arrives.
func (g gateView) send(what string, deliver func(to *instance)) {
	g.s.post(&call{label: g.from.name + " " + g.part + ": " + what, store: inRedis, writes: true, from: g.from, run: func(context.Context) error {
		for _, to := range g.s.places {
			if to != nil {
				deliver(to)
			}
		}
		return nil
	}})
}

func (g gateView) Close(ctx context.Context, sale string, epoch int64) (bool, error) {
	return ask(ctx, g.view, inRedis, true, fmt.Sprintf("close %s for epoch %d", g.s.name(sale), epoch), func(ctx context.Context) (bool, error) {
		ok, err := g.Gate.Close(ctx, sale, epoch)
		g.s.note("  %t", ok)
		return ok, err
	})
}

func (g gateView) StreamLengths(ctx context.Context, sale string) ([]int64, error) {
	return ask(ctx, g.view, inRedis, false, "measure "+g.s.name(sale), func(ctx context.Context) ([]int64, error) {
		lengths, err := g.Gate.StreamLengths(ctx, sale)
		g.s.note("  %v", lengths)
		return lengths, err
	})
}

func (g gateView) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	o := c.Offer()
	what := fmt.Sprintf("install %s of epoch %d, %d available, over %v entries", g.s.name(o.ID), epoch, o.Stock.Available, lengths)
	return ask(ctx, g.view, inRedis, true, what, func(ctx context.Context) ([]string, error) {
		bad, err := g.Gate.Install(ctx, epoch, lengths, c)
		if err != nil {
			g.s.note("  %v", err)
		}
		return bad, err
	})
}

func (g gateView) CatchUp(ctx context.Context, sale string, after, upTo int64, changes []model.GateChange) error {
	_, err := ask(ctx, g.view, inRedis, true, fmt.Sprintf("tell %s of %s", g.s.name(sale), g.s.changes(changes)), func(ctx context.Context) (nothing, error) {
		return only(g.Gate.CatchUp(ctx, sale, after, upTo, changes))
	})
	return err
}

func (g gateView) Knows(ctx context.Context, orderID string) (model.Request, bool, error) {
	type answer struct {
		request model.Request
		known   bool
	}
	a, err := ask(ctx, g.view, inRedis, false, "knows "+g.s.name(orderID), func(ctx context.Context) (a answer, err error) {
		a.request, a.known, err = g.Gate.Knows(ctx, orderID)
		return a, err
	})
	return a.request, a.known, err
}

func (g gateView) Configure(ctx context.Context, sale model.Sale) error {
	_, err := ask(ctx, g.view, inRedis, true, fmt.Sprintf("configure %s revision %d", g.s.name(sale.ID), sale.Revision), func(ctx context.Context) (nothing, error) {
		return only(g.Gate.Configure(ctx, sale))
	})
	return err
}

// storeView is the database as a part of an instance uses it.
type storeView struct {
	*repository.Store
	view
}

func (d storeView) Offer(ctx context.Context, sale string) (model.Offer, bool, error) {
	type answer struct {
		offer model.Offer
		ok    bool
	}
	a, err := ask(ctx, d.view, inDatabase, false, "offer "+d.s.name(sale), func(ctx context.Context) (a answer, err error) {
		a.offer, a.ok, err = d.Store.Offer(ctx, sale)
		d.s.note("  %+v", a.offer.Stock)
		return a, err
	})
	return a.offer, a.ok, err
}

func (d storeView) NextEpoch(ctx context.Context, sale string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	type answer struct {
		epoch int64
		won   bool
	}
	what := fmt.Sprintf("next epoch of %s after %d, the gate's is %d", d.s.name(sale), seen, gates)
	a, err := ask(ctx, d.view, inDatabase, true, what, func(ctx context.Context) (a answer, err error) {
		a.epoch, a.won, err = d.Store.NextEpoch(ctx, sale, seen, gates, pause)
		d.s.note("  %+v", a)
		return a, err
	})
	return a.epoch, a.won, err
}

func (d storeView) GateContents(ctx context.Context, sale string) (model.GateContents, bool, error) {
	type answer struct {
		contents kit.Contents
		ok       bool
	}
	a, err := ask(ctx, d.view, inDatabase, false, "contents of "+d.s.name(sale), func(ctx context.Context) (a answer, err error) {
		snapshot, ok, err := d.Store.GateContents(ctx, sale)
		if !ok || err != nil {
			return a, err
		}
		a.ok = true
		a.contents, err = kit.ReadContents(ctx, snapshot) // an answer may be lost, so it must not hold a connection
		d.s.note("  %+v", a.contents.Of.Stock)
		return a, err
	})
	return a.contents, a.ok, err
}

func (d storeView) GateChanges(ctx context.Context, sale string, after int64, limit int) ([]model.GateChange, int64, bool, error) {
	type answer struct {
		changes []model.GateChange
		upTo    int64
		more    bool
	}
	a, err := ask(ctx, d.view, inDatabase, false, fmt.Sprintf("changes of %s after %d", d.s.name(sale), after), func(ctx context.Context) (a answer, err error) {
		a.changes, a.upTo, a.more, err = d.Store.GateChanges(ctx, sale, after, limit)
		d.s.note("  %s", d.s.changes(a.changes))
		return a, err
	})
	return a.changes, a.upTo, a.more, err
}

func (d storeView) ForgetGateChanges(ctx context.Context, sale string, upTo int64) error {
	_, err := ask(ctx, d.view, inDatabase, true, fmt.Sprintf("forget the changes of %s up to %d", d.s.name(sale), upTo), func(ctx context.Context) (nothing, error) {
		return only(d.Store.ForgetGateChanges(ctx, sale, upTo))
	})
	return err
}

func (d storeView) Log(ctx context.Context, actor, action, subject, detail string) error {
	_, err := ask(ctx, d.view, inDatabase, true, "log "+action, func(ctx context.Context) (nothing, error) {
		return only(d.Store.Log(ctx, actor, action, subject, detail))
	})
	return err
}

func (d storeView) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	return ask(ctx, d.view, inDatabase, true, "lease "+name, func(ctx context.Context) (bool, error) {
		return d.Store.Lease(ctx, name, holder, ttl)
	})
}

// auditView is the database as the auditor of one sale reads it: other calls may happen between two of its reads.
type auditView struct {
	storeView
	sale string
}

func (a auditView) LiveOffers(ctx context.Context, _ time.Duration) ([]model.Offer, error) {
	return ask(ctx, a.view, inDatabase, false, "live offers", func(ctx context.Context) ([]model.Offer, error) {
		return a.s.offers(ctx, a.sale)
	})
}

func (d storeView) Books(ctx context.Context, sale string) (model.Books, bool, error) {
	type answer struct {
		books model.Books
		ok    bool
	}
	a, err := ask(ctx, d.view, inDatabase, false, "books of "+d.s.name(sale), func(ctx context.Context) (a answer, err error) {
		a.books, a.ok, err = d.Store.Books(ctx, sale)
		return a, err
	})
	return a.books, a.ok, err
}

func (d storeView) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	return ask(ctx, d.view, inDatabase, true, "settle "+d.s.entries(entries), func(ctx context.Context) ([]model.Outcome, error) {
		outcomes, err := d.Store.Settle(ctx, sale, entries)
		d.s.tellOutcomes(outcomes)
		return outcomes, err
	}, model.ErrBroken)
}

func (d storeView) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	return ask(ctx, d.view, inDatabase, true, "refuse "+d.s.name(e.ID), func(ctx context.Context) (model.Outcome, error) {
		return d.Store.Refuse(ctx, e, reason)
	})
}

func (d storeView) Deduct(ctx context.Context, sale string, attempts []model.Attempt) ([]model.Outcome, error) {
	return ask(ctx, d.view, inDatabase, true, "deduct "+d.s.attempts(attempts), func(ctx context.Context) ([]model.Outcome, error) {
		outcomes, err := d.Store.Deduct(ctx, sale, attempts)
		d.s.tellOutcomes(outcomes)
		return outcomes, err
	}, model.ErrLostRace)
}

func (d storeView) Order(ctx context.Context, id string) (model.Order, bool, error) {
	type answer struct {
		order model.Order
		ok    bool
	}
	a, err := ask(ctx, d.view, inDatabase, false, "order "+d.s.name(id), func(ctx context.Context) (a answer, err error) {
		a.order, a.ok, err = d.Store.Order(ctx, id)
		d.s.note("  %t %s %s", a.ok, a.order.Status, a.order.Reason)
		return a, err
	})
	return a.order, a.ok, err
}

// moved is the result of a step in an order's life.
type moved struct {
	order   model.Order
	verdict model.Verdict
}

func (d storeView) Cancel(ctx context.Context, user, id string) (model.Order, model.Verdict, error) {
	m, err := ask(ctx, d.view, inDatabase, true, "cancel "+d.s.name(id), func(ctx context.Context) (m moved, err error) {
		m.order, m.verdict, err = d.Store.Cancel(ctx, user, id)
		d.s.note("  %s", m.verdict)
		return m, err
	})
	return m.order, m.verdict, err
}

func (d storeView) RefundOrder(ctx context.Context, id, actor string) (model.Order, model.Verdict, error) {
	m, err := ask(ctx, d.view, inDatabase, true, "refund "+d.s.name(id), func(ctx context.Context) (m moved, err error) {
		m.order, m.verdict, err = d.Store.RefundOrder(ctx, id, actor)
		d.s.note("  %s", m.verdict)
		return m, err
	})
	return m.order, m.verdict, err
}

func (d storeView) StartPayment(ctx context.Context, user, id, provider string) (model.Payment, model.Verdict, error) {
	type answer struct {
		payment model.Payment
		verdict model.Verdict
	}
	a, err := ask(ctx, d.view, inDatabase, true, "start payment of "+d.s.name(id), func(ctx context.Context) (a answer, err error) {
		a.payment, a.verdict, err = d.Store.StartPayment(ctx, user, id, provider)
		d.s.note("  %s", a.verdict)
		return a, err
	})
	return a.payment, a.verdict, err
}

func (d storeView) ApplyCallback(ctx context.Context, provider string, cb model.Callback) (model.Order, bool, model.Verdict, error) {
	type answer struct {
		order      model.Order
		reinstated bool
		verdict    model.Verdict
	}
	a, err := ask(ctx, d.view, inDatabase, true, "callback of "+cb.ProviderTxnID, func(ctx context.Context) (a answer, err error) {
		a.order, a.reinstated, a.verdict, err = d.Store.ApplyCallback(ctx, provider, cb)
		d.s.note("  %s %s, taken again: %t", a.verdict, a.order.Status, a.reinstated)
		return a, err
	})
	return a.order, a.reinstated, a.verdict, err
}

func (d storeView) Overdue(ctx context.Context, grace time.Duration, step model.ClockStep, limit int, except []string) (map[string][]string, error) {
	return ask(ctx, d.view, inDatabase, false, "look for overdue orders", func(ctx context.Context) (map[string][]string, error) {
		return d.Store.Overdue(ctx, grace, step, limit, except)
	})
}

func (d storeView) Expire(ctx context.Context, sale string, orders []string) ([]model.Release, error) {
	return ask(ctx, d.view, inDatabase, true, "expire on "+d.s.name(sale), func(ctx context.Context) ([]model.Release, error) {
		released, err := d.Store.Expire(ctx, sale, orders)
		if len(released) > 0 {
			d.s.note("  %s", d.s.releases(released))
		}
		return released, err
	})
}

func (d storeView) RefundsDue(ctx context.Context, limit int) ([]model.Payment, error) {
	return ask(ctx, d.view, inDatabase, false, "refunds due", func(ctx context.Context) ([]model.Payment, error) {
		return d.Store.RefundsDue(ctx, limit)
	})
}

func (d storeView) MarkRefunded(ctx context.Context, payment string) error {
	_, err := ask(ctx, d.view, inDatabase, true, "mark a payment refunded", func(ctx context.Context) (nothing, error) {
		return only(d.Store.MarkRefunded(ctx, payment))
	})
	return err
}

func (d storeView) ChangeSale(ctx context.Context, change model.SaleChange) (model.Offer, model.Verdict, error) {
	type answer struct {
		offer   model.Offer
		verdict model.Verdict
	}
	a, err := ask(ctx, d.view, inDatabase, true, fmt.Sprintf("%s %s by %d", change.Action, d.s.name(change.SaleID), change.AddQuota), func(ctx context.Context) (a answer, err error) {
		a.offer, a.verdict, err = d.Store.ChangeSale(ctx, change)
		d.s.note("  %s, revision %d", a.verdict, a.offer.Revision)
		return a, err
	})
	return a.offer, a.verdict, err
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
		switch kind := s.redis.Type(key); kind {
		case "hash":
			fields, err := s.redis.HKeys(key)
			s.must(err)
			for _, f := range fields {
				c.hashes[key] = append(c.hashes[key], f, s.redis.HGet(key, f))
			}
		case "set":
			members, err := s.redis.Members(key)
			s.must(err)
			c.sets[key] = members
		case "stream":
			list, err := s.redis.Stream(key)
			s.must(err)
			groups, err := s.client.XInfoGroups(ctx, key).Result()
			s.must(err)
			copied := streamCopy{entries: slices.Clone(list), groups: groups, at: time.Now()}
			if len(groups) > 0 {
				copied.pending, err = s.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: settlers, Start: "-", End: "+", Count: 1000}).Result()
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
			idle := p.Idle + time.Since(stream.at)
			s.must(s.client.Do(ctx, "XCLAIM", key, settlers, p.Consumer, 0, p.ID, "IDLE", idle.Milliseconds(), "RETRYCOUNT", p.RetryCount, "FORCE", "JUSTID").Err())
		}
	}
}

// name returns the short name of an order's or a sale's id.
func (s *sim) name(id string) string {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.names[id]
}

func (s *sim) names(ids []string) string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = s.name(id)
	}
	return strings.Join(list, " ")
}

func (s *sim) attempts(list []model.Attempt) string {
	ids := make([]string, len(list))
	for i, a := range list {
		ids[i] = a.ID
	}
	return "[" + s.names(ids) + "]"
}

func (s *sim) entries(list []model.Entry) string {
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	return "[" + s.names(ids) + "]"
}

func (s *sim) releases(list []model.Release) string {
	parts := make([]string, len(list))
	for i, r := range list {
		parts[i] = fmt.Sprintf("%s %d", s.name(r.OrderID), r.Units)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (s *sim) changes(list []model.GateChange) string {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = fmt.Sprintf("%s %d by version %d", s.name(c.OrderID), c.Units, c.Version)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (s *sim) tellEntries(list []model.Entry) {
	if len(list) > 0 {
		s.note("  %s", s.entries(list))
	}
}

func (s *sim) tellOutcomes(list []model.Outcome) {
	for _, o := range list {
		switch {
		case o.Order != nil:
			s.note("  %s %s, known before: %t", o.Verdict, o.Order.Status, o.Repeated)
		default:
			s.note("  %s, known before: %t", o.Verdict, o.Repeated)
		}
	}
}
