package shop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"flashsale/testkit"
)

// built are the programs that this process has built, by the flags of the build.
var built = struct {
	sync.Mutex
	folder string
	paths  map[string]string
}{paths: map[string]string{}}

// Main is for the TestMain of a package that builds the engine.
func Main(m *testing.M) {
	testkit.Main(m, func() { _ = os.RemoveAll(built.folder) })
}

// Build builds the engine, once for all tests that want it with these flags of `go build`, and gives its path.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	key := strings.Join(flags, " ")
	if path, ok := built.paths[key]; ok {
		return path
	}
	if built.folder == "" {
		folder, err := os.MkdirTemp("", "flashsale-built-") //nolint:usetesting // it outlives the test that is first
		if err != nil {
			t.Fatal(err)
		}
		built.folder = folder
	}
	path := filepath.Join(built.folder, fmt.Sprintf("flashsale-%d", len(built.paths)))
	cmd := exec.CommandContext(context.Background(), "go", append(append([]string{"build"}, flags...), "-o", path, ".")...)
	cmd.Dir = Root() // which need not be the module of the test
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	built.paths[key] = path
	return path
}

// Root is the folder of the engine's source.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
