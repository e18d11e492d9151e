package handler

import (
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

// server.conf of nginx names each public route in exactly one location, any other route in at most one, and nothing that is no
// route. Whoever adds a public route decides there what nginx does with it.
func TestNginxNamesEveryPublicRoute(t *testing.T) {
	var routes []string
	public := map[string]bool{}
	fill := strings.NewReplacer(":path", strings.Repeat("0a", 16), ":", "")
	for role, list := range access {
		for _, route := range list {
			_, path, _ := strings.Cut(fill.Replace(route), " ")
			routes, public[path] = append(routes, path), public[path] || role == everybody
		}
	}
	matching := func(pattern string) (paths []string) {
		re := regexp.MustCompile(pattern)
		return slices.DeleteFunc(slices.Clone(routes), func(path string) bool { return !re.MatchString(path) })
	}
	named := map[string]int{}
	for path := range public {
		named[path] = 0
	}
	conf := string(check.Must(os.ReadFile("../deploy/nginx/server.conf")))
	for _, location := range regexp.MustCompile(`(?m)^location (= |~ |)"?(/\S*|\^\S+?)"? \{`).FindAllStringSubmatch(conf, -1) {
		kind, pattern := location[1], location[2]
		switch {
		case pattern == "/" || pattern == "/api/": // takes whatever no other location names
			continue
		case kind == "":
			pattern = "^" + regexp.QuoteMeta(pattern)
		case kind == "= ":
			pattern = "^" + regexp.QuoteMeta(pattern) + "$"
		}
		paths := matching(pattern)
		for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
			named[path]++
		}
		if len(paths) == 0 {
			t.Errorf("%s is no route", pattern)
		}
		for name, without := range alternatives(pattern) {
			if len(matching(without)) == len(paths) {
				t.Errorf("%s in %s is no route", name, pattern)
			}
		}
	}
	for path, times := range named {
		if times > 1 || times == 0 && public[path] {
			t.Errorf("%d locations name %s", times, path)
		}
	}
}

// alternatives returns the alternatives in a pattern, each with the pattern that lacks it.
func alternatives(pattern string) map[string]string {
	all, whole := map[string]string{}, check.Must(syntax.Parse(pattern, syntax.Perl))
	var visit func(*syntax.Regexp)
	visit = func(part *syntax.Regexp) {
		for i, sub := range part.Sub {
			visit(sub)
			if part.Op == syntax.OpAlternate {
				kept := part.Sub
				part.Sub = slices.Delete(slices.Clone(kept), i, i+1)
				all[sub.String()] = whole.String()
				part.Sub = kept
			}
		}
	}
	visit(whole)
	return all
}
