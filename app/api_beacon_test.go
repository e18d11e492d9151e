package app_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"
	"time"

	"flashsale/internal/beacon"
	"flashsale/internal/config"
	"flashsale/internal/ranks"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/drand"
)

// The order of a sale with a beacon follows from a round that was still to come when the root became public. Until there is
// a valid answer, nothing more is published and nobody is called, while other lines go on.
func TestBeacon(t *testing.T) {
	t.Parallel()
	for name, stores := range map[string]func(*config.Settings){"embedded": asTheyAre, "servers": withStores(kit.ServerStores(t))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relay := drand.Serve(t)
			s := start(t, stores, func(c *config.Settings) { c.Beacon, c.BeaconChain = relay.URL, relay.Info() })
			answers := []func(w http.ResponseWriter, round int64){
				func(w http.ResponseWriter, round int64) {
					_, _ = w.Write([]byte(drand.JSON(round-1, relay.Sign(round-1))))
				},
				func(w http.ResponseWriter, round int64) {
					_, _ = w.Write([]byte(drand.JSON(round, relay.Sign(round-1))))
				},
				func(w http.ResponseWriter, _ int64) { _, _ = w.Write([]byte("{")) },
				func(w http.ResponseWriter, _ int64) { w.WriteHeader(http.StatusBadGateway) },
			}
			relay.Break(func(w http.ResponseWriter, round int64) { answers[relay.Asked()%int64(len(answers))](w, round) })
			before := time.Now()
			users := []string{"ann", "bob", "cat"}
			draw, _ := s.soon(fields{"mode": "draw", "quota": 1, "beacon": true}, "sealed", users...)
			s.eventually("the root is public", func() bool { return s.line(draw).Root != "" })
			state := s.line(draw)
			// The round is at least five seconds after the start of the sale.
			if at := time.Unix(relay.Chain.Genesis+state.Round-1, 0); at.Before(before.Add(5 * time.Second)) {
				t.Errorf("round %d is only %s after the test began", state.Round, at.Sub(before))
			}
			other, _ := s.soon(fields{"mode": "line", "quota": 1}, "calling", "ann")
			s.eventually("another line calls", func() bool { return s.buyer("ann").entry(other).State == "called" })
			s.eventually("all false answers are given", func() bool { return relay.Asked() > int64(len(answers)) })
			check.Same(t, "after false answers", s.line(draw), state)
			check.Same(t, "nothing but root and round is public", []string{state.Seed, state.Secret, state.Randomness}, []string{"", "", ""})
			s.anyone().call("GET", "/api/v1/sales/"+draw+"/draw.json", nil).refused(http.StatusNotFound, "not_found")

			relay.Break(nil)
			s.eventually("the draw is over", func() bool { return s.line(draw).Phase == "over" })
			after := s.line(draw)
			check.Same(t, "what was fixed", []any{after.Root, after.Round, *after.N, after.Commitment}, []any{state.Root, state.Round, *state.N, state.Commitment})
			key := check.Must(hex.DecodeString(relay.Chain.PublicKey))
			randomness := check.Must(beacon.Verify(key, uint64(after.Round), relay.Sign(after.Round)))
			check.Same(t, "randomness", after.Randomness, fmt.Sprintf("%x", randomness))
			doc, err := ranks.Read(bytes.NewReader(s.anyone().get("/api/v1/sales/" + draw + "/draw.json").body))
			check.NoError(t, err)
			check.NoError(t, ranks.Check(doc, key))
			check.Same(t, "round in the document", []any{doc.Beacon.Round, len(doc.Winners)}, []any{uint64(after.Round), 1})
			if ranks.Check(doc, check.Must(hex.DecodeString(beacon.Quicknet))) == nil {
				t.Error("the document agrees with another chain's key")
			}

			empty, _ := s.soon(fields{"mode": "line", "quota": 1, "beacon": true}, "calling")
			check.Same(t, "without entries no round is named", s.line(empty).Round, int64(0))
		})
	}
}

// A rush has no order that a beacon could draw.
func TestBeaconInput(t *testing.T) {
	t.Parallel()
	got := usual(t).operator().call("POST", adminSales, newSale(fields{"beacon": true})).refused(http.StatusBadRequest, "bad_request")
	check.Same(t, "field", got.Field, "beacon")
}
