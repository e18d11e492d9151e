package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// readFile returns a file of the repository.
func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../" + path)
	check.NoError(t, err)
	return string(text)
}

// dashboardQueries returns the queries of Grafana's dashboard by their panels, as Grafana sends them when no instance and no
// sale is chosen. The interval is wide enough for the few seconds of a test.
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
	check.NoError(t, json.Unmarshal([]byte(readFile(t, "deploy/grafana/dashboards/flashsale.json")), &dashboard))
	chosen := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$sale", ".*")
	queries := map[string]string{}
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 && panel.Type != "row" {
			t.Errorf("the panel %q has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			queries[panel.Title+" "+target.RefID] = chosen.Replace(target.Expr)
		}
	}
	return queries
}

// alertQueries returns the queries of the alerts by their names.
func alertQueries(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	check.NoError(t, yaml.Unmarshal([]byte(readFile(t, "deploy/prometheus/alerts.yml")), &file))
	queries := map[string]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			queries[rule.Alert] = rule.Expr
		}
	}
	return queries
}

// prometheus starts a Prometheus with the repository's configuration, except the addresses of the instances and the interval.
func prometheus(t *testing.T, instances ...*server) *kit.PrometheusServer {
	t.Helper()
	alerts, err := filepath.Abs("../deploy/prometheus/alerts.yml")
	check.NoError(t, err)
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

// dataOf returns the data of an answer of Prometheus.
func dataOf[T any](t *testing.T, from *client, address string) (data T) {
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
	for _, sample := range dataOf[vector](t, from, prometheus.URL()+"/api/v1/query?query="+url.QueryEscape(query)).Result {
		text, _ := sample.Value[1].(string)
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
			return true
		}
	}
	return false
}

// A real Prometheus watches two instances while they sell: each query of the dashboard has a result, each alert can be
// evaluated, and none fires.
func TestDashboard(t *testing.T) {
	t.Parallel()
	stores := withStores(kit.ServerStores(t))
	one, other := start(t, stores, withFigures), start(t, stores, withFigures)
	saleID := one.createSale(fields{"quota": 100_000, "limit_per_user": 1}).ID
	other.knows(saleID)
	one.createSale(fields{}) // its stock stands still, so the auditor can judge its gate
	one.soon(fields{"mode": "line", "quota": 1}, "calling", "ann")
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
		t.Errorf("%s: %s has no result", panel, query)
	}

	type groups struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	one.eventually("every alert is evaluated", func() bool {
		evaluated := 0
		for _, group := range dataOf[groups](t, asks, watcher.URL()+"/api/v1/rules").Groups {
			for _, rule := range group.Rules {
				if rule.State == "firing" || rule.LastError != "" {
					t.Fatalf("%s is %s: %s", rule.Name, rule.State, rule.LastError)
				}
				if rule.Health == "ok" {
					evaluated++
				}
			}
		}
		return evaluated == len(alertQueries(t))
	})
}

// Prometheus' own tool accepts the files, and its tests show for each alert when the alert fires and when not.
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
	check.NoError(t, yaml.Unmarshal([]byte(readFile(t, "deploy/prometheus/alerts_test.yml")), &file))
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
