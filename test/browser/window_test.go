package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// headlessShell is Chromium without the parts that only a desktop needs, so it takes half the processor time.
const headlessShell = "chromium-headless-shell"

// browser is one Chromium for all tests; each window has storage of its own.
var browser = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(headlessShell), chromedp.UserDataDir(filepath.Join(scratch, "chromium")))
	alloc, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	closeBrowser = func() {
		cancel()
		end()
	}
	return ctx, chromedp.Do(ctx)
})

// closeBrowser ends the browser, if there is one.
var closeBrowser = func() {}

// look is how somebody looks at a page.
type look struct {
	width    int64
	dark     bool
	language string
}

var (
	desktop = look{width: 1440, language: "en-GB"}
	phone   = look{width: 375, language: "en-GB"}
)

// window is a browser's window with storage of its own, as of a person of their own.
type window struct {
	t       *testing.T
	ctx     context.Context
	url     string // of the server
	mu      sync.Mutex
	console []string // errors and warnings
	allowed []string
}

// open opens a window. When the test ends, nothing may stand in its console but what was allowed.
func (s *server) open(look look) *window {
	s.t.Helper()
	parent, err := browser()
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	w := &window{t: s.t, ctx: ctx, url: s.url}
	messages := chromedp.Console(ctx)
	var read sync.WaitGroup
	read.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning {
				w.mu.Lock()
				w.console = append(w.console, fmt.Sprintf("%s (%s)", m, m.URL))
				w.mu.Unlock()
			}
		}
	})
	s.t.Cleanup(func() {
		if s.t.Failed() {
			w.shot("failed/" + strings.ReplaceAll(s.t.Name(), "/", "-"))
		}
		cancel()
		read.Wait()
		w.quiet()
	})
	w.like(look)
	return w
}

// like changes how the window is looked at.
func (w *window) like(l look) {
	w.t.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	height := int64(900)
	var mobile []chromedp.EmulateViewportOption
	if l.width < 500 {
		height = 812
		mobile = append(mobile, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
	}
	w.do(chromedp.EmulateViewport(l.width, height, mobile...))
	w.must(chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	}))
	w.must(chromedp.Call(w.ctx, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{
		UserAgent: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36", AcceptLanguage: l.language,
	}))
	w.must(chromedp.Call(w.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"}))
}

func (w *window) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// do takes steps, each of which must be possible within patience.
func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *window) visit(path string) {
	w.t.Helper()
	w.do(chromedp.Navigate(w.url + path))
}

// click presses what a selector finds with the mouse, once it can be seen.
func (w *window) click(selector string) {
	w.t.Helper()
	w.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// write types into a field.
func (w *window) write(selector, text string) {
	w.t.Helper()
	w.do(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// press presses keys where the keyboard is.
func (w *window) press(keys string) {
	w.t.Helper()
	w.do(chromedp.KeyEvent(keys))
}

// js evaluates an expression.
func js[T any](w *window, expression string) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		w.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// text is what can be read of what a selector finds; empty if nothing, or if the page is just being left.
func (w *window) text(selector string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		return e && e.checkVisibility({visibilityProperty: true}) ? e.innerText : "";
	})()`, selector)))
	if err != nil && !strings.Contains(err.Error(), "navigated or closed") {
		w.t.Fatalf("the text of %s: %v", selector, err)
	}
	return text
}

// see waits until a text can be read in what a selector finds.
func (w *window) see(selector, want string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s says %q", selector, want), func() (string, bool) {
		got := w.text(selector)
		return got, got != "" && strings.Contains(got, want)
	})
}

// lookEvery is how often a page is looked at: each look takes the browser a millisecond.
const lookEvery = 25 * time.Millisecond

// until looks until something is so, since a page announces nothing to the outside. got says how it is instead.
func (w *window) until(what string, is func() (got string, ok bool)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got, ok := is()
		switch {
		case ok:
			return
		case time.Now().After(deadline):
			w.t.Fatalf("%s: not within %s, but %q", what, patience, got)
		}
		time.Sleep(lookEvery)
	}
}

// becomes waits until an expression is true: what a page does after a click need not be done when the click is.
func (w *window) becomes(what, expression string) {
	w.t.Helper()
	w.until(what, func() (string, bool) { return expression, js[bool](w, expression) })
}

// rests waits until a button is grey, and wakes until it is not.
func (w *window) rests(selector string) {
	w.t.Helper()
	w.until(selector+" rests", func() (string, bool) { return w.text(selector), w.grey(selector) })
}

func (w *window) wakes(selector string) {
	w.t.Helper()
	w.until(selector+" is live", func() (string, bool) { return w.text(selector), !w.grey(selector) })
}

// holds says whether what a selector finds is there to be seen.
func (w *window) holds(selector string) bool {
	w.t.Helper()
	return w.text(selector) != ""
}

// grey says whether a button rests.
func (w *window) grey(selector string) bool {
	w.t.Helper()
	return js[bool](w, fmt.Sprintf(`document.querySelector(%q).getAttribute("aria-disabled") === "true"`, selector))
}

// register makes an account in the dialog that is open.
func (w *window) register(name string) {
	w.t.Helper()
	w.see("#account-title", "Create an account")
	w.write("#name", name)
	w.write("#password", buyersPassword)
	w.click("#account-submit")
}

// allow names parts of messages that the test provokes: Chromium notes each refusal in the console.
func (w *window) allow(parts ...string) { w.allowed = append(w.allowed, parts...) }

// quiet fails the test if there is anything else in the console.
func (w *window) quiet() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
next:
	for _, message := range w.console {
		for _, part := range w.allowed {
			if strings.Contains(message, part) {
				continue next
			}
		}
		w.t.Errorf("console: %s", message)
	}
}

// shots is where the pictures of pages are kept.
const shots = "../../build/screenshots"

// shot keeps a picture of the whole page.
func (w *window) shot(name string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	size := js[[]int64](w, `[innerWidth, Math.max(innerHeight, document.documentElement.scrollHeight)]`)
	picture, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: new(true), Clip: &page.Viewport{Width: float64(size[0]), Height: float64(size[1]), Scale: 1},
	})
	if err != nil {
		w.t.Errorf("screenshot %s: %v", name, err)
		return
	}
	path := filepath.Join(shots, name+".png")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, picture.Data, 0o644); err != nil {
		w.t.Fatal(err)
	}
}
