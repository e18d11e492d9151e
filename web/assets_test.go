package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

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
	check.Same(t, "status", w.Code, status)
	for name, value := range want {
		check.Same(t, name, w.Header().Get(name), value)
	}
}

// Assets are served under names with a hash, for ever. How an answer is compressed and tagged is tested in
// internal/prepared.
func TestAssetsAreServed(t *testing.T) {
	a := check.Must(NewAssets())
	hashed := regexp.MustCompile(`^/assets/[a-z0-9-]+\.[0-9a-f]{12}\.(css|js|svg|txt)$`)
	const css, script = "text/css; charset=utf-8", "text/javascript; charset=utf-8"
	for name, contentType := range map[string]string{
		"base.css": css, "sale.js": script, "words.js": script, "mark.svg": "image/svg+xml",
		"console-words.js": script, "uplot.js": script, "uplot-license.txt": "text/plain; charset=utf-8",
	} {
		url := check.Must(a.URL(name))
		check.Same(t, url+" has a hash", hashed.MatchString(url), true)
		for encoding, accepted := range map[string]string{"": "", "gzip": "br, gzip"} {
			w := ask(t, a, url, "Accept-Encoding", accepted)
			wantHeader(t, w, http.StatusOK, map[string]string{
				"Content-Type": contentType, "Content-Encoding": encoding, "Vary": "Accept-Encoding",
				"Cache-Control": "public, max-age=31536000, immutable", "Content-Security-Policy": "default-src 'none'",
				"Access-Control-Allow-Origin": "*",
			})
			if encoding == "" {
				check.Same(t, name, w.Body.String(), string(a.bodies[name]))
			}
			again := ask(t, a, url, "Accept-Encoding", accepted, "If-None-Match", w.Header().Get("ETag"))
			wantHeader(t, again, http.StatusNotModified, nil)
		}
	}
}

// Paths without a valid hash, and folders, are not found.
func TestMissingAssets(t *testing.T) {
	a := check.Must(NewAssets())
	for _, path := range []string{
		"/assets/", "/assets/base.css", "/assets/base.000000000000.css", "/assets/../pages/layout.html", "/assets/assets/base.css",
		"/assets/words/en.json", "/assets/%2e%2e/go.mod", "/assets/shop-0f6b54.000000000000.css", "/assets/shop-0f6b54.css", "/assets/shop-0f6b5g.css",
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
	a := check.Must(NewAssets())
	inside := regexp.MustCompile(`"\./([^"]+)"`)
	references := 0
	for name, body := range a.bodies {
		for _, match := range inside.FindAllSubmatch(body, -1) {
			references++
			_, ok := a.served[string(match[1])]
			check.Same(t, string(match[1])+", to which "+name+" refers, is served", ok, true)
		}
	}
	check.Same(t, "an asset refers to another", references > 0, true)
	if needs := a.needs["sale.js"]; !slices.Contains(needs, "words.js") || !slices.Contains(needs, "purchase.js") || slices.Contains(needs, "sale.js") {
		t.Errorf("sale.js needs %q", needs)
	}
}

// A page of any origin loads the element for shops by /embed.js, with all its modules at once. It is light.
func TestEmbedIsServed(t *testing.T) {
	const light = 30 << 10 // compressed, as browsers get it
	a := check.Must(NewAssets())
	loader := ask(t, pagesOf(t), "/embed.js")
	wantHeader(t, loader, http.StatusOK, map[string]string{
		"Content-Type": "text/javascript; charset=utf-8", "Cache-Control": pageMaxAge, "Access-Control-Allow-Origin": "*",
	})
	size, loaded := loader.Body.Len(), []string{}
	for line := range strings.Lines(loader.Body.String()) {
		url, _ := strings.CutPrefix(strings.TrimSuffix(line, "\";\n"), `import ".`)
		module := ask(t, a, url, "Accept-Encoding", "gzip")
		wantHeader(t, module, http.StatusOK, map[string]string{"Content-Encoding": "gzip", "Access-Control-Allow-Origin": "*"})
		size += module.Body.Len()
		loaded = append(loaded, url)
	}
	for _, name := range append(slices.Clone(a.needs["embed.js"]), "embed.js") {
		check.Same(t, name+" is loaded", slices.Contains(loaded, check.Must(a.URL(name))), true)
	}
	check.Same(t, "the page's own words are loaded", slices.Contains(a.needs["embed.js"], "words.js"), false)
	t.Logf("%d bytes in %d modules", size, len(loaded))
	if size > light {
		t.Errorf("%d bytes, at most %d", size, light)
	}
}

// Only go.js changes where the browser is: its functions keep addresses that lead elsewhere out.
func TestOnlyOneScriptGoesAway(t *testing.T) {
	goes := regexp.MustCompile(`location\.(assign|replace)\b|location(\.(href|host|hostname|port|protocol|pathname|search))? = |window\.open`)
	found := []string{}
	for name, body := range check.Must(NewAssets()).bodies {
		if name != "uplot.js" && goes.Match(body) {
			found = append(found, name)
		}
	}
	check.Same(t, "scripts that go somewhere", found, []string{"go.js"})
}

// A change of a file changes its name and the names of the files that refer to it, and no others.
func TestNamesFollowWhatIsInside(t *testing.T) {
	names := func(clock string) map[string]string {
		return check.Must(makeAssets(map[string][]byte{
			"sale.js": []byte(`import "./clock.js";`), "clock.js": []byte(clock), "api.js": []byte("export {};"),
		})).names
	}
	before, after := names("1"), names("2")
	check.Same(t, "names without a change", names("1"), before)
	for name, changes := range map[string]bool{"sale.js": true, "clock.js": true, "api.js": false} {
		check.Same(t, name+" has another name", before[name] != after[name], changes)
	}
}

func TestAssetsThatCantBeMade(t *testing.T) {
	for name, sources := range map[string]map[string][]byte{
		"a circle":         {"a.js": []byte(`import "./b.js";`), "b.js": []byte(`import "./a.js";`)},
		"refers to itself": {"a.js": []byte(`import "./a.js";`)},
		"a missing import": {"a.js": []byte(`import "./b.js";`)},
		"an unknown type":  {"a.exe": nil},
	} {
		_, err := makeAssets(sources)
		check.Same(t, name+" is an error", err != nil, true)
	}
}
