package handler

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
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
		ok = decode(c, maxBodyBytes, &into)
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
		"no type":                    {"", strings.NewReader(`{}`), model.UnsupportedMediaType, "The body must be sent as application/json.", ""},
		"another type":               {"text/plain", strings.NewReader(`{}`), model.UnsupportedMediaType, "The body must be sent as application/json.", ""},
		"a form":                     {"application/x-www-form-urlencoded", strings.NewReader(`quantity=2`), model.UnsupportedMediaType, "The body must be sent as application/json.", ""},
		"a type like it":             {"application/json-seq", strings.NewReader(`{}`), model.UnsupportedMediaType, "The body must be sent as application/json.", ""},
		"a broken type":              {"application/json; charset", strings.NewReader(`{}`), model.UnsupportedMediaType, "The body must be sent as application/json.", ""},
		"too large":                  {jsonType, strings.NewReader(over), model.TooLarge, "The request's body is larger than 4 KiB.", ""},
		"too large, chunked":         {jsonType, chunked(over), model.TooLarge, "The request's body is larger than 4 KiB.", ""},
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
		decode(c, maxBodyBytes, &decoded{})
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

// An operator's bodies may be four times as large as those of everybody else; past that they are not read, and the
// answer says how large they may be.
func TestBodiesAreBounded(t *testing.T) {
	api := benchAPI(t, false)
	api.Payments = &service.Payments{Secret: benchSecret, Catalog: api.Catalog}
	router, err := Router(api)
	if err != nil {
		t.Fatal(err)
	}
	path, _ := api.Paths.Issue("someone", benchSale, time.Hour)
	for route, tc := range map[string]struct {
		role  model.Role
		bound int
		said  string
	}{
		"POST /users":    {model.RoleBuyer, 4096, "4 KiB"},
		"POST /sessions": {model.RoleBuyer, 4096, "4 KiB"},
		"POST /sales/" + benchSale + "/" + path + "/orders": {model.RoleBuyer, 4096, "4 KiB"},
		"POST /payments/callback":                           {model.RoleBuyer, 4096, "4 KiB"},
		"POST /admin/sales":                                 {model.RoleOperator, 16384, "16 KiB"},
		"PATCH /admin/sales/" + benchSale:                   {model.RoleOperator, 16384, "16 KiB"},
		"POST /admin/lab":                                   {model.RoleOperator, 16384, "16 KiB"},
	} {
		t.Run(route, func(t *testing.T) {
			token, _, err := api.Tokens.Sign(model.Identity{UserID: "someone", Role: tc.role}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			send := func(bytes int) (status int, detail string) {
				t.Helper()
				body := `{"nothing":1` + strings.Repeat(" ", bytes-13) + "}" // a field that no body has
				method, at, _ := strings.Cut(route, " ")
				r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1"+at, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				timestamp := strconv.FormatInt(time.Now().Unix(), 10)
				r.Header.Set("X-Timestamp", timestamp)
				r.Header.Set("X-Signature", service.SignCallback(benchSecret, timestamp, []byte(body)))
				w := httptest.NewRecorder()
				router.ServeHTTP(w, r)
				var problem struct{ Detail string }
				if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
					t.Fatalf("%s: %v", w.Body, err)
				}
				return w.Code, problem.Detail
			}
			if status, detail := send(tc.bound); status != http.StatusBadRequest || !strings.Contains(detail, "nothing") {
				t.Errorf("%d bytes: %d %s", tc.bound, status, detail)
			}
			if status, detail := send(tc.bound + 1); status != http.StatusRequestEntityTooLarge || detail != "The request's body is larger than "+tc.said+"." {
				t.Errorf("%d bytes: %d %s", tc.bound+1, status, detail)
			}
		})
	}
}

// desk is a database of sales, and a gate, that take every change of one sale.
type desk struct {
	service.SaleStore
	service.SaleGate
	offer model.Offer
}

func (d desk) ChangeSale(_ context.Context, change model.SaleChange) (model.Offer, model.Verdict, error) {
	verdict := change.Edit(&d.offer.Sale)
	return d.offer, verdict, nil
}

func (desk) Configure(context.Context, model.Sale) error { return nil }

func (desk) Announce(context.Context, string) error { return nil }

// The longest description fits into a body, in Chinese, and also if its encoder writes ASCII only.
func TestLongestDescription(t *testing.T) {
	api := benchAPI(t, false)
	offer, _ := api.Catalog.InMemory(benchSale)
	offer.PayTimeoutSeconds = 60
	api.Sales = &service.Sales{Store: desk{offer: offer}, Gate: desk{}, Catalog: api.Catalog, Log: api.Log}
	router, err := Router(api)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := api.Tokens.Sign(model.Identity{UserID: "op", Role: model.RoleOperator}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, character := range map[string]string{"as it is": "茶", "escaped": `\u8336`} {
		t.Run(name, func(t *testing.T) {
			send := func(characters int) (status int, said map[string]any) {
				t.Helper()
				body := `{"title":"` + strings.Repeat(character, 200) + `","description":"` + strings.Repeat(character, characters) + `"}`
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/admin/sales/"+benchSale, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				w := httptest.NewRecorder()
				router.ServeHTTP(w, r)
				if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
					t.Fatalf("%s: %v", w.Body, err)
				}
				return w.Code, said
			}
			if status, said := send(2000); status != http.StatusOK || said["description"] != strings.Repeat("茶", 2000) || said["status"] != "live" {
				t.Errorf("2000 characters: %d %v", status, said)
			}
			if status, said := send(2001); status != http.StatusBadRequest || said["code"] != "bad_request" || said["field"] != "description" {
				t.Errorf("2001 characters: %d %v", status, said)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"quantity":2}`, `{"Quantity":2}`, `{"quantity":1,"quantity":2}`, `{"quantity":1e309}`,
		`{"title":"\ud800","starts_at":"2026-11-11T20:00:00.5+08:00"}`, `{"options":{"sizes":[1,2]}}`, `{"title":null}`,
		`[[[[[[[[[]]]]]]]]]`, `{"}":0}`, "{\"title\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var first, second decoded
		if invalid := decodeObject(body, &first); invalid != nil {
			// What is repeated of the body stays short, and on its line.
			for _, chinese := range []bool{false, true} {
				detail := word(invalid, chinese)
				ours := strings.ReplaceAll(strings.ReplaceAll(detail, invalid.Field, ""), invalid.Value, "") // in which every place is filled
				if detail == "" || len(detail) > 3*maxQuotedBytes || strings.ContainsAny(detail, "\n\r") || strings.ContainsAny(ours, "{}") {
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
