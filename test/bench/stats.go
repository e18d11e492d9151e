// Package bench measures the engine against a bare Gin server, on one machine and in turns (`make bench`). The files
// without a build tag only compute and write; the tests with the tag bench start servers and load them.
package bench

import "slices"

// Spread summarizes the values of several rounds. The zero value means that there are none.
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

// ratios divides round by round, so that a machine that gets slower between rounds slows both sides of a ratio. It
// omits rounds that only one side has, and rounds whose divisor is 0.
func ratios(path, control []float64) (list []float64) {
	for i := range min(len(path), len(control)) {
		if control[i] > 0 {
			list = append(list, path[i]/control[i])
		}
	}
	return list
}

// rise returns how far the largest value lies above the first, as a fraction of the first: 0.1 is 10%. If no value is
// above the first, it returns 0.
func rise(values []float64) float64 { return slices.Max(values)/values[0] - 1 }
