package testkit

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is what the tests of one process have in common; only Main, which ends it, opens it.
var shared struct {
	sync.Mutex
	open    bool
	mariadb *MariaDBServer
}

// Main is for the TestMain of a package that uses SharedMariaDB: it runs the tests, ends the shared
// servers, calls what is to be done after the tests, and exits.
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

// SharedMariaDB is one server for all tests of the process, started by the first that asks. Each test
// takes its own NewDatabase; none may kill or stop the server. A package whose tests look for leaked
// goroutines has to ignore flashsale/testkit.runChild, which waits for the server's end.
func SharedMariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.open {
		t.Fatal("a package that shares a server needs func TestMain(m *testing.M) { testkit.Main(m) }")
	}
	if shared.mariadb == nil {
		s, err := startMariaDB()
		if err != nil {
			t.Fatal(err)
		}
		shared.mariadb = s
	}
	return shared.mariadb
}
