package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"flashsale/model"
)

const (
	// amqpHeartbeat: a broker that is silent for about twice as long is gone.
	amqpHeartbeat = 3 * time.Second
	// amqpSetup is how long a consumer's connection may take to be made.
	amqpSetup = 3 * time.Second
	// amqpFarewell is how long an orderly end of a connection may take.
	amqpFarewell = time.Second
	// prefetch lets the next batch come while one is settled.
	prefetch = 2 * batchMost
	// waitMargin is how much longer than its messages a queue of delayed ones lives.
	waitMargin = time.Minute
)

// RabbitMQ is a durable queue of persistent messages with publisher's confirms and acknowledgements by hand. What nobody
// can read is rejected, which brings it to the queue of dead letters. The queues are of the virtual host's own type. It
// also is a worker.Delayer: a message waits in a queue that nobody reads until its time to live is over, and is then
// dead-lettered to the queue that wakes.
type RabbitMQ struct {
	url   string
	name  string // of the queue; the names of the others begin with it
	log   *slog.Logger
	wakes chan struct{}

	turn      chan struct{} // has room for the one who publishes
	publisher *link         // nil: to be made
}

// NewRabbitMQ makes the queue of one instance. It doesn't connect: the broker may come later.
func NewRabbitMQ(url string, log *slog.Logger) *RabbitMQ {
	return &RabbitMQ{url: url, name: attempts, log: log, wakes: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

func (q *RabbitMQ) deadName() string { return q.name + ".dead" }
func (q *RabbitMQ) wakeName() string { return q.name + ".wake" }

// link is a connection with its one channel.
type link struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	socket  net.Conn
	lost    chan *amqp.Error
	refused chan amqp.Return // messages for which there is no queue
}

// dial connects and has the link prepared, or gives up when ctx ends.
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

// open makes the channel, and whatever queue is missing.
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

// cutWith has the connection end with ctx, which the library's calls don't know, unless the function it gives is called
// before.
func (l *link) cutWith(ctx context.Context) (letGo func() bool) {
	return context.AfterFunc(ctx, func() { _ = l.socket.Close() })
}

func (l *link) close() {
	defer time.AfterFunc(amqpFarewell, func() { _ = l.socket.Close() }).Stop()
	_ = l.conn.Close() // it may be gone already
}

// publishing runs call on the publisher's connection, which is made anew if need be, and given up if the call fails.
func (q *RabbitMQ) publishing(ctx context.Context, call func(*link) error) (err error) {
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if q.publisher != nil && q.publisher.channel.IsClosed() {
		q.publisher.close()
		q.publisher = nil
	}
	if q.publisher == nil {
		if q.publisher, err = q.dial(ctx, q.open); err != nil {
			return err
		}
	}
	letGo := q.publisher.cutWith(ctx)
	defer letGo()
	if err = call(q.publisher); err != nil {
		q.publisher.close()
		q.publisher = nil
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// Publish is that of worker.Queue; a call has at most batchMost entries.
func (q *RabbitMQ) Publish(ctx context.Context, _ string, entries []model.Entry) error {
	err := q.publishing(ctx, func(l *link) error {
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
		case r := <-l.refused: // came before its confirm
			return fmt.Errorf("%w: %s", errNotTaken, r.ReplyText)
		default:
			return nil
		}
	})
	if err != nil {
		return fmt.Errorf("publish to RabbitMQ: %w", err)
	}
	return nil
}

// errNotTaken: the broker has not confirmed a message, or had no queue for it.
var errNotTaken = errors.New("not taken by the broker")

func persistent(body []byte) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, ContentType: "text/plain", Body: body}
}

// Consume is that of worker.Queue.
func (q *RabbitMQ) Consume(ctx context.Context, settle settleFunc) error {
	l, waiting, wakes, err := q.subscribe(ctx)
	if err != nil {
		return err
	}
	// The library hands deliveries out one by one, each when the one before was taken. Here what has come lies ready: no
	// more than the broker sends ahead.
	ready := make(chan amqp.Delivery, prefetch)
	var copying sync.WaitGroup
	copying.Go(func() {
		defer close(ready)
		for d := range waiting {
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
			q.wake()
		case d, ok := <-ready:
			if !ok {
				return l.lostError()
			}
			if err := q.handle(ctx, gathered(d, ready), settle); err != nil {
				return err
			}
		}
	}
}

// subscribe makes a consumer's connection.
func (q *RabbitMQ) subscribe(ctx context.Context) (l *link, messages, wakes <-chan amqp.Delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, amqpSetup)
	defer cancel()
	if l, err = q.dial(ctx, q.open); err != nil {
		return nil, nil, nil, err
	}
	letGo := l.cutWith(ctx)
	defer letGo()
	err = l.channel.Qos(prefetch, 0, false)
	if err == nil {
		messages, err = l.channel.Consume(q.name, "", false, false, false, false, nil)
	}
	if err == nil {
		wakes, err = l.channel.Consume(q.wakeName(), "", true, false, false, false, nil)
	}
	if err != nil {
		l.close()
		return nil, nil, nil, fmt.Errorf("consume from RabbitMQ: %w", err)
	}
	return l, messages, wakes, nil
}

// lostError says why deliveries ended.
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

// gathered adds what lies ready to a first delivery, up to a batch.
func gathered(first amqp.Delivery, ready <-chan amqp.Delivery) []amqp.Delivery {
	batch := []amqp.Delivery{first}
	for len(batch) < batchMost {
		select {
		case d, ok := <-ready:
			if !ok {
				return batch
			}
			batch = append(batch, d)
		default:
			return batch
		}
	}
	return batch
}

// handle settles a batch of deliveries and tells the broker.
func (q *RabbitMQ) handle(ctx context.Context, batch []amqp.Delivery, settle settleFunc) error {
	messages := make([][]byte, len(batch))
	for i, d := range batch {
		messages[i] = d.Body
	}
	dead, err := handOn(ctx, messages, settle, q.log)
	if err != nil {
		return err
	}
	for _, i := range dead {
		if err := batch[i].Reject(false); err != nil {
			return fmt.Errorf("reject at RabbitMQ: %w", err)
		}
	}
	for i := len(batch) - 1; i >= 0; i-- {
		if !slices.Contains(dead, i) { // the last of the good ones, and all before it
			if err := batch[i].Ack(true); err != nil {
				return fmt.Errorf("acknowledge to RabbitMQ: %w", err)
			}
			break
		}
	}
	return nil
}

// Delay is that of worker.Delayer. The queue for this delay is made with each message, which keeps it for as long as
// the message needs, and ends by itself.
func (q *RabbitMQ) Delay(ctx context.Context, d time.Duration) error {
	err := q.publishing(ctx, func(l *link) error {
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
	if err != nil {
		return fmt.Errorf("delay a wake-up by RabbitMQ: %w", err)
	}
	return nil
}

// Wakes is that of worker.Delayer.
func (q *RabbitMQ) Wakes() <-chan struct{} { return q.wakes }

func (q *RabbitMQ) wake() {
	select {
	case q.wakes <- struct{}{}:
	default: // one is on its way
	}
}

// Ping asks the broker whether the queue is there.
func (q *RabbitMQ) Ping(ctx context.Context) error {
	return q.publishing(ctx, func(l *link) error {
		_, err := l.channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
		return err
	})
}

// Close ends the publisher's connection.
func (q *RabbitMQ) Close() error {
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	if q.publisher != nil {
		q.publisher.close()
	}
	return nil
}
