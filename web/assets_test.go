package web

import (
	"bytes"
	"compress/gzip"
	"io"
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

// ask asks for a path with headers: pairs of name and value.
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
			plain := ask(t, a, url)
			zipped := ask(t, a, url, "Accept-Encoding", "br, gzip")
			for what, w := range map[string]*httptest.ResponseRecorder{"plain": plain, "gzip": zipped} {
				header := w.Header()
				if w.Code != http.StatusOK || header.Get("Content-Type") != contentType || header.Get("Vary") != "Accept-Encoding" ||
					header.Get("Cache-Control") != "public, max-age=31536000, immutable" || header.Get("Content-Security-Policy") != "default-src 'none'" {
					t.Errorf("%s: %d %v", what, w.Code, header)
				}
			}
			if plain.Header().Get("Content-Encoding") != "" || zipped.Header().Get("Content-Encoding") != "gzip" {
				t.Errorf("encodings %q and %q", plain.Header().Get("Content-Encoding"), zipped.Header().Get("Content-Encoding"))
			}
			r, err := gzip.NewReader(zipped.Body)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(r); err != nil || !bytes.Equal(body, plain.Body.Bytes()) || len(body) == 0 {
				t.Errorf("unpacked it is another: %v", err)
			}
			if plain.Header().Get("ETag") == zipped.Header().Get("ETag") {
				t.Error("both forms have one tag")
			}
			for _, tag := range []string{plain.Header().Get("ETag"), `"other", ` + plain.Header().Get("ETag"), "*"} {
				again := ask(t, a, url, "If-None-Match", tag)
				if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("Cache-Control") == "" {
					t.Errorf("If-None-Match: %s: %d, %d bytes, %v", tag, again.Code, again.Body.Len(), again.Header())
				}
			}
			if other := ask(t, a, url, "If-None-Match", `"other"`); other.Code != http.StatusOK {
				t.Errorf("another tag: %d", other.Code)
			}
		})
	}
}

// What has no name with a hash isn't there, and no list is given.
func TestAssetsThatAreNone(t *testing.T) {
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
		t.Error("an asset that is none has a URL")
	}
}

// Every name inside a file is one that is served, so a browser that has a file has, or gets, what belongs to it.
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

// A change of one file changes its name, and that of all that refer to it, and no other.
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

func TestAssetsThatCantBe(t *testing.T) {
	for name, sources := range map[string]map[string][]byte{
		"a circle":       {"a.js": []byte(`import "./b.js";`), "b.js": []byte(`import "./a.js";`)},
		"itself":         {"a.js": []byte(`import "./a.js";`)},
		"nobody":         {"a.js": []byte(`import "./b.js";`)},
		"a strange type": {"a.exe": nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := makeAssets(sources); err == nil {
				t.Error("no error")
			}
		})
	}
}
