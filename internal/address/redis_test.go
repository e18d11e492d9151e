package address

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"flashsale/test/kit/check"
)

func TestCluster(t *testing.T) {
	for address, want := range map[string]*redis.UniversalOptions{
		"redis://a:1,redis://b:2":            {Addrs: []string{"a:1", "b:2"}},
		"a:1,b:2,c:3":                        {Addrs: []string{"a:1", "b:2", "c:3"}},
		"redis://a:1/,redis://b:2/0":         {Addrs: []string{"a:1", "b:2"}},
		"redis://u:p%40%2C@a:1,b:2":          {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p@,"},
		"redis://:p@a:1,redis://:p@b:2":      {Addrs: []string{"a:1", "b:2"}, Password: "p"},
		"rediss://u:p@a:1,rediss://b:2":      {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p"},
		"redis://[::1]:1,redis://[fe80::]:2": {Addrs: []string{"[::1]:1", "[fe80::]:2"}},
	} {
		if strings.HasPrefix(address, "rediss") {
			want.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if _, got, err := Redis(address); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, %v", address, got, err)
		}
	}
}

// The first node's user and password hold for all.
func TestNodesOfOneUser(t *testing.T) {
	for address, ok := range map[string]bool{
		"redis://u:p@a:1,redis://u:p@b:2": true, "redis://u:p@a:1,b:2": true,
		"redis://u:p@a:1,redis://v:p@b:2": false, "redis://u:p@a:1,redis://u:q@b:2": false, "redis://u:p@a:1,redis://v@b:2": false, "a:1,redis://:p@b:2": false,
	} {
		_, _, err := Redis(address)
		check.Same(t, address, err == nil, ok)
	}
}

func TestSentinels(t *testing.T) {
	for address, want := range map[string]*redis.UniversalOptions{
		"a:1,b:2/shop":        {Addrs: []string{"a:1", "b:2"}, MasterName: "shop"},
		"a:1/shop/5":          {Addrs: []string{"a:1"}, MasterName: "shop", DB: 5},
		"u:p%2F@a:1,b:2/shop": {Addrs: []string{"a:1", "b:2"}, MasterName: "shop", Username: "u", Password: "p/"},
		"u:p@a:1/shop/0?sentinel_username=s&sentinel_password=q%26": {
			Addrs: []string{"a:1"}, MasterName: "shop", Username: "u", Password: "p", SentinelUsername: "s", SentinelPassword: "q&",
		},
	} {
		want.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if _, got, err := Redis("rediss+sentinel://" + address); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, %v", address, got, err)
		}
	}
}
