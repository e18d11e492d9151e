package app

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/test/kit"
)

// labView is what GET /admin/lab says.
type labView struct {
	Running *labRunning `json:"running"`
	Reports []struct {
		ID          string    `json:"id"`
		At          time.Time `json:"at"`
		Strategies  []string  `json:"strategies"`
		Buyers      int       `json:"buyers"`
		Stock       int       `json:"stock"`
		Concurrency int       `json:"concurrency"`
		Machine     string    `json:"machine"`
		Database    string    `json:"database"`
		Redis       string    `json:"redis"`
		URL         string    `json:"url"`
	} `json:"reports"`
	Strategies []struct {
		Name, How, Right, Breaks, Costs string
	} `json:"strategies"`
	Stores struct {
		Database string `json:"database"`
		Redis    string `json:"redis"`
	} `json:"stores"`
	Limits struct {
		Buyers      int `json:"buyers"`
		Stock       int `json:"stock"`
		Concurrency int `json:"concurrency"`
	} `json:"limits"`
}

// labRunning is a run.
type labRunning struct {
	StartedAt   time.Time     `json:"started_at"`
	Strategies  []string      `json:"strategies"`
	Buyers      int           `json:"buyers"`
	Stock       int           `json:"stock"`
	Concurrency int           `json:"concurrency"`
	Strategy    string        `json:"strategy"`
	Index       int           `json:"index"`
	Of          int           `json:"of"`
	Done        int           `json:"done"`
	Results     []*lab.Result `json:"results"`
}

// labDone is how a run ended.
type labDone struct {
	ID      string `json:"id"`
	URL     string `json:"url"`
	Stopped string `json:"stopped"`
	Failed  bool   `json:"failed"`
}

const labPath = "/api/v1/admin/lab"

// smallLab is a comparison that is over soon.
func smallLab(changes fields) fields {
	f := fields{"strategies": []string{"pessimistic", "hybrid"}, "buyers": 60, "stock": 10, "concurrency": 20}
	for name, value := range changes {
		f[name] = value
	}
	return f
}

// longLab is one that doesn't end by itself while a test looks.
func longLab() fields {
	return smallLab(fields{"strategies": []string{"pessimistic", "hybrid"}, "buyers": 100_000, "stock": 100_000})
}

func (s *server) lab() labView {
	s.t.Helper()
	var v labView
	s.operator().call("GET", labPath, nil).want(200).read(&v)
	return v
}

// startLab starts a comparison that may start.
func (s *server) startLab(plan fields) *labRunning {
	s.t.Helper()
	var made struct {
		Run *labRunning `json:"run"`
	}
	s.operator().call("POST", labPath, plan).want(202).read(&made)
	return made.Run
}

// labHeard is an event of the lab's stream.
type labHeard struct {
	run  *labRunning
	done *labDone
}

// labEvents follows the lab until the test ends.
func (s *server) labEvents() <-chan labHeard {
	s.t.Helper()
	c := s.operator()
	c.from = s.newStreamHTTP()
	s.t.Cleanup(c.from.CloseIdleConnections)
	ctx, cancel := context.WithCancel(s.t.Context())
	req, err := c.request(ctx, "GET", labPath+"/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := c.from.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
	})
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" {
		s.t.Fatalf("%d %s", res.StatusCode, got)
	}
	heard := make(chan labHeard, 1000)
	go func() {
		defer close(heard)
		name, lines := "", bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = value
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var e labHeard
			var err error
			switch name {
			case "progress":
				err = json.Unmarshal([]byte(data), &e.run)
			case "done":
				err = json.Unmarshal([]byte(data), &e.done)
			default:
				s.t.Errorf("event %s", name)
			}
			if err != nil {
				s.t.Errorf("%v in %s", err, data)
			}
			heard <- e
		}
	}()
	return heard
}

// labEnd waits for the end of a run; before is what was heard until then.
func labEnd(t *testing.T, heard <-chan labHeard) (before []*labRunning, done *labDone) {
	t.Helper()
	deadline := time.After(2 * patience)
	for {
		select {
		case e, ok := <-heard:
			switch {
			case !ok:
				t.Fatal("the stream ended")
			case e.done != nil:
				return before, e.done
			}
			before = append(before, e.run)
		case <-deadline:
			t.Fatalf("no end, only %d events", len(before))
		}
	}
}

// nothingOfTheLab wants the shop's stores to know nothing of the lab, and no store of the lab to be left.
func (s *server) nothingOfTheLab(folder string) {
	s.t.Helper()
	if codes, _, err := s.app.stores.database.SaleCodes(s.t.Context(), time.Time{}); err != nil || len(codes) > 0 {
		s.t.Errorf("sales of the shop: %v, %v", codes, err)
	}
	if page, _, err := s.app.stores.database.Orders(s.t.Context(), model.OrderFilter{Limit: 10}); err != nil || len(page) > 0 {
		s.t.Errorf("orders of the shop: %v, %v", page, err)
	}
	keys, err := s.app.stores.redis.Keys(s.t.Context(), "fs:{*").Result()
	if err != nil || len(keys) > 0 {
		s.t.Errorf("keys of the shop: %v, %v", keys, err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, labStoresPrefix+"*")); err != nil || len(left) > 0 {
		s.t.Errorf("left behind: %v, %v", left, err)
	}
}

// A comparison from its start to its report, on stores that are not the shop's.
func TestLabForTheConsole(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *config.Settings){
		"embedded": func(*testing.T, *config.Settings) {},
		"servers": func(t *testing.T, c *config.Settings) {
			onMariaDB(t, kit.Redis(t))(c)
			c.LabDatabase, c.LabRedis = kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t).URL()
		},
		"a file that was named": func(t *testing.T, c *config.Settings) {
			c.LabDatabase = "sqlite:" + filepath.Join(t.TempDir(), "x.db")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "reports")
			s := start(t, func(c *config.Settings) {
				change(t, c)
				c.LabReports = folder
			})
			if v := s.lab(); v.Running != nil || len(v.Reports) != 0 || len(v.Strategies) != len(strategy.Names()) || v.Limits.Buyers != 100_000 ||
				strings.Contains(v.Stores.Database+v.Stores.Redis, "@") || v.Stores.Database == "" || v.Stores.Redis == "" {
				t.Errorf("%+v", v)
			}
			heard := s.labEvents()
			run := s.startLab(smallLab(nil))
			if run.Strategy != "pessimistic" || run.Index != 1 || run.Of != 2 || run.Buyers != 60 || run.Results == nil || time.Since(run.StartedAt).Abs() > patience {
				t.Errorf("%+v", run)
			}
			before, done := labEnd(t, heard)
			last := before[len(before)-1]
			if last.Index != 2 || last.Done != 60 || len(last.Results) != 2 || last.Results[1].Strategy != "hybrid" || last.Results[1].Sold != 10 {
				t.Errorf("at last %+v", last)
			}
			if done.Failed || done.Stopped != "" || done.URL != "/lab/reports/"+done.ID {
				t.Fatalf("%+v", done)
			}
			v := s.lab()
			if len(v.Reports) != 1 || v.Running != nil {
				t.Fatalf("%+v", v)
			}
			listed := v.Reports[0]
			if listed.ID != done.ID || listed.URL != done.URL || !slices.Equal(listed.Strategies, run.Strategies) || listed.Buyers != 60 || listed.Stock != 10 ||
				listed.Concurrency != 20 || listed.At.Sub(run.StartedAt).Abs() > patience || listed.Machine == "" || listed.Database == "" || listed.Redis == "" {
				t.Errorf("%+v", listed)
			}
			page := s.anyone().call("GET", done.URL, nil).want(200)
			if policy := page.header.Get("Content-Security-Policy"); policy != lab.PagePolicy() || page.header.Get("Content-Type") != "text/html; charset=utf-8" ||
				!strings.Contains(string(page.body), "2 of 2 strategies sold exactly") {
				t.Errorf("%v", page.header)
			}
			var figures lab.Report
			a := s.anyone().call("GET", done.URL+".json", nil).want(200)
			a.read(&figures)
			if a.header.Get("Content-Type") != "application/json; charset=utf-8" || len(figures.Strategies) != 2 || figures.Strategies[0].Verdict != lab.Exact {
				t.Errorf("%v, %+v", a.header, figures)
			}
			s.nothingOfTheLab(folder)

			_, done = labEnd(t, s.labEvents()) // who comes late hears how it ended
			if done.ID != listed.ID {
				t.Errorf("%+v", done)
			}
		})
	}
}

func TestLabIsTheOperators(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, route := range []struct{ method, path string }{{"GET", labPath}, {"POST", labPath}, {"DELETE", labPath}, {"GET", labPath + "/events"}} {
		s.anyone().call(route.method, route.path, nil).refused(401, "unauthenticated")
		s.buyer("ann").call(route.method, route.path, nil).refused(403, "forbidden")
	}
	for name, tc := range map[string]struct {
		plan  fields
		field string
	}{
		"nobody":              {smallLab(fields{"buyers": 0}), "buyers"},
		"a crowd":             {smallLab(fields{"buyers": 100_001}), "buyers"},
		"a full store":        {smallLab(fields{"stock": 100_001}), "stock"},
		"all at once":         {smallLab(fields{"concurrency": 1001}), "concurrency"},
		"a strategy of luck":  {smallLab(fields{"strategies": []string{"luck"}}), "strategies"},
		"something else":      {smallLab(fields{"instances": 2}), "instances"},
		"no list":             {smallLab(fields{"strategies": "hybrid"}), "strategies"},
		"an unanswered 'yes'": {smallLab(fields{"while_open": "yes"}), "while_open"},
	} {
		t.Run(name, func(t *testing.T) {
			if p := s.in(t).operator().call("POST", labPath, tc.plan).refused(400, "bad_request"); p.Field != tc.field || p.Detail == "" {
				t.Errorf("%+v", p)
			}
		})
	}
	if v := s.lab(); v.Running != nil {
		t.Errorf("%+v", v)
	}
}

// One comparison at a time, none beside a sale unless it is wanted; who stops one gets what it had measured.
func TestLabGivesWay(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	s.operator().call("POST", labPath, longLab()).refused(409, "sale_open")
	s.setStatus(saleID, "close")
	heard := s.labEvents()
	s.startLab(longLab())
	s.operator().call("POST", labPath, smallLab(nil)).refused(409, "lab_running")
	for e := range heard {
		if e.run != nil && e.run.Done > 0 {
			break
		}
	}
	if v := s.lab(); v.Running == nil || v.Running.Buyers != 100_000 {
		t.Errorf("%+v", v.Running)
	}
	var stopped struct {
		Run *labRunning `json:"run"`
	}
	s.operator().call("DELETE", labPath, nil).want(200).read(&stopped)
	_, done := labEnd(t, heard)
	if done.Stopped != "operator" || done.Failed || done.ID == "" {
		t.Fatalf("%+v", done)
	}
	var report lab.Report
	s.anyone().call("GET", done.URL+".json", nil).want(200).read(&report)
	if !report.Interrupted || len(report.Strategies) != 1 || report.Strategies[0].Verdict != lab.Incomplete || report.Strategies[0].Requests == 0 {
		t.Errorf("%+v", report)
	}
	s.operator().call("DELETE", labPath, nil).want(200).read(&stopped)
	if stopped.Run != nil {
		t.Errorf("stopped %+v, and nothing ran", stopped.Run)
	}
	s.createSale(nil)
	s.startLab(smallLab(fields{"while_open": true}))
	if _, done := labEnd(t, heard); done.Failed || done.Stopped != "" {
		t.Errorf("%+v", done)
	}
}

// A sale that opens ends a comparison that its operator had not meant to run beside one.
func TestLabEndsForASale(t *testing.T) {
	t.Parallel()
	s := start(t)
	heard := s.labEvents()
	s.startLab(longLab())
	s.createSale(nil)
	if _, done := labEnd(t, heard); done.Stopped != "sale_open" {
		t.Errorf("%+v", done)
	}
}

// The server's stop ends a comparison in time, keeps what it measured, and leaves nothing behind. Not parallel: others'
// goroutines would be counted.
func TestStopEndsTheLab(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	folder := t.TempDir()
	s := start(t, func(c *config.Settings) { c.LabReports = folder })
	heard := s.labEvents()
	s.startLab(longLab())
	for e := range heard {
		if e.run != nil && e.run.Done > 0 {
			break
		}
	}
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
	for range heard { // until the stream has ended
	}
	goleak.VerifyNone(t, leaks)
	list, err := lab.NewShelf(folder).List()
	if err != nil || len(list) != 1 || !list[0].Interrupted {
		t.Errorf("%v, %v", list, err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// What a crash left behind is gone at the next start; a run of another process is left alone, as are reports.
func TestLabLeftovers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	long := time.Now().Add(-2 * labAbandoned)
	for name, tc := range map[string]struct {
		at   time.Time
		want bool
	}{
		labStoresPrefix + "1": {long, false}, labStoresPrefix + "2": {time.Now(), true}, "lab-report": {long, true}, "notes": {long, true},
	} {
		inside := filepath.Join(folder, name, "lab.db")
		if err := os.Mkdir(filepath.Dir(inside), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(inside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{inside, filepath.Dir(inside)} {
			if err := os.Chtimes(path, tc.at, tc.at); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if _, err := os.Stat(inside); (err == nil) != tc.want {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	start(t, func(c *config.Settings) { c.LabReports = folder })
}

// Whatever leads to the shop's stores under another name is found out before anything is written to them.
func TestLabRefusesTheShopsStores(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	for name, change := range map[string]func(*config.Settings){
		"its database": func(c *config.Settings) { c.LabDatabase = c.Database },
		"its Redis":    func(c *config.Settings) { c.LabRedis = c.Redis },
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := config.Parse([]string{
				"--http-addr=127.0.0.1:0", "--ops-addr=", "--demo=false", "--database=" + kit.SharedMariaDB(t).NewDatabase(t), "--redis=" + redis.URL(),
				"--secret=" + testSecret, "--admin-password=" + adminPassword, "--lab-reports=" + t.TempDir(), "--log-format=json", "--log-level=error",
			}, func(string) string { return "" }, os.Stderr, os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			change(&cmd.Settings)
			if err := cmd.Settings.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--lab-") {
				t.Errorf("the settings say %v", err)
			}
			var log journal
			s := boot(t, cmd.Settings, &log) // as if they had not been told apart
			s.eventually("the instance is on the list", func() bool {
				all, err := s.app.gate.Instances(t.Context(), time.Now())
				return err == nil && len(all) > 0
			})
			heard := s.labEvents()
			s.startLab(smallLab(nil))
			if _, done := labEnd(t, heard); !done.Failed || done.ID != "" || done.URL != "" {
				t.Errorf("%+v", done)
			}
			if !strings.Contains(log.String(), "stores of its own") && !strings.Contains(log.String(), errShopsDatabase.Error()) {
				t.Errorf("the log doesn't say why: %s", log.String())
			}
			s.nothingOfTheLab(cmd.Settings.LabFolder())
		})
	}
}

// Only a report's own id opens anything.
func TestLabReportsAreFoundByTheirIDs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s := start(t, func(c *config.Settings) { c.LabReports = filepath.Join(folder, "lab") })
	other := rand.Text()
	for _, name := range []string{"secret.json", "lab/secret.json", "lab/" + other + ".txt"} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"stock": 1}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{
		other, other + ".json", other + ".txt", other + ".json.json", "secret", "secret.json", "..%2fsecret", "%2e%2e%2fsecret.json", "..%5csecret",
		"%2fetc%2fpasswd", other + "%00", strings.ToLower(other), strings.Repeat("A", 4000), "%20", ".", ".json",
	} {
		s.anyone().call("GET", "/lab/reports/"+id, nil).refused(404, "not_found")
	}
}
