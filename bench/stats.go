// Package bench measures the engine against a bare Gin server, on one machine and in turns (`make bench`). What is
// here without a build tag only computes and writes; the tests with the tag bench start servers and load them.
package bench

import "slices"

// Spread is what several rounds gave. The zero value stands for none.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// ratios divides round by round, so that a machine that slows down between rounds slows both sides of a ratio.
// Rounds that only one side has are left out; so is a round whose divisor is nothing.
func ratios(path, control []float64) (list []float64) {
	for i := range min(len(path), len(control)) {
		if control[i] > 0 {
			list = append(list, path[i]/control[i])
		}
	}
	return list
}

// rise is how far a value lies above the first at most, as a part of it: 0.1 is 10%. What falls doesn't rise.
func rise(values []float64) float64 { return slices.Max(values)/values[0] - 1 }
