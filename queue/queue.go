// Package queue holds the brokers that can stand between the gate's stream and the settlers, one a file. Each has the
// methods of worker.Queue. The stream stays the outbox of all of them: an entry leaves it when it is settled, so that a
// broker which loses a message, or brings it twice, loses and doubles nothing.
package queue

import (
	"context"
	"fmt"
	"log/slog"

	"flashsale/model"
)

const (
	// attempts is the name under which every broker keeps the messages.
	attempts = "flashsale.attempts"
	// batchMost messages are handed on at once: as many as go into one transaction.
	batchMost = 512
	// deadMost dead letters are kept, the newest: to see what they are, not to count them.
	deadMost = 1000
)

// settleFunc is what settles entries of one sale.
type settleFunc = func(ctx context.Context, saleID string, entries []model.Entry) error

// handOn settles messages, a sale at a time, and gives those that nobody can read, which are for the dead letters. After
// an error none of the messages may be acknowledged.
func handOn(ctx context.Context, messages [][]byte, settle settleFunc, log *slog.Logger) (dead []int, err error) {
	bySale := map[string][]model.Entry{}
	var sales []string
	for i, m := range messages {
		e, err := decode(m)
		if err != nil {
			log.Error("a message that nobody can read went to the dead letters", "message", fmt.Sprintf("%.200q", m), "error", err)
			dead = append(dead, i)
			continue
		}
		if bySale[e.SaleID] == nil {
			sales = append(sales, e.SaleID)
		}
		bySale[e.SaleID] = append(bySale[e.SaleID], e)
	}
	for _, id := range sales {
		if err := settle(ctx, id, bySale[id]); err != nil {
			return nil, err
		}
	}
	return dead, nil
}
