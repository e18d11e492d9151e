package lab

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"flashsale/model"
)

const (
	// bucketDigits is the number of significant digits of a bucket's bound.
	bucketDigits = 3
	// bucketsPerDecade is the number of buckets from a latency to the one ten times as long.
	bucketsPerDecade = 10
	// maxErrorTexts bounds the error texts that are counted, since each error may name its own buyer.
	maxErrorTexts = 100
	// maxErrorSamples is how many error texts a report shows.
	maxErrorSamples = 5
	// maxErrorLength bounds an error text, in characters: a whole SQL statement may be in it.
	maxErrorLength = 200
)

// Finding is the judgement on a round in one word.
type Finding string

// The findings, in the order in which judge looks for them.
const (
	// Incomplete: the round was interrupted.
	Incomplete Finding = "incomplete"
	// Oversold: the orders have more units than the stock.
	Oversold Finding = "oversold"
	// Lost: the orders have fewer units than there were accepted answers.
	Lost Finding = "lost"
	// Unheard: there are more orders than accepted answers and errors together, so an attempt with an order was refused.
	Unheard Finding = "unheard"
	// Undersold: units are left, although an attempt was refused as sold out.
	Undersold Finding = "undersold"
	// Astray: the stock row does not show the units that the orders leave.
	Astray Finding = "astray"
	// Failed: units are left, and attempts ended in errors.
	Failed Finding = "failed"
	// Exact: none of the others.
	Exact Finding = "exact"
)

// Result is what one strategy did. Rates and seconds are measured from the release of the buyers.
type Result struct {
	Strategy           string                `json:"strategy"`
	Requests           int                   `json:"requests"` // buyers who made an attempt
	RequestsPerSecond  float64               `json:"requests_per_second"`
	P50MS              float64               `json:"p50_ms"`
	P99MS              float64               `json:"p99_ms"`
	Sold               int64                 `json:"sold"`
	Oversold           int64                 `json:"oversold"`
	Undersold          int64                 `json:"undersold"`
	Lost               int64                 `json:"lost"`                 // accepted answers beyond the units in orders
	Left               int64                 `json:"left"`                 // units that the stock row still offers
	PersistedPerSecond float64               `json:"persisted_per_second"` // measured until the last accepted answer
	Retries            int64                 `json:"retries"`
	Errors             int64                 `json:"errors"`
	Seconds            float64               `json:"seconds"` // until the last attempt ended
	Accepted           int64                 `json:"accepted"`
	Refused            map[model.Verdict]int `json:"refused"`
	ErrorSamples       []ErrorSample         `json:"error_samples"`
	Histogram          []Bucket              `json:"histogram"`
	Killed             bool                  `json:"killed"` // an instance was killed in this round
	Verdict            Finding               `json:"verdict"`
	Explanation        string                `json:"explanation"`
	Lesson             model.Lesson          `json:"lesson"`
}

// ErrorSample is the text of an error, cut to maxErrorLength, and how often the error occurred.
type ErrorSample struct {
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// Bucket counts the attempts that took at most UpToMS, and more than the bound of the bucket before.
type Bucket struct {
	UpToMS float64 `json:"up_to_ms"`
	Count  int64   `json:"count"`
}

func newResult(strategy string, p model.LabPlan, l *load, tally Tally, interrupted bool, lesson model.Lesson) *Result {
	r := &Result{
		Strategy: strategy, Requests: len(l.made()), Sold: tally.Sold, Left: tally.Left, Retries: tally.Retries,
		Refused: map[model.Verdict]int{}, Killed: l.killed.Load(), Lesson: lesson,
	}
	waits := make([]time.Duration, 0, len(l.made()))
	texts := map[string]int{}
	var lastAnswer, lastYes time.Duration
	for _, o := range l.made() {
		waits = append(waits, max(o.took, 1))
		lastAnswer = max(lastAnswer, o.ended)
		switch {
		case o.err != nil:
			r.Errors++
			if text := model.Excerpt(o.err.Error(), maxErrorLength); texts[text] > 0 || len(texts) < maxErrorTexts {
				texts[text]++
			}
		case o.verdict == model.Accepted:
			r.Accepted++
			lastYes = max(lastYes, o.ended)
		default:
			r.Refused[o.verdict]++
		}
	}
	r.Oversold = max(0, r.Sold-int64(p.Stock))
	r.Lost = max(0, r.Accepted-r.Sold)
	if r.Refused[model.SoldOut] > 0 {
		r.Undersold = max(0, tally.Left)
	}
	r.Seconds = lastAnswer.Seconds()
	r.RequestsPerSecond = perSecond(int64(r.Requests), lastAnswer)
	r.PersistedPerSecond = perSecond(r.Sold, lastYes)
	slices.Sort(waits)
	r.P50MS, r.P99MS = percentile(waits, 50), percentile(waits, 99)
	r.Histogram = buckets(waits)
	r.ErrorSamples = mostFrequent(texts)
	r.judge(p, interrupted)
	return r
}

// judge sets the verdict to the first finding that applies, and explains what the figures show.
func (r *Result) judge(p model.LabPlan, interrupted bool) {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	unsold := max(0, int64(p.Stock)-r.Sold)
	unheard := r.Sold - r.Accepted - r.Errors // an attempt that ended in an error may have become an order
	for _, f := range []struct {
		finding Finding
		applies bool
		text    string
	}{
		{Incomplete, interrupted, "Interrupted when " + count(r.Requests, "buyer") + " had set out; the figures cover those."},
		{Oversold, r.Oversold > 0, count(r.Sold, "unit") + " sold, " + grouped(r.Oversold) + " more than there were."},
		{Lost, r.Lost > 0, count(r.Lost, "buyer") + " heard yes and found no order in the database."},
		{Unheard, unheard > 0, count(unheard, "order") + " in the database, although the answer was no."},
		{Undersold, r.Undersold > 0, count(r.Undersold, "unit") + " left, although buyers heard that it was sold out."},
		{Astray, r.Left != unsold, "The stock row still offers " + count(r.Left, "unit") + ", not " + grouped(unsold) + "."},
	} {
		if f.applies {
			r.Verdict = cmp.Or(r.Verdict, f.finding)
			say("%s", f.text)
		}
	}
	if r.Verdict == "" {
		r.Verdict = Exact
		switch {
		case unsold == 0:
			say("Every unit was sold, and none twice.")
		case r.Errors > 0:
			r.Verdict = Failed
			say("Left unsold: %s.", grouped(unsold))
		case r.Sold == int64(p.Buyers):
			say("Every buyer got a unit; left unsold: %s.", grouped(unsold))
		default:
			say("Every accepted buyer has an order; left unsold: %s.", grouped(unsold))
		}
	}
	if breaks, _, more := strings.Cut(r.Lesson.Breaks, ". "); breaks != "" && r.Verdict != Exact && r.Verdict != Incomplete {
		if more {
			breaks += "."
		}
		say("When it breaks: %s", breaks)
	}
	if r.Errors > 0 {
		text := count(r.Errors, "attempt") + " ended in an error"
		if orders := min(r.Sold-r.Accepted, r.Errors); orders > 0 {
			text += "; of these, " + grouped(orders) + " made an order all the same"
		}
		say("%s.", text)
	}
	switch {
	case r.Killed:
		say("Instance %d of %d died on the way.", p.Instances, p.Instances)
	case p.Kill:
		say("Fewer than half of the units were sold, so no instance died.")
	}
	r.Explanation = strings.Join(said, " ")
}

// perSecond returns a rate, or 0 if the time is 0.
func perSecond(n int64, in time.Duration) float64 {
	if in == 0 {
		return 0
	}
	return float64(n) / in.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile returns a percentile of the sorted waits, in milliseconds, or 0 if there are no waits.
func percentile(waits []time.Duration, percent int) float64 {
	if len(waits) == 0 {
		return 0
	}
	return milliseconds(waits[(len(waits)*percent-1)/100])
}

// buckets counts the sorted waits by bucket, and leaves out empty buckets.
func buckets(waits []time.Duration) []Bucket {
	list := []Bucket{}
	for _, wait := range waits {
		if n := len(list); n == 0 || milliseconds(wait) > list[n-1].UpToMS {
			list = append(list, Bucket{UpToMS: bucketOf(milliseconds(wait))})
		}
		list[len(list)-1].Count++
	}
	return list
}

// bucketOf returns the upper bound of the bucket of a latency. Bounds are rounded to bucketDigits significant digits.
func bucketOf(ms float64) float64 {
	for step := math.Floor(bucketsPerDecade * math.Log10(ms)); ; step++ {
		top := math.Pow(10, step/bucketsPerDecade)
		scale := math.Pow(10, bucketDigits-1-math.Floor(math.Log10(top)))
		if top = math.Round(top*scale) / scale; top >= ms {
			return top
		}
	}
}

func mostFrequent(texts map[string]int) []ErrorSample {
	list := []ErrorSample{}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		list = append(list, ErrorSample{Text: text, Count: texts[text]})
	}
	slices.SortStableFunc(list, func(a, b ErrorSample) int { return cmp.Compare(b.Count, a.Count) })
	return list[:min(len(list), maxErrorSamples)]
}
