package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestFindings(t *testing.T) {
	const breaks = " When it breaks: when two come at once."
	answer := map[rune]model.Verdict{
		'y': model.Accepted, 'n': model.SoldOut, 'l': model.LimitReached, 'r': model.RateLimited, 'e': "",
	}
	for _, tc := range []struct {
		stock       int
		answers     string // yes, no, limit reached, rate limited, error
		tally       Tally
		want        Result
		explanation string
	}{
		{3, "yyynn", Tally{Sold: 3, Retries: 9}, Result{Verdict: Exact}, "Every unit was sold, and none twice."},
		{10, "yyyy", Tally{Sold: 4, Left: 6}, Result{Verdict: Exact}, "Every buyer got a unit; left unsold: 6."},
		{3, "ylr", Tally{Sold: 1, Left: 2}, Result{Verdict: Exact}, "Every accepted buyer has an order; left unsold: 2."},
		{3, "eeee", Tally{Left: 3}, Result{Verdict: Failed}, "Left unsold: 3." + breaks + " 4 attempts ended in an error."},
		{
			3, "yyeen",
			Tally{Sold: 3},
			Result{Verdict: Exact},
			"Every unit was sold, and none twice. 2 attempts ended in an error; of these, 1 made an order all the same.",
		},
		{3, "yy", Tally{Sold: 2, Left: 2}, Result{Verdict: Astray}, "The stock row still offers 2 units, not 1." + breaks},
		{3, "yyyn", Tally{Sold: 3, Left: -1}, Result{Verdict: Astray}, "The stock row still offers -1 units, not 0." + breaks},
		{3, "yyyyyn", Tally{Sold: 5}, Result{Verdict: Oversold, Oversold: 2}, "5 units sold, 2 more than there were." + breaks},
		{
			3, "yyyyyy",
			Tally{Sold: 4},
			Result{Verdict: Oversold, Oversold: 1, Lost: 2},
			"4 units sold, 1 more than there were. 2 buyers heard yes and found no order in the database." + breaks,
		},
		{3, "yyyyy", Tally{Sold: 3}, Result{Verdict: Lost, Lost: 2}, "2 buyers heard yes and found no order in the database." + breaks},
		{
			3, "yyyn",
			Tally{Sold: 2, Left: 1},
			Result{Verdict: Lost, Lost: 1, Undersold: 1},
			"1 buyer heard yes and found no order in the database. 1 unit left, although buyers heard that it was sold out." + breaks,
		},
		{3, "yyn", Tally{Sold: 3}, Result{Verdict: Unheard}, "1 order in the database, although the answer was no." + breaks},
		{
			3, "yyn",
			Tally{Sold: 2, Left: 1},
			Result{Verdict: Undersold, Undersold: 1},
			"1 unit left, although buyers heard that it was sold out." + breaks,
		},
	} {
		t.Run(fmt.Sprintf("%s of %d, %+v", tc.answers, tc.stock, tc.tally), func(t *testing.T) {
			var answers []model.Verdict
			for _, a := range tc.answers {
				answers = append(answers, answer[a])
			}
			r := runOne(t, answering(tc.tally, answers), model.LabPlan{Buyers: len(answers), Stock: tc.stock, Concurrency: 1, Instances: 1})
			tc.want.Explanation = tc.explanation
			got := Result{Verdict: r.Verdict, Oversold: r.Oversold, Undersold: r.Undersold, Lost: r.Lost, Explanation: r.Explanation}
			check.Same(t, "findings", got, tc.want)
			check.Same(t, "books", Tally{Sold: r.Sold, Left: r.Left, Retries: r.Retries}, tc.tally)
			counted := int(r.Accepted + r.Errors)
			for _, n := range r.Refused {
				counted += n
			}
			check.Same(t, "counted answers", counted, len(answers))
		})
	}
}

// Figures of rounds with many buyers at once, with fewer buyers than places, and without an accepted buyer.
func TestRounds(t *testing.T) {
	type test struct {
		round *fakeRound
		plan  model.LabPlan
		want  Result
	}
	check.Each(t, map[string]test{
		"exact": {
			exactly(30),
			model.LabPlan{Buyers: 500, Stock: 30, Concurrency: 32, Instances: 2},
			Result{Requests: 500, Sold: 30, Accepted: 30, Refused: map[model.Verdict]int{model.SoldOut: 470}, Verdict: Exact},
		},
		"naive": {
			naively(1, 20),
			model.LabPlan{Buyers: 20, Stock: 1, Concurrency: 20, Instances: 2},
			Result{Requests: 20, Sold: 20, Oversold: 19, Accepted: 20, Refused: map[model.Verdict]int{}, Verdict: Oversold},
		},
		"fewer buyers than places": {
			exactly(10),
			model.LabPlan{Buyers: 3, Stock: 10, Concurrency: 100, Instances: 1},
			Result{Requests: 3, Sold: 3, Accepted: 3, Refused: map[model.Verdict]int{}, Verdict: Exact},
		},
		"nobody accepted": {
			answering(Tally{Left: 3}, times(5, model.Paused)),
			model.LabPlan{Buyers: 5, Stock: 3, Concurrency: 1, Instances: 1},
			Result{Requests: 5, Refused: map[model.Verdict]int{model.Paused: 5}, Verdict: Exact},
		},
	}, func(t *testing.T, tc test) {
		r := runOne(t, tc.round, tc.plan)
		got := Result{
			Requests: r.Requests, Sold: r.Sold, Oversold: r.Oversold, Accepted: r.Accepted, Refused: r.Refused, Verdict: r.Verdict,
		}
		check.Same(t, "result", got, tc.want)
		check.Same(t, "orders were persisted", r.PersistedPerSecond > 0, r.Sold > 0)
	})
}

func TestErrorSamplesAreBounded(t *testing.T) {
	const buyers = 2 * maxErrorTexts
	round := exactly(0)
	round.buy = func(_ context.Context, _ int, buyer string) (model.Verdict, error) {
		if len(buyer) < 3 {
			return "", errors.New("common")
		}
		return "", fmt.Errorf("%s: %s", buyer, strings.Repeat("é", maxErrorLength))
	}
	r := runOne(t, round, model.LabPlan{Buyers: buyers, Stock: 1, Concurrency: 4, Instances: 1, Seed: 5})
	if r.Errors != buyers || len(r.ErrorSamples) != maxErrorSamples {
		t.Fatalf("%d errors, %d samples; want %d, %d", r.Errors, len(r.ErrorSamples), buyers, maxErrorSamples)
	}
	if s := r.ErrorSamples[0]; s.Text != "common" || s.Count < 2 {
		t.Errorf("the first sample is %+v, want the most frequent", s)
	}
	for _, s := range r.ErrorSamples {
		if utf8.RuneCountInString(s.Text) > maxErrorLength || strings.ContainsRune(s.Text, '�') {
			t.Errorf("%q is too long or cut within a letter", s.Text)
		}
	}
}
