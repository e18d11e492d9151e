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
	server *server // not embedded: the workers of a killed master keep running
	folder string
}

// Nginx starts nginx for this test, which takes some milliseconds, and ends it with the test. configure writes
// nginx.conf and the files that it includes into folder. If another process takes the port, configure is called again
// with another port. The configuration must contain `pid nginx.pid;` and must not contain `daemon`.
func Nginx(t testing.TB, configure func(folder string, port int)) *NginxServer {
	t.Helper()
	// setpriv sends the master a SIGTERM when the test process dies, so that the master ends its workers.
	setpriv := find(t, "setpriv", "util-linux")
	s := &NginxServer{server: newServer(t, "nginx", "nginx", "")}
	s.folder = filepath.Join(s.server.dir, "etc")
	must(t, "make nginx's folder", os.Mkdir(s.folder, 0o700))
	s.server.args = []string{
		"--pdeathsig", "TERM", s.server.program,
		"-p", s.folder, "-c", filepath.Join(s.folder, "nginx.conf"), "-e", "stderr", "-g", "daemon off;",
	}
	s.server.program = setpriv
	s.server.answers, s.server.quit = s.bound, s.quit
	s.server.listen = func(port int) (args, env []string) {
		configure(s.folder, port)
		return nil, nil
	}
	s.server.startFor(t)
	return s
}

// Addr returns the address with the port that configure received.
func (s *NginxServer) Addr() string { return s.server.Addr() }

// Folder returns the folder of the configuration. nginx resolves relative paths against it.
func (s *NginxServer) Folder() string { return s.folder }

// bound checks that nginx.pid holds the master's process id. nginx writes the file when it has bound its ports.
func (s *NginxServer) bound(context.Context) error {
	pid, err := os.ReadFile(filepath.Join(s.folder, "nginx.pid"))
	if err == nil && strings.TrimSpace(string(pid)) != strconv.Itoa(s.server.PID()) {
		err = fmt.Errorf("nginx.pid holds %q", pid)
	}
	return err
}

// quit has the master end its workers and itself.
func (s *NginxServer) quit() error {
	_ = s.server.cmd.Process.Signal(syscall.SIGTERM) // fails only when the master is gone already
	select {
	case <-s.server.alive.Done():
		return nil
	case <-time.After(startTimeout):
		return errors.New("nginx did not end after SIGTERM")
	}
}
