// Package prepared holds HTTP answers that are the same for all clients: made and compressed once, and sent many times.
package prepared

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// hashBytes is how many bytes of the body's SHA-256 a tag has.
const hashBytes = 8

// Answer is a complete HTTP answer, ready to be sent. All requests share the slices of its header values, so nobody may change
// their elements.
type Answer struct {
	status         int
	headers        []header // sent with the answer and with a 304
	contentType    []string
	tag            string // the ETag of the plain form, without quotes
	plain, gzipped form   // gzipped has no body if the answer is sent only in the plain form
}

type header struct {
	name   string
	values []string
}

// form is the body in one encoding, with the headers that depend on the encoding.
type form struct {
	body                   []byte
	etag, encoding, length []string
}

// varies is the value of Vary for an answer with two forms.
var varies = []string{"Accept-Encoding"}

// writers keeps gzip writers for reuse: each has some 800 KB of tables.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// New makes an answer, with a compressed form if that is shorter. "headers" must have Content-Type.
func New(status int, headers http.Header, body []byte) *Answer {
	return Plain(status, headers, body).Compressed()
}

// Plain is New without the compressed form.
func Plain(status int, headers http.Header, body []byte) *Answer {
	a := &Answer{status: status, contentType: headers["Content-Type"]}
	for name, values := range headers {
		if name != "Content-Type" {
			a.headers = append(a.headers, header{name, values})
		}
	}
	hash := sha256.Sum256(body)
	a.tag = hex.EncodeToString(hash[:hashBytes])
	a.plain = newForm(body, a.tag)
	return a
}

// Compressed returns a plain answer with a compressed form in addition, if that is shorter.
func (a *Answer) Compressed() *Answer {
	zipped := compress(a.plain.body)
	if len(zipped) >= len(a.plain.body) {
		return a
	}
	both := *a
	both.headers = append(slices.Clip(a.headers), header{"Vary", varies})
	both.gzipped = newForm(zipped, a.tag+"-gzip")
	both.gzipped.encoding = []string{"gzip"}
	return &both
}

// Status returns the answer's status.
func (a *Answer) Status() int { return a.status }

func newForm(body []byte, tag string) form {
	return form{body: body, etag: []string{strconv.Quote(tag)}, length: []string{strconv.Itoa(len(body))}}
}

func compress(body []byte) []byte {
	var zipped bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&zipped)
	_, _ = w.Write(body) // writing to memory does not fail
	_ = w.Close()
	return zipped.Bytes()
}

// Send writes the form that the client accepts. A 200 gets an ETag, or becomes a 304 if the client has that form already.
func (a *Answer) Send(w http.ResponseWriter, r *http.Request) {
	answer := w.Header()
	for _, h := range a.headers {
		if before := answer[h.name]; h.name == "Vary" && len(before) > 0 {
			answer[h.name] = append(before[:len(before):len(before)], h.values...)
			continue
		}
		answer[h.name] = h.values
	}
	form := &a.plain
	if a.gzipped.body != nil && takesGzip(r.Header["Accept-Encoding"]) {
		form = &a.gzipped
	}
	if a.status == http.StatusOK {
		answer["Etag"] = form.etag
		if known := r.Header["If-None-Match"]; len(known) > 0 && matches(known[0], form.etag[0]) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	answer["Content-Type"], answer["Content-Length"] = a.contentType, form.length
	if form.encoding != nil {
		answer["Content-Encoding"] = form.encoding
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(form.body) // the client may have disconnected
}

// matches reports whether an If-None-Match header names the tag, by weak comparison (RFC 9110, 13.1.2).
func matches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == etag {
			return true
		}
	}
	return false
}

// takesGzip reports whether Accept-Encoding names gzip with a weight above 0 (RFC 9110, 12.5.3).
func takesGzip(headers []string) bool {
	for choice := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if coding, weight, weighted := strings.Cut(choice, ";"); strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}
