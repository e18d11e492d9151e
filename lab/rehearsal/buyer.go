package rehearsal

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

// The same values as in web/assets/purchase.js and pace.js.
const (
	// tries is the number of fleeting answers after which a buyer gives up.
	tries = 6
	// punctual is how long after the start the answer not_started is not final.
	punctual = 3 * time.Second
	// notYet is the wait after the answer not_started.
	notYet = 300 * time.Millisecond
	// usualWait is the wait after a fleeting answer without Retry-After.
	usualWait = time.Second
	// jitter bounds the random delay before the request for the path, after those of the page.
	jitter = 300 * time.Millisecond
)

const (
	// botTries is how many requests a bot sends at most. botPause is the pause between two of them.
	botTries, botPause = 20, 20 * time.Millisecond
	// Of each botsPerAddress buyers in a row, the bots share one address.
	botsPerAddress = 50
)

// buyer is a person or a bot of the crowd.
type buyer struct {
	n               int
	user, token     string
	address, key    string
	slow, pays, bot bool
	rng             *rand.Rand
}

// userPrefix begins the ids of the made-up buyers.
const userPrefix = "crowd-"

// visitor is the user of the token of public requests. Without a token they would not find the hidden sale. The token is the same
// for all buyers, so that caches may answer.
const visitor = userPrefix + "visitor"

func userOf(n int) string { return userPrefix + strconv.Itoa(n) }

// newBuyer makes the buyer with this number. Everything but the token depends on the shape and the number alone.
func (c *crowd) newBuyer(n int) *buyer {
	b := &buyer{n: n, user: userOf(n), rng: rand.New(rand.NewPCG(c.shape.Seed, uint64(n)+1))} //nolint:gosec // repeatable, and n is not negative
	b.bot, b.slow, b.pays = b.rng.Float64() < c.shape.Bots, b.rng.Float64() < c.shape.Slow, b.rng.Float64() < c.shape.Pay
	b.key = fmt.Sprintf("%x", b.rng.Uint64())
	from := n
	if b.bot {
		b.slow, from = false, n/botsPerAddress
	}
	b.address = addressOf(from)
	b.token, _ = c.token(b.user) // no error, since newCrowd could sign the visitor's token
	return b
}

// token signs a token with the role crowd, which sees shadow sales.
func (c *crowd) token(user string) (string, error) {
	token, _, err := c.tokens.Sign(model.Identity{UserID: user, Role: model.RoleCrowd}, c.shape.Lasts+tokenGrace)
	return token, err
}

// tokenGrace is how long a token is valid in addition to the time of the arrivals.
const tokenGrace = time.Hour

// addressOf returns an address in 198.18.0.0/15, the network that RFC 2544 reserves for load tests.
func addressOf(n int) string { return fmt.Sprintf("198.%d.%d.%d", 18+(n>>16)%2, (n>>8)%256, n%256) }

// told is what a buyer was told about an attempt in the end.
type told struct {
	buyer   int
	bot     bool
	order   string            // the id; empty: the buyer was told of no order
	status  model.OrderStatus // of the order, as last told
	refusal model.Verdict     // the last refusal, or the reason of a rejected order; empty: none
	gaveUp  Stage             // where the buyer gave up; empty: nowhere
}

// String returns the words for the report.
func (t told) String() string {
	switch {
	case t.refusal != "":
		return string(t.refusal)
	case t.order != "" && (t.status != model.OrderQueued || t.gaveUp == ""): // a bot does not follow a queued order
		return string(t.status)
	}
	return "gave up"
}

// person sends the requests of a person.
func (c *crowd) person(ctx context.Context, b *buyer, due time.Time) told {
	if c.shape.Walk == PurchaseWalk {
		return c.buy(ctx, b, due)
	}
	page := request{stage: pageStage, method: http.MethodGet, path: "/sales/" + c.saleID, public: true}
	a, due := c.persist(ctx, b, due, page)
	if !a.ok() {
		return gaveUpOrRefused(told{buyer: b.n}, a, pageStage)
	}
	leave := c.watch(ctx, b, due)
	defer leave()
	// The purchase needs no answer to this request.
	c.do(ctx, b, due, request{stage: timeStage, method: http.MethodGet, path: "/api/v1/time", public: true})
	due = c.now().Add(time.Duration(b.rng.Int64N(int64(jitter))))
	if !pause.For(ctx, due.Sub(c.now())) {
		return told{buyer: b.n, gaveUp: pathStage}
	}
	return c.buy(ctx, b, due)
}

// gaveUpOrRefused adds the last answer to t: the buyer gave up if the answer is fleeting, else was refused.
func gaveUpOrRefused(t told, a answer, stage Stage) told {
	if fleeting(a) {
		t.gaveUp = stage
	} else {
		t.refusal = a.code()
	}
	return t
}

// fleeting reports whether the buyer may repeat the request: after no answer, 429 or 5xx.
func fleeting(a answer) bool {
	return a.status == 0 || a.status == http.StatusTooManyRequests || a.status >= http.StatusInternalServerError
}

// persist sends a request until the answer is not fleeting, up to "tries" times. It returns the last answer and the time.
// If ctx ends, the answer may be missing.
func (c *crowd) persist(ctx context.Context, b *buyer, due time.Time, r request) (a answer, at time.Time) {
	for left := tries; ; left-- {
		a, at = c.do(ctx, b, due, r), c.now()
		if left == 1 || !fleeting(a) {
			return a, at
		}
		due = at.Add(b.hesitate(a.wait))
		if !pause.For(ctx, due.Sub(at)) {
			return answer{}, due
		}
	}
}

// hesitate returns how long a buyer waits: the time that the answer asked for, or usualWait if that is 0, and up to 25% more.
func (b *buyer) hesitate(asked time.Duration) time.Duration {
	if asked == 0 {
		asked = usualWait
	}
	return asked + time.Duration(b.rng.Int64N(int64(asked)/4))
}

// buy makes one attempt, under one key, until it is decided or the buyer gives up. Then it pays for the order, see pay.
func (c *crowd) buy(ctx context.Context, b *buyer, due time.Time) told {
	t := told{buyer: b.n}
	path, renewed, wait := "", false, usualWait
	for left := tries; ; {
		r := c.next(b, t.order, path)
		a := c.do(ctx, b, due, r)
		due = c.now()
		switch {
		case a.ok() && r.stage == pathStage:
			path = a.doc.Path
			continue
		case a.ok() && a.order() == model.OrderQueued:
			first := t.order == ""
			t.order, t.status = a.doc.ID, model.OrderQueued
			if first {
				wait = max(a.wait, usualWait)
				continue
			}
			due = due.Add(wait)
		case a.ok():
			t.order, t.status = a.doc.ID, a.order()
			if t.status == model.OrderRejected {
				t.refusal = a.doc.Reason
				return t
			}
			return c.pay(ctx, b, due, t)
		case a.code() == model.NotStarted && due.Before(c.startsAt.Add(punctual)):
			due = due.Add(notYet)
		case a.code() == model.BadPath && !renewed:
			path, renewed = "", true
		case !fleeting(a) || left == 1:
			return gaveUpOrRefused(t, a, r.stage)
		default:
			left--
			due = due.Add(b.hesitate(a.wait))
		}
		if !pause.For(ctx, due.Sub(c.now())) {
			t.gaveUp = r.stage
			return t
		}
	}
}

// next returns the next request of an attempt: for the path, for an order, or for the state of the order with an id.
func (c *crowd) next(b *buyer, orderID, path string) request {
	switch {
	case orderID != "":
		return request{stage: pollStage, method: http.MethodGet, path: "/api/v1/orders/" + orderID}
	case path == "":
		return request{stage: pathStage, method: http.MethodPost, path: c.sale() + "/path"}
	}
	return request{stage: orderStage, method: http.MethodPost, path: c.sale() + "/" + path + "/orders", key: b.key, body: `{"quantity":1}`}
}

// sale is the path of the sale in the API.
func (c *crowd) sale() string { return "/api/v1/sales/" + c.saleID }

// pay pays for a pending order in the sandbox, if the buyer is to pay, and reads the order again. It returns t with the result.
func (c *crowd) pay(ctx context.Context, b *buyer, due time.Time, t told) told {
	if !b.pays || t.status != model.OrderPending {
		return t
	}
	order, a := "/api/v1/orders/"+t.order, answer{}
	succeeds := func(r request) bool {
		if a, due = c.persist(ctx, b, due, r); !a.ok() {
			t = gaveUpOrRefused(t, a, r.stage)
		}
		return a.ok()
	}
	if !succeeds(request{stage: paymentStage, method: http.MethodPost, path: order + "/payments"}) {
		return t
	}
	page, err := url.Parse(a.doc.PayURL)
	if err != nil {
		t.refusal = "bad_pay_url"
		return t
	}
	// Of the payment's URL only the path is used, so that no request goes to another host.
	if succeeds(request{stage: sandboxStage, method: http.MethodPost, path: page.EscapedPath(), body: "choice=pay", form: true, public: true}) &&
		succeeds(request{stage: lookStage, method: http.MethodGet, path: order}) {
		t.status = a.order()
	}
	return t
}

// watch opens the sale's stream, which "leave" closes. If too many streams are open, it counts the buyer instead.
func (c *crowd) watch(ctx context.Context, b *buyer, due time.Time) (leave func()) {
	select {
	case c.streams.slots <- struct{}{}:
	default:
		c.tally.unstreamed.Add(1)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		defer func() { <-c.streams.slots }()
		c.listen(ctx, b, due)
	})
	return func() {
		cancel()
		listening.Wait()
	}
}

// listen reads the sale's stream until ctx or the stream ends. The stream counts as answered when its first byte comes.
func (c *crowd) listen(ctx context.Context, b *buyer, due time.Time) {
	req, err := c.request(ctx, b, request{method: http.MethodGet, path: c.sale() + "/events", public: true})
	if err != nil {
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Del("Accept-Encoding")
	a := answer{}
	res, err := c.streams.RoundTrip(req)
	if err == nil {
		defer func() { _ = res.Body.Close() }()
		if _, err = io.ReadFull(res.Body, make([]byte, 1)); err == nil {
			a.status = res.StatusCode
		}
	}
	if ctx.Err() == nil {
		c.tally.stages[streamStage].add(a.String(), c.now().Sub(due))
	}
	if a.ok() {
		_, _ = io.Copy(io.Discard, res.Body)
	}
}

// bot buys without the page, with new keys, and without regard to Retry-After. It returns the orders and final refusals.
func (c *crowd) bot(ctx context.Context, b *buyer, due time.Time) (list []told) {
	path := ""
	for try := range botTries {
		t := told{buyer: b.n, bot: true}
		r := c.next(b, "", path)
		r.stage, r.key = botPathStage, fmt.Sprintf("%s-%d", b.key, try)
		if path != "" {
			r.stage = botBuyStage
		}
		a := c.do(ctx, b, due, r)
		switch {
		case a.ok() && path == "":
			path = a.doc.Path
		case a.ok():
			t.order, t.status = a.doc.ID, a.order()
			list = append(list, t)
		case !fleeting(a) && a.code() != model.NotStarted:
			t.refusal = a.code()
			list = append(list, t)
			if t.refusal == model.SoldOut || path == "" {
				return list
			}
		}
		due = c.now().Add(botPause)
		if !pause.For(ctx, botPause) {
			return list
		}
	}
	return list
}
