package kit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"flashsale/test/kit/pace"
)

const (
	mariadbPackage = "mariadb-server"
	// redoLogSize keeps the data folder at 34 MB, which is copied in a tenth of a second. The template and the server
	// use the same size, or the first start would rewrite the redo log.
	redoLogSize = "--innodb-log-file-size=16M"
	// installTimeout is far above the seconds that making a data folder takes on a slow disk.
	installTimeout = 3 * time.Minute
	// adminTimeout ends a DROP DATABASE that waits for a transaction which a test left open.
	adminTimeout = time.Minute
)

// MariaDBServer is a mariadbd whose commits are durable: a Restart finds what was committed before a Kill.
type MariaDBServer struct{ *server }

// MariaDB starts a server for this test, which takes about half a second, and ends it with the test. args follow the
// default arguments and override them. A test that doesn't harm its server should use SharedMariaDB.
func MariaDB(t testing.TB, args ...string) *MariaDBServer {
	t.Helper()
	return MariaDBIn(t, "", args...)
}

// MariaDBIn is MariaDB with all of the server's files below folder, for example on a small disk. The folder's path
// should be short, because the path of a socket is limited. If folder is empty, the files are in the default folder for
// temporary files.
func MariaDBIn(t testing.TB, folder string, args ...string) *MariaDBServer {
	t.Helper()
	s := newMariaDB(t, folder, args...)
	s.startFor(t)
	return s
}

// Running reports whether the process still runs: it has neither exited nor been killed.
func (s *MariaDBServer) Running() bool { return s.alive.Err() == nil }

// RestartWith is Restart with more arguments, which override the earlier ones.
func (s *MariaDBServer) RestartWith(args ...string) {
	s.owner().Helper()
	s.args = append(s.args, args...)
	s.Restart()
}

// NewDatabase makes an empty utf8mb4 database with a user of its own, and drops both when t ends.
// It returns the URL in the form of the settings: mysql://user:password@127.0.0.1:port/database.
func (s *MariaDBServer) NewDatabase(t testing.TB) string {
	t.Helper()
	name := "flashsale_" + strings.ToLower(rand.Text())[:12]
	password := rand.Text()
	account := name + "@'127.0.0.1'"
	must(t, "make a database", s.admin("CREATE DATABASE "+name+" CHARACTER SET utf8mb4;"+
		"CREATE USER "+account+" IDENTIFIED BY '"+password+"';"+
		"GRANT ALL ON "+name+".* TO "+account))
	t.Cleanup(func() {
		if s.alive.Err() != nil {
			return // the test killed the server, and the data folder is removed with the server
		}
		if err := s.admin("DROP DATABASE " + name + "; DROP USER " + account); err != nil {
			pace.Errorf(t, "drop the test's database: %v", err) // the server may stand still
		}
	})
	return fmt.Sprintf("mysql://%s:%s@%s/%s", name, password, s.Addr(), name)
}

// Socket returns the path of the server's socket.
func (s *MariaDBServer) Socket() string { return socket(s.dir) }

// Root returns a connection pool with all privileges, for what only an administrator can do. It closes with the test.
func (s *MariaDBServer) Root(t testing.TB) *sql.DB {
	t.Helper()
	db, err := s.root()
	must(t, "connect as root", err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// admin runs statements as root.
func (s *MariaDBServer) admin(statements string) error {
	db, err := s.root()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(s.alive, adminTimeout)
	defer cancel()
	_, err = db.ExecContext(ctx, statements)
	return err
}

func (s *MariaDBServer) root() (*sql.DB, error) {
	config := mysql.NewConfig()
	// Also if the server takes no connections without encryption over TCP. Another server's socket has another path.
	config.User, config.Net, config.Addr = "root", "unix", socket(s.dir)
	config.MultiStatements = true
	config.Logger = &mysql.NopLogger{} // connection errors before the server is up are expected
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// newMariaDB returns a server that is not started yet.
func newMariaDB(t testing.TB, folder string, args ...string) *MariaDBServer {
	t.Helper()
	s := &MariaDBServer{newServer(t, "mariadbd", mariadbPackage, folder)}
	if err := os.CopyFS(filepath.Join(s.dir, "data"), os.DirFS(dataTemplate(t, s.program))); err != nil {
		t.Fatalf("copy the data folder: %v", errors.Join(err, os.RemoveAll(s.dir)))
	}
	s.answers = s.ping
	s.args = slices.Concat(commonArgs(s.dir), []string{
		"--socket=" + socket(s.dir),
		"--bind-address=127.0.0.1",
		"--skip-name-resolve", // the server then matches root@127.0.0.1 without DNS
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size=128M",
		"--max-connections=500", // enough for several instances with full pools in parallel tests
	}, args)
	return s
}

func (s *MariaDBServer) ping(ctx context.Context) error {
	db, err := s.root()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.PingContext(ctx)
}

// dataTemplate returns a data folder made by mariadb-install-db, which runs once per machine and version. The rename
// publishes the folder as a whole, so test processes that run at the same time never see half of it.
func dataTemplate(t testing.TB, mariadbd string) string {
	t.Helper()
	install := find(t, "mariadb-install-db", mariadbPackage)
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	version, err := exec.CommandContext(ctx, mariadbd, "--version").Output()
	must(t, "ask MariaDB for its version", err)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // no home directory
	}
	key := sha256.Sum256(append(version, redoLogSize...))
	template := filepath.Join(cache, fmt.Sprintf("flashsale-mariadb-template-%x-%d", key[:6], os.Getuid()))
	if _, err := os.Stat(template); err == nil {
		return template
	}

	must(t, "make the folder of the MariaDB template", os.MkdirAll(cache, 0o700))
	building, err := os.MkdirTemp(cache, "flashsale-mariadb-building-") //nolint:usetesting // it is renamed into the cache
	must(t, "make the MariaDB template", err)
	defer func() { _ = os.RemoveAll(building) }()
	cmd := exec.CommandContext(ctx, install,
		append(commonArgs(building), "--auth-root-authentication-method=normal", "--skip-test-db")...)
	runtime.LockOSThread() // see runChild
	defer runtime.UnlockOSThread()
	dieWithParent(cmd)
	cmd.WaitDelay = time.Second // after the timeout, child processes of the script may keep the output open
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v; it printed:\n%s", install, err, output)
	}
	if err := os.Rename(filepath.Join(building, "data"), template); !errors.Is(err, fs.ErrExist) {
		must(t, "publish the MariaDB template", err)
	}
	return template
}

// socket returns a short path: the kernel limits the path of a socket to about a hundred bytes.
func socket(dir string) string { return filepath.Join(dir, "s") }

// asRoot is an argument without which MariaDB refuses to run as root.
const asRoot = "--user=root"

// commonArgs returns the arguments that both the server and mariadb-install-db get. They exclude the machine's own
// settings. Each server has a tmpdir of its own, because a starting server removes the files that it finds there.
func commonArgs(dir string) []string {
	args := []string{
		"--no-defaults",
		"--datadir=" + filepath.Join(dir, "data"),
		"--tmpdir=" + dir,
		"--skip-log-bin",
		redoLogSize,
	}
	if os.Getuid() == 0 {
		args = append(args, asRoot)
	}
	return args
}
