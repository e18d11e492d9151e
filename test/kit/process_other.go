//go:build unix && !linux

package kit

import "os/exec"

// dieWithParent does nothing: on systems other than Linux the child outlives a test process that is killed.
func dieWithParent(*exec.Cmd) {}

// awaitStopped does not wait: the server may send one more answer after SIGSTOP.
func awaitStopped(int) error { return nil }
