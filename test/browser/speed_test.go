package browser

import (
	"slices"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

const (
	// lightPage is how many bytes a first visit may load. shownWithin is the goal for the largest content, in ms.
	lightPage   = 60 << 10
	shownWithin = 300
	// stillPage is the largest permitted layout shift, as Chromium measures it: nothing visible.
	stillPage = 0.01
)

// measure is the browser's measurement of a visit. Times are in ms.
type measure struct {
	Bytes   int     `json:"bytes"`
	Files   int     `json:"files"`
	Shown   float64 `json:"shown"`  // until the largest content was painted
	Loaded  float64 `json:"loaded"` // until everything was loaded
	Shifted float64 `json:"shifted"`
}

// measuring waits for late shifts, and then returns a measure.
const measuring = `(async () => {
	await new Promise((resolve) => setTimeout(resolve, 700));
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
})()`

// A first visit is light, and nothing moves while the page loads. The time is logged only, since it depends on the
// machine.
func TestSpeed(t *testing.T) {
	visits := 3 // of which the log shows the median
	if !full {
		t.Parallel()
		visits = 1
	}
	s := serve(t)
	sale := s.sale(fields{"limit_per_user": 2})
	campaign, _ := s.campaign(nil)
	for path, live := range map[string]string{"/": ".card .left", "/sales/" + sale: "#line", "/campaigns/" + campaign: "#line", "/orders": "#outside"} {
		for _, how := range []look{phone, desktop, {width: 375, language: "zh-CN"}} {
			var times []float64
			var last measure
			for range visits {
				w := s.open(how, "")
				w.must(chromedp.Call(w.ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true}))
				w.visit(path)
				w.see(live, "")
				last = js[measure](w, measuring)
				times = append(times, last.Shown)
			}
			slices.Sort(times)
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
