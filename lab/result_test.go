package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
)

func TestFindings(t *testing.T) {
	yes, no, failed := model.Accepted, model.SoldOut, model.Verdict("")
	tests := []struct {
		name                      string
		stock                     int
		answers                   []model.Verdict
		tally                     Tally
		want                      Finding
		oversold, undersold, lost int64
		says                      []string
		saysNot                   string
	}{
		{
			name: "exact", stock: 3, answers: append(times(3, yes), times(2, no)...), tally: Tally{Sold: 3, Retries: 9},
			want: Exact, says: []string{"Every unit was sold, and none twice."}, saysNot: "When it breaks",
		},
		{
			name: "fewer buyers than units", stock: 10, answers: times(4, yes), tally: Tally{Sold: 4, Left: 6},
			want: Exact, says: []string{"Every buyer got a unit; left unsold: 6."},
		},
		{
			name: "refused for another reason", stock: 3, answers: []model.Verdict{yes, model.LimitReached, model.RateLimited}, tally: Tally{Sold: 1, Left: 2},
			want: Exact, says: []string{"Every accepted buyer has an order; left unsold: 2."},
		},
		{
			name: "nobody was served", stock: 3, answers: times(4, failed), tally: Tally{Left: 3},
			want: Failed, says: []string{"Left unsold: 3.", "4 attempts ended in an error."},
		},
		{
			name: "an error that became an order", stock: 3, answers: []model.Verdict{yes, yes, failed, failed, no}, tally: Tally{Sold: 3},
			want: Exact, says: []string{"2 attempts ended in an error; of these, 1 made an order all the same."},
		},
		{
			name: "the stock row is wrong, and nobody noticed", stock: 3, answers: times(2, yes), tally: Tally{Sold: 2, Left: 2},
			want: Astray, says: []string{"The stock row still offers 2 units, not 1."},
		},
		{
			name: "oversold", stock: 3, answers: append(times(5, yes), no), tally: Tally{Sold: 5},
			want: Oversold, oversold: 2, says: []string{"5 units sold, 2 more than there were.", "When it breaks: when two come at once."}, saysNot: "And so on",
		},
		{
			name: "oversold and lost", stock: 3, answers: times(6, yes), tally: Tally{Sold: 4},
			want: Oversold, oversold: 1, lost: 2, says: []string{"4 units sold, 1 more than there were.", "2 buyers heard yes and found no order"},
		},
		{
			name: "more accepted than there were units", stock: 3, answers: times(5, yes), tally: Tally{Sold: 3},
			want: Lost, lost: 2, says: []string{"2 buyers heard yes and found no order", "When it breaks:"},
		},
		{
			name: "lost and held back", stock: 3, answers: append(times(3, yes), no), tally: Tally{Sold: 2, Left: 1},
			want: Lost, lost: 1, undersold: 1, says: []string{"1 buyer heard yes", "1 unit left, although"},
		},
		{
			name: "unheard", stock: 3, answers: append(times(2, yes), no), tally: Tally{Sold: 3},
			want: Unheard, says: []string{"1 order in the database, although the answer was no."},
		},
		{
			name: "undersold", stock: 3, answers: append(times(2, yes), no), tally: Tally{Sold: 2, Left: 1},
			want: Undersold, undersold: 1, says: []string{"1 unit left, although buyers heard that it was sold out.", "When it breaks:"},
		},
		{
			name: "a stock row below nothing", stock: 3, answers: append(times(3, yes), no), tally: Tally{Sold: 3, Left: -1},
			want: Astray, says: []string{"The stock row still offers -1 units, not 0."},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := runOne(t, answering(test.tally, test.answers...), Plan{Buyers: len(test.answers), Stock: test.stock, Concurrency: 1, Instances: 1})
			if r.Verdict != test.want || r.Oversold != test.oversold || r.Undersold != test.undersold || r.Lost != test.lost {
				t.Errorf("%s, oversold %d, undersold %d, lost %d; want %s, %d, %d, %d",
					r.Verdict, r.Oversold, r.Undersold, r.Lost, test.want, test.oversold, test.undersold, test.lost)
			}
			if r.Sold != test.tally.Sold || r.Retries != test.tally.Retries || r.Left != test.tally.Left {
				t.Errorf("sold %d, retries %d, left %d; want the tally %+v", r.Sold, r.Retries, r.Left, test.tally)
			}
			refused := int64(0)
			for _, n := range r.Refused {
				refused += int64(n)
			}
			if sum := r.Accepted + refused + r.Errors; sum != int64(len(test.answers)) {
				t.Errorf("%d answers are counted, want %d", sum, len(test.answers))
			}
			for _, part := range test.says {
				if !strings.Contains(r.Explanation, part) {
					t.Errorf("the explanation %q does not say %q", r.Explanation, part)
				}
			}
			if test.saysNot != "" && strings.Contains(r.Explanation, test.saysNot) {
				t.Errorf("the explanation %q says %q", r.Explanation, test.saysNot)
			}
		})
	}
}

func TestRaces(t *testing.T) {
	exact := runOne(t, exactly(30), Plan{Buyers: 500, Stock: 30, Concurrency: 32, Instances: 2})
	if exact.Verdict != Exact || exact.Sold != 30 || exact.Accepted != 30 || exact.Refused[model.SoldOut] != 470 {
		t.Errorf("%s, %d sold, %d accepted, %d refused; want exact, 30, 30, 470", exact.Verdict, exact.Sold, exact.Accepted, exact.Refused[model.SoldOut])
	}
	naive := runOne(t, naively(1, 20), Plan{Buyers: 20, Stock: 1, Concurrency: 20, Instances: 2})
	if naive.Verdict != Oversold || naive.Oversold != 19 {
		t.Errorf("%s by %d, want oversold by 19", naive.Verdict, naive.Oversold)
	}
}

func TestNothingAcceptedPersistsNothing(t *testing.T) {
	r := runOne(t, answering(Tally{Left: 3}, times(5, model.Paused)...), Plan{Buyers: 5, Stock: 3, Concurrency: 1, Instances: 1})
	if r.PersistedPerSecond != 0 || r.Refused[model.Paused] != 5 {
		t.Errorf("%v persisted/s, %v refused; want 0, 5 paused", r.PersistedPerSecond, r.Refused)
	}
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
	r := runOne(t, round, Plan{Buyers: buyers, Stock: 1, Concurrency: 4, Instances: 1, Seed: 5})
	if r.Errors != buyers || len(r.ErrorSamples) != maxErrorSamples {
		t.Fatalf("%d errors, %d samples; want %d, %d", r.Errors, len(r.ErrorSamples), buyers, maxErrorSamples)
	}
	if s := r.ErrorSamples[0]; s.Text != "common" || s.Count < 2 {
		t.Errorf("the first sample is %+v, want the most frequent", s)
	}
	for _, s := range r.ErrorSamples {
		if len(s.Text) > maxErrorLength+len("…") || strings.ContainsRune(s.Text, '�') {
			t.Errorf("%q is too long or cut within a letter", s.Text)
		}
	}
}

func TestBucketsKeepTheirOrder(t *testing.T) {
	r := runOne(t, exactly(10), Plan{Buyers: 1000, Stock: 10, Concurrency: 4, Instances: 1})
	var sum int64
	for _, b := range r.Histogram {
		sum += b.Count
	}
	if sum != 1000 || !slices.IsSortedFunc(r.Histogram, func(a, b Bucket) int {
		if a.UpToMS < b.UpToMS {
			return -1
		}
		return 1
	}) {
		t.Errorf("%d attempts in %v, want 1000 in rising buckets", sum, r.Histogram)
	}
}
