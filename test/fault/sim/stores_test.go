package sim

import (
	"cmp"
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

// free returns a caller's context for the call itself, which may happen after the caller has gone.
func free(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// bg is the context of the scheduler's own calls.
var bg = context.Background()

// reads returns a call that changes nothing.
func (v view) reads(format string, args ...any) *call {
	for i, arg := range args {
		args[i] = v.s.shown(arg)
	}
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
func ask3[A, B, C any](ctx context.Context, c *call, do func() (A, B, C, error)) (a A, b B, d C, err error) {
	var first A
	var second B
	var third C
	var failed error
	c.run = func() error {
		first, second, third, failed = do()
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

func ask2[A, B any](ctx context.Context, c *call, do func() (A, B, error)) (A, B, error) {
	a, b, _, err := ask3(ctx, c, func() (a A, b B, _ nothing, err error) {
		a, b, err = do()
		return
	})
	return a, b, err
}

func ask[A any](ctx context.Context, c *call, do func() (A, error)) (A, error) {
	a, _, err := ask2(ctx, c, func() (a A, _ nothing, err error) {
		a, err = do()
		return
	})
	return a, err
}

func ask0(ctx context.Context, c *call, do func() error) error {
	_, err := ask(ctx, c, func() (nothing, error) { return nothing{}, do() })
	return err
}

// expected reports whether a sound store may return err.
func expected(err error) bool {
	return err == nil || errors.Is(err, model.ErrStreamMoved) || errors.Is(err, model.ErrNewerGate) || errors.Is(err, model.ErrApart)
}

// gateView is Redis as a part of an instance uses it.
type gateView struct {
	*gate.Gate
	view
}

func (g gateView) Admit(ctx context.Context, attempts []model.Attempt) []model.Admission {
	answers, err := ask(ctx, g.writes("admit %v", attempts), func() ([]model.Admission, error) { return g.Gate.Admit(free(ctx), attempts), nil })
	if err != nil { // the whole call was lost
		return slices.Repeat([]model.Admission{{Err: err}}, len(attempts))
	}
	return answers
}

func (g gateView) Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	return ask(ctx, g.reads("peek %v", gates), func() ([]model.GateState, error) { return g.Gate.Peek(free(ctx), gates...) })
}

func (g gateView) Leftovers(ctx context.Context, gates []model.GateRef, idle time.Duration, count int) ([]model.Entry, map[string][]string, error) {
	c := g.writes("leftovers of %v", gates) // it deletes what it cannot read
	return ask2(ctx, c, func() ([]model.Entry, map[string][]string, error) {
		return g.Gate.Leftovers(free(ctx), gates, idle, count)
	})
}

func (g gateView) Unsettled(ctx context.Context, entries []model.Entry) ([]model.Entry, error) {
	return ask(ctx, g.reads("unsettled of %v", entries), func() ([]model.Entry, error) { return g.Gate.Unsettled(free(ctx), entries) })
}

func (g gateView) Settled(ctx context.Context, entries []model.Entry, outcomes []model.Outcome) ([]model.GateRef, error) {
	c := g.writes("settled %v", entries)
	return ask(ctx, c, func() ([]model.GateRef, error) { return g.Gate.Settled(free(ctx), entries, outcomes) })
}

// Wake sends a message, which may arrive late or never. It contains only the ids, as over Redis.
func (g gateView) Wake(_ context.Context, name string, outcomes map[string]model.Outcome) error {
	ids := slices.Sorted(maps.Keys(outcomes))
	g.send(g.writes("wake %v of %v", name, listed(ids, g.s.name)), func(to *instance) {
		if to.name == name {
			to.waiters.Look(ids)
		}
	})
	return nil
}

func (g gateView) Announce(_ context.Context, sale string) error {
	g.send(g.writes("announce %v", sale), (*instance).hear)
	return nil
}

// send delivers a message to every instance that runs when the message arrives.
func (g gateView) send(c *call, deliver func(to *instance)) {
	c.run = func() error {
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
	c := g.writes("close %v for epoch %v", gate.SaleID, epoch)
	return ask(ctx, c, func() (bool, error) { return g.Gate.Close(free(ctx), gate, epoch) })
}

func (g gateView) StreamLengths(ctx context.Context, gate model.GateRef) ([]int64, error) {
	c := g.reads("measure %v", gate.SaleID)
	return ask(ctx, c, func() ([]int64, error) { return g.Gate.StreamLengths(free(ctx), gate) })
}

func (g gateView) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	o := c.Offer()
	install := g.writes("install %v of epoch %v, %v available, over %v entries", o.ID, epoch, o.Stock.Available, lengths)
	return ask(ctx, install, func() ([]string, error) { return g.Gate.Install(free(ctx), epoch, lengths, c) })
}

func (g gateView) CatchUp(ctx context.Context, gate model.GateRef, after, upTo int64, changes []model.GateChange) error {
	c := g.writes("tell %v of %v", gate.SaleID, changes)
	return ask0(ctx, c, func() error { return g.Gate.CatchUp(free(ctx), gate, after, upTo, changes) })
}

func (g gateView) Knows(ctx context.Context, gate model.GateRef, userID, orderID string) (int, bool, error) {
	c := g.reads("knows %v", orderID)
	return ask2(ctx, c, func() (int, bool, error) { return g.Gate.Knows(free(ctx), gate, userID, orderID) })
}

func (g gateView) Configure(ctx context.Context, sale model.Sale) error {
	c := g.writes("configure %v revision %v", sale.ID, sale.Revision)
	return ask0(ctx, c, func() error { return g.Gate.Configure(free(ctx), sale) })
}

// storeView is the database as a part of an instance uses it.
type storeView struct {
	*repository.Store
	view
}

func (d storeView) Offer(ctx context.Context, sale string) (model.Offer, bool, error) {
	return ask2(ctx, d.reads("offer %v", sale), func() (model.Offer, bool, error) { return d.Store.Offer(free(ctx), sale) })
}

func (d storeView) NextEpoch(ctx context.Context, sale string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	next := d.writes("next epoch of %v after %v, the gate's is %v", sale, seen, gates)
	return ask2(ctx, next, func() (int64, bool, error) { return d.Store.NextEpoch(free(ctx), sale, seen, gates, pause) })
}

func (d storeView) GateContents(ctx context.Context, sale string) (model.GateContents, bool, error) {
	return ask2(ctx, d.reads("contents of %v", sale), func() (model.GateContents, bool, error) {
		snapshot, ok, err := d.Store.GateContents(free(ctx), sale)
		if !ok || err != nil {
			return kit.Contents{}, false, err
		}
		contents, err := kit.ReadContents(free(ctx), snapshot) // an answer may be lost, so it must not hold a connection
		return contents, true, err
	})
}

func (d storeView) GateChanges(ctx context.Context, sale string, after int64, limit int) ([]model.GateChange, int64, bool, error) {
	return ask3(ctx, d.reads("changes of %v after %v", sale, after), func() ([]model.GateChange, int64, bool, error) {
		return d.Store.GateChanges(free(ctx), sale, after, limit)
	})
}

func (d storeView) ForgetGateChanges(ctx context.Context, sale string, upTo int64) error {
	c := d.writes("forget the changes of %v up to %v", sale, upTo)
	return ask0(ctx, c, func() error { return d.Store.ForgetGateChanges(free(ctx), sale, upTo) })
}

func (d storeView) Log(ctx context.Context, actor, action, subject, detail string) error {
	if action == "violation" {
		d.s.ask("violation", func() { d.s.fail("the %s saw wrong books: %s", actor, detail) })
	}
	c := d.writes("log %v", action)
	return ask0(ctx, c, func() error { return d.Store.Log(free(ctx), actor, action, subject, detail) })
}

func (d storeView) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	return ask(ctx, d.writes("lease %v", name), func() (bool, error) { return d.Store.Lease(free(ctx), name, holder, ttl) })
}

// auditView is the database as the auditor of one sale reads it: other calls may happen between two of its reads.
type auditView struct {
	storeView
	sale string
}

func (a auditView) LiveOffers(ctx context.Context, _ time.Duration) ([]model.Offer, error) {
	return ask(ctx, a.reads("live offers"), func() ([]model.Offer, error) { return a.s.offers(free(ctx), a.sale) })
}

func (d storeView) Books(ctx context.Context, sale string) (model.Books, bool, error) {
	return ask2(ctx, d.reads("books of %v", sale), func() (model.Books, bool, error) { return d.Store.Books(free(ctx), sale) })
}

func (d storeView) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	settle := d.writes("settle %v", entries)
	settle.odd = []error{model.ErrBroken}
	return ask(ctx, settle, func() ([]model.Outcome, error) {
		outcomes, err := d.Store.Settle(free(ctx), sale, entries)
		d.s.judge(outcomes, func(i int) model.Attempt { return entries[i].Attempt })
		return outcomes, err
	})
}

func (d storeView) SettleSales(ctx context.Context, entries []model.Entry) ([]model.Outcome, error) {
	settle := d.writes("settle sales %v", entries)
	settle.odd = []error{model.ErrBroken}
	return ask(ctx, settle, func() ([]model.Outcome, error) {
		outcomes, err := d.Store.SettleSales(free(ctx), entries)
		d.s.judge(outcomes, func(i int) model.Attempt { return entries[i].Attempt })
		return outcomes, err
	})
}

func (d storeView) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	return ask(ctx, d.writes("refuse %v", e.ID), func() (model.Outcome, error) { return d.Store.Refuse(free(ctx), e, reason) })
}

func (d storeView) Deduct(ctx context.Context, sale string, attempts []model.Attempt) ([]model.Outcome, error) {
	deduct := d.writes("deduct %v", attempts)
	deduct.odd = []error{model.ErrLostRace}
	return ask(ctx, deduct, func() ([]model.Outcome, error) {
		outcomes, err := d.Store.Deduct(free(ctx), sale, attempts)
		d.s.judge(outcomes, func(i int) model.Attempt { return attempts[i] })
		return outcomes, err
	})
}

// InLine is part of service.PurchaseStore: no sale of the simulation has a line.
func (d storeView) InLine(context.Context, string) (bool, error) { return false, nil }

func (d storeView) Order(ctx context.Context, id string) (model.Order, bool, error) {
	return ask2(ctx, d.reads("order %v", id), func() (model.Order, bool, error) { return d.Store.Order(free(ctx), id) })
}

func (d storeView) Cancel(ctx context.Context, user, id string) (model.Order, model.Verdict, error) {
	return ask2(ctx, d.writes("cancel %v", id), func() (model.Order, model.Verdict, error) {
		order, verdict, err := d.Store.Cancel(free(ctx), user, id)
		d.s.accepts(id, model.OrderPending, verdict, err)
		return order, verdict, err
	})
}

func (d storeView) RefundOrder(ctx context.Context, id, actor string) (model.Order, model.Verdict, error) {
	return ask2(ctx, d.writes("refund %v", id), func() (model.Order, model.Verdict, error) {
		order, verdict, err := d.Store.RefundOrder(free(ctx), id, actor)
		d.s.accepts(id, model.OrderPaid, verdict, err)
		return order, verdict, err
	})
}

func (d storeView) StartPayment(ctx context.Context, user, id, provider string) (model.Payment, model.Verdict, error) {
	return ask2(ctx, d.writes("start payment of %v", id), func() (model.Payment, model.Verdict, error) {
		return d.Store.StartPayment(free(ctx), user, id, provider)
	})
}

func (d storeView) Payment(ctx context.Context, id string) (model.Payment, bool, error) {
	return ask2(ctx, d.reads("a payment"), func() (model.Payment, bool, error) { return d.Store.Payment(free(ctx), id) })
}

func (d storeView) ApplyReport(ctx context.Context, provider string, report model.Report, owed bool) (model.Order, bool, model.Verdict, error) {
	return ask3(ctx, d.writes("callback of %v", report.TxnID()), func() (model.Order, bool, model.Verdict, error) {
		return d.Store.ApplyReport(free(ctx), provider, report, owed)
	})
}

func (d storeView) Overdue(
	ctx context.Context, grace time.Duration, step model.ClockStep, limit int, except []string,
) (map[string][]string, error) {
	c := d.reads("look for overdue orders")
	return ask(ctx, c, func() (map[string][]string, error) { return d.Store.Overdue(free(ctx), grace, step, limit, except) })
}

func (d storeView) Expire(ctx context.Context, sale string, orders []string) ([]model.Release, error) {
	c := d.writes("expire on %v", sale)
	return ask(ctx, c, func() ([]model.Release, error) { return d.Store.Expire(free(ctx), sale, orders) })
}

func (d storeView) RefundsDue(ctx context.Context, provider string, limit int) ([]model.Payment, int, error) {
	return ask2(ctx, d.reads("refunds due"), func() ([]model.Payment, int, error) { return d.Store.RefundsDue(free(ctx), provider, limit) })
}

func (d storeView) TryRefund(ctx context.Context, payment model.Payment) (bool, error) {
	return ask(ctx, d.writes("refund of %v", payment.ProviderTxnID), func() (bool, error) { return d.Store.TryRefund(free(ctx), payment) })
}

func (d storeView) MarkRefunded(ctx context.Context, payment model.Payment) error {
	return ask0(ctx, d.writes("mark a payment refunded"), func() error { return d.Store.MarkRefunded(free(ctx), payment) })
}

func (d storeView) ChangeSale(ctx context.Context, change model.SaleChange) (model.Offer, model.Verdict, error) {
	what := d.writes("%v %v by %v", change.Action, change.SaleID, change.AddQuota)
	return ask2(ctx, what, func() (model.Offer, model.Verdict, error) { return d.Store.ChangeSale(free(ctx), change) })
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

func (catalogView) CampaignSales(context.Context, string) ([]model.Offer, error) { return nil, nil }

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
// Callers wait for each other at the lock, since the bubble's clock does not advance meanwhile.
func (s *sim) offers(ctx context.Context, sale string) (list []model.Offer, err error) {
	s.known.Lock()
	defer s.known.Unlock()
	if s.known.list == nil {
		if s.known.list, err = s.live.LiveOffers(ctx, time.Hour); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(s.known.list), func(o model.Offer) bool { return o.ID != sale }), nil
}

// snapshot is a copy of the contents of Redis.
type snapshot struct {
	hashes  map[string]map[string]string
	streams map[string][]miniredis.StreamEntry
}

func (s *sim) copyRedis() *snapshot {
	c := &snapshot{hashes: map[string]map[string]string{}, streams: map[string][]miniredis.StreamEntry{}}
	for _, key := range s.redis.Keys() {
		var err error
		switch kind := s.redis.Type(key); kind {
		case "hash":
			c.hashes[key], err = s.client.HGetAll(bg, key).Result()
			s.must(err)
		case "stream":
			entries, err := s.redis.Stream(key)
			s.must(err)
			c.streams[key] = slices.Clone(entries)
		default:
			s.must(fmt.Errorf("%s is a %s", key, kind))
		}
	}
	return c
}

// putBack restores Redis to a copy. In production such a Redis is another process, from a disk or a replica, with a run
// id of its own. The Redis in the bubble has no run id, so putBack stores another one in the gates.
func (s *sim) putBack(c *snapshot) {
	s.redis.FlushAll()
	for _, key := range sorted(c.hashes) {
		s.must(s.client.HSet(bg, key, c.hashes[key]).Err())
		if strings.HasSuffix(key, ":gate") {
			s.redis.HSet(key, "run_id", "another")
		}
	}
	for _, key := range sorted(c.streams) {
		for _, e := range c.streams[key] {
			_, err := s.redis.XAdd(key, e.ID, e.Values)
			s.must(err)
		}
	}
}

// name returns the short name of an order's or a sale's id, and any other text as it is.
func (s *sim) name(id string) string {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return cmp.Or(s.memory.names[id], id)
}

func listed[T any](list []T, show func(T) string) string {
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i] = show(element)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// shown formats an argument or a result of a call for the trace, with all that the seed decides, or as "".
func (s *sim) shown(value any) string {
	switch v := value.(type) {
	case string:
		return s.name(v)
	case []model.GateRef:
		return listed(v, func(g model.GateRef) string { return s.name(g.SaleID) })
	case []model.Attempt:
		return listed(v, func(a model.Attempt) string { return s.name(a.ID) })
	case []model.Entry:
		return listed(v, func(e model.Entry) string { return s.name(e.ID) })
	case []model.Outcome:
		return listed(v, func(o model.Outcome) string {
			status := model.OrderStatus("")
			if o.Order != nil {
				status = o.Order.Status
			}
			return fmt.Sprintf("%s %s, known before: %t", o.Verdict, status, o.Repeated)
		})
	case []model.GateChange:
		return listed(v, func(c model.GateChange) string {
			return fmt.Sprintf("%s %d by version %d", s.name(c.OrderID), c.Units, c.Version)
		})
	case []model.Release:
		return listed(v, func(r model.Release) string { return fmt.Sprintf("%s %d", s.name(r.OrderID), r.Units) })
	case model.Offer:
		return fmt.Sprintf("%+v, revision %d", v.Stock, v.Revision)
	case model.GateContents:
		return fmt.Sprintf("%+v", v.Offer().Stock)
	case model.Order:
		return fmt.Sprintf("%s %s", v.Status, v.Reason)
	case []model.GateState, []int64, int64, int, bool, model.Verdict, error:
		return fmt.Sprintf("%+v", v)
	}
	return ""
}

func (s *sim) told(results ...any) {
	var texts []string
	for _, result := range results {
		if text := s.shown(result); text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) > 0 {
		s.note("  %s", strings.Join(texts, "; "))
	}
}
