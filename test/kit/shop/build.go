package shop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// built holds the programs that this process has built, or is building, by the flags of the build.
var built = struct {
	sync.Mutex
	folder string
	paths  map[string]func() (string, error)
}{paths: map[string]func() (string, error){}}

// Main is called by the TestMain of a package that builds the engine. At the end it removes the built programs and
// calls the functions in after.
func Main(m *testing.M, after ...func()) {
	kit.Main(m, append(after, func() { _ = os.RemoveAll(built.folder) })...)
}

// Build builds the engine, once for all tests with the same flags of `go build`, and returns the program's path.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	build, err := builder(flags)
	check.NoError(t, err)
	path, err := build()
	check.NoError(t, err)
	return path
}

// builder returns the one build with these flags. Builds with other flags do not wait for it.
func builder(flags []string) (func() (string, error), error) {
	built.Lock()
	defer built.Unlock()
	key := strings.Join(flags, " ")
	if build, ok := built.paths[key]; ok {
		return build, nil
	}
	if built.folder == "" {
		folder, err := os.MkdirTemp("", "flashsale-built-") // it outlives the first test
		if err != nil {
			return nil, err
		}
		built.folder = folder
	}
	path := filepath.Join(built.folder, fmt.Sprintf("flashsale-%d", len(built.paths)))
	built.paths[key] = sync.OnceValues(func() (string, error) {
		// Without symbols, which no test reads, linking takes half as long.
		args := append([]string{"build", "-ldflags=-s -w", "-o", path}, flags...)
		cmd := exec.CommandContext(context.Background(), "go", append(args, ".")...)
		cmd.Dir = Root() // the test may be in another module
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", cmd, err, out)
		}
		return path, nil
	})
	return built.paths[key], nil
}

// Root returns the folder of the engine's source: the nearest folder, upwards from the test's own, with a
// docker-compose.yml.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "docker-compose.yml")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("no folder above this one has a docker-compose.yml")
		}
		dir = filepath.Dir(dir)
	}
}
