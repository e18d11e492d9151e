package handler

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

const csvBody = "text/csv"

// cell is a column of a campaign's sheet, and where the value of one row is.
type cell struct {
	column string
	value  any
}

// ofCampaign is how many of the columns are those of the campaign, which are the same in all rows. The last ofLine of these
// are about its line.
const (
	ofCampaign = 13
	ofLine     = 4
)

// cells returns the columns of a sheet in their order.
func cells(b *campaignBody, v *variantBody) []cell {
	return []cell{
		{"title", &b.Title},
		{"description", &b.Description},
		{"image_url", &b.ImageURL},
		{"currency", &b.Currency},
		{"starts_at", &b.StartsAt},
		{"ends_at", &b.EndsAt},
		{"campaign_limit", &b.LimitPerUser},
		{"pay_timeout_seconds", &b.PayTimeoutSeconds},
		{"mode", &b.Mode},
		{"entries_at", &b.EntriesAt},
		{"call_seconds", &b.CallSeconds},
		{"beacon", &b.Beacon},
		{"entry_work", &b.EntryWork},
		{"variant", &v.Variant},
		{"quota", &v.Quota},
		{"price_cents", &v.PriceCents},
		{"original_price_cents", &v.OriginalPriceCents},
		{"limit_per_user", &v.LimitPerUser},
	}
}

// exported are the columns that only an export has. An import ignores them, so that an exported sheet can be imported.
var exported = []string{"sale_id", "state", "available", "held", "paid"}

// parse reads a text into the cell.
func (c cell) parse(text string) (err error) {
	switch value := c.value.(type) {
	case *string:
		if strings.HasPrefix(text, "'") && harmless(text[1:]) == text { // an export has put the quote there
			text = text[1:]
		}
		*value = text
	case *model.Mode:
		*value = model.Mode(text)
	case *bool:
		*value, err = strconv.ParseBool(text)
	case *int:
		*value, err = strconv.Atoi(text)
	case *int64:
		*value, err = strconv.ParseInt(text, 10, 64)
	case **int:
		*value = new(int)
		**value, err = strconv.Atoi(text)
	case *time.Time:
		*value, err = time.Parse(time.RFC3339, text)
	}
	return err
}

func (c cell) text() string {
	switch value := c.value.(type) {
	case **int:
		return strconv.Itoa(**value)
	case *time.Time:
		return cellTime(*value)
	case *string:
		return harmless(*value)
	case *model.Mode:
		return string(*value)
	case *bool:
		return strconv.FormatBool(*value)
	case *int:
		return strconv.Itoa(*value)
	case *int64:
		return strconv.FormatInt(*value, 10)
	}
	return ""
}

// readSheet reads a sheet in CSV (RFC 4180) into a new campaign: a row with the names of the columns, in any order, then one
// row for each sale. The columns of the campaign may be empty in all rows but the first. It returns what is wrong, or nil.
func readSheet(raw []byte, b *campaignBody) *service.Invalid {
	sheet := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\ufeff")))) // as some spreadsheets write it
	rows, err := sheet.ReadAll()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		return &service.Invalid{Reason: notCSV, Value: wrong.Error()}
	}
	if len(rows) == 0 {
		return &service.Invalid{Reason: emptyBody}
	}
	names := make([]string, 0, ofCampaign)
	for _, c := range cells(b, &variantBody{}) {
		names = append(names, c.column)
	}
	for i, name := range rows[0] {
		switch {
		case !slices.Contains(names, name) && !slices.Contains(exported, name):
			return &service.Invalid{Field: name, Reason: unknownField}
		case slices.Contains(rows[0][:i], name):
			return &service.Invalid{Field: name, Reason: repeatedField}
		}
	}
	for at, row := range rows[1:] {
		var v variantBody
		for i, c := range cells(b, &v) {
			place := slices.Index(rows[0], c.column)
			if place < 0 || row[place] == "" {
				continue
			}
			invalid := service.Invalid{Field: fmt.Sprintf("row %d, %s", at+2, c.column), Reason: badCell, Value: row[place]}
			if i < ofCampaign && at > 0 {
				if row[place] != rows[1][place] {
					invalid.Reason = notAsInFirst
					return &invalid
				}
				continue
			}
			if c.parse(row[place]) != nil {
				return &invalid
			}
		}
		b.Sales = append(b.Sales, v)
	}
	return nil
}

// exportCampaign answers with the sheet of a campaign as CSV: what readSheet reads, and the figures of each sale. Only the first
// row has what belongs to the campaign: a description in 64 rows would be more than an import may send.
func (a *API) exportCampaign(c *gin.Context) {
	sales, ok := a.campaign(c)
	if !ok {
		return
	}
	var body bytes.Buffer
	sheet := csv.NewWriter(&body)
	for i, o := range sales {
		b, v := campaignOf(o)
		var names, row []string
		for at, c := range cells(&b, &v) {
			text := c.text()
			if i > 0 && at < ofCampaign || !o.HasLine() && ofCampaign-ofLine <= at && at < ofCampaign {
				text = ""
			}
			names, row = append(names, c.column), append(row, text)
		}
		if i == 0 {
			_ = sheet.Write(slices.Concat(names, exported)) // a write into memory can't fail
		}
		now := a.Catalog.Now()
		_ = sheet.Write(append(row, o.ID, string(o.State(now, o.Stock.Free())),
			strconv.FormatInt(o.Stock.Free(), 10), strconv.FormatInt(o.Stock.Held, 10), strconv.FormatInt(o.Stock.Paid, 10)))
	}
	sheet.Flush()
	c.Header("Content-Disposition", `attachment; filename="campaign-`+sales[0].Campaign.ID+`.csv"`)
	c.Header("Cache-Control", "no-store")
	c.Data(http.StatusOK, csvBody+"; charset=utf-8", body.Bytes())
}

// campaignOf returns a sale and its campaign as operators write them.
func campaignOf(o model.Offer) (campaignBody, variantBody) {
	campaign := campaignBody{
		Title: o.Campaign.Title, Description: o.Campaign.Description, ImageURL: o.Campaign.ImageURL, Currency: o.Currency,
		StartsAt: o.StartsAt, EndsAt: o.EndsAt, LimitPerUser: o.Campaign.LimitPerUser, PayTimeoutSeconds: o.PayTimeoutSeconds,
		Mode: o.Mode, EntriesAt: o.EntriesAt, CallSeconds: o.CallSeconds, Beacon: o.Beacon, EntryWork: o.EntryWork,
	}
	variant := variantBody{
		Variant: o.Variant, Quota: o.Stock.Quota, PriceCents: o.PriceCents, OriginalPriceCents: o.OriginalPriceCents,
		LimitPerUser: &o.LimitPerUser,
	}
	return campaign, variant
}
