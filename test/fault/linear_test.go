package fault

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// linearRows check small histories against a model that executes one operation at a time.
var linearRows = []row{
	{6, "Redis's reply lost, no unit in the database, and then one comes back", "who was told no gets none", refusedForGood},
	{29, "linearizable: Redis killed in a small run of buys and cancels", "there is an order of all that happened, one at a time, that explains each answer", linearizable},
}

const (
	// maxKeys is how many different idempotency keys the history of a sale may have.
	maxKeys = 512
	// settling is how long the gate may hold the unit of a refused attempt after the answer, because the buyer is woken
	// first.
	settling = 250 * time.Millisecond
	// decideWithin bounds the search for an order that explains a history.
	decideWithin = 30 * time.Second
	// never is the end of an operation whose answer didn't come.
	never = math.MaxInt64
)

// world is the state of a sale in the model, by idempotency key: 0 if the key has no order; otherwise twice the number of
// the order's id, plus one while the order is live. The units left, and a user's units, follow from it.
type world [maxKeys]uint8

func (w world) String() string { return fmt.Sprint(w.live(), " live") }

func (w *world) live() (n int) {
	for _, k := range w {
		n += int(k & 1)
	}
	return n
}

// question is a client's request to a sale.
type question struct {
	does   string // toBuy, toCancel or toRead
	key    int    // the number of its idempotency key
	others []int  // the other keys of its user
	on     *linearSale
	again  bool // an earlier request had this key, which may have been refused for good
	// early and earlyUser are units, of all users and of this user, that the gate may have missed at this moment: held
	// by attempts that came to nothing, or released by a cancellation and not yet back.
	early, earlyUser int
}

func (q question) String() string {
	return fmt.Sprintf("%s %d (early %d, %d)", q.does, q.key, q.early, q.earlyUser)
}

type linearSale struct{ quota, limit int }

const toRead = "read"

// told is the answer to a question: a code and the number of the order's id; or, to a read, all orders and the units
// left.
type told struct {
	code      string // saidYes, saidNothing, or the code of a refusal
	id        uint8
	orders    []read
	available int
}

// read is an order as the final read of the database returns it.
type read struct {
	key  int // -1: no client used it
	id   uint8
	live bool
}

// next reports whether a sale in this state can give an answer, and returns the state after it.
//
// A purchase is accepted if a unit is left and the user's limit allows it. Under a key that has an order it returns
// that order and changes nothing. A refusal as sold_out or limit_reached is right if it is true, or would be true if
// attempts that came to nothing had held units at that moment, as attempts that wait at the gate do: Redis may refuse
// too early, but never accept too early. A key that has an order is not refused. A cancelled order remains an order,
// and its unit is free. The final read returns every order that was ever made, and no other.
func (w world) next(q question, v told) (world, bool) {
	k := w[q.key]
	switch {
	case q.does == toRead:
		var seen world
		for _, o := range v.orders {
			if o.key < 0 || seen[o.key] != 0 {
				return w, false
			}
			seen[o.key] = o.id * 2
			if o.live {
				seen[o.key]++
			}
		}
		return w, seen == w && v.available == q.on.quota-w.live()
	case q.does == toBuy && v.code == saidYes && k != 0:
		return w, k/2 == v.id
	case q.does == toBuy && v.code == saidYes:
		fits := w.live() < q.on.quota && w.of(q.others) < q.on.limit
		w[q.key] = 2*v.id + 1
		return w, fits
	case q.does == toBuy && v.code == "sold_out":
		return w, k == 0 && (q.again || w.live()+q.early >= q.on.quota)
	case q.does == toBuy && v.code == "limit_reached":
		return w, k == 0 && (q.again || w.of(q.others)+q.earlyUser >= q.on.limit)
	case q.does == toCancel && v.code == saidYes:
		w[q.key] = 2 * v.id
		return w, k == 2*v.id+1
	case q.does == toCancel && v.code == saidNothing: // the order is cancelled, by this call or an earlier one
		w[q.key] = 2 * v.id
		return w, k/2 == v.id
	case q.does == toCancel && v.code == "not_cancellable":
		return w, k&1 == 0
	}
	return w, false
}

func (w *world) of(keys []int) (n int) {
	for _, k := range keys {
		n += int(w[k] & 1)
	}
	return n
}

func saleModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return world{} },
		Step: func(state, input, output any) (bool, any) {
			before, _ := state.(world)
			q, _ := input.(question)
			v, _ := output.(told)
			after, ok := before.next(q, v)
			return ok, after
		},
	}
}

func (a deed) request() [2]string { return [2]string{a.User, a.Key} }

// story holds everything that is known of one sale of a run.
type story struct {
	linearSale
	acts      []deed
	orders    []written // after the run
	available int
	fault     time.Time // from here on Redis may have lost its data, or may lack released units
	// late is by how much more than they promise the gate may be late to take back units. If it isn't 0, the engine may
	// also have done without Redis before the fault, as after a standstill.
	late time.Duration
}

// history turns a story into operations. If the outcome of a request is unknown and the orders show that it was done,
// its operation ends at never. If they don't, it was not done and is left out; excuse still counts the unit that it may
// have held.
func (s *story) history() ([]porcupine.Operation, error) {
	if len(s.acts) == 0 {
		return nil, errors.New("nothing was asked")
	}
	start := slices.MinFunc(s.acts, func(a, b deed) int { return a.Invoked.Compare(b.Invoked) }).Invoked
	end := slices.MaxFunc(s.acts, func(a, b deed) int { return a.Answered.Compare(b.Answered) }).Answered
	n := s.number()
	if len(n.keys) > maxKeys {
		return nil, fmt.Errorf("%d idempotency keys, at most %d fit", len(n.keys), maxKeys)
	}
	final := map[[2]string]written{}
	last := told{available: s.available}
	for _, w := range s.orders {
		final[[2]string{w.user, w.key}] = w
		key, asked := n.keys[[2]string{w.user, w.key}]
		if !asked {
			key = -1
		}
		last.orders = append(last.orders, read{key, n.ids[w.id], w.live()})
	}
	var ops []porcupine.Operation
	for i, a := range s.acts {
		key := n.keys[a.request()] // used by one client
		op := porcupine.Operation{ClientId: key, Call: int64(a.Invoked.Sub(start)), Return: int64(a.Answered.Sub(start))}
		q := question{does: a.does, key: key, others: n.others(a), on: &s.linearSale}
		v := told{code: said(a.Status), id: n.ids[a.OrderID]}
		w, there := final[a.request()]
		switch {
		case v.code == saidNo:
			v.code = a.Code
			if a.does == toBuy {
				s.excuse(&q, i)
			}
		case v.code == saidYes:
		case a.does == toBuy && !there, a.does == toCancel && w.status != "cancelled":
			continue // it was not done
		case a.does == toBuy:
			v.code, op.Return = saidYes, never
			if a.OrderID == "" {
				v.id = n.ids[w.id]
			}
		default:
			op.Return = never
		}
		op.Input, op.Output = q, v
		ops = append(ops, op)
	}
	over := int64(end.Sub(start)) + 1
	return append(ops, porcupine.Operation{Call: over, Return: over + 1, Input: question{does: toRead, on: &s.linearSale}, Output: last}), nil
}

// numbers maps idempotency keys to numbers, and the orders' ids under each key to numbers from 1.
type numbers struct {
	keys map[[2]string]int
	ids  map[string]uint8
}

func (s *story) number() numbers {
	n := numbers{keys: map[[2]string]int{}, ids: map[string]uint8{}}
	under := map[[2]string]uint8{}
	order := func(request [2]string, id string) {
		if _, known := n.ids[id]; id != "" && !known {
			under[request]++
			n.ids[id] = under[request]
		}
	}
	for _, a := range s.acts {
		if _, known := n.keys[a.request()]; !known {
			n.keys[a.request()] = len(n.keys)
		}
		order(a.request(), a.OrderID)
	}
	for _, w := range s.orders {
		order([2]string{w.user, w.key}, w.id)
	}
	return n
}

func (n numbers) others(a deed) (list []int) {
	for request, key := range n.keys {
		if request[0] == a.User && request != a.request() {
			list = append(list, key)
		}
	}
	return list
}

// excuse counts the units that may have made a refusal come too early, because other attempts held them at the gate.
// These are, at any time, the attempts whose outcome is unknown. For a refusal before the fault they are also the
// attempts that were in flight when the fault came. For a refusal after it, when both gate and database sell, they are
// the attempts in flight at the same time as the refused one, and those refused shortly before. After the fault the
// gate may also take as long as a recovery to get a cancelled order's unit back.
func (s *story) excuse(q *question, refused int) {
	r := s.acts[refused]
	calm := s.late == 0 && (s.fault.IsZero() || r.Answered.Before(s.fault))
	for i, a := range s.acts {
		if i == refused || a.Invoked.After(r.Answered) {
			continue
		}
		held, answer, ago := false, said(a.Status), r.Invoked.Sub(a.Answered)
		switch {
		case a.request() == r.request():
			q.again = true
		case a.does == toCancel:
			held = !calm && answer != saidNo && ago < shop.Recovery+s.late
		case answer == saidNothing:
			held = true
		case calm:
			held = !s.fault.IsZero() && a.Answered.After(s.fault)
		default:
			held = ago < 0 || answer == saidNo && ago < settling+s.late
		}
		if held {
			q.early++
			if a.User == r.User {
				q.earlyUser++
			}
		}
	}
}

// errUndecided means that the search for an order took too long.
var errUndecided = errors.New("undecided")

// explained returns nil if one order of the operations explains a story. Otherwise it writes a page to path that shows
// the longest explained part. The error is errUndecided if the search took too long.
func (s *story) explained(path string) error {
	ops, err := s.history()
	if err != nil {
		return err
	}
	result, info := porcupine.CheckOperationsVerbose(saleModel(), ops, decideWithin)
	if result == porcupine.Ok {
		return nil
	}
	err = fmt.Errorf("%s, see %s", result, path)
	if result == porcupine.Unknown {
		err = fmt.Errorf("%w: %w", errUndecided, err)
	}
	return errors.Join(err, porcupine.VisualizePath(saleModel(), info, path))
}

const (
	linearClients = 20
	linearSales   = 3
	linearUsers   = 12 // of a sale; each may have one unit
	linearQuota   = 8
)

// linearizable lets a few clients buy and cancel on a few sales of two instances, repeating some keys, and kills Redis
// meanwhile. The answers on each sale are one history.
func linearizable(d *drill) {
	rounds, acts := size(1, 10), 0
	for round := range rounds {
		for i, story := range d.smallRun(uint64(round)) {
			acts += len(story.acts)
			path := artifact(d, fmt.Sprintf("linear-%d-%d", round, i), ".html")
			err := story.explained(path)
			if err == nil {
				continue
			}
			failed := d.Errorf
			story.late = time.Minute
			if late := story.explained(path); late == nil || errors.Is(late, errUndecided) {
				failed = d.Slowf
			}
			failed("sale %d of run %d: %v", i, round, err)
		}
	}
	d.result.Happened = fmt.Sprintf("%d histories of %d questions in all, each explained", rounds*linearSales, acts)
	if d.Failed() {
		d.result.Happened = "a history that no order explains"
	}
}

// linearRun is a small run on two instances, with a story for each of its sales.
type linearRun struct {
	*drill
	sales     []string
	keys      atomic.Int64
	questions *load
	mu        sync.Mutex // protects the stories
	stories   []*story
}

func (d *drill) smallRun(seed uint64) []*story {
	d.Helper()
	d.stores()
	d.urls = []string{d.Start(ackWait).URL, d.Start(ackWait).URL}
	r := &linearRun{drill: d}
	for range linearSales {
		r.sales = append(r.sales, d.Sale(d.urls[0], linearQuota))
		r.stories = append(r.stories, &story{linearSale: linearSale{linearQuota, 1}})
	}
	questions, ended := d.newLoad()
	r.questions = questions
	for client := range linearClients {
		rng := rand.New(rand.NewPCG(seed, uint64(client)))
		questions.work.Go(func() { r.client(rng, ended) })
	}
	questions.more(120)
	fault := time.Now()
	d.Redis.Kill()
	questions.more(120)
	d.Redis.Restart()
	questions.more(240)
	questions.end()
	questions.work.Wait()

	for i, story := range r.stories {
		story.fault = fault
		for _, it := range story.acts {
			if it.does == toBuy && it.Status == http.StatusAccepted {
				d.until(time.Minute, "the queued order ends", func() (bool, error) {
					status := d.orderStatus(d.urls[0], it.Attempt)
					return status != "queued" && !strings.Contains(status, " "), nil
				})
			}
		}
		d.Audited(d.urls[0], r.sales[i])
		balance, err := d.books.balance(d.Context(), r.sales[i])
		d.ok(err)
		story.available = balance.available
		story.orders, err = d.books.orders(d.Context(), r.sales[i])
		d.ok(err)
		d.result.Confirmed += len(story.orders)
	}
	return r.stories
}

func (r *linearRun) note(sale int, it deed) {
	r.mu.Lock()
	r.stories[sale].acts = append(r.stories[sale].acts, it)
	r.mu.Unlock()
	r.record.add(it.does, it.Attempt)
	r.questions.note(it.Attempt)
}

// client sends one request after the other. While it holds orders, about every third request cancels the oldest. The
// others are purchases under a new key, by one of a few users; after an unknown outcome the purchase is repeated once, at
// a randomly chosen instance.
func (r *linearRun) client(rng *rand.Rand, ended <-chan struct{}) {
	anyURL := func() string { return r.urls[rng.IntN(len(r.urls))] }
	type holding struct {
		sale  int
		order shop.Attempt
	}
	var held []holding
	for {
		select {
		case <-ended:
			return
		default:
		}
		if len(held) > 0 && rng.IntN(3) == 0 {
			r.note(held[0].sale, r.cancel(held[0].order, anyURL()))
			held = held[1:]
			continue
		}
		sale := rng.IntN(len(r.sales))
		user, key := fmt.Sprintf("u%d-%d", sale, rng.IntN(linearUsers)), fmt.Sprint("key-", r.keys.Add(1))
		for range 2 {
			a := shop.Attempt{User: user, Key: key, URL: anyURL()}
			r.Buy(&a, r.sales[sale])
			r.note(sale, deed{toBuy, a})
			if a.Confirmed() {
				held = append(held, holding{sale, a})
			}
			if said(a.Status) != saidNothing {
				break
			}
		}
	}
}

// refusedForGood has Redis admit an attempt and loses its reply; the database, asked instead, has no unit left. Then a
// unit is released before the entry is settled. A buyer with a final refusal must not get that unit.
func refusedForGood(d *drill) {
	d.stores()
	link := d.proxy(d.Redis.Addr())
	none := kit.Redis(d)
	gated, alone := d.Start("--redis", link.RedisURL()), d.Start("--redis", none.URL())
	none.Kill()
	d.sell(1, gated)
	d.buy("before", "k", gated.URL) // loads the script into Redis
	d.sell(1, alone)
	client := d.client(d.Redis)
	reports := func() string { return d.tell(client, "HGETALL", "fs:instances") }
	last := reports()
	// An instance brings such an order to the gate once a second, and reports right after that.
	d.until(recoveryTime, "the instance has just looked at its gates", func() (bool, error) { return reports() != last, nil })
	first := d.buy("first", "k1", alone.URL) // the gate gets it at the next look
	link.LoseReplies()
	second := d.buy("second", "k2", gated.URL)
	if first.Confirmed() && second.Confirmed() {
		d.Fatal("two buyers were told yes, and there is one unit")
	}
	d.mustBe(first.Confirmed(), first.Status, "the first was told %d %s", first.Status, first.Code)
	if n := d.tell(client, "XLEN", gateKey(d.sale, "stream")); n != "1" {
		d.FatalSlowf("%s entries; the second was told %d %s", n, second.Status, second.Code)
	}
	back := d.cancel(first, alone.URL)
	d.mustBe(said(back.Status) == saidYes, back.Status, "the order can't be cancelled: %d %s", back.Status, back.Code)
	link.Restore()
	d.until(time.Minute, "the entry is settled", d.streamEmpty(client))
	d.attempts = []shop.Attempt{first, second}
	d.finish("%s, and the entry was settled after that", tally(d.attempts[1:]))
}
