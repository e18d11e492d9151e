package load

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
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

// The kits send the same requests. That holds the plan for JMeter, which no test runs, to the collection, which
// `make kits` runs; of k6's requests the names are compared.
func TestKitsTakeTheSameSteps(t *testing.T) {
	t.Parallel()
	postman, jmeter := postmanSteps(t), jmeterSteps(jmeterPlan(t))
	if len(postman) == 0 || !reflect.DeepEqual(postman, jmeter) {
		t.Errorf("the collection has\n%s\nthe plan has\n%s", listed(postman), listed(jmeter))
	}
	var names, tagged []string
	for _, s := range postman {
		names = append(names, s.name)
	}
	for _, match := range regexp.MustCompile(`(?:as\(|name: )'(\w+)'`).FindAllStringSubmatch(read(t, "k6/rush.js"), -1) {
		tagged = append(tagged, match[1])
	}
	if !slices.Equal(names, tagged) {
		t.Errorf("the collection has %q, k6 has %q", names, tagged)
	}
}

func postmanSteps(t *testing.T) (steps []step) {
	t.Helper()
	var collection struct {
		Item []struct {
			Name    string
			Request struct {
				Method string
				Header []struct{ Key, Value string }
				URL    struct {
					Raw        string
					Host, Path []string
				}
				Body struct {
					Raw        string
					URLEncoded []struct{ Key, Value string }
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

// element is one of an XML document.
type element struct {
	XMLName  xml.Name
	Name     string    `xml:"name,attr"`
	Type     string    `xml:"elementType,attr"`
	TestName string    `xml:"testname,attr"`
	Text     string    `xml:",chardata"`
	Elements []element `xml:",any"`
}

// find gives the elements of this kind and type in the order in which they begin, at any depth.
func (e element) find(kind, elementType string) (found []element) {
	for _, child := range e.Elements {
		if child.XMLName.Local == kind && child.Type == elementType {
			found = append(found, child)
		}
		found = append(found, child.find(kind, elementType)...)
	}
	return found
}

// property is the text of a property at any depth; empty: there is none.
func (e element) property(name string) string {
	for _, p := range e.find("stringProp", "") {
		if p.Name == name {
			return p.Text
		}
	}
	return ""
}

// jmeterSteps are those of a tree, in which each element is followed by the tree of what belongs to it.
func jmeterSteps(tree element) (steps []step) {
	for pair := range slices.Chunk(tree.Elements, 2) {
		sampler, below := pair[0], pair[1]
		if sampler.XMLName.Local != "HTTPSamplerProxy" {
			steps = append(steps, jmeterSteps(below)...)
			continue
		}
		s := step{name: sampler.TestName, method: sampler.property("HTTPSampler.method"), url: plain(sampler.property("HTTPSampler.path"))}
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

// JMeter looks for what belongs to an element in the tree behind it, and takes a variable that nothing sets as it stands.
func TestJMeterPlanIsWhole(t *testing.T) {
	t.Parallel()
	plan := jmeterPlan(t)
	known := []string{"user_id", "token"} // the columns of `flashsale tokens`
	for _, argument := range plan.find("elementProp", "Argument") {
		known = append(known, argument.Name)
	}
	for _, extractor := range plan.find("RegexExtractor", "") {
		known = append(known, extractor.property("RegexExtractor.refname"))
	}
	used := regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(read(t, "jmeter/flashsale.jmx"), -1)
	if len(used) == 0 {
		t.Error("the plan uses no variable")
	}
	for _, variable := range used {
		if !slices.Contains(known, variable[1]) {
			t.Errorf("nothing sets ${%s}", variable[1])
		}
	}
}

// jmeterPlan is the outermost tree of the plan. Each of its trees is in order, or the test ends.
func jmeterPlan(t *testing.T) element {
	t.Helper()
	var plan element
	if err := xml.Unmarshal([]byte(read(t, "jmeter/flashsale.jmx")), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Elements) != 1 {
		t.Fatalf("the plan has %d trees", len(plan.Elements))
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

func listed(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%+v\n", s)
	}
	return b.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
