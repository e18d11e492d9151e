package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"flashsale/test/kit/check"
)

// The description of the API in web/pages/api.html and web/openapi.json is what is made from openapi.yaml.
// WRITE_API=1 go test -run TestAPIIsMade ./web writes both.
func TestAPIIsMade(t *testing.T) {
	var d apiDocument
	check.Done(yaml.UnmarshalWithOptions(openAPI, &d.root, yaml.UseOrderedMap()))
	for name, made := range map[string][]byte{"pages/api.html": d.page(), "openapi.json": toJSON(d.root)} {
		if os.Getenv("WRITE_API") != "" {
			check.Done(os.WriteFile(name, made, 0o644))
		}
		check.Same(t, name+" is up to date", string(check.Must(os.ReadFile(name))) == string(made), true)
	}
}

// page makes the page from testdata/api.html. The page is a template too: the server fills in its URL and the names of assets.
func (d *apiDocument) page() []byte {
	const base = "https://base.example"
	pages := template.Must(template.New("api.html").Funcs(template.FuncMap{
		"prose": prose, "get": get, "resolve": d.resolve, "example": example, "name": path.Base, "inside": inside, "bounds": bounds,
		"needs": func(object any, member string) bool {
			return slices.Contains(as[[]any](get(object, "required")), any(member))
		},
	}).ParseFiles("testdata/api.html"))
	var page bytes.Buffer
	check.Done(pages.Execute(&page, struct {
		Doc    any
		Base   string
		Groups []apiGroup
	}{d.root, base, d.groups(base)}))
	text := strings.ReplaceAll(page.String(), base, "{{base}}")
	return regexp.MustCompile(`"/assets/([a-z]+\.[a-z]+)"`).ReplaceAll([]byte(text), []byte(`"{{asset "$1"}}"`))
}

// apiDocument is openapi.yaml as any: mappings are of type yaml.MapSlice, which keeps the order of the file.
type apiDocument struct{ root any }

// get returns what a path of names leads to in a part of the file, or nil.
func get(part any, names ...string) any {
	for _, name := range names {
		members, _ := part.(yaml.MapSlice)
		i := slices.IndexFunc(members, func(m yaml.MapItem) bool { return m.Key == name })
		if i < 0 {
			return nil
		}
		part = members[i].Value
	}
	return part
}

// as returns a part of the file as a value of a type, or that type's zero value if the part has another type.
func as[T any](part any) T {
	value, _ := part.(T)
	return value
}

// toJSON returns a part of the file as JSON.
func toJSON(part any) []byte {
	raw, _ := yaml.MarshalWithOptions(part, yaml.JSON()) // what was read can be written
	return raw
}

// resolve returns what a part of the file refers to by $ref, or else the part itself.
func (d *apiDocument) resolve(part any) any {
	if ref := as[string](get(part, "$ref")); ref != "" {
		return get(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return part
}

// apiGroup is a section of the page: the operations of a tag.
type apiGroup struct {
	Tag        any
	Operations []apiOperation
}

// apiOperation is an operation. Its parameters include those of its path. Who is the least role that may call it, or "" for
// everybody.
type apiOperation struct {
	Spec                    any
	Method, Path, Who, Curl string
	Parameters              []any
}

func (d *apiDocument) groups(base string) []apiGroup {
	var groups []apiGroup
	for _, tag := range as[[]any](get(d.root, "tags")) {
		group := apiGroup{Tag: tag}
		for _, p := range as[yaml.MapSlice](get(d.root, "paths")) {
			for _, method := range []string{"get", "post", "put", "patch", "delete"} {
				spec := get(p.Value, method)
				if spec == nil || as[[]any](get(spec, "tags"))[0] != get(tag, "name") {
					continue
				}
				op := apiOperation{Spec: spec, Method: strings.ToUpper(method), Path: as[string](p.Key)}
				for _, parameter := range slices.Concat(as[[]any](get(p.Value, "parameters")), as[[]any](get(spec, "parameters"))) {
					op.Parameters = append(op.Parameters, d.resolve(parameter))
				}
				if security := as[[]any](get(spec, "security")); len(security) > 0 {
					op.Who = as[string](as[[]any](get(security[0], "bearer"))[0])
				}
				op.Curl = d.curl(op, base)
				group.Operations = append(group.Operations, op)
			}
		}
		groups = append(groups, group)
	}
	return groups
}

// curl returns a shell command that calls the operation. The shell must have set the variables that the command names.
func (d *apiDocument) curl(op apiOperation, base string) string {
	url, headers := base+op.Path, ""
	header := func(name, value string) { headers += fmt.Sprintf(" \\\n  -H \"%s: %s\"", name, value) }
	switch op.Who {
	case "viewer", "support", "operator":
		header("Authorization", "Bearer $ADMIN")
	case "buyer":
		header("Authorization", "Bearer $TOKEN")
	}
	for _, p := range op.Parameters {
		name, variable := as[string](get(p, "name")), "$"+as[string](get(p, "x-shell"))
		switch {
		case get(p, "in") == "path":
			url = strings.ReplaceAll(url, "{"+name+"}", variable)
		case get(p, "required") == true:
			header(name, variable)
		}
	}
	command, usual := "curl", "GET"
	answers := as[yaml.MapSlice](get(op.Spec, "responses"))
	if streams := as[yaml.MapSlice](get(d.resolve(answers[0].Value), "content")); len(streams) > 0 && get(streams[0].Value, "x-events") != nil {
		command += " -N"
	}
	if bodies := as[yaml.MapSlice](get(op.Spec, "requestBody", "content")); len(bodies) > 0 { // the command sends the first of its media types
		usual = "POST"
		var body bytes.Buffer
		if sample := d.sample(bodies[0].Value); sample != nil {
			_ = json.Compact(&body, toJSON(sample)) // valid JSON
		}
		data := body.String()
		if bodies[0].Key == "application/json" {
			header("Content-Type", "application/json")
		} else { // the body is a form
			data = strings.NewReplacer(`{`, "", `}`, "", `"`, "", ":", "=", " ", "").Replace(data)
		}
		headers += " \\\n  -d '" + data + "'"
	}
	if op.Method != usual {
		command += " -X " + op.Method
	}
	return command + ` "` + url + `"` + headers
}

// sample returns an example of a body, or nil if there is none.
func (d *apiDocument) sample(media any) any {
	if own := get(media, "example"); own != nil {
		return own
	}
	if ofSchema := as[[]any](get(d.resolve(get(media, "schema")), "examples")); len(ofSchema) > 0 {
		return ofSchema[0]
	}
	return nil
}

// example returns an example in the form in which it is sent. An example that is a text is sent as it is.
func example(part any) string {
	if s := as[string](part); s != "" {
		return strings.TrimSuffix(s, "\n")
	}
	var lines bytes.Buffer
	_ = json.Indent(&lines, bytes.TrimSpace(toJSON(part)), "", "  ") // valid JSON
	return lines.String()
}

// inside returns the schema whose properties the page lists for a value: the schema of the value itself, or that of the entries
// of an array or map. It returns nil for other values.
func inside(schema any) any {
	if get(schema, "properties") != nil {
		return schema
	}
	if items := get(schema, "items"); items != nil {
		return items
	}
	if more := as[yaml.MapSlice](get(schema, "additionalProperties")); more != nil { // else the value is true or false
		return more
	}
	return nil
}

// bounds returns the bounds of a value in words.
func bounds(schema any) string {
	var words []string
	add := func(low, high any, unit string) {
		switch {
		case low != nil && high != nil:
			words = append(words, fmt.Sprint(low, " to ", high, unit))
		case low != nil:
			words = append(words, fmt.Sprint("at least ", low, unit))
		case high != nil:
			words = append(words, fmt.Sprint("at most ", high, unit))
		}
	}
	add(get(schema, "minimum"), get(schema, "maximum"), "")
	add(get(schema, "minLength"), get(schema, "maxLength"), " characters")
	add(nil, get(schema, "maxItems"), " entries")
	if get(schema, "format") == "date-time" {
		words = append(words, "RFC 3339")
	}
	return strings.Join(words, ", ")
}

// quotedCode matches text in backticks.
var quotedCode = regexp.MustCompile("`([^`]+)`")

// prose returns the paragraphs of a description as HTML.
func prose(part any) []template.HTML {
	var paragraphs []template.HTML
	for paragraph := range strings.SplitSeq(strings.TrimSpace(as[string](part)), "\n\n") {
		escaped := template.HTMLEscapeString(paragraph)
		paragraphs = append(paragraphs, template.HTML(quotedCode.ReplaceAllString(escaped, "<code>$1</code>")))
	}
	return paragraphs
}
