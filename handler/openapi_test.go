package handler

import (
	"fmt"
	"iter"
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
	"flashsale/test/kit/check"
)

// object is a part of openapi.yaml.
type object = map[string]any

func readOpenAPI(t *testing.T) (doc object) {
	t.Helper()
	check.Done(yaml.Unmarshal(check.Must(os.ReadFile("../web/openapi.yaml")), &doc))
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

// only returns the only value of an enum.
func only(t *testing.T, schema object, property string) any {
	t.Helper()
	return part(t, schema, "properties", property)["enum"].([]any)[0]
}

// operations yields the operations, each under its method and path.
func operations(t *testing.T, doc object) iter.Seq2[string, object] {
	return func(yield func(string, object) bool) {
		for path, item := range part(t, doc, "paths") {
			for method, operation := range item.(object) {
				if method != "parameters" && !yield(strings.ToUpper(method)+" "+path, operation.(object)) {
					return
				}
			}
		}
	}
}

// Every route is described, and nothing else. HEAD belongs to GET.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	routes, described := map[string]bool{}, map[string]bool{}
	parameter := regexp.MustCompile(`:(\w+)`)
	for _, route := range newShop(t).handler().(*gin.Engine).Routes() {
		if route.Method != http.MethodHead {
			routes[route.Method+" "+parameter.ReplaceAllString(route.Path, "{$1}")] = true
		}
	}
	for name := range operations(t, readOpenAPI(t)) {
		described[name] = true
	}
	check.Same(t, "described routes", described, routes)
}

// Generators of clients make types of components, so no two have the same name, of whatever kind they are.
func TestOpenAPINamesAreUnique(t *testing.T) {
	kinds := map[string]string{}
	for kind, components := range part(t, readOpenAPI(t), "components") {
		for name := range components.(object) {
			if other := kinds[strings.ToLower(name)]; other != "" {
				t.Errorf("%s is among %s and %s", name, other, kind)
			}
			kinds[strings.ToLower(name)] = kind
		}
	}
}

// The codes are those of the table of problems, with their status and text. Each code is the answer of an operation, under its
// own status, except the code for a wrong method.
func TestOpenAPIHasTheCodes(t *testing.T) {
	doc := readOpenAPI(t)
	type described struct{ status, detail any }
	code := part(t, doc, "components", "schemas", "Problem", "properties", "code")
	got, want := map[string]described{}, map[string]described{}
	for name, value := range part(t, code, "x-codes") {
		got[name] = described{value.(object)["status"], value.(object)["detail"]}
	}
	for verdict, p := range problems {
		want[string(verdict)] = described{uint64(p.Status), p.Detail[english]}
	}
	check.Same(t, "codes", got, want)
	var enum []string
	for _, name := range code["enum"].([]any) {
		enum = append(enum, name.(string))
	}
	slices.Sort(enum)
	check.Same(t, "enum", enum, slices.Sorted(maps.Keys(got)))

	answered := map[string]bool{}
	walk(doc, func(_ string, value any) {
		schema, ok := value.(object)
		if !ok || schema["$ref"] != "#/components/schemas/Problem" {
			return
		}
		for _, code := range part(t, schema, "properties", "code")["enum"].([]any) {
			answered[code.(string)] = true
			check.Same(t, code.(string)+": status", only(t, schema, "status"), any(uint64(problems[model.Verdict(code.(string))].Status)))
		}
	})
	check.Same(t, "codes of answers", slices.Sorted(maps.Keys(answered)), enum)
	for name, operation := range operations(t, doc) {
		for status, answer := range part(t, operation, "responses") {
			reference, _ := answer.(object)["$ref"].(string)
			if reference == "" {
				continue
			}
			content, _ := part(t, doc, "components", "responses", reference[strings.LastIndex(reference, "/")+1:])["content"].(object)
			if kind, ok := content[problemJS].(object); ok {
				check.Same(t, name+": status of "+reference, fmt.Sprint(only(t, part(t, kind, "schema"), "status")), status)
			}
		}
	}
}

// The document says who may use each route, and that all others are refused.
func TestOpenAPISaysWhoMay(t *testing.T) {
	parameter := regexp.MustCompile(`:(\w+)`)
	leastOf := map[string]model.Role{}
	for least, names := range access {
		for _, name := range names {
			leastOf[parameter.ReplaceAllString(name, "{$1}")] = least
		}
	}
	for name, operation := range operations(t, readOpenAPI(t)) {
		role := ""
		if security, ok := operation["security"].([]any); ok {
			role = security[0].(object)["bearer"].([]any)[0].(string)
		}
		check.Same(t, name+" is for", model.Role(role), leastOf[name])
		if role != "" {
			_, forbids := part(t, operation, "responses")[strconv.Itoa(http.StatusForbidden)]
			check.Same(t, name+" may be forbidden", forbids, true)
		}
	}
}

// The validator in the tests of app knows these words of JSON Schema, and ignores others.
func TestOpenAPIWords(t *testing.T) {
	known := strings.Fields("$ref type format pattern enum minimum maximum minLength maxLength maxItems uniqueItems default " +
		"properties required items oneOf additionalProperties description examples x-codes")
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
