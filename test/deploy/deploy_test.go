// Package deploy holds the files with which the engine is deployed against what they promise, as far as that goes
// without Docker, without a cluster and without a machine's systemd. It is a module of its own, so that the engine
// doesn't depend on the libraries of Compose and Kubernetes.
package deploy

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// root is the repository's folder.
const root = "../.."

// exitUsage is how the engine ends when its settings are wrong.
const exitUsage = 2

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(engine.folder)
	os.Exit(code)
}

// engine is the program as the image has it, built once.
var engine struct {
	once   sync.Once
	folder string
	err    error
}

// flashsale gives the engine's path. It is built from what .dockerignore leaves of the repository, by the Dockerfile's
// own command.
func flashsale(t *testing.T) string {
	t.Helper()
	engine.once.Do(func() { engine.folder, engine.err = buildImage() })
	if engine.err != nil {
		t.Fatal(engine.err)
	}
	return filepath.Join(engine.folder, "image", "flashsale")
}

// knownSettings are the names of the environment that the engine says it reads.
func knownSettings(t *testing.T) []string {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), flashsale(t), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, match := range regexp.MustCompile(`\$(FLASHSALE_[A-Z_]+)\)`).FindAllSubmatch(help, -1) {
		names = append(names, string(match[1]))
	}
	if len(names) < 20 {
		t.Fatalf("the help names only %q", names)
	}
	return names
}

// takesSettings checks that the engine reads each of these, and starts with all of them together: it fails only because
// there are no such stores here. Among them is a secret of payments' own, or who signs callbacks could sign operators'
// tokens.
func takesSettings(t *testing.T, env map[string]string) {
	t.Helper()
	secrets := map[string]string{"secret": env["FLASHSALE_SECRET"], "payment-secret": env["FLASHSALE_PAYMENT_SECRET"]}
	if path := env["FLASHSALE_CONFIG"]; path != "" {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(file)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				secrets[name] = value
			}
		}
	}
	if secrets["payment-secret"] == "" || secrets["payment-secret"] == secrets["secret"] {
		t.Error("payments have no secret of their own")
	}
	known := knownSettings(t)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, name+"="+env[name])
		if strings.HasPrefix(name, "FLASHSALE_") && !slices.Contains(known, name) {
			t.Errorf("the engine reads no %s", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // they are judged at once; then it looks for its stores
	defer cancel()
	cmd := exec.CommandContext(ctx, flashsale(t), "serve")
	cmd.Dir, cmd.Env = t.TempDir(), pairs
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Error("it found the stores, of which there are none")
	case !errors.As(err, &exit):
		t.Error(err)
	case exit.ExitCode() == exitUsage:
		t.Errorf("wrong settings: %s", out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// pinned reports whether an image's tag can't come to mean another major or minor version. Ours is built here.
func pinned(image string) bool {
	return image == "flashsale:dev" || regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*$`).MatchString(image)
}
