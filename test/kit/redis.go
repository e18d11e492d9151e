package kit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

// RedisServer is a redis-server that writes nothing to disk unless its arguments say so: a Restart starts it empty.
type RedisServer struct{ *server }

// Redis starts a server for this test, which takes about 15 ms, and ends it with the test. args are arguments of
// redis-server; they follow the default arguments and override them.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	s := newRedis(t)
	s.args = append([]string{"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir}, args...)
	s.startFor(t)
	return s
}

// newRedis returns a server that lacks its arguments.
func newRedis(t testing.TB) *RedisServer {
	t.Helper()
	s := &RedisServer{newServer(t, "redis-server", "redis-server", "")}
	s.answers = s.ping
	return s
}

// URL returns the server's address in the form of the settings.
func (s *RedisServer) URL() string { return "redis://" + s.Addr() + "/0" }

// Dir returns the server's own folder, which holds what the server writes to disk.
func (s *RedisServer) Dir() string { return s.dir }

// ping also checks the process id: another server may have taken the port first. A server that still loads its data
// answers PING with an error.
func (s *RedisServer) ping(ctx context.Context) error {
	return s.exchange(ctx, "PING\r\nINFO server\r\n", func(answer io.Reader) error {
		id := fmt.Sprintf("process_id:%d", s.PID())
		lines := bufio.NewScanner(answer)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "-") {
			if lines.Text() == id {
				return nil
			}
		}
		return fmt.Errorf("not our Redis on %s: %.100q", s.Addr(), lines.Text())
	})
}
