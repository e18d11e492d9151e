package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

// sumRows bounds the rows that one statement of sums adds up, because a statement has a time limit.
const sumRows = 50_000

// behindSale sorts after the characters of ids. Ids that begin with a text sort before this text with behindSale appended.
const behindSale = "~"

// contents is a snapshot of the database. It occupies a connection until Close.
type contents struct {
	tx    *gorm.DB
	offer model.Offer
	index string // the SQL that makes a SELECT of orders use orders_status
}

// GateContents opens a snapshot of what a new gate needs, which the caller must close. ok is false if there is no such sale.
func (s *Store) GateContents(ctx context.Context, saleID string) (c model.GateContents, ok bool, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{Name: observe.ReadContents})
	defer func() { end(err) }()
	tx := s.read.WithContext(ctx).Begin(oneInstant)
	if err = tx.Error; err != nil {
		return nil, false, fmt.Errorf("read the gate of sale %s: %w", saleID, err)
	}
	offer, _, ok, err := s.offerOn(tx, saleID) // the first read sets the time of the snapshot
	if err != nil || !ok {
		return nil, false, errors.Join(wrap("read the gate of sale "+saleID, err), tx.Rollback().Error)
	}
	return &contents{tx, offer, s.index("orders_status")}, true, nil
}

// Offer is part of model.GateContents.
func (c *contents) Offer() model.Offer { return c.offer }

// Buyers is part of model.GateContents.
func (c *contents) Buyers(ctx context.Context) iter.Seq2[[]model.Buyer, error] {
	return buyers(c.tx.WithContext(ctx), c.offer.ID)
}

// Known is part of model.GateContents. A lost attempt, whose quantity is stored as 0, is left out: the gate could not tell
// whether a request repeats it.
func (c *contents) Known(ctx context.Context) iter.Seq2[[]model.Known, error] {
	db, what := c.tx.WithContext(ctx), "read the known attempts of sale "+c.offer.ID
	fields := func(k *model.Known) []any { return []any{&k.ID, &k.UserID, &k.Quantity} }
	parts := []iter.Seq2[[]model.Known, error]{pages(c.offer.ID, func(after string) ([]model.Known, error) {
		return scan(db, what, fields, `SELECT order_id, user_id, quantity FROM refusals
			WHERE order_id > ? AND order_id < ? AND quantity <> 0 ORDER BY order_id LIMIT ?`, after, c.offer.ID+behindSale, pageRows)
	}, func(k model.Known) string { return k.ID })}
	for _, status := range model.StoredStatuses {
		last := int64(0) // the number in the last row that was read
		numbered := func(k *model.Known) []any { return append(fields(k), &last) }
		parts = append(parts, pages(0, func(after int64) ([]model.Known, error) {
			return scan(db, what, numbered, `SELECT id, user_id, quantity, number FROM orders`+c.index+`
				WHERE sale_id = ? AND status = ? AND number > ? ORDER BY number LIMIT ?`, c.offer.ID, string(status), after, pageRows)
		}, func(model.Known) int64 { return last }))
	}
	return chain(parts...)
}

// Close is part of model.GateContents. It ignores the error, since the transaction has only read.
func (c *contents) Close() { _ = c.tx.Rollback() }

// Buyers returns, in pages, the users with live units of a sale, in the order of their ids. The pages are not of one time.
func (s *Store) Buyers(ctx context.Context, saleID string) iter.Seq2[[]model.Buyer, error] {
	return buyers(s.read.WithContext(ctx), saleID)
}

func buyers(db *gorm.DB, saleID string) iter.Seq2[[]model.Buyer, error] {
	return pages("", func(after string) ([]model.Buyer, error) {
		return scan(db, "read the buyers of sale "+saleID, func(b *model.Buyer) []any { return []any{&b.UserID, &b.Units} },
			"SELECT user_id, units FROM buyers WHERE sale_id = ? AND user_id > ? AND units > 0 ORDER BY user_id LIMIT ?", saleID, after, pageRows)
	}, func(b model.Buyer) string { return b.UserID })
}

// Books reads the sums of a sale that must agree, all as of one time; ok is false if there is no such sale.
func (s *Store) Books(ctx context.Context, saleID string) (books model.Books, ok bool, err error) {
	var calls, entries, users, ofCampaign, ofItsSales sum
	orders := map[model.OrderStatus]*sum{model.OrderRejected: {}}
	err = s.read.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		var offer model.Offer
		if offer, _, ok, err = s.offerOn(tx, saleID); err != nil || !ok {
			return err
		}
		if books.Stock = offer.Stock; offer.LineID() == offer.ID { // a campaign's line is in the books of the sale that has it
			books.Line = offer.Line
		}
		numbered := []rowsAfter[int64]{{`SELECT number AS place, units, CASE WHEN EXISTS (SELECT 1 FROM entries
			WHERE entries.sale_id = calls.sale_id AND entries.number = calls.number AND entries.user_id = calls.user_id AND state = 'waiting')
			THEN 0 ELSE 1 END AS extra FROM calls WHERE number > ? AND sale_id = ? ORDER BY number`, -1, []any{saleID}, &calls}}
		wrongTurn := "0"
		if offer.HasLine() {
			numbered = append(numbered, rowsAfter[int64]{"SELECT number AS place, 0 AS units, 0 AS extra FROM entries" +
				" WHERE number > ? AND sale_id = ? ORDER BY number", -1, []any{saleID}, &entries})
			// In the modes line and draw each order needs a spent entry; in a rush, an order bought in line needs one.
			wrongTurn = `CASE WHEN EXISTS (SELECT 1 FROM sales JOIN entries ON entries.sale_id = COALESCE(campaign_id, sales.id)
				WHERE sales.id = orders.sale_id AND entries.user_id = orders.user_id AND state = 'spent') THEN 0 ELSE 1 END`
			if offer.Mode == model.ModeRush {
				wrongTurn = "CASE WHEN source NOT IN ('line', 'draw') THEN 0 ELSE " + wrongTurn + " END"
			}
		}
		for _, status := range model.StoredStatuses {
			orders[status] = &sum{}
			query := "SELECT number AS place, quantity AS units, " + wrongTurn + " AS extra FROM orders" + s.index("orders_status") +
				" WHERE number > ? AND sale_id = ? AND status = ? ORDER BY number"
			numbered = append(numbered, rowsAfter[int64]{query, 0, []any{saleID, string(status)}, orders[status]})
		}
		named := []rowsAfter[string]{{"SELECT order_id AS place, quantity AS units, 0 AS extra FROM refusals" +
			" WHERE order_id > ? AND order_id < ? ORDER BY order_id", saleID, []any{saleID + behindSale}, orders[model.OrderRejected]}}
		if offer.IsCampaignLine() { // its rows in buyers are of the whole campaign
			ofCampaign.units = offer.Stock.Quota
			ofItsSales.units, err = cell[int64](tx, "sum the sales of a campaign",
				"SELECT COALESCE(SUM(reserved), 0) FROM stock JOIN sales ON sales.id = sale_id WHERE campaign_id = ? AND "+forBuyers, offer.ID)
		} else if named = append(named, buyersUnits(saleID, &users)); offer.Campaign.ID != "" {
			// Users without a row of the campaign are not compared here. Their units still count in the sums of the sales below.
			err = sums(tx, sumRows/model.MaxVariants, rowsAfter[string]{`SELECT user_id AS place, units, CASE WHEN units = COALESCE((
				SELECT SUM(units) FROM buyers AS one WHERE one.user_id = buyers.user_id AND one.sale_id IN
				(SELECT id FROM sales WHERE campaign_id = buyers.sale_id AND ` + forBuyers + `)), 0) THEN 0 ELSE 1 END AS extra
				FROM buyers WHERE user_id > ? AND sale_id = ? ORDER BY user_id`, "", []any{offer.Campaign.ID}, &ofCampaign})
			var sales []string
			if err == nil {
				sales, err = column[string](tx, "read its sales", "SELECT id FROM sales WHERE campaign_id = ? AND "+forBuyers, offer.Campaign.ID)
			}
			for _, id := range sales {
				named = append(named, buyersUnits(id, &ofItsSales))
			}
		}
		if err == nil {
			err = sums(tx, sumRows, numbered...)
		}
		if err == nil {
			err = sums(tx, sumRows, named...)
		}
		return err
	}, oneInstant)
	books.CalledUnits, books.WrongCalls, books.Entries, books.BuyersUnits = calls.units, calls.extra, entries.rows, users.units
	books.CampaignUnits, books.CampaignWrong, books.CampaignSales = ofCampaign.units, ofCampaign.extra, ofItsSales.units
	books.Orders, books.Units = map[model.OrderStatus]int64{}, map[model.OrderStatus]int64{}
	for status, of := range orders {
		if of.rows > 0 || status == model.OrderRejected {
			books.Orders[status], books.Units[status], books.WrongTurns = of.rows, of.units, books.WrongTurns+of.extra
		}
	}
	return books, ok, wrap("read the books of sale "+saleID, err)
}

func buyersUnits(saleID string, into *sum) rowsAfter[string] {
	return rowsAfter[string]{"SELECT user_id AS place, units, 0 AS extra FROM buyers" +
		" WHERE user_id > ? AND sale_id = ? ORDER BY user_id", "", []any{saleID}, into}
}

// rowsAfter is a query of the rows whose place is above "after", in the order of the places. Its rows are (place, units, extra); in
// Books, extra is 1 if the row contradicts another table, and else 0. The arguments of the query are "after" and then "others".
type rowsAfter[K any] struct {
	query  string
	after  K
	others []any
	into   *sum
}

type sum struct{ rows, units, extra int64 }

// sums adds the number of rows of each query, their units and their extra to the query's "into". Each statement of
// sums reads a page of every query that may have rows left; these pages have at most rowsAtOnce rows together.
func sums[K any](tx *gorm.DB, rowsAtOnce int64, queries ...rowsAfter[K]) error {
	for len(queries) > 0 {
		texts, args, most := make([]string, len(queries)), []any(nil), rowsAtOnce/int64(len(queries))
		for i, q := range queries {
			texts[i] = fmt.Sprintf(`SELECT %d AS i, COUNT(*) AS counted, COALESCE(SUM(units), 0) AS sum, COALESCE(SUM(extra), 0) AS extra, MAX(place) AS last
				FROM (%s LIMIT ?) AS page`, i, q.query)
			args = append(append(append(args, q.after), q.others...), most)
		}
		var pages []struct {
			I                   int
			Counted, Sum, Extra int64
			Last                K
		}
		if err := tx.Raw(strings.Join(texts, " UNION ALL "), args...).Scan(&pages).Error; err != nil {
			return err
		}
		var open []rowsAfter[K]
		for _, p := range pages {
			q := queries[p.I]
			q.into.rows, q.into.units, q.into.extra = q.into.rows+p.Counted, q.into.units+p.Sum, q.into.extra+p.Extra
			if q.after = p.Last; p.Counted == most {
				open = append(open, q)
			}
		}
		queries = open
	}
	return nil
}
