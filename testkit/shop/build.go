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

	"flashsale/testkit"
)

// built are the programs that this process has built, or is building, by the flags of the build.
var built = struct {
	sync.Mutex
	folder string
	paths  map[string]func() (string, error)
}{paths: map[string]func() (string, error){}}

// Main is for the TestMain of a package that builds the engine.
func Main(m *testing.M) {
	testkit.Main(m, func() { _ = os.RemoveAll(built.folder) })
}

// Build builds the engine, once for all tests that want it with these flags of `go build`, and gives its path.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	build, err := builder(flags)
	if err != nil {
		t.Fatal(err)
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// builder gives the one build with these flags. Builds with others do not wait for it.
func builder(flags []string) (func() (string, error), error) {
	built.Lock()
	defer built.Unlock()
	key := strings.Join(flags, " ")
	if build, ok := built.paths[key]; ok {
		return build, nil
	}
	if built.folder == "" {
		folder, err := os.MkdirTemp("", "flashsale-built-") // it outlives the test that is first
		if err != nil {
			return nil, err
		}
		built.folder = folder
	}
	path := filepath.Join(built.folder, fmt.Sprintf("flashsale-%d", len(built.paths)))
	built.paths[key] = sync.OnceValues(func() (string, error) {
		// Without the symbols, which no test reads, linking takes half as long.
		args := append([]string{"build", "-ldflags=-s -w", "-o", path}, flags...)
		cmd := exec.CommandContext(context.Background(), "go", append(args, ".")...)
		cmd.Dir = Root()                                // which need not be the module of the test
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is shipped
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", cmd, err, out)
		}
		return path, nil
	})
	return built.paths[key], nil
}

// Root is the folder of the engine's source: the one above a test's own that has the file for Compose.
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
