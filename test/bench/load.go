package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Sample is a load tool's result for one round.
type Sample struct {
	RequestsPerSecond float64 `json:"requests_per_second"`
	P50MS             float64 `json:"p50_ms"`
	P99MS             float64 `json:"p99_ms"`
	Requests          int64   `json:"requests"`
	Refused           int64   `json:"refused"` // answers that are neither 2xx nor 3xx
	Errors            int64   `json:"errors"`  // connections that failed, and time-outs
}

var (
	wrkRequests   = regexp.MustCompile(`(?m)^\s*(\d+) requests in `)
	wrkRate       = regexp.MustCompile(`(?m)^Requests/sec:\s+([\d.]+)`)
	wrkPercentile = regexp.MustCompile(`(?m)^\s+(50|99)%\s+([\d.]+)(us|ms|s|m|h)$`)
	wrkRefused    = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: (\d+)`)
	wrkErrors     = regexp.MustCompile(`(?m)^\s*Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)

	abRequests   = regexp.MustCompile(`(?m)^Complete requests:\s+(\d+)`)
	abRate       = regexp.MustCompile(`(?m)^Requests per second:\s+([\d.]+)`)
	abPercentile = regexp.MustCompile(`(?m)^\s+(50|99)%\s+(\d+)$`)
	abRefused    = regexp.MustCompile(`(?m)^Non-2xx responses:\s+(\d+)`)
	abErrors     = regexp.MustCompile(`(?m)^Failed requests:\s+(\d+)`)
)

// parseWrk parses the output of `wrk -L`.
func parseWrk(output string) (s Sample, err error) {
	requests, rate := wrkRequests.FindStringSubmatch(output), wrkRate.FindStringSubmatch(output)
	percentiles := wrkPercentile.FindAllStringSubmatch(output, -1)
	if requests == nil || rate == nil || len(percentiles) != 2 {
		return s, fmt.Errorf("wrk printed no figures:\n%s", output)
	}
	if s.Requests, err = strconv.ParseInt(requests[1], 10, 64); err != nil {
		return s, fmt.Errorf("read wrk's requests: %w", err)
	}
	if s.RequestsPerSecond, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return s, fmt.Errorf("read wrk's rate: %w", err)
	}
	for i, ms := range []*float64{&s.P50MS, &s.P99MS} {
		// time.ParseDuration accepts wrk's units: us, ms, s, m and h.
		d, err := time.ParseDuration(percentiles[i][2] + percentiles[i][3])
		if err != nil {
			return s, fmt.Errorf("read wrk's latency: %w", err)
		}
		*ms = float64(d) / float64(time.Millisecond)
	}
	s.Refused = sum(wrkRefused.FindStringSubmatch(output))
	s.Errors = sum(wrkErrors.FindStringSubmatch(output))
	return s, nil
}

// parseAB parses the output of `ab -l`, whose latencies are whole milliseconds.
func parseAB(output string) (s Sample, err error) {
	requests, rate := abRequests.FindStringSubmatch(output), abRate.FindStringSubmatch(output)
	percentiles := abPercentile.FindAllStringSubmatch(output, -1)
	if requests == nil || rate == nil || len(percentiles) != 2 {
		return s, fmt.Errorf("ab printed no figures:\n%s", output)
	}
	if s.RequestsPerSecond, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return s, fmt.Errorf("read ab's rate: %w", err)
	}
	s.Requests = sum(requests)
	s.P50MS, s.P99MS = float64(sum(percentiles[0][1:])), float64(sum(percentiles[1][1:]))
	s.Refused = sum(abRefused.FindStringSubmatch(output))
	s.Errors = sum(abErrors.FindStringSubmatch(output))
	return s, nil
}

// sum adds up the groups of a match, which are digits. Without a match it returns 0.
func sum(match []string) (total int64) {
	for i, digits := range match {
		if i > 0 {
			n, _ := strconv.ParseInt(digits, 10, 64) // 0 on an overflow, which no run of minutes reaches
			total += n
		}
	}
	return total
}

// counters returns the values of a Prometheus page's lines that begin with one of the names. The key is the line's text
// before the value.
func counters(page string, names ...string) map[string]float64 {
	found := map[string]float64{}
	for line := range strings.Lines(page) {
		for _, name := range names {
			if !strings.HasPrefix(line, name) {
				continue
			}
			i := strings.LastIndexByte(line, ' ')
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64); err == nil {
				found[line[:i]] = v
			}
		}
	}
	return found
}
