package config

import (
	"cmp"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"flashsale/internal/address"
)

// validateLab checks the stores of the console's lab, which must not be the shop's.
func (s *Settings) validateLab() error {
	if s.LabDatabase != "" {
		if err := validateDatabase("--lab-database", s.LabDatabase); err != nil {
			return err
		}
	}
	return cmp.Or(
		Refuse(s.LabDatabase != "" && sameDatabase(s.LabDatabase, s.Database), "--lab-database: names the shop's own database; the lab needs another"),
		validateRedis("--lab-redis", s.LabRedis),
		// Another database number on the shop's Redis does not suffice, because all numbers share the channels.
		Refuse(s.LabRedis != EmbeddedRedis && overlap(redisServers(s.LabRedis), redisServers(s.Redis)), "--lab-redis: names the shop's own Redis; the lab needs another"),
	)
}

// sameDatabase reports whether two valid addresses name the same database. It may not recognize another name of the same host.
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

// databaseServers returns the servers, or the socket's path, of an address of MySQL, and the name of the database.
func databaseServers(database string) (servers []string, name string) {
	u, hosts, err := address.MySQL(database)
	if err != nil {
		return nil, ""
	}
	name = strings.ToLower(strings.Trim(u.Path, "/")) // some servers ignore case
	if hosts == nil {
		return []string{realPath(u.Query().Get("socket"))}, name
	}
	return spelled(hosts...), name
}

// redisServers returns the nodes or sentinels that an address of Redis names, or nil if it names none.
func redisServers(redis string) (servers []string) {
	single, several, err := address.Redis(redis)
	switch {
	case err != nil:
		return nil
	case single != nil:
		return spelled(single.Addr)
	}
	return spelled(several.Addrs...)
}

// spelled spells each host:port in small letters, with "localhost" in place of a loopback address.
func spelled(servers ...string) []string {
	for i, server := range servers {
		host, port, _ := net.SplitHostPort(strings.ToLower(server))
		host = strings.TrimSuffix(host, ".")
		if net.ParseIP(host).IsLoopback() {
			host = "localhost"
		}
		servers[i] = net.JoinHostPort(host, port)
	}
	return servers
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(server string) bool { return slices.Contains(b, server) })
}

// isNear reports whether a server, in the form that "spelled" returns, is localhost or the path of a socket.
func isNear(server string) bool {
	return strings.HasPrefix(server, "localhost:") || strings.HasPrefix(server, "/")
}

// realPath returns a file's absolute path, without symbolic links if these can be resolved.
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
