package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"flashsale/handler"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/strategy"
)

// errShopsDatabase means that --lab-database leads to the shop's database under a name that config could not
// recognize, or to a copy of it.
var errShopsDatabase = errors.New("--lab-database: is the shop's own database, or a copy of it; the lab needs another")

// newLab makes the console's lab. key is the shop's key for orders' ids; each database has its own key.
func newLab(a *App, key []byte) *lab.Desk {
	var strategies []lab.Strategy
	for _, name := range strategy.Names() {
		strategies = append(strategies, lab.Strategy{Name: name, Lesson: strategy.LessonOf(name)})
	}
	return lab.NewDesk(func(ctx context.Context, p model.LabPlan, progress func(lab.Progress)) (*lab.Report, error) {
		return a.compare(ctx, key, p, progress)
	}, lab.NewShelf(a.settings.LabFolder()), a.catalog, strategies, a.log)
}

// compare runs the strategies of a plan one after the other on the lab's stores, which are never the shop's.
func (a *App) compare(ctx context.Context, shopsKey []byte, p model.LabPlan, progress func(lab.Progress)) (report *lab.Report, err error) {
	bench, err := openBench(ctx, labSettings(&a.settings))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bench.close()) }()
	key, err := bench.stores.database.DataKey(ctx, orderIDKey)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(key, shopsKey) {
		return nil, errShopsDatabase
	}
	p.Instances, p.Seed = 1, 1
	setting, err := bench.setting(ctx, p, a.version)
	if err != nil {
		return nil, err
	}
	return lab.Run(ctx, bench, p, setting, a.now, progress)
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
