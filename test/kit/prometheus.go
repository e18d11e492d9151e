package kit

import (
	"context"
	"errors"
	"fmt"
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
	s, err := startPrometheus(configuration)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Errorf("end Prometheus: %v", err)
		}
	})
	return s
}

// URL returns the base URL of the server.
func (s *PrometheusServer) URL() string { return "http://" + s.Addr() }

func startPrometheus(configuration string) (*PrometheusServer, error) {
	program, err := find("prometheus", "prometheus")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flashsale-prometheus-")
	if err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("start Prometheus: %w", err), os.RemoveAll(dir))
	}
	s := &PrometheusServer{&server{
		program: program,
		dir:     dir,
		args:    []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data")},
		listen: func(port int) (args, env []string) {
			return []string{"--web.listen-address=" + loopback(port)}, nil
		},
	}}
	s.answers = s.ready
	return s, s.start()
}

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
	program, err := find("promtool", "prometheus")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = folder
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, output)
	}
}
