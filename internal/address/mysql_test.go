package address

import (
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

func TestMySQL(t *testing.T) {
	for address, want := range map[string][]string{
		"mysql://u:p@h/d":                          {"h:3306"},
		"mysql://u:p@h:1/d?tls=true":               {"h:1"},
		"mysql://u:p%40,%2F@a:1,b,[::1]:2,[::2]/d": {"a:1", "b:3306", "[::1]:2", "[::2]:3306"},
		"mysql://u:p@/d?socket=/run/s":             nil,
	} {
		u, hosts, err := MySQL(address)
		check.NoError(t, err)
		check.Same(t, address, hosts, want)
		if password, _ := u.User.Password(); u.User.Username() != "u" || password[0] != 'p' || u.Path != "/d" {
			t.Errorf("%s: %v", address, u)
		}
		if len(want) > 0 {
			check.Same(t, address, u.Host, want[0])
		}
	}
	for _, address := range []string{
		"", "mysql://", "mysql://u:p@h", "mysql://u:p@h/", "postgres://u:p@h/d", "mysql://u:p@/d", "mysql://u:p@a,,b/d", "mysql://u:p@a,b,/d",
		"mysql://u:p@h:x/d", "mysql://u:p@a:1:2/d", "mysql://u:p@h/d?socket=/run/s", "mysql://u:p@a,A:1,a/d", "mysql://u:1/2?p@h/d", "mysql://u:p?q@h/d",
		"mysql://u:p@a,b/d?socket=/run/s", "mysql://u:p@:3306/d", "mysql://u:p@" + strings.Repeat("a,", 16) + "b/d",
	} {
		if _, hosts, err := MySQL(address); err == nil {
			t.Errorf("%s: %v", address, hosts)
		} else if strings.Contains(err.Error(), "u:p@h") {
			t.Errorf("%s: the error has the password: %v", address, err)
		}
	}
}
