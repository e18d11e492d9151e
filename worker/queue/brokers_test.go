package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// startRedisList starts a Redis for each test, besides the Redis of the gate.
func startRedisList(testing.TB) func(testing.TB) *broker {
	return func(t testing.TB) *broker {
		t.Helper()
		server := kit.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
		client := kit.RedisClient(t, server.URL())
		return &broker{
			kind: "redis-list", address: server.URL(), down: server.Kill, up: server.Restart, freeze: server.Stop, thaw: server.Continue,
			send: func(t *testing.T, message string) {
				check.NoError(t, client.LPush(t.Context(), listKey(), message).Err())
			},
			dead: func(t *testing.T) []string {
				all, err := client.LRange(t.Context(), deadListKey(), 0, -1).Result()
				check.NoError(t, err)
				return all
			},
		}
	}
}

// startRabbitMQ starts a server, on which each test has its own queues.
func startRabbitMQ(t testing.TB) func(testing.TB) *broker {
	server := kit.RabbitMQ(t)
	return func(t testing.TB) *broker {
		t.Helper()
		name := "test-" + model.NewSaleID()
		var dead []string
		return &broker{
			kind: "rabbitmq", address: server.URL() + "#" + name, down: server.Kill, up: server.Restart, freeze: server.Stop, thaw: server.Continue,
			send: func(t *testing.T, message string) {
				c := rabbitChannel(t, server)
				check.NoError(t, c.PublishWithContext(t.Context(), "", name, true, false, persistent([]byte(message))))
			},
			dead: func(t *testing.T) []string {
				c := rabbitChannel(t, server)
				for {
					d, ok, err := c.Get(name+".dead", true)
					check.NoError(t, err)
					if !ok {
						return dead
					}
					dead = append(dead, string(d.Body))
				}
			},
		}
	}
}

func rabbitChannel(t *testing.T, server *kit.RabbitMQServer) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(server.URL())
	check.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	check.NoError(t, err)
	return channel
}

// startKafka starts a cluster in this process for each test. The cluster keeps its log on disk.
func startKafka(testing.TB) func(testing.TB) *broker {
	return func(t testing.TB) *broker {
		t.Helper()
		ice := &sync.RWMutex{}
		listen := func(network, address string) (net.Listener, error) {
			l, err := new(net.ListenConfig).Listen(context.Background(), network, address)
			return frozen{l, ice}, err
		}
		dir, port := t.TempDir(), 0
		var cluster *kfake.Cluster
		launch := func() (err error) {
			cluster, err = kfake.NewCluster(kfake.DataDir(dir), kfake.SyncWrites(), kfake.Ports(port), kfake.ListenFn(listen))
			return err
		}
		up := func() {
			check.NoError(t, launch())
		}
		err := errors.New("no port is chosen yet")
		for try := 0; err != nil && try < 100; try++ {
			port = 10000 + rand.IntN(9000) // below the ports of outgoing connections, so it is still free when the cluster restarts
			err = launch()
		}
		check.NoError(t, err)
		t.Cleanup(func() { cluster.Close() })
		address := cluster.ListenAddrs()[0]
		const name = "test"
		client := sync.OnceValue(func() *kgo.Client {
			client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(name+".dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			check.NoError(t, err)
			t.Cleanup(client.Close)
			return client
		})
		var dead []string
		return &broker{
			kind: "kafka", address: address + "#" + name, down: func() { cluster.Close() }, up: up, freeze: ice.Lock, thaw: ice.Unlock,
			send: func(t *testing.T, message string) {
				check.NoError(t, client().ProduceSync(t.Context(), &kgo.Record{Topic: name, Value: []byte(message)}).FirstErr())
			},
			dead: func(t *testing.T) []string {
				ctx, cancel := context.WithTimeout(t.Context(), check.Patience)
				defer cancel()
				fetches := client().PollFetches(ctx)
				if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				for _, r := range fetches.Records() {
					dead = append(dead, string(r.Value))
				}
				return dead
			},
		}
	}
}

// frozen is a listener whose connections write nothing while the ice is locked.
type frozen struct {
	net.Listener
	ice *sync.RWMutex
}

func (f frozen) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	return frozenConn{conn, f.ice}, err
}

type frozenConn struct {
	net.Conn
	ice *sync.RWMutex
}

func (c frozenConn) Write(b []byte) (int, error) {
	c.ice.RLock()
	defer c.ice.RUnlock()
	return c.Conn.Write(b)
}
