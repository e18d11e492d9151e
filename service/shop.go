package service

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"flashsale/model"
)

// Longest name of a shop, and longest line of small print, in characters.
const maxShopName, maxSmallPrint = 60, 500

// ShopStore keeps what operators have set of the shop.
type ShopStore interface {
	Shop(ctx context.Context) (model.Shop, error)
	SetShop(ctx context.Context, shop model.Shop, actor string) error
}

// Shop has what buyers' pages show of the shop, as this instance has read it last. Refresh reads it.
type Shop struct {
	Store   ShopStore
	reading sync.Mutex // one reading at a time, so that no older one replaces a newer one
	shown   atomic.Pointer[model.Shop]
}

// NewShop returns a Shop without any fields set.
func NewShop(store ShopStore) *Shop {
	s := &Shop{Store: store}
	s.shown.Store(&model.Shop{})
	return s
}

// Shown returns what pages show. It is the same pointer until something has changed. The caller must not change it.
func (s *Shop) Shown() *model.Shop { return s.shown.Load() }

// Refresh reads the shop anew.
func (s *Shop) Refresh(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	shop, err := s.Store.Shop(ctx)
	if err == nil && shop != *s.shown.Load() {
		s.shown.Store(&shop)
	}
	return err
}

// Set replaces all fields of the shop. The verdict is Accepted, or BadRequest with the first invalid field.
func (s *Shop) Set(ctx context.Context, shop model.Shop, actor string) (set model.Shop, verdict model.Verdict, invalid *Invalid, err error) {
	shop.Color = strings.ToLower(shop.Color)
	_, _, colored := model.Schemes(shop.Color)
	invalid = Invalid{Field: "color", Reason: BadColor, Value: shop.Color}.If(shop.Color != "" && !colored)
	for _, f := range shop.Fields() {
		long := map[string]int{"name": maxShopName, "small_print": maxSmallPrint}[f.Name]
		invalid = cmp.Or(invalid,
			Invalid{Field: f.Name, Reason: BadText, Max: int64(long)}.If(long > 0 && *f.Value != "" && (!text(*f.Value, long) || !visible(*f.Value))),
			Invalid{Field: f.Name, Reason: BadLink, Max: maxImageURL}.If(strings.HasSuffix(f.Name, "_url") && !link(*f.Value)),
		)
	}
	if invalid != nil {
		return shop, model.BadRequest, invalid, nil
	}
	return shop, model.Accepted, nil, cmp.Or(s.Store.SetShop(ctx, shop, actor), s.Refresh(ctx))
}
