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

	"flashsale/test/kit/check"
)

// Everything in the file is on the page, every link of the page has a target, and no id occurs twice.
func TestAPIPage(t *testing.T) {
	p := pagesOf(t)
	page := ask(t, p, "/api").Body.String()
	var doc struct {
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	check.Done(yaml.Unmarshal(openAPI, &doc))
	ids := map[string]bool{}
	for _, match := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		check.Same(t, match[1]+" occurs twice", ids[match[1]], false)
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
			id, _ := operation["operationId"].(string)
			check.Same(t, method+" "+path+" is on the page", ids[id], true)
		}
	}
	if commands := strings.Count(page, "<pre><code>curl "); commands != operations || operations < 40 {
		t.Errorf("%d commands for %d operations", commands, operations)
	}
	for name := range doc.Components.Schemas {
		check.Same(t, "the schema "+name+" is on the page", ids["schema-"+name], true)
	}
	links := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
	for _, match := range links {
		check.Same(t, "the link to #"+match[1]+" has a target", ids[match[1]], true)
	}
	if len(links) < operations {
		t.Errorf("%d links", len(links))
	}
	wrong := regexp.MustCompile(`<no value>|ZgotmplZ|\$ref|map\[|&lt;nil&gt;|<script|<style| style=|<[^>]* on[a-z]+=`)
	check.Same(t, "wrong text on the page", wrong.FindString(page), "")
}

// A command has the server, a variable for each parameter of the path, the credentials, and the body.
func TestAPICommands(t *testing.T) {
	p := pagesOf(t)
	page := strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&").Replace(ask(t, p, "/api").Body.String())
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
		check.Same(t, name+": the page has "+want, strings.Contains(page, "<pre><code>"+want), true)
	}
}

// The JSON has the same contents as the YAML.
func TestOpenAPIAsJSON(t *testing.T) {
	var fromYAML, fromJSON any
	check.Done(yaml.Unmarshal(openAPI, &fromYAML))
	text := check.Must(json.Marshal(fromYAML)) // has the types of JSON
	check.Done(errors.Join(json.Unmarshal(text, &fromYAML), json.Unmarshal(openAPIJSON, &fromJSON)))
	if len(text) < 10_000 || !reflect.DeepEqual(fromYAML, fromJSON) {
		t.Errorf("the JSON differs from %d bytes of YAML", len(text))
	}
}

// The page runs no script, and loads only served assets.
func TestAPIIsServed(t *testing.T) {
	p := pagesOf(t)
	assets := check.Must(NewAssets())
	for path, want := range map[string]struct{ contentType, policy, start string }{
		"/api":          {"text/html; charset=utf-8", apiPolicy, "<!doctype html>\n<html lang=\"en\""},
		"/openapi.yaml": {"application/yaml", filePolicy, "# The HTTP API"},
		"/openapi.json": {"application/json", filePolicy, `{"openapi": "3.1.0"`},
	} {
		w := ask(t, p, path)
		wantHeader(t, w, http.StatusOK, map[string]string{
			"Content-Type": want.contentType, "Content-Security-Policy": want.policy, "Cache-Control": pageMaxAge,
		})
		check.Same(t, path+" starts with "+want.start, strings.HasPrefix(w.Body.String(), want.start), true)
	}
	check.Same(t, "bad word in "+apiPolicy, regexp.MustCompile("script|unsafe").FindString(apiPolicy), "")
	loaded := map[string]bool{}
	for _, match := range regexp.MustCompile(`"(/assets/[^"]+)"`).FindAllStringSubmatch(ask(t, p, "/api").Body.String(), -1) {
		loaded[match[1]] = true
		wantHeader(t, ask(t, assets, match[1]), http.StatusOK, nil)
	}
	check.Same(t, "two styles and a picture", len(loaded), 3)
}
