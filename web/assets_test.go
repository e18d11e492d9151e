package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func newAssets(t *testing.T) *Assets {
	t.Helper()
	a, err := NewAssets()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask requests a path with headers: pairs of name and value.
func ask(t *testing.T, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// wantHeader compares some headers of an answer.
func wantHeader(t *testing.T, w *httptest.ResponseRecorder, status int, want map[string]string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	for name, value := range want {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

// Assets are served under names with a hash, for ever. How an answer is compressed and tagged is tested in
// internal/prepared.
func TestAssetsAreServed(t *testing.T) {
	a := newAssets(t)
	hashed := regexp.MustCompile(`^/assets/[a-z0-9-]+\.[0-9a-f]{12}\.(css|js|svg|txt)$`)
	for name, contentType := range map[string]string{
		"base.css": "text/css; charset=utf-8", "sale.js": "text/javascript; charset=utf-8", "words.js": "text/javascript; charset=utf-8", "mark.svg": "image/svg+xml",
		"console-words.js": "text/javascript; charset=utf-8", "uplot.js": "text/javascript; charset=utf-8", "uplot-license.txt": "text/plain; charset=utf-8",
	} {
		t.Run(name, func(t *testing.T) {
			url, err := a.URL(name)
			if err != nil || !hashed.MatchString(url) {
				t.Fatalf("%s, %v", url, err)
			}
			for encoding, accepted := range map[string]string{"": "", "gzip": "br, gzip"} {
				w := ask(t, a, url, "Accept-Encoding", accepted)
				wantHeader(t, w, http.StatusOK, map[string]string{
					"Content-Type": contentType, "Content-Encoding": encoding, "Vary": "Accept-Encoding",
					"Cache-Control": "public, max-age=31536000, immutable", "Content-Security-Policy": "default-src 'none'",
				})
				if encoding == "" && w.Body.String() != string(a.bodies[name]) {
					t.Errorf("the body has %d bytes", w.Body.Len())
				}
				again := ask(t, a, url, "Accept-Encoding", accepted, "If-None-Match", w.Header().Get("ETag"))
				wantHeader(t, again, http.StatusNotModified, nil)
			}
		})
	}
}

// Paths without a valid hash, and folders, are not found.
func TestMissingAssets(t *testing.T) {
	a := newAssets(t)
	for _, path := range []string{
		"/assets/", "/assets/base.css", "/assets/base.000000000000.css", "/assets/../pages/layout.html", "/assets/assets/base.css", "/assets/words/en.json", "/assets/%2e%2e/go.mod",
	} {
		w := ask(t, a, path)
		if w.Code != http.StatusNotFound || w.Header().Get("Cache-Control") != "" || strings.Contains(w.Body.String(), "css") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if _, err := a.URL("nothing.css"); err == nil {
		t.Error("a missing asset has a URL")
	}
}

// Every name inside a file is served, so a browser that has the file gets the files that it imports.
func TestAssetsReferToServedNames(t *testing.T) {
	a := newAssets(t)
	inside := regexp.MustCompile(`"\./([^"]+)"`)
	references := 0
	for name, body := range a.bodies {
		for _, match := range inside.FindAllSubmatch(body, -1) {
			references++
			if _, ok := a.served[string(match[1])]; !ok {
				t.Errorf("%s refers to %s", name, match[1])
			}
		}
	}
	if references == 0 {
		t.Error("no asset refers to another")
	}
	if needs := a.needs["sale.js"]; !slices.Contains(needs, "words.js") || !slices.Contains(needs, "purchase.js") || slices.Contains(needs, "sale.js") {
		t.Errorf("sale.js needs %q", needs)
	}
}

// A change of a file changes its name and the names of the files that refer to it, and no others.
func TestNamesFollowWhatIsInside(t *testing.T) {
	names := func(clock string) map[string]string {
		a, err := makeAssets(map[string][]byte{
			"sale.js": []byte(`import "./clock.js";`), "clock.js": []byte(clock), "api.js": []byte("export {};"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return a.names
	}
	before, same, after := names("1"), names("1"), names("2")
	for name, changes := range map[string]bool{"sale.js": true, "clock.js": true, "api.js": false} {
		if before[name] != same[name] || (before[name] != after[name]) != changes {
			t.Errorf("%s: %s, again %s, after the change %s", name, before[name], same[name], after[name])
		}
	}
}

func TestAssetsThatCantBeMade(t *testing.T) {
	for name, sources := range map[string]map[string][]byte{
		"a circle":         {"a.js": []byte(`import "./b.js";`), "b.js": []byte(`import "./a.js";`)},
		"refers to itself": {"a.js": []byte(`import "./a.js";`)},
		"a missing import": {"a.js": []byte(`import "./b.js";`)},
		"an unknown type":  {"a.exe": nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := makeAssets(sources); err == nil {
				t.Error("no error")
			}
		})
	}
}
