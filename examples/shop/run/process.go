package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout is far above what a process needs to start, or an event to arrive, on a busy machine.
	startTimeout = time.Minute
	// stopTimeout is the time that a process gets to stop before it is killed.
	stopTimeout = 20 * time.Second
	// mostLines is how many lines of a process wait to be read at most. Further lines are dropped, since nobody reads them after
	// the purchase.
	mostLines = 100
)

func (e *example) build(ctx context.Context, folder, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", program, ".") //nolint:gosec // the user names the folder
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, e.logs, e.logs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build in %s: %w", folder, err)
	}
	return nil
}

// start starts a program and returns the lines that it prints. When the program ends, e.ended gets an error.
func (e *example) start(env []string, program string, args ...string) (<-chan string, error) {
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // built a moment ago
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = e.folder, e.logs, stopTimeout
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	name := filepath.Base(program)
	if err != nil {
		stop()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	lines, done := make(chan string, mostLines), make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			select {
			case lines <- s.Text():
			default:
			}
		}
		_ = cmd.Wait() // ProcessState, below, says the same
		e.ended <- fmt.Errorf("%s has ended: %s", name, cmd.ProcessState)
	}()
	e.stops = append(e.stops, func() error {
		stop()
		<-done
		if strings.Contains(cmd.ProcessState.String(), "killed") {
			return fmt.Errorf("%s does not stop", name)
		}
		return nil
	})
	return lines, nil
}

// stop ends the processes that start has started, the last one first, and removes their data.
func (e *example) stop() (err error) {
	for _, stop := range slices.Backward(e.stops) {
		err = errors.Join(err, stop())
	}
	if e.folder == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(e.folder))
}

// find waits for a line that matches a pattern, and returns the pattern's first group. It returns an error if no such line comes
// within startTimeout, or a process ends.
func (e *example) find(ctx context.Context, lines <-chan string, pattern string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("after %s there is no line like %q", startTimeout, pattern))
	defer cancel()
	form := regexp.MustCompile(pattern)
	for {
		select {
		case line := <-lines:
			if found := form.FindStringSubmatch(line); found != nil {
				return found[1], nil
			}
		case err := <-e.ended:
			return "", err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}
