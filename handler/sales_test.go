package handler

import (
	"testing"
	"time"

	"flashsale/model"
)

func TestIfNoneMatch(t *testing.T) {
	const tag = `"abc"`
	for name, tc := range map[string]struct {
		header string
		want   bool
	}{
		"nothing":            {"", false},
		"the tag":            {`"abc"`, true},
		"weak":               {`W/"abc"`, true},
		"any":                {"*", true},
		"the last of many":   {`"x",W/"y" , "abc"`, true},
		"among empty ones":   {`,,"abc",`, true},
		"another":            {`"abd"`, false},
		"its beginning":      {`"ab`, false},
		"without quotes":     {"abc", false},
		"in capitals":        {`"ABC"`, false},
		"a small w":          {`w/"abc"`, false},
		"weak in the quotes": {`"W/abc"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := matches(tc.header, tag); got != tc.want {
				t.Errorf("%s matches %s: %t", tc.header, tag, got)
			}
		})
	}
}

// A stream looks again when the clock alone changes the state, not earlier, and not never.
func TestUntilTurn(t *testing.T) {
	start := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	offer := model.Offer{Sale: model.Sale{StartsAt: start, EndsAt: start.Add(time.Hour)}}
	for name, tc := range map[string]struct{ now, want time.Duration }{
		"a second before the start": {-time.Second, time.Second},
		"at the start":              {0, time.Hour},
		"a second before the end":   {time.Hour - time.Second, time.Second},
		"at the end":                {time.Hour, heartbeat},
		"long over":                 {99 * time.Hour, heartbeat},
	} {
		t.Run(name, func(t *testing.T) {
			if got := untilTurn(offer, start.Add(tc.now)); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
