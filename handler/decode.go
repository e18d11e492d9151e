package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Media types of request bodies. No handler reads multipart/form-data: no form uploads files, and the parser would
// write large parts to temporary files.
const (
	jsonBody = "application/json"
	formBody = "application/x-www-form-urlencoded"
)

const (
	// maxBodyBytes bounds most bodies. The largest of them is a log-in with an authorization code of up to 3 KiB.
	maxBodyBytes = 4 << 10
	// maxOperatorBodyBytes fits the longest sale in Chinese, even if the client escapes each character as six bytes of
	// ASCII: a description and a title of together 2,200 characters then take 13,200 bytes.
	maxOperatorBodyBytes = 16 << 10
	// maxNoticeBytes fits a payment provider's notices, which have many fields that the engine does not read. Stripe names no
	// bound of their size.
	maxNoticeBytes = 256 << 10
	// smallBodyBytes is the largest announced length (Content-Length) for which the body is read into one buffer of
	// exactly that size. Most bodies belong to purchases and are that small.
	smallBodyBytes = 64
	// maxDepth bounds the nesting of objects and arrays. The API's own bodies have at most three levels.
	maxDepth = 8
	// maxQuotedBytes bounds the part of a client's body that a refusal repeats, so that the refusal stays one readable line.
	maxQuotedBytes = 100
)

// decode reads the request's body, a JSON object of no more than most bytes, into the value that into points to. If that fails,
// decode refuses the request and returns false. The refusal is UnsupportedMediaType with the right type, TooLarge with the
// bound, or BadRequest with the reason. into may then be partly filled.
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

// readBody returns the raw body of a request. If the body has another media type or more than most bytes, or can't be read,
// readBody refuses the request as decode does, and returns false.
func readBody(c *gin.Context, mediaType string, most int64) ([]byte, bool) {
	if !isOf(middleware.HeaderOf(c, "Content-Type"), mediaType) {
		middleware.Refuse(c, middleware.Refusal{Verdict: model.UnsupportedMediaType, Invalid: &service.Invalid{Reason: otherType, Value: mediaType}})
		return nil, false
	}
	var body []byte
	var err error
	switch announced := c.Request.ContentLength; {
	case announced > most:
		err = &http.MaxBytesError{Limit: most}
	case 0 < announced && announced <= smallBodyBytes:
		body = make([]byte, announced) // net/http returns no more than the announced length
		_, err = io.ReadFull(c.Request.Body, body)
	default:
		body, err = io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, most))
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge { // the bounds are whole KiB
		middleware.Refuse(c, middleware.Refusal{Verdict: model.TooLarge, Invalid: &service.Invalid{Reason: overSize, Max: most >> 10}})
		return nil, false
	}
	if err != nil {
		refuseInvalid(c, &service.Invalid{Reason: cutOff})
		return nil, false
	}
	return body, true
}

// isOf reports whether a Content-Type names this media type, with any parameters.
func isOf(contentType, mediaType string) bool {
	if contentType == mediaType {
		return true // the usual spelling
	}
	given, _, err := mime.ParseMediaType(contentType)
	return err == nil && given == mediaType
}

func refuse(c *gin.Context, v model.Verdict) { middleware.Refuse(c, middleware.Refusal{Verdict: v}) }

// refuseInvalid refuses a request as BadRequest, with what is wrong in it.
func refuseInvalid(c *gin.Context, invalid *service.Invalid) {
	middleware.Refuse(c, middleware.Refusal{Verdict: model.BadRequest, Invalid: invalid})
}

// decodeObject decodes a JSON object more strictly than encoding/json does, except that a whole number may also be written as
// 1.0 or 1e0. It returns what is wrong with the body, or nil.
func decodeObject(body []byte, into any) *service.Invalid {
	switch {
	case len(body) == 0:
		return &service.Invalid{Reason: emptyBody}
	case !utf8.Valid(body): // encoding/json would replace invalid bytes by U+FFFD
		return &service.Invalid{Reason: notUTF8}
	case !json.Valid(body):
		return &service.Invalid{Reason: notJSON}
	case bytes.TrimLeft(body, " \t\r\n")[0] != '{': // encoding/json would accept null and leave into unchanged
		return &service.Invalid{Reason: notAnObject}
	}
	names := json.NewDecoder(bytes.NewReader(body))
	names.UseNumber() // strict, below, checks the ranges of numbers
	if invalid := checkNames(names, 0); invalid != nil {
		return invalid
	}
	strict := func(body []byte) error {
		values := json.NewDecoder(bytes.NewReader(body))
		values.DisallowUnknownFields()
		return values.Decode(into)
	}
	err := strict(body)
	if _, wrong := errors.AsType[*json.UnmarshalTypeError](err); wrong { // perhaps a whole number in another form, such as 1.0
		err = strict(wholeNumbers(body))
	}
	if err != nil {
		return explain(err, body, into)
	}
	return nil
}

// wholeNumbers rewrites the whole numbers in JSON without a fraction or an exponent, since encoding/json decodes only this form
// into an integer: 1.0 and 1e0 become 1.
func wholeNumbers(body []byte) []byte {
	return numbers.ReplaceAllFunc(body, func(token []byte) []byte {
		_, exponent, _ := bytes.Cut(bytes.ToLower(token), []byte("e"))
		if len(token) > longestNumber || len(bytes.TrimLeft(exponent, "+-")) > longestExponent {
			return token
		}
		if n, ok := new(big.Rat).SetString(string(token)); ok && n.IsInt() {
			return n.Num().Append(nil, 10)
		}
		return token
	})
}

// Longer numbers, and those whose exponent has more digits, are not rewritten: no field takes them.
const longestNumber, longestExponent = 64, 2

// numbers matches numbers. It also matches whole texts, so that digits inside a text are not taken for a number.
var numbers = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`)

// checkNames walks one value of valid JSON and finds what encoding/json would accept: a name that is repeated in one
// object (the last value would win), and a name that differs from a field's name only by case ("Quantity", or "ſ" for
// "s"). All names of the API are lower case, so any other name is an unknown field. It also finds nesting beyond
// maxDepth.
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
			token, _ := d.Token() // a name, since the JSON is valid
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

// explain converts a decoder's error into a reason for the client, without the names of Go types.
func explain(err error, body []byte, into any) *service.Invalid {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := strings.TrimPrefix(wrong.Field, "termsBody.") // encoding/json also names the struct that a body embeds
		return &service.Invalid{Field: quoted(field), Reason: wrongType, Value: quoted(wrong.Value)}
	}
	// encoding/json has no error type for an unknown field, so its text is compared. If a new version of Go changes the
	// text, the client still gets BadRequest, but with the reason notATime.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &service.Invalid{Field: quoted(strings.Trim(name, `"`)), Reason: unknownField}
	}
	return &service.Invalid{Field: wrongTime(body, into), Reason: notATime}
}

// wrongTime returns the name of the first field, in the order of the alphabet, that can't be decoded by itself, or "". The
// decoder of times does not report the field in its errors, so each field is decoded alone.
func wrongTime(body []byte, into any) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // the body is a valid JSON object
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, _ := json.Marshal(map[string]json.RawMessage{name: fields[name]}) // the field is valid JSON
		if json.Unmarshal(alone, reflect.New(reflect.TypeOf(into).Elem()).Interface()) != nil {
			return name
		}
	}
	return ""
}

// quoted returns a part of a client's body in the form in which a refusal repeats it: escaped, on one line, and cut
// after maxQuotedBytes.
func quoted(s string) string {
	s = strings.Trim(strconv.Quote(s), `"`)
	if len(s) > maxQuotedBytes {
		s = strings.ToValidUTF8(s[:maxQuotedBytes], "") + "…"
	}
	return s
}
