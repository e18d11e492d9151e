package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"flashsale/model"
)

const (
	amqpHeartbeat = 3 * time.Second
	// amqpSetup bounds the setup of a consumer's connection.
	amqpSetup = 3 * time.Second
	// amqpFarewell is how long the orderly close of a connection may take before the socket is closed.
	amqpFarewell = time.Second
	// prefetch is two batches, so that the next one arrives while one is settled.
	prefetch = 2 * batchMost
	// waitMargin is how much longer a wait queue lives than its last message.
	waitMargin = time.Minute
)

// RabbitMQ is a worker.Queue on a durable queue. Messages are persistent, and confirmed to the publisher. Unreadable messages
// are rejected, so that RabbitMQ makes them dead letters. The queues have the default type of the virtual host.
//
// RabbitMQ is also a worker.Delayer: a delayed message stays in a wait queue until its time to live ends, and is then
// dead-lettered to the wake queue.
type RabbitMQ struct {
	url   string
	name  string // of the main queue, and the prefix of the other queues' names
	log   *slog.Logger
	wakes chan struct{}

	publisher chan *link // of capacity 1; a caller takes the link out meanwhile; nil: not connected
}

// NewRabbitMQ returns the queue of one instance. It does not connect, so the broker may start later.
func NewRabbitMQ(url string, log *slog.Logger) *RabbitMQ {
	q := &RabbitMQ{url: url, name: attempts, log: log, wakes: make(chan struct{}, 1), publisher: make(chan *link, 1)}
	q.publisher <- nil
	return q
}

func (q *RabbitMQ) deadName() string { return q.name + ".dead" }
func (q *RabbitMQ) wakeName() string { return q.name + ".wake" }

// link is a connection with one channel.
type link struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	socket  net.Conn
	lost    chan *amqp.Error
	refused chan amqp.Return // messages that the broker has returned
}

// dial connects and gives the link to "prepare". If that fails or ctx ends meanwhile, dial closes the connection and fails.
func (q *RabbitMQ) dial(ctx context.Context, prepare func(*link) error) (*link, error) {
	l := &link{refused: make(chan amqp.Return, batchMost)}
	letGo := func() bool { return true }
	conn, err := amqp.DialConfig(q.url, amqp.Config{
		Heartbeat: amqpHeartbeat,
		Dial: func(network, address string) (_ net.Conn, err error) {
			if l.socket, err = new(net.Dialer).DialContext(ctx, network, address); err == nil {
				letGo = l.cutWith(ctx)
			}
			return l.socket, err
		},
	})
	if err == nil {
		l.conn = conn
		if err = prepare(l); err != nil {
			l.close()
		}
	}
	letGo()
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", errors.Join(err, ctx.Err()))
	}
	return l, nil
}

// open opens the channel, creates missing queues, and has the broker confirm messages.
func (q *RabbitMQ) open(l *link) (err error) {
	if l.channel, err = l.conn.Channel(); err != nil {
		return err
	}
	l.lost = l.channel.NotifyClose(make(chan *amqp.Error, 1))
	l.channel.NotifyReturn(l.refused)
	for name, args := range map[string]amqp.Table{
		q.name:       {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": q.deadName()},
		q.deadName(): {amqp.QueueMaxLenArg: deadMost},
		q.wakeName(): {amqp.QueueMaxLenArg: deadMost},
	} {
		if _, err := l.channel.QueueDeclare(name, true, false, false, false, args); err != nil {
			return err
		}
	}
	return l.channel.Confirm(false)
}

// cutWith closes the socket when ctx ends, unless letGo was called before. Many calls of the library observe no context.
func (l *link) cutWith(ctx context.Context) (letGo func() bool) {
	return context.AfterFunc(ctx, func() { _ = l.socket.Close() })
}

// close closes the connection, if there is a link.
func (l *link) close() {
	if l == nil {
		return
	}
	defer time.AfterFunc(amqpFarewell, func() { _ = l.socket.Close() }).Stop()
	_ = l.conn.Close() // the connection may be lost already
}

// publishing runs "call" on the publisher's connection, one caller at a time. It connects if needed, and closes the connection
// if the call fails. "doing" says in the error what the call does.
func (q *RabbitMQ) publishing(ctx context.Context, doing string, call func(*link) error) (err error) {
	var l *link
	select {
	case l = <-q.publisher:
		defer func() { q.publisher <- l }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if l == nil || l.channel.IsClosed() {
		l.close()
		if l, err = q.dial(ctx, q.open); err != nil {
			return err
		}
	}
	defer l.cutWith(ctx)()
	if err = call(l); err != nil {
		l.close()
		l = nil
		return fmt.Errorf("%s: %w", doing, errors.Join(err, ctx.Err()))
	}
	return nil
}

// Publish implements worker.Queue. It takes at most batchMost entries, since l.refused has room for as many.
func (q *RabbitMQ) Publish(ctx context.Context, _ string, entries []model.Entry) error {
	return q.publishing(ctx, "publish to RabbitMQ", func(l *link) error {
		confirms := make([]*amqp.DeferredConfirmation, len(entries))
		for i, e := range entries {
			confirm, err := l.channel.PublishWithDeferredConfirm("", q.name, true, false, persistent(encode(e)))
			if err != nil {
				return err
			}
			confirms[i] = confirm
		}
		for _, confirm := range confirms {
			if taken, err := confirm.WaitContext(ctx); err != nil || !taken {
				return errors.Join(err, errNotTaken)
			}
		}
		select {
		case r := <-l.refused: // a return comes before the confirm of its message
			return fmt.Errorf("%w: %s", errNotTaken, r.ReplyText)
		default:
			return nil
		}
	})
}

// errNotTaken means that the broker did not confirm a message, or had no queue for it.
var errNotTaken = errors.New("not taken by the broker")

func persistent(body []byte) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, ContentType: "text/plain", Body: body}
}

// Consume implements worker.Queue.
func (q *RabbitMQ) Consume(ctx context.Context, settle settleFunc) error {
	var messages, wakes <-chan amqp.Delivery
	setup, cancel := context.WithTimeout(ctx, amqpSetup)
	l, err := q.dial(setup, func(l *link) error {
		err := q.open(l)
		if err == nil {
			err = l.channel.Qos(prefetch, 0, false)
		}
		if err == nil {
			messages, err = l.channel.Consume(q.name, "", false, false, false, false, nil)
		}
		if err == nil {
			wakes, err = l.channel.Consume(q.wakeName(), "", true, false, false, false, nil)
		}
		return err
	})
	cancel()
	if err != nil {
		return err
	}
	// The library's channel of deliveries is unbuffered. Copy them to a buffered one, so that a batch has those that have arrived.
	ready := make(chan amqp.Delivery, prefetch)
	var copying sync.WaitGroup
	copying.Go(func() {
		defer close(ready)
		for d := range messages {
			ready <- d
		}
	})
	defer copying.Wait()
	defer l.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-wakes:
			if !ok {
				return l.lostError()
			}
			select {
			case q.wakes <- struct{}{}:
			default: // a wake-up is pending
			}
		case d, ok := <-ready:
			if !ok {
				return l.lostError()
			}
			batch := []amqp.Delivery{d}
			for len(ready) > 0 && len(batch) < batchMost {
				batch = append(batch, <-ready)
			}
			if err := q.handle(ctx, batch, settle); err != nil {
				return err
			}
		}
	}
}

func (l *link) lostError() error {
	select {
	case reason := <-l.lost:
		if reason != nil {
			return fmt.Errorf("consume from RabbitMQ: %w", reason)
		}
	default:
	}
	return errors.New("consume from RabbitMQ: the queue is gone")
}

// handle settles a batch of deliveries, rejects unreadable ones and acknowledges the others.
func (q *RabbitMQ) handle(ctx context.Context, batch []amqp.Delivery, settle settleFunc) error {
	settled, dead, err := handOn(ctx, batch, func(d amqp.Delivery) []byte { return d.Body }, settle, q.log)
	if err != nil {
		return err
	}
	for _, d := range dead {
		if err := d.Reject(false); err != nil {
			return fmt.Errorf("reject at RabbitMQ: %w", err)
		}
	}
	if len(settled) == 0 {
		return nil
	}
	if err := settled[len(settled)-1].Ack(true); err != nil { // and those before
		return fmt.Errorf("acknowledge to RabbitMQ: %w", err)
	}
	return nil
}

// Delay implements worker.Delayer. It declares the wait queue of this delay each time, which creates the queue or extends its
// life. A wait queue that is no longer used expires.
func (q *RabbitMQ) Delay(ctx context.Context, d time.Duration) error {
	return q.publishing(ctx, "delay a wake-up by RabbitMQ", func(l *link) error {
		name := q.name + ".wait." + strconv.FormatInt(d.Milliseconds(), 10)
		args := amqp.Table{
			amqp.QueueMessageTTLArg: d.Milliseconds(), amqp.QueueTTLArg: (d + waitMargin).Milliseconds(),
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": q.wakeName(),
		}
		if _, err := l.channel.QueueDeclare(name, true, false, false, true, args); err != nil {
			return err
		}
		return l.channel.PublishWithContext(ctx, "", name, false, false, persistent(nil))
	})
}

// Wakes implements worker.Delayer.
func (q *RabbitMQ) Wakes() <-chan struct{} { return q.wakes }

// Ping returns an error if the broker does not answer or lacks the main queue. If it connects, that creates missing queues.
func (q *RabbitMQ) Ping(ctx context.Context) error {
	return q.publishing(ctx, "ask RabbitMQ for the queue", func(l *link) error {
		_, err := l.channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
		return err
	})
}

// Reach returns an error if it can't connect to the broker. It creates no queues.
func (q *RabbitMQ) Reach(ctx context.Context) error {
	l, err := q.dial(ctx, func(*link) error { return nil })
	l.close()
	return err
}

// Close closes the publisher's connection.
func (q *RabbitMQ) Close() error {
	(<-q.publisher).close()
	q.publisher <- nil
	return nil
}
