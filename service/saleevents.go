package service

import (
	"context"

	"flashsale/model"
)

// SaleEvents records that the start of a sale has come, that it has sold out, and that it has ended. A sale can start and end
// without a write to the database, so the instances look at the sales. Record must store each event of a sale once.
type SaleEvents struct {
	Record  func(ctx context.Context, what model.EventType, saleID string) error
	Catalog *Catalog

	done map[saleEvent]bool // what this instance has recorded
}

type saleEvent struct {
	what   model.EventType
	saleID string
}

// Look records what has happened to the live sales. It must not run twice at the same time.
func (s *SaleEvents) Look(ctx context.Context) error {
	if s.done == nil {
		s.done = map[saleEvent]bool{}
	}
	now := s.Catalog.Now()
	for _, offer := range s.Catalog.Live() {
		started := !now.Before(offer.StartsAt)
		for _, event := range []struct {
			what     model.EventType
			happened bool
		}{
			{model.EventSaleOpened, started},
			{model.EventSoldOut, started && offer.Stock.Free() == 0},
			{model.EventSaleEnded, offer.Judge(now) == model.Ended},
		} {
			key := saleEvent{event.what, offer.ID}
			if !event.happened || s.done[key] {
				continue
			}
			if err := s.Record(ctx, key.what, key.saleID); err != nil {
				return err
			}
			s.done[key] = true
		}
	}
	return nil
}
