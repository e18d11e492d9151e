// Package queue holds the brokers that can carry admitted attempts to the settlers, one in each file. Each implements
// worker.Queue. An entry stays in the stream until it is settled, so no order is lost or made twice if a broker loses a message
// or delivers it twice.
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
	// batchMost is the size of a consumer's full batch.
	batchMost = 512
	// deadMost is how many dead letters a Redis list or RabbitMQ keeps. It also bounds RabbitMQ's wake queue.
	deadMost = 1000
)

type settleFunc = func(ctx context.Context, saleID string, entries []model.Entry) error

// handOn settles the entries in messages, one sale at a time. text(m) is the text of a message. dead are messages that can't be
// read; the caller makes them dead letters. If settle fails, handOn returns its error, and no message may be acknowledged.
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
