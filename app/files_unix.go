//go:build unix

package app

import "syscall"

// openFiles is how many files this process may have open. Go raises it to what is allowed when it starts.
func openFiles() (limit uint64, known bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return uint64(r.Cur), true //nolint:unconvert // it is signed on FreeBSD
}
