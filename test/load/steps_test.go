package load

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is one request of a kit.
type step struct {
	name, method, url, body string
	headers                 []string
}

// The kits send the same requests. No test runs the plan for JMeter, so it is compared with the collection, which
// `make kits` runs. Of k6's requests the names are compared.
func TestKitsTakeTheSameSteps(t *testing.T) {
	t.Parallel()
	postman, jmeter := postmanSteps(t), jmeterSteps(jmeterPlan(t))
	if len(postman) == 0 || !reflect.DeepEqual(postman, jmeter) {
		t.Errorf("the collection has\n%+v\nthe plan has\n%+v", postman, jmeter)
	}
	var names []string
	for _, s := range postman {
		names = append(names, s.name)
	}
	if tagged := matches(`(?:as\(|name: )'(\w+)'`, read(t, "k6/rush.js")); !slices.Equal(names, tagged) {
		t.Errorf("the collection has %q, k6 has %q", names, tagged)
	}
}

// matches returns the first group of each match of a pattern.
func matches(pattern, text string) (list []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, match[1])
	}
	return list
}

func postmanSteps(t *testing.T) (steps []step) {
	t.Helper()
	type pair struct{ Key, Value string }
	var collection struct {
		Item []struct {
			Name    string
			Request struct {
				Method string
				Header []pair
				URL    struct {
					Raw        string
					Host, Path []string
				}
				Body struct {
					Raw        string
					URLEncoded []pair
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, "postman/flashsale.postman_collection.json")), &collection); err != nil {
		t.Fatal(err)
	}
	for _, item := range collection.Item {
		r := item.Request
		if parts := strings.Join(slices.Concat(r.URL.Host, r.URL.Path), "/"); parts != r.URL.Raw {
			t.Errorf("%s: the address is %s and %s", item.Name, parts, r.URL.Raw)
		}
		s := step{name: item.Name, method: r.Method, url: plain(r.URL.Raw), body: r.Body.Raw}
		for _, h := range r.Header {
			s.headers = append(s.headers, h.Key+": "+plain(h.Value))
		}
		for _, field := range r.Body.URLEncoded {
			s.body += field.Key + "=" + field.Value
		}
		steps = append(steps, s)
	}
	return steps
}

// element is an element of an XML document.
type element struct {
	XMLName  xml.Name
	Name     string    `xml:"name,attr"`
	Type     string    `xml:"elementType,attr"`
	TestName string    `xml:"testname,attr"`
	Text     string    `xml:",chardata"`
	Elements []element `xml:",any"`
}

// find returns the elements of this kind and type in the order in which they begin, at any depth.
func (e element) find(kind, elementType string) (found []element) {
	for _, child := range e.Elements {
		if child.XMLName.Local == kind && child.Type == elementType {
			found = append(found, child)
		}
		found = append(found, child.find(kind, elementType)...)
	}
	return found
}

// property returns the text of a property at any depth, or "".
func (e element) property(name string) string {
	for _, p := range e.find("stringProp", "") {
		if p.Name == name {
			return p.Text
		}
	}
	return ""
}

// jmeterSteps returns the steps of a tree, in which each element is followed by the tree of its own elements.
func jmeterSteps(tree element) (steps []step) {
	for pair := range slices.Chunk(tree.Elements, 2) {
		sampler, below := pair[0], pair[1]
		if sampler.XMLName.Local != "HTTPSamplerProxy" {
			steps = append(steps, jmeterSteps(below)...)
			continue
		}
		s := step{
			name: sampler.TestName, method: sampler.property("HTTPSampler.method"),
			url: plain(sampler.property("HTTPSampler.path")),
		}
		for _, argument := range sampler.find("elementProp", "HTTPArgument") {
			s.body += strings.TrimPrefix(argument.Name+"="+argument.property("Argument.value"), "=") // a raw body has no name
		}
		for _, header := range below.find("elementProp", "Header") {
			s.headers = append(s.headers, header.property("Header.name")+": "+plain(header.property("Header.value")))
		}
		steps = append(steps, s)
	}
	return steps
}

// JMeter sends a variable that nothing sets as its name.
func TestJMeterPlanSetsItsVariables(t *testing.T) {
	t.Parallel()
	plan := jmeterPlan(t)
	known := []string{"user_id", "token"} // the columns of `flashsale tokens`
	for _, argument := range plan.find("elementProp", "Argument") {
		known = append(known, argument.Name)
	}
	for _, extractor := range plan.find("RegexExtractor", "") {
		known = append(known, extractor.property("RegexExtractor.refname"))
	}
	used := matches(`\$\{(\w+)\}`, read(t, "jmeter/flashsale.jmx"))
	if len(used) == 0 {
		t.Error("the plan uses no variable")
	}
	for _, variable := range used {
		if !slices.Contains(known, variable) {
			t.Errorf("nothing sets ${%s}", variable)
		}
	}
}

// jmeterPlan returns the outermost tree of the plan. It checks that a tree follows each element of each tree, because
// JMeter looks there for the element's own elements.
func jmeterPlan(t *testing.T) element {
	t.Helper()
	var plan element
	if err := xml.Unmarshal([]byte(read(t, "jmeter/flashsale.jmx")), &plan); err != nil || len(plan.Elements) != 1 {
		t.Fatalf("the plan has %d trees, want 1: %v", len(plan.Elements), err)
	}
	for _, tree := range plan.find("hashTree", "") {
		for i, e := range tree.Elements {
			if isTree := e.XMLName.Local == "hashTree"; isTree != (i%2 == 1) || len(tree.Elements)%2 != 0 {
				t.Fatalf("%s %q has no tree behind it, or too many", e.XMLName.Local, e.TestName)
			}
		}
	}
	return plan.Elements[0]
}

// plain writes a variable, and a new key, in one way for all kits.
func plain(text string) string {
	text = strings.NewReplacer("{{$guid}}", "NEW", "${__UUID()}", "NEW").Replace(text)
	return regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllString(text, "$${$1}")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
