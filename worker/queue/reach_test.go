package queue

import (
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"flashsale/test/kit"
)

// To see whether a broker is there makes no queues in it.
func TestReach(t *testing.T) {
	t.Parallel()
	server := kit.RabbitMQ(t)
	q := NewRabbitMQ(server.URL(), slog.New(slog.DiscardHandler))
	if err := q.Reach(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.QueueDeclarePassive(attempts, true, false, false, false, nil); err == nil {
		t.Error("the queue is there now")
	}
	stranger := NewRabbitMQ(strings.Replace(server.URL(), "guest:guest", "guest:hunter2", 1), slog.New(slog.DiscardHandler))
	if err := stranger.Reach(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("with a wrong password: %v", err)
	}
	server.Kill()
	if err := q.Reach(t.Context()); err == nil {
		t.Error("a dead broker was reached")
	}
}
