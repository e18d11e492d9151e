package browser

import (
	"sort"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

const (
	// lightPage is what a first visit may bring over the network, and shownWithin when all of it should stand there.
	lightPage   = 60 << 10
	shownWithin = 300 // ms
	// stillPage is how much of a page may move while it loads, as Chromium counts layout shift: nothing that is seen.
	stillPage = 0.01
)

// measure is what the browser says of a visit.
type measure struct {
	Bytes   int     `json:"bytes"`
	Files   int     `json:"files"`
	Shown   float64 `json:"shown"`   // ms until the largest content was painted
	Loaded  float64 `json:"loaded"`  // ms until everything was loaded
	Shifted float64 `json:"shifted"` // layout shift
}

// visits is how often a page is timed: once is enough to weigh it.
func visits() int {
	if full {
		return 3
	}
	return 1
}

// A first visit is light, at once there, and nothing moves. The time is told and not judged: it is the machine's.
func TestSpeed(t *testing.T) {
	if !full { // which takes the median of the times
		t.Parallel()
	}
	s := serve(t)
	sale := s.sale(fields{"limit_per_user": 2})
	for path, live := range map[string]string{"/": ".card .left", "/sales/" + sale: "#line", "/orders": "#outside"} {
		for _, how := range []look{phone, desktop, {width: 375, language: "zh-CN"}} {
			var times []float64
			var last measure
			for range visits() {
				w := s.open(how)
				w.must(chromedp.Call(w.ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true}))
				w.visit(path)
				w.until("the page lives", func() (string, bool) { return w.text("main"), w.holds(live) })
				last = js[measure](w, `(async () => {
					await new Promise((resolve) => setTimeout(resolve, 700)); // what moves late moves too
					const all = (type) => new Promise((resolve) => {
						new PerformanceObserver((list) => resolve(list.getEntries())).observe({type, buffered: true});
						setTimeout(resolve, 300, []);
					});
					const files = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
					const painted = await all("largest-contentful-paint");
					const shifts = await all("layout-shift");
					return {
						bytes: files.reduce((sum, file) => sum + file.transferSize, 0),
						files: files.length,
						shown: Math.max(...painted.map((paint) => paint.startTime)),
						loaded: files[0].loadEventEnd,
						shifted: shifts.reduce((sum, shift) => sum + shift.value, 0),
					};
				})()`)
				times = append(times, last.Shown)
			}
			sort.Float64s(times)
			t.Logf("%s at %d px, %s: %d bytes in %d files, shown after %.0f ms (goal %d), loaded after %.0f ms, shift %.4f",
				path, how.width, how.language, last.Bytes, last.Files, times[len(times)/2], shownWithin, last.Loaded, last.Shifted)
			if last.Bytes == 0 || last.Bytes > lightPage {
				t.Errorf("%s: %d bytes, at most %d", path, last.Bytes, lightPage)
			}
			if last.Shifted > stillPage {
				t.Errorf("%s: layout shift %.4f, at most %.2f", path, last.Shifted, stillPage)
			}
		}
	}
}
