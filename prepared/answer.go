// Package prepared holds answers that are the same for all who ask: made once, compressed once, sent many times.
package prepared

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// hashBytes of SHA-256 in a tag: two versions of one answer won't share one.
const hashBytes = 8

// Answer is a whole answer, ready to be sent. All requests share the values of its headers: whoever sets or adds to a
// header gets a slice of its own.
type Answer struct {
	status         int
	headers        []header // of the answer and of a 304 alike
	contentType    []string
	tag            string // of the plain form, without quotes
	plain, gzipped form   // gzipped has no body where it would be no shorter
}

type header struct {
	name   string
	values []string
}

// form is the body in one encoding, with the headers that tell it from the other.
type form struct {
	body                   []byte
	etag, encoding, length []string
}

// varies says that there are two forms.
var varies = []string{"Accept-Encoding"}

// writers are reused: each has some 800 KB of tables.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// New makes an answer of its status, its headers, among them Content-Type, and its body. One with status 200 has a tag.
func New(status int, headers http.Header, body []byte) *Answer {
	a := Plain(status, headers, body)
	if zipped := compress(body); len(zipped) < len(body) {
		a.headers = append(a.headers, header{"Vary", varies})
		a.gzipped = newForm(zipped, a.tag+"-gzip")
		a.gzipped.encoding = []string{"gzip"}
	}
	return a
}

// Plain is New without the compressed form, which is not worth its time for an answer that is sent once.
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

func newForm(body []byte, tag string) form {
	return form{body: body, etag: []string{strconv.Quote(tag)}, length: []string{strconv.Itoa(len(body))}}
}

func compress(body []byte) []byte {
	var zipped bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&zipped)
	_, _ = w.Write(body) // into memory it can't fail
	_ = w.Close()
	return zipped.Bytes()
}

// Send answers with the form that the client takes, or 304 if it has that.
func (a *Answer) Send(w http.ResponseWriter, r *http.Request) {
	answer := w.Header()
	for _, h := range a.headers {
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
	_, _ = w.Write(form.body) // where writing fails the client is gone
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

// takesGzip reads Accept-Encoding (RFC 9110, 12.5.3).
func takesGzip(headers []string) bool {
	for _, header := range headers {
		for choice := range strings.SplitSeq(header, ",") {
			coding, weight, weighted := strings.Cut(choice, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			value, _ := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			q, err := strconv.ParseFloat(value, 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}
