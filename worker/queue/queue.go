// Package queue holds the brokers that can carry admitted attempts from the gate's stream to the settlers, one in each file. Each
// implements worker.Queue. The stream is the outbox of all brokers: an entry stays in it until it is settled, and a message whose
// entry has left the stream is ignored. So no order is lost or duplicated if a broker loses a message or delivers it twice.
package queue

import (
	"context"
	"fmt"
	"log/slog"

	"flashsale/model"
)

const (
	// attempts is the name of the queue in RabbitMQ, and of the topic and the consumer group in Kafka.
	attempts = "flashsale.attempts"
	// batchMost is the size of a consumer's full batch: as many messages as one transaction settles by default.
	batchMost = 512
	// deadMost is how many dead letters a Redis list or RabbitMQ keeps: the newest. It also bounds RabbitMQ's wake queue.
	deadMost = 1000
)

// settleFunc settles entries of one sale.
type settleFunc = func(ctx context.Context, saleID string, entries []model.Entry) error

// handOn reads the entries in messages and settles them, one sale at a time. text(m) is the text of a message. dead are messages
// that can't be read; the caller makes them dead letters. An error is one of settle, and then no message may be acknowledged.
func handOn[M any](
	ctx context.Context, messages []M, text func(M) []byte, settle settleFunc, log *slog.Logger,
) (settled, dead []M, err error) {
	bySale := map[string][]model.Entry{}
	for _, m := range messages {
		e, err := decode(text(m))
		if err != nil {
			log.Error("an unreadable message went to the dead letters", "message", fmt.Sprintf("%.200q", text(m)), "error", err)
			dead = append(dead, m)
			continue
		}
		bySale[e.SaleID], settled = append(bySale[e.SaleID], e), append(settled, m)
	}
	for id, entries := range bySale {
		if err := settle(ctx, id, entries); err != nil {
			return nil, nil, err
		}
	}
	return settled, dead, nil
}
