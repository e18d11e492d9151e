package kit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// asChild is the environment variable that makes this binary, run again as a child, act as the test process to watch.
const asChild = "TESTKIT_AS_CHILD"

func TestMain(m *testing.M) { Main(m) }

// However a test process ends, its servers end with it. A regular end also leaves no files behind.
func TestServersEndWithTheTestProcess(t *testing.T) {
	for _, how := range []string{"regular", "killed"} {
		t.Run(how, func(t *testing.T) {
			folder, err := os.MkdirTemp("", "") //nolint:usetesting // the path of t.TempDir is too long for the socket
			must(t, "make a folder", err)
			t.Cleanup(func() { _ = os.RemoveAll(folder) })
			process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsChild$")
			process.Env = append(os.Environ(), asChild+"=1", "TMPDIR="+folder)
			process.Stderr = os.Stderr
			stdin, err := process.StdinPipe()
			must(t, "open the child's input", err)
			stdout, err := process.StdoutPipe()
			must(t, "open the child's output", err)
			must(t, "start the child", process.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			must(t, "read the servers' addresses", err)
			addrs := strings.Fields(line)
			if len(addrs) != 6 {
				t.Fatalf("the child started servers on %q, want 6", addrs)
			}

			if how == "killed" {
				_ = process.Process.Kill()
			}
			_ = stdin.Close() // makes the child's test return
			if err := process.Wait(); (err == nil) != (how == "regular") {
				t.Fatalf("the child ended with %v", err)
			}
			for _, addr := range addrs {
				await(t, "nothing listens on "+addr, func(ctx context.Context) error {
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
					if err != nil {
						return nil //nolint:nilerr // a refused connection is the aim
					}
					return errors.Join(errors.New("a server outlived the test process"), conn.Close())
				})
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
	broker := RabbitMQ(t)
	nginx := Nginx(t, func(folder string, port int) {
		config := fmt.Sprintf(`pid nginx.pid;
events {}
http {
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	scgi_temp_path scgi; uwsgi_temp_path uwsgi; access_log off;
	server { listen 127.0.0.1:%d; }
}`, port)
		must(t, "configure nginx", os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(config), 0o600))
	})
	_, err := fmt.Fprintln(os.Stdout, Redis(t).Addr(), SharedMariaDB(t).Addr(), broker.Addr(), broker.epmd.Addr(),
		nginx.Addr(), Prometheus(t, "global: {scrape_interval: 1s}\n").Addr())
	must(t, "print the servers' addresses", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestStoppedServerAnswersOnlyWhenContinued(t *testing.T) {
	redis := Redis(t)
	for range 2 {
		redis.Stop()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", redis.Addr())
		must(t, "connect to a stopped server", err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "PING\r\n")
		must(t, "send a command", err)
		must(t, "set a deadline", conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		answer := make([]byte, len("+PONG"))
		if _, err := conn.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a stopped server answered %q, %v", answer, err)
		}
		redis.Continue()
		must(t, "set a deadline", conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "+PONG" {
			t.Fatalf("a continued server answered %q, %v", answer, err)
		}
	}
	redis.Stop() // a stopped server can be ended, too
}

// A test's user cannot use another test's database; a database and its user are dropped with the test.
func TestDatabaseBelongsToItsTest(t *testing.T) {
	server := SharedMariaDB(t)
	var name string
	t.Run("in use", func(t *testing.T) {
		db, other := OpenSQL(t, server.NewDatabase(t)), server.NewDatabase(t)
		must(t, "read the name", db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
		_, err := db.ExecContext(t.Context(), "USE "+filepath.Base(other))
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) {
			t.Errorf("another test's database can be used: %v", err)
		}
	})
	var left int
	if err := server.Root(t).QueryRowContext(t.Context(), `SELECT
		(SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?) +
		(SELECT COUNT(*) FROM mysql.user WHERE user = ?)`, name, name).Scan(&left); err != nil || left != 0 {
		t.Fatalf("%d of the database and its user are left, %v", left, err)
	}
}

func TestSharedServerRefusesToBeKilled(t *testing.T) {
	server := SharedMariaDB(t)
	defer func() {
		if recover() == nil {
			t.Error("a test could kill the server that other tests use")
		}
	}()
	server.Kill()
}
