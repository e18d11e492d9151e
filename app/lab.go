package app

import (
	"fmt"
	"regexp"
	"strings"

	"flashsale/internal/address"
	"flashsale/internal/config"
	"flashsale/lab"
)

// OpenLab gives the console its lab. It must not be called after Run has begun.
func (a *App) OpenLab(desk *lab.Desk) { a.lab.Desk = desk }

// credentials matches the user and password in a URL, with the slashes before them and the @ behind them.
var credentials = regexp.MustCompile(`//[^/]*@`)

// labStores returns the addresses of the lab's stores without users and passwords, since people see them.
func labStores(s *config.Settings) lab.Stores {
	names := lab.Stores{Database: "SQLite"}
	if u, hosts, err := address.MySQL(s.LabDatabase); err == nil {
		names.Database = fmt.Sprintf("%s://%s%s", u.Scheme, strings.Join(hosts, ","), u.Path)
	}
	names.Redis, _, _ = strings.Cut(credentials.ReplaceAllString(s.LabRedis, "//"), "?")
	return names
}
