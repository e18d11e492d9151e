package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	// maxBodyBytes is several times the largest body that the API takes.
	maxBodyBytes = 4 << 10
	// smallBodyBytes is what is read in one piece, as long as it was announced: most bodies are a purchase's.
	smallBodyBytes = 64
	// maxDepth is how deep objects and arrays may be nested; the API's own are flat.
	maxDepth = 8
	// maxDetailBytes keeps what a refusal repeats of a client's body to one readable line.
	maxDetailBytes = 120
)

// decode reads the request's JSON object into what into points to. If it can't it refuses the request and
// returns false: UnsupportedMediaType, TooLarge (over 4 KiB), or BadRequest with the reason. into may then
// be half filled.
func decode(c *gin.Context, into any) bool {
	body, ok := readBody(c)
	if !ok {
		return false
	}
	if err := decodeObject(body, into); err != nil {
		refuseBadRequest(c, err.Error())
		return false
	}
	return true
}

// readBody reads a JSON body as it came; it refuses the request as decode does.
func readBody(c *gin.Context) ([]byte, bool) {
	if !isJSON(headerOf(c, "Content-Type")) {
		refuse(c, model.UnsupportedMediaType)
		return nil, false
	}
	announced := c.Request.ContentLength
	if announced > maxBodyBytes {
		refuse(c, model.TooLarge)
		return nil, false
	}
	var body []byte
	var err error
	if 0 < announced && announced <= smallBodyBytes {
		body = make([]byte, announced) // net/http gives no byte more
		_, err = io.ReadFull(c.Request.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBodyBytes))
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refuse(c, model.TooLarge)
		return nil, false
	}
	if err != nil {
		refuseBadRequest(c, "the body did not arrive in full")
		return nil, false
	}
	return body, true
}

// isJSON reports whether a Content-Type is application/json, with whatever parameters.
func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true // as nearly all write it
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// headerOf gives a header of the request by its name in Go's spelling; GetHeader would look for that first.
func headerOf(c *gin.Context, name string) string {
	if values := c.Request.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func refuse(c *gin.Context, v model.Verdict) { middleware.Refuse(c, middleware.Refusal{Verdict: v}) }

func refuseBadRequest(c *gin.Context, detail string) {
	middleware.Refuse(c, middleware.Refusal{Verdict: model.BadRequest, Detail: detail})
}

// decodeObject is encoding/json without its leniency. Its errors are written for the client.
func decodeObject(body []byte, into any) error {
	switch {
	case len(body) == 0:
		return errors.New("the body is empty")
	case !utf8.Valid(body): // encoding/json would put U+FFFD in its place
		return errors.New("the body is not valid UTF-8")
	case !json.Valid(body):
		return errors.New("the body is not a single JSON value")
	case bytes.TrimLeft(body, " \t\r\n")[0] != '{': // null would leave into as it is
		return errors.New("the body is not a JSON object")
	}
	names := json.NewDecoder(bytes.NewReader(body))
	names.UseNumber() // a number's range is for its field to judge
	if err := checkNames(names, 0); err != nil {
		return err
	}
	values := json.NewDecoder(bytes.NewReader(body))
	values.DisallowUnknownFields()
	return explain(values.Decode(into))
}

// checkNames walks one value of valid JSON and refuses what encoding/json would let pass: a name that comes
// twice in one object (the last would win), and one that differs from a field's only by case ("Quantity",
// or "ſ" for "s"). The API's names are all lower case, so those that aren't are unknown.
func checkNames(d *json.Decoder, depth int) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("the body is nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				return clipped("unknown field %q", name)
			}
			if seen[name] {
				return clipped("field %q comes twice", name)
			}
			seen[name] = true
		}
		if err := checkNames(d, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing bracket
	return err
}

// explain words a decoder's error without the names of Go types.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return clipped("field %q has the wrong type or range: %s", wrong.Field, wrong.Value)
	}
	// This one has no type to ask for. Should its words change, only the hint is lost.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return clipped("unknown field %s", name)
	}
	return errors.New("a value is not in the form of its field (times: RFC 3339)")
}

// clipped is fmt.Errorf, cut to maxDetailBytes.
func clipped(format string, parts ...any) error {
	message := fmt.Sprintf(format, parts...)
	if len(message) > maxDetailBytes {
		message = strings.ToValidUTF8(message[:maxDetailBytes], "") + "…"
	}
	return errors.New(message)
}
