package gate

import (
	"context"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// Replicas looks at gates through replicas, for what is only shown: they are behind by moments, and nothing may be decided
// by what they say.
type Replicas struct{ looker looker }

// NewReplicas takes a client of ConnectReplicas, which is the caller's to close.
func NewReplicas(client redis.UniversalClient) *Replicas {
	return &Replicas{looker{client: client, replicas: true}}
}

// Peek reads the gates of sales as they were a moment ago; also one that was installed on another Redis may be open here.
// A sale is Away if a replica does not answer, or has not heard of its primary; an error means that all of them are.
func (r *Replicas) Peek(ctx context.Context, sales []model.Offer) ([]model.GateState, error) {
	tags := make([][]string, len(sales))
	for i, s := range sales {
		tags[i] = tagsOf(s.ID, max(s.Parts, 1))
	}
	return r.looker.peek(ctx, tags)
}
