package queue

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"flashsale/model"
	"flashsale/test/kit"
)

// rabbit is a queue of its own on a server, with a channel for the test.
func rabbit(t *testing.T, server *kit.RabbitMQServer) (*RabbitMQ, *amqp.Channel) {
	t.Helper()
	q := NewRabbitMQ(server.URL(), slog.New(slog.DiscardHandler))
	q.name = "test-" + model.NewSaleID()
	t.Cleanup(func() { _ = q.Close() })
	conn, err := amqp.Dial(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return q, channel
}

// consuming runs a consumer until the test ends.
func consuming(t *testing.T, q *RabbitMQ) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- q.Consume(ctx, func(context.Context, string, []model.Entry) error { return nil })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the consumer ended with %v", err)
		}
	})
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	server := kit.RabbitMQ(t)
	for name, test := range map[string]func(*testing.T, *kit.RabbitMQServer){
		"a delay wakes one instance, not too early": testDelayWakesOne,
		"a queue of delays ends by itself":          testDelayQueueEnds,
		"no queue to publish to":                    testNoQueueToPublishTo,
		"the queue is deleted under its consumer":   testQueueDeletedUnderItsConsumer,
		"passwords stay secret":                     testPasswordsStaySecret,
		"confirmed messages are durable":            testConfirmedMessagesAreDurable,
	} {
		t.Run(name, func(t *testing.T) { test(t, server) })
	}
}

func testDelayWakesOne(t *testing.T, server *kit.RabbitMQServer) {
	one, _ := rabbit(t, server)
	two, _ := rabbit(t, server)
	two.name = one.name
	const delay = 300 * time.Millisecond
	start := time.Now()
	if err := one.Delay(t.Context(), delay); err != nil {
		t.Fatal(err)
	}
	consuming(t, one)
	consuming(t, two)
	select {
	case <-one.Wakes():
	case <-two.Wakes():
	case <-time.After(patience):
		t.Fatal("nobody was woken")
	}
	if took := time.Since(start); took < delay {
		t.Errorf("woken after %s, too early", took)
	}
	// Another delay of the same length comes after what the first one could still bring.
	if err := two.Delay(t.Context(), delay); err != nil {
		t.Fatal(err)
	}
	select {
	case <-one.Wakes():
	case <-two.Wakes():
	case <-time.After(patience):
		t.Fatal("nobody was woken the second time")
	}
	select {
	case <-one.Wakes():
		t.Error("woken once too often")
	case <-two.Wakes():
		t.Error("woken once too often")
	default:
	}
}

func testDelayQueueEnds(t *testing.T, server *kit.RabbitMQServer) {
	q, channel := rabbit(t, server)
	if err := q.Delay(t.Context(), 1234*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := q.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Declared otherwise than it was, the broker says what it was.
	_, err := channel.QueueDeclare(q.name+".wait.1234", true, false, false, false, amqp.Table{amqp.QueueTTLArg: 1})
	var refusal *amqp.Error
	if !errors.As(err, &refusal) || refusal.Code != amqp.PreconditionFailed || !strings.Contains(refusal.Reason, "61234") {
		t.Errorf("the queue of delays lives on, or was never there: %v", err)
	}
}

// testNoQueueToPublishTo: an operator has deleted the queue. The broker would confirm, and drop, what is published; that
// must not count as published. The next call makes the queue again.
func testNoQueueToPublishTo(t *testing.T, server *kit.RabbitMQServer) {
	q, channel := rabbit(t, server)
	saleID := model.NewSaleID()
	one := []model.Entry{entry(saleID, "u-1", "key", 1)}
	if err := q.Publish(t.Context(), saleID, one); err != nil {
		t.Fatal(err)
	}
	if _, err := channel.QueueDelete(q.name, false, false, false); err != nil {
		t.Fatal(err)
	}
	if err := q.Publish(t.Context(), saleID, one); !errors.Is(err, errNotTaken) {
		t.Errorf("published to nowhere: %v", err)
	}
	if err := q.Publish(t.Context(), saleID, one); err != nil {
		t.Error(err)
	}
	if state, err := channel.QueueDeclarePassive(q.name, true, false, false, false, nil); err != nil || state.Messages != 1 {
		t.Errorf("the queue holds %d messages, %v", state.Messages, err)
	}
}

func testQueueDeletedUnderItsConsumer(t *testing.T, server *kit.RabbitMQServer) {
	q, channel := rabbit(t, server)
	saleID := model.NewSaleID()
	if err := q.Publish(t.Context(), saleID, []model.Entry{entry(saleID, "u-1", "key", 1)}); err != nil {
		t.Fatal(err)
	}
	err := q.Consume(t.Context(), func(context.Context, string, []model.Entry) error {
		_, err := channel.QueueDelete(q.name, false, false, false)
		return err
	})
	if err == nil || t.Context().Err() != nil {
		t.Errorf("it ended with %v", err)
	}
}

// testPasswordsStaySecret: errors go to the log.
func testPasswordsStaySecret(t *testing.T, server *kit.RabbitMQServer) {
	for name, url := range map[string]string{
		"refused": "amqp://guest:open-sesame@" + server.Addr() + "/",
		"nobody":  "amqp://guest:open-sesame@127.0.0.1:1/",
		"no host": "amqp://guest:open-sesame@no-such-host.invalid/",
	} {
		t.Run(name, func(t *testing.T) {
			q := NewRabbitMQ(url, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := q.Consume(ctx, func(context.Context, string, []model.Entry) error { return nil })
			if err == nil || strings.Contains(err.Error(), "open-sesame") {
				t.Error(err)
			}
		})
	}
}

func testConfirmedMessagesAreDurable(t *testing.T, server *kit.RabbitMQServer) {
	q, _ := rabbit(t, server)
	saleID := model.NewSaleID()
	want := make([]model.Entry, 100)
	for i := range want {
		want[i] = entry(saleID, "u-1", "key", i)
	}
	if err := q.Publish(t.Context(), saleID, want); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Restart()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n := 0
	if err := q.Consume(ctx, func(_ context.Context, _ string, entries []model.Entry) error {
		if n += len(entries); n == len(want) {
			cancel()
		}
		return nil
	}); err != nil || n != len(want) {
		t.Errorf("%d of %d are there, %v", n, len(want), err)
	}
}
