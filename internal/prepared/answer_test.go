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

	"flashsale/test/kit/check"
)

func TestIfNoneMatch(t *testing.T) {
	const tag = `"abc"`
	for want, headers := range map[bool][]string{
		true:  {`"abc"`, `W/"abc"`, "*", `"x",W/"y" , "abc"`, `,,"abc",`},
		false: {"", `"abd"`, `"ab`, "abc", `"ABC"`, `w/"abc"`, `"W/abc"`},
	} {
		for _, header := range headers {
			check.Same(t, header+" matches", matches(header, tag), want)
		}
	}
}

func TestTakesGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, GZIP": true, "gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "br": false, "xgzip": false, "gzip;q=x": false, "*": false,
	} {
		check.Same(t, "Accept-Encoding "+header, takesGzip([]string{header}), want)
	}
	check.Same(t, "two headers", takesGzip([]string{"br", "gzip"}), true)
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
	unpacked := check.Must(io.ReadAll(check.Must(gzip.NewReader(bytes.NewReader(zipped.Body.Bytes())))))
	check.Same(t, "plain and unpacked", []string{plain.Body.String(), string(unpacked)}, []string{body, body})
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
	check.Same(t, "both forms have one tag", plain.Header().Get("ETag") == zipped.Header().Get("ETag"), false)
	check.Same(t, "status with the tag of the other form", ask(t, a, "If-None-Match", zipped.Header().Get("ETag")).Code, http.StatusOK)
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
	check.Same(t, "values of Vary", len(ask(t, a).Header().Values("Vary")), 1)
}
