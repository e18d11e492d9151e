package config

import (
	"cmp"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"flashsale/internal/address"
)

// validateLab checks the stores of the console's lab. They must not be the shop's, because the lab would sell the
// shop's units.
func (s *Settings) validateLab() error {
	if s.LabDatabase != "" {
		if err := validateDatabase("--lab-database", s.LabDatabase); err != nil {
			return err
		}
	}
	return cmp.Or(
		Refuse(s.LabDatabase != "" && sameDatabase(s.LabDatabase, s.Database), "--lab-database: names the shop's own database; the lab needs another"),
		validateRedis("--lab-redis", s.LabRedis),
		// Another database number on the shop's Redis is refused as well: all numbers share the pub/sub channels on which
		// instances announce changes.
		Refuse(s.LabRedis != EmbeddedRedis && overlap(redisServers(s.LabRedis), redisServers(s.Redis)), "--lab-redis: names the shop's own Redis; the lab needs another"),
	)
}

// sameDatabase reports whether two valid addresses may lead to the same database, however they are spelled. It does not
// recognize aliases of a host.
func sameDatabase(a, b string) bool {
	pathA, fileA := strings.CutPrefix(a, "sqlite:")
	pathB, fileB := strings.CutPrefix(b, "sqlite:")
	if fileA || fileB {
		return fileA && fileB && realPath(pathA) == realPath(pathB)
	}
	serversA, nameA := databaseServers(a)
	serversB, nameB := databaseServers(b)
	return nameA == nameB && overlap(serversA, serversB)
}

// databaseServers returns the servers of an address of MySQL as hostName spells them, and the name of the database.
func databaseServers(database string) (servers []string, name string) {
	u, hosts, err := address.MySQL(database)
	switch {
	case err != nil:
		return nil, ""
	case hosts == nil:
		servers = []string{hostName(u, "")}
	}
	for _, host := range hosts {
		servers = append(servers, hostName(&url.URL{Host: host}, ""))
	}
	return servers, strings.ToLower(strings.Trim(u.Path, "/")) // some servers ignore case
}

// redisServers returns host:port, as hostName spells it, of each node or sentinel that an address of Redis names.
func redisServers(redis string) (servers []string) {
	single, several, err := address.Redis(redis)
	switch {
	case err != nil:
		return nil
	case single != nil:
		servers = []string{single.Addr}
	default:
		servers = several.Addrs
	}
	for i, server := range servers {
		servers[i] = hostName(&url.URL{Host: server}, "")
	}
	return servers
}

// overlap reports whether two lists of servers, as hostName spells them, have one in common. It does not recognize aliases of
// a host.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(server string) bool { return slices.Contains(b, server) })
}

// hostName returns host:port of a server, with the given port if the URL has none, or the path of its socket. All loopback
// addresses of this machine have the host localhost.
func hostName(u *url.URL, port string) string {
	if socket := u.Query().Get("socket"); socket != "" {
		return realPath(socket)
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(host, port)
}

// isNear reports whether a server, as hostName spells it, is on this machine.
func isNear(hostName string) bool {
	return strings.HasPrefix(hostName, "localhost:") || strings.HasPrefix(hostName, "/")
}

// realPath returns the absolute path of a file with symbolic links resolved. If the file does not exist, only the
// links of its folder are resolved.
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
