package handler

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

func TestParsePrefer(t *testing.T) {
	const five, day = 5 * time.Second, 65535 * time.Second
	for header, want := range map[string]service.Preference{
		"": {}, "respond-async": {Async: true}, "wait=5": {Wait: five}, "wait=0": {Async: true}, "wait=65535": {Wait: day},
		"respond-async, wait=5": {Async: true, Wait: five}, " Respond-Async ,\tWAIT = 5 ": {Async: true, Wait: five},
		"return=minimal, handling=lenient": {}, `wait="5"`: {Wait: five}, "wait=5; x=1": {Wait: five}, `respond-async;y, Wait = "5" ;x="1"`: {Async: true, Wait: five},
	} {
		got, ok := parsePrefer([]string{header})
		check.Same(t, header+" is valid", ok, true)
		check.Same(t, header, got, want)
	}
	for _, header := range []string{"wait", "wait=", "wait=long", "wait=-1", "wait=0.5", `wait="5 s"`, "wait;x=5", "wait=65536", "wait=99999999999999999999"} {
		_, ok := parsePrefer([]string{"respond-async", header})
		check.Same(t, header+" is valid", ok, false)
	}
	none, _ := parsePrefer(nil)
	check.Same(t, "no header", none, service.Preference{})
	both, _ := parsePrefer([]string{"respond-async", "wait=5"})
	check.Same(t, "two headers", both, service.Preference{Async: true, Wait: five})
}

// No header makes a buyer wait longer than the header's format allows.
func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{"wait=2, respond-async", "WAIT = 7 ", "wait=1,wait=x", ";;,,==", "respond-async=false"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, ok := parsePrefer([]string{header})
		if ok && (p.Wait < 0 || p.Wait > 65535*time.Second || p.Wait%time.Second != 0) {
			t.Errorf("%q: %+v", header, p)
		}
		lower := strings.ToLower(header)
		if ok && p.Async && !strings.Contains(lower, "respond-async") && !strings.Contains(lower, "wait") {
			t.Errorf("%q: %+v", header, p)
		}
	})
}

// The fast way to the quantity gives what the strict decoder gives. It takes the bodies that nearly all clients send.
func FuzzPurchaseBody(f *testing.F) {
	usual := map[string]int{oneUnit: 1, `{"quantity": 12}`: 12, " { \"quantity\" : 999999 }\n": 999999, `{"quantity":0}`: 0}
	for body, want := range usual {
		got, ok := usualQuantity([]byte(body))
		check.Same(f, body+" is usual", ok, true)
		check.Same(f, body, got, want)
		f.Add([]byte(body))
	}
	for _, seed := range []string{
		" {\t\"quantity\" :\r\n12 } ", `{"quantity":01}`, `{"quantity":00}`, `{"quantity":-1}`, `{"quantity":1000000}`,
		`{"quantity":9999999999999999999}`, `{"quantity":1.0}`, `{"quantity":1e2}`, `{"quantity":}`, `{"quantity":1`, `{"quantity":1}}`,
		`{"quantity":1}x`, `{"quantity":1,}`, `{"quantity":1,"quantity":2}`, `{"quantity" 1}`, `{quantity:1}`, `{"Quantity":1}`,
		`{"quantit\u0079":1}`, `{"quantity":null}`, `{"quantity":"1"}`, `{}`, `[]`, ``,
		"{\"quantity\":1}\v", "{\u00a0\"quantity\":1}", "{\"quantity\":1\x00}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		quantity, ok := usualQuantity(raw)
		if !ok {
			return
		}
		if want, err := strictQuantity(raw); err != nil || quantity != want {
			t.Errorf("%q is %d the fast way, %d strictly, %v", raw, quantity, want, err)
		}
	})
}

// answering is a strategy with one answer. It notes until when it may work.
type answering struct {
	outcome *model.Outcome // nil: as yes
	err     error
	until   []time.Time
}

func (a *answering) Deduct(ctx context.Context, attempt model.Attempt) (model.Outcome, error) {
	until, _ := ctx.Deadline()
	a.until = append(a.until, until)
	if a.outcome == nil && a.err == nil {
		return yes{}.Deduct(ctx, attempt)
	}
	if a.err != nil {
		return model.Outcome{}, a.err
	}
	return *a.outcome, nil
}

// A purchase passes every stage, and is tallied under its sale by how it ended. Memory answers what it can; a store has
// requestLimit for the rest.
func TestPurchase(t *testing.T) {
	type test struct {
		body     string
		status   int
		code     string // of the problem, or the status of the order
		tallied  model.Verdict
		deadline bool
		change   func(s *shop, r *http.Request, strategy *answering)
	}
	none := func(*shop, *http.Request, *answering) {}
	says := func(v model.Verdict) func(*shop, *http.Request, *answering) {
		return func(_ *shop, _ *http.Request, strategy *answering) { strategy.outcome = &model.Outcome{Verdict: v} }
	}
	fails := func(err error) func(*shop, *http.Request, *answering) {
		return func(_ *shop, _ *http.Request, strategy *answering) { strategy.err = err }
	}
	padded := `{"quantity":2` + strings.Repeat(" ", smallBodyBytes) + `}`
	check.Each(t, map[string]test{
		"accepted":      {`{"quantity":2}`, 201, "pending", model.Accepted, true, none},
		"a padded body": {padded, 201, "pending", model.Accepted, true, none},
		"queued":        {oneUnit, 202, "queued", "queued", true, says(model.Queued)},
		"sold out":      {oneUnit, 409, "sold_out", model.SoldOut, false, func(s *shop, _ *http.Request, _ *answering) { s.soldOut() }},
		"too frequent":  {oneUnit, 429, "too_frequent", model.TooFrequent, true, says(model.TooFrequent)},
		"rate limited": {oneUnit, 429, "rate_limited", model.RateLimited, false, func(s *shop, _ *http.Request, _ *answering) {
			s.api.Door.Limits.Burst = 0
		}},
		"no token": {oneUnit, 401, "unauthenticated", model.Unauthenticated, false, func(_ *shop, r *http.Request, _ *answering) {
			r.Header.Del("Authorization")
		}},
		"too many":    {`{"quantity":11}`, 400, "bad_request", model.BadRequest, false, none},
		"no quantity": {`{}`, 400, "bad_request", model.BadRequest, false, none},
		"half a body": {`{"quantity":`, 400, "bad_request", model.BadRequest, false, none},
		"no store":    {oneUnit, 503, "unavailable", model.Unavailable, true, fails(model.ErrUnavailable)},
		"an error":    {oneUnit, 500, "internal", internalError, true, fails(errors.New("x"))},
	}, func(t *testing.T, tc test) {
		s, strategy := newShop(t), &answering{}
		s.api.Purchases.Service.Strategy, s.api.Purchases.Service.AckQueued = strategy, true
		r := s.purchase(tc.body)
		tc.change(s, r, strategy)
		asked := time.Now()
		w := s.serve(r)
		check.Same(t, "status", w.Code, tc.status)
		if !strings.Contains(w.Body.String(), `"code":"`+tc.code+`"`) && !strings.Contains(w.Body.String(), `"status":"`+tc.code+`"`) {
			t.Errorf("the answer is %s, want %s", w.Body, tc.code)
		}
		check.Same(t, "a store was asked", len(strategy.until) == 1, tc.deadline)
		for _, until := range strategy.until {
			if began, ended := until.Add(-requestLimit), time.Now(); began.Before(asked) || began.After(ended) {
				t.Errorf("the store's %s began at %s, and the request from %s to %s", requestLimit, began, asked, ended)
			}
		}
		r.URL.Path = strings.Replace(r.URL.Path, benchSale, "GUESS", 1)
		s.serve(r) // an unknown sale is not tallied
		check.Same(t, "tallied", s.api.Door.Tally.Counts(), map[string]map[model.Verdict]int64{benchSale: {tc.tallied: 1}})
	})
}
