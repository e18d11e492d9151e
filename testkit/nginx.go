package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NginxServer is an nginx with a master and workers of its own.
type NginxServer struct {
	server *server
	folder string
}

// Nginx starts one for this test, which takes some milliseconds, and ends it with the test. configure writes nginx.conf,
// and what that includes, into the folder, and may be called again with another port if somebody takes the first one.
// The configuration must say `pid nginx.pid;`, and must not say `daemon`.
func Nginx(t testing.TB, configure func(folder string, port int)) *NginxServer {
	t.Helper()
	s, err := startNginx(configure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Errorf("end nginx: %v", err)
		}
	})
	return s
}

// Addr is the address of the port that configure was told.
func (s *NginxServer) Addr() string { return s.server.Addr() }

// Folder holds the configuration; paths in it that aren't absolute begin here.
func (s *NginxServer) Folder() string { return s.folder }

func startNginx(configure func(folder string, port int)) (*NginxServer, error) {
	nginx, err := find("nginx", "nginx")
	if err != nil {
		return nil, err
	}
	// A master that is killed leaves its workers behind, so when the tests die it has to be asked to end.
	setpriv, err := find("setpriv", "util-linux")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flashsale-nginx-")
	if err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	s := &NginxServer{folder: filepath.Join(dir, "etc")}
	if err := os.Mkdir(s.folder, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("start nginx: %w", err), os.RemoveAll(dir))
	}
	s.server = &server{
		program: setpriv,
		dir:     dir,
		args: []string{
			"--pdeathsig", "TERM", nginx,
			"-p", s.folder, "-c", filepath.Join(s.folder, "nginx.conf"), "-e", "stderr", "-g", "daemon off;",
		},
		answers: s.bound,
		listen: func(port int) (args, env []string) {
			configure(s.folder, port)
			return nil, nil
		},
	}
	return s, s.server.start()
}

// bound reads the master's number, which nginx writes when it has its ports.
func (s *NginxServer) bound(context.Context) error {
	pid, err := os.ReadFile(filepath.Join(s.folder, "nginx.pid"))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(pid)) != strconv.Itoa(s.server.cmd.Process.Pid) {
		return fmt.Errorf("nginx.pid holds %q", pid)
	}
	return nil
}

// end asks the master to end its workers and itself.
func (s *NginxServer) end() error {
	_ = s.server.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone already
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-s.server.alive.Done():
	case <-timer.C:
		return errors.Join(errors.New("it did not end when it was asked to"), s.server.end())
	}
	return s.server.end()
}
