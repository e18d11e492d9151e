package repository

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// offerColumns are the columns of a sale with its campaign, stock and line. A query adds the clock behind the last comma.
const offerColumns = `sales.id, code, sales.title, sales.description, sales.image_url, price_cents, original_price_cents, currency,
	sales.limit_per_user, pay_timeout_seconds, starts_at_ms, ends_at_ms, status, revision, shards, stock_shown, started, terms_at_ms,
	campaign_id, variant, place, campaigns.title, campaigns.description, campaigns.image_url, campaigns.limit_per_user,
	COALESCE(mode, 'rush'), entries_at_ms, call_seconds, waiting_list, commitment, root, seed,
	CASE WHEN root = '' OR beacon_round > 0 AND seed = '' THEN '' ELSE secret END,
	entry_work, beacon, beacon_round, beacon_signature, beacon_randomness,
	` + stockColumns + ", "

// stockColumns are columns of the stock and the line that can change without a new revision of the sale.
const stockColumns = `stock.sale_id, quota, available, reserved, called, held, paid, version, epoch, gate_version, wrong_epoch, terms, lined,
	spent_calls, lapsed_calls, phase, entries, sealed, serving, first_at_ms, stopped`

// salesWithStock joins the tables of the offerColumns. A sale without a line has NULL in the line's columns.
const salesWithStock = `sales JOIN stock ON stock.sale_id = sales.id LEFT JOIN sale_lines ON sale_lines.sale_id = COALESCE(sales.campaign_id, sales.id)
	LEFT JOIN campaigns ON campaigns.id = sales.campaign_id`

// offerFields returns pointers to the fields of o, in the order of offerColumns.
func offerFields(o *model.Offer) []any {
	return append([]any{
		&o.ID, &o.Code, &o.Title, &o.Description, &o.ImageURL, &o.PriceCents, &o.OriginalPriceCents, &o.Currency,
		&o.LimitPerUser, &o.PayTimeoutSeconds, millis(&o.StartsAt), millis(&o.EndsAt), &o.Status, &o.Revision, &o.Shards, &o.StockShown, &o.Started, millis(&o.TermsAt),
		optional(&o.Campaign.ID), &o.Variant, &o.Place, optional(&o.Campaign.Title), optional(&o.Campaign.Description),
		optional(&o.Campaign.ImageURL), optional(&o.Campaign.LimitPerUser), &o.Mode, millis(&o.EntriesAt), optional(&o.CallSeconds),
		optional(&o.WaitingList), optional(&o.Line.Commitment), optional(&o.Line.Root), optional(&o.Line.Seed), optional(&o.Line.Secret),
		optional(&o.EntryWork), optional(&o.Beacon), optional(&o.Line.Round), optional(&o.Line.Signature), optional(&o.Line.Randomness),
	}, stockFields(&o.Stock, &o.Line)...)
}

// stockFields returns pointers to the fields of a stock and a line, in the order of stockColumns.
func stockFields(s *model.Stock, l *model.Line) []any {
	return []any{
		&s.SaleID, &s.Quota, &s.Available, &s.Reserved, &s.Called, &s.Held, &s.Paid, &s.Version, &s.Epoch, &s.GateVersion, &s.WrongEpoch, &s.Terms, &s.Lined,
		&s.SpentCalls, &s.LapsedCalls, optional(&l.Phase), optional(&l.Entries), optional(&l.Sealed), optional(&l.Serving), millis(&l.FirstAt),
		optional(&l.Stopped),
	}
}

// offers reads the sales that "where", the SQL after WHERE, selects. now is the database's clock, or zero if no sale is selected.
func (s *Store) offers(db *gorm.DB, where string, args ...any) (list []model.Offer, now time.Time, err error) {
	list, err = scan(db, "read sales", func(o *model.Offer) []any { return append(offerFields(o), millis(&now)) },
		"SELECT "+offerColumns+s.nowMillis()+" FROM "+salesWithStock+" WHERE "+where, args...)
	return list, now, err
}

// Offer reads one sale; ok is false if there is none.
func (s *Store) Offer(ctx context.Context, saleID string) (offer model.Offer, ok bool, err error) {
	offer, _, ok, err = s.offerOn(s.read.WithContext(ctx), saleID)
	return offer, ok, err
}

func (s *Store) offerOn(db *gorm.DB, saleID string) (model.Offer, time.Time, bool, error) {
	list, now, err := s.offers(db, "sales.id = ?", saleID)
	offer, ok, err := one(list, err)
	return offer, now, ok, err
}

// LiveOffers reads the sales whose end is to come or was less than "linger" ago, in the order of their start. Closed sales, and
// the sales that have the lines of campaigns, are included.
func (s *Store) LiveOffers(ctx context.Context, linger time.Duration) ([]model.Offer, error) {
	list, _, err := s.offers(s.read.WithContext(ctx), "ends_at_ms > "+s.nowMillis()+" - ? ORDER BY starts_at_ms, sales.id", linger.Milliseconds())
	return list, err
}

// forBuyers is a condition that leaves out the sales that only have the line of a campaign.
const forBuyers = "(sales.campaign_id IS NULL OR sales.campaign_id <> sales.id)"

// Sales lists sales, but not those that only have a campaign's line. The newest come first. next is the cursor of the next page,
// empty at the end. Sales returns model.ErrBadCursor if the cursor can't be read.
func (s *Store) Sales(ctx context.Context, cursor string, limit int) (list []model.Offer, next string, err error) {
	at, id, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	type row struct {
		at int64
		id string
	}
	limit = max(1, limit)
	// The first comparison can use an index. The others decide between rows of the same millisecond.
	rows, err := scan(s.read.WithContext(ctx), "list sales", func(r *row) []any { return []any{&r.at, &r.id} },
		"SELECT created_at_ms, id FROM sales WHERE "+forBuyers+" AND created_at_ms <= ? AND (created_at_ms < ? OR id < ?) "+
			"ORDER BY created_at_ms DESC, id DESC LIMIT ?", at, at, id, limit+1)
	if err != nil {
		return nil, "", err
	}
	rows, next = cut(rows, limit, func(last *row) string { return cursorOf(last.at, last.id) })
	list, _, err = s.offers(s.read.WithContext(ctx), "sales.id IN ? ORDER BY sales.created_at_ms DESC, sales.id DESC",
		each(rows, func(r row) string { return r.id }))
	return list, next, err
}

// LiveSales caches the sales of LiveOffers. A change of other columns than the stockColumns raises the revision of a sale, so
// most reads fetch only the revisions and the stockColumns.
type LiveSales struct {
	*Store
	known atomic.Pointer[map[string]model.Offer] // by id, from the last full read
}

// NewLiveSales returns a LiveSales with an empty cache.
func NewLiveSales(s *Store) *LiveSales {
	l := &LiveSales{Store: s}
	l.known.Store(&map[string]model.Offer{})
	return l
}

// LiveOffers returns the same as Store.LiveOffers. It reads all columns if a sale is not in the cache or has another revision.
func (l *LiveSales) LiveOffers(ctx context.Context, linger time.Duration) ([]model.Offer, error) {
	list, err := scan(l.read.WithContext(ctx), "read stocks", func(o *model.Offer) []any {
		return append([]any{&o.Revision}, stockFields(&o.Stock, &o.Line)...)
	}, "SELECT revision, "+stockColumns+" FROM "+salesWithStock+" WHERE ends_at_ms > "+l.nowMillis()+" - ? ORDER BY starts_at_ms, sales.id",
		linger.Milliseconds())
	if err != nil {
		return nil, err
	}
	known := *l.known.Load()
	for i, now := range list {
		offer, ok := known[now.Stock.SaleID]
		if !ok || offer.Revision != now.Revision {
			if list, err = l.Store.LiveOffers(ctx, linger); err == nil {
				known = byKey(list, func(o model.Offer) string { return o.ID })
				l.known.Store(&known)
			}
			return list, err
		}
		offer.Stock = now.Stock
		if of, is := &offer.Line, now.Line; offer.HasLine() {
			of.Phase, of.Entries, of.Sealed, of.Serving, of.FirstAt, of.Stopped = is.Phase, is.Entries, is.Sealed, is.Serving, is.FirstAt, is.Stopped
		}
		list[i] = offer
	}
	return list, nil
}

// SaleCodes returns, by id, the short codes of the sales made since a time. The map also has the ids of campaigns made since
// then. asked is the time of the query by the database's clock.
func (s *Store) SaleCodes(ctx context.Context, since time.Time) (codes map[string]string, asked time.Time, err error) {
	type row struct {
		id, code string
		now      time.Time
	}
	rows, err := scan(s.read.WithContext(ctx), "read sale ids", func(r *row) []any { return []any{&r.id, &r.code, millis(&r.now)} },
		"SELECT '', '', "+s.nowMillis()+" UNION ALL SELECT id, code, 0 FROM sales WHERE created_at_ms >= ? "+
			"UNION ALL SELECT id, id, 0 FROM campaigns WHERE created_at_ms >= ?", since.UnixMilli(), since.UnixMilli())
	codes, asked = make(map[string]string, len(rows)), since
	for _, r := range rows {
		if r.id == "" {
			asked = r.now
			continue
		}
		if r.code != r.id || codes[r.id] == "" { // a campaign's line has the campaign's id, and a code of its own
			codes[r.id] = r.code
		}
	}
	return codes, asked, err
}

// SaleByCode returns the id of the sale that a short link leads to, or an empty id if there is none.
func (s *Store) SaleByCode(ctx context.Context, code string) (string, error) {
	return cell[string](s.read.WithContext(ctx), "read a short link", "SELECT id FROM sales WHERE code = ?", code)
}

// CreateSale inserts a sale, its stock and, if the sale has a line of its own, the line. The whole quota is available or, in the
// modes line and draw, reserved for the line. The gate has one shard if sale.Shards is 0.
func (s *Store) CreateSale(ctx context.Context, sale model.Sale, quota int64, actor string) error {
	return s.transact(ctx, func(tx *gorm.DB) error { return s.createSale(tx, sale, quota, actor) })
}

func (s *Store) createSale(tx *gorm.DB, sale model.Sale, quota int64, actor string) error {
	if model.IsShadow(sale.ID) != (sale.Status == model.SaleShadow) {
		return fmt.Errorf("create sale: %s does not fit the status %s", sale.ID, sale.Status)
	}
	creating := do(`INSERT INTO sales (id, code, title, description, image_url, price_cents, original_price_cents, currency,
		limit_per_user, pay_timeout_seconds, starts_at_ms, ends_at_ms, status, revision, shards, stock_shown, campaign_id, variant, place, created_at_ms)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, NULLIF(?, ''), ?, ?, `+s.nowMillis()+`)`,
		sale.ID, sale.Code, sale.Title, sale.Description, sale.ImageURL, sale.PriceCents, sale.OriginalPriceCents,
		sale.Currency, sale.LimitPerUser, sale.PayTimeoutSeconds, sale.StartsAt.UnixMilli(), sale.EndsAt.UnixMilli(),
		string(cmp.Or(sale.Status, model.SaleLive)), max(sale.Shards, 1), string(cmp.Or(sale.StockShown, model.StockExact)), sale.Campaign.ID, sale.Variant, sale.Place)
	open, reserved, lined := quota, int64(0), model.Unlined
	switch {
	case sale.Mode == model.ModeLine || sale.Mode == model.ModeDraw:
		open, reserved, lined = 0, quota, model.InLine
	case sale.WaitingList:
		lined = model.LinedAtSoldOut
	}
	stocking := do("INSERT INTO stock (sale_id, quota, available, reserved, called, held, paid, version, epoch, epoch_at_ms, gate_version, wrong_epoch, terms, "+
		"refusing_until_ms, returning_at_ms, lined, spent_calls, lapsed_calls) VALUES (?, ?, ?, ?, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, ?, 0, 0)", sale.ID, quota, open, reserved, lined)
	detail := fmt.Sprintf("title %s; quota %d; price_cents %d; currency %s; limit_per_user %d; pay_timeout_seconds %d; starts_at %s; ends_at %s",
		excerpt(sale.Title), quota, sale.PriceCents, sale.Currency, sale.LimitPerUser, sale.PayTimeoutSeconds, instant(sale.StartsAt), instant(sale.EndsAt))
	return wrap("create sale", s.run(tx, creating, stocking, creatingLine(sale), s.logging(actor, "create", sale.ID, detail)))
}

// ChangeSale applies a change and returns the changed sale. It raises the version of the stock row, so that a Deduct that judged
// the old sale loses its race. The verdict is Accepted or, if nothing is changed, one of these: NotFound; QuotaChanged if the
// quota is not change.IfQuota; BadRequest, with the present quota in offer, if the quota would exceed change.MostQuota; the
// refusal of change.Edit; or one of changeLine.
func (s *Store) ChangeSale(ctx context.Context, change model.SaleChange) (offer model.Offer, verdict model.Verdict, err error) {
	campaigns, err := s.campaignsOf(s.read.WithContext(ctx), change.SaleID)
	if err != nil {
		return offer, "", err
	}
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (verdict model.Verdict, err error) {
		// The line is locked before the stock, as callers of a line do.
		if _, _, err := s.lockLine(tx, cmp.Or(campaigns[change.SaleID], change.SaleID)); err != nil {
			return "", err
		}
		offer, verdict, err = s.changeSale(tx, campaigns[change.SaleID], change)
		return verdict, err
	})
	return offer, verdict, err
}

// changeSale is ChangeSale in a transaction that has locked the sale's line, if there is one. campaignID may be empty.
func (s *Store) changeSale(tx *gorm.DB, campaignID string, change model.SaleChange) (offer model.Offer, verdict model.Verdict, err error) {
	stock, ok, err := s.lockStock(tx, change.SaleID)
	if err != nil || !ok {
		return offer, model.NotFound, err
	}
	if change.Quota > 0 {
		change.AddQuota = change.Quota - stock.Quota
	}
	if change.AddQuota != 0 {
		if stock.Available+stock.Reserved+change.AddQuota < 0 {
			return offer, model.Started, nil // units were sold
		}
		err = s.giveBack(tx, change.SaleID, campaignID, "quota = quota + ?, "+s.nextTerms(), model.GateChange{Units: change.AddQuota})
	} else {
		err = tx.Exec("UPDATE stock SET "+s.nextTerms()+", "+nextGateVersion+" WHERE sale_id = ?", change.SaleID).Error
	}
	if err != nil {
		return offer, "", wrap("change the stock", err)
	}
	offer, now, _, err := s.offerOn(tx, change.SaleID)
	if err != nil {
		return offer, "", err
	}
	offer.Started = offer.Started || offer.StartsAt.Before(now.Add(noticeTime))
	before, sale := offer, &offer.Sale
	before.Stock.Quota -= change.AddQuota
	if change.IfQuota != nil && *change.IfQuota != before.Stock.Quota {
		return offer, model.QuotaChanged, nil
	}
	if change.AddQuota > 0 && change.MostQuota > 0 && offer.Stock.Quota > change.MostQuota {
		return before, model.BadRequest, nil
	}
	if verdict := change.Edit(sale); verdict != model.Accepted {
		return offer, verdict, nil
	}
	if verdict, err := s.changeLine(tx, before, &offer, now); err != nil || verdict != model.Accepted {
		return offer, verdict, err
	}
	if sale.Revision++; newTerms(before, offer) {
		sale.TermsAt = now
	}
	return offer, model.Accepted, wrap("change sale", s.run(tx, do(`UPDATE sales SET title = ?, description = ?, image_url = ?,
		price_cents = ?, original_price_cents = ?, currency = ?, pay_timeout_seconds = ?, stock_shown = ?, started = ?, terms_at_ms = ?,
		limit_per_user = ?, starts_at_ms = ?, ends_at_ms = ?, status = ?, revision = ? WHERE id = ?`,
		sale.Title, sale.Description, sale.ImageURL, sale.PriceCents, sale.OriginalPriceCents, sale.Currency, sale.PayTimeoutSeconds,
		string(cmp.Or(sale.StockShown, model.StockExact)), sale.Started, toMillis(sale.TermsAt), sale.LimitPerUser, sale.StartsAt.UnixMilli(), sale.EndsAt.UnixMilli(),
		string(sale.Status), sale.Revision, sale.ID), s.logging(change.Actor, change.Action, sale.ID, changes(before, offer))))
}

// changes describes, for the audit log, the old and the new values of the fields in which a sale differs.
func changes(before, after model.Offer) string {
	var list []string
	note := func(field string, from, to any) {
		if from != to {
			list = append(list, fmt.Sprintf("%s: %v -> %v", field, from, to))
		}
	}
	note("status", before.Status, after.Status)
	note("quota", before.Stock.Quota, after.Stock.Quota)
	note("price_cents", before.PriceCents, after.PriceCents)
	note("original_price_cents", before.OriginalPriceCents, after.OriginalPriceCents)
	note("currency", before.Currency, after.Currency)
	note("pay_timeout_seconds", before.PayTimeoutSeconds, after.PayTimeoutSeconds)
	note("stock_shown", before.StockShown, after.StockShown)
	note("beacon", before.Beacon, after.Beacon)
	note("entry_work", before.EntryWork, after.EntryWork)
	note("limit_per_user", before.LimitPerUser, after.LimitPerUser)
	note("starts_at", instant(before.StartsAt), instant(after.StartsAt))
	note("ends_at", instant(before.EndsAt), instant(after.EndsAt))
	note("entries_at", instant(before.EntriesAt), instant(after.EntriesAt))
	note("call_seconds", before.CallSeconds, after.CallSeconds)
	note("waiting_list", before.WaitingList, after.WaitingList)
	note("title", excerpt(before.Title), excerpt(after.Title))
	note("image_url", excerpt(before.ImageURL), excerpt(after.ImageURL))
	note("description", excerpt(before.Description), excerpt(after.Description))
	if len(list) == 0 {
		return "nothing changed"
	}
	return strings.Join(list, "; ")
}

// instant is a time as the audit log shows it.
func instant(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// excerpt is a text as the audit log shows it: quoted, and cut to excerptLength characters.
type excerpt string

const excerptLength = 80

func (e excerpt) String() string {
	if r := []rune(e); len(r) > excerptLength {
		e = excerpt(r[:excerptLength]) + "…"
	}
	return strconv.Quote(string(e))
}
