package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// headlessShell is Chromium without the parts that only a desktop needs, so it takes half the processor time.
const headlessShell = "chromium-headless-shell"

// browser is one Chromium for all tests; each window has storage of its own.
var browser = sync.OnceValues(func() (context.Context, error) {
	profile := chromedp.UserDataDir(filepath.Join(scratch, "chromium"))
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(headlessShell), profile)
	alloc, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	closeBrowser = func() {
		cancel()
		end()
	}
	return ctx, chromedp.Do(ctx)
})

// closeBrowser ends the browser, if it was started.
var closeBrowser = func() {}

// look is the device and the language of a visitor.
type look struct {
	width    int64
	dark     bool
	language string
}

var (
	desktop = look{width: 1440, language: "en-GB"}
	phone   = look{width: 375, language: "en-GB"}
)

// window is a browser's window with storage of its own.
type window struct {
	t         testing.TB
	ctx       context.Context
	url       string // of the server
	mu        sync.Mutex
	console   []string // errors and warnings
	allowed   []string
	mayScroll int // how many elements of a page may be wider than a phone
}

// open opens a window at a path. When the test ends, its console may contain only messages with one of the allowed
// parts: Chromium reports each refusal there.
func (s *server) open(look look, path string, allowed ...string) *window {
	s.t.Helper()
	parent, err := browser()
	check.NoError(s.t, err)
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	return s.openIn(ctx, cancel, look, path, allowed)
}

// tab opens another tab, which shares what the browser stores.
func (s *server) tab(w *window, look look, path string) *window {
	s.t.Helper()
	ctx, cancel := chromedp.NewContext(w.ctx)
	return s.openIn(ctx, cancel, look, path, w.allowed)
}

// openIn opens a window or tab that a context of chromedp is for.
//
//nolint:contextcheck // a window carries its context
func (s *server) openIn(ctx context.Context, cancel context.CancelFunc, look look, path string, allowed []string) *window {
	s.t.Helper()
	w := &window{t: s.t, ctx: ctx, url: s.url, allowed: allowed}
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
		for _, message := range w.console {
			if !slices.ContainsFunc(w.allowed, func(part string) bool { return strings.Contains(message, part) }) {
				w.t.Errorf("console: %s", message)
			}
		}
	})
	w.like(look)
	if path != "" {
		w.visit(path)
	}
	return w
}

// like changes the look of the window.
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
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		},
	}))
	w.must(chromedp.Call(w.ctx, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{
		UserAgent:      "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
		AcceptLanguage: l.language,
	}))
	w.must(chromedp.Call(w.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"}))
}

func (w *window) must(_ any, err error) {
	w.t.Helper()
	check.NoError(w.t, err)
}

// do takes steps, which must be possible within patience. If the page is replaced while an element is looked for, do looks
// again: no click or key was sent then.
func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	err := chromedp.Do(ctx, steps...)
	for err != nil && strings.Contains(err.Error(), "Could not find node with given id") {
		err = chromedp.Do(ctx, steps...)
	}
	w.inTime(err)
	check.NoError(w.t, err)
}

// soon is how far ahead a test sets a moment that a page awaits. After a try in which the machine was late, the moment is
// further away.
func soon(t *pace.Trial, usual time.Duration) time.Duration {
	if t.Before != "" {
		return 5 * usual
	}
	return usual
}

// early ends the try if a moment has come before the steps that belong before it were taken.
func early(t *pace.Trial, moment time.Time) {
	t.Helper()
	if !time.Now().Before(moment) {
		t.FatalSlowf("the steps before %s have taken too long", moment)
	}
}

// inTime ends the test if an error says that patience was over.
func (w *window) inTime(err error) {
	w.t.Helper()
	if errors.Is(err, context.DeadlineExceeded) {
		pace.Fatalf(w.t, "not within %s: %v", patience, err)
	}
}

func (w *window) visit(path string) {
	w.t.Helper()
	w.do(chromedp.Navigate(w.url + path))
}

// click clicks on elements with the mouse, one after the other, each once it is visible.
func (w *window) click(selectors ...string) {
	w.t.Helper()
	for _, selector := range selectors {
		w.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
	}
}

// leave moves the pointer to the corner of the window. A click may scroll the page, so the pointer may rest on another element
// than the one that was clicked.
func (w *window) leave() {
	w.t.Helper()
	w.do(chromedp.MouseEvent(chromedp.MouseMoved, 0, 0))
}

// write types into a field.
func (w *window) write(selector, text string) {
	w.t.Helper()
	w.do(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// fill types into a field in place of its text.
func (w *window) fill(selector, text string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`document.querySelector(%q).select(), true`, selector))
	w.write(selector, kb.Backspace+text)
}

// keeps checks that fields have the texts that were typed.
func (w *window) keeps(typed map[string]string) {
	w.t.Helper()
	for selector, want := range typed {
		got := js[string](w, fmt.Sprintf(`document.querySelector(%q).value`, selector))
		check.Same(w.t, selector+", as typed", got, want)
	}
}

// press presses keys where the focus is.
func (w *window) press(keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		w.do(chromedp.KeyEvent(key))
	}
}

func (w *window) focus(selector string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`document.querySelector(%q).focus(), true`, selector))
}

// focused waits until an element, given by its id, has the focus.
func (w *window) focused(id string) {
	w.t.Helper()
	w.becomes("the focus is on "+id, fmt.Sprintf(`document.activeElement.id === %q`, id))
}

// evaluate evaluates an expression. ok is false if the page is being left.
func evaluate[T any](w *window, expression string) (value T, ok bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	w.inTime(err)
	if err != nil && !strings.Contains(err.Error(), "navigated or closed") {
		w.t.Fatalf("%s: %v", expression, err)
	}
	return value, err == nil
}

// js evaluates an expression in a page that stays.
func js[T any](w *window, expression string) T {
	w.t.Helper()
	value, ok := evaluate[T](w, expression)
	if !ok {
		w.t.Fatalf("%s: the page is being left", expression)
	}
	return value
}

// text returns the visible text of an element. It is empty if there is no such element, or the page is being left.
func (w *window) text(selector string) string {
	w.t.Helper()
	text, _ := evaluate[string](w, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		return e && e.checkVisibility({visibilityProperty: true}) ? e.innerText : "";
	})()`, selector))
	return text
}

// see waits until an element shows a text.
func (w *window) see(selector, want string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s says %q", selector, want), func() (string, bool) {
		got := w.text(selector)
		return got, got != "" && strings.Contains(got, want)
	})
}

// texts are texts by the selectors of the elements that show them.
type texts map[string]string

// sees waits until each of several elements shows its text.
func (w *window) sees(all texts) {
	w.t.Helper()
	for selector, want := range all {
		w.see(selector, want)
	}
}

// lookEvery is how often a page is looked at. Each look takes the browser a millisecond.
const lookEvery = 25 * time.Millisecond

// until waits until a condition holds. It polls, since a page announces no change. got says what holds instead.
func (w *window) until(what string, is func() (got string, ok bool)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got, ok := is()
		switch {
		case ok:
			return
		case time.Now().After(deadline):
			pace.Fatalf(w.t, "%s: not within %s, but %q", what, patience, got)
		}
		time.Sleep(lookEvery)
	}
}

// becomes waits until an expression is true: a page may need time after a click.
func (w *window) becomes(what, expression string) {
	w.t.Helper()
	w.until(what, func() (string, bool) {
		is, ok := evaluate[bool](w, expression)
		return expression, ok && is
	})
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

// gone waits until elements are no longer visible.
func (w *window) gone(selectors ...string) {
	w.t.Helper()
	for _, selector := range selectors {
		w.until(selector+" is gone", func() (string, bool) { return w.text(selector), !w.holds(selector) })
	}
}

// lacks fails the test if one of several elements is visible.
func (w *window) lacks(selectors ...string) {
	w.t.Helper()
	for _, selector := range selectors {
		check.Same(w.t, "visible text of "+selector, w.text(selector), "")
	}
}

// holds reports whether an element is visible.
func (w *window) holds(selector string) bool {
	w.t.Helper()
	return w.text(selector) != ""
}

// grey reports whether a button is grey.
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

// signUp makes an account and logs in, before the buyer clicks on Buy.
func (w *window) signUp(name string) {
	w.t.Helper()
	w.wakes("#button") // by the scripts of the page
	w.click("#account-button")
	w.register(name)
	w.see("#account-button", name)
}

// buyAs clicks on Buy and makes an account on the way.
func (w *window) buyAs(name string) {
	w.t.Helper()
	w.wakes("#button")
	w.click("#button")
	w.register(name)
}

// confirm clicks on an action and answers its question, which contains a text, with yes. A list may be drawn anew between
// the look for the button and the click, which then meets nothing; so it clicks again if nothing is asked.
func (w *window) confirm(action, question string) {
	w.t.Helper()
	var next time.Time
	w.until(question, func() (got string, asked bool) {
		if js[bool](w, `document.querySelector("dialog[open]") === null`) && time.Now().After(next) {
			w.click(action)
			next = time.Now().Add(time.Second)
		}
		got = w.text("#confirm-more")
		return got, strings.Contains(got, question)
	})
	w.click("#confirm-yes")
}

// operate logs in as the operator, in place.
func (w *window) operate() {
	w.t.Helper()
	w.click("#outside-enter")
	w.see("#account-title", "")
	w.fill("#name", "admin")
	w.write("#password", shop.OperatorPassword)
	w.click("#account-submit")
	w.see("#account-button", "admin")
}

// clickLoggedOut makes the window's log-in invalid, and clicks before the page notices that by a request of its own.
func (w *window) clickLoggedOut(selector string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`{
		const session = JSON.parse(localStorage.session);
		session.token = session.token.slice(0, -4) + "AAAA";
		localStorage.session = JSON.stringify(session);
		document.querySelector(%q).click();
		true;
	}`, selector))
}

// shots is the folder of the pictures of pages.
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
	check.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, picture.Data, 0o644))
}
