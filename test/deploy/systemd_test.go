package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"flashsale/test/kit/shop"
)

// mostExposed is the highest permitted mark of `systemd-analyze security`, in tenths. 100 is a service without any
// protection.
const mostExposed = "15"

// systemd-analyze finds no mistake in the unit, and no lack of protection. The unit is not started, which needs a
// machine that runs systemd.
func TestUnitIsSoundAndShut(t *testing.T) {
	unit := read(t, "deploy/systemd/flashsale.service")
	const installed = "ExecStart=/usr/local/bin/flashsale serve\n"
	if strings.Count(unit, installed) != 1 {
		t.Fatalf("the unit has no %s", installed)
	}
	path := filepath.Join(t.TempDir(), "flashsale.service")
	unit = strings.Replace(unit, installed, "ExecStart="+shop.Build(t)+" serve\n", 1)
	if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", path}, // prints mistakes only
		{"security", "--offline=yes", "--no-pager", "--threshold=" + mostExposed, path},
	} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
	}
}

// The engine takes the settings of the example files in the document.
func TestExampleSettingsOfTheUnitAreTaken(t *testing.T) {
	document := read(t, "docs/deploy.md")
	example := func(name string) string {
		t.Helper()
		text := regexp.MustCompile("(?s)`/etc/flashsale/" + regexp.QuoteMeta(name) + "`[^`]*```[a-z]*\n(.*?)```")
		match := text.FindStringSubmatch(document)
		if match == nil {
			t.Fatalf("docs/deploy.md has no example of %s", name)
		}
		return match[1]
	}
	secrets := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(secrets, []byte(example("secrets.yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"FLASHSALE_CONFIG": secrets}
	for line := range strings.Lines(example("settings.env")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			t.Errorf("%q", line)
		}
		env[name] = value
	}
	takesSettings(t, env)
}
