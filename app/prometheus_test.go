package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// readFile gives a file of the repository.
func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// dashboardQueries are the queries of Grafana's dashboard by their panels, as Grafana sends them when nothing is
// chosen; an interval is wide enough for the few seconds of a test.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct {
				RefID string `json:"refId"`
				Expr  string
			}
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "deploy/grafana/dashboards/flashsale.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	chosen := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$sale", ".*")
	queries := map[string]string{}
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 && panel.Type != "row" {
			t.Errorf("the panel %q asks nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			queries[panel.Title+" "+target.RefID] = chosen.Replace(target.Expr)
		}
	}
	return queries
}

// alertQueries are those of the alerts by their names.
func alertQueries(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "deploy/prometheus/alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			queries[rule.Alert] = rule.Expr
		}
	}
	return queries
}

// prometheus starts one that is configured as the repository says, but for where the instances are and how often it asks.
func prometheus(t *testing.T, instances ...*server) *kit.PrometheusServer {
	t.Helper()
	alerts, err := filepath.Abs("../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	targets := make([]string, len(instances))
	for i, s := range instances {
		targets[i] = strconv.Quote(strings.TrimPrefix(s.app.OpsURL(), "http://"))
	}
	text := readFile(t, "deploy/prometheus/prometheus.yml")
	for old, with := range map[string]string{
		`"app-1:9090", "app-2:9090", "app-3:9090"`: strings.Join(targets, ", "), "alerts.yml": alerts, "_interval: 5s": "_interval: 1s",
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("prometheus.yml has no %s", old)
		}
		text = strings.ReplaceAll(text, old, with)
	}
	return kit.Prometheus(t, text)
}

// asked is the data of one of Prometheus' answers.
func asked[T any](t *testing.T, from *client, address string) (data T) {
	t.Helper()
	answer := from.call("GET", address, nil)
	var envelope struct {
		Status, Error string
		Data          *T
	}
	envelope.Data = &data
	if err := json.Unmarshal(answer.body, &envelope); err != nil || envelope.Status != "success" {
		t.Fatalf("%s: %v, %s: %s", address, err, envelope.Status, envelope.Error)
	}
	return data
}

// hasData reports whether a query finds a figure.
func hasData(t *testing.T, from *client, prometheus *kit.PrometheusServer, query string) bool {
	t.Helper()
	type vector struct {
		Result []struct{ Value [2]any }
	}
	for _, sample := range asked[vector](t, from, prometheus.URL()+"/api/v1/query?query="+url.QueryEscape(query)).Result {
		text, _ := sample.Value[1].(string)
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
			return true
		}
	}
	return false
}

// TestDashboard has a real Prometheus ask two instances while they sell: each query of the dashboard finds something,
// each alert can be judged, and none fires.
func TestDashboard(t *testing.T) {
	t.Parallel()
	stores := onMariaDB(t, kit.Redis(t))
	figures := func(c *config.Settings) { c.OpsAddr = "127.0.0.1:0" }
	one, other := start(t, stores, figures), start(t, stores, figures)
	saleID := one.createSale(fields{"quota": 100_000, "limit_per_user": 1}).ID
	other.eventually("the other instance knows the sale", func() bool {
		return other.anyone().call("GET", "/api/v1/sales/"+saleID, nil).status == 200
	})
	asks := one.anyone()
	watcher := prometheus(t, one, other)

	missing := dashboardQueries(t)
	if len(missing) < 30 {
		t.Fatalf("the dashboard has %d queries", len(missing))
	}
	buyers := 0
	deadline := time.Now().Add(patience)
	for len(missing) > 0 && time.Now().Before(deadline) {
		for _, s := range []*server{one, other} {
			buyers++
			buyer := s.buyer(fmt.Sprint("buyer-", buyers))
			buyer.buy(saleID, 1)
			buyer.purchase(saleID, 1).refused(409, "limit_reached")
		}
		maps.DeleteFunc(missing, func(_, query string) bool { return hasData(t, asks, watcher, query) })
	}
	for panel, query := range missing {
		t.Errorf("%s: nothing is found by %s", panel, query)
	}

	type groups struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	one.eventually("every alert is judged", func() bool {
		judged := 0
		for _, group := range asked[groups](t, asks, watcher.URL()+"/api/v1/rules").Groups {
			for _, rule := range group.Rules {
				if rule.State == "firing" || rule.LastError != "" {
					t.Fatalf("%s is %s: %s", rule.Name, rule.State, rule.LastError)
				}
				if rule.Health == "ok" {
					judged++
				}
			}
		}
		return judged == len(alertQueries(t))
	})
}

// TestFiguresHaveTheirNames holds the page of a running instance against those who read it: what the dashboard and
// the alerts ask for is there, and the names follow Prometheus' conventions.
func TestFiguresHaveTheirNames(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.OpsAddr = "127.0.0.1:0" })
	s.buyer("ann").buy(s.createSale(nil).ID, 1)
	page := func() string {
		return string(s.anyone().call("GET", s.app.OpsURL()+"/metrics", nil).want(200).body)
	}
	s.eventually("the auditor has looked", func() bool { return strings.Contains(page(), "\nflashsale_gate_drift_units{") })
	text := page()

	ours := regexp.MustCompile(`\b(?:flashsale|go|process)_[a-z0-9_]+`)
	queries := dashboardQueries(t)
	maps.Copy(queries, alertQueries(t))
	checked := map[string]bool{}
	for where, query := range queries {
		for _, name := range ours.FindAllString(query, -1) {
			checked[name] = true
			if !regexp.MustCompile(`(?m)^` + name + `[{ ]`).MatchString(text) {
				t.Errorf("%s asks for %s, which is not there", where, name)
			}
		}
	}
	if len(checked) < 30 {
		t.Errorf("only %d names were looked for", len(checked))
	}

	lines := slices.DeleteFunc(slices.Collect(strings.Lines(text)), func(line string) bool {
		return !strings.Contains(line, "flashsale_") // Go's own are what they are
	})
	problems, err := promlint.New(strings.NewReader(strings.Join(lines, ""))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Prometheus' own tool reads the files, and shows for each alert when it fires and when not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	kit.Promtool(t, "../deploy/prometheus", "check", "config", "prometheus.yml")
	kit.Promtool(t, "../deploy/prometheus", "check", "rules", "alerts.yml")
	kit.Promtool(t, "../deploy/prometheus", "test", "rules", "alerts_test.yml")

	var file struct {
		Tests []struct {
			Cases []struct {
				Alert  string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "deploy/prometheus/alerts_test.yml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Alerts) > 0 {
				fires[c.Alert] = true
			} else {
				rests[c.Alert] = true
			}
		}
	}
	for alert := range alertQueries(t) {
		if !fires[alert] || !rests[alert] {
			t.Errorf("%s: there is no case in which it fires, or none in which it doesn't", alert)
		}
	}
}
