package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// servers knows which Redis answers. A gate carries the run id of the process that it was installed on; found on
// another, it has come from a disk or a replica, and may be older than what was sold since: it admits nothing. A
// connection that had to be made anew is the sign that it may be another process.
type servers struct {
	client  redis.UniversalClient
	dialled atomic.Bool
	mu      sync.Mutex // one asks, and whoever comes meanwhile waits: what was known before may be wrong
	id      string
}

func newServers(client redis.UniversalClient) *servers {
	s := &servers{client: client}
	if _, cluster := client.(*redis.ClusterClient); !cluster { // many processes; a gate there is trusted
		s.dialled.Store(true)
		client.AddHook(s)
	}
	return s
}

// current gives the run id of Redis; empty if it has none, as the one inside the process.
func (s *servers) current(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialled.Swap(false) {
		id, err := serverInfo(ctx, s.client, "run_id")
		if err != nil {
			s.dialled.Store(true)
			return "", err
		}
		s.id = id
	}
	return s.id, nil
}

// serverInfo asks for a field of INFO's section server. The Redis inside the process doesn't know the question: empty.
func serverInfo(ctx context.Context, client redis.UniversalClient, field string) (string, error) {
	info, err := client.Info(ctx, "server").Result()
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.Contains(refusal.Error(), "not supported") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("ask Redis who it is: %w", err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// DialHook notes that a connection was made.
func (s *servers) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		s.dialled.Store(true)
		return conn, err
	}
}

// ProcessHook leaves commands as they are.
func (*servers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook leaves pipelines as they are.
func (*servers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
