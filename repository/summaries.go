package repository

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"flashsale/model"
)

// summarySorts has the SQL of a number by which summaries are sorted, the highest first.
var summarySorts = map[string]string{"": "created", "newest": "created", "start": "starts", "sold": "held + paid"}

// summaries is a query for the summaries of all campaigns, and of all sales without a campaign. Its arguments are what a title has
// to contain, and what an id or a short link's code has to begin with, as patterns of LIKE. Its format needs the clock. A state is
// a place in model.States.
const summaries = `SELECT COALESCE(campaign_id, sales.id) AS id, MAX(CASE WHEN campaign_id IS NULL THEN 0 ELSE 1 END) AS grouped,
	COALESCE(MAX(campaigns.title), MAX(sales.title)) AS title, COALESCE(MAX(sale_lines.mode), 'rush') AS mode,
	MIN(CASE WHEN status = 'closed' OR ends_at_ms <= %[1]s THEN 4 WHEN status = 'paused' THEN 2 WHEN starts_at_ms > %[1]s THEN 1
		WHEN available + reserved + called <= 0 THEN 3 ELSE 0 END) AS state,
	MIN(starts_at_ms) AS starts, MAX(ends_at_ms) AS ends, COUNT(*) AS sales, MIN(price_cents) AS low, MAX(price_cents) AS high,
	MAX(currency) AS currency, COALESCE(MAX(campaigns.limit_per_user), MAX(sales.limit_per_user)) AS units,
	SUM(quota) AS quota, SUM(available + reserved + called) AS free, SUM(held) AS held, SUM(paid) AS paid, MIN(sales.created_at_ms) AS created,
	MAX(CASE WHEN sales.title LIKE ? ESCAPE '!' OR sales.id LIKE ? OR code LIKE ? OR campaign_id LIKE ? THEN 1 ELSE 0 END) AS named
	FROM ` + salesWithStock + ` WHERE ` + forBuyers + ` GROUP BY COALESCE(campaign_id, sales.id)`

// inPatterns escapes the characters that mean something in a pattern of LIKE.
var inPatterns = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// Summaries lists campaigns, and sales without a campaign. It reads all sales. next is the cursor of the next page, empty at the
// end. Summaries returns model.ErrBadCursor if the cursor can't be read.
func (s *Store) Summaries(ctx context.Context, f model.SummaryFilter) (list []model.Summary, next string, err error) {
	before, id, err := parseCursor(f.Cursor)
	if err != nil {
		return nil, "", err
	}
	begins := "-" // no id begins so
	if code := strings.ToUpper(f.Words); model.ValidID(code, len(code)) {
		begins = code + "%"
	}
	sort := summarySorts[f.Sort]
	where, args := "", []any{"%" + inPatterns.Replace(f.Words) + "%", begins, begins, begins}
	if f.State != "" {
		where, args = where+" AND state = ?", append(args, slices.Index(model.States, f.State))
	}
	if f.Mode != "" {
		where, args = where+" AND mode = ?", append(args, string(f.Mode))
	}
	type row struct {
		model.Summary
		state int
		place int64 // by which the list is sorted
	}
	f.Limit = max(1, f.Limit)
	rows, err := scan(s.read.WithContext(ctx), "list summaries", func(r *row) []any {
		return []any{
			&r.ID, &r.Campaign, &r.Title, &r.Mode, &r.state, millis(&r.StartsAt), millis(&r.EndsAt), &r.Sales, &r.LowCents, &r.HighCents,
			&r.Currency, &r.LimitPerUser, &r.Quota, &r.Available, &r.Held, &r.Paid, &r.place,
		}
	}, "SELECT id, grouped, title, mode, state, starts, ends, sales, low, high, currency, units, quota, free, held, paid, "+sort+" AS place FROM ("+
		fmt.Sprintf(summaries, s.nowMillis())+") AS listed WHERE named = 1"+where+" AND ("+sort+" < ? OR "+sort+" = ? AND id < ?) ORDER BY place DESC, id DESC LIMIT ?",
		append(args, before, before, id, f.Limit+1)...)
	rows, next = cut(rows, f.Limit, func(last *row) string { return cursorOf(last.place, last.ID) })
	return each(rows, func(r row) model.Summary {
		r.State = model.States[r.state]
		return r.Summary
	}), next, err
}
