package handler

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"flashsale/test/kit/check"
)

// Whatever program has written a sheet, it makes the same campaign.
func TestSheetsOfSpreadsheets(t *testing.T) {
	const plain = "title,starts_at,beacon,variant,quota,price\n跑鞋,2026-01-01T08:00:00Z,true,\"40,5\",1500,9900\n,,,41,3,9800\n"
	usual := strings.NewReplacer("\"40,5\"", "40.5") // where the comma is no part of a text
	with := func(separator string) string { return strings.ReplaceAll(usual.Replace(plain), ",", separator) }
	wide := func(order binary.AppendByteOrder, text string) (raw string) {
		for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
			raw = string(order.AppendUint16([]byte(raw), unit))
		}
		return raw
	}
	edited := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(plain) }
	read := func(sheet string) (b campaignBody) {
		invalid := readSheet([]byte(sheet), &b)
		check.Same(t, "invalid", invalid, nil)
		return b
	}
	want := read(plain)
	check.Same(t, "usual", []any{want.Title, want.StartsAt, want.Beacon, want.Sales[0].Variant, want.Sales[0].Quota, want.Sales[1].Quota, want.Sales[1].PriceCents},
		[]any{"跑鞋", time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC), true, "40,5", int64(1500), int64(3), int64(980000)})
	other := read(usual.Replace(plain))
	for name, tc := range map[string]struct {
		sheet string
		want  campaignBody
	}{
		"Excel, in UTF-8":             {"\ufeff" + edited("\n", "\r\n"), want},
		"Excel, as Unicode text":      {wide(binary.LittleEndian, with("\t")), other},
		"in UTF-16 of the other kind": {wide(binary.BigEndian, plain), want},
		"Excel, in Germany":           {"\ufeff" + with(";"), other},
		"with a line for Excel":       {"sep=;\r\n" + with(";"), other},
		"Excel for old Macs":          {edited("\n", "\r"), want},
		"pandas":                      {edited("1500", "1500.0", ",3,", ",3.0,"), want},
		"groups of digits":            {edited("1500", "\"1,500\"", "9900", "\"9,900.00\""), want},
		"groups of digits in Germany": {strings.NewReplacer("1500", "1.500", "9900", "9.900,00").Replace(with(";")), other},
		"groups of digits in France":  {strings.NewReplacer("1500", "1\u202f500", "9900", "9\u00a0900").Replace(with(";")), other},
		"Numbers, with spaces":        {edited(",1500,", ", 1500 ,", "variant", " Variant ", "price", "Price"), want},
		"LibreOffice, empty cells":    {edited("\n", ",,\n") + ",,,,,,,\n,,,,,,,\n\n", want},
		"short rows":                  {edited(",3,9800", ",3,9800\n,,,42"), func() campaignBody { b := want; b.Sales = append(b.Sales[:2:2], variantBody{Variant: "42"}); return b }()},
		"words for yes":               {edited("true", "TRUE"), want},
	} {
		check.Same(t, name, read(tc.sheet), tc.want)
	}
	for sheet, field := range map[string]string{
		with(";") + ";;;42;29,90\n":             "row 4, quota",
		with(";") + ";;;42;2;29.90\n":           "row 4, price",
		plain + ",,,42,1.5\n":                   "row 4, quota",
		plain + ",,,42,\"1,50\"\n":              "row 4, quota",
		plain + ",,,42,1,2,3,4\n":               "",
		plain + "\n,,,,\n,,,42,many\n":          "row 6, quota", // rows are counted as a spreadsheet shows them
		"sep=;\n" + with(";") + ";;;42;29,90\n": "row 5, quota",
		strings.Replace(plain, "true", "ja", 1): "row 2, beacon",
		"\xe4,b\n":                              "",
	} {
		invalid := readSheet([]byte(sheet), &campaignBody{})
		if invalid == nil || invalid.Field != field {
			t.Errorf("%q: %+v, want the field %q", sheet, invalid, field)
		}
	}
	invalid := readSheet([]byte("sep=;\n"+with(";")+";;\"42;2;29,90\n"), &campaignBody{})
	check.Same(t, "a quotation mark is not closed", invalid.Value, "parse error on line 5, column 15: extraneous or missing \" in quoted-field")
}

// Amounts have the digits of their currency. What could mean another amount to somebody is refused.
func TestAmountsInSheets(t *testing.T) {
	for text, want := range map[string]int64{
		"CNY . 29.90": 2990, "CNY , 29,90": 2990, "CNY . 29.9": 2990, "CNY . 1,500.5": 150_050, "CNY , 1.500": 150_000, "CNY . 29.900": 2990,
		"JPY . 1250": 1250, "JPY . 1,250.00": 1250, "KWD . 1.25": 1250, "KWD , 1,250": 1250, "KWD . 1,500.000": 1_500_000, "KWD . 1 500": 1_500_000,
		"CNY . 29.905": 0, "CNY . 29,90": 0, "JPY . 12.5": 0, "KWD . 1,500": 0, "KWD , 1.500": 0, "KWD . 1.2505": 0,
	} {
		var got int64
		parts := strings.SplitN(text, " ", 3)
		wrong := cell{"price", amount{&got, &parts[0]}}.parse(parts[2], parts[1])
		if got != want || (wrong != "") != (want == 0) {
			t.Errorf("%s: %d, %q; want %d", text, got, wrong, want)
		}
	}
}
