package address

import (
	"crypto/tls"
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Patterns for addresses of Redis. User and password are percent-encoded, so they contain no separators.
const (
	redisHost = `(?:\[[0-9a-fA-F:.]+\]|[^@/,:?\[\]\s]+):[0-9]{1,5}`
	redisUser = `(?:([^@/,?\s]*)@)?`
)

var (
	redisPath = regexp.MustCompile(`^/?[0-9]{0,4}$`)
	// redisNode matches one node in a comma-separated list of the nodes of a Cluster: the scheme, user:password, and the host.
	redisNode = regexp.MustCompile(`^(?:(rediss?)://)?` + redisUser + `(` + redisHost + `)(?:/0?)?$`)
	// redisSentinel matches scheme, user:password, sentinels, the primary's name, database, and the sentinels' user and password.
	redisSentinel = regexp.MustCompile(`^(rediss?)\+sentinel://` + redisUser + `(` + redisHost + `(?:,` + redisHost + `)*)/([^/?\s]+)(?:/([0-9]{1,4}))?` +
		`(?:\?(?:sentinel_username=([^&]*)&)?sentinel_password=([^&]*))?$`)
)

var errRedis = errors.New("want redis://host:6379/0, several of these with commas between them (a Cluster), or redis+sentinel://host:26379,host:26379/name")

// Redis reads the address of a Redis in one of these forms:
//   - redis://user:password@host:6379/0 is a single Redis.
//   - Several of these, or of host:port, separated by commas, are nodes of a Cluster. User, password and scheme of the first node
//     apply to all nodes. Another node may omit them.
//   - redis+sentinel://user:password@host:26379,host:26379/name/0?sentinel_username=...&sentinel_password=... names a primary
//     by its name at the sentinels.
//
// The schemes rediss and rediss+sentinel use TLS. The settings for a client are in "single" for a single Redis, else in
// "several". No error contains a password.
func Redis(address string) (single *redis.Options, several *redis.UniversalOptions, err error) {
	if strings.Contains(address, "+sentinel://") {
		several, err = sentinels(address)
		return nil, several, err
	}
	if strings.Contains(address, ",") {
		several, err = cluster(address)
		return nil, several, err
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Host == "" || !redisPath.MatchString(u.Path) || strings.Contains(u.RawQuery, "@") {
		return nil, nil, errRedis
	}
	single, err = redis.ParseURL(address)
	return single, nil, err
}

func cluster(address string) (*redis.UniversalOptions, error) {
	opts := &redis.UniversalOptions{}
	for i, text := range strings.Split(address, ",") {
		node := redisNode.FindStringSubmatch(text)
		if node == nil {
			return nil, errRedis
		}
		scheme, host := node[1], node[3]
		user, password, err := credentials(node[2])
		switch {
		case err != nil:
			return nil, err
		case i == 0:
			opts.Username, opts.Password, opts.TLSConfig = user, password, secured(scheme)
		case user+password != "" && (user != opts.Username || password != opts.Password), scheme != "" && (scheme == "rediss") != (opts.TLSConfig != nil):
			return nil, errors.New("the nodes of a Cluster have one user, one password and one scheme")
		}
		opts.Addrs = append(opts.Addrs, host)
	}
	return opts, nil
}

func sentinels(address string) (*redis.UniversalOptions, error) {
	parts := redisSentinel.FindStringSubmatch(address)
	if parts == nil {
		return nil, errRedis
	}
	opts := &redis.UniversalOptions{TLSConfig: secured(parts[1]), Addrs: strings.Split(parts[3], ","), MasterName: parts[4]}
	opts.DB, _ = strconv.Atoi(parts[5]) // at most four digits; 0 without any
	var err, errUser, errPassword error
	opts.Username, opts.Password, err = credentials(parts[2])
	opts.SentinelUsername, errUser = url.QueryUnescape(parts[6])
	opts.SentinelPassword, errPassword = url.QueryUnescape(parts[7])
	if errUser != nil || errPassword != nil {
		err = errEncoding
	}
	return opts, err
}

var errEncoding = errors.New("user and password need %25 for %, %40 for @, %2C for a comma")

// credentials decodes user:password.
func credentials(text string) (user, password string, err error) {
	user, password, _ = strings.Cut(text, ":")
	user, errUser := url.PathUnescape(user)
	password, errPassword := url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return "", "", errEncoding
	}
	return user, password, nil
}

func secured(scheme string) *tls.Config {
	if scheme != "rediss" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}
