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

	"flashsale/internal/sandbox"
	"flashsale/lab"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// decoded has a field of each kind that the bodies of the API have.
type decoded struct {
	Quantity int        `json:"quantity"`
	Title    *string    `json:"title"`
	StartsAt *time.Time `json:"starts_at"`
	Options  struct {
		Sizes []int `json:"sizes"`
	} `json:"options"`
}

// tryDecode decodes a body of a length, or of an unknown length (-1).
func tryDecode(t *testing.T, contentType string, body io.Reader, length int) (into decoded, ok bool, refusal middleware.Refusal) {
	t.Helper()
	engine := gin.New()
	engine.POST("/", func(c *gin.Context) {
		ok = decode(c, maxBodyBytes, &into)
		refusal, _ = middleware.RefusalOf(c)
		check.Same(t, "aborted", c.IsAborted(), !ok)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.ContentLength = int64(length)
	r.Header.Set("Content-Type", contentType)
	engine.ServeHTTP(httptest.NewRecorder(), r)
	return into, ok, refusal
}

func TestDecodeTakes(t *testing.T) {
	inQuotes := `" 2.0 \`
	title, start := "双十一", time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	for body, want := range map[string]decoded{
		`{"quantity": 2}`:         {Quantity: 2},
		` {"quantity":2} ` + "\n": {Quantity: 2},
		`{}`:                      {},
		`{"quant\u0069ty":2}`:     {Quantity: 2},
		`{"quantity":-5}`:         {Quantity: -5}, // the handler judges the range
		`{"quantity":2.0}`:        {Quantity: 2},
		`{"quantity":-0.2e1,"title":"\" 2.0 \\"}`:                    {Quantity: -2, Title: &inQuotes},
		`{"quantity":2,"options":{}}`:                                {Quantity: 2},
		`{"quantity":2` + strings.Repeat(" ", maxBodyBytes-14) + `}`: {Quantity: 2},
		`{"title":"双十一","starts_at":"2026-11-11T20:00:00Z"}`:         {Title: &title, StartsAt: &start},
	} {
		for _, contentType := range []string{"application/json", "Application/JSON; charset=utf-8"} {
			got, ok, refusal := tryDecode(t, contentType, strings.NewReader(body), len(body))
			if !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, %v, %+v; want %+v", body, got, ok, refusal, want)
			}
		}
	}
}

// A body of another media type, or of more than maxBodyBytes, is refused. If its announced length is too large, it is not read.
func TestDecodeRefusesUndecoded(t *testing.T) {
	type test struct {
		contentType string
		body        io.Reader
		length      int
		verdict     model.Verdict
		detail      string
	}
	const wrongType, tooLarge = "The body must be sent as application/json.", "The request's body is larger than 4 KiB."
	text, cutOff := strings.NewReader, io.MultiReader(strings.NewReader(`{`), brokenReader{})
	over := `{"quantity":2}` + strings.Repeat(" ", maxBodyBytes-13)
	check.Each(t, map[string]test{
		"no type":        {"", text(`{}`), 2, model.UnsupportedMediaType, wrongType},
		"another type":   {"text/plain", text(`{}`), 2, model.UnsupportedMediaType, wrongType},
		"a form":         {"application/x-www-form-urlencoded", text(`quantity=2`), 10, model.UnsupportedMediaType, wrongType},
		"a similar type": {"application/json-seq", text(`{}`), 2, model.UnsupportedMediaType, wrongType},
		"a broken type":  {"application/json; charset", text(`{}`), 2, model.UnsupportedMediaType, wrongType},
		"too large":      {jsonType, text(over), -1, model.TooLarge, tooLarge},
		"announced":      {jsonType, unread{t}, maxBodyBytes + 1, model.TooLarge, tooLarge},
		"cut off":        {jsonType, cutOff, -1, model.BadRequest, "the body did not arrive in full"},
	}, func(t *testing.T, tc test) {
		_, ok, got := tryDecode(t, tc.contentType, tc.body, tc.length)
		check.Same(t, "decoded", ok, false)
		check.Same(t, "verdict", got.Verdict, tc.verdict)
		check.Same(t, "detail", word(got.Invalid, english), tc.detail)
		check.Same(t, "field", got.Invalid.Field, "")
	})
}

func TestDecodeRefuses(t *testing.T) {
	const single, noTime = "the body is not a single JSON value", "starts_at must be a time in the form of RFC 3339"
	const number = `field "quantity" has the wrong type or range: number `
	long := strings.Repeat("界", 33) + "…"
	for body, want := range map[string]struct{ detail, field string }{
		"":                                    {"the body is empty", ""},
		"{\"title\":\"\xff\"}":                {"the body is not valid UTF-8", ""},
		"\ufeff{}":                            {single, ""},
		" \n":                                 {single, ""},
		`{"quantity":`:                        {single, ""},
		`{"quantity":2,}`:                     {single, ""},
		`{"quantity":2}{"quantity":3}`:        {single, ""},
		`{"quantity":2}]`:                     {single, ""},
		` null`:                               {"the body is not a JSON object", ""},
		`[{"quantity":2}]`:                    {"the body is not a JSON object", ""},
		`{"price_cents":1}`:                   {`unknown field "price_cents"`, "price_cents"},
		`{"options":{"colour":1}}`:            {`unknown field "colour"`, "colour"},
		`{"Quantity":2}`:                      {`unknown field "Quantity"`, "Quantity"},
		`{"options":{"siZes":[1]}}`:           {`unknown field "siZes"`, "siZes"},
		`{"option\u017f":{}}`:                 {`unknown field "optionſ"`, "optionſ"}, // ſ folds to s
		`{"a\nb":1}`:                          {`unknown field "a\nb"`, `a\nb`},
		`{"quantity":1,"quantity":2}`:         {`field "quantity" comes twice`, "quantity"},
		`{"quantity":1,"quant\u0069ty":2}`:    {`field "quantity" comes twice`, "quantity"},
		`{"options":{"sizes":[],"sizes":[]}}`: {`field "sizes" comes twice`, "sizes"},
		`{"quantity":1.5}`:                    {number + `1.5`, "quantity"},
		`{"quantity":0.99999999999999999}`:    {number + `0.99999999999999999`, "quantity"},
		`{"quantity":1e-400}`:                 {number + `1e-400`, "quantity"},
		`{"quantity":9223372036854775808}`:    {number + `9223372036854775808`, "quantity"},
		`{"quantity":1e309}`:                  {number + `1e309`, "quantity"},
		`{"quantity":"1"}`:                    {`field "quantity" has the wrong type or range: string`, "quantity"},
		`{"options":{"sizes":["1"]}}`:         {`field "options.sizes" has the wrong type or range: string`, "options.sizes"},
		`{"starts_at":"tomorrow"}`:            {noTime, "starts_at"},
		`{"starts_at":5}`:                     {noTime, "starts_at"},
		`{"title":"tea","quantity":1,"starts_at":"2026-11-11"}`:                     {noTime, "starts_at"},
		`{"` + strings.Repeat("界", 1000) + `":1}`:                                   {`unknown field "` + long + `"`, long},
		`{"options":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`: {`field "options" has the wrong type or range: array`, "options"},
	} {
		_, ok, got := tryDecode(t, jsonType, strings.NewReader(body), len(body))
		if ok || got.Verdict != model.BadRequest || got.Invalid == nil {
			t.Errorf("%.50q: %v, %+v", body, ok, got)
			continue
		}
		check.Same(t, body, []string{word(got.Invalid, english), got.Invalid.Field}, []string{want.detail, want.field})
	}
}

// brokenReader is a client that disconnects.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// unread is a body that must not be read.
type unread struct{ *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.Error("the body was read")
	return 0, io.EOF
}

// An operator's body may be four times as large as any other body. The refusal of a larger body has the bound.
func TestBodiesAreBounded(t *testing.T) {
	s := newShop(t)
	s.api.Payments.Service = &service.Payments{Provider: s.api.Payments.Sandbox.(service.Provider), Catalog: s.offers.Catalog}
	s.api.Lab.Desk = lab.NewDesk(nil, lab.NewShelf(t.TempDir()), s.offers.Catalog, nil, s.api.Door.Log)
	path, _ := s.api.Purchases.Paths.Issue(benchUser, benchSale, time.Hour)
	for route, kibibytes := range map[string]int{
		"POST /users": 4, "POST /sessions": 4, "POST /sales/" + benchSale + "/" + path + "/orders": 4, "POST /payments/callback": 4,
		"POST /admin/sales": 16, "PATCH /admin/sales/" + benchSale: 16, "POST /admin/lab": 16,
	} {
		method, at, _ := strings.Cut(route, " ")
		role := map[int]model.Role{4: model.RoleBuyer, 16: model.RoleOperator}[kibibytes]
		send := func(bytes int) (status int, detail any) {
			body := `{"nothing":1` + strings.Repeat(" ", bytes-13) + "}" // a field that no body has
			timestamp := strconv.FormatInt(time.Now().Unix(), 10)
			w := s.serve(s.request(method, "/api/v1"+at, body, "Authorization", s.token(role),
				"X-Timestamp", timestamp, "X-Signature", sandbox.Sign(benchSecret, timestamp, []byte(body))))
			return w.Code, readProblem(t, w)["detail"]
		}
		status, detail := send(kibibytes << 10)
		check.Same(t, route+": status at the bound", status, http.StatusBadRequest)
		check.Same(t, route+": detail at the bound", detail, any(`unknown field "nothing"`))
		status, detail = send(kibibytes<<10 + 1)
		check.Same(t, route+": status above the bound", status, http.StatusRequestEntityTooLarge)
		check.Same(t, route+": detail above the bound", detail, any("The request's body is larger than "+strconv.Itoa(kibibytes)+" KiB."))
	}
}

// desk is a database and a gate that accept every change of one sale.
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

// The longest description fits into a body, in Chinese, and also if the client escapes every character.
func TestLongestDescription(t *testing.T) {
	s := newShop(t)
	s.api.Sales.Service = &service.Sales{Store: desk{offer: *s.offer}, Gate: desk{}, Catalog: s.offers.Catalog, Log: s.api.Door.Log}
	for _, character := range []string{"茶", `\u8336`} {
		send := func(characters int) *httptest.ResponseRecorder {
			body := `{"title":"` + strings.Repeat(character, 200) + `","description":"` + strings.Repeat(character, characters) + `"}`
			const path = "/api/v1/admin/sales/" + benchSale
			return s.serve(s.request(http.MethodPatch, path, body, "Authorization", s.token(model.RoleOperator)))
		}
		var sale struct{ Description, Status string }
		check.Done(json.Unmarshal(send(2000).Body.Bytes(), &sale))
		check.Same(t, "2,000 of "+character, sale.Description, strings.Repeat("茶", 2000))
		check.Same(t, "status", sale.Status, "live")
		got := readProblem(t, send(2001))
		check.Same(t, "2,001 of "+character, []any{got["code"], got["field"]}, []any{"bad_request", "description"})
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
			// The text that repeats a part of the body is short, and one line.
			for _, language := range []int{english, chinese} {
				detail := word(invalid, language)
				ours := strings.ReplaceAll(strings.ReplaceAll(detail, invalid.Field, ""), invalid.Value, "")
				if detail == "" || len(detail) > 3*maxQuotedBytes || strings.ContainsAny(detail, "\n\r") || strings.ContainsAny(ours, "{}") {
					t.Errorf("refused with %q", detail)
				}
			}
			return
		}
		again := check.Must(json.Marshal(first))
		if invalid := decodeObject(again, &second); invalid != nil {
			t.Fatalf("%q became %q, which is refused: %+v", body, again, invalid)
		}
		check.Same(t, "decoded and encoded twice", string(check.Must(json.Marshal(second))), string(again))
	})
}
