package queue

import "context"

// Reach connects to the broker and leaves again. Unlike Ping it makes no queues where they are missing.
func (q *RabbitMQ) Reach(ctx context.Context) error {
	l, err := q.dial(ctx, func(*link) error { return nil })
	if err != nil {
		return err
	}
	l.close()
	return nil
}
