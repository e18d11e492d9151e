package kit

import (
	"bufio"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
)

// asChild is the environment variable that makes this binary, run again as a child, act as the test process to watch.
const asChild = "TESTKIT_AS_CHILD"

func TestMain(m *testing.M) { Main(m) }

func TestRedisRestartsEmptyOnItsPort(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) }) // runs after the server's own cleanup
	redis := Redis(t)
	addr := redis.Addr()
	if got := ask(t, addr, "SET unit held"); got != "+OK" {
		t.Fatalf("SET answered %q", got)
	}

	redis.Kill()
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
		_ = conn.Close()
		t.Fatal("a killed server takes connections")
	}
	redis.Kill()

	redis.Restart()
	if redis.Addr() != addr || redis.URL() != "redis://"+addr+"/0" {
		t.Fatalf("it was on %s and is on %s, %s", addr, redis.Addr(), redis.URL())
	}
	if got := ask(t, addr, "EXISTS unit"); got != ":0" {
		t.Fatalf("EXISTS answered %q after a restart", got)
	}
}

func TestRedisTakesArguments(t *testing.T) {
	redis := Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	if got := ask(t, redis.Addr(), "SET unit held"); got != "+OK" {
		t.Fatalf("SET answered %q", got)
	}
	if files, err := filepath.Glob(filepath.Join(redis.Dir(), "appendonlydir", "*.incr.aof")); err != nil || len(files) != 1 {
		t.Errorf("it writes %q, %v", files, err)
	}
	redis.Kill()
	redis.Restart()
	if got := ask(t, redis.Addr(), "EXISTS unit"); got != ":1" {
		t.Errorf("EXISTS answered %q after a restart", got)
	}
}

func TestStoppedRedisAnswersOnceContinued(t *testing.T) {
	redis := Redis(t)
	for range 2 {
		redis.Stop()
		conn, answer := dial(t, redis.Addr(), "PING")
		if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if line, err := answer.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a stopped server answered %q, %v", line, err)
		}
		redis.Continue()
		if got := ask(t, redis.Addr(), "PING"); got != "+PONG" {
			t.Fatalf("a continued server answered %q", got)
		}
	}
	redis.Stop() // a stopped server can be ended, too
}

func TestMariaDBKeepsCommittedRowsOverKill(t *testing.T) {
	server := MariaDB(t)
	port := server.Port()
	db := open(t, server.NewDatabase(t))
	mustExec(t, db, "CREATE TABLE unit (id INT PRIMARY KEY) ENGINE=InnoDB")
	mustExec(t, db, "INSERT INTO unit VALUES (1)")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO unit VALUES (2)"); err != nil {
		t.Fatal(err)
	}

	server.Kill()
	if err := tx.Commit(); err == nil {
		t.Fatal("a killed server took a commit")
	}
	server.Restart()

	if server.Port() != port {
		t.Fatalf("port %d became %d", port, server.Port())
	}
	var ids string
	if err := db.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(id) FROM unit").Scan(&ids); err != nil || ids != "1" {
		t.Fatalf("rows %q, %v; want the committed one", ids, err)
	}
}

func TestNewDatabaseIsItsOwnAndGoesWithItsTest(t *testing.T) {
	server := SharedMariaDB(t)
	if server != SharedMariaDB(t) {
		t.Fatal("the second caller got another server")
	}
	var name string
	t.Run("in use", func(t *testing.T) {
		db, other := open(t, server.NewDatabase(t)), server.NewDatabase(t)
		var charset string
		if err := db.QueryRowContext(t.Context(), "SELECT DATABASE(), @@character_set_database").Scan(&name, &charset); err != nil {
			t.Fatal(err)
		}
		if charset != "utf8mb4" {
			t.Errorf("character set %s", charset)
		}
		_, err := db.ExecContext(t.Context(), "USE "+filepath.Base(other))
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) {
			t.Errorf("a test's user could use another test's database: %v", err)
		}
	})

	root, err := server.root()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	var left int
	if err := root.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?)
		+ (SELECT COUNT(*) FROM mysql.user WHERE user = ?)`, name, name).Scan(&left); err != nil || left != 0 {
		t.Fatalf("%d of the database and its user are left, %v", left, err)
	}
}

func TestSharedServerRefusesToBeKilled(t *testing.T) {
	server := SharedMariaDB(t)
	defer func() {
		if recover() == nil {
			t.Error("one test could kill what others use")
		}
	}()
	server.Kill()
}

func TestMissingProgramNamesItsPackage(t *testing.T) {
	const want = "no-such-server not found: install the Debian package no-such-package"
	if _, err := find("no-such-server", "no-such-package"); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestFailedStartShowsWhatTheServerPrinted(t *testing.T) {
	redis := Redis(t)
	redis.args = append(redis.args, "--no-such-setting", "1")
	redis.Kill()
	if err := redis.launch(); !errors.Is(err, errExited) || !strings.Contains(err.Error(), "no-such-setting") {
		t.Fatalf("got %v", err)
	}
}

// However a test process ends, its servers end with it. A regular end also leaves no files behind.
func TestServersEndWithTheTestProcess(t *testing.T) {
	for _, how := range []string{"regular", "killed"} {
		t.Run(how, func(t *testing.T) {
			folder, err := os.MkdirTemp("", "") //nolint:usetesting // the path of t.TempDir is too long for the socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(folder) })
			process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsChild$")
			process.Env = append(os.Environ(), asChild+"=1", "TMPDIR="+folder)
			process.Stderr = os.Stderr
			stdin, err := process.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := process.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			var conns []net.Conn
			addrs, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			for addr := range strings.FieldsSeq(addrs) {
				conn, _ := dial(t, addr, "")
				conns = append(conns, conn)
			}
			if len(conns) != 2 {
				t.Fatalf("the child told %q", addrs)
			}

			if how == "killed" {
				_ = process.Process.Kill()
			}
			_ = stdin.Close() // makes the child's test return
			err = process.Wait()
			if (err == nil) != (how == "regular") {
				t.Fatalf("the child ended with %v", err)
			}
			for _, conn := range conns {
				// If the server doesn't end, its connection stays open and the read reaches its deadline.
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the server on %s outlived the test process", conn.RemoteAddr())
				}
			}
			if left, err := os.ReadDir(folder); err != nil || how == "regular" && len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestAsChild runs in the child process of TestServersEndWithTheTestProcess. Otherwise it does nothing.
func TestAsChild(t *testing.T) {
	if os.Getenv(asChild) == "" {
		return
	}
	addrs := Redis(t).Addr() + " " + SharedMariaDB(t).Addr() + "\n"
	if _, err := io.WriteString(os.Stdout, addrs); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// ask sends one command and returns the first line of the answer.
func ask(t *testing.T, addr, command string) string {
	t.Helper()
	_, answer := dial(t, addr, command)
	line, err := answer.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(line)
}

func dial(t *testing.T, addr, command string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func open(t *testing.T, address string) *sql.DB {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = u.User.Username(), password, "tcp", u.Host, u.Path[1:]
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
