package fault

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"flashsale/test/kit/shop"
)

// limitRows are attacks by volume: connections, addresses, requests, log-ins.
var limitRows = []row{
	{18, "500 slowloris connections and 10,000 idle ones", "cut by timeouts; others are served", slowAndIdle},
	{24, "forged headers, and 1,000 addresses", "still limited", forgedAddresses},
	{26, "ten times the requests that the instance takes", "a bounded wait for those taken; 429 for the others; soon normal", tenTimesTheRate},
	{27, "more buyers than the queue in front of the database holds", "503 at once for the excess, nobody else loses", fullQueue},
	{28, "log-ins without end", "bounded in cores and memory; buyers are served", loginsWithoutEnd},
}

// leanly makes an instance collect garbage early, so that its memory is what it needs.
var leanly = []string{"GOGC=50"}

// resident returns the resident memory of an instance in bytes.
func (d *drill) resident(i *shop.Instance) int64 { return d.memory(i, "VmRSS") }

// memory reads a field of a process's status, in bytes.
func (d *drill) memory(i *shop.Instance, field string) int64 {
	d.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID()), "status"))
	if err != nil {
		d.Error(err) // not Fatal, because some callers run in goroutines of their own
		return 0
	}
	_, after, _ := strings.Cut(string(status), field+":")
	line, _, _ := strings.Cut(after, " kB")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		d.Errorf("the memory of %d: %v", i.PID(), err)
	}
	return kilobytes << 10
}

// flatSlack is how much an instance's memory may vary without a cause, in bytes.
const flatSlack = 24 << 20

// flat runs an attack once and then repeats it: the repetitions must not make the instance's memory grow.
func (d *drill) flat(i *shop.Instance, times int, attack func()) {
	d.Helper()
	attack()
	before := d.resident(i)
	for range times {
		attack()
	}
	grown := d.resident(i) - before
	d.Logf("%d bytes, %+d after %d more rounds", before, grown, times)
	if grown > flatSlack {
		d.Errorf("%d more rounds of it have taken %d MiB", times, grown>>20)
	}
}

// percentile returns the time within which so many of a hundred were answered.
func percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)*percent/100, len(times)-1)]
}

// again returns what is wrong with a refusal for lack of capacity: it must be 429 or 503, with a Retry-After of at
// least 1.
func again(r reply) string {
	after, err := strconv.Atoi(r.header.Get("Retry-After"))
	if r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable || err != nil || after < 1 {
		return fmt.Sprintf("%d %s with Retry-After %q", r.status, r.code(), r.header.Get("Retry-After"))
	}
	return ""
}

// openFiles makes sure that this process, and those that it starts, may have so many files open.
func (d *drill) openFiles(need uint64) {
	d.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.Fatal(err)
	}
	if limit.Max < need {
		d.Fatalf("this row needs %d open files, and no process here may have more than %d (ulimit -Hn)", need, limit.Max)
	}
	if limit.Cur >= need {
		return
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.Fatal(err)
	}
}
