package deploy

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// imageFolder contains the build context in src/ and the image's files in image/, once image has been called.
var imageFolder string

// image builds the image's files once.
var image = sync.OnceValue(buildImage)

// flashsale returns the path of the program as the image has it.
func flashsale(t *testing.T) string {
	t.Helper()
	if err := image(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(imageFolder, "image", "flashsale")
}

// buildImage copies the build context as Docker does, and runs the Dockerfile's go build there.
func buildImage() (err error) {
	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return err
	}
	build := regexp.MustCompile(`(?m)go build (.*) -ldflags "(.*)" -o /image/flashsale \.$`).FindSubmatch(dockerfile)
	if build == nil || !strings.Contains(string(dockerfile), "CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \\\n") {
		return errors.New("the test does not know the Dockerfile's way to build")
	}
	if imageFolder, err = os.MkdirTemp("", "flashsale-image-"); err != nil {
		return err
	}
	source := filepath.Join(imageFolder, "src")
	if err := copyContext(source); err != nil {
		return err
	}
	args := append([]string{"build"}, strings.Fields(string(build[1]))...)
	args = append(args, "-ldflags", strings.ReplaceAll(string(build[2]), "$VERSION", "of-the-test"),
		"-o", filepath.Join(imageFolder, "image", "flashsale"), ".")
	cmd := exec.Command("go", args...) //nolint:noctx // the test's own limit is enough
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

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

func TestContextHoldsNothingButTheProgram(t *testing.T) {
	flashsale(t)
	err := filepath.WalkDir(filepath.Join(imageFolder, "src"), func(path string, entry fs.DirEntry, err error) error {
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

func TestProgramNeedsNothingOfTheImage(t *testing.T) {
	program, err := elf.Open(flashsale(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the program is linked dynamically")
		}
	}
	info, err := os.Stat(flashsale(t))
	if err != nil || info.Size()>>20 > 60 {
		t.Errorf("the program: %+v, %v", info, err)
	}
	version, err := exec.CommandContext(t.Context(), flashsale(t), "version").Output()
	if err != nil || string(version) != "flashsale of-the-test\n" {
		t.Errorf("version: %q, %v", version, err)
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
	server := shop.Launch(t, flashsale(t), []string{address + "0", "FLASHSALE_OPS_ADDR=off"}, "serve", "--database", kit.SQLite(t))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	healthy := func(want bool) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), flashsale(t), command[1:]...)
		cmd.Env = []string{address + port}
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("healthy %t, want %t: %s", !want, want, out)
		}
	}
	healthy(true)
	server.Stop()
	healthy(false)
}
