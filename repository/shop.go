package repository

import (
	"context"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"flashsale/model"
)

// Shop reads what operators have set of the shop.
func (s *Store) Shop(ctx context.Context) (model.Shop, error) {
	return readShop(s.read.WithContext(ctx), "")
}

func readShop(db *gorm.DB, lock string) (shop model.Shop, err error) {
	err = db.Raw("SELECT * FROM shop" + lock).Scan(&shop).Error
	return shop, wrap("read the shop", err)
}

// SetShop replaces what operators have set of the shop.
func (s *Store) SetShop(ctx context.Context, shop model.Shop, actor string) error {
	return wrap("change the shop", s.transact(ctx, func(tx *gorm.DB) error {
		before, err := readShop(tx, s.forUpdate())
		if err != nil || before == shop {
			return err
		}
		var names, changes []string
		var values []any
		for i, f := range shop.Fields() {
			names, values = append(names, f.Name+" = ?"), append(values, *f.Value)
			if was := *before.Fields()[i].Value; was != *f.Value {
				changes = append(changes, fmt.Sprintf("%s: %s -> %s", f.Name, excerpt(was), excerpt(*f.Value)))
			}
		}
		return s.run(tx, do("UPDATE shop SET "+strings.Join(names, ", "), values...),
			s.logging(actor, "change", model.ShopSubject, strings.Join(changes, "; ")))
	}))
}
