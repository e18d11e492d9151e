package config

import (
	"strings"
	"testing"
)

func TestRedisAddresses(t *testing.T) {
	good := []string{
		"redis://host:6379/0", "redis://host", "rediss://user:pass@host:6379", "redis://:pass@[::1]:6379/15",
		"redis://a:1,redis://b:2", "a:1,b:2,c:3", "rediss://u:p%40%2C@a:1,b:2", "redis://a:1/0,redis://b:2/", "[::1]:1,[::1]:2",
		"redis+sentinel://a:26379/shop", "redis+sentinel://a:1,b:2,c:3/shop/3", "rediss+sentinel://u:p@a:1,b:2/shop/0",
		"redis+sentinel://a:1/shop?sentinel_password=p%26", "redis+sentinel://a:1/shop?sentinel_username=u&sentinel_password=p",
	}
	bad := []string{
		"", "127.0.0.1:6379", "memcached://host", "redis:///0", "redis://host/first", "redis://host:port/0",
		"a:1,", ",a:1", "a:1,b", "a:1,b:2/3", "a:1,redis+sentinel://b:2/shop", "a:1, b:2", "http://a:1,b:2", "redis://u:p/@a:1,b:2",
		"redis+sentinel://a:1", "redis+sentinel://a:1/", "redis+sentinel:///shop", "redis+sentinel://a/shop", "redis+sentinel://a:1,b/shop",
		"redis+sentinel://a:1/shop/x", "redis+sentinel://a:1/shop/0/1", "redis+sentinel://a:1/shop?other=1", "redis+sentinel://a:1/shop?sentinel_username=u",
		"http+sentinel://a:1/shop",
	}
	for setting, base := range map[string][]string{"--redis": {}, "--redis-replicas": {"--redis=redis://host:6379"}} {
		for _, address := range good {
			cmd, _, _, err := parse(nil, append(base, setting+"="+address)...)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Settings.ValidateStores(); err != nil {
				t.Errorf("%s=%s: %v", setting, address, err)
			}
		}
		for _, address := range bad {
			if address == "" && setting == "--redis-replicas" {
				continue // none
			}
			cmd, _, _, err := parse(nil, append(base, setting+"="+address)...)
			if err != nil {
				t.Fatal(err)
			}
			err = cmd.Settings.ValidateStores()
			if err == nil || !strings.HasPrefix(err.Error(), setting+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s=%s: %v", setting, address, err)
			}
		}
	}
}

// What is wrong with an address is told without its password.
func TestRedisErrorsShowNoPassword(t *testing.T) {
	for _, args := range [][]string{
		{"--redis=redis://user:hunter2@host:x"},
		{"--redis=redis://user:hunter2@a:1,b"},
		{"--redis=redis+sentinel://user:hunter2@a:1"},
		{"--redis=redis://host:1", "--redis-replicas=redis://user:hunter2@a:1,b"},
	} {
		cmd, _, _, err := parse(nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Settings.ValidateStores(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestEmbeddedRedisHasNoReplicas(t *testing.T) {
	cmd, _, _, err := parse(nil, "--redis-replicas=redis://host:6379")
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Settings.ValidateStores(); err == nil || !strings.HasPrefix(err.Error(), "--redis-replicas: ") {
		t.Error(err)
	}
}

// The lab's Redis is no server of the shop's.
func TestLabRedisIsNoneOfTheShops(t *testing.T) {
	for _, tc := range []struct {
		shop, lab string
		refused   bool
	}{
		{"redis://a:1,redis://b:2", "redis://b:2", true},
		{"redis://u:p@a:1,b:2", "rediss://B:2/3", true},
		{"a:1,b:2", "b:2,c:3", true},
		{"a:1,b:2", "c:1,a:2", false},
		{"redis://localhost", "127.0.0.1:6379,a:1", true},
		{"redis+sentinel://a:1,b:2/shop", "redis+sentinel://b:2,c:3/other", true},
		{"redis+sentinel://a:1,b:2/shop?sentinel_password=c:3", "redis+sentinel://c:3/shop", false},
	} {
		cmd, _, _, err := parse(nil, outside("--redis="+tc.shop, "--lab-redis="+tc.lab)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Settings.Validate(); (err != nil) != tc.refused || err != nil && !strings.HasPrefix(err.Error(), "--lab-redis: ") {
			t.Errorf("--redis=%s --lab-redis=%s: %v", tc.shop, tc.lab, err)
		}
	}
}
