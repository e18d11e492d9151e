// Suite runs all tests of the project, in parts, three parts at a time. It shows each package and each row of the drill as it
// ends, and at the end how many tests passed and failed. A test for which the machine was too slow in each try runs again at the
// end, alone. `make test` and `make race` call it:
//
//	go run ./test/suite [-race] [-artifacts DIR] [PART...]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// atOnce is how many parts run at a time: most tests wait most of the time, so three parts keep two processors busy.
const atOnce = 3

// part is a group of packages that one `go test` runs.
type part struct {
	name   string
	folder string // of its module
	tests  string // what it tests
	args   []string
	choose func(pkg string) bool // takes packages of the module; nil: all
	raced  bool                  // `make race` runs it
	alone  bool                  // nothing else runs
}

// parts lists all parts, the longest first, so that the processors have work to the end. The linter vets all packages, so
// `go test` does not. Linking without symbols, which no test reads, takes half as long.
var parts = []part{
	{name: "drill", folder: "test/fault", tests: "faults and attacks under load, and the simulation", args: []string{"-parallel=4"}},
	{name: "engine", folder: ".", tests: "packages of the engine", args: []string{"-p=3", "-parallel=4"}, choose: not(programs), raced: true},
	{name: "browser", folder: "test/browser", tests: "pages in Chromium", args: []string{"-parallel=3"}},
	{name: "program", folder: ".", tests: "the running program, behind nginx and under load", args: []string{"-parallel=4"}, choose: programs},
	{name: "deploy", folder: "test/deploy", tests: "files for Compose, Kubernetes, systemd and the image"},
	{name: "example", folder: "examples/shop", tests: "the example shop"},
}

// longest are packages that run first, since they take longest.
var longest = []string{"flashsale/app", "flashsale/worker/queue", "flashsale/strategy", "flashsale/repository", "flashsale/gate"}

// inOrder puts the longest packages first.
func inOrder(packages []string) []string {
	place := func(pkg string) int {
		if i := slices.Index(longest, pkg); i >= 0 {
			return i
		}
		return len(longest)
	}
	slices.SortStableFunc(packages, func(a, b string) int { return place(a) - place(b) })
	return packages
}

// programs only start the program: the race detector would see no more than the tests themselves.
func programs(pkg string) bool {
	return slices.Contains([]string{"flashsale/test/e2e", "flashsale/test/load"}, pkg)
}

// sequential packages share no memory between goroutines, or test the program that package app tests as well. The race
// detector finds nothing in them.
func sequential(pkg string) bool {
	return slices.Contains([]string{
		"flashsale", "flashsale/internal/address", "flashsale/internal/beacon", "flashsale/internal/config", "flashsale/internal/handoff",
		"flashsale/internal/ranks", "flashsale/model", "flashsale/web",
	}, pkg) || strings.HasPrefix(pkg, "flashsale/test/")
}

func not(groups ...func(string) bool) func(string) bool {
	return func(pkg string) bool {
		return !slices.ContainsFunc(groups, func(in func(string) bool) bool { return in(pkg) })
	}
}

func main() {
	race := flag.Bool("race", false, "run the parts whose goroutines share memory, with the race detector")
	flag.Parse()
	for _, name := range flag.Args() {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			fmt.Fprintf(os.Stderr, "there is no part %q; PARTS may name", name)
			for _, p := range parts {
				fmt.Fprint(os.Stderr, " ", p.name)
			}
			fmt.Fprintln(os.Stderr)
			os.Exit(1)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok := run(ctx, os.Stdout, chosen(*race, flag.Args()), *race)
	stop()
	if !ok {
		os.Exit(1)
	}
}

// chosen returns the parts with these names, or all.
func chosen(race bool, names []string) (list []part) {
	for _, p := range parts {
		if choose := p.choose; race && choose != nil {
			p.choose = func(pkg string) bool { return choose(pkg) && !sequential(pkg) }
		}
		if (len(names) == 0 || slices.Contains(names, p.name)) && (p.raced || !race) {
			list = append(list, p)
		}
	}
	return list
}

// run runs the parts and reports whether all their tests passed.
func run(ctx context.Context, out io.Writer, list []part, race bool) bool {
	r := newReport(out, race)
	for _, p := range list {
		r.printf("%-8s %s\n", p.name, p.tests)
	}
	waiting := make(chan part, len(list))
	for _, p := range list {
		waiting <- p
	}
	close(waiting)
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for p := range waiting {
				if err := test(ctx, p, race, r); err != nil {
					r.broke(p, err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
		for _, p := range r.late {
			if err := test(ctx, p, race, r); err != nil {
				r.broke(p, err)
			}
		}
	}()
	for {
		select {
		case <-time.After(quiet):
			r.still()
		case <-ended:
			return r.end()
		}
	}
}

// unraced are libraries that compute much and share nothing between goroutines (SQLite and its C library, translated to
// Go, have their own locks): the race detector would only make them slower.
var unraced = strings.Fields(`modernc.org/sqlite/lib modernc.org/libc modernc.org/memory github.com/yuin/gopher-lua
	compress/flate golang.org/x/crypto/argon2 golang.org/x/crypto/blake2b github.com/bits-and-blooms/bitset`)

// goTest returns the arguments of `go` that run a part. checkptr checks unsafe pointers, which only the drivers of the
// databases have, and took a fifth of the time under the race detector. Without the paths of this folder, what is compiled
// for the race detector serves every other clone as well; what is compiled without it serves `go run .`, which has the paths.
func goTest(p part, race bool) []string {
	args := []string{"test", "-json", "-vet=off", "-count=1", "-timeout=30m", "-ldflags=-s -w"}
	if race {
		args = append(args, "-race", "-trimpath", "-gcflags=all=-d=checkptr=0")
		for _, pkg := range unraced {
			args = append(args, "-gcflags="+pkg+"=-race=false -d=checkptr=0")
		}
	}
	return append(args, p.args...)
}

// environment returns the variables of a part's tests. Tests make much garbage, which GOGC collects seldom. By default the
// race detector waits for a second at the end of each package.
func environment() []string {
	return append(os.Environ(), "GOGC=400", "GORACE=atexit_sleep_ms=100")
}

// again returns the command that repeats one test.
func again(p part, race bool, pkg, test string) string {
	command := "go test -count=1"
	if race {
		command += " -race"
	}
	if test != "" {
		command += fmt.Sprintf(" -run '%s'", only(test))
	}
	command += " " + pkg
	if p.folder != "." {
		command = "cd " + p.folder + " && " + command
	}
	return command
}

// only returns the pattern of -run that chooses one test.
func only(test string) string {
	var levels []string
	for level := range strings.SplitSeq(test, "/") {
		levels = append(levels, "^"+escape(level)+"$")
	}
	return strings.Join(levels, "/")
}
