package app

import (
	"fmt"
	"regexp"
	"strings"

	"flashsale/internal/address"
	"flashsale/internal/config"
	"flashsale/lab"
)

// OpenLab gives the console its lab. It is called before Run. An instance without a lab, such as those that the lab itself runs,
// answers as if the lab's routes did not exist.
func (a *App) OpenLab(desk *lab.Desk) { a.lab.Desk = desk }

// credentials matches the user and password in each of the URLs of an address, which are separated by commas.
var credentials = regexp.MustCompile(`//[^/]*@`)

// labStores returns the addresses of the lab's stores in a form that operators may see.
func labStores(s *config.Settings) lab.Stores {
	names := lab.Stores{Database: "SQLite"}
	if u, hosts, err := address.MySQL(s.LabDatabase); err == nil {
		names.Database = fmt.Sprintf("%s://%s%s", u.Scheme, strings.Join(hosts, ","), u.Path)
	}
	names.Redis, _, _ = strings.Cut(credentials.ReplaceAllString(s.LabRedis, "//"), "?")
	return names
}
