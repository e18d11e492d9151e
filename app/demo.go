package app

import (
	"context"
	"time"

	"flashsale/model"
)

// makeDemo creates a sale to try the engine on, unless the database has a sale or a campaign.
func (a *App) makeDemo(ctx context.Context) error {
	codes, _, err := a.Stores.Database.SaleCodes(ctx, time.Time{})
	if err != nil || len(codes) > 0 {
		return err
	}
	now := a.Catalog.Now()
	_, _, err = a.Sales.Create(ctx, model.Sale{
		Title:       "Demo: the last hundred teapots · 演示：最后一百把茶壶",
		Description: "A sale to try the engine on. Two for each buyer, ten minutes to pay.",
		PriceCents:  990, OriginalPriceCents: 4990, Currency: "CNY", LimitPerUser: 2, PayTimeoutSeconds: 600,
		StartsAt: now, EndsAt: now.AddDate(1, 0, 0), Shards: 1,
	}, 100, "engine")
	return err
}
