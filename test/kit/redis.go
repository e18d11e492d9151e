package kit

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

// RedisServer is a redis-server that writes nothing to disk unless its arguments say so: a Restart starts it empty.
type RedisServer struct{ *server }

// Redis starts a server for this test, which takes about 15 ms, and ends it with the test. args are arguments of
// redis-server; they follow the default arguments and override them.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	s, err := startRedis(args)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Errorf("end Redis: %v", err)
		}
	})
	return s
}

// URL returns the server's address in the form of the settings.
func (s *RedisServer) URL() string { return "redis://" + s.Addr() + "/0" }

// Dir returns the server's own folder, which holds what the server writes to disk.
func (s *RedisServer) Dir() string { return s.dir }

func startRedis(more []string) (*RedisServer, error) {
	program, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flashsale-redis-")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	s := &RedisServer{&server{
		program: program,
		dir:     dir,
		args:    append([]string{"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}, more...),
	}}
	s.answers = s.ping
	return s, s.start()
}

// ping also checks the process id: another server may have taken the port first.
func (s *RedisServer) ping(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	// ctx also ends when the child exits, which a deadline alone would not detect.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return err
	}
	reply, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	id := fmt.Sprintf("\r\nprocess_id:%d\r\n", s.cmd.Process.Pid)
	if !strings.HasPrefix(string(reply), "+PONG\r\n") || !strings.Contains(string(reply), id) {
		return fmt.Errorf("not our Redis on %s: %.100q", s.Addr(), reply)
	}
	return nil
}
