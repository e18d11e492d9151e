package handler

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
)

func TestParsePrefer(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		want    service.Preference
		bad     bool
	}{
		"nothing":                {nil, service.Preference{}, false},
		"an empty header":        {[]string{""}, service.Preference{}, false},
		"async":                  {[]string{"respond-async"}, service.Preference{Async: true}, false},
		"a wait":                 {[]string{"wait=5"}, service.Preference{Wait: 5 * time.Second}, false},
		"no wait":                {[]string{"wait=0"}, service.Preference{Async: true}, false},
		"both":                   {[]string{"respond-async, wait=5"}, service.Preference{Async: true, Wait: 5 * time.Second}, false},
		"in two headers":         {[]string{"respond-async", "wait=5"}, service.Preference{Async: true, Wait: 5 * time.Second}, false},
		"in capitals, spaced":    {[]string{" Respond-Async ,\tWAIT = 5 "}, service.Preference{Async: true, Wait: 5 * time.Second}, false},
		"what nobody knows":      {[]string{"return=minimal, handling=lenient"}, service.Preference{}, false},
		"a day":                  {[]string{"wait=65535"}, service.Preference{Wait: 65535 * time.Second}, false},
		"a wait without seconds": {[]string{"wait"}, service.Preference{}, true},
		"an empty wait":          {[]string{"wait="}, service.Preference{}, true},
		"a wait in words":        {[]string{"wait=long"}, service.Preference{}, true},
		"a wait below none":      {[]string{"wait=-1"}, service.Preference{}, true},
		"half a second":          {[]string{"wait=0.5"}, service.Preference{}, true},
		"a wait for ever":        {[]string{"wait=99999999999999999999"}, service.Preference{}, true},
		"a bad one behind":       {[]string{"respond-async", "wait=x"}, service.Preference{Async: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parsePrefer(tc.headers)
			if ok == tc.bad || ok && got != tc.want {
				t.Errorf("%+v, %t, want %+v", got, ok, tc.want)
			}
		})
	}
}

// FuzzPurchaseBody holds the short way to what the strict decoder says, for whatever it takes a body.
func FuzzPurchaseBody(f *testing.F) {
	for _, seed := range []string{
		`{"quantity":1}`, " {\t\"quantity\" :\r\n12 } ", `{"quantity":0}`, `{"quantity":01}`, `{"quantity":00}`, `{"quantity":-1}`,
		`{"quantity":999999}`, `{"quantity":1000000}`, `{"quantity":9999999999999999999}`, `{"quantity":1.0}`, `{"quantity":1e2}`,
		`{"quantity":}`, `{"quantity":1`, `{"quantity":1}}`, `{"quantity":1}x`, `{"quantity":1,}`, `{"quantity":1,"quantity":2}`,
		`{"quantity" 1}`, `{quantity:1}`, `{"Quantity":1}`, `{"quantit\u0079":1}`, `{"quantity":null}`, `{"quantity":"1"}`, `{}`, `[]`, ``,
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
			t.Errorf("%q is %d the short way, %d strictly, %v", raw, quantity, want, err)
		}
	})
}

// What nearly all send goes the short way; without it the test above would hold of nothing.
func TestUsualQuantity(t *testing.T) {
	for body, want := range map[string]int{
		`{"quantity":1}`: 1, `{"quantity": 12}`: 12, " { \"quantity\" : 999999 }\n": 999999, `{"quantity":0}`: 0,
	} {
		if got, ok := usualQuantity([]byte(body)); !ok || got != want {
			t.Errorf("%q: %d, %t, want %d", body, got, ok, want)
		}
	}
}

// deadlines notes until when it may work.
type deadlines struct {
	yes
	until []time.Time
}

func (d *deadlines) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	until, _ := ctx.Deadline()
	d.until = append(d.until, until)
	return d.yes.Deduct(ctx, a)
}

// A purchase passes every stage. Memory answers what it can; what goes to a store has requestLimit to get there.
func TestPurchase(t *testing.T) {
	for name, tc := range map[string]struct {
		soldOut     bool
		body        string
		status      int
		code        string
		hasDeadline bool
	}{
		"sold out":       {true, `{"quantity":1}`, http.StatusConflict, "sold_out", false},
		"accepted":       {false, `{"quantity":2}`, http.StatusCreated, "", true},
		"too many":       {false, `{"quantity":11}`, http.StatusBadRequest, "bad_request", false},
		"no quantity":    {false, `{}`, http.StatusBadRequest, "bad_request", false},
		"half a body":    {false, `{"quantity":`, http.StatusBadRequest, "bad_request", false},
		"in a long body": {false, `{"quantity":2` + strings.Repeat(" ", smallBodyBytes) + `}`, http.StatusCreated, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			api, store := benchAPI(t, tc.soldOut), &deadlines{}
			api.Purchases.Strategy = store
			router, err := Router(api)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w := httptest.NewRecorder()
			router.ServeHTTP(w, purchaseRequest(t, api, tc.body))
			if w.Code != tc.status || tc.code != "" && !strings.Contains(w.Body.String(), `"code":"`+tc.code+`"`) {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, tc.status, tc.code)
			}
			if (len(store.until) == 1) != tc.hasDeadline {
				t.Fatalf("the store was asked with the deadlines %v", store.until)
			}
			for _, until := range store.until {
				if limit := until.Sub(began); limit < requestLimit-time.Second || limit > requestLimit+time.Second {
					t.Errorf("the store has %s, want %s", limit, requestLimit)
				}
			}
		})
	}
}
