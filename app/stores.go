package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/internal/embedded"
	"flashsale/internal/tracing"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/worker"
	"flashsale/worker/queue"
)

// Stores are the database, the Redis and the queue.
type Stores struct {
	Database *repository.Store
	Redis    redis.UniversalClient
	Replicas redis.UniversalClient // nil: no replicas are read
	Embedded *embedded.Redis       // nil if Redis runs outside this process
	Queue    worker.Queue          // nil: there is none between the gate's stream and the settlers
}

// OpenStores opens the stores, without the queue. traced records calls of the stores; it may be nil.
func OpenStores(ctx context.Context, s *config.Settings, traced *tracing.Tracing) (st *Stores, err error) {
	st = &Stores{}
	if st.Database, err = repository.OpenBy(ctx, s.Database, s.DBMaxConns, traced.OpenDB); err != nil {
		return nil, err
	}
	if err := st.OpenRedis(s.Redis); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if err := traced.WatchRedis(st.Redis); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if s.RedisReplicas != "" {
		if st.Replicas, err = gate.ConnectReplicas(s.RedisReplicas); err != nil {
			return nil, errors.Join(fmt.Errorf("--redis-replicas: %w", err), st.Close())
		}
	}
	return st, nil
}

// OpenRunning opens the stores for a command. The gate gets the command's name in place of an instance's id. The gate is nil if
// Redis is embedded in the server's process, which commands can't reach. OpenRunning fails if the database has another schema.
func OpenRunning(ctx context.Context, s config.Settings, command string) (*Stores, *gate.Gate, error) {
	if s.Redis == config.EmbeddedRedis {
		s.RedisReplicas = ""
	}
	st, err := OpenStores(ctx, &s, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := st.Database.CheckSchema(ctx); err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	if st.Embedded != nil {
		return st, nil, nil
	}
	return st, gate.New(st.Redis, command), nil
}

// Auditor makes an auditor. If g is nil, it checks the database alone.
func (st *Stores) Auditor(g *gate.Gate) *service.Auditor {
	if g == nil {
		return &service.Auditor{Store: st.Database}
	}
	return &service.Auditor{Store: st.Database, Gate: g}
}

// OpenRedis makes the Redis client without connecting it. If url asks for the embedded Redis, OpenRedis starts that.
func (st *Stores) OpenRedis(url string) (err error) {
	quietRedis()
	if url == config.EmbeddedRedis {
		if st.Embedded, err = embedded.StartRedis(); err != nil {
			return err
		}
		url = st.Embedded.URL()
	}
	if st.Redis, err = gate.Connect(url); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// OpenQueue makes the queue that the settings name; with redis-stream there is none. The broker may start later.
func (st *Stores) OpenQueue(s *config.Settings, instance string, log *slog.Logger) error {
	switch s.Queue {
	case "redis-list":
		st.Queue = queue.NewRedisList(st.Redis, instance, log)
	case "rabbitmq":
		st.Queue = queue.NewRabbitMQ(s.QueueURL, log)
	case "kafka":
		kafka, err := queue.NewKafka(s.QueueBrokers(), instance, log)
		if err != nil {
			return err
		}
		st.Queue = kafka
	}
	return nil
}

// Close closes the queue, then the stores.
func (st *Stores) Close() error {
	var err error
	if st.Queue != nil {
		err = st.Queue.Close()
	}
	for _, client := range []redis.UniversalClient{st.Redis, st.Replicas} {
		if client != nil {
			err = errors.Join(err, client.Close())
		}
	}
	if st.Embedded != nil {
		st.Embedded.Close()
	}
	if st.Database != nil {
		err = errors.Join(err, st.Database.Close())
	}
	return err
}

var quietRedis = sync.OnceFunc(logging.Disable)

// SecretOf returns the secret in the settings, or else the one in a file beside the SQLite database. If there is neither, it
// makes the file with a new secret if mayMake is true, else it returns an error. Commands don't set mayMake: no server would
// accept what a command signs with a new secret.
func SecretOf(s *config.Settings, mayMake bool) (string, error) {
	if s.Secret != "" {
		return s.Secret, nil
	}
	database, _ := s.SQLitePath()
	path := strings.TrimSuffix(database, filepath.Ext(database)) + ".secret"
	kept, err := os.ReadFile(path) //nolint:gosec // the path is beside the database that the operator named
	switch secret := strings.TrimSpace(string(kept)); {
	case err == nil && len(secret) < config.MinSecret:
		return "", fmt.Errorf("--secret: %s has %d bytes, needs at least %d", path, len(secret), config.MinSecret)
	case err == nil:
		return secret, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the secret: %w", err)
	case !mayMake:
		return "", errors.New("--secret: not set, and no server has kept one beside the database; start one first")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("make the folder of the secret: %w", err)
	}
	var fresh [32]byte
	_, _ = rand.Read(fresh[:]) // documented never to fail
	made := fmt.Sprintf("%x", fresh)
	if err := os.WriteFile(path, []byte(made+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the secret: %w", err)
	}
	return made, nil
}

func newLog(s *config.Settings, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.LogLevel)) // an empty level means info
	opts := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "text" || s.LogFormat != "json" && IsTerminal(w) {
		return slog.New(tracing.Logs(slog.NewTextHandler(w, opts)))
	}
	return slog.New(tracing.Logs(slog.NewJSONHandler(w, opts)))
}

// IsTerminal reports whether w is a terminal, or another character device.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
