//go:build !unix

package app

// openFiles reports that the limit of open files is not known on this system.
func openFiles() (limit uint64, known bool) { return 0, false }
