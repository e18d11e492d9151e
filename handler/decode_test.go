package handler

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

// decoded has a field of each kind that the API's bodies have.
type decoded struct {
	Quantity int        `json:"quantity"`
	Title    *string    `json:"title"`
	StartsAt *time.Time `json:"starts_at"`
	Options  struct {
		Sizes []int `json:"sizes"`
	} `json:"options"`
}

func tryDecode(t *testing.T, contentType string, body io.Reader) (into decoded, ok bool, refusal middleware.Refusal) {
	t.Helper()
	engine := gin.New()
	engine.POST("/", func(c *gin.Context) {
		ok = decode(c, &into)
		refusal, _ = middleware.RefusalOf(c)
		if c.IsAborted() == ok {
			t.Errorf("decoded: %v, aborted: %v", ok, c.IsAborted())
		}
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.Header.Set("Content-Type", contentType)
	engine.ServeHTTP(httptest.NewRecorder(), r)
	return into, ok, refusal
}

func TestDecodeTakes(t *testing.T) {
	title, start := "双十一", time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		contentType, body string
		want              decoded
	}{
		"a body":                 {"application/json", `{"quantity": 2}`, decoded{Quantity: 2}},
		"a charset":              {"Application/JSON; charset=utf-8", ` {"quantity":2} ` + "\n", decoded{Quantity: 2}},
		"an empty object":        {"application/json", `{}`, decoded{}},
		"an escaped name":        {"application/json", `{"quant\u0069ty":2}`, decoded{Quantity: 2}},
		"text and time":          {"application/json", `{"title":"双十一","starts_at":"2026-11-11T20:00:00Z"}`, decoded{Title: &title, StartsAt: &start}},
		"a negative":             {"application/json", `{"quantity":-5}`, decoded{Quantity: -5}}, // for the handler to judge
		"a body of 4 KiB":        {"application/json", `{"quantity":2}` + strings.Repeat(" ", maxBodyBytes-14), decoded{Quantity: 2}},
		"an empty object within": {"application/json", `{"quantity":2,"options":{}}`, decoded{Quantity: 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok, refusal := tryDecode(t, tc.contentType, strings.NewReader(tc.body))
			if !ok || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, %v, %+v; want %+v", got, ok, refusal, tc.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	const jsonType = "application/json"
	// A reader that isn't known to httptest comes without a Content-Length, as a chunked body does.
	chunked := func(body string) io.Reader { return io.MultiReader(strings.NewReader(body)) }
	over := `{"quantity":2}` + strings.Repeat(" ", maxBodyBytes-13)
	tests := map[string]struct {
		contentType string
		body        io.Reader
		verdict     model.Verdict
		detail      string
		field       string
	}{
		"no type":                    {"", strings.NewReader(`{}`), model.UnsupportedMediaType, "", ""},
		"another type":               {"text/plain", strings.NewReader(`{}`), model.UnsupportedMediaType, "", ""},
		"a form":                     {"application/x-www-form-urlencoded", strings.NewReader(`quantity=2`), model.UnsupportedMediaType, "", ""},
		"a type like it":             {"application/json-seq", strings.NewReader(`{}`), model.UnsupportedMediaType, "", ""},
		"a broken type":              {"application/json; charset", strings.NewReader(`{}`), model.UnsupportedMediaType, "", ""},
		"too large":                  {jsonType, strings.NewReader(over), model.TooLarge, "", ""},
		"too large, chunked":         {jsonType, chunked(over), model.TooLarge, "", ""},
		"cut off":                    {jsonType, io.MultiReader(strings.NewReader(`{`), brokenReader{}), model.BadRequest, "the body did not arrive in full", ""},
		"no body":                    {jsonType, http.NoBody, model.BadRequest, "the body is empty", ""},
		"not UTF-8":                  {jsonType, strings.NewReader("{\"title\":\"\xff\"}"), model.BadRequest, "the body is not valid UTF-8", ""},
		"a byte order mark":          {jsonType, strings.NewReader("\ufeff{}"), model.BadRequest, "the body is not a single JSON value", ""},
		"blanks":                     {jsonType, strings.NewReader(" \n"), model.BadRequest, "the body is not a single JSON value", ""},
		"half an object":             {jsonType, strings.NewReader(`{"quantity":`), model.BadRequest, "the body is not a single JSON value", ""},
		"a comma too many":           {jsonType, strings.NewReader(`{"quantity":2,}`), model.BadRequest, "the body is not a single JSON value", ""},
		"a second object":            {jsonType, strings.NewReader(`{"quantity":2}{"quantity":3}`), model.BadRequest, "the body is not a single JSON value", ""},
		"a trailing bracket":         {jsonType, strings.NewReader(`{"quantity":2}]`), model.BadRequest, "the body is not a single JSON value", ""},
		"null":                       {jsonType, strings.NewReader(` null`), model.BadRequest, "the body is not a JSON object", ""},
		"an array":                   {jsonType, strings.NewReader(`[{"quantity":2}]`), model.BadRequest, "the body is not a JSON object", ""},
		"an unknown field":           {jsonType, strings.NewReader(`{"price_cents":1}`), model.BadRequest, `unknown field "price_cents"`, "price_cents"},
		"an unknown field, deep":     {jsonType, strings.NewReader(`{"options":{"colour":1}}`), model.BadRequest, `unknown field "colour"`, "colour"},
		"the wrong case":             {jsonType, strings.NewReader(`{"Quantity":2}`), model.BadRequest, `unknown field "Quantity"`, "Quantity"},
		"the wrong case, deep":       {jsonType, strings.NewReader(`{"options":{"siZes":[1]}}`), model.BadRequest, `unknown field "siZes"`, "siZes"},
		"a letter that folds to s":   {jsonType, strings.NewReader(`{"option\u017f":{}}`), model.BadRequest, `unknown field "optionſ"`, "optionſ"},
		"a name twice":               {jsonType, strings.NewReader(`{"quantity":1,"quantity":2}`), model.BadRequest, `field "quantity" comes twice`, "quantity"},
		"a name twice, once escaped": {jsonType, strings.NewReader(`{"quantity":1,"quant\u0069ty":2}`), model.BadRequest, `field "quantity" comes twice`, "quantity"},
		"a name twice, deep":         {jsonType, strings.NewReader(`{"options":{"sizes":[],"sizes":[]}}`), model.BadRequest, `field "sizes" comes twice`, "sizes"},
		"deep nesting":               {jsonType, strings.NewReader(`{"options":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`), model.BadRequest, "the body is nested deeper than 8 levels", ""},
		"a fraction":                 {jsonType, strings.NewReader(`{"quantity":1.5}`), model.BadRequest, `field "quantity" has the wrong type or range: number 1.5`, "quantity"},
		"past 64 bits":               {jsonType, strings.NewReader(`{"quantity":9223372036854775808}`), model.BadRequest, `field "quantity" has the wrong type or range: number 9223372036854775808`, "quantity"},
		"past a double":              {jsonType, strings.NewReader(`{"quantity":1e309}`), model.BadRequest, `field "quantity" has the wrong type or range: number 1e309`, "quantity"},
		"a number as text":           {jsonType, strings.NewReader(`{"quantity":"1"}`), model.BadRequest, `field "quantity" has the wrong type or range: string`, "quantity"},
		"a wrong type, deep":         {jsonType, strings.NewReader(`{"options":{"sizes":["1"]}}`), model.BadRequest, `field "options.sizes" has the wrong type or range: string`, "options.sizes"},
		"not a time":                 {jsonType, strings.NewReader(`{"starts_at":"tomorrow"}`), model.BadRequest, "starts_at must be a time in the form of RFC 3339", "starts_at"},
		"a time as a number":         {jsonType, strings.NewReader(`{"starts_at":5}`), model.BadRequest, "starts_at must be a time in the form of RFC 3339", "starts_at"},
		"a time among right values": {
			jsonType, strings.NewReader(`{"title":"tea","quantity":1,"starts_at":"2026-11-11"}`), model.BadRequest,
			"starts_at must be a time in the form of RFC 3339", "starts_at",
		},
		"a name of two lines": {jsonType, strings.NewReader(`{"a\nb":1}`), model.BadRequest, `unknown field "a\nb"`, `a\nb`},
		"a very long name": {
			jsonType, strings.NewReader(`{"` + strings.Repeat("界", 1000) + `":1}`), model.BadRequest,
			`unknown field "` + strings.Repeat("界", 33) + `…"`, strings.Repeat("界", 33) + "…",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, ok, got := tryDecode(t, tc.contentType, tc.body)
			if ok || got.Verdict != tc.verdict || (got.Invalid != nil) != (tc.detail != "") {
				t.Fatalf("%v, %+v; want %s", ok, got, tc.verdict)
			}
			if got.Invalid != nil && (got.Invalid.Field != tc.field || word(got.Invalid, false) != tc.detail) {
				t.Errorf("%q: %s; want %q: %s", got.Invalid.Field, word(got.Invalid, false), tc.field, tc.detail)
			}
		})
	}
}

// brokenReader is a client that stops in the middle.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// unread fails the test if anybody reads the body.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestDecodeRefusesAnAnnouncedSizeUnread(t *testing.T) {
	engine := gin.New()
	var refusal middleware.Refusal
	engine.POST("/", func(c *gin.Context) {
		decode(c, &decoded{})
		refusal, _ = middleware.RefusalOf(c)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", unread{t})
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = maxBodyBytes + 1
	engine.ServeHTTP(httptest.NewRecorder(), r)
	if refusal.Verdict != model.TooLarge {
		t.Errorf("refused as %q, want %q", refusal.Verdict, model.TooLarge)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"quantity":2}`, `{"Quantity":2}`, `{"quantity":1,"quantity":2}`, `{"quantity":1e309}`,
		`{"title":"\ud800","starts_at":"2026-11-11T20:00:00.5+08:00"}`, `{"options":{"sizes":[1,2]}}`, `{"title":null}`,
		`[[[[[[[[[]]]]]]]]]`, "{\"title\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var first, second decoded
		if invalid := decodeObject(body, &first); invalid != nil {
			// What is repeated of the body stays short, and on its line.
			for _, chinese := range []bool{false, true} {
				if detail := word(invalid, chinese); detail == "" || len(detail) > 3*maxQuotedBytes || strings.ContainsAny(detail, "\n\r{}") {
					t.Errorf("refused with %q", detail)
				}
			}
			return
		}
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("what %q gave can't be encoded: %v", body, err)
		}
		if invalid := decodeObject(again, &second); invalid != nil {
			t.Fatalf("%q became %q, which is refused: %+v", body, again, invalid)
		}
		if twice, err := json.Marshal(second); err != nil || string(twice) != string(again) {
			t.Errorf("%q became %q, then %q (%v)", body, again, twice, err)
		}
	})
}
