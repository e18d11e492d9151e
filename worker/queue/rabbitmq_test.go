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
	"flashsale/test/kit/check"
)

// rabbitTest is a queue with its own name on a server, and a channel for the test.
type rabbitTest struct {
	*RabbitMQ
	server  *kit.RabbitMQServer
	channel *amqp.Channel
}

func newRabbit(t *testing.T, server *kit.RabbitMQServer) rabbitTest {
	t.Helper()
	q := NewRabbitMQ(server.URL(), slog.New(slog.DiscardHandler))
	q.name = "test-" + model.NewSaleID()
	t.Cleanup(func() { _ = q.Close() })
	return rabbitTest{q, server, rabbitChannel(t, server)}
}

// publishOne publishes one entry.
func (q rabbitTest) publishOne(t *testing.T) error {
	t.Helper()
	saleID := model.NewSaleID()
	return q.Publish(t.Context(), saleID, []model.Entry{entry(saleID, "u-1", "key", 1)})
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	server := kit.RabbitMQ(t)
	for name, test := range map[string]func(*testing.T, rabbitTest){
		"a delay wakes one instance, not too early": testDelayWakesOne,
		"a queue of delays ends by itself":          testDelayQueueEnds,
		"no queue to publish to":                    testNoQueueToPublishTo,
		"the queue is deleted under its consumer":   testQueueDeletedUnderItsConsumer,
		"passwords stay secret":                     testPasswordsStaySecret,
		"confirmed messages are durable":            testConfirmedMessagesAreDurable,
		"reach makes no queue":                      testReach,
	} {
		t.Run(name, func(t *testing.T) { test(t, newRabbit(t, server)) })
	}
}

func testDelayWakesOne(t *testing.T, one rabbitTest) {
	two := newRabbit(t, one.server)
	two.name = one.name
	woken := func() {
		t.Helper()
		select {
		case <-one.Wakes():
		case <-two.Wakes():
		case <-time.After(check.Patience):
			t.Fatal("nobody was woken")
		}
	}
	const delay = 300 * time.Millisecond
	start := time.Now()
	check.NoError(t, one.Delay(t.Context(), delay))
	for _, q := range []rabbitTest{one, two} { // consumes until the test ends
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- q.Consume(ctx, func(context.Context, string, []model.Entry) error { return nil }) }()
		t.Cleanup(func() {
			cancel()
			check.Error(t, "the consumer", <-ended, nil)
		})
	}
	woken()
	if took := time.Since(start); took < delay {
		t.Errorf("woken after %s, too early", took)
	}
	// A second delay of the same length ends after a second wake-up for the first delay would have come.
	check.NoError(t, two.Delay(t.Context(), delay))
	woken()
	check.Same(t, "wake-ups too many", len(one.Wakes())+len(two.Wakes()), 0)
}

func testDelayQueueEnds(t *testing.T, q rabbitTest) {
	check.NoError(t, errors.Join(q.Delay(t.Context(), 1234*time.Millisecond), q.Ping(t.Context())))
	// The broker refuses another declaration of the queue, and names the time to live that the queue has.
	_, err := q.channel.QueueDeclare(q.name+".wait.1234", true, false, false, false, amqp.Table{amqp.QueueTTLArg: 1})
	var refusal *amqp.Error
	if !errors.As(err, &refusal) || refusal.Code != amqp.PreconditionFailed || !strings.Contains(refusal.Reason, "61234") {
		t.Errorf("the queue of delays has no time to live, or does not exist: %v", err)
	}
}

// An operator has deleted the queue. The broker would confirm and drop a message, which must not count as published. The
// next call makes the queue again.
func testNoQueueToPublishTo(t *testing.T, q rabbitTest) {
	check.NoError(t, q.publishOne(t))
	_, err := q.channel.QueueDelete(q.name, false, false, false)
	check.NoError(t, err)
	check.Error(t, "published without a queue", q.publishOne(t), errNotTaken)
	check.NoError(t, q.publishOne(t))
	if state, err := q.channel.QueueDeclarePassive(q.name, true, false, false, false, nil); err != nil || state.Messages != 1 {
		t.Errorf("the queue holds %d messages, %v", state.Messages, err)
	}
}

func testQueueDeletedUnderItsConsumer(t *testing.T, q rabbitTest) {
	check.NoError(t, q.publishOne(t))
	err := q.Consume(t.Context(), func(context.Context, string, []model.Entry) error {
		_, err := q.channel.QueueDelete(q.name, false, false, false)
		return err
	})
	if err == nil || t.Context().Err() != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Errors are logged, so they must not contain passwords.
func testPasswordsStaySecret(t *testing.T, q rabbitTest) {
	for name, address := range map[string]string{
		"refused": q.server.Addr(), "nobody listens": "127.0.0.1:1", "no such host": "no-such-host.invalid",
	} {
		t.Run(name, func(t *testing.T) {
			q := NewRabbitMQ("amqp://guest:open-sesame@"+address+"/", slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), check.Patience)
			defer cancel()
			for _, err := range []error{q.Consume(ctx, nil), q.Reach(ctx)} {
				if err == nil || strings.Contains(err.Error(), "open-sesame") {
					t.Error(err)
				}
			}
		})
	}
}

func testConfirmedMessagesAreDurable(t *testing.T, q rabbitTest) {
	saleID := model.NewSaleID()
	messages := make([]model.Entry, 100)
	for i := range messages {
		messages[i] = entry(saleID, "u-1", "key", i)
	}
	check.NoError(t, q.Publish(t.Context(), saleID, messages))
	q.server.Kill()
	q.server.Restart()
	got := map[string]bool{} // by stream id, since a message may come twice
	consumeUntil(t, q, func(_ string, entries []model.Entry) bool {
		for _, e := range entries {
			got[e.StreamID] = true
		}
		return len(got) == len(messages)
	})
}

// Reach connects without making a queue, and fails when the broker is dead.
func testReach(t *testing.T, q rabbitTest) {
	check.NoError(t, q.Reach(t.Context()))
	if _, err := q.channel.QueueDeclarePassive(q.name, true, false, false, false, nil); err == nil {
		t.Error("the queue exists")
	}
	q.server.Kill()
	defer q.server.Restart()
	if q.Reach(t.Context()) == nil {
		t.Error("a dead broker was reached")
	}
}
