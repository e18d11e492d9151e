package bench

import (
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	tests := map[string]struct {
		values []float64
		want   Spread
	}{
		"none": {nil, Spread{}},
		"one":  {[]float64{3}, Spread{3, 3, 3}},
		"odd":  {[]float64{9, 1, 5}, Spread{5, 1, 9}},
		"even": {[]float64{4, 1, 2, 9}, Spread{3, 1, 9}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.values)
			if got := spread(tc.values); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if !slices.Equal(tc.values, before) {
				t.Error("the rounds were put in another order")
			}
		})
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	got := ratios([]float64{50, 10, 7, 8}, []float64{100, 20, 0})
	if want := []float64{0.5, 0.5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRise(t *testing.T) {
	tests := map[string]struct {
		values []float64
		want   float64
	}{
		"flat":          {[]float64{4, 4}, 0},
		"falls":         {[]float64{4, 1}, 0},
		"rises":         {[]float64{4, 6, 5}, 0.5},
		"only a moment": {[]float64{4, 5, 4}, 0.25},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rise(tc.values); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
