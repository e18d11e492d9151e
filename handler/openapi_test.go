package handler

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/goccy/go-yaml"

	"flashsale/model"
)

// object is a part of openapi.yaml.
type object = map[string]any

func readOpenAPI(t *testing.T) object {
	t.Helper()
	raw, err := os.ReadFile("../web/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc object
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// part follows names into nested objects.
func part(t *testing.T, of object, names ...string) object {
	t.Helper()
	for _, name := range names {
		next, ok := of[name].(object)
		if !ok {
			t.Fatalf("openapi.yaml has no %s of %v", name, names)
		}
		of = next
	}
	return of
}

// Every route is described, and nothing else is; HEAD goes with GET.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	router, err := Router(benchAPI(t, false))
	if err != nil {
		t.Fatal(err)
	}
	var routes, described []string
	parameter := regexp.MustCompile(`:(\w+)`)
	for _, route := range router.(*gin.Engine).Routes() {
		if route.Method == http.MethodHead {
			continue
		}
		routes = append(routes, route.Method+" "+parameter.ReplaceAllString(route.Path, "{$1}"))
	}
	for path, item := range part(t, readOpenAPI(t), "paths") {
		for method := range item.(object) {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(routes)
	slices.Sort(described)
	if !slices.Equal(routes, described) {
		t.Errorf("routes    %q\ndescribed %q", routes, described)
	}
}

// The codes of problems are those of the table, with their status and their words; each is some operation's answer, under
// its own status, but for that to a wrong method.
func TestOpenAPIHasTheCodes(t *testing.T) {
	doc := readOpenAPI(t)
	code := part(t, doc, "components", "schemas", "Problem", "properties", "code")
	described := map[string]object{}
	for name, value := range part(t, code, "x-codes") {
		described[name] = value.(object)
	}
	var enum []string
	for _, name := range code["enum"].([]any) {
		enum = append(enum, name.(string))
	}
	slices.Sort(enum)
	if names := slices.Sorted(maps.Keys(described)); !slices.Equal(enum, names) {
		t.Errorf("enum %q, x-codes %q", enum, names)
	}
	for verdict, p := range problems {
		got := described[string(verdict)]
		if got == nil || got["status"] != uint64(p.status) || got["detail"] != p.english.detail {
			t.Errorf("%s is described as %v, but is %d %q", verdict, got, p.status, p.english.detail)
		}
	}
	if len(described) != len(problems) {
		t.Errorf("%d codes are described, there are %d", len(described), len(problems))
	}

	answered := map[string]bool{}
	walk(doc, func(name string, value any) {
		schema, ok := value.(object)
		if !ok || schema["$ref"] != "#/components/schemas/Problem" {
			return
		}
		status := part(t, schema, "properties", "status")["enum"].([]any)[0].(uint64)
		for _, code := range part(t, schema, "properties", "code")["enum"].([]any) {
			answered[code.(string)] = true
			if p := problems[model.Verdict(code.(string))]; uint64(p.status) != status {
				t.Errorf("%v is an answer with status %d, but has %d", code, status, p.status)
			}
		}
	})
	if all := slices.Sorted(maps.Keys(answered)); !slices.Equal(all, enum) {
		t.Errorf("answers have %q, of %q", all, enum)
	}
	for path, item := range part(t, doc, "paths") {
		for method, operation := range item.(object) {
			if method == "parameters" {
				continue
			}
			for status, answer := range part(t, operation.(object), "responses") {
				reference, _ := answer.(object)["$ref"].(string)
				if reference == "" {
					continue
				}
				content, _ := part(t, doc, "components", "responses", reference[strings.LastIndex(reference, "/")+1:])["content"].(object)
				kind, ok := content["application/problem+json"].(object)
				if !ok {
					continue
				}
				if got := part(t, kind, "schema", "properties", "status")["enum"].([]any)[0]; strconv.FormatUint(got.(uint64), 10) != status {
					t.Errorf("%s %s answers %s with %s", method, path, status, reference)
				}
			}
		}
	}
}

// Operations say who may call them as the router does: the operator's are those below /admin.
func TestOpenAPISaysWhoMay(t *testing.T) {
	for path, item := range part(t, readOpenAPI(t), "paths") {
		for method, value := range item.(object) {
			operation, ok := value.(object)
			if !ok {
				continue
			}
			role := ""
			if security, ok := operation["security"].([]any); ok {
				role = "login"
				if roles := security[0].(object)["bearer"].([]any); len(roles) > 0 {
					role = roles[0].(string)
				}
			}
			answers := part(t, operation, "responses")
			_, forbids := answers[strconv.Itoa(http.StatusForbidden)]
			operators := strings.HasPrefix(path, "/api/v1/admin/")
			if operators != (role == string(model.RoleOperator)) || operators && !forbids {
				t.Errorf("%s %s is for %q", method, path, role)
			}
		}
	}
}

// The validator of the app's tests knows these words of JSON Schema and passes over others.
func TestOpenAPIWords(t *testing.T) {
	known := strings.Fields("$ref type format pattern enum minimum maximum minLength maxLength maxItems uniqueItems default properties required items oneOf " +
		"additionalProperties description examples x-codes")
	checked := 0
	var check func(schema any)
	check = func(schema any) {
		s, ok := schema.(object)
		if !ok {
			return // additionalProperties: false
		}
		checked++
		for word, value := range s {
			if !slices.Contains(known, word) {
				t.Errorf("%s in %v", word, s)
			}
			switch word {
			case "properties":
				for _, property := range value.(object) {
					check(property)
				}
			case "oneOf":
				for _, one := range value.([]any) {
					check(one)
				}
			case "items", "additionalProperties":
				check(value)
			}
		}
	}
	doc := readOpenAPI(t)
	for _, schema := range part(t, doc, "components", "schemas") {
		check(schema)
	}
	walk(doc, func(name string, value any) {
		if name == "schema" {
			check(value)
		}
	})
	if checked < 100 {
		t.Errorf("%d schemas", checked)
	}
}

// walk visits all members of all objects.
func walk(value any, visit func(name string, value any)) {
	switch value := value.(type) {
	case object:
		for name, member := range value {
			visit(name, member)
			walk(member, visit)
		}
	case []any:
		for _, member := range value {
			walk(member, visit)
		}
	}
}
