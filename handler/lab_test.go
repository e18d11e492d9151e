package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/lab"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// labOffice is a shop with a lab whose comparisons go on in steps of the test.
type labOffice struct {
	*wire
	steps   chan lab.Progress // closed at the end
	nothing bool              // a comparison measures nothing
	err     error             // of a comparison
}

func newLabOffice(t *testing.T) *labOffice {
	s, o := newShop(t), &labOffice{}
	s.api.Lab.Desk = lab.NewDesk(o.compare, lab.NewShelf(t.TempDir()), s.offers.Catalog, []lab.Strategy{{Name: "one"}}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { check.Done(s.api.Lab.Desk.Close(context.Background())) })
	o.wire = s.open()
	return o
}

func (o *labOffice) compare(ctx context.Context, p model.LabPlan, progress func(lab.Progress)) (*lab.Report, error) {
	report := &lab.Report{Stock: p.Stock, Strategies: []*lab.Result{{Strategy: "one"}}}
	for {
		select {
		case step, more := <-o.steps:
			if more {
				progress(step)
				continue
			}
			if o.nothing {
				report = nil
			}
			return report, o.err
		case <-ctx.Done():
			return report, nil
		}
	}
}

// begin starts a comparison, although the sale is open.
func (o *labOffice) begin() {
	o.steps = make(chan lab.Progress)
	_, verdict, _ := o.api.Lab.Desk.Start(model.LabPlan{Buyers: 100, Stock: 1, Concurrency: 1}, true)
	check.Same(o, "start", verdict, model.Accepted)
}

const labEventsPath = "/api/v1/admin/lab/events"

// news returns the events without the comments.
func news(all []event) []event {
	return slices.DeleteFunc(all, func(e event) bool { return e.String() == ":" })
}

// A console follows a run from its beginning to its end, with at most five events in a second, and then the next run.
func TestLabEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		l := o.listen(labEventsPath)
		check.Same(t, "before the first run", fmt.Sprint(l.heard()), "[:]")
		for range 2 {
			o.begin()
			for n := range 100 {
				o.steps <- lab.Progress{Strategy: "one", Index: 1, Of: 1, Done: n + 1}
				passes(10 * time.Millisecond)
			}
			all := news(l.heard())
			if len(all) < 4 || len(all) > 6 {
				t.Errorf("%d events in a second: %q", len(all), all)
			}
			for _, e := range all {
				if !strings.HasPrefix(e.String(), `progress {"started_at":`) || !strings.Contains(e.data, `"index":1,"of":1,`) ||
					!strings.Contains(e.data, `"results":[]`) {
					t.Errorf("an event during the run: %s", e)
				}
			}
			close(o.steps)
			passes(consolePause)
			all = news(l.heard())
			if n := len(all); n < 2 || !strings.Contains(all[n-2].data, `"done":100,`) {
				t.Errorf("the events at the end: %q", all)
			}
			run, _ := o.api.Lab.Desk.Newest()
			_, kept, err := o.api.Lab.Desk.Report(run.ReportID)
			check.Same(t, "the report is kept", kept && err == nil, true)
			check.Same(t, "last event", all[len(all)-1].String(),
				fmt.Sprintf(`done {"failed":false,"id":"%s","stopped":"","url":"/lab/reports/%[1]s"}`, run.ReportID))
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
		o.nothing, o.err = true, errors.New("broken")
		o.begin()
		close(o.steps)
		passes(consolePause)
		all := l.heard()
		check.Same(t, "last event", all[len(all)-1].String(), `done {"failed":true,"id":"","stopped":"","url":""}`)
	})
}

// A console's stream sends something at each check, and ends with its token, with its client, and when the server stops.
func TestConsoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		l := o.listen(labEventsPath)
		l.heard()
		passes(2 * consoleCheck)
		check.Same(t, "in two checks", fmt.Sprint(l.heard()), "[: :]")
		passes(time.Hour - 2*consoleCheck - 2*time.Second) // tokens expire at whole seconds
		check.Same(t, "over before the end of its token", l.over(), false)
		passes(2*time.Second + consoleCheck)
		check.Same(t, "over at the end of its token", l.over(), true)
		check.Same(t, "open consoles", o.openConsoles(), 0)
		o.listen(labEventsPath).leave()
		check.Same(t, "open consoles after the client has left", o.openConsoles(), 0)
		again := o.listen(labEventsPath)
		close(o.stop)
		check.Same(t, "over when the server stops", again.over(), true)
	})
}

// A console's stream ends when its user is removed, gets another password or a role that may not see it, and when its key
// is revoked; an export of orders as well. All others go on.
func TestConsolesEndWithTheirUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		l := &ledger{orders: 9 * maxPage}
		o.api.Orders.Service = &service.Orders{Desk: l}
		olga, key := o.hire("olga", false, model.RoleOperator), o.hire("key", true, model.RoleViewer)
		ben, gone := o.hire("ben", true, model.RoleViewer), o.hire("gone", false, model.RoleSupport)
		streams := map[string]*listener{}
		for name, header := range map[string]string{"olga": olga, "key": key, "ben": ben, "gone": gone} {
			streams[name] = o.listen(labEventsPath, "Authorization", header)
			check.Same(t, name, streams[name].status, http.StatusOK)
		}
		sheet, _ := o.ask(exportPath, "Authorization", gone)
		o.api.Staff.Service.Store.(*roster).change(func(list []model.Account) []model.Account {
			list[0].PasswordHash, list[1].Role = "another", model.RoleHolds
			return list[:3]
		})
		passes(2 * time.Second)
		for name, over := range map[string]bool{"olga": true, "key": true, "ben": false, "gone": true} {
			check.Same(t, name+"'s is over", streams[name].over(), over)
		}
		if _, err := io.ReadAll(sheet.Body); err == nil || len(l.asked) > 2 {
			t.Errorf("%d pages were exported, and the error is %v", len(l.asked), err)
		}
	})
}

// One user has a bound, and others than operators can't keep operators out.
func TestConsolesHaveBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		open := func(want, n int, header string) (last *listener) {
			t.Helper()
			for range n {
				last = o.listen(labEventsPath, "Authorization", header)
				check.Same(t, "status", last.status, want)
			}
			return last
		}
		late, boss := o.hire("late", true, model.RoleSupport), o.hire("boss", true, model.RoleOperator)
		keys := make([]string, (maxConsoles-operatorConsoles)/consolesOfOne)
		for i := range keys {
			keys[i] = o.hire(fmt.Sprint("viewer", i), true, model.RoleViewer)
		}
		var viewer *listener
		for _, key := range keys {
			viewer = open(http.StatusOK, consolesOfOne, key)
			refused := open(http.StatusTooManyRequests, 2, key)
			sameHeader(t, "one too many", refused.header, map[string]string{"Retry-After": "5"})
		}
		open(http.StatusServiceUnavailable, 2, late)
		open(http.StatusOK, operatorConsoles, boss)
		open(http.StatusServiceUnavailable, 2, o.token(model.RoleOperator))
		viewer.leave()
		open(http.StatusOK, 1, late)
		check.Same(t, "open consoles", o.openConsoles(), maxConsoles)
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
		check.Same(t, "open consoles", o.openConsoles(), 1)
	})
}

// An instance without a lab answers as if the routes of the lab did not exist.
func TestNoLab(t *testing.T) {
	s := newShop(t)
	for path, method := range map[string]string{
		"/api/v1/admin/lab": http.MethodPost, labEventsPath: http.MethodGet, "/lab/reports/A": http.MethodGet,
	} {
		answer := s.serve(s.request(method, path, "{}", "Authorization", s.token(model.RoleOperator)))
		check.Same(t, path, answer.Code, http.StatusNotFound)
	}
}

func TestLabReport(t *testing.T) {
	s, folder := newShop(t), t.TempDir()
	shelf := lab.NewShelf(folder)
	s.api.Lab.Desk = lab.NewDesk(nil, shelf, s.offers.Catalog, nil, s.api.Door.Log)
	const strict = "default-src 'none'; frame-ancestors 'none'"
	id := check.Must(shelf.Save(&lab.Report{Stock: 7, Setting: lab.Setting{Command: "flashsale lab"}}))
	for name, want := range map[string]struct {
		status             int
		body, kind, policy string
	}{
		id:                {200, "<!doctype html>", "text/html; charset=utf-8", lab.PagePolicy()},
		id + ".json":      {200, `"command": "flashsale lab"`, jsonType, strict},
		id[1:] + "A":      {404, `"code":"not_found"`, problemJS, strict},
		id + ".html":      {404, `"code":"not_found"`, problemJS, strict},
		"../" + id[3:]:    {404, `"code":"not_found"`, problemJS, strict},
		id[1:] + "B.json": {404, `"code":"not_found"`, problemJS, strict},
	} {
		w := s.get("/lab/reports/" + name)
		check.Same(t, name+": status", w.Code, want.status)
		check.Same(t, name+": the body has "+want.body, strings.Contains(strings.ToLower(w.Body.String()), strings.ToLower(want.body)), true)
		sameHeader(t, name, w.Header(), map[string]string{"Content-Type": want.kind, "Content-Security-Policy": want.policy})
	}
	check.Done(os.WriteFile(filepath.Join(folder, id+".json"), []byte("a secret"), 0o600))
	w := s.get("/lab/reports/" + id)
	check.Same(t, "status of an error", w.Code, http.StatusInternalServerError)
	check.Same(t, "the error is in the answer", strings.Contains(w.Body.String(), folder), false)
}
