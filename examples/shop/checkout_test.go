package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const settle = `settle {"amount_cents":990,"reference":"shop-` + orderID + `"}`

// A hold token opens the checkout only if the engine has signed it, names itself as the issuer, and the token has not ended.
func TestHoldTokens(t *testing.T) {
	e := newEngine(t)
	_, shop := open(t, e)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": e.URL, "exp": time.Now().Add(time.Minute).Unix(), "order": orderID}).
		SignedString(jwt.UnsafeAllowNoneSignatureType)
	noError(t, err)
	symmetric, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": e.URL, "exp": time.Now().Add(time.Minute).Unix(), "order": orderID}).
		SignedString([]byte("a secret of somebody"))
	noError(t, err)
	good := e.hold(e.key, nil)
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"none":                "",
		"no token":            "x.y.z",
		"another key":         e.hold(stranger, nil),
		"unsigned":            unsigned,
		"HS256":               symmetric,
		"another amount":      parts[0] + "." + strings.Split(e.hold(stranger, jwt.MapClaims{"amount": 1}), ".")[1] + "." + parts[2],
		"expired":             e.hold(e.key, jwt.MapClaims{"exp": time.Now().Add(-time.Second).Unix()}),
		"of another engine":   e.hold(e.key, jwt.MapClaims{"iss": "https://other.example"}),
		"not valid until one": e.hold(e.key, jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, form := range []url.Values{nil, {"hold": {token}}} {
				status, _, _ := ask(t, shop+"/checkout?hold="+url.QueryEscape(token), form)
				same(t, "status", status, http.StatusBadRequest)
			}
			status, _, _ := ask(t, shop+"/checkout/cancel", url.Values{"hold": {token}})
			same(t, "status of the cancellation", status, http.StatusBadRequest)
		})
	}
	same(t, "calls of the engine", e.calls(), "")
	status, page, _ := ask(t, shop+"/checkout?hold="+good, nil)
	same(t, "status of the good one", status, http.StatusOK)
	contains(t, page, "CNY 9.90", ">"+orderID[16:24]+"<")
}

// However often a customer sends the form, also twice at once, the money is taken once and has one reference.
func TestReplayedHold(t *testing.T) {
	e := newEngine(t)
	_, shop := open(t, e)
	form := url.Values{"hold": {e.hold(e.key, nil)}}
	start := make(chan struct{})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			<-start
			_, page, _ := ask(t, shop+"/checkout", form)
			contains(t, page, "Paid. Thank you!")
		})
	}
	close(start)
	all.Wait()
	same(t, "calls", e.calls(), settle)
	_, page, _ := ask(t, shop+"/checkout/cancel", form)
	contains(t, page, "Paid. Thank you!")
	_, page, _ = ask(t, shop+"/checkout?hold="+form.Get("hold"), nil)
	contains(t, page, "Paid. Thank you!")
	same(t, "calls after that", e.calls(), "")
}

// Money that the order can't keep goes back, and the engine is told of the refund. A refusal that records nothing needs no report.
func TestRefunds(t *testing.T) {
	for refusal, want := range map[string]string{
		"refund_due":  settle + `, refunded {"reference":"shop-` + orderID + `"}`,
		"not_payable": settle,
	} {
		t.Run(refusal, func(t *testing.T) {
			e := newEngine(t)
			_, shop := open(t, e)
			e.says("settle", refusal)
			form := url.Values{"hold": {e.hold(e.key, nil)}}
			for range 2 {
				_, page, _ := ask(t, shop+"/checkout", form)
				contains(t, page, "Your money went back.")
			}
			same(t, "calls", e.calls(), want)
		})
	}
}

// While the engine is away, the shop keeps the payment and repeats the call with the same reference.
func TestEngineAway(t *testing.T) {
	e := newEngine(t)
	s, shop := open(t, e)
	e.says("settle", "away")
	form := url.Values{"hold": {e.hold(e.key, nil)}}
	_, page, _ := ask(t, shop+"/checkout", form)
	contains(t, page, "you need not pay again")
	c, err := s.connection()
	noError(t, err)
	same(t, "finished while it is away", s.finish(t.Context(), c), false)
	same(t, "calls", e.calls(), settle+", "+settle)
	e.says("settle", "")
	same(t, "finished", s.finish(t.Context(), c), true)
	same(t, "finished, again", s.finish(t.Context(), c), true)
	same(t, "calls since", e.calls(), settle)
	_, page, _ = ask(t, shop+"/checkout?hold="+form.Get("hold"), nil)
	contains(t, page, "Paid. Thank you!")
}

// A customer who cancels pays no more, and one whom the engine does not hear may try again.
func TestCancel(t *testing.T) {
	e := newEngine(t)
	_, shop := open(t, e)
	form := url.Values{"hold": {e.hold(e.key, nil)}}
	e.says("release", "away")
	_, page, _ := ask(t, shop+"/checkout/cancel", form)
	contains(t, page, "Please try again", "Pay CNY 9.90")
	e.says("release", "")
	_, page, _ = ask(t, shop+"/checkout/cancel", form)
	contains(t, page, "You have paid nothing.")
	_, page, _ = ask(t, shop+"/checkout", form)
	contains(t, page, "You have paid nothing.")
	same(t, "calls", e.calls(), "release, release")
}
