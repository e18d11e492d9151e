package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/goccy/go-yaml"

	"flashsale/test/kit/check"
)

// description is openapi.yaml in the form that requests and answers are compared with.
type description struct {
	doc     *openapi3.T
	router  routers.Router
	nowhere *routers.Route // the documented answers for paths and methods that no route has
}

// described reads the file once for all tests.
var described = sync.OnceValues(func() (*description, error) {
	raw, err := os.ReadFile("../web/openapi.yaml")
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	components, _ := file["components"].(map[string]any)
	exact(components["schemas"])
	delete(file, "servers") // the router does not know relative ones
	if raw, err = json.Marshal(file); err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, err
	}
	d := &description{doc: doc}
	if d.router, err = legacy.NewRouter(doc); err != nil { // validates the document, examples and all
		return nil, err
	}
	answers := doc.Components.Responses
	d.nowhere = &routers.Route{Spec: doc, Operation: &openapi3.Operation{Responses: openapi3.NewResponses(
		openapi3.WithStatus(http.StatusNotFound, answers["NoPage"]),
		openapi3.WithStatus(http.StatusMethodNotAllowed, answers["MethodNotAllowed"]),
		openapi3.WithStatus(http.StatusTooManyRequests, answers["RateLimited"]),
	)}}
	return d, nil
})

// What has a tag is not sent again to whoever has any version of it. The inspector compares the answers with the document.
func TestAnyVersion(t *testing.T) {
	t.Parallel()
	d, err := described()
	check.NoError(t, err)
	s := usual(t)
	fill := strings.NewReplacer("{sale}", s.createSale(nil).ID)
	for path, item := range d.doc.Paths.Map() {
		if item.Get == nil || item.Get.Security != nil && len(*item.Get.Security) > 0 || strings.HasSuffix(path, "/events") {
			continue
		}
		if path = fill.Replace(path); !strings.Contains(path, "{") {
			first := s.anyone().call("GET", path, nil)
			again := s.anyone().call("GET", path, nil, "If-None-Match", "*")
			check.Same(t, path+" is not sent again", again.status == http.StatusNotModified, first.status == http.StatusOK && first.header.Get("ETag") != "")
		}
	}
}

// exact forbids members that an object's schema does not name. The file itself allows them, as clients have to.
func exact(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		_, named := schema["properties"]
		if _, open := schema["additionalProperties"]; named && !open && schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
		for _, part := range schema {
			exact(part)
		}
	case []any:
		for _, part := range schema {
			exact(part)
		}
	}
}

// inspector is a transport that compares requests and answers with openapi.yaml: every answer, and every request that is not
// refused as the client's mistake. Requests to other addresses pass.
type inspector struct {
	*description
	host  string
	next  http.RoundTripper
	wrong func(format string, args ...any)
}

func inspect(t testing.TB, server string, next http.RoundTripper) http.RoundTripper {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatal("openapi.yaml: ", err)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return &inspector{d, u.Host, next, t.Errorf}
}

// RoundTrip is the transport's.
func (i *inspector) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != i.host {
		return i.next.RoundTrip(req)
	}
	var sent []byte
	if req.Body != nil && req.Body != http.NoBody {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, errors.Join(err, req.Body.Close())
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	res, err := i.next.RoundTrip(req)
	if err != nil || req.Method == http.MethodOptions && res.StatusCode == http.StatusNoContent {
		return res, err
	}
	route, params, err := i.router.FindRoute(req)
	if err != nil || strings.Count(route.Path, "/") != strings.Count(req.URL.Path, "/") { // it overlooks a slash at the end
		route = i.nowhere
	}
	if err := i.check(req, sent, res, route, params); err != nil {
		i.wrong("openapi.yaml doesn't describe %s %s, answered with %s: %v", req.Method, req.URL, res.Status, err)
	}
	return res, nil
}

func (i *inspector) check(
	req *http.Request, sent []byte, res *http.Response, route *routers.Route, params map[string]string,
) error {
	// For version 3.1 kin-openapi compiles a schema for each value, which takes milliseconds; for 3.0 it does not. The
	// file may be read as 3.0, because it uses no keyword of 3.1; TestOpenAPIWords of the package handler checks that.
	quick := *route
	spec := *route.Spec
	spec.OpenAPI = "3.0.3"
	quick.Spec = &spec

	options := &openapi3filter.Options{
		IncludeResponseStatus: true, SkipSettingDefaults: true, RejectWhenRequestBodyNotSpecified: true, AuthenticationFunc: hasToken,
		SchemaValidationOptions: []openapi3.SchemaValidationOption{openapi3.DisableSchemaErrorDetails()},
	}
	asked := req.Clone(req.Context())
	asked.Body = io.NopCloser(bytes.NewReader(sent))
	input := &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: &quick, Options: options}
	answer := quick.Operation.Responses.Status(res.StatusCode)
	if answer == nil {
		return errors.New("nothing of this status")
	}
	if res.StatusCode/100 != 4 {
		if err := openapi3filter.ValidateRequest(req.Context(), input); err != nil {
			return err
		}
	}
	if err := onlyNamed(res.Header, answer.Value.Headers); err != nil {
		return err
	}
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header,
		Options: options,
	}
	if kind := answer.Value.Content.Get("text/event-stream"); kind != nil && res.Header.Get("Content-Type") == "text/event-stream" {
		res.Body = &heard{ReadCloser: res.Body, inspector: i, what: req.URL.Path, schemas: kind.Extensions["x-events"]}
		options.ExcludeResponseBody = true
	} else {
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		options.ExcludeResponseBody = err != nil // the client gets err when it reads the body
		output.SetBodyBytes(body)
	}
	return openapi3filter.ValidateResponse(req.Context(), output)
}

// hasToken demands a bearer token where the file says so. The server checks the token.
func hasToken(_ context.Context, input *openapi3filter.AuthenticationInput) error {
	scheme, token, _ := strings.Cut(input.RequestValidationInput.Request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return errors.New("no bearer token")
	}
	return nil
}

// common are headers that any answer may have; the file must name all others.
var common = map[string]bool{
	"Cache-Control": true, "Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Security-Policy": true,
	"Content-Type": true,
	"Date":         true, "Referrer-Policy": true, "Vary": true, "X-Content-Type-Options": true, "X-Frame-Options": true,
	"Accept-Ranges": true,
	// Only for pages of --allow-origin. Browsers' preflights are no operations of the API.
	"Access-Control-Allow-Origin": true, "Access-Control-Expose-Headers": true,
}

func onlyNamed(header http.Header, named openapi3.Headers) error {
	for name := range header {
		known := common[name]
		for described := range named {
			known = known || http.CanonicalHeaderKey(described) == name
		}
		if !known {
			return fmt.Errorf("it has a header %s: %s", name, header.Get(name))
		}
	}
	return nil
}

// failing is the end of a body: EOF, or the error that cut the body off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// heard is a stream of events, each of which is compared with the schema that the file has for its name.
type heard struct {
	io.ReadCloser
	*inspector
	what    string
	schemas any
	pending []byte
}

// Read is the stream's.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.pending = append(h.pending, p[:n]...)
	for {
		event, rest, whole := bytes.Cut(h.pending, []byte("\n\n"))
		if !whole {
			return n, err
		}
		h.pending = rest
		if err := h.event(string(event)); err != nil {
			h.wrong("openapi.yaml doesn't describe what %s said: %v in %s", h.what, err, event)
		}
	}
}

func (h *heard) event(text string) error {
	var name, data string
	for line := range strings.Lines(text) {
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			data = value
		}
	}
	if name == "" {
		return nil // a comment, which keeps the stream alive
	}
	schemas, _ := h.schemas.(map[string]any)
	schema, _ := schemas[name].(string)
	named, ok := h.doc.Components.Schemas[schema]
	if !ok {
		return fmt.Errorf("no event %q", name)
	}
	var value any
	if err := json.Unmarshal([]byte(data), &value); err != nil {
		return err
	}
	return named.Value.VisitJSON(value, openapi3.DisableSchemaErrorDetails())
}

// told is a transport that gives the same answer to every request.
type told http.Response

func (a *told) RoundTrip(req *http.Request) (*http.Response, error) {
	res := http.Response(*a)
	res.Request, res.Status = req, http.StatusText(res.StatusCode)
	return &res, nil
}

// The inspector finds faults: each answer or request is wrong in one thing.
func TestInspector(t *testing.T) {
	t.Parallel()
	const (
		sale  = "/api/v1/sales/XVCMWHCEXMY32JHF"
		buy   = "POST " + sale + "/6b0215a2f79be1e068b0df91f448a9dd/orders"
		watch = "GET " + sale + "/events"
		id    = "XVCMWHCEXMY32JHFOP4WT2LK7B76FZHMPMM6JJN3YU2ZQNZ4"
		order = `{"id":"` + id + `","number":"OP4WT2LK","sale_id":"XVCMWHCEXMY32JHF","status":"pending","quantity":1,"amount_cents":990,"currency":"CNY",` +
			`"created_at":"2026-11-21T21:55:22.562Z","expires_at":"2026-11-21T22:05:22.562Z"}`
		refusal = `{"type":"/problems/sold_out","title":"Sold out","status":409,"detail":"None left.",` +
			`"code":"sold_out","request_id":"R-1"}`
		event = ":\n\nevent: stock\ndata: " +
			"{\"available\":98,\"quota\":100,\"state\":\"open\",\"revision\":1,\"now\":\"2026-11-21T21:55:22.801Z\"}\n\n"
	)
	location, english, unbuffered := "Location: /api/v1/orders/"+id, "Content-Language: en", "X-Accel-Buffering: no"
	for _, tc := range []struct {
		request, body string
		status        int
		header        string
		answer        string
		replace, by   string // in the answer
		want          string // in the complaint; empty: there is none
	}{
		{buy, `{"quantity":1}`, 201, location, order, "", "", ""},
		{buy, `{"quantity":1}`, 201, "Vary: *", order, "", "", "Location"},
		{buy, `{"quantity":1}`, 201, "X-Powered-By: us", order, "", "", "X-Powered-By"},
		{buy, `{"quantity":1}`, 201, location, order, `"id"`, `"epoch":1,"id"`, "epoch"},
		{buy, `{"quantity":1}`, 201, location, order, `"quantity":1,`, "", "quantity"},
		{buy, `{"quantity":1}`, 201, location, order, ".562Z", ".562123Z", "created_at"},
		{buy, `{"quantity":1}`, 201, location, order, "pending", "open", "status"},
		{buy, `{"quantity":1}`, 204, location, "", "", "", "nothing of this status"},
		{buy, `{"quantity":0}`, 201, location, order, "", "", "quantity"},
		{buy, `{"quantity":1,"price":1}`, 201, location, order, "", "", "price"},
		{"PUT" + buy[4:], `{"quantity":1}`, 201, location, order, "", "", "nothing of this status"},
		{"GET /api/v1/secrets", "", 200, location, "{}", "", "", "nothing of this status"},
		{buy, `{"quantity":1}`, 409, english, refusal, "", "", ""},
		{buy, `{"price":1}`, 409, english, refusal, "", "", ""}, // a refused mistake of the client
		{buy, `{"quantity":1}`, 409, english, refusal, "sold_out", "not_payable", "code"},
		{buy, `{"quantity":1}`, 409, english, refusal, "409", "404", "status"},
		{buy, `{"quantity":1}`, 409, "Content-Language: de", refusal, "", "", "Content-Language"},
		{watch, "", 200, unbuffered, event, "", "", ""},
		{watch, "", 200, unbuffered, event, "event: stock", "event: units", "units"},
		{watch, "", 200, unbuffered, event, `"quota"`, `"held"`, "held"},
	} {
		answer := strings.Replace(tc.answer, tc.replace, tc.by, 1)
		if tc.replace == "sold_out" {
			answer = strings.ReplaceAll(tc.answer, tc.replace, tc.by)
		}
		kind := map[int]string{
			200: "text/event-stream", 201: "application/json; charset=utf-8",
			409: "application/problem+json",
		}[tc.status]
		name, value, _ := strings.Cut(tc.header, ": ")
		header := http.Header{"Content-Type": {kind}, "X-Request-Id": {"R-1"}, name: {value}}
		transport := inspect(t, "http://127.0.0.1", &told{
			StatusCode: tc.status, Header: header,
			Body: io.NopCloser(strings.NewReader(answer)),
		}).(*inspector)
		var said strings.Builder
		transport.wrong = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }

		method, path, _ := strings.Cut(tc.request, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(tc.body))
		check.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer x")
		res, err := transport.RoundTrip(req)
		check.NoError(t, err)
		if got, err := io.ReadAll(res.Body); err != nil || string(got) != answer {
			t.Errorf("the body %s came through as %q, %v", answer, got, err)
		}
		_ = res.Body.Close()
		if got := said.String(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s, answered with %d %s: the inspector said %q, want %q", tc.request, tc.body, tc.status, answer, got, tc.want)
		}
	}
}

// The bounds of a sale's fields in the file are those of the server: each bound is accepted, and nothing beyond.
func TestBoundsAreTheServers(t *testing.T) {
	t.Parallel()
	s := usual(t)
	d, err := described()
	check.NoError(t, err)
	checked := 0
	check := func(name string, value any, fits bool) {
		t.Helper()
		checked++
		if a := s.operator().call("POST", adminSales, newSale(fields{name: value, "waiting_list": true})); fits {
			a.want(http.StatusCreated)
		} else if p := a.refused(http.StatusBadRequest, "bad_request"); p.Field != name {
			t.Errorf("%s %v: the field %q", name, value, p.Field)
		}
	}
	for name, property := range d.doc.Components.Schemas["NewSale"].Value.Properties {
		schema := property.Value
		if len(schema.OneOf) > 0 { // or null
			schema = schema.OneOf[0].Value
		}
		if schema.Min != nil {
			check(name, int64(*schema.Min), true)
			check(name, int64(*schema.Min)-1, false)
			check(name, int64(*schema.Max), true)
			check(name, int64(*schema.Max)+1, false)
		}
		if schema.MaxLength != nil {
			check(name, "/"+strings.Repeat("x", int(*schema.MaxLength)-1), true)
			check(name, "/"+strings.Repeat("x", int(*schema.MaxLength)), false)
		}
	}
	if checked != 8*4+3*2 {
		t.Errorf("%d values were checked", checked)
	}
}
