package main

import (
	"bytes"
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

func lined(flags string) *line {
	l := newLine(planned("--buyers=8000 --quota=400 --instances=3 --rush=30 " + flags))
	l.simulate()
	return l
}

// In a line and in a draw, each buyer who enters learns what became of the entry, each unit is ordered once if enough buyers
// come, and the plan reaches the situation that it is named for.
func TestEveryEntrantIsAnswered(t *testing.T) {
	type test struct {
		flags   string
		orders  int
		reached func(l *line) bool
	}
	always := func(*line) bool { return true }
	check.Each(t, map[string]test{
		"a line":             {"--mode=line", 400, func(l *line) bool { return l.lapsed > 0 && l.lastOrder > l.Opening+l.CallSeconds }},
		"everybody comes":    {"--mode=line --no-show=0", 400, func(l *line) bool { return l.lapsed == 0 && l.lastOrder < l.Opening+l.CallSeconds }},
		"nobody comes":       {"--mode=line --no-show=1 --buyers=900", 0, func(l *line) bool { return l.lapsed == 900 }},
		"most come late":     {"--mode=line --opening=1", 400, func(l *line) bool { return l.before < 1000 && len(l.numbers) == 8000 }},
		"more units":         {"--mode=line --quota=9000 --no-show=0", 8000, func(l *line) bool { return l.free == 1000 }},
		"nothing to sell":    {"--mode=line --quota=0", 0, always},
		"a draw":             {"--mode=draw", 400, func(l *line) bool { return l.lastOrder < l.Opening+1 }},
		"a draw for all":     {"--mode=draw --quota=9000", 8000, always},
		"too late":           {"--mode=draw --opening=30", 400, func(l *line) bool { return len(l.took["too late"]) > 2000 }},
		"behind a proxy":     {"--mode=draw --front-us=10", 400, func(l *line) bool { return l.front.served == 16_000 }},
		"a slow seal":        {"--mode=draw --seal-us=1000", 400, func(l *line) bool { return l.firstCall > l.Opening+float64(l.before)*1e-3 }},
		"limited":            {"--mode=line --rush=0 --limit-rate=100 --limit-burst=100 --tries=2", 400, func(l *line) bool { return l.limited > 0 && l.gaveUp > 0 }},
		"a queue that fills": {"--mode=draw --rush=0 --buyers=40000 --limit-burst=40000 --cores=100 --instances=1 --tries=1", 400, func(l *line) bool { return l.busy > 0 && l.gaveUp == l.busy }},
	}, func(t *testing.T, tc test) {
		l := lined(tc.flags)
		check.Same(t, "orders", l.orders, tc.orders)
		spent := 0
		for _, e := range l.entrants {
			if e.spent {
				spent++
			}
		}
		check.Same(t, "buyers with an order", spent, tc.orders)
		if l.limited+l.busy == 0 {
			check.Same(t, "entered or too late", len(l.took["entered"])+len(l.took["too late"]), l.Buyers)
			check.Same(t, "know their end", len(l.took["own entry"])+min(l.lapsed, l.Buyers), len(l.numbers))
		}
		if !tc.reached(l) {
			t.Errorf("not reached: %d before the start of %d, lapsed %d, limited %d, busy %d, given up %d, last order %v",
				l.before, len(l.numbers), l.lapsed, l.limited, l.busy, l.gaveUp, l.lastOrder)
		}
	})
}

// Ranks do not favour those who enter first: of the first half of the entries about half of the units are won.
func TestRanksOfASimulation(t *testing.T) {
	l := lined("--mode=draw --buyers=20000 --quota=2000")
	won := 0
	for _, who := range l.numbers[:10_000] {
		if l.entrants[who].spent {
			won++
		}
	}
	if won < 900 || won > 1100 { // five standard deviations are 106
		t.Errorf("the first half has %d of 2000 units", won)
	}
}

func TestLinePrints(t *testing.T) {
	shown := func(flags string) string {
		var out bytes.Buffer
		check.Done(lined(flags).print(&out))
		return out.String()
	}
	first := shown("--mode=line")
	check.Same(t, "a run with the same seed", shown("--mode=line"), first)
	for _, want := range []string{"8000 buyers for 400 units by line", "400 orders", "entered            8000", "own entry", "confirmed           400", "database", "look-ups"} {
		check.Same(t, "the text has "+want, strings.Contains(first, want), true)
	}
	_, err := parse("--mode=lottery")
	check.Same(t, "an unknown mode is accepted", err == nil, false)
}
