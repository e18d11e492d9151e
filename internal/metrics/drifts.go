package metrics

import (
	"maps"
	"sync"
	"time"
)

// drifts holds, for each sale, the drift that this instance's auditor saw last. It drops a sighting after driftLinger, since the
// drift may have been repaired.
type drifts struct {
	mu   sync.Mutex
	seen map[string]sighting // by sale
}

type sighting struct {
	units int64
	at    time.Time
}

func (d *drifts) note(saleID string, units int64, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.seen[saleID]; !known { // not each time, since forget goes through all sales
		d.forget(at)
	}
	d.seen[saleID] = sighting{units, at}
}

// recent returns, by sale, the units of the drifts that were seen within driftLinger.
func (d *drifts) recent(now time.Time) map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	units := make(map[string]int64, len(d.seen))
	for saleID, s := range d.seen {
		units[saleID] = s.units
	}
	return units
}

func (d *drifts) forget(now time.Time) {
	maps.DeleteFunc(d.seen, func(_ string, s sighting) bool { return now.Sub(s.at) > driftLinger })
}
