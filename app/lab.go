package app

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"flashsale/handler"
	"flashsale/internal/address"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/strategy"
)

// errNoLab means that this instance was started without a lab, as the lab's own instances are.
var errNoLab = errors.New("this instance has no lab")

// newLab makes the console's lab. key is the shop's key for orders' ids; each database has its own key.
func (a *App) newLab(key []byte) *lab.Desk {
	var strategies []lab.Strategy
	for _, k := range strategy.Kinds() {
		strategies = append(strategies, lab.Strategy{Name: k.Name, Lesson: k.Lesson})
	}
	return lab.NewDesk(func(ctx context.Context, p model.LabPlan, progress func(lab.Progress)) (*lab.Report, error) {
		if a.options.Compare == nil {
			return nil, errNoLab
		}
		return a.options.Compare(ctx, &a.settings, key, a.options.Version, p, progress)
	}, lab.NewShelf(a.settings.LabFolder()), a.Catalog, strategies, a.Log)
}

// credentials is the user and password in each URL of an address, which may have several with commas between them.
var credentials = regexp.MustCompile(`//[^/]*@`)

// labStores returns the addresses of the lab's stores in a form that operators may see.
func labStores(s *config.Settings) handler.LabStores {
	names := handler.LabStores{Database: "SQLite"}
	if u, hosts, err := address.MySQL(s.LabDatabase); err == nil {
		names.Database = fmt.Sprintf("%s://%s%s", u.Scheme, strings.Join(hosts, ","), u.Path)
	}
	names.Redis, _, _ = strings.Cut(credentials.ReplaceAllString(s.LabRedis, "//"), "?")
	return names
}
