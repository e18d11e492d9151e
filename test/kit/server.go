// Package kit starts real servers for tests: child processes in new temporary folders, on free ports of the loopback
// address. Only tests import it. A test whose server is not installed fails; it does not skip.
package kit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"flashsale/test/kit/pace"
)

const (
	// startTimeout is far above the seconds that a busy machine needs, and far below a test's own limit.
	startTimeout = 5 * time.Minute
	// pollEvery is the interval at which a starting server is polled: no event announces that it answers.
	pollEvery = 5 * time.Millisecond
	// startTries is how many ports are tried if other processes take them first.
	startTries = 3
	// portTries bounds the search for one free port.
	portTries = 100
	// firstPort and ports give a range below that of outgoing connections, so that no client can take a killed server's
	// port before its restart.
	firstPort, ports = 20000, 12000
)

var errExited = errors.New("exited")

// server is one child process and everything needed to start it again. Only the goroutine of the owning test may call
// its methods.
type server struct {
	t       testing.TB // the owner; nil: shared by the tests of the process
	program string
	args    []string                            // without the port
	listen  func(port int) (args, env []string) // returns what sets the port; nil: --port
	dir     string                              // its own temporary folder
	answers func(context.Context) error
	quit    func() error // asks the server to end, and waits; nil: the server is killed

	port  int
	cmd   *exec.Cmd
	alive context.Context // ends when the child has been reaped
}

// newServer finds a program and makes a server with a folder of its own below folder, or below the default folder for
// temporary files.
func newServer(t testing.TB, program, debianPackage, folder string) *server {
	t.Helper()
	s := &server{program: find(t, program, debianPackage)}
	var err error
	//nolint:usetesting // a shared server outlives the test, and the path of t.TempDir is too long for a socket
	s.dir, err = os.MkdirTemp(folder, "flashsale-"+filepath.Base(program)+"-")
	must(t, "make a folder for "+program, err)
	return s
}

// startFor starts the server for a test, and ends it with the test.
func (s *server) startFor(t testing.TB) {
	t.Helper()
	s.t = t
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Errorf("end %s: %v", s.program, err)
		}
	})
	must(t, "start a server", s.start())
}

// Port returns the server's port, which is the same after a Restart.
func (s *server) Port() int { return s.port }

// Addr returns the server's host:port, which is the same after a Restart.
func (s *server) Addr() string { return loopback(s.port) }

// PID returns the process id.
func (s *server) PID() int { return s.cmd.Process.Pid }

// Kill ends the server with SIGKILL and returns when it is gone. A second Kill does nothing.
func (s *server) Kill() {
	s.owner()
	s.kill()
}

// Restart starts the server again on the same port, killing it first if it still runs.
func (s *server) Restart() {
	t := s.owner()
	t.Helper()
	s.kill()
	must(t, "restart", s.launch())
}

// Stop freezes the server with SIGSTOP: the kernel still accepts connections and data, but the server answers nothing.
// Stop returns when the process has stopped.
func (s *server) Stop() {
	t := s.owner()
	t.Helper()
	must(t, "stop "+s.program, s.cmd.Process.Signal(syscall.SIGSTOP))
	must(t, "wait for the stop of "+s.program, awaitStopped(s.PID()))
}

// Continue wakes a stopped server.
func (s *server) Continue() {
	t := s.owner()
	t.Helper()
	must(t, "continue "+s.program, s.cmd.Process.Signal(syscall.SIGCONT))
}

// owner returns the test that owns the server. It panics if the server is shared, because other tests rely on it.
func (s *server) owner() testing.TB {
	if s.t == nil {
		panic("kit: a shared server has to keep running; start one for this test")
	}
	return s.t
}

// start runs the server on a free port and returns when it answers there.
func (s *server) start() error {
	err := errExited
	for try := 0; try < startTries && errors.Is(err, errExited); try++ {
		if s.port, err = FreePort(); err == nil {
			err = s.launch()
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	return nil
}

// end ends the server and removes its folder.
func (s *server) end() (err error) {
	if s.cmd != nil && s.quit != nil {
		err = s.quit()
	}
	s.kill()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// launch starts the child on the server's port and returns when the child answers. If the child doesn't come up, the
// error contains its output; it wraps errExited if the child exited by itself.
func (s *server) launch() error {
	logPath := filepath.Join(s.dir, "output")
	log, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor

	port, env := []string{"--port", strconv.Itoa(s.port)}, []string(nil)
	if s.listen != nil {
		port, env = s.listen(s.port)
	}
	s.cmd = &exec.Cmd{
		Path:   s.program,
		Args:   slices.Concat([]string{s.program}, s.args, port),
		Env:    append(os.Environ(), env...),
		Stdout: log,
		Stderr: log,
	}
	dieWithParent(s.cmd)
	alive, ended := context.WithCancelCause(context.Background())
	s.alive = alive
	started := make(chan error)
	go runChild(s.cmd, started, ended)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}

	ctx, cancel := context.WithTimeout(s.alive, startTimeout)
	defer cancel()
	for s.answers(ctx) != nil {
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			s.kill()
			output, _ := os.ReadFile(logPath)
			return fmt.Errorf("%s doesn't answer on %s: %w; it printed:\n%s", s.program, s.Addr(), context.Cause(ctx), output)
		}
	}
	return nil
}

// runChild stays on one OS thread from the start of the child to its end: the kernel kills the child when the thread
// that started it ends.
func runChild(cmd *exec.Cmd, started chan<- error, ended context.CancelCauseFunc) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer ended(errExited)
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait() // the exit status of a killed server is irrelevant
	}
}

func (s *server) kill() {
	if s.cmd == nil { // never started
		return
	}
	if s.cmd.Process != nil { // nil: starting it failed
		_ = s.cmd.Process.Kill() // fails only when the child is gone already
	}
	<-s.alive.Done()
}

// exchange sends text to the server and lets read judge the answer. The connection closes when ctx ends, which includes
// the end of the child.
func (s *server) exchange(ctx context.Context, text string, read func(answer io.Reader) error) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	return read(conn)
}

// FreePort returns a port that nothing listens on, and that no other process of tests chooses before this one ends: between
// this call and the start of a server, and between its death and its restart, nobody else takes the port.
func FreePort() (int, error) {
	for range portTries {
		n, err := rand.Int(rand.Reader, big.NewInt(ports))
		if err != nil {
			return 0, fmt.Errorf("choose a port: %w", err)
		}
		port := firstPort + int(n.Int64())
		if !reserve(port) {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", loopback(port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port in %d tries from %d to %d", portTries, firstPort, firstPort+ports-1)
}

// reserved are the sockets by which this process holds its ports, by port.
var reserved sync.Map

// reserve keeps other processes of tests from choosing a port, by a socket with a name, which the system frees when the process
// ends. Linux has names for sockets that are no files.
func reserve(port int) (ok bool) {
	if runtime.GOOS != "linux" {
		return true
	}
	socket, err := new(net.ListenConfig).Listen(context.Background(), "unix", fmt.Sprintf("@flashsale-test-port-%d", port))
	if err == nil {
		reserved.Store(port, socket)
	}
	return err == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// find looks for a program on PATH and in the folders of Debian's servers, which an ordinary user's PATH lacks.
func find(t testing.TB, program, debianPackage string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	t.Fatalf("%s not found: install the Debian package %s", program, debianPackage)
	return ""
}

// await polls check until it returns nil, for states that servers reach among themselves and do not announce.
func await(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			pace.Fatalf(t, "%s: not within %s: %v", what, startTimeout, err)
		}
	}
}

// must fails the test if err is not nil.
func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
