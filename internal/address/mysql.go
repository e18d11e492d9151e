// Package address reads addresses of databases and of Redis.
package address

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

const mostHosts = 16

var errForm = errors.New("want sqlite:PATH or mysql://user:pass@host:port/db, with commas between several hosts")

// MySQL reads mysql://user:pass@host:port,host:port/db?parameters. It returns the address with its first host alone, and all
// hosts as host:port, with the port 3306 for a host without a port. hosts is nil if the address names a socket. The error does
// not contain the password.
func MySQL(address string) (u *url.URL, hosts []string, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?#")
	if scheme != "mysql" || end < 0 {
		return nil, nil, errForm
	}
	if strings.Contains(rest[end:], "@") { // otherwise a part of the password would pass for a parameter
		return nil, nil, errors.New("want / ? # and @ in a password as %2F %3F %23 %40")
	}
	at := strings.LastIndex(rest[:end], "@") + 1
	for host := range strings.SplitSeq(rest[at:end], ",") {
		parsed, err := url.Parse(scheme + "://" + rest[:at] + host + rest[end:])
		if err != nil || strings.Trim(parsed.Path, "/") == "" || strings.Contains(parsed.Hostname(), ":") != strings.HasPrefix(host, "[") {
			return nil, nil, errForm
		}
		if u == nil {
			u = parsed
		}
		if parsed.Port() == "" {
			parsed.Host += ":3306"
		}
		hosts = append(hosts, parsed.Host)
	}
	switch socket := u.Query().Get("socket"); {
	case len(hosts) == 1 && u.Hostname() == "" && socket != "":
		u.Host = ""
		return u, nil, nil
	case socket != "" || slices.ContainsFunc(hosts, func(host string) bool { return strings.HasPrefix(host, ":") }):
		return nil, nil, errors.New("want a host or a socket, as mysql://user:pass@/db?socket=PATH")
	case len(hosts) > mostHosts || len(slices.Compact(slices.Sorted(slices.Values(hosts)))) < len(hosts):
		return nil, nil, errors.New("want at most 16 hosts, each once")
	}
	return u, hosts, nil
}
