package deploy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// copyContext copies the files of the repository that .dockerignore does not exclude.
func copyContext(to string) error {
	file, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	patterns, err := ignorefile.ReadAll(file)
	if err != nil {
		return err
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		switch {
		case err != nil:
			return err
		case skip && entry.IsDir() && name != ".": // no pattern includes anything again
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case skip:
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o600)
	})
}

// The build context holds all that the build needs, and little else.
func TestContextHoldsNothingButTheProgram(t *testing.T) {
	source := t.TempDir()
	if err := copyContext(source); err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".") // fails if a package or an embedded file is missing
	list.Dir = source
	if out, err := list.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if name := entry.Name(); strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, ".") || info.Size() > 1<<20 {
			t.Errorf("%s, %d bytes, is sent to the builder", path, info.Size())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImageIsScratchWithoutRoot(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	steps := regexp.MustCompile(`(?m)^FROM .*$`).FindAllString(dockerfile, -1)
	if len(steps) != 2 || steps[1] != "FROM scratch" {
		t.Fatalf("stages: %q", steps)
	}
	_, image, _ := strings.Cut(dockerfile, "\nFROM scratch\n")
	for _, line := range []string{
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/",
		"COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /", "USER 65532:65532", "VOLUME /data",
		`ENTRYPOINT ["/flashsale"]`, "ENV FLASHSALE_HTTP_ADDR=0.0.0.0:8080 ZONEINFO=/zoneinfo.zip",
	} {
		if !strings.Contains("\n"+image, "\n"+line+"\n") {
			t.Errorf("the image has no %s", line)
		}
	}
	if strings.Contains(image, "RUN ") {
		t.Error("the image has no program that RUN could use")
	}
	built := regexp.MustCompile(` golang:(\d+\.\d+)-`).FindStringSubmatch(steps[0])
	if built == nil || !strings.Contains(read(t, "go.mod"), "\ngo "+built[1]+".") {
		t.Errorf("%s is not the version in go.mod", steps[0])
	}
}

// healthCheck returns the command of the Dockerfile's HEALTHCHECK.
func healthCheck(t *testing.T) (command []string) {
	t.Helper()
	match := regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD (\[.*\])$`).FindStringSubmatch(read(t, "Dockerfile"))
	if match == nil {
		t.Fatal("the Dockerfile has no health check without a shell")
	}
	if err := json.Unmarshal([]byte(match[1]), &command); err != nil {
		t.Fatal(err)
	}
	return command
}

func TestHealthCheckTellsWhetherItServes(t *testing.T) {
	command := healthCheck(t)
	if command[0] != "/flashsale" {
		t.Fatalf("the image has no %s", command[0])
	}
	address := "FLASHSALE_HTTP_ADDR=0.0.0.0:"
	server := shop.Launch(t, shop.Build(t), []string{address + "0", "FLASHSALE_OPS_ADDR=off"}, "serve", "--database", kit.SQLite(t))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	healthy := func() error {
		cmd := exec.CommandContext(t.Context(), shop.Build(t), command[1:]...)
		cmd.Env = []string{address + port}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	shop.Recovered(t, "it is healthy", healthy) // as Docker, which asks several times: an answer may come too late
	server.Stop()
	if healthy() == nil {
		t.Error("a stopped server is healthy")
	}
}
