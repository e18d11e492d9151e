package bench

import (
	"maps"
	"strings"
	"testing"
)

const (
	wrkOutput = `Running 5s test @ http://127.0.0.1:41235
  2 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.44ms    1.31ms  27.52ms   91.22%
    Req/Sec    36.71k     3.31k   44.87k    66.67%
  Latency Distribution
     50%    1.11ms
     75%    1.63ms
     90%    2.57ms
     99%    6.84ms
  368713 requests in 5.06s, 171.24MB read
Requests/sec:  72867.22
Transfer/sec:     33.84MB
`
	abOutput = `This is ApacheBench, Version 2.3 <$Revision: 1923142 $>
Concurrency Level:      100
Time taken for tests:   1.459 seconds
Complete requests:      10000
Failed requests:        3
Non-2xx responses:      9997
Total transferred:      6150000 bytes
Requests per second:    6855.12 [#/sec] (mean)
Time per request:       14.588 [ms] (mean)

Percentage of the requests served within a certain time (ms)
  50%     14
  66%     15
  99%     22
 100%     30 (longest request)
`
)

func TestParseWrk(t *testing.T) {
	plain := Sample{RequestsPerSecond: 72867.22, P50MS: 1.11, P99MS: 6.84, Requests: 368713}
	with := func(change func(*Sample)) Sample {
		s := plain
		change(&s)
		return s
	}
	tests := map[string]struct {
		change *strings.Replacer
		want   Sample
		bad    bool
	}{
		"milliseconds": {change: strings.NewReplacer(), want: plain},
		"microseconds": {
			change: strings.NewReplacer("50%    1.11ms", "50%   85.00us"),
			want:   with(func(s *Sample) { s.P50MS = 0.085 }),
		},
		"seconds and minutes": {
			change: strings.NewReplacer("50%    1.11ms", "50%    1.25s", "99%    6.84ms", "99%    1.50m"),
			want:   with(func(s *Sample) { s.P50MS, s.P99MS = 1250, 90_000 }),
		},
		"all refused": {
			change: strings.NewReplacer("Requests/sec", "  Non-2xx or 3xx responses: 368713\nRequests/sec"),
			want:   with(func(s *Sample) { s.Refused = 368713 }),
		},
		"socket errors": {
			change: strings.NewReplacer("Requests/sec", "  Socket errors: connect 1, read 20, write 300, timeout 4000\nRequests/sec"),
			want:   with(func(s *Sample) { s.Errors = 4321 }),
		},
		"no latencies":   {change: strings.NewReplacer("99%    6.84ms", ""), bad: true},
		"nobody there":   {change: strings.NewReplacer(wrkOutput, "unable to connect to 127.0.0.1:1 Connection refused"), bad: true},
		"not its number": {change: strings.NewReplacer("72867.22", "1.2.3"), bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseWrk(tc.change.Replace(wrkOutput))
			if (err != nil) != tc.bad {
				t.Fatalf("error %v", err)
			}
			if err == nil && got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestParseAB(t *testing.T) {
	want := Sample{RequestsPerSecond: 6855.12, P50MS: 14, P99MS: 22, Requests: 10000, Refused: 9997, Errors: 3}
	if got, err := parseAB(abOutput); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseAB("apr_socket_recv: Connection refused (111)"); err == nil {
		t.Error("a run that broke off has figures")
	}
}

func TestCounters(t *testing.T) {
	page := `# TYPE purchases_total counter
purchases_total{verdict="accepted"} 1.5e+06
purchases_total{verdict="sold_out"} 3
other 7
`
	want := map[string]float64{`purchases_total{verdict="accepted"}`: 1_500_000, `purchases_total{verdict="sold_out"}`: 3}
	if got := counters(page, "purchases_total{"); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
