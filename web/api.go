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

// openAPI describes the HTTP API. The page about it is made from it, and tests hold the server to it.
//
//go:embed openapi.yaml
var openAPI []byte

const (
	// apiPolicy lets the page about the API load its style and picture, and nothing run: it has no script.
	apiPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	// filePolicy is for a file that a browser shows by itself.
	filePolicy = "default-src 'none'; frame-ancestors 'none'"
)

// apiFiles are what is served of openapi.yaml.
type apiFiles struct{ page, json []byte }

// makeAPI makes the page and the JSON. base is under which clients reach the server.
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

// api answers with the description of the API: a page, or the file as it is or as JSON. They are made when somebody asks
// first: that takes some fifty milliseconds, for which no start has to wait.
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

// apiDocument is what the page shows of openapi.yaml.
type apiDocument struct {
	Info struct{ Summary, Description string }
	Tags []struct{ Name, Description string }
	// Paths have those of their operations that the API uses.
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
	Shell                 string `json:"x-shell"` // the variable that stands for it in a command
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
	Events  ordered[string] `json:"x-events"` // of a stream: schemas by the names of events
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

// apiMore is what may stand in an object beside what is named: values of a schema, or nothing.
type apiMore struct{ schema *apiSchema }

// UnmarshalJSON reads it.
func (m *apiMore) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		return nil // false
	}
	return json.Unmarshal(raw, &m.schema)
}

// apiCode is a code of problems.
type apiCode struct {
	Status int
	Detail string
}

// apiExample is an example as it would be sent.
type apiExample string

// UnmarshalJSON keeps the members in the order of the file; a text stands for itself.
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

// complete puts what an operation refers to in its place, but for schemas, which have a place of their own.
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

// Who says who may call the operation.
func (op apiOperation) Who() string {
	switch {
	case len(op.Security) == 0:
		return ""
	case len(op.Security[0]["bearer"]) > 0:
		return op.Security[0]["bearer"][0]
	}
	return "log-in"
}

// curl is a command that calls the operation, for a shell with the variables that it names.
func (d *apiDocument) curl(op *apiOperation, base string) string {
	url, headers := base+op.Path, ""
	switch op.Who() {
	case "operator":
		headers = ` \` + "\n" + `  -H "Authorization: Bearer $ADMIN"`
	case "log-in":
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
	for _, media := range op.RequestBody.Content {
		usual = "POST"
		var text string
		switch example := d.example(media.Value); media.Name {
		case "application/json":
			var line bytes.Buffer
			_ = json.Compact(&line, []byte(example)) // made from valid JSON
			headers += " \\\n  -H \"Content-Type: application/json\""
			text = line.String()
		default: // a form
			text = strings.NewReplacer(`{`, "", `}`, "", `"`, "", ":", "=", " ", "", "\n", "").Replace(string(example))
		}
		headers += " \\\n  -d '" + text + "'"
	}
	if op.Method != usual {
		command += " -X " + op.Method
	}
	return command + ` "` + url + `"` + headers
}

// example is what a body looks like.
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

// Refers is the name of the schema that stands here.
func (s apiSchema) Refers() string {
	if s.Ref == "" {
		return ""
	}
	return path.Base(s.Ref)
}

// Inside is the schema of the objects that stand in a value: itself, or that of its entries; nil where there are none.
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

// Bounds are those of a value, in words.
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

// quotedCode is what stands in backticks.
var quotedCode = regexp.MustCompile("`([^`]+)`")

// prose gives the paragraphs of a description.
func prose(text string) []template.HTML {
	var list []template.HTML
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		escaped := template.HTMLEscapeString(paragraph)
		list = append(list, template.HTML(quotedCode.ReplaceAllString(escaped, "<code>$1</code>"))) //nolint:gosec // escaped above
	}
	return list
}
