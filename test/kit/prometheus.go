package kit

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PrometheusServer is a Prometheus that stores its data in a folder of its own.
type PrometheusServer struct{ *server }

// Prometheus starts a server for this test, which takes a second, and ends it with the test. configuration is the text
// of prometheus.yml.
func Prometheus(t testing.TB, configuration string) *PrometheusServer {
	t.Helper()
	s := &PrometheusServer{newServer(t, "prometheus", "prometheus", "")}
	file := filepath.Join(s.dir, "prometheus.yml")
	must(t, "configure Prometheus", os.WriteFile(file, []byte(configuration), 0o600))
	s.args = []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(s.dir, "data")}
	s.listen = func(port int) (args, env []string) { return []string{"--web.listen-address=" + loopback(port)}, nil }
	s.answers = s.ready
	s.startFor(t)
	return s
}

// URL returns the base URL of the server.
func (s *PrometheusServer) URL() string { return "http://" + s.Addr() }

func (s *PrometheusServer) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/-/ready", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// Promtool runs promtool in folder. If promtool fails, the test fails with its output.
func Promtool(t testing.TB, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), find(t, "promtool", "prometheus"), args...)
	cmd.Dir = folder
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, output)
	}
}
