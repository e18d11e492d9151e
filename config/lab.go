package config

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// validateLab checks the stores of the console's lab. It would sell the shop's units, so they may not be the shop's.
func (s *Settings) validateLab() error {
	if s.LabDatabase != "" {
		if err := validateDatabase("--lab-database", s.LabDatabase); err != nil {
			return err
		}
		if databaseName(s.LabDatabase) == databaseName(s.Database) {
			return errors.New("--lab-database: names the shop's own database; the lab needs another")
		}
	}
	if err := validateRedis("--lab-redis", s.LabRedis); err != nil {
		return err
	}
	// Another number of the same Redis won't do: all numbers share the channels on which instances talk.
	if s.LabRedis != EmbeddedRedis && shareServers(s.LabRedis, s.Redis) {
		return errors.New("--lab-redis: names the shop's own Redis; the lab needs another")
	}
	return nil
}

// databaseName is the same for all valid ways to write one database, but for other names of its host.
func databaseName(database string) string {
	if path, isFile := strings.CutPrefix(database, "sqlite:"); isFile {
		return "sqlite:" + realPath(path)
	}
	u, err := url.Parse(database)
	if err != nil {
		return database
	}
	return hostName(u, "3306") + "/" + strings.ToLower(strings.Trim(u.Path, "/")) // servers differ in what case means
}

// shareServers reports whether two addresses of Redis have a server in common, however they write it, but for other names
// of its host.
func shareServers(a, b string) bool {
	return slices.ContainsFunc(redisServers(a), func(server string) bool { return slices.Contains(redisServers(b), server) })
}

// hostName is a server's address with its port; this machine has one name.
func hostName(u *url.URL, port string) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(host, port)
}

// realPath is a file's path without links, as far as it exists.
func realPath(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(folder, filepath.Base(path))
	}
	return path
}
