package bench

import (
	"fmt"
	"slices"
	"strings"
)

// mostGrowth is how far the cost may rise above the first value if a curve is to count as flat: 0.1 is 10%.
const mostGrowth = 0.1

// Result is one row of the run.
type Result struct {
	Name     string `json:"name"`
	Goal     string `json:"goal"`
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
	// Void is the reason why the figures don't count: the books were wrong, or answers had an unexpected status.
	Void string `json:"void,omitempty"`
	// Unjudged marks a row without a goal.
	Unjudged bool     `json:"unjudged,omitempty"`
	Control  []Sample `json:"control,omitempty"`
	Path     []Sample `json:"path,omitempty"`
	// Values are the results of the rounds, in Unit, if the row doesn't measure requests.
	Values   []float64 `json:"values,omitempty"`
	Unit     string    `json:"unit,omitempty"`
	Points   []Point   `json:"points,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Commands []string  `json:"commands,omitempty"`
}

// Point is the result at one size.
type Point struct {
	Size    int      `json:"size"`
	Control []Sample `json:"control,omitempty"`
	Path    []Sample `json:"path,omitempty"`
}

func rates(samples []Sample) []float64 {
	return collect(samples, func(s Sample) float64 { return s.RequestsPerSecond })
}

func p50s(samples []Sample) []float64 {
	return collect(samples, func(s Sample) float64 { return s.P50MS })
}

func p99s(samples []Sample) []float64 {
	return collect(samples, func(s Sample) float64 { return s.P99MS })
}

func collect(samples []Sample, of func(Sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return values
}

// ratio returns the median of the rounds' ratios.
func ratio(path, control []Sample) float64 { return spread(ratios(rates(path), rates(control))).Median }

// judgeRatio compares the path with a control. If mostP99MS is 0, the row has no goal for the p99, which is in ms.
func (r *Result) judgeRatio(least, mostP99MS float64) {
	measured, p99 := ratio(r.Path, r.Control), spread(p99s(r.Path)).Median
	r.Goal, r.Measured = fmt.Sprintf(">= %.2f", least), fmt.Sprintf("%.2f", measured)
	r.Met = measured >= least
	if least == 0 {
		r.Goal = "none, for comparison"
	}
	if mostP99MS > 0 {
		r.Goal += fmt.Sprintf(", p99 < %.0f ms", mostP99MS)
		r.Met = r.Met && p99 < mostP99MS
	}
}

// judgeGrowth compares the cost of a request at each point with the cost at the first point. The unit of a cost is the
// control's cost at the same point. This excludes what the load tool and the kernel need for more buyers or
// connections.
func (r *Result) judgeGrowth() {
	costs := make([]float64, len(r.Points))
	parts := make([]string, len(r.Points))
	for i, p := range r.Points {
		if share := ratio(p.Path, p.Control); share > 0 {
			costs[i] = 1 / share
		}
		if costs[0] > 0 {
			parts[i] = fmt.Sprintf("%.2f", costs[i]/costs[0])
		}
	}
	r.Measured = "x " + strings.Join(parts, ", ")
	r.Goal = fmt.Sprintf("cost rises <= %.0f%%", mostGrowth*percent)
	r.Met = !slices.Contains(costs, 0) && rise(costs) <= mostGrowth
}

// judgeLeast and judgeMost compare the median of Values with a lower and an upper bound.
func (r *Result) judgeLeast(least float64) {
	median := spread(r.Values).Median
	r.Goal, r.Measured = fmt.Sprintf(">= %s %s", figure(least), r.Unit), fmt.Sprintf("%s %s", figure(median), r.Unit)
	r.Met = median >= least
}

func (r *Result) judgeMost(most float64) {
	median := spread(r.Values).Median
	r.Goal, r.Measured = fmt.Sprintf("< %s %s", figure(most), r.Unit), fmt.Sprintf("%s %s", figure(median), r.Unit)
	r.Met = median < most
}

func (r *Result) verdict() string {
	switch {
	case r.Void != "":
		return "VOID"
	case r.Unjudged:
		return "no goal"
	case r.Met:
		return "met"
	}
	return "not met"
}
