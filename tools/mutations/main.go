// Command mutations changes the engine in one place at a time, by list.txt, and runs the tests. A mutation that no test
// finds shows what the tests do not check.
//
//	go run -C tools ./mutations [-only REGEXP] ROOT
package main

import (
	"bufio"
	"context"
	_ "embed" // the list
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed list.txt
var list string

// suites are the packages whose tests run for a mutation of a folder, in this order, until one fails.
var suites = map[string][]string{
	"gate":       {"gate", "worker", "strategy", "service", "app"},
	"handler":    {"handler", "app"},
	"internal":   {"internal/...", "service", "app"},
	"strategy":   {"strategy", "app"},
	"repository": {"repository", "strategy", "worker", "app"},
	"service":    {"service/...", "handler", "strategy", "worker", "app"},
	"worker":     {"worker", "worker/queue", "app"},
}

// notCompiled stands in the place of a test for a mutation that is no program.
const notCompiled = "NOT COMPILED"

type mutation struct{ file, before, after string }

func main() {
	only := flag.String("only", "", "run only mutations whose file or text matches")
	flag.Parse()
	root, err := filepath.Abs(flag.Arg(0))
	if err != nil {
		fatal(err)
	}
	found, survived := 0, 0
	for i, m := range parse(list) {
		if !regexp.MustCompile(*only).MatchString(m.file + " " + m.before) {
			continue
		}
		overlay, err := m.overlay(root)
		if err != nil {
			fatal(fmt.Errorf("mutation %d: %w", i+1, err))
		}
		began := time.Now()
		by := m.foundBy(root, overlay)
		switch by {
		case "":
			survived++
			by = "SURVIVED"
		case notCompiled:
			survived++ // it says nothing about the tests
		default:
			found++
		}
		fmt.Printf("%3d %-20s %4.0fs %-50s %.80s\n", i+1, m.file, time.Since(began).Seconds(), by, strings.TrimSpace(m.before))
		_ = os.RemoveAll(filepath.Dir(overlay))
	}
	fmt.Printf("found: %d, survived: %d\n", found, survived)
}

// parse reads the list. Lines of one mutation follow each other; an empty line ends it.
func parse(text string) (all []mutation) {
	var m mutation
	lines := bufio.NewScanner(strings.NewReader(text + "\n\n"))
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "- "):
			m.before += "\n" + line[2:]
		case strings.HasPrefix(line, "+"): // alone: the text goes
			m.after += "\n" + strings.TrimPrefix(line[1:], " ")
		case line != "":
			m.file = line
		case m.file != "":
			all = append(all, mutation{m.file, strings.TrimPrefix(m.before, "\n"), strings.TrimPrefix(m.after, "\n")})
			m = mutation{}
		}
	}
	return all
}

// overlay writes the changed file and the overlay for go test, and returns the path of the overlay.
func (m mutation) overlay(root string) (string, error) {
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.before); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, not once", m.file, m.before, n)
	}
	folder, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(folder, filepath.Base(m.file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.before, m.after, 1)), 0o600); err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

// failed matches the line of a test that has failed. Its group is the name of the test.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// foundBy returns the first package whose tests fail, and the first test that it lists as failed; empty if all tests
// pass. Tests that ran beside that one may be listed too, because -failfast ended them.
func (m mutation) foundBy(root, overlay string) string {
	for _, suite := range suites[strings.Split(m.file, "/")[0]] {
		cmd := exec.CommandContext(context.Background(), "go", "test", "-overlay", overlay, "-count=1", "-failfast", "-vet=off",
			"-parallel=4", "-ldflags=-s -w", "-timeout=10m", "./"+suite)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		if strings.Contains(string(out), "[build failed]") {
			return notCompiled
		}
		test := "no test ended"
		if lines := failed.FindAllStringSubmatch(string(out), -1); lines != nil {
			test = lines[0][1]
		}
		return suite + " " + test
	}
	return ""
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
