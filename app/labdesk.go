package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"flashsale/handler"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/service"
	"flashsale/strategy"
)

// errShopsDatabase means that --lab-database leads to the shop's database under a name that config could not
// recognize, or to a copy of it.
var errShopsDatabase = errors.New("--lab-database: is the shop's own database, or a copy of it; the lab needs another")

// labDesk compares strategies for the console. Its stores are never the shop's.
type labDesk struct {
	app   *App
	shelf *lab.Shelf
	key   []byte // the shop's key for orders' ids; each database has its own key
}

func newLab(a *App, key []byte) *service.Lab {
	var strategies []service.LabStrategy
	for _, name := range strategy.Names() {
		l := strategy.LessonOf(name)
		strategies = append(strategies, service.LabStrategy{Name: name, How: l.How, Right: l.Right, Breaks: l.Breaks, Costs: l.Costs})
	}
	desk := &labDesk{app: a, shelf: lab.NewShelf(a.settings.LabFolder()), key: key}
	return service.NewLab(desk, a.catalog, strategies, a.log)
}

// labSettings returns the settings of the lab's instances. It takes from the shop's settings only those that affect
// the strategies, so that no address of the shop reaches the lab.
func labSettings(shop *config.Settings) config.Settings {
	s := config.Settings{
		Database: shop.LabDatabase, Redis: shop.LabRedis, Queue: "redis-stream", DBMaxConns: shop.DBMaxConns,
		Batch: shop.Batch, LocalShare: shop.LocalShare, LocalBuffer: shop.LocalBuffer,
	}
	if s.Database == "" {
		s.Database = "sqlite:" + filepath.Join(shop.LabFolder(), "lab.db")
	}
	return s
}

// tidyLab deletes the stores that crashed runs left behind.
func tidyLab(shop *config.Settings) error {
	s := labSettings(shop)
	path, isFile := s.SQLitePath()
	if !isFile {
		return nil
	}
	return removeLeftovers(filepath.Dir(path))
}

// Compare runs the strategies of a plan one after the other and saves the report.
func (d *labDesk) Compare(ctx context.Context, p service.LabPlan, progress func(service.LabProgress)) (reportID string, err error) {
	if err := d.shelf.Ready(); err != nil {
		return "", err
	}
	bench, err := openBench(ctx, labSettings(&d.app.settings))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, bench.close()) }()
	key, err := bench.stores.database.DataKey(ctx, orderIDKey)
	if err != nil {
		return "", err
	}
	if bytes.Equal(key, d.key) {
		return "", errShopsDatabase
	}
	plan := lab.Plan{Strategies: p.Strategies, Buyers: p.Buyers, Stock: p.Stock, Concurrency: p.Concurrency, Instances: 1, Seed: 1}
	setting, err := bench.setting(ctx, plan, d.app.version)
	if err != nil {
		return "", err
	}
	report, runErr := lab.Run(ctx, bench, plan, setting, d.app.now, func(step lab.Progress) {
		told := service.LabProgress{Strategy: step.Strategy, Index: step.Index + 1, Done: step.Done}
		if step.Result != nil {
			told.Result = step.Result
		}
		progress(told)
	})
	if len(report.Strategies) == 0 {
		return "", runErr
	}
	reportID, err = d.shelf.Save(report)
	return reportID, errors.Join(runErr, err)
}

// Reports lists the reports, the newest first.
func (d *labDesk) Reports() (list []service.LabReport, err error) {
	shelved, err := d.shelf.List()
	for _, r := range shelved {
		entry := service.LabReport{
			ID: r.ID, At: r.StartedAt, Buyers: r.Buyers, Stock: r.Stock, Concurrency: r.Concurrency,
			Machine: r.Machine.String(), Database: r.Stores.Database, Redis: r.Stores.Redis,
		}
		for _, s := range r.Strategies {
			entry.Strategies = append(entry.Strategies, s.Strategy)
		}
		list = append(list, entry)
	}
	return list, err
}

// WriteReport writes a report as an HTML page or as JSON; ok is false if there is no such report.
func (d *labDesk) WriteReport(w io.Writer, id string, page bool) (ok bool, err error) {
	report, ok, err := d.shelf.Find(id)
	if err != nil || !ok {
		return ok, err
	}
	if page {
		return true, report.WriteHTML(w)
	}
	return true, report.WriteJSON(w)
}

// credentials is the user and password in each URL of an address, which may have several with commas between them.
var credentials = regexp.MustCompile(`//[^/]*@`)

// labStores returns the addresses of the lab's stores in a form that operators may see.
func labStores(s *config.Settings) handler.LabStores {
	names := handler.LabStores{Database: "SQLite"}
	if u, err := url.Parse(s.LabDatabase); err == nil && u.Scheme == "mysql" {
		names.Database = fmt.Sprintf("%s://%s%s", u.Scheme, u.Host, u.Path)
	}
	names.Redis, _, _ = strings.Cut(credentials.ReplaceAllString(s.LabRedis, "//"), "?")
	return names
}
