package trial

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"

	"flashsale/app"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/strategy"
)

// ErrShopsDatabase means that --lab-database is the shop's database, or a copy of it.
var ErrShopsDatabase = errors.New("--lab-database: is the shop's own database, or a copy of it; the lab needs another")

// NewDesk makes the lab of an instance's console. "shop" has the settings of the instance, and "version" is the binary's version.
// A comparison fails with ErrShopsDatabase if the lab's database has the shop's key for orders' ids.
func NewDesk(a *app.App, shop config.Settings, version string) *lab.Desk {
	var strategies []lab.Strategy
	for _, k := range strategy.Kinds() {
		strategies = append(strategies, lab.Strategy{Name: k.Name, Lesson: k.Lesson})
	}
	compare := func(ctx context.Context, p model.LabPlan, progress func(lab.Progress)) (report *lab.Report, err error) {
		bench, err := Open(ctx, labSettings(&shop))
		if err != nil {
			return nil, err
		}
		defer func() { err = andThen(err, bench.Close()) }()
		key, err := bench.stores.Database.DataKey(ctx, repository.OrderIDKey)
		shopsKey, errShop := a.Stores.Database.DataKey(ctx, repository.OrderIDKey)
		if err := errors.Join(err, errShop); err != nil {
			return nil, err
		}
		if bytes.Equal(key, shopsKey) {
			return nil, ErrShopsDatabase
		}
		p.Instances, p.Seed = 1, 1
		return bench.Run(ctx, p, version, progress)
	}
	return lab.NewDesk(compare, lab.NewShelf(shop.LabFolder()), a.Catalog, strategies, a.Log)
}

// labSettings returns settings with the lab's stores and some of the shop's figures, but no address of the shop.
func labSettings(shop *config.Settings) config.Settings {
	s := config.Settings{
		Database: shop.LabDatabase, Redis: shop.LabRedis, Queue: "redis-stream", Payment: "sandbox", EventDays: 30, DBMaxConns: shop.DBMaxConns,
		Batch: shop.Batch, LocalShare: shop.LocalShare, LocalBuffer: shop.LocalBuffer,
	}
	if s.Database == "" {
		s.Database = "sqlite:" + filepath.Join(shop.LabFolder(), "lab.db")
	}
	return s
}

// Tidy deletes the folders that crashed comparisons left beside the lab's SQLite file.
func Tidy(shop *config.Settings) error {
	s := labSettings(shop)
	if path, isFile := s.SQLitePath(); isFile {
		return removeLeftovers(filepath.Dir(path))
	}
	return nil
}
