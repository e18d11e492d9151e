package service

import (
	"context"
	"sync"

	"flashsale/model"
)

// SaleEvents records, once for each sale, that it has opened, sold out and ended. Nothing is written to the database when
// the time of a sale comes, so the instances look at the sales. Any number of them may record the same.
type SaleEvents struct {
	Record  func(ctx context.Context, what model.EventType, saleID string) error
	Catalog *Catalog

	done sync.Map // by type and sale, what this instance has recorded
}

// Look records what has happened to the live sales.
func (s *SaleEvents) Look(ctx context.Context) error {
	live, _ := s.Catalog.Live()
	now := s.Catalog.Now()
	for _, offer := range live {
		var err error
		if !now.Before(offer.StartsAt) {
			err = s.once(ctx, model.EventSaleOpened, offer.ID)
		}
		if err == nil && offer.Stock.Free() == 0 && !now.Before(offer.StartsAt) {
			err = s.once(ctx, model.EventSoldOut, offer.ID)
		}
		if err == nil && offer.Judge(now) == model.Ended {
			err = s.once(ctx, model.EventSaleEnded, offer.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *SaleEvents) once(ctx context.Context, what model.EventType, saleID string) error {
	key := string(what) + saleID
	if _, done := s.done.Load(key); done {
		return nil
	}
	if err := s.Record(ctx, what, saleID); err != nil {
		return err
	}
	s.done.Store(key, true)
	return nil
}
