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
	"syscall"
	"testing"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// buildImage copies the build context as Docker takes it, runs the Dockerfile's go build in it, and gives the folder in
// which the image's files are in image/.
func buildImage() (folder string, err error) {
	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return "", err
	}
	// go build ... -ldflags "..." -o /image/flashsale .
	build := regexp.MustCompile(`(?m)go build (.*) -ldflags "(.*)" -o /image/flashsale \.$`).FindSubmatch(dockerfile)
	if build == nil || !strings.Contains(string(dockerfile), "CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \\\n") {
		return "", errors.New("the Dockerfile builds in a way that this test doesn't know")
	}
	if folder, err = os.MkdirTemp("", "flashsale-image-"); err != nil {
		return "", err
	}
	source := filepath.Join(folder, "src")
	if err := copyContext(source); err != nil {
		return folder, err
	}
	args := append([]string{"build"}, strings.Fields(string(build[1]))...)
	args = append(args, "-ldflags", strings.ReplaceAll(string(build[2]), "$VERSION", "of-the-test"), "-o", filepath.Join(folder, "image", "flashsale"), ".")
	cmd := exec.Command("go", args...) //nolint:noctx // the test's own limit is enough
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return folder, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return folder, nil
}

// copyContext copies what .dockerignore leaves of the repository.
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
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		switch {
		case err != nil:
			return err
		case skip && entry.IsDir(): // no pattern takes anything back
			return fs.SkipDir
		case skip:
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
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
	err := filepath.WalkDir(filepath.Join(engine.folder, "src"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if name := filepath.Base(path); strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, ".") || info.Size() > 1<<20 {
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
			t.Error("it is linked dynamically")
		}
	}
	info, err := os.Stat(flashsale(t))
	if err != nil {
		t.Fatal(err)
	}
	if megabytes := info.Size() >> 20; megabytes > 60 {
		t.Errorf("it has %d MiB", megabytes)
	}
	version, err := exec.CommandContext(t.Context(), flashsale(t), "version").Output()
	if err != nil || string(version) != "flashsale of-the-test\n" {
		t.Errorf("version: %q, %v", version, err)
	}
}

func TestImageIsScratchWithoutRoot(t *testing.T) {
	steps := regexp.MustCompile(`(?m)^FROM .*$`).FindAllString(read(t, "Dockerfile"), -1)
	if len(steps) != 2 || steps[1] != "FROM scratch" {
		t.Fatalf("stages: %q", steps)
	}
	_, image, _ := strings.Cut(read(t, "Dockerfile"), "\nFROM scratch\n")
	for _, line := range []string{
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/", "COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /", "USER 65532:65532", "VOLUME /data",
		`ENTRYPOINT ["/flashsale"]`, "ENV FLASHSALE_HTTP_ADDR=0.0.0.0:8080 ZONEINFO=/zoneinfo.zip",
	} {
		if !strings.Contains("\n"+image, "\n"+line+"\n") {
			t.Errorf("the image has no %s", line)
		}
	}
	if strings.Contains(image, "RUN ") {
		t.Error("there is nothing in the image that could run anything")
	}
	built := regexp.MustCompile(` golang:(\d+\.\d+)-`).FindStringSubmatch(steps[0])
	if built == nil || !strings.Contains(read(t, "go.mod"), "\ngo "+built[1]+".") {
		t.Errorf("%s, and go.mod says otherwise", steps[0])
	}
}

// healthCheck is the command of the Dockerfile's HEALTHCHECK.
func healthCheck(t *testing.T) (command []string) {
	t.Helper()
	match := regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD (\[.*\])$`).FindStringSubmatch(read(t, "Dockerfile"))
	if match == nil {
		t.Fatal("there is no health check without a shell")
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
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"FLASHSALE_HTTP_ADDR=0.0.0.0:" + fmt.Sprint(listener.Addr().(*net.TCPAddr).Port), "FLASHSALE_OPS_ADDR=off"}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		cmd := exec.CommandContext(t.Context(), flashsale(t), command[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if check() == nil {
		t.Fatal("healthy before it runs")
	}
	server := exec.CommandContext(t.Context(), flashsale(t), "serve")
	server.Dir, server.Env = t.TempDir(), env
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // nothing announces it
		if err = check(); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("not healthy though it runs: %v", err)
			break
		}
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if check() == nil {
		t.Error("healthy after its end")
	}
}
