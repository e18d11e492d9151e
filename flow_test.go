package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// called are the names under which a function on the way calls the next one, where they differ from the next one's own
// name: through a field of type func.
var called = map[string]string{
	"batch.Batcher.run":  "do",
	"worker.pending.add": "poke", // Settler.write waits for it
}

// TestFlow compares the functions that docs/flow.svg names with the code: each exists and calls the next one.
func TestFlow(t *testing.T) {
	lists := regexp.MustCompile(`(?s)<g class="calls">(.*?)</g>`).FindAllString(read(t, "docs/flow.svg"), -1)
	if len(lists) != 2 {
		t.Fatalf("%d lists of functions, not 2", len(lists))
	}
	folders := map[string]string{"batch": "internal/batch"}
	for i, most := range []int{8, 12} {
		names := regexp.MustCompile(`>([\w.]+)</text>`).FindAllStringSubmatch(lists[i], -1)
		if len(names) == 0 || len(names) > most {
			t.Errorf("list %d has %d functions, not 1 to %d", i+1, len(names), most)
		}
		for at, name := range names {
			part := strings.Split(name[1], ".")
			folder := part[0]
			if folders[folder] != "" {
				folder = folders[folder]
			}
			body := method(t, folder, part[1], part[2])
			if body == nil {
				t.Errorf("there is no %s", name[1])
				continue
			}
			if at+1 == len(names) {
				continue
			}
			next := names[at+1][1]
			want := next[strings.LastIndex(next, ".")+1:]
			if !mentions(body, want) && !mentions(body, called[name[1]]) {
				t.Errorf("%s does not call %s", name[1], next)
			}
		}
	}
}

// method returns the body of a method, or nil if the folder has no such method.
func method(t *testing.T, folder, receiver, name string) ast.Node {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name && f.Recv != nil && mentions(f.Recv, receiver) {
				return f.Body
			}
		}
	}
	return nil
}

// mentions reports whether an identifier occurs in a part of the code.
func mentions(part ast.Node, name string) (found bool) {
	ast.Inspect(part, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}
