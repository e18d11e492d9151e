package queue

import (
	"context"
	"errors"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Reach connects to the broker and leaves again. Unlike Ping it makes no queues where they are missing.
func (q *RabbitMQ) Reach(ctx context.Context) error {
	letGo := func() bool { return true }
	conn, err := amqp.DialConfig(q.url, amqp.Config{
		Heartbeat: amqpHeartbeat,
		Dial: func(network, address string) (net.Conn, error) {
			socket, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				letGo = context.AfterFunc(ctx, func() { _ = socket.Close() })
			}
			return socket, err
		},
	})
	letGo()
	if err != nil {
		return fmt.Errorf("connect to RabbitMQ: %w", errors.Join(err, ctx.Err()))
	}
	return conn.Close()
}
