package kit

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared holds what the tests of one process have in common. Only Main opens it, because Main ends the servers.
var shared struct {
	sync.Mutex
	open    bool
	mariadb *MariaDBServer
}

// Main is called by the TestMain of a package that uses SharedMariaDB. It runs the tests, calls the functions in after,
// ends the shared servers, and exits.
func Main(m *testing.M, after ...func()) {
	shared.open = true
	code := m.Run()
	for _, do := range after {
		do()
	}
	if shared.mariadb != nil {
		if err := shared.mariadb.end(); err != nil {
			fmt.Fprintln(os.Stderr, "end the shared MariaDB:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// SharedMariaDB returns one server for all tests of the process. The first call starts the server. Each test makes its
// own database with NewDatabase; no test may kill or stop the server. A package whose tests check for leaked goroutines
// has to ignore flashsale/test/kit.runChild, which waits for the server's end.
func SharedMariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.open {
		t.Fatal("a package that shares a server needs func TestMain(m *testing.M) { kit.Main(m) }")
	}
	if shared.mariadb == nil {
		s := newMariaDB(t, "")
		must(t, "start the shared MariaDB", s.start())
		shared.mariadb = s
	}
	return shared.mariadb
}
