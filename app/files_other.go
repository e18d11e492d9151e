//go:build !unix

package app

// OpenFiles reports that the limit of open files is not known.
func OpenFiles() (limit uint64, known bool) { return 0, false }
