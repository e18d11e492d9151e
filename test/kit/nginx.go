package kit

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

// Nginx starts nginx for this test, which takes some milliseconds, and ends it with the test. configure writes
// nginx.conf and the files that it includes into folder. If another process takes the port, configure is called again
// with another port. The configuration must contain `pid nginx.pid;` and must not contain `daemon`.
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

// Addr returns the address with the port that configure received.
func (s *NginxServer) Addr() string { return s.server.Addr() }

// Folder returns the folder of the configuration. nginx resolves relative paths against it.
func (s *NginxServer) Folder() string { return s.folder }

func startNginx(configure func(folder string, port int)) (*NginxServer, error) {
	nginx, err := find("nginx", "nginx")
	if err != nil {
		return nil, err
	}
	// If the master is killed, its workers keep running. So the master gets a SIGTERM when the test process dies.
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

// bound checks that nginx.pid holds the master's process id. nginx writes the file when it has bound its ports.
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

// end has the master end its workers and itself. A master that doesn't exit within startTimeout is killed.
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
