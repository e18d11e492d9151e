package repository

import (
	"context"

	"gorm.io/gorm"

	"flashsale/model"
)

// AddPoints adds requests to the points that have been stored, and replaces units, in one transaction.
func (s *Store) AddPoints(ctx context.Context, points []model.Point) error {
	var values []any
	for _, p := range points {
		values = append(values, p.SaleID, p.At.UnixMilli(), p.Figure, p.Value)
	}
	const before = " + CASE WHEN figure IN ('available', 'held', 'paid') THEN 0 ELSE value END"
	list := s.inserting("series (sale_id, at_ms, figure, value)", places(4), values, s.dialect(
		" ON DUPLICATE KEY UPDATE value = VALUES(value)"+before,
		" ON CONFLICT (sale_id, at_ms, figure) DO UPDATE SET value = excluded.value"+before))
	return wrap("add points to series", s.transact(ctx, func(tx *gorm.DB) error { return s.run(tx, list...) }))
}

// Series reads sales, and their points in the order of time.
func (s *Store) Series(ctx context.Context, saleIDs []string) (sales []model.Offer, points []model.Point, err error) {
	db := s.read.WithContext(ctx)
	if sales, _, err = s.offers(db, "sales.id IN ? ORDER BY place", saleIDs); err != nil {
		return nil, nil, err
	}
	points, err = scan(db, "read series", func(p *model.Point) []any { return []any{&p.SaleID, millis(&p.At), &p.Figure, &p.Value} },
		"SELECT sale_id, at_ms, figure, value FROM series WHERE sale_id IN ? ORDER BY at_ms", saleIDs)
	return sales, points, err
}

// OrderSums sums the orders of sales by status, all as of one time. It reads all orders of the sales.
func (s *Store) OrderSums(ctx context.Context, saleIDs []string) (map[model.OrderStatus]model.OrderSums, error) {
	byStatus, queries := map[model.OrderStatus]*sum{}, []rowsAfter[int64](nil)
	for _, status := range model.StoredStatuses {
		byStatus[status] = &sum{}
		for _, id := range saleIDs {
			queries = append(queries, rowsAfter[int64]{"SELECT number AS place, quantity AS units, amount_cents AS extra FROM orders" +
				s.index("orders_status") + " WHERE number > ? AND sale_id = ? AND status = ? ORDER BY number", 0, []any{id, string(status)}, byStatus[status]})
		}
	}
	err := s.read.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return sums(tx, sumRows, queries...) }, oneInstant)
	all := map[model.OrderStatus]model.OrderSums{}
	for status, of := range byStatus {
		all[status] = model.OrderSums{Orders: of.rows, Units: of.units, AmountCents: of.extra}
	}
	return all, wrap("sum the orders of sales", err)
}
