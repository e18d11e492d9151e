package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"flashsale/internal/config"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// oddTexts are texts that databases, browsers and programs treat in different ways.
var oddTexts = []string{
	"", " ", "odd", "odd ", " odd", "ODD", "ödd", "o\u0308dd", "ｏｄｄ", "ß", "ss", "ẞ", "İ", "ı", "茶", "🍵", "\u200b", "\u3164", "\ufeffodd", "\u202eodd",
	"o\x00d", "o\td", "o\nd", "o'd", `o"d`, `o\d`, "%", "_", "odd%00", "../odd", "0", "-1", "1e5", "NaN", "null", "true", "' OR '1'='1", "<b>odd</b>", "{odd}",
	strings.Repeat("x", 300), strings.Repeat("茶", 3000),
}

// document is openapi.yaml as it is written.
type document map[string]any

// resolved follows a reference.
func (d document) resolved(value any) map[string]any {
	object, _ := value.(map[string]any)
	ref, ok := object["$ref"].(string)
	if !ok {
		return object
	}
	at := map[string]any(d)
	for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[name].(map[string]any)
	}
	return d.resolved(at)
}

// isText reports whether a schema takes any text.
func (d document) isText(schema any) bool {
	s := d.resolved(schema)
	_, chosen := s["enum"]
	return s["type"] == "string" && !chosen && s["format"] != "date-time"
}

// spot is a place for a text in a request of the API. The rest of the request is as in the document's examples.
type spot struct {
	name, kind, method, security string
	fill                         func(text string) (path string, body any)
}

// kindOf returns what the request of a path is about. Staff and buyers log in by the same names.
func kindOf(path string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/api/v1/"), "admin/"), "/")
	if slices.Contains([]string{"sessions", "users", "staff"}, kind) {
		return "accounts"
	}
	return kind
}

// spots finds every place for a text in paths, queries and JSON bodies.
func (d document) spots() (list []spot) {
	paths := d.resolved(d["paths"])
	for path, item := range paths {
		for method, operation := range d.resolved(item) {
			if !slices.Contains([]string{"get", "post", "patch", "put", "delete"}, method) {
				continue
			}
			op := d.resolved(operation)
			if text := fmt.Sprint(op); strings.Contains(text, "text/event-stream") || op["operationId"] == "startLab" {
				continue
			}
			schema := d.bodyOf(op)
			params, _ := op["parameters"].([]any)
			shared, _ := d.resolved(item)["parameters"].([]any)
			for _, param := range slices.Concat(params, shared) {
				p := d.resolved(param)
				name, _ := p["name"].(string)
				if in := p["in"]; d.isText(p["schema"]) && in != "header" {
					list = append(list, d.spot(path, method, op, name, func(text string) (string, any) {
						if in == "query" {
							return emptied(path) + "?" + name + "=" + url.QueryEscape(text), d.example(schema)
						}
						return emptied(strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(text))), d.example(schema)
					}))
				}
			}
			for name, property := range d.resolved(schema["properties"]) {
				items := d.resolved(d.resolved(d.resolved(property)["items"])["properties"])
				if d.isText(property) {
					list = append(list, d.spot(path, method, op, name, func(text string) (string, any) {
						body := d.example(schema)
						body[name] = text
						return emptied(path), body
					}))
				}
				for inner, schemaOf := range items {
					if d.isText(schemaOf) {
						list = append(list, d.spot(path, method, op, name+"."+inner, func(text string) (string, any) {
							body := d.example(schema)
							first := maps.Clone(body[name].([]any)[0].(map[string]any))
							first[inner] = text
							body[name] = []any{first}
							return emptied(path), body
						}))
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b spot) int { return strings.Compare(a.name, b.name) })
	return list
}

func (d document) spot(path, method string, op map[string]any, name string, fill func(string) (string, any)) spot {
	return spot{method + " " + path + " " + name, kindOf(path), strings.ToUpper(method), fmt.Sprint(op["security"]), fill}
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// emptied returns a path with an id that nothing has in the remaining places, but those of a sale and of a campaign.
func emptied(path string) string {
	return placeholder.ReplaceAllStringFunc(path, func(name string) string {
		if name == "{sale}" || name == "{campaign}" {
			return name
		}
		return "X"
	})
}

// bodyOf returns the schema of an operation's JSON body.
func (d document) bodyOf(op map[string]any) map[string]any {
	content := d.resolved(d.resolved(op["requestBody"])["content"])
	return d.resolved(d.resolved(content["application/json"])["schema"])
}

// example returns a body by the example of a schema, with times that are near; nil if it has none.
func (d document) example(schema map[string]any) map[string]any {
	list, _ := schema["examples"].([]any)
	if len(list) == 0 {
		return nil
	}
	body := maps.Clone(list[0].(map[string]any))
	delete(body, "entries_at")
	for name, at := range map[string]time.Duration{"starts_at": -time.Minute, "ends_at": time.Hour} {
		if _, ok := body[name]; ok {
			body[name] = time.Now().Add(at).UTC().Format(time.RFC3339)
		}
	}
	return body
}

// Whatever text stands in any place for one, both databases lead to the same answer, and it is not the server's fault.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	var d document
	check.NoError(t, yaml.Unmarshal(check.Must(os.ReadFile("../web/openapi.yaml")), &d))
	spots := d.spots()
	kinds := map[string]bool{}
	for _, spot := range spots {
		kinds[spot.kind] = true
	}
	if len(spots) < 60 {
		t.Errorf("%d places for texts", len(spots))
	}
	var answers [2][][]string
	var askers sync.WaitGroup
	for i, database := range []string{kit.SQLite(t), kit.SharedMariaDB(t).NewDatabase(t)} {
		s := start(t, func(c *config.Settings) { c.Database = database })
		answers[i] = make([][]string, len(spots))
		later := time.Now().Add(time.Hour)
		line := s.createSale(fields{"mode": "line", "starts_at": later, "ends_at": later.Add(time.Hour)})
		ids := strings.NewReplacer("{sale}", line.ID, "{campaign}", s.createCampaign(2, nil).ID)
		// One place after the other on each kind of thing, since an answer depends on what is there.
		for kind := range kinds {
			askers.Go(func() {
				for n, spot := range spots {
					if spot.kind == kind {
						answers[i][n] = s.told(spot, ids)
					}
				}
			})
		}
	}
	askers.Wait()
	for n, spot := range spots {
		for k, text := range oddTexts {
			sqlite, mariadb := answers[0][n][k], answers[1][n][k]
			if sqlite != mariadb || strings.HasPrefix(sqlite, "5") {
				t.Errorf("%s with %.40q: %s on SQLite, %s on MariaDB", spot.name, text, sqlite, mariadb)
			}
		}
	}
}

// told returns the answers to the odd texts in a place: status, code and field, or what went wrong. ids puts a sale and a campaign
// into its path.
func (s *server) told(place spot, ids *strings.Replacer) (list []string) {
	who := s.anyone()
	switch {
	case strings.Contains(place.security, "buyer"):
		who = s.buyer("ann")
	case strings.Contains(place.security, "bearer"):
		who = s.operator()
	}
	who.from = http.DefaultClient // the document does not describe requests like these
	for _, text := range oddTexts {
		path, body := place.fill(text)
		path = ids.Replace(path)
		if filled, ok := body.(map[string]any); ok && filled == nil {
			body = nil
		}
		answer, err := who.try(s.t.Context(), place.method, path, body)
		// Operators have a limit of their own, and a busy machine may need longer than a request has. A text that a store does not
		// take is 503 each time.
		for tries := 0; err == nil && tries < 50 && (answer.status == http.StatusTooManyRequests || answer.status == http.StatusServiceUnavailable); tries++ {
			<-time.After(100 * time.Millisecond)
			answer, err = who.try(s.t.Context(), place.method, path, body)
		}
		if err != nil {
			list = append(list, fmt.Sprint("599 ", err))
			continue
		}
		var doc struct{ Code, Field string }
		_ = json.Unmarshal(answer.body, &doc) // a page has neither
		list = append(list, fmt.Sprint(answer.status, " ", doc.Code, " ", doc.Field))
	}
	return list
}
