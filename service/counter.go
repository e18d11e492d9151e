package service

import (
	"context"
	"time"

	"flashsale/model"
)

// GateCounter counts users' requests in Redis, in the counters that the gates of other strategies use.
type GateCounter interface {
	Count(ctx context.Context, gate model.GateRef, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error)
}

// Counter counts users' requests for a strategy that does not use the gates.
type Counter struct {
	Catalog *Catalog
	Gate    GateCounter
}

// Count counts one request of a user to a sale. ok is false if the user has sent too many within the window; then the next
// request is allowed after retryAfter.
func (c *Counter) Count(ctx context.Context, saleID, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	offer, _, err := c.Catalog.Sale(ctx, saleID)
	if err != nil {
		return 0, false, err
	}
	return c.Gate.Count(ctx, model.GateRef{SaleID: saleID, CampaignID: offer.Campaign.ID, Shards: max(offer.Shards, 1)}, userID, f)
}
