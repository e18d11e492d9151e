package prepared

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestIfNoneMatch(t *testing.T) {
	const tag = `"abc"`
	for want, headers := range map[bool][]string{
		true:  {`"abc"`, `W/"abc"`, "*", `"x",W/"y" , "abc"`, `,,"abc",`},
		false: {"", `"abd"`, `"ab`, "abc", `"ABC"`, `w/"abc"`, `"W/abc"`},
	} {
		for _, header := range headers {
			if got := matches(header, tag); got != want {
				t.Errorf("%s matches %s: %t", header, tag, got)
			}
		}
	}
}

func TestTakesGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, GZIP": true, "gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "br": false, "xgzip": false, "gzip;q=x": false, "*": false,
	} {
		if got := takesGzip([]string{header}); got != want {
			t.Errorf("Accept-Encoding %q: %t", header, got)
		}
	}
	if !takesGzip([]string{"br", "gzip"}) {
		t.Error("two headers")
	}
}

// ask sends the answer to a request with these headers: pairs of name and value.
func ask(t *testing.T, a *Answer, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.Send(w, r)
	return w
}

// Each client gets a form that it accepts, with the tag of that form. Both forms have the same text.
func TestTwoForms(t *testing.T) {
	body := strings.Repeat("a page ", 1000)
	a := New(http.StatusOK, http.Header{"Content-Type": {"text/html"}, "Cache-Control": {"public, max-age=1"}}, []byte(body))
	plain, zipped := ask(t, a), ask(t, a, "Accept-Encoding", "br, gzip")
	r, err := gzip.NewReader(bytes.NewReader(zipped.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(r); err != nil || string(unpacked) != body || plain.Body.String() != body {
		t.Errorf("%v, %d and %d bytes, want %d", err, len(unpacked), plain.Body.Len(), len(body))
	}
	for encoding, w := range map[string]*httptest.ResponseRecorder{"": plain, "gzip": zipped} {
		header := w.Header()
		if w.Code != http.StatusOK || header.Get("Content-Encoding") != encoding || header.Get("Vary") != "Accept-Encoding" ||
			header.Get("Content-Type") != "text/html" || header.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
			t.Errorf("%q: %d %v", encoding, w.Code, header)
		}
		tag := header.Get("ETag")
		again := ask(t, a, "Accept-Encoding", encoding, "If-None-Match", tag)
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag || again.Header().Get("Vary") == "" ||
			again.Header().Get("Cache-Control") == "" || again.Header().Get("Content-Encoding") != "" {
			t.Errorf("%q, known already: %d %v", encoding, again.Code, again.Header())
		}
	}
	if plain.Header().Get("ETag") == zipped.Header().Get("ETag") {
		t.Error("both forms have one tag")
	}
	if other := ask(t, a, "If-None-Match", zipped.Header().Get("ETag")); other.Code != http.StatusOK {
		t.Errorf("the other form is known: %d", other.Code)
	}
}

// An answer that compression does not shorten is sent as it is, and an answer that is no success has no tag.
func TestOneForm(t *testing.T) {
	w := ask(t, New(http.StatusNotFound, http.Header{}, []byte("short")), "Accept-Encoding", "gzip", "If-None-Match", "*")
	if header := w.Header(); w.Code != http.StatusNotFound || w.Body.String() != "short" || len(header["Content-Encoding"])+len(header["Vary"])+len(header["Etag"]) > 0 {
		t.Errorf("%d %v %s", w.Code, header, w.Body)
	}
}

// A header that is added to an answer does not appear in other answers.
func TestHeadersAreNotShared(t *testing.T) {
	a := New(http.StatusOK, http.Header{}, make([]byte, 1000))
	ask(t, a).Header().Add("Vary", "Accept-Language")
	if vary := ask(t, a).Header().Values("Vary"); len(vary) != 1 {
		t.Errorf("Vary: %q", vary)
	}
}
