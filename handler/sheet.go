package handler

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"flashsale/model"
	"flashsale/service"
)

const csvBody = "text/csv"

// byteOrderMark begins a sheet: without this mark, Excel takes UTF-8 for another encoding.
const byteOrderMark = "\ufeff"

// cell is a column of a campaign's sheet, and the field for the column's value in one row.
type cell struct {
	column string
	value  any // a pointer to the field, or an amount
}

// amount is money in a cell, which sheets write in the unit of its currency and not in the smallest one.
type amount struct {
	smallest *int64
	currency *string // its cell is read before
}

// The first ofCampaign columns are those of the campaign. The last ofLine of these columns are about the campaign's line.
const (
	ofCampaign = 14
	ofLine     = 4
)

// cells returns the columns of a sheet, in the order in which an export has them.
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
		{"stock_shown", &b.StockShown},
		{"mode", &b.Mode},
		{"entries_at", &b.EntriesAt},
		{"call_seconds", &b.CallSeconds},
		{"beacon", &b.Beacon},
		{"entry_work", &b.EntryWork},
		{"variant", &v.Variant},
		{"quota", &v.Quota},
		{"price", amount{&v.PriceCents, &b.Currency}},
		{"original_price", amount{&v.OriginalPriceCents, &b.Currency}},
		{"limit_per_user", &v.LimitPerUser},
	}
}

// exported are the columns that only an export has. An import ignores them, so that an exported sheet can be imported.
var exported = []string{"sale_id", "state", "available", "held", "paid"}

// parse reads a text into the cell. decimal is the sign before the fraction of a number in the sheet. If the cell can't have the
// text, parse returns a reason that says what the cell takes, otherwise "".
func (c cell) parse(text, decimal string) (wrong service.Reason) {
	var err error
	switch value := c.value.(type) {
	case *string:
		if strings.HasPrefix(text, "'") && harmless(text[1:]) == text { // an export puts such quotes there
			text = text[1:]
		}
		*value = text
	case *model.StockShown:
		*value = model.StockShown(text)
	case *model.Mode:
		*value = model.Mode(text)
	case *bool:
		wrong = badYesNo
		*value, err = strconv.ParseBool(text)
	case *time.Time:
		wrong = badMoment
		*value, err = time.Parse(time.RFC3339, text)
	case amount:
		wrong = badAmount
		digits, _ := model.Digits(*value.currency)
		*value.smallest, err = decimalNumber(text, decimal, digits)
	default:
		wrong = badNumber
		var n int64
		if n, err = decimalNumber(text, decimal, 0); err == nil {
			err = json.Unmarshal(strconv.AppendInt(nil, n, 10), value) // value may point to any type of number
		}
	}
	if err == nil {
		return ""
	}
	return wrong
}

// grouped has, for each sign that may stand before a fraction, the pattern of a number as spreadsheets show it: groups of three
// digits may be separated.
var grouped = map[string]*regexp.Regexp{
	".": regexp.MustCompile(`^(-?\d+|-?\d{1,3}(?:[, \x{a0}\x{202f}'’]\d{3})+)(?:\.(\d*))?$`),
	",": regexp.MustCompile(`^(-?\d+|-?\d{1,3}(?:[. \x{a0}\x{202f}'’]\d{3})+)(?:,(\d*))?$`),
}

// decimalNumber reads a number whose fraction has at most this many digits, and perhaps zeros behind them. It returns the number
// times 10 to the power of digits. If digits is 3, a number grouped by commas or points needs a fraction: 1,500 may be 1.5.
func decimalNumber(text, decimal string, digits int) (int64, error) {
	found := grouped[decimal].FindStringSubmatch(text)
	if found == nil || digits == 3 && found[2] == "" && strings.ContainsAny(found[1], ".,") {
		return 0, strconv.ErrSyntax
	}
	fraction := strings.TrimRight(found[2], "0")
	if len(fraction) > digits {
		return 0, strconv.ErrSyntax
	}
	whole := strings.Map(func(r rune) rune {
		if r == '-' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, found[1])
	return strconv.ParseInt(whole+fraction+strings.Repeat("0", digits-len(fraction)), 10, 64)
}

func (c cell) text() string {
	switch value := c.value.(type) {
	case *time.Time:
		return cellTime(*value)
	case *string:
		return harmless(*value)
	case **int:
		return strconv.Itoa(**value)
	case amount:
		return model.Amount(*value.smallest, *value.currency)
	}
	return fmt.Sprint(reflect.ValueOf(c.value).Elem())
}

// readRows reads CSV (RFC 4180) in UTF-8, or in UTF-16 with a mark. Lines may end with CR, LF or both. Commas, semicolons or tabs
// separate the cells, or the sign that a first line such as "sep=;" names. Empty rows are skipped, and short rows are filled up
// to the length of the first. decimal is the sign before the fraction of a number: a comma if semicolons separate the cells,
// otherwise a point.
func readRows(raw []byte) (rows []sheetRow, decimal string, invalid *service.Invalid) {
	raw, _, _ = transform.Bytes(unicode.BOMOverride(transform.Nop), raw) // from UTF-16 if a mark says so
	if !utf8.Valid(raw) {
		return nil, "", &service.Invalid{Reason: notUTF8}
	}
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(raw))
	head, rest, _ := strings.Cut(text, "\n")
	separator, above := ',', 0 // above: the lines before the sheet, less the line breaks inside cells so far
	if name, ok := strings.CutPrefix(strings.Trim(head, `"`), "sep="); ok && len(name) == 1 {
		separator, text, above = rune(name[0]), rest, 1
	} else {
		for _, other := range ";\t" {
			if strings.Count(head, string(other)) > strings.Count(head, string(separator)) {
				separator = other
			}
		}
	}
	if decimal = "."; separator == ';' {
		decimal = ","
	}
	sheet := csv.NewReader(strings.NewReader(text))
	sheet.Comma, sheet.FieldsPerRecord = separator, -1
	for {
		row, err := sheet.Read()
		if errors.Is(err, io.EOF) {
			return rows, decimal, nil
		}
		if wrong := (*csv.ParseError)(nil); errors.As(err, &wrong) { // it counts the lines of the sheet alone
			wrong.StartLine, wrong.Line = wrong.StartLine+above, wrong.Line+above
		}
		if err != nil {
			return nil, "", &service.Invalid{Reason: notCSV, Value: err.Error()}
		}
		line, _ := sheet.FieldPos(0)
		number := line + above
		for i := range row {
			above -= strings.Count(row[i], "\n")
			row[i] = strings.TrimSpace(row[i])
		}
		for len(row) > 0 && row[len(row)-1] == "" {
			row = row[:len(row)-1]
		}
		switch {
		case len(row) == 0:
			continue
		case len(rows) > 0 && len(row) > len(rows[0].cells):
			return nil, "", &service.Invalid{Reason: notCSV, Value: fmt.Sprintf("row %d has %d cells, the first has %d", number, len(row), len(rows[0].cells))}
		case len(rows) > 0:
			row = append(row, make([]string, len(rows[0].cells)-len(row))...)
		}
		rows = append(rows, sheetRow{number, row})
	}
}

// sheetRow is a row that is not empty, with its number as a spreadsheet shows it.
type sheetRow struct {
	number int
	cells  []string
}

// readSheet reads a sheet into a new campaign, and returns what is wrong, or nil. The first row has the names of the columns, in
// any order. Each further row is a sale. After the first sale, cells of the campaign must be empty or as in the first sale's row.
func readSheet(raw []byte, b *campaignBody) *service.Invalid {
	rows, decimal, invalid := readRows(raw)
	if invalid != nil {
		return invalid
	}
	if len(rows) == 0 {
		return &service.Invalid{Reason: emptyBody}
	}
	columns := rows[0].cells
	for i, name := range columns {
		columns[i] = strings.ReplaceAll(strings.ToLower(name), " ", "_")
	}
	names := each(cells(b, &variantBody{}), func(c cell) string { return c.column })
	for i, name := range columns {
		switch {
		case !slices.Contains(names, name) && !slices.Contains(exported, name):
			return &service.Invalid{Field: quoted(name), Reason: unknownField}
		case slices.Contains(columns[:i], name):
			return &service.Invalid{Field: quoted(name), Reason: repeatedField}
		}
	}
	for at, row := range rows[1:] {
		var v variantBody
		for i, c := range cells(b, &v) {
			place := slices.Index(columns, c.column)
			if place < 0 || row.cells[place] == "" {
				continue
			}
			text, wrong := row.cells[place], service.Reason("")
			switch {
			case i >= ofCampaign || at == 0:
				wrong = c.parse(text, decimal)
			case text != rows[1].cells[place]:
				wrong = notAsInFirst
			}
			if wrong != "" {
				return &service.Invalid{Field: fmt.Sprintf("row %d, %s", row.number, c.column), Reason: wrong, Value: text}
			}
		}
		b.Sales = append(b.Sales, v)
	}
	return nil
}

// export answers with the sheet of a campaign. The values of the campaign are only in the first row: with a description in 64
// rows, the sheet would be too large for an import.
func (s *Campaigns) export(c *gin.Context) {
	sales, ok := s.campaign(c)
	if !ok {
		return
	}
	var body bytes.Buffer
	body.WriteString(byteOrderMark)
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
		now := s.Catalog.Now()
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
	campaign := campaignBody{termsBody: termsBody{
		Title: o.Campaign.Title, Description: o.Campaign.Description, ImageURL: o.Campaign.ImageURL, Currency: o.Currency,
		StartsAt: o.StartsAt, EndsAt: o.EndsAt, LimitPerUser: o.Campaign.LimitPerUser, PayTimeoutSeconds: o.PayTimeoutSeconds, StockShown: o.StockShown,
		Mode: o.Mode, EntriesAt: o.EntriesAt, CallSeconds: o.CallSeconds, Beacon: o.Beacon, EntryWork: o.EntryWork,
	}}
	return campaign, variantBody{
		Variant: o.Variant, Quota: o.Stock.Quota, PriceCents: o.PriceCents, OriginalPriceCents: o.OriginalPriceCents, LimitPerUser: &o.LimitPerUser,
	}
}
