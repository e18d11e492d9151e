//go:build bench && linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout is far above the second that a start takes on a busy machine.
	startTimeout = 30 * time.Second
	// stopTimeout is the engine's documented limit for an orderly stop.
	stopTimeout = 10 * time.Second
)

// process is a server of the run: a child process that prints its address to stdout. Its log goes to a file.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string
	lines chan string   // of stdout; closed when the process has ended
	done  chan struct{} // closed when the process has been reaped
}

// start runs a program and kills it by its process id when the test ends. If the test process is killed, the kernel
// kills the program.
func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, cmd: exec.CommandContext(context.Background(), program, args...), log: filepath.Join(t.TempDir(), "log"),
		lines: make(chan string, 16), done: make(chan struct{}),
	}
	// The log is truncated between rounds; because of O_APPEND the next write then starts at offset 0.
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer close(p.lines)
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case p.lines <- lines.Text():
			default: // drop the line: a program that isn't a server prints many lines, which nobody reads
			}
		}
		_ = p.cmd.Wait() // ProcessState keeps the exit code
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	t.Cleanup(p.kill)
	return p
}

// says waits for a line of stdout that contains text, and returns the rest of the line.
func (p *process) says(text string) string {
	p.t.Helper()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%s ended at its start: %s", p.cmd.Path, p.logged())
			}
			if _, rest, found := strings.Cut(line, text); found {
				return rest
			}
		case <-timeout.C:
			p.t.Fatalf("%s did not say %q: %s", p.cmd.Path, text, p.logged())
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only when the process is gone already
	<-p.done
}

// stop ends the process with SIGTERM. It returns an error unless the process exits with 0 within stopTimeout.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.cmd.Path, err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
		return fmt.Errorf("%s did not stop in %s", p.cmd.Path, stopTimeout)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s exited with %d: %s", p.cmd.Path, code, p.logged())
	}
	return nil
}

// logged returns the end of the log.
func (p *process) logged() string {
	const most = 4 << 10
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-most):])
}

// troubles counts the log's lines at warn and above, and empties the log: a busy server writes gigabytes.
func (p *process) troubles() (n int) {
	file, err := os.Open(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadSlice('\n')
		if bytes.Contains(line, []byte(`"level":"WARN"`)) || bytes.Contains(line, []byte(`"level":"ERROR"`)) {
			n++
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if err := os.Truncate(p.log, 0); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// rssMiB returns the resident memory of the process in MiB.
func (p *process) rssMiB() float64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nVmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " x")[0], 64)
	if err != nil {
		p.t.Fatalf("read the memory of %s: %v", p.cmd.Path, err)
	}
	return kib / 1024
}

// output runs a tool to its end and returns what it printed.
func output(t *testing.T, timeout time.Duration, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}
