package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Media types of bodies. A browser's form needs no files, so nobody reads multipart/form-data, which would be kept in files.
const (
	jsonBody = "application/json"
	formBody = "application/x-www-form-urlencoded"
)

const (
	// maxBodyBytes is several times the largest body that buyers and payment providers have to send.
	maxBodyBytes = 4 << 10
	// maxOperatorBodyBytes takes the longest sale in Chinese, also from an encoder that writes six bytes of ASCII for each
	// character: a description and a title of 2,200 characters are 13,200 bytes then.
	maxOperatorBodyBytes = 16 << 10
	// smallBodyBytes is what is read in one piece, as long as it was announced: most bodies are a purchase's.
	smallBodyBytes = 64
	// maxDepth is how deep objects and arrays may be nested; the API's own are flat.
	maxDepth = 8
	// maxQuotedBytes keeps what a refusal repeats of a client's body to one readable line.
	maxQuotedBytes = 100
)

// decode reads the request's JSON object of at most so many bytes into what into points to. If it can't it refuses the
// request and returns false: UnsupportedMediaType, TooLarge with the bound, or BadRequest with what is wrong. into may
// then be half filled.
func decode(c *gin.Context, most int64, into any) bool {
	body, ok := readBody(c, jsonBody, most)
	if !ok {
		return false
	}
	if invalid := decodeObject(body, into); invalid != nil {
		refuseInvalid(c, invalid)
		return false
	}
	return true
}

// readBody reads a body of this media type as it came; it refuses the request as decode does.
func readBody(c *gin.Context, mediaType string, most int64) ([]byte, bool) {
	if !isOf(headerOf(c, "Content-Type"), mediaType) {
		middleware.Refuse(c, middleware.Refusal{Verdict: model.UnsupportedMediaType, Invalid: &service.Invalid{Reason: otherType, Value: mediaType}})
		return nil, false
	}
	announced := c.Request.ContentLength
	if announced > most {
		refuseTooLarge(c, most)
		return nil, false
	}
	var body []byte
	var err error
	if 0 < announced && announced <= smallBodyBytes {
		body = make([]byte, announced) // net/http gives no byte more
		_, err = io.ReadFull(c.Request.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, most))
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refuseTooLarge(c, most)
		return nil, false
	}
	if err != nil {
		refuseInvalid(c, &service.Invalid{Reason: cutOff})
		return nil, false
	}
	return body, true
}

// isOf reports whether a Content-Type is of this media type, with whatever parameters.
func isOf(contentType, mediaType string) bool {
	if contentType == mediaType {
		return true // as nearly all write it
	}
	given, _, err := mime.ParseMediaType(contentType)
	return err == nil && given == mediaType
}

// headerOf gives a header of the request by its name in Go's spelling; GetHeader would look for that first.
func headerOf(c *gin.Context, name string) string {
	if values := c.Request.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func refuse(c *gin.Context, v model.Verdict) { middleware.Refuse(c, middleware.Refusal{Verdict: v}) }

// refuseInvalid refuses a request as BadRequest and says what is wrong with it.
func refuseInvalid(c *gin.Context, invalid *service.Invalid) {
	middleware.Refuse(c, middleware.Refusal{Verdict: model.BadRequest, Invalid: invalid})
}

// refuseTooLarge refuses a request as TooLarge and says how large its body may be, which is whole KiB.
func refuseTooLarge(c *gin.Context, most int64) {
	middleware.Refuse(c, middleware.Refusal{Verdict: model.TooLarge, Invalid: &service.Invalid{Reason: overSize, Max: most >> 10}})
}

// decodeObject is encoding/json without its leniency. It gives what is wrong with the body; nil if nothing is.
func decodeObject(body []byte, into any) *service.Invalid {
	switch {
	case len(body) == 0:
		return &service.Invalid{Reason: emptyBody}
	case !utf8.Valid(body): // encoding/json would put U+FFFD in its place
		return &service.Invalid{Reason: notUTF8}
	case !json.Valid(body):
		return &service.Invalid{Reason: notJSON}
	case bytes.TrimLeft(body, " \t\r\n")[0] != '{': // null would leave into as it is
		return &service.Invalid{Reason: notAnObject}
	}
	names := json.NewDecoder(bytes.NewReader(body))
	names.UseNumber() // a number's range is for its field to judge
	if invalid := checkNames(names, 0); invalid != nil {
		return invalid
	}
	values := json.NewDecoder(bytes.NewReader(body))
	values.DisallowUnknownFields()
	if err := values.Decode(into); err != nil {
		return explain(err, body, into)
	}
	return nil
}

// checkNames walks one value of valid JSON and refuses what encoding/json would let pass: a name that comes
// twice in one object (the last would win), and one that differs from a field's only by case ("Quantity",
// or "ſ" for "s"). The API's names are all lower case, so those that aren't are unknown.
func checkNames(d *json.Decoder, depth int) *service.Invalid {
	token, err := d.Token()
	if err != nil {
		return &service.Invalid{Reason: notJSON}
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth == maxDepth {
		return &service.Invalid{Reason: tooDeep, Max: maxDepth}
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			token, _ := d.Token() // of valid JSON, a name
			name, _ := token.(string)
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				return &service.Invalid{Field: quoted(name), Reason: unknownField}
			}
			if seen[name] {
				return &service.Invalid{Field: quoted(name), Reason: repeatedField}
			}
			seen[name] = true
		}
		if invalid := checkNames(d, depth+1); invalid != nil {
			return invalid
		}
	}
	_, _ = d.Token() // the closing bracket
	return nil
}

// explain says what a decoder's error is about, without the names of Go types.
func explain(err error, body []byte, into any) *service.Invalid {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &service.Invalid{Field: quoted(wrong.Field), Reason: wrongType, Value: quoted(wrong.Value)}
	}
	// This one has no type to ask for. Should its words change, only the hint is lost.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &service.Invalid{Field: quoted(strings.Trim(name, `"`)), Reason: unknownField}
	}
	return &service.Invalid{Field: wrongTime(body, into), Reason: notATime}
}

// wrongTime finds the field whose time can't be read: times have a decoder of their own, whose errors don't say where
// they were. Each field is decoded apart.
func wrongTime(body []byte, into any) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // an object, or it would not have come so far
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, _ := json.Marshal(map[string]json.RawMessage{name: fields[name]}) // it was valid JSON
		if json.Unmarshal(alone, reflect.New(reflect.TypeOf(into).Elem()).Interface()) != nil {
			return name
		}
	}
	return ""
}

// quoted is a part of a client's body as a refusal repeats it: escaped, on one line, and at most maxQuotedBytes long.
func quoted(s string) string {
	s = strings.Trim(strconv.Quote(s), `"`)
	if len(s) > maxQuotedBytes {
		s = strings.ToValidUTF8(s[:maxQuotedBytes], "") + "…"
	}
	return s
}
