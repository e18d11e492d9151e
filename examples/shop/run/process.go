package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// startTimeout is far above what a process needs to start, or an event to arrive, on a busy machine. stopTimeout is what a
// process gets to stop.
const (
	startTimeout = time.Minute
	stopTimeout  = 20 * time.Second
)

func (e *example) build(ctx context.Context, folder, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", program, ".") //nolint:gosec // the user names the folder
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, e.logs, e.logs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build in %s: %w", folder, err)
	}
	return nil
}

// process is a child process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start starts a program. Its end before stop is an error in e.ended.
func (e *example) start(stdout *output, env []string, program string, args ...string) {
	cmd := exec.Command(program, args...) //nolint:gosec,noctx // built a moment ago; stop ends it, in the order that is right
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.folder, stdout, e.logs
	cmd.Env = append(os.Environ(), env...)
	name := filepath.Base(program)
	if err := cmd.Start(); err != nil {
		e.ended <- fmt.Errorf("start %s: %w", name, err)
		return
	}
	p := &process{cmd, make(chan struct{})}
	e.processes = append(e.processes, p)
	go func() {
		_ = cmd.Wait() // the state has what it says
		close(p.done)
		e.ended <- fmt.Errorf("%s has ended: %s", name, cmd.ProcessState)
	}()
}

// stop ends the processes that start has started, the last one first, and removes their data.
func (e *example) stop() (err error) {
	for i := len(e.processes) - 1; i >= 0; i-- {
		p := e.processes[i]
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-p.done:
		case <-time.After(stopTimeout):
			err = errors.Join(err, fmt.Errorf("%s does not stop", filepath.Base(p.cmd.Path)), p.cmd.Process.Kill())
			<-p.done
		}
	}
	if e.folder == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(e.folder))
}

// output is what a process prints. Others may wait for a part of it.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

// find waits for a whole line that matches a pattern, and returns the pattern's first group.
func (o *output) find(ctx context.Context, ended <-chan error, pattern string) (string, error) {
	line := regexp.MustCompile(pattern + `.*\n`)
	timeout := time.After(startTimeout)
	for {
		o.mu.Lock()
		found := line.FindStringSubmatch(o.text.String())
		o.mu.Unlock()
		if found != nil {
			return found[1], nil
		}
		select {
		case <-o.changed:
		case err := <-ended:
			return "", err
		case <-ctx.Done():
			return "", ctx.Err()
		case <-timeout:
			return "", fmt.Errorf("after %s there is no line like %q", startTimeout, pattern)
		}
	}
}
