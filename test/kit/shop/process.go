package shop

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// startTimeout bounds the start of an instance.
const startTimeout = time.Minute

// Instance is one process of the engine.
type Instance struct {
	URL string
	Log *Log

	t    testing.TB
	cmd  *exec.Cmd
	ops  chan string
	done chan struct{}
}

// Log keeps what an instance writes to its standard error.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Launch runs a built engine with additional environment variables, and waits until it serves. The process ends with
// the test.
func Launch(t testing.TB, program string, env []string, args ...string) *Instance {
	t.Helper()
	i := &Instance{t: t, Log: &Log{}, ops: make(chan string, 1), done: make(chan struct{})}
	i.cmd = exec.CommandContext(context.Background(), program, args...)
	i.cmd.Env = append(os.Environ(), env...)
	i.cmd.Stderr = i.Log
	out, err := i.cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, i.cmd.Start())
	t.Cleanup(i.Kill)
	served := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), " is at "); ok {
				i.URL = url
				close(served)
			}
			if url, ok := strings.CutPrefix(lines.Text(), "figures for operators: "); ok {
				i.ops <- strings.TrimSuffix(url, "/metrics")
			}
		}
		_ = i.cmd.Wait()
		close(i.done)
	}()
	select {
	case <-served:
	case <-i.done:
		t.Fatalf("the instance ended at its start: %s", i.Log)
	case <-time.After(startTimeout):
		pace.Fatalf(t, "the instance did not start: %s", i.Log)
	}
	return i
}

// OpsURL returns the address at which an instance with an --ops-addr serves its figures. It may be called once.
func (i *Instance) OpsURL() string {
	i.t.Helper()
	select {
	case url := <-i.ops:
		return url
	case <-i.done:
	case <-time.After(startTimeout):
		pace.Fatalf(i.t, "the instance shows no figures yet: %s", i.Log)
	}
	i.t.Fatalf("the instance shows no figures: %s", i.Log)
	return ""
}

// Exited returns a channel that is closed when the process is gone.
func (i *Instance) Exited() <-chan struct{} { return i.done }

// Signal sends a signal to the process.
func (i *Instance) Signal(sig os.Signal) {
	i.t.Helper()
	check.NoError(i.t, i.cmd.Process.Signal(sig))
}

// PID returns the process id.
func (i *Instance) PID() int { return i.cmd.Process.Pid }

// Kill ends the instance with SIGKILL.
func (i *Instance) Kill() {
	select {
	case <-i.done:
		return
	default:
	}
	_ = i.cmd.Process.Kill()
	<-i.done
}

// Stop ends the instance with SIGTERM. The process must exit with 0 within Recovery, ten seconds.
func (i *Instance) Stop() {
	i.t.Helper()
	i.Signal(syscall.SIGTERM)
	select {
	case <-i.done:
	case <-time.After(Recovery):
		pace.Fatalf(i.t, "the instance did not stop in %s: %s", Recovery, i.Log)
	}
	if code := i.cmd.ProcessState.ExitCode(); code != 0 {
		i.t.Errorf("exit code %d: %s", code, i.Log)
	}
}
