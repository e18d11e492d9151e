//go:build unix

package app

import "syscall"

// OpenFiles returns how many files this process may have open; known is false if the system does not tell.
func OpenFiles() (limit uint64, known bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return uint64(r.Cur), true //nolint:unconvert // the field is signed on FreeBSD
}
