package config

import (
	"net/url"
	"regexp"
	"strings"
)

// Patterns for addresses of Redis other than redis://host:port/db. User and password are percent-encoded, so they
// contain none of the characters that separate the parts of an address.
const (
	redisHost = `(\[[0-9a-fA-F:.]+\]|[^@/,:?\[\]\s]+):[0-9]{1,5}`
	redisUser = `([^@/,?\s]*@)?`
)

var (
	// redisPath matches an optional database number.
	redisPath = regexp.MustCompile(`^/?[0-9]{0,4}$`)
	// redisNode matches one node in a comma-separated list of the nodes of a Cluster.
	redisNode = regexp.MustCompile(`^(rediss?://)?` + redisUser + redisHost + `(/0?)?$`)
	// redisSentinel matches the address of sentinels with the name of their primary.
	redisSentinel = regexp.MustCompile(`^rediss?\+sentinel://` + redisUser + redisHost + `(,` + redisHost + `)*/[^/?\s]+(/[0-9]{1,4})?` +
		`(\?(sentinel_username=[^&]*&)?sentinel_password=[^&]*)?$`)
)

// redisForms lists the forms that redisAddress accepts, for error messages.
const redisForms = "redis://host:6379/0, several of these with commas between them (a Cluster), or redis+sentinel://host:26379,host:26379/name"

// redisAddress reports whether an address has one of the forms that package gate connects to.
func redisAddress(address string) bool {
	if strings.Contains(address, "+sentinel://") {
		return redisSentinel.MatchString(address)
	}
	if strings.Contains(address, ",") {
		for node := range strings.SplitSeq(address, ",") {
			if !redisNode.MatchString(node) {
				return false
			}
		}
		return true
	}
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "redis" || u.Scheme == "rediss") && u.Host != "" && redisPath.MatchString(u.Path)
}

// redisServers returns host:port, as hostName spells it, of each node or sentinel that an address names.
func redisServers(address string) (list []string) {
	address, _, _ = strings.Cut(address, "?")
	for server := range strings.SplitSeq(address, ",") {
		if _, rest, found := strings.Cut(server, "://"); found {
			server = rest
		}
		server = server[strings.LastIndex(server, "@")+1:]
		server, _, _ = strings.Cut(server, "/")
		list = append(list, hostName(&url.URL{Host: server}, "6379"))
	}
	return list
}
