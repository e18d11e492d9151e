package rehearsal

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

// front answers requests as a front door does, without a network.
type front func(r *http.Request) (status int, body, retryAfter string)

// RoundTrip implements http.RoundTripper.
func (f front) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, retryAfter := f(r)
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
	res.Header.Set("Retry-After", retryAfter)
	if body != "" {
		res.Header.Set("Content-Type", "application/json")
	}
	return res, nil
}

// crowdAt makes a crowd before a front door, for a sale that starts now.
func crowdAt(s *Shape, connections int, door front) *crowd {
	s.Walk = PurchaseWalk
	if s.Lasts == 0 {
		s.Lasts = time.Second
	}
	tokens := auth.NewTokens([]byte(strings.Repeat("secret", 6)), time.Now)
	c := check.Must(newCrowd("http://shop", connections, s, tokens, time.Now))
	c.quick.RoundTripper, c.saleID, c.startsAt = door, "SALE", time.Now()
	return c
}

const path = `{"path":"hidden"}`

// A server that stands still for ten seconds stops nobody from coming, and no latency hides it: each counts from the time
// at which the buyer came.
func TestAStalledServerCannotHide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Shape{Buyers: 10}
		for i := range 10 {
			s.at = append(s.at, time.Duration(i)*100*time.Millisecond)
		}
		stalled := false
		c := crowdAt(s, 1, func(r *http.Request) (int, string, string) {
			if !stalled {
				stalled = true
				time.Sleep(10 * time.Second) // by the bubble's clock
			}
			if strings.HasSuffix(r.URL.Path, "/path") {
				return 200, path, ""
			}
			return 409, `{"status":409,"code":"sold_out"}`, ""
		})
		c.run(t.Context())
		var r Report
		r.measure(c, 0)
		check.Same(t, "arrivals", r.Seconds[0], Second{Arrived: 10})
		if r.SendLag.MaxMS < 9800 || r.Stages[0].P50MS < 9300 || r.Stages[0].MaxMS < 9900 {
			t.Errorf("the lag %+v and the latency %+v hide the ten seconds", r.SendLag, r.Stages[0].Latency)
		}
		if !strings.Contains(r.Limit, "--connections") {
			t.Errorf("limited by %q", r.Limit)
		}
		check.Same(t, "people", r.People, []Count{{"sold_out", 10}})
	})
}

// A buyer behaves as the storefront does after each kind of answer.
func TestBuyers(t *testing.T) {
	t.Parallel()
	order := func(status string) string { return fmt.Sprintf(`{"id":"O1","status":%q}`, status) }
	type reply struct {
		to     string // the end of the path
		status int
		body   string
		wait   string // Retry-After
	}
	problem := func(status int, code string) string { return fmt.Sprintf(`{"status":%d,"code":%q}`, status, code) }
	limited := reply{"/path", 429, problem(429, "rate_limited"), "2"}
	for name, tc := range map[string]struct {
		shape   Shape
		replies []reply
		want    told
		atLeast time.Duration // of fake time
		most    time.Duration
	}{
		"confirmed": {Shape{}, []reply{{"/path", 200, path, ""}, {"/orders", 201, order("pending"), ""}}, told{order: "O1", status: "pending"}, 0, 0},
		"paid": {Shape{Pay: 1}, []reply{
			{"/path", 200, path, ""},
			{"/orders", 201, order("pending"), ""},
			{"/payments", 201, `{"pay_url":"https://elsewhere/pay/P1"}`, ""},
			{"/pay/P1", 200, "", ""},
			{"/O1", 200, order("paid"), ""},
		}, told{order: "O1", status: "paid"}, 0, 0},
		"not payable": {Shape{Pay: 1}, []reply{
			{"/path", 200, path, ""}, {"/orders", 201, order("pending"), ""}, {"/payments", 409, problem(409, "not_payable"), ""},
		}, told{order: "O1", status: "pending", refusal: "not_payable"}, 0, 0},
		"queued": {Shape{}, []reply{
			{"/path", 200, path, ""}, {"/orders", 202, order("queued"), "3"}, {"/O1", 200, order("queued"), ""}, {"/O1", 200, order("pending"), ""},
		}, told{order: "O1", status: "pending"}, 3 * time.Second, 3 * time.Second},
		"rejected": {Shape{}, []reply{
			{"/path", 200, path, ""}, {"/orders", 202, order("queued"), "1"}, {"/O1", 200, `{"id":"O1","status":"rejected","reason":"sold_out"}`, ""},
		}, told{order: "O1", status: "rejected", refusal: "sold_out"}, 0, 0},
		"Retry-After": {Shape{}, []reply{
			limited, {"/path", 200, path, ""}, {"/orders", 503, problem(503, "unavailable"), "3"}, {"/orders", 201, order("pending"), ""},
		}, told{order: "O1", status: "pending"}, 5 * time.Second, 6250 * time.Millisecond},
		"gives up after six tries": {Shape{}, []reply{limited, limited, limited, limited, limited, limited}, told{gaveUp: pathStage}, 10 * time.Second, 12500 * time.Millisecond},
		"no answer":                {Shape{}, []reply{{"/path", 200, path, ""}, {"/orders", 0, "", ""}, {"/orders", 201, order("pending"), ""}}, told{order: "O1", status: "pending"}, time.Second, 1250 * time.Millisecond},
		"too early by the server's clock": {Shape{}, []reply{
			{"/path", 409, problem(409, "not_started"), ""}, {"/path", 200, path, ""}, {"/orders", 201, order("pending"), ""},
		}, told{order: "O1", status: "pending"}, notYet, notYet},
		"a path that has expired": {Shape{}, []reply{
			{"/path", 200, path, ""}, {"/orders", 403, problem(403, "bad_path"), ""}, {"/path", 200, path, ""}, {"/orders", 201, order("pending"), ""},
		}, told{order: "O1", status: "pending"}, 0, 0},
		"a bad path twice": {Shape{}, []reply{
			{"/path", 200, path, ""}, {"/orders", 403, problem(403, "bad_path"), ""}, {"/path", 200, path, ""}, {"/orders", 403, problem(403, "bad_path"), ""},
		}, told{refusal: "bad_path"}, 0, 0},
		"ended":                    {Shape{}, []reply{{"/path", 409, problem(409, "ended"), ""}}, told{refusal: "ended"}, 0, 0},
		"refused by what is ahead": {Shape{}, []reply{{"/path", 403, "", ""}}, told{refusal: "403"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, next, keys := tc.shape, 0, map[string]bool{}
				s.Buyers, s.at = 1, []time.Duration{0}
				c := crowdAt(&s, 1, func(r *http.Request) (int, string, string) {
					if next == len(tc.replies) || !strings.HasSuffix(r.URL.Path, tc.replies[next].to) || r.URL.Host != "shop" {
						t.Errorf("request %d is %s %s", next, r.Method, r.URL)
						return 400, "", ""
					}
					if key := r.Header.Get("Idempotency-Key"); key != "" {
						keys[key] = true
					}
					reply := tc.replies[next]
					next++
					return reply.status, reply.body, reply.wait
				})
				began := time.Now()
				c.run(t.Context())
				took := time.Since(began)
				if len(c.told) != 1 || c.told[0] != tc.want || next != len(tc.replies) || took < tc.atLeast || took > tc.most {
					t.Errorf("told %+v after %d requests and %s, want %+v after %d and %s to %s", c.told, next, took, tc.want, len(tc.replies), tc.atLeast, tc.most)
				}
				if len(keys) > 1 {
					t.Errorf("one attempt has %d keys", len(keys))
				}
			})
		})
	}
}

// A bot makes many attempts under keys of their own, and does not wait when it is told to.
func TestBots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, n := map[string]bool{}, 0
		c := crowdAt(&Shape{Buyers: 1, Bots: 1, at: []time.Duration{0}}, 1, func(r *http.Request) (int, string, string) {
			if strings.HasSuffix(r.URL.Path, "/path") {
				return 200, path, ""
			}
			keys[r.Header.Get("Idempotency-Key")] = true
			n++
			switch n {
			case 1:
				return 201, `{"id":"O1","status":"pending"}`, ""
			case 4:
				return 202, `{"id":"O2","status":"queued"}`, ""
			case 2, 3:
				return 409, `{"code":"limit_reached"}`, ""
			}
			return 429, `{"code":"too_frequent"}`, "60"
		})
		began := time.Now()
		c.run(t.Context())
		if took := time.Since(began); took != botTries*botPause || len(keys) != botTries-1 {
			t.Errorf("%d attempts within %s", len(keys), took)
		}
		var r Report
		r.measure(c, 0)
		check.Same(t, "bots", r.Bots, []Count{{"limit_reached", 2}, {"pending", 1}, {"queued", 1}})
		check.Same(t, "people", r.People, []Count{})
		if len(compare(c.told, books{})) == 0 {
			t.Error("the books have no such order, and nobody says so")
		}
	})
}

// When the user stops the run, no buyer is left behind, and the last arrivals are not waited for.
func TestCrowdIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := crowdAt(&Shape{Buyers: 2, Lasts: time.Hour, at: []time.Duration{0, time.Hour}}, 1, func(*http.Request) (int, string, string) {
			cancel()
			return 429, `{"code":"rate_limited"}`, "100"
		})
		began := time.Now()
		c.run(ctx)
		check.Same(t, "time", time.Since(began), 0)
		check.Same(t, "told", c.told, []told{{gaveUp: pathStage}})
		check.Same(t, "arrived", c.tally.perSecond(), []Second{{Arrived: 1, Done: 1}})
	})
}

// All lanes together have as many connections as the user allows, and each has some if the crowd needs them.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shape                Shape
		quick, slow, streams int
	}{
		"purchases":              {Shape{Walk: PurchaseWalk}, 16, 0, 0},
		"slow purchases":         {Shape{Walk: PurchaseWalk, Slow: 0.1}, 12, 4, 0},
		"whole walks":            {Shape{Walk: WholeWalk}, 8, 0, 8},
		"whole walks, some slow": {Shape{Walk: WholeWalk, Slow: 0.1}, 6, 2, 8},
	} {
		c := check.Must(newCrowd("http://shop", minConnections, &tc.shape, auth.NewTokens([]byte("secret"), time.Now), time.Now))
		if cap(c.quick.slots) != tc.quick || cap(c.slow.slots) != tc.slow || cap(c.streams.slots) != tc.streams {
			t.Errorf("%s: %d, %d and %d connections", name, cap(c.quick.slots), cap(c.slow.slots), cap(c.streams.slots))
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "198.18.0.0", 257: "198.18.1.1", 65536: "198.19.0.0", 131071: "198.19.255.255", 131072: "198.18.0.0"} {
		check.Same(t, fmt.Sprint(n), addressOf(n), want)
	}
}

// compare finds each kind of disagreement between what buyers were told and the books, and nothing else.
func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(buyer int, id string, status model.OrderStatus) model.Order {
		return model.Order{ID: id, UserID: userOf(buyer), Quantity: 1, Status: status}
	}
	pending := func(buyer int, id string) told { return told{buyer: buyer, order: id, status: model.OrderPending} }
	refused := func(buyer int, v model.Verdict) told { return told{buyer: buyer, refusal: v} }
	for name, tc := range map[string]struct {
		quota, free int64
		orders      []model.Order
		told        []told
		want        string // the kinds
	}{
		"all is right": {2, 0, []model.Order{of(1, "A", "pending"), of(2, "B", "paid")}, []told{
			pending(1, "A"),
			{buyer: 2, order: "B", status: "paid"},
			refused(3, "sold_out"),
			{buyer: 4, gaveUp: pathStage},
			{buyer: 1, bot: true, refusal: "limit_reached"},
			{buyer: 2, bot: true, refusal: "sold_out"},
		}, ""},
		"paid after the last look":         {1, 0, []model.Order{of(1, "A", "paid")}, []told{pending(1, "A")}, ""},
		"an order that nobody was told of": {2, 1, []model.Order{of(1, "A", "pending")}, []told{{buyer: 1, gaveUp: orderStage}}, ""},
		"too many orders":                  {1, 0, []model.Order{of(1, "A", "pending"), of(2, "B", "pending")}, []told{pending(1, "A")}, Oversold},
		"too many answers":                 {1, 0, []model.Order{of(1, "A", "pending")}, []told{pending(1, "A"), pending(2, "B")}, Oversold + " " + LostOrder},
		"an order is gone":                 {2, 1, []model.Order{of(1, "A", "pending")}, []told{pending(1, "A"), pending(2, "B")}, LostOrder},
		"an order is another's":            {2, 1, []model.Order{of(1, "A", "pending")}, []told{pending(2, "A")}, LostOrder},
		"an order has ended":               {2, 1, []model.Order{of(1, "A", "expired")}, []told{pending(1, "A")}, LostOrder},
		"a payment is gone":                {2, 1, []model.Order{of(1, "A", "pending")}, []told{{buyer: 1, order: "A", status: "paid"}}, LostOrder},
		"sold out, and it is not":          {2, 1, []model.Order{of(1, "A", "pending")}, []told{pending(1, "A"), refused(2, "sold_out")}, WrongRefusal},
		"a limit without an order":         {2, 1, []model.Order{of(1, "A", "pending")}, []told{refused(2, "limit_reached")}, WrongRefusal},
		"a limit by a queued attempt": {1, 0, []model.Order{of(1, "A", "pending")}, []told{
			{buyer: 2, bot: true, order: "B", status: model.OrderQueued},
			{buyer: 2, bot: true, refusal: "limit_reached"},
			{buyer: 3, bot: true, order: "C", status: model.OrderRejected, refusal: "sold_out"},
			{buyer: 3, bot: true, refusal: "limit_reached"},
		}, ""},
		"refused, and sold":     {1, 0, []model.Order{of(1, "A", "pending")}, []told{refused(1, "sold_out")}, WrongRefusal},
		"refused for no reason": {1, 0, []model.Order{of(1, "A", "pending")}, []told{refused(2, "ended")}, WrongRefusal},
		"two units for one":     {3, 1, []model.Order{of(1, "A", "pending"), of(1, "B", "pending")}, nil, OverLimit},
	} {
		t.Run(name, func(t *testing.T) {
			b := books{orders: map[string]model.Order{}}
			b.audit.Books.Stock = model.Stock{Quota: tc.quota, Available: tc.free}
			for _, o := range tc.orders {
				b.orders[o.ID] = o
			}
			got := compare(tc.told, b)
			var kinds []string
			for _, f := range got {
				if kinds = append(kinds, f.Kind); f.Count != 1 {
					t.Errorf("%s was found %d times", f.Kind, f.Count)
				}
			}
			if strings.Join(kinds, " ") != tc.want {
				t.Errorf("found %v, want %s", got, tc.want)
			}
		})
	}
	audit := books{}
	audit.audit.Violations, audit.audit.Drift = []string{"held against pending orders: 1, not 2"}, -1
	if got := compare(nil, audit); len(got) != 2 || got[0].Kind != WrongBooks || got[1].Kind != WrongBooks {
		t.Errorf("of wrong books: %v", got)
	}
}

func TestJudgeAnswers(t *testing.T) {
	t.Parallel()
	stages := []StageFigures{{Stage: orderStage, Answers: []Count{{"201", 5}, {"503 unavailable", 5}, {"500 internal", 2}}}}
	got := judgeAnswers(stages, []Count{{"path", 1}, {"order", 1}}, 100)
	check.Same(t, "findings", got, []Finding{
		{Kind: BrokenAnswer, Count: 2, Found: "500 internal", Examples: []string{"order"}},
		{Kind: GaveUp, Count: 2, Found: "of 100 people, where one in a hundred may"},
	})
	if got := judgeAnswers(nil, []Count{{"path", 1}}, 100); len(got) > 0 {
		t.Errorf("one in a hundred may give up: %v", got)
	}
}

func TestSustained(t *testing.T) {
	t.Parallel()
	check.Same(t, "most", sustained([]Second{{Arrived: 100, Late: 1}, {Arrived: 300, Late: 4}, {Arrived: 200, Late: 2}}), 200)
}

// The report says all that the reader needs, and its page loads nothing.
func TestReport(t *testing.T) {
	t.Parallel()
	s := &Shape{Arrivals: Spike, Buyers: 2, Units: 1, Lasts: time.Minute, Half: time.Second, at: []time.Duration{0, time.Second}}
	r := &Report{
		Verdict: Failed, Shape: s, Crowd: s.String(), URL: "http://shop", Findings: []Finding{{LostOrder, 1, "an <order> is gone", []string{"crowd-1 A"}}},
		Seconds: make([]Second, 100), Peak: 5, Limit: "the connections", Unsent: 3, NoStream: 4,
		Stages: []StageFigures{{pathStage, 2, Latency{1, 2, 3}, []Count{{"200", 2}}}}, People: []Count{{"sold_out", 1}}, Bots: []Count{{"pending", 1}}, GaveUp: []Count{{"path", 1}},
	}
	var text, page strings.Builder
	check.NoError(t, r.WriteText(&text), r.WriteHTML(&page))
	for _, says := range []string{"failed", "lost order: 1: an <order> is gone: crowd-1 A", "people were told: sold_out: 1", "3 buyers did not come", "4 buyers had no stream", "limited by the connections", "gave up at: path: 1"} {
		if !strings.Contains(text.String(), says) {
			t.Errorf("the text lacks %q: %s", says, &text)
		}
	}
	for _, says := range []string{"<svg", "an &lt;order&gt; is gone", "Where people gave up", "from 96 s", "</html>"} {
		if !strings.Contains(page.String(), says) {
			t.Errorf("the page lacks %q", says)
		}
	}
	for _, never := range []string{"src=", "href=", "@import", "<script"} {
		if strings.Contains(page.String(), never) {
			t.Errorf("the page has %s", never)
		}
	}
}
