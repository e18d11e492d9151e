package fault

import (
	"fmt"
	"os"
	"strings"

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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.PID()))
	_, after, _ := strings.Cut(string(status), field+":")
	line, _, _ := strings.Cut(after, " kB")
	kilobytes := number(strings.TrimSpace(line))
	if kilobytes == 0 {
		d.Errorf("the memory of %d: %v", i.PID(), err) // not Fatal, because some callers run in goroutines of their own
	}
	return int64(kilobytes) << 10
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
