package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

const (
	// pageRows is the most rows that a query returns where a sale may have millions of rows. Reading a page takes a few
	// milliseconds.
	pageRows = 1000
	// sumRows is how many rows one statement sums. Such a statement ends far within the statement time-out.
	sumRows = 50_000
)

// behindSale, appended to a sale's id, sorts after the ids of all orders of the sale, which begin with the sale's id
// and continue in base32.
const behindSale = "~"

// contents is a snapshot of the database. It keeps a connection of its own until Close.
type contents struct {
	tx    *gorm.DB
	offer model.Offer
}

// GateContents opens a snapshot of the data that a new gate needs; the caller must close it. ok is false if there is no
// such sale.
func (s *Store) GateContents(ctx context.Context, saleID string) (c model.GateContents, ok bool, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{Name: observe.ReadContents})
	defer func() { end(err) }()
	tx := s.read.WithContext(ctx).Begin(s.oneInstant())
	if err = tx.Error; err != nil {
		return nil, false, fmt.Errorf("read the gate of sale %s: %w", saleID, err)
	}
	offer, _, ok, err := s.offerOn(tx, saleID) // the first read sets the time of the snapshot
	if err != nil || !ok {
		return nil, false, errors.Join(wrap("read the gate of sale "+saleID, err), tx.Rollback().Error)
	}
	return &contents{tx, offer}, true, nil
}

// Offer is part of model.GateContents.
func (c *contents) Offer() model.Offer { return c.offer }

// Buyers is part of model.GateContents.
func (c *contents) Buyers(ctx context.Context) iter.Seq2[[]model.Buyer, error] {
	return buyers(c.tx.WithContext(ctx), c.offer.ID)
}

// Known is part of model.GateContents. A lost attempt is left out, because the gate could not compare its request. If
// the stream still has an entry of the lost attempt, the settle refuses the entry and credits the gate.
func (c *contents) Known(ctx context.Context) iter.Seq2[[]model.Known, error] {
	db, end := c.tx.WithContext(ctx), c.offer.ID+behindSale
	return func(yield func([]model.Known, error) bool) {
		for _, query := range []string{
			"SELECT id, user_id, quantity, request_hash FROM orders WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
			"SELECT order_id, user_id, quantity, request_hash FROM refusals WHERE order_id > ? AND order_id < ? AND request_hash <> '' ORDER BY order_id LIMIT ?",
		} {
			read := func(after string) ([]model.Known, error) {
				return page(db, "read the known attempts of sale "+c.offer.ID,
					func(k *model.Known) []any { return []any{&k.ID, &k.UserID, &k.Quantity, &k.Hash} }, query, after, end, pageRows)
			}
			for known, err := range pages(c.offer.ID, read, func(k model.Known) string { return k.ID }) {
				if !yield(known, err) || err != nil {
					return
				}
			}
		}
	}
}

// Close is part of model.GateContents. The error is ignored: the transaction has only read, and the server may have
// ended it already, because it was idle while the stream was read.
func (c *contents) Close() { _ = c.tx.Rollback() }

// Buyers returns the users who have live units of a sale, in pages and in the order of their ids. Each page shows the
// data as of the time when the page is read.
func (s *Store) Buyers(ctx context.Context, saleID string) iter.Seq2[[]model.Buyer, error] {
	return buyers(s.read.WithContext(ctx), saleID)
}

func buyers(db *gorm.DB, saleID string) iter.Seq2[[]model.Buyer, error] {
	return pages("", func(after string) ([]model.Buyer, error) {
		return page(db, "read the buyers of sale "+saleID, func(b *model.Buyer) []any { return []any{&b.UserID, &b.Units} },
			"SELECT user_id, units FROM buyers WHERE sale_id = ? AND user_id > ? AND units > 0 ORDER BY user_id LIMIT ?", saleID, after, pageRows)
	}, func(b model.Buyer) string { return b.UserID })
}

// page runs a query and scans each row into the fields that columns returns. GORM's own scan takes several times as
// long, which matters with a million rows.
func page[T any](db *gorm.DB, what string, columns func(row *T) []any, query string, args ...any) ([]T, error) {
	rows, err := db.Raw(query, args...).Rows()
	if err != nil {
		return nil, wrap(what, err)
	}
	defer func() { _ = rows.Close() }()
	var row T
	list, into := make([]T, 0, pageRows), columns(&row)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, wrap(what, err)
		}
		list = append(list, row)
	}
	return list, wrap(what, rows.Err())
}

// pages reads rows in the order of their keys, a page at a time. The first page begins after the key given as first.
// Each later page begins after the last row of the page before.
func pages[T any](first string, read func(after string) ([]T, error), key func(T) string) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		for after, more := first, true; more; {
			page, err := read(after)
			if err == nil && len(page) == 0 || !yield(page, err) || err != nil {
				return
			}
			after, more = key(page[len(page)-1]), len(page) == pageRows
		}
	}
}

// Books reads the stock of a sale and the sums over its orders, refusals and buyers; ok is false if there is no such
// sale.
func (s *Store) Books(ctx context.Context, saleID string) (books model.Books, ok bool, err error) {
	books = model.Books{Orders: map[model.OrderStatus]int64{}, Units: map[model.OrderStatus]int64{}}
	err = s.snapshot(ctx, func(tx *gorm.DB) error {
		var offer model.Offer
		if offer, _, ok, err = s.offerOn(tx, saleID); err != nil || !ok {
			return err
		}
		books.Stock = offer.Stock
		end := saleID + behindSale
		add := func(status string, rows, units int64) {
			books.Orders[model.OrderStatus(status)] += rows
			books.Units[model.OrderStatus(status)] += units
		}
		add(string(model.OrderRejected), 0, 0) // rejected has an entry, also without refusals
		err := sums(tx, "SELECT id, status AS kind, quantity AS units FROM orders WHERE id > ? AND id < ? ORDER BY id", saleID, end, sumRows, add)
		if err != nil {
			return err
		}
		err = sums(tx, "SELECT order_id AS id, 'rejected' AS kind, quantity AS units FROM refusals WHERE order_id > ? AND order_id < ? ORDER BY order_id", saleID, end, sumRows, add)
		if err != nil {
			return err
		}
		return sums(tx, "SELECT user_id AS id, '' AS kind, units FROM buyers WHERE user_id > ? AND sale_id = ? ORDER BY user_id", "", saleID, sumRows,
			func(_ string, _, units int64) { books.BuyersUnits += units })
	})
	return books, ok, wrap("read the books of sale "+saleID, err)
}

// sums counts rows of (id, kind, units) by kind, adds up their units, and passes both to add. Each statement reads one
// page of rows. query selects the rows after an id, in the order of the ids: its first argument is that id, and its
// second, within, is the same for all pages.
func sums(tx *gorm.DB, query, after, within string, rowsAtOnce int64, add func(kind string, rows, units int64)) error {
	for {
		var page []struct {
			Kind         string
			Counted, Sum int64
			Last         string
		}
		err := tx.Raw("SELECT kind, COUNT(*) AS counted, SUM(units) AS sum, MAX(id) AS last FROM ("+query+" LIMIT ?) AS page GROUP BY kind",
			after, within, rowsAtOnce).Scan(&page).Error
		if err != nil {
			return err
		}
		rows := int64(0)
		for _, p := range page {
			add(p.Kind, p.Counted, p.Sum)
			rows, after = rows+p.Counted, max(after, p.Last)
		}
		if rows < rowsAtOnce {
			return nil
		}
	}
}
