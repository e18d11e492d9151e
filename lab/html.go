package lab

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the templates
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	texttemplate "text/template"
)

var (
	//go:embed report.txt.tmpl
	tableSource string
	//go:embed report.html.tmpl
	pageSource string

	funcs = template.FuncMap{
		"figure": Figure, "int": grouped[int], "int64": grouped[int64], "headline": (*Report).headline, "load": (*Report).load,
		"throughput": throughputChart, "latency": latencyChart, "stocks": stockChart, "buckets": bucketRows,
	}
	table = texttemplate.Must(texttemplate.New("table").Funcs(funcs).Parse(tableSource))
	page  = template.Must(template.New("page").Funcs(funcs).Parse(pageSource))
)

// WriteHTML writes the report as an HTML page.
func (r *Report) WriteHTML(w io.Writer) error { return page.Execute(w, r) }

// PagePolicy returns the page's Content-Security-Policy, which allows its inline style by the hash of the style.
var PagePolicy = sync.OnceValue(func() string {
	var page strings.Builder
	_ = (&Report{Stock: 1}).WriteHTML(&page) // writing to memory does not fail
	_, style, _ := strings.Cut(page.String(), "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// headline says how many strategies sold exactly, what the others did, and which of several exact ones was the fastest.
func (r *Report) headline() string {
	var wrong []string
	var fastest *Result
	for _, s := range r.Strategies {
		did := map[Finding]string{
			Oversold: "oversold by " + grouped(s.Oversold), Undersold: "undersold by " + grouped(s.Undersold),
			Lost: "lost " + count(s.Lost, "order"),
		}[s.Verdict]
		switch {
		case s.Verdict != Exact:
			wrong = append(wrong, s.Strategy+" "+cmp.Or(did, "is "+string(s.Verdict)))
		case fastest == nil || s.RequestsPerSecond > fastest.RequestsPerSecond:
			fastest = s
		}
	}
	exact := len(r.Strategies) - len(wrong)
	text := fmt.Sprintf("%d of %s sold exactly", exact, count(len(r.Strategies), "strategy"))
	if len(wrong) > 0 {
		text += "; " + strings.Join(wrong, ", ")
	}
	if exact > 1 {
		text += fmt.Sprintf(". The fastest exact one was %s, with %s requests a second", fastest.Strategy, Figure(fastest.RequestsPerSecond))
	}
	return text + "."
}

// bucketRows returns the number of attempts of each strategy, in the order of the results, by the upper bound of the bucket.
func bucketRows(results []*Result) map[float64][]int64 {
	rows := map[float64][]int64{}
	for i, r := range results {
		for _, b := range r.Histogram {
			if rows[b.UpToMS] == nil {
				rows[b.UpToMS] = make([]int64, len(results))
			}
			rows[b.UpToMS][i] = b.Count
		}
	}
	return rows
}
