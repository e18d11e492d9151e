//go:build image

package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBuild builds the image's program as Docker does, in the build context and with the Dockerfile's flags. No other test
// uses these flags, so everything is compiled for this one: `make image` runs it.
func TestBuild(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	build := regexp.MustCompile(`(?m)go build (.*) -ldflags "(.*)" -o /image/flashsale \.$`).FindStringSubmatch(dockerfile)
	if build == nil || !strings.Contains(dockerfile, "CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \\\n") {
		t.Fatal("the test does not know the Dockerfile's way to build")
	}
	source, program := t.TempDir(), filepath.Join(t.TempDir(), "flashsale")
	if err := copyContext(source); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"build"}, strings.Fields(build[1])...)
	args = append(args, "-ldflags", strings.ReplaceAll(build[2], "$VERSION", "of-the-test"), "-o", program, ".")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}

	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the program is linked dynamically")
		}
	}
	info, err := os.Stat(program)
	if err != nil || info.Size()>>20 > 60 {
		t.Errorf("the program: %+v, %v", info, err)
	}
	version, err := exec.CommandContext(t.Context(), program, "version").Output()
	if err != nil || string(version) != "flashsale of-the-test\n" {
		t.Errorf("version: %q, %v", version, err)
	}
}
