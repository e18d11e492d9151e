package handler

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/big"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json" // the mirror of encoding/json/v2
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Media types of request bodies. multipart/form-data is not one of them: its parser would write large parts to temporary files.
const (
	jsonBody = "application/json"
	formBody = "application/x-www-form-urlencoded"
)

const (
	// maxBodyBytes bounds usual bodies. It leaves room for a log-in with an authorization code of 3 KiB.
	maxBodyBytes = 4 << 10
	// maxOperatorBodyBytes fits the longest sale in Chinese: description and title, 2,200 characters, each escaped as six bytes.
	maxOperatorBodyBytes = 16 << 10
	// maxNoticeBytes bounds a payment provider's notices, which may have many fields that the engine does not read.
	maxNoticeBytes = 256 << 10
	// smallBodyBytes is the largest Content-Length for which the body is read into one buffer. {"quantity":1} has 14 bytes.
	smallBodyBytes = 64
	// maxQuotedBytes is how many bytes of a text the function quoted keeps, so that a refusal with it stays readable.
	maxQuotedBytes = 100
)

// decode reads the request's body, a JSON object of up to "most" bytes, into the value to which "into" points. If that fails, it
// refuses the request as UnsupportedMediaType with the right type, TooLarge with the bound, or BadRequest with the reason.
func decode(c *gin.Context, most int64, into any) bool {
	body, ok := readBody(c, jsonBody, most)
	if !ok {
		return false
	}
	invalid := decodeObject(body, into)
	if invalid != nil {
		refuseInvalid(c, invalid)
	}
	return invalid == nil
}

// takes returns a handler that decodes the request's body for the function next, or refuses the request as decode does.
func takes[B any](most int64, next func(c *gin.Context, body B)) gin.HandlerFunc {
	return func(c *gin.Context) {
		var body B
		if decode(c, most, &body) {
			next(c, body)
		}
	}
}

// readBody returns the raw body of a request, or refuses the request as decode does.
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

// isOf reports whether a Content-Type names this media type, with or without parameters.
func isOf(contentType, mediaType string) bool {
	if contentType == mediaType {
		return true // the usual spelling
	}
	given, _, err := mime.ParseMediaType(contentType)
	return err == nil && given == mediaType
}

// userOf returns the id of the user who was authenticated, or "".
func userOf(c *gin.Context) string { return middleware.IdentityOf(c).UserID }

func refuse(c *gin.Context, v model.Verdict) { middleware.Refuse(c, middleware.Refusal{Verdict: v}) }

// refuseInvalid refuses a request as BadRequest, and says what is wrong.
func refuseInvalid(c *gin.Context, invalid *service.Invalid) {
	middleware.Refuse(c, middleware.Refusal{Verdict: model.BadRequest, Invalid: invalid})
}

// strict are the rules for bodies. Unknown and repeated fields are refused, and capitals and small letters differ. A null leaves
// a number or a text as it was. An escape of half a surrogate pair becomes U+FFFD.
var strict = json.JoinOptions(
	json.RejectUnknownMembers(true), jsonv1.MergeWithLegacySemantics(true),
	jsontext.AllowInvalidUTF8(true), jsonv1.ParseTimeWithLooseRFC3339(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(json.UnmarshalFunc(integer[int]), json.UnmarshalFunc(integer[int64]))),
)

// decodeObject decodes a JSON object. It returns what is wrong with the body, or nil.
func decodeObject(body []byte, into any) *service.Invalid {
	switch kind := jsontext.Value(body).Kind(); {
	case len(body) == 0:
		return &service.Invalid{Reason: emptyBody}
	case !utf8.Valid(body):
		return &service.Invalid{Reason: notUTF8}
	case kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid: // a null would pass as an empty object
		return &service.Invalid{Reason: notAnObject}
	}
	err := json.Unmarshal(body, into, strict)
	repeated, _ := errors.AsType[*jsontext.SyntacticError](err)
	wrong, _ := errors.AsType[*json.SemanticError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &service.Invalid{Field: quoted(repeated.JSONPointer.LastToken()), Reason: repeatedField}
	case errors.Is(err, json.ErrUnknownName):
		return &service.Invalid{Field: quoted(wrong.JSONPointer.LastToken()), Reason: unknownField}
	case wrong == nil:
		return &service.Invalid{Reason: notJSON}
	}
	var path []string
	for name := range wrong.JSONPointer.Tokens() {
		if _, err := strconv.Atoi(name); err != nil { // a name, not a place in an array
			path = append(path, name)
		}
	}
	field := quoted(strings.Join(path, "."))
	if wrong.GoType == reflect.TypeFor[time.Time]() {
		return &service.Invalid{Field: field, Reason: notATime}
	}
	kind := map[jsontext.Kind]string{'{': "object", '[': "array", 't': "bool", 'f': "bool"}[wrong.JSONKind]
	value := strings.TrimSpace(cmp.Or(kind, wrong.JSONKind.String()) + " " + string(wrong.JSONValue))
	return &service.Invalid{Field: field, Reason: wrongType, Value: value}
}

// Numbers of more bytes, and exponents of more digits, are refused: no field needs them, and a huge exponent would take long.
const longestNumber, longestExponent = 64, 2

// integer decodes a whole number, which may also be written as 1.0 or 1e0.
func integer[N int | int64](value []byte, n *N) error {
	_, exponent, _ := bytes.Cut(bytes.ToLower(value), []byte("e"))
	if len(value) <= longestNumber && len(bytes.TrimLeft(exponent, "+-")) <= longestExponent {
		if r, ok := new(big.Rat).SetString(string(value)); ok && r.IsInt() && r.Num().IsInt64() {
			*n = N(r.Num().Int64())
			return nil
		}
	}
	kind := jsontext.Value(value).Kind()
	if kind == jsontext.KindNull { // leaves the number as it was
		return nil
	}
	wrong := &json.SemanticError{JSONKind: kind}
	if kind == jsontext.KindNumber {
		wrong.JSONValue = value
	}
	return wrong
}

// quoted returns a text as a refusal quotes it: escaped, on one line, and cut after maxQuotedBytes.
func quoted(s string) string {
	s = strconv.Quote(s)
	s = strings.ReplaceAll(s[1:len(s)-1], `\"`, `"`)
	if len(s) > maxQuotedBytes {
		s = strings.ToValidUTF8(s[:maxQuotedBytes], "") + "…"
	}
	return s
}
