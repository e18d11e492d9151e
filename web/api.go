package web

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// openAPI describes the HTTP API. The page /api is made from it, and tests compare it with the server.
//
//go:embed openapi.yaml
var openAPI []byte

const (
	// apiPolicy lets the page /api load its style and picture. No script may run, since the page has none.
	apiPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	// filePolicy is for a file that a browser shows on its own, outside of a page.
	filePolicy = "default-src 'none'; frame-ancestors 'none'"
)

// apiFiles are the page and the JSON that are made from openapi.yaml.
type apiFiles struct{ page, json []byte }

// makeAPI makes the page and the JSON. base is the URL under which clients reach the server.
func makeAPI(assets *Assets, base string) (*apiFiles, error) {
	text, err := yaml.YAMLToJSON(openAPI)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	var doc apiDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	pages, err := template.New("api.html").Funcs(template.FuncMap{"asset": assets.URL, "prose": prose}).ParseFS(pageFiles, "pages/api.html")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = pages.Execute(&page, struct {
		*apiDocument
		Base   string
		Groups []apiGroup
	}{&doc, base, doc.groups(base)})
	return &apiFiles{page.Bytes(), text}, err
}

// api answers with the description of the API: the page, the file itself, or its JSON. Page and JSON are made at the
// first request, because that takes some fifty milliseconds, which would delay every start.
func (p *Pages) api(w http.ResponseWriter, name string) {
	files, err := p.describe()
	if err != nil {
		http.Error(w, "The page can't be shown.", http.StatusInternalServerError)
		return
	}
	served := map[string]struct {
		contentType, policy string
		body                []byte
	}{
		"/api":          {"text/html; charset=utf-8", apiPolicy, files.page},
		"/openapi.yaml": {"application/yaml", filePolicy, openAPI},
		"/openapi.json": {"application/json", filePolicy, files.json},
	}[name]
	w.Header().Set("Content-Type", served.contentType)
	w.Header().Set("Content-Security-Policy", served.policy)
	w.Header().Set("Cache-Control", pageMaxAge)
	_, _ = w.Write(served.body) // the visitor may have left
}

// apiDocument is the part of openapi.yaml that the page shows.
type apiDocument struct {
	Info struct{ Summary, Description string }
	Tags []struct{ Name, Description string }
	// Paths have only those methods that the API uses.
	Paths      ordered[apiPath]
	Components struct {
		Parameters map[string]apiParameter
		Headers    map[string]apiParameter
		Responses  map[string]apiResponse
		Schemas    ordered[apiSchema]
	}
}

type apiPath struct {
	Parameters               []apiParameter
	Get, Post, Patch, Delete *apiOperation
}

type apiOperation struct {
	Tags                 []string
	OperationID          string
	Summary, Description string
	Security             []map[string][]string
	Parameters           []apiParameter
	RequestBody          struct{ Content ordered[apiMedia] } `json:"requestBody"`
	Responses            ordered[apiResponse]
	Method, Path, Curl   string `json:"-"`
}

type apiParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                apiSchema
	Shell                 string `json:"x-shell"` // the variable for it in a shell command
}

type apiResponse struct {
	Ref         string `json:"$ref"`
	Description string
	Headers     ordered[apiParameter]
	Content     ordered[apiMedia]
}

type apiMedia struct {
	Schema  apiSchema
	Example *apiExample
	Events  ordered[string] `json:"x-events"` // of a stream: schemas by names of events
}

type apiSchema struct {
	Ref                                              string `json:"$ref"`
	Type, Format, Pattern, Description               string
	Enum                                             []any
	Minimum, Maximum, MinLength, MaxLength, MaxItems *int64
	Default                                          any
	Properties                                       ordered[apiSchema]
	Required                                         []string
	Items                                            *apiSchema
	OneOf                                            []apiSchema
	AdditionalProperties                             apiMore
	Examples                                         []apiExample
	Codes                                            ordered[apiCode] `json:"x-codes"`
}

// apiMore is the schema of the members that an object may have beside the named ones (additionalProperties). It is
// empty if there may be none.
type apiMore struct{ schema *apiSchema }

// UnmarshalJSON reads a schema, or false.
func (m *apiMore) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		return nil // false
	}
	return json.Unmarshal(raw, &m.schema)
}

// apiCode describes a code of problems.
type apiCode struct {
	Status int
	Detail string
}

// apiExample is an example in the form in which it is sent.
type apiExample string

// UnmarshalJSON keeps the members in the order of the file. An example that is a JSON string becomes its text.
func (e *apiExample) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*e = apiExample(strings.TrimSuffix(text, "\n"))
		return nil
	}
	var lines bytes.Buffer
	err := json.Indent(&lines, raw, "", "  ")
	*e = apiExample(lines.String())
	return err
}

// ordered is a mapping in the order of the file.
type ordered[T any] []named[T]

type named[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSON reads the mapping.
func (o *ordered[T]) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // the opening bracket
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		entry := named[T]{Name: fmt.Sprint(name)}
		if err := d.Decode(&entry.Value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*o = append(*o, entry)
	}
	return nil
}

// apiGroup is a part of the page: the operations of a tag.
type apiGroup struct {
	Name, Description string
	Operations        []*apiOperation
}

func (d *apiDocument) groups(base string) []apiGroup {
	var groups []apiGroup
	for _, tag := range d.Tags {
		group := apiGroup{Name: tag.Name, Description: tag.Description}
		for _, p := range d.Paths {
			for _, method := range []named[*apiOperation]{{"GET", p.Value.Get}, {"POST", p.Value.Post}, {"PATCH", p.Value.Patch}, {"DELETE", p.Value.Delete}} {
				if op := method.Value; op != nil && op.Tags[0] == tag.Name {
					op.Method, op.Path = method.Name, p.Name
					d.complete(op, p.Value.Parameters)
					op.Curl = d.curl(op, base)
					group.Operations = append(group.Operations, op)
				}
			}
		}
		groups = append(groups, group)
	}
	return groups
}

// complete replaces the references of an operation by what they refer to. References to schemas stay, because the page
// shows schemas in a section of their own.
func (d *apiDocument) complete(op *apiOperation, ofPath []apiParameter) {
	op.Parameters = append(append([]apiParameter{}, ofPath...), op.Parameters...)
	for i, p := range op.Parameters {
		if p.Ref != "" {
			op.Parameters[i] = d.Components.Parameters[path.Base(p.Ref)]
		}
	}
	for i := range op.Responses {
		response := &op.Responses[i].Value
		if response.Ref != "" {
			*response = d.Components.Responses[path.Base(response.Ref)]
		}
		for j, h := range response.Headers {
			if h.Value.Ref != "" {
				response.Headers[j].Value = d.Components.Headers[path.Base(h.Value.Ref)]
			}
		}
	}
}

// Who returns who may call the operation: the least role, or "" for everybody.
func (op apiOperation) Who() string {
	if len(op.Security) == 0 {
		return ""
	}
	return op.Security[0]["bearer"][0]
}

// curl returns a shell command that calls the operation. The shell must have set the variables that the command names.
func (d *apiDocument) curl(op *apiOperation, base string) string {
	url, headers := base+op.Path, ""
	switch op.Who() {
	case "viewer", "support", "operator":
		headers = ` \` + "\n" + `  -H "Authorization: Bearer $ADMIN"`
	case "buyer":
		headers = ` \` + "\n" + `  -H "Authorization: Bearer $TOKEN"`
	}
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			url = strings.ReplaceAll(url, "{"+p.Name+"}", "$"+p.Shell)
		case p.Required:
			headers += fmt.Sprintf(" \\\n  -H \"%s: $%s\"", p.Name, p.Shell)
		}
	}
	command, usual := "curl", "GET"
	if streams := op.Responses[0].Value.Content; len(streams) > 0 && len(streams[0].Value.Events) > 0 {
		command += " -N"
	}
	for _, media := range op.RequestBody.Content[:min(1, len(op.RequestBody.Content))] { // one of the forms that it may have
		usual = "POST"
		var text string
		switch example := d.example(media.Value); media.Name {
		case "application/json":
			var line bytes.Buffer
			_ = json.Compact(&line, []byte(example)) // made from valid JSON
			headers += " \\\n  -H \"Content-Type: application/json\""
			text = line.String()
		default: // the body is a form
			text = strings.NewReplacer(`{`, "", `}`, "", `"`, "", ":", "=", " ", "", "\n", "").Replace(string(example))
		}
		headers += " \\\n  -d '" + text + "'"
	}
	if op.Method != usual {
		command += " -X " + op.Method
	}
	return command + ` "` + url + `"` + headers
}

// example returns an example of a body, or "" if there is none.
func (d *apiDocument) example(m apiMedia) apiExample {
	if m.Example != nil {
		return *m.Example
	}
	for _, s := range d.Components.Schemas {
		if s.Name == path.Base(m.Schema.Ref) && len(s.Value.Examples) > 0 {
			return s.Value.Examples[0]
		}
	}
	return ""
}

// Refers returns the name of the schema that this one refers to, or "".
func (s apiSchema) Refers() string {
	if s.Ref == "" {
		return ""
	}
	return path.Base(s.Ref)
}

// Inside returns the schema of the objects in a value: the schema itself, or that of the entries of an array or map. It
// returns nil if there are none.
func (s apiSchema) Inside() *apiSchema {
	switch {
	case len(s.Properties) > 0:
		return &s
	case s.Items != nil:
		return s.Items
	}
	return s.AdditionalProperties.schema
}

// Needs reports whether an object must have a member.
func (s apiSchema) Needs(name string) bool { return slices.Contains(s.Required, name) }

// Bounds returns the bounds of a value in words.
func (s apiSchema) Bounds() string {
	var list []string
	add := func(low, high *int64, unit string) {
		switch {
		case low != nil && high != nil:
			list = append(list, strconv.FormatInt(*low, 10)+" to "+strconv.FormatInt(*high, 10)+unit)
		case low != nil:
			list = append(list, "at least "+strconv.FormatInt(*low, 10)+unit)
		case high != nil:
			list = append(list, "at most "+strconv.FormatInt(*high, 10)+unit)
		}
	}
	add(s.Minimum, s.Maximum, "")
	add(s.MinLength, s.MaxLength, " characters")
	add(nil, s.MaxItems, " entries")
	if s.Format == "date-time" {
		list = append(list, "RFC 3339")
	}
	return strings.Join(list, ", ")
}

// quotedCode matches text in backticks.
var quotedCode = regexp.MustCompile("`([^`]+)`")

// prose returns the paragraphs of a description as HTML.
func prose(text string) []template.HTML {
	var list []template.HTML
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		escaped := template.HTMLEscapeString(paragraph)
		list = append(list, template.HTML(quotedCode.ReplaceAllString(escaped, "<code>$1</code>"))) //nolint:gosec // escaped above
	}
	return list
}
