package beacon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/internal/beacon"
	"flashsale/test/kit/check"
	"flashsale/test/kit/drand"
)

// A source's answer counts only if it is the round that was asked for, signed with the key of the chain.
func TestSource(t *testing.T) {
	relay := drand.Serve(t)
	source := check.Must(beacon.NewSource(relay.URL+"/", relay.Chain))
	// ask asks again if the machine stood still for as long as an answer may take.
	ask := func(round int64) (signature []byte, randomness [beacon.RandomnessSize]byte, err error) {
		for {
			signature, randomness, err = source.Round(t.Context(), round)
			if !errors.Is(err, context.DeadlineExceeded) {
				return signature, randomness, err
			}
		}
	}
	signature, randomness, err := ask(17)
	check.NoError(t, err)
	check.Same(t, "signature", bytes.Equal(signature, relay.Sign(17)), true)
	check.Same(t, "randomness", randomness, check.Must(beacon.Verify(source.PublicKey(), 17, relay.Sign(17))))

	says := func(text string) func(http.ResponseWriter, int64) {
		return func(w http.ResponseWriter, _ int64) { _, _ = w.Write([]byte(text)) }
	}
	check.Each(t, map[string]struct {
		answer func(http.ResponseWriter, int64)
		want   error
	}{
		"another round":           {says(drand.JSON(18, relay.Sign(18))), beacon.ErrSource},
		"another round's name":    {says(drand.JSON(18, relay.Sign(17))), beacon.ErrSource},
		"another round's content": {says(drand.JSON(17, relay.Sign(18))), beacon.ErrSignature},
		"no signature":            {says(`{"round":17}`), beacon.ErrSignature},
		"no hex digits":           {says(`{"round":17,"signature":"xy"}`), beacon.ErrSource},
		"no JSON":                 {says("<html>"), beacon.ErrSource},
		"too long":                {says(strings.Repeat(" ", 5000) + drand.JSON(17, relay.Sign(17))), beacon.ErrSource},
		"nothing":                 {says(""), beacon.ErrSource},
		"not found": {func(w http.ResponseWriter, _ int64) {
			http.Error(w, drand.JSON(17, relay.Sign(17)), http.StatusNotFound)
		}, beacon.ErrSource},
	}, func(t *testing.T, tc struct {
		answer func(http.ResponseWriter, int64)
		want   error
	},
	) {
		relay.Break(tc.answer)
		_, randomness, err := ask(17)
		check.Error(t, "round", err, tc.want)
		check.Same(t, "randomness", randomness, [beacon.RandomnessSize]byte{})
	})
	relay.Break(nil)
	_, _, err = ask(1 << 40)
	check.Error(t, "a round to come", err, beacon.ErrSource)
}

// The first round after a moment is later than the moment, and the one before it is not.
func TestSchedule(t *testing.T) {
	source := check.Must(beacon.NewSource("https://api.drand.sh", beacon.QuicknetChain()))
	genesis := time.Unix(beacon.QuicknetChain().Genesis, 0)
	check.Same(t, "before the first round", source.After(genesis.Add(-time.Hour)), int64(1))
	for _, since := range []time.Duration{0, 1, time.Second, 3*time.Second - 1, 3 * time.Second, 3*time.Second + 1, 100_000 * time.Hour} {
		now := genesis.Add(since)
		round := source.After(now)
		if !source.At(round).After(now) || source.At(round-1).After(now) {
			t.Errorf("%s after the first round: round %d", since, round)
		}
	}
	for _, chain := range []beacon.Chain{{}, {PublicKey: "ab", Period: 3}, {PublicKey: beacon.Quicknet}, {PublicKey: beacon.Quicknet[1:] + "x", Period: 3}} {
		_, err := beacon.NewSource("https://api.drand.sh", chain)
		check.Error(t, fmt.Sprint(chain), err, beacon.ErrKey)
	}
}
