package app_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashsale/app"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/lab/trial"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// labView is the part of the answer to GET /admin/lab that the tests look at.
type labView struct {
	Running *labRun `json:"running"`
	Reports []struct {
		ID, Machine, Database, Redis, URL string
		At                                time.Time
		Strategies                        []string
		Buyers, Stock, Concurrency        int
	} `json:"reports"`
	Strategies []struct{ Name string } `json:"strategies"`
	Stores     struct{ Database, Redis string }
	Limits     struct{ Buyers int }
}

// labRun is a running comparison.
type labRun struct {
	StartedAt               time.Time `json:"started_at"`
	Strategies              []string
	Strategy                string
	Buyers, Index, Of, Done int
	Results                 []*lab.Result
}

// labDone is the end of a comparison.
type labDone struct {
	ID, URL, Stopped string
	Failed           bool
}

const labPath = "/api/v1/admin/lab"

// smallLab is a comparison that is over soon.
func smallLab(changes fields) fields {
	return fields{"strategies": []string{"pessimistic", "hybrid"}, "buyers": 60, "stock": 10, "concurrency": 20}.changed(changes)
}

// longLab is a comparison that does not end by itself while a test runs.
func longLab() fields { return smallLab(fields{"buyers": 100_000, "stock": 100_000}) }

func (s *server) lab() (v labView) {
	s.t.Helper()
	check.NoError(s.t, json.Unmarshal(s.operator().get(labPath).body, &v))
	return v
}

// startLab starts a comparison.
func (s *server) startLab(plan fields) *labRun {
	s.t.Helper()
	var made struct{ Run *labRun }
	check.NoError(s.t, json.Unmarshal(s.operator().call("POST", labPath, plan).want(202).body, &made))
	return made.Run
}

// labEvents follows the lab until the test ends.
func (s *server) labEvents() *stream {
	s.t.Helper()
	return s.operator().listen(labPath + "/events")
}

// labEnd waits for the end of a comparison. last is the progress before.
func labEnd(heard *stream) (last *labRun, done *labDone) {
	heard.t.Helper()
	for {
		switch e := heard.next(); e.name {
		case "progress":
			last = nil
			check.NoError(heard.t, json.Unmarshal([]byte(e.data), &last))
		case "done":
			check.NoError(heard.t, json.Unmarshal([]byte(e.data), &done))
			return last, done
		default:
			heard.t.Fatalf("an event of an unknown name: %+v", e)
		}
	}
}

// labSells waits until a comparison has sold something.
func labSells(heard *stream) {
	heard.t.Helper()
	hearUntil(heard, "the comparison sells", func(r labRun) bool { return r.Done > 0 })
}

// nothingOfTheLab checks that the shop's stores have nothing of the lab, and that no store of the lab is left.
func (s *server) nothingOfTheLab(folder string) {
	s.t.Helper()
	codes, _, errSales := s.app.Stores.Database.SaleCodes(s.t.Context(), time.Time{})
	orders, _, errOrders := s.app.Stores.Database.Orders(s.t.Context(), model.OrderFilter{Limit: 10})
	keys, errKeys := s.app.Stores.Redis.Keys(s.t.Context(), "fs:{*").Result()
	left, errLeft := filepath.Glob(filepath.Join(folder, "lab-stores-*"))
	err := errors.Join(errSales, errOrders, errKeys, errLeft)
	if err != nil || len(codes) > 0 || len(orders) > 0 || len(keys) > 0 || len(left) > 0 {
		s.t.Errorf("the lab has left sales %v, orders %v, keys %v, files %v; %v", codes, orders, keys, left, err)
	}
}

// A comparison runs from its start to its report, on stores that are not the shop's.
func TestLabForTheConsole(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *config.Settings){
		"embedded": func(*testing.T, *config.Settings) {},
		"servers": func(t *testing.T, c *config.Settings) {
			withStores(kit.ServerStores(t))(c)
			stores := kit.ServerStores(t)
			c.LabDatabase, c.LabRedis = stores.Database, stores.Redis
		},
		"a file": func(t *testing.T, c *config.Settings) { c.LabDatabase = kit.SQLite(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "reports")
			s := start(t, func(c *config.Settings) {
				change(t, c)
				c.LabReports = folder
			})
			if v := s.lab(); v.Running != nil || len(v.Reports) != 0 || len(v.Strategies) != len(strategy.Names()) ||
				v.Limits.Buyers != 100_000 ||
				strings.Contains(v.Stores.Database+v.Stores.Redis, "@") || v.Stores.Database == "" || v.Stores.Redis == "" {
				t.Errorf("before the first comparison %+v", v)
			}
			heard := s.labEvents()
			run := s.startLab(smallLab(nil))
			if run.Strategy != "pessimistic" || run.Index != 1 || run.Of != 2 || run.Buyers != 60 ||
				time.Since(run.StartedAt).Abs() > patience {
				t.Errorf("started %+v", run)
			}
			last, done := labEnd(heard)
			if last.Index != 2 || last.Done != 60 || len(last.Results) != 2 || last.Results[1].Strategy != "hybrid" ||
				last.Results[1].Sold != 10 {
				t.Errorf("the last progress %+v", last)
			}
			if done.Failed || done.Stopped != "" || done.URL != "/lab/reports/"+done.ID {
				t.Fatalf("the end %+v", done)
			}
			v := s.lab()
			if len(v.Reports) != 1 || v.Running != nil {
				t.Fatalf("after the comparison %+v", v)
			}
			listed := v.Reports[0]
			if listed.ID != done.ID || listed.URL != done.URL || !slices.Equal(listed.Strategies, run.Strategies) || listed.Buyers != 60 ||
				listed.Stock != 10 || listed.Concurrency != 20 || listed.At.Sub(run.StartedAt).Abs() > patience ||
				listed.Machine == "" || listed.Database == "" || listed.Redis == "" {
				t.Errorf("listed %+v", listed)
			}
			page := s.anyone().get(done.URL).contains("2 of 2 strategies sold exactly")
			if page.header.Get("Content-Security-Policy") != lab.PagePolicy() ||
				page.header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("the report's headers %v", page.header)
			}
			var figures lab.Report
			s.anyone().get(done.URL + ".json").read(&figures)
			if len(figures.Strategies) != 2 || figures.Strategies[0].Verdict != lab.Exact {
				t.Errorf("the report %+v", figures)
			}
			s.nothingOfTheLab(folder)
			if _, done = labEnd(s.labEvents()); done.ID != listed.ID { // for a console that comes late
				t.Errorf("later the end is %+v", done)
			}
		})
	}
}

// One comparison runs at a time, and none beside a sale unless the operator says so. A comparison that is stopped, by the
// operator or by a sale that opens, reports what it has measured. TestLabRefusesBadPlans of the package service has bad plans.
func TestLabGivesWay(t *testing.T) {
	t.Parallel()
	s := start(t)
	noList := smallLab(fields{"strategies": "hybrid"})
	if p := s.operator().call("POST", labPath, noList).refused(400, "bad_request"); p.Field != "strategies" {
		t.Errorf("a bad plan: %+v", p)
	}
	saleID := s.createSale(nil).ID
	s.operator().call("POST", labPath, longLab()).refused(409, "sale_open")
	s.setStatus(saleID, "close")
	heard := s.labEvents()
	s.startLab(longLab())
	s.operator().call("POST", labPath, smallLab(nil)).refused(409, "lab_running")
	labSells(heard)
	if v := s.lab(); v.Running == nil || v.Running.Buyers != 100_000 {
		t.Errorf("while it runs %+v", v.Running)
	}
	s.operator().call("DELETE", labPath, nil).want(200)
	_, done := labEnd(heard)
	if done.Stopped != "operator" || done.Failed || done.ID == "" {
		t.Fatalf("the end %+v", done)
	}
	var report lab.Report
	s.anyone().get(done.URL + ".json").read(&report)
	if !report.Interrupted || len(report.Strategies) != 1 || report.Strategies[0].Verdict != lab.Incomplete ||
		report.Strategies[0].Requests == 0 {
		t.Errorf("the report %+v", report)
	}
	s.operator().call("DELETE", labPath, nil).want(200).contains(`"run":null`) // nothing runs

	s.startLab(longLab())
	s.createSale(nil)
	if _, done := labEnd(heard); done.Stopped != "sale_open" {
		t.Errorf("the end beside a sale %+v", done)
	}
	s.startLab(smallLab(fields{"while_open": true}))
	if _, done := labEnd(heard); done.Failed || done.Stopped != "" {
		t.Errorf("the end beside a sale, as the operator wants it %+v", done)
	}
}

// The server's stop ends a comparison in time, keeps what it has measured, and leaves nothing else. Not parallel: the
// goroutines of other tests would be counted.
func TestStopEndsTheLab(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		leaks := goleak.IgnoreCurrent()
		folder := t.TempDir()
		s := start(t, func(c *config.Settings) { c.LabReports = folder })
		heard := s.labEvents()
		s.startLab(longLab())
		labSells(heard)
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Slowf("the stop took %s", took)
		}
		heard.ended()
		noneRuns(t, leaks)
		list, err := lab.NewShelf(folder).List()
		if err != nil || len(list) != 1 || !list[0].Interrupted {
			t.Errorf("reports %v, %v", list, err)
		}
		if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
			t.Errorf("files %v, %v", files, err)
		}
	})
}

// Tidy removes the stores that a crashed lab has left. It removes neither those of another process nor reports.
func TestLabLeftovers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{
		"lab-stores-1": long, "lab-stores-2": time.Now(), "lab-report": long,
		"notes": long,
	} {
		inside := filepath.Join(folder, name, "lab.db")
		check.NoError(t, os.Mkdir(filepath.Dir(inside), 0o700), os.WriteFile(inside, nil, 0o600))
		check.NoError(t, os.Chtimes(inside, at, at), os.Chtimes(filepath.Dir(inside), at, at))
	}
	settings := settingsOf(t, func(c *config.Settings) { c.LabReports = folder })
	check.NoError(t, trial.Tidy(&settings))
	left, err := filepath.Glob(filepath.Join(folder, "*", "lab.db"))
	want := []string{"lab-report", "lab-stores-2", "notes"}
	slices.Sort(want)
	for i, path := range left {
		left[i] = filepath.Base(filepath.Dir(path))
	}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v; %v", left, want, err)
	}
}

// The lab detects that its stores are the shop's, under whatever name, before it writes to them.
func TestLabRefusesTheShopsStores(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Settings){
		"the database": func(c *config.Settings) { c.LabDatabase = c.Database },
		"the Redis":    func(c *config.Settings) { c.LabRedis = c.Redis },
	} {
		t.Run(name, func(t *testing.T) {
			settings := settingsOf(t, withStores(kit.ServerStores(t)), func(c *config.Settings) { c.LabReports = t.TempDir() })
			change(&settings)
			if err := settings.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--lab-") {
				t.Errorf("the settings are refused with %v", err)
			}
			var log journal
			s := boot(t, settings, app.Options{Logs: &log}) // as if the addresses differed
			s.listed()
			heard := s.labEvents()
			s.startLab(smallLab(nil))
			if _, done := labEnd(heard); !done.Failed || done.ID != "" || done.URL != "" {
				t.Errorf("the end %+v", done)
			}
			if !strings.Contains(log.String(), "stores of its own") && !strings.Contains(log.String(), trial.ErrShopsDatabase.Error()) {
				t.Errorf("the log does not say why: %s", log.String())
			}
			s.nothingOfTheLab(settings.LabFolder())
		})
	}
}

// listed waits until the instance is on the list of running instances.
func (s *server) listed() {
	s.t.Helper()
	s.eventually("the instance is listed", func() bool {
		all, err := s.app.Gate().Instances(s.t.Context(), time.Now())
		return err == nil && len(all) > 0
	})
}
