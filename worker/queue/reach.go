package queue

import "context"

// Reach connects to the broker and disconnects. Unlike Ping it does not create missing queues.
func (q *RabbitMQ) Reach(ctx context.Context) error {
	l, err := q.dial(ctx, func(*link) error { return nil })
	if err != nil {
		return err
	}
	l.close()
	return nil
}
