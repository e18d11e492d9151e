package gate

import (
	"context"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// Replicas reads the state of gates from replicas. Use it only for display: replicas lag behind their primaries, so
// nothing may be decided by their data.
type Replicas struct{ looker looker }

// NewReplicas makes a Replicas with a client of ConnectReplicas. The caller must close the client.
func NewReplicas(client redis.UniversalClient) *Replicas {
	return &Replicas{looker{client: client, replicas: true}}
}

// Peek reads the state of the gates of sales as it was a moment ago. It does not check on which Redis process a gate
// was installed, so a gate that admits nothing for this reason may be reported as open. A gate is Away if the replica
// of any of its shards does not answer or has lost its primary. Peek returns an error if all gates are Away.
func (r *Replicas) Peek(ctx context.Context, sales []model.Offer) ([]model.GateState, error) {
	return r.looker.peek(ctx, model.GateRefs(sales))
}
