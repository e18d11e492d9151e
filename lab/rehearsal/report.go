package rehearsal

import (
	_ "embed" // the templates
	"fmt"
	"html/template"
	"io"
	"strings"
	"text/tabwriter"
	texttemplate "text/template"
	"time"

	"flashsale/lab"
	"flashsale/model"
)

// Verdict is the result of a rehearsal.
type Verdict string

// The verdicts.
const (
	Passed      Verdict = model.RehearsalPassed // no findings, and the generator was on time
	Failed      Verdict = "failed"              // there are findings
	Late        Verdict = "late"                // no findings, but the generator was late
	Interrupted Verdict = "interrupted"         // no findings until the run was stopped
)

// mostRows bounds the rows of the chart of arrivals.
const mostRows = 30

// Report is what a rehearsal has found.
type Report struct {
	Verdict   Verdict        `json:"verdict"`
	Findings  []Finding      `json:"findings"`
	Shape     *Shape         `json:"shape"`
	Crowd     string         `json:"crowd"` // the shape in words
	URL       string         `json:"url"`
	Version   string         `json:"version"`
	StartedAt time.Time      `json:"started_at"`
	Machine   lab.Machine    `json:"machine"` // of the generator
	Database  string         `json:"database"`
	Books     Books          `json:"books"`
	Seconds   []Second       `json:"seconds"`
	Peak      int64          `json:"peak_per_second"`      // the most arrivals in a second
	Sustained int64          `json:"sustained_per_second"` // the most arrivals in a second in which 99 of 100 were on time
	SendLag   Latency        `json:"send_lag"`             // how late requests were sent, without streams
	Limit     string         `json:"limit"`                // what made the generator late; empty: it was on time
	Unsent    int64          `json:"unsent"`               // buyers who did not come, because too many were under way
	NoStream  int64          `json:"no_stream"`            // buyers without a stream, because too many streams were open
	Stages    []StageFigures `json:"stages"`
	People    []Count        `json:"people"` // what each was told in the end
	Bots      []Count        `json:"bots"`   // what they were told, for each attempt with an order or a final refusal
	GaveUp    []Count        `json:"gave_up"`
}

// Books are the units and the orders of the sale in the database after the run.
type Books struct {
	Quota  int64 `json:"quota"`
	Left   int64 `json:"left"`
	Held   int64 `json:"held"`
	Paid   int64 `json:"paid"`
	Orders int64 `json:"orders"`
}

var (
	//go:embed report.txt.tmpl
	textSource string
	//go:embed report.html.tmpl
	pageSource string

	funcs = template.FuncMap{"figure": lab.Figure, "words": inWords}
	text  = texttemplate.Must(texttemplate.New("text").Funcs(funcs).Parse(textSource))
	page  = template.Must(template.New("page").Funcs(funcs).Parse(pageSource))
)

// WriteText writes the report for a terminal. Tabs in the template separate the columns of the table.
func (r *Report) WriteText(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if err := text.Execute(out, r); err != nil {
		return err
	}
	return out.Flush()
}

// Pace describes in words how punctual the arrivals were.
func (r *Report) Pace() string {
	pace := fmt.Sprintf("at most %d in a second, %d sustained; send lag p50 %s ms, p99 %s ms", r.Peak, r.Sustained, lab.Figure(r.SendLag.P50MS), lab.Figure(r.SendLag.P99MS))
	if r.Unsent > 0 {
		pace += fmt.Sprintf("; %d buyers did not come", r.Unsent)
	}
	if r.NoStream > 0 {
		pace += fmt.Sprintf("; %d buyers had no stream", r.NoStream)
	}
	if r.Limit != "" {
		pace += "; limited by " + r.Limit
	}
	return pace
}

func inWords(list []Count) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = fmt.Sprintf("%s: %d", c.What, c.N)
	}
	return strings.Join(words, ", ")
}

// WriteHTML writes the report as an HTML page. The template calls the methods below.
func (r *Report) WriteHTML(w io.Writer) error { return page.Execute(w, r) }

// ArrivalsChart shows, over time, how many buyers arrived and how many were done. It has at most mostRows rows.
func (r *Report) ArrivalsChart() lab.BarChart {
	c := lab.BarChart{Label: "Buyers who arrived and buyers who were done, over time", Unit: "buyers a second", Kinds: []string{"arrived", "done"}}
	step := (len(r.Seconds) + mostRows - 1) / mostRows
	for from := 0; from < len(r.Seconds); from += step {
		var arrived, done, n float64
		for _, s := range r.Seconds[from:min(from+step, len(r.Seconds))] {
			arrived, done, n = arrived+float64(s.Arrived), done+float64(s.Done), n+1
		}
		c.Rows = append(c.Rows, lab.BarRow{Name: fmt.Sprintf("from %d s", from), Values: []float64{arrived / n, done / n}})
	}
	return c
}

// LatencyChart shows the latency of each stage.
func (r *Report) LatencyChart() lab.BarChart {
	c := lab.BarChart{Label: "Latency by stage", Unit: "milliseconds", Kinds: []string{"ms p50", "ms p99"}}
	for _, s := range r.Stages {
		c.Rows = append(c.Rows, lab.BarRow{Name: string(s.Stage), Values: []float64{s.P50MS, s.P99MS}})
	}
	return c
}

// GaveUpChart shows where people gave up.
func (r *Report) GaveUpChart() lab.BarChart {
	c := lab.BarChart{Label: "Where people gave up", Unit: "people", Kinds: []string{"gave up"}}
	for _, n := range r.GaveUp {
		c.Rows = append(c.Rows, lab.BarRow{Name: n.What, Values: []float64{float64(n.N)}})
	}
	return c
}
