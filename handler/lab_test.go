package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// scripted compares in steps of the test.
type scripted struct {
	steps  chan service.LabProgress // closed at the end
	report string
	err    error
}

func (b *scripted) Compare(ctx context.Context, _ service.LabPlan, progress func(service.LabProgress)) (string, error) {
	for {
		select {
		case step, more := <-b.steps:
			if !more {
				return b.report, b.err
			}
			progress(step)
		case <-ctx.Done():
			return b.report, nil
		}
	}
}

func (b *scripted) Reports() ([]service.LabReport, error) { return nil, nil }

func (b *scripted) WriteReport(w io.Writer, id string, page bool) (bool, error) {
	_, _ = fmt.Fprintf(w, "%s %t", id, page)
	return id == "known", b.err
}

// labOffice is a shop with a lab.
type labOffice struct {
	*wire
	bench *scripted
}

func newLabOffice(t *testing.T) *labOffice {
	s, bench := newShop(t), &scripted{report: "R"}
	s.api.Lab = service.NewLab(bench, s.api.Catalog, []service.LabStrategy{{Name: "one"}}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { done(s.api.Lab.Close(context.Background())) })
	return &labOffice{s.open(), bench}
}

// begin starts a comparison, although the sale is open.
func (o *labOffice) begin() {
	o.bench.steps = make(chan service.LabProgress)
	_, verdict, _ := o.api.Lab.Start(service.LabPlan{Buyers: 100, Stock: 1, Concurrency: 1, WhileOpen: true})
	same(o, "start", verdict, model.Accepted)
}

const labEventsPath = "/api/v1/admin/lab/events"

// A console follows a run from its beginning to its end, with at most five events in a second, and then the next run.
func TestLabEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		l := o.listen(labEventsPath)
		same(t, "before the first run", fmt.Sprint(l.heard()), "[:]")
		for range 2 {
			o.begin()
			for n := range 100 {
				o.bench.steps <- service.LabProgress{Strategy: "one", Index: 1, Done: n + 1}
				passes(10 * time.Millisecond)
			}
			all := l.heard()
			if len(all) < 4 || len(all) > 6 {
				t.Errorf("%d events in a second: %q", len(all), all)
			}
			for _, e := range all {
				if !strings.HasPrefix(e.String(), `progress {"started_at":`) || !strings.Contains(e.data, `"index":1,"of":1,`) ||
					!strings.Contains(e.data, `"results":[]`) {
					t.Errorf("an event during the run: %s", e)
				}
			}
			close(o.bench.steps)
			passes(consolePause)
			all = l.heard()
			if n := len(all); n < 2 || !strings.Contains(all[n-2].data, `"done":100,`) {
				t.Errorf("the events at the end: %q", all)
			}
			same(t, "last event", all[len(all)-1].String(), `done {"failed":false,"id":"R","stopped":"","url":"/lab/reports/R"}`)
		}
		late := o.listen(labEventsPath)
		passes(consolePause)
		if all := late.heard(); len(all) != 3 || all[1].name != "progress" || all[2].name != "done" {
			t.Errorf("a late console gets %q", all)
		}
	})
}

// A run that failed, or measured nothing, has no report.
func TestLabEventsWithoutAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		l := o.listen(labEventsPath)
		o.bench.report, o.bench.err = "", errors.New("broken")
		o.begin()
		close(o.bench.steps)
		passes(consolePause)
		all := l.heard()
		same(t, "last event", all[len(all)-1].String(), `done {"failed":true,"id":"","stopped":"","url":""}`)
	})
}

// A console's stream has heartbeats, and ends after its lifetime, with its client, and when the server stops.
func TestConsoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		l := o.listen(labEventsPath)
		l.heard()
		passes(2 * heartbeat)
		same(t, "in two heartbeats", fmt.Sprint(l.heard()), "[: :]")
		passes(consoleLifetime - 2*heartbeat - 1)
		same(t, "over before the end of its lifetime", l.over(), false)
		passes(1)
		same(t, "over at the end of its lifetime", l.over(), true)
		same(t, "open consoles", o.api.consoles.Load(), 0)
		o.listen(labEventsPath).leave()
		same(t, "open consoles after the client has left", o.api.consoles.Load(), 0)

		o.api.consoles.Store(maxConsoles - 1)
		last := o.listen(labEventsPath)
		for range 3 {
			refused := o.listen(labEventsPath)
			same(t, "one too many", refused.status, http.StatusServiceUnavailable)
			sameHeader(t, "one too many", refused.header, map[string]string{"Retry-After": "5"})
		}
		last.leave()
		again := o.listen(labEventsPath)
		same(t, "after one has left", again.status, http.StatusOK)
		close(o.stop)
		same(t, "over when the server stops", again.over(), true)
	})
}

// A console that does not read is disconnected, and another console gets its events meanwhile.
func TestConsoleThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		readHead(o.connect(labEventsPath))
		l := o.listen(labEventsPath)
		o.begin()
		passes(consolePause)
		if all := l.heard(); len(all) < 2 {
			t.Errorf("the other console gets %q", all)
		}
		passes(sendTimeout)
		same(t, "open consoles", o.api.consoles.Load(), 1)
	})
}

func TestLabReport(t *testing.T) {
	s, bench := newShop(t), &scripted{}
	s.api.LabPolicy = "default-src 'none'; style-src 'sha256-x'"
	s.api.Lab = service.NewLab(bench, s.api.Catalog, nil, s.api.Log)
	const strict = "default-src 'none'; frame-ancestors 'none'"
	for name, want := range map[string]struct {
		status             int
		body, kind, policy string
	}{
		"known":      {200, "known true", "text/html; charset=utf-8", s.api.LabPolicy},
		"known.json": {200, "known false", jsonType, strict},
		"other":      {404, `"code":"not_found"`, problemJS, strict},
		"known.html": {404, `"code":"not_found"`, problemJS, strict},
	} {
		w := s.get("/lab/reports/" + name)
		same(t, name+": status", w.Code, want.status)
		same(t, name+": the body has "+want.body, strings.Contains(w.Body.String(), want.body), true)
		sameHeader(t, name, w.Header(), map[string]string{"Content-Type": want.kind, "Content-Security-Policy": want.policy})
	}
	bench.err = errors.New("a secret path")
	w := s.get("/lab/reports/known")
	same(t, "status of an error", w.Code, http.StatusInternalServerError)
	same(t, "the error is in the answer", strings.Contains(w.Body.String(), "secret"), false)
}
