// Package deploy compares the files with which the engine is deployed with what they promise, as far as that goes
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
	"testing"
	"time"

	"flashsale/test/kit/shop"
)

// root is the repository's folder.
const root = "../.."

// exitUsage is the exit code of the engine if its settings are wrong.
const exitUsage = 2

func TestMain(m *testing.M) { shop.Main(m) }

// knownSettings returns the environment variables that the engine's help names.
func knownSettings(t *testing.T) []string {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), shop.Build(t), "--help").Output()
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

// takesSettings checks that the engine knows each of these settings, and accepts all of them together: it fails only
// because the stores do not exist here. Payments must have a secret of their own, or the signer of callbacks could sign
// operators' tokens.
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
			t.Errorf("the engine has no setting %s", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // settings are checked at once, before the stores
	defer cancel()
	cmd := exec.CommandContext(ctx, shop.Build(t), "serve")
	cmd.Dir, cmd.Env = t.TempDir(), pairs
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Error("the engine has found stores that do not exist")
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

// pinned reports whether the tag of an image fixes its major and minor version. The engine's own image is built here.
func pinned(image string) bool {
	return image == "flashsale:dev" || regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*$`).MatchString(image)
}

// hold fails the test for each condition that does not hold.
func hold(t *testing.T, of string, conditions map[string]bool) {
	t.Helper()
	for condition, holds := range conditions {
		if !holds {
			t.Errorf("%s: not: %s", of, condition)
		}
	}
}

// is reports whether an optional value is set to a wanted value.
func is[T comparable](value *T, want T) bool { return value != nil && *value == want }
