//go:build unix && !linux

package testkit

import "os/exec"

// dieWithParent does nothing here: elsewhere than on Linux a child outlives a test process that was killed.
func dieWithParent(*exec.Cmd) {}

// awaitStopped doesn't wait here: the server may answer once more after SIGSTOP.
func awaitStopped(int) error { return nil }
