package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The lab's stores are never the shop's, however they are written.
func TestLabStoresAreNotTheShops(t *testing.T) {
	const database, redis = "--lab-database", "--lab-redis"
	folder := t.TempDir()
	if err := os.Symlink(folder, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	file := "sqlite:" + filepath.Join(folder, "shop.db")
	for name, tc := range map[string]struct {
		shop, lab string // MySQL and SQLite as --database, Redis as --redis
		refused   string // the setting; empty: it is right
	}{
		"nothing said":                     {mysqlURL, "", ""},
		"the same":                         {mysqlURL, mysqlURL, database},
		"another user":                     {mysqlURL, "mysql://lab:word@host:3306/db", database},
		"the usual port":                   {mysqlURL, "mysql://host/db", database},
		"capitals":                         {mysqlURL, "mysql://HOST/DB", database},
		"a dot at the end":                 {mysqlURL, "mysql://host./db/", database},
		"this machine by another name":     {"mysql://localhost/db", "mysql://127.0.0.1:3306/db", database},
		"this machine by a number of IPv6": {"mysql://127.0.0.1/db", "mysql://[::1]:3306/db", database},
		"another database":                 {mysqlURL, "mysql://user:pass@host:3306/lab", ""},
		"another port":                     {mysqlURL, "mysql://user:pass@host:3307/db", ""},
		"another host":                     {mysqlURL, "mysql://user:pass@other:3306/db", ""},
		"SQLite":                           {mysqlURL, file, ""},
		"a file of its own":                {file, "sqlite:" + filepath.Join(folder, "lab.db"), ""},
		"the same file":                    {file, file, database},
		"the same file, a long way":        {file, "sqlite:" + folder + "/./nowhere/../shop.db", database},
		"the same file, by a link":         {file, "sqlite:" + filepath.Join(folder, "link", "shop.db"), database},
		"no database":                      {mysqlURL, "postgres://host/db", database},

		"a Redis in the process":      {redisURL, "embedded", ""},
		"the same Redis":              {redisURL, redisURL, redis},
		"another number of it":        {redisURL, "redis://host:6379/7", redis},
		"its usual port":              {redisURL, "redis://host", redis},
		"it with TLS and a password":  {redisURL, "rediss://user:pass@host:6379/0", redis},
		"a Redis at another port":     {redisURL, "redis://host:6380/0", ""},
		"a Redis beside the shop's":   {"embedded", "redis://host:6379/0", ""},
		"another in the same process": {"embedded", "embedded", ""},
		"no Redis":                    {redisURL, "", redis},
		"something else":              {redisURL, "memcached://host", redis},
	} {
		t.Run(name, func(t *testing.T) {
			args := outside("--redis="+tc.shop, "--lab-redis="+tc.lab)
			if strings.HasPrefix(tc.shop, "mysql:") || strings.HasPrefix(tc.shop, "sqlite:") {
				args = outside("--database="+tc.shop, "--lab-database="+tc.lab)
			}
			cmd, _, _, err := parse(nil, args...)
			if err != nil {
				t.Fatal(err)
			}
			err = cmd.Settings.Validate()
			if (err == nil) != (tc.refused == "") || err != nil && !strings.HasPrefix(err.Error(), tc.refused+": ") {
				t.Errorf("%v, want it to name %q", err, tc.refused)
			}
		})
	}
}

// The same file is known by a link to itself, too.
func TestLabDatabaseBehindALink(t *testing.T) {
	folder := t.TempDir()
	shop, link := filepath.Join(folder, "shop.db"), filepath.Join(folder, "lab.db")
	if err := os.WriteFile(shop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(shop, link); err != nil {
		t.Fatal(err)
	}
	cmd, _, _, err := parse(nil, outside("--database=sqlite:"+shop, "--lab-database=sqlite:"+link)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Settings.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--lab-database: ") {
		t.Errorf("%v", err)
	}
}

func TestLabFolder(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"embedded":    {nil, filepath.Join("data", "lab")},
		"SQLite":      {[]string{"--database=sqlite:/var/lib/shop/a.db"}, "/var/lib/shop/lab"},
		"MySQL":       {[]string{"--database=" + mysqlURL}, filepath.Join("data", "lab")},
		"as was said": {[]string{"--database=" + mysqlURL, "--lab-reports=/srv/lab"}, "/srv/lab"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, _, err := parse(nil, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := cmd.Settings.LabFolder(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
