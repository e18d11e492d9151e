package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func makeTestAPI(t *testing.T) *apiFiles {
	t.Helper()
	files, err := makeAPI(newAssets(t), "https://shop.example")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Everything in the file is on the page, every link of the page has a target, and no id occurs twice.
func TestAPIPage(t *testing.T) {
	page := string(makeTestAPI(t).page)
	var doc struct {
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, match := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[match[1]] {
			t.Errorf("the id %s occurs twice", match[1])
		}
		ids[match[1]] = true
	}
	operations := 0
	for path, item := range doc.Paths {
		for method, value := range item {
			operation, ok := value.(map[string]any)
			if !ok {
				continue // parameters of the path
			}
			operations++
			if id, _ := operation["operationId"].(string); !ids[id] {
				t.Errorf("%s %s is not on the page", method, path)
			}
		}
	}
	if commands := strings.Count(page, "<pre><code>curl "); commands != operations || operations < 40 {
		t.Errorf("%d commands for %d operations", commands, operations)
	}
	for name := range doc.Components.Schemas {
		if !ids["schema-"+name] {
			t.Errorf("the schema %s is not on the page", name)
		}
	}
	links := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
	for _, match := range links {
		if !ids[match[1]] {
			t.Errorf("the link to #%s has no target", match[1])
		}
	}
	if len(links) < operations {
		t.Errorf("%d links", len(links))
	}
	wrong := regexp.MustCompile(`<no value>|ZgotmplZ|\$ref|map\[|&lt;nil&gt;|<script|<style| style=|<[^>]* on[a-z]+=`)
	if found := wrong.FindString(page); found != "" {
		t.Errorf("%s on the page", found)
	}
}

// A command has the server, a variable for each parameter of the path, the credentials, and the body.
func TestAPICommands(t *testing.T) {
	page := strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&").Replace(string(makeTestAPI(t).page))
	for name, want := range map[string]string{
		"a read":     `curl "https://shop.example/api/v1/sales/$SALE"</code>`,
		"a stream":   `curl -N "https://shop.example/api/v1/sales/$SALE/events"</code>`,
		"no body":    "curl -X POST \"https://shop.example/api/v1/sales/$SALE/path\" \\\n  -H \"Authorization: Bearer $TOKEN\"</code>",
		"a purchase": "curl \"https://shop.example/api/v1/sales/$SALE/$HIDDEN/orders\" \\\n  -H \"Authorization: Bearer $TOKEN\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{\"quantity\":1}'</code>",
		"a deletion": "curl -X DELETE \"https://shop.example/api/v1/orders/$ORDER\" \\\n",
		"a form":     "curl \"https://shop.example/pay/$PAYMENT\" \\\n  -d 'choice=pay'</code>",
		"a signature": "curl \"https://shop.example/api/v1/payments/callback\" \\\n  -H \"X-Timestamp: $TIMESTAMP\" \\\n  -H \"X-Signature: $SIGNATURE\" \\\n" +
			"  -H \"Content-Type: application/json\" \\\n  -d '{\"payment_id\":",
		"an operator's": "curl -X PATCH \"https://shop.example/api/v1/admin/sales/$SALE\" \\\n  -H \"Authorization: Bearer $ADMIN\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{\"add_quota\":50,\"if_quota\":100}'</code>",
	} {
		if !strings.Contains(page, "<pre><code>"+want) {
			t.Errorf("%s: no %s", name, want)
		}
	}
}

// The JSON has the same contents as the YAML.
func TestOpenAPIAsJSON(t *testing.T) {
	var fromYAML, fromJSON any
	if err := yaml.Unmarshal(openAPI, &fromYAML); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fromYAML) // has the types of JSON
	if err = errors.Join(err, json.Unmarshal(text, &fromYAML), json.Unmarshal(makeTestAPI(t).json, &fromJSON)); err != nil {
		t.Fatal(err)
	}
	if len(text) < 10_000 || !reflect.DeepEqual(fromYAML, fromJSON) {
		t.Errorf("the JSON differs from %d bytes of YAML", len(text))
	}
}

// The page runs no script, and loads only served assets.
func TestAPIIsServed(t *testing.T) {
	p, _ := pagesOf(t)
	assets := newAssets(t)
	for path, want := range map[string]struct{ contentType, policy, start string }{
		"/api":          {"text/html; charset=utf-8", apiPolicy, "<!doctype html>\n<html lang=\"en\""},
		"/openapi.yaml": {"application/yaml", filePolicy, "# The HTTP API"},
		"/openapi.json": {"application/json", filePolicy, `{"openapi": "3.1.0"`},
	} {
		w := ask(t, p, path)
		wantHeader(t, w, http.StatusOK, map[string]string{
			"Content-Type": want.contentType, "Content-Security-Policy": want.policy, "Cache-Control": pageMaxAge,
		})
		if !strings.HasPrefix(w.Body.String(), want.start) {
			t.Errorf("%s starts with %.60q", path, w.Body)
		}
	}
	if strings.Contains(apiPolicy, "script") || strings.Contains(apiPolicy, "unsafe") {
		t.Error(apiPolicy)
	}
	loaded := map[string]bool{}
	for _, match := range regexp.MustCompile(`"(/assets/[^"]+)"`).FindAllStringSubmatch(ask(t, p, "/api").Body.String(), -1) {
		loaded[match[1]] = true
		wantHeader(t, ask(t, assets, match[1]), http.StatusOK, nil)
	}
	if len(loaded) != 3 { // two styles and a picture
		t.Errorf("%v", loaded)
	}
}
