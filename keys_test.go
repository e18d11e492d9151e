package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// A server of the shop calls with a key that the command has made, until the key is revoked.
func TestKeys(t *testing.T) {
	_, database := sqliteFile(t)
	s := serve(t, nil, database)
	run := func(want int, stdout, stderr string, args ...string) {
		t.Helper()
		exits(t, nil, append(append([]string{"keys"}, args...), database), want, stdout, stderr)
	}
	code, printed, stderr := execute(t, nil, "keys", "create", "--name=shop", database)
	key := strings.TrimSpace(printed)
	if code != 0 || !regexp.MustCompile(`^fs_shop_[A-Z2-7]{26}$`).MatchString(key) {
		t.Fatalf("exit %d, printed %q and %q", code, printed, stderr)
	}
	_, checkout, _ := execute(t, nil, "keys", "create", "--name=checkout", "--role=holds", database)
	s.ask(t, strings.TrimSpace(checkout), "GET", "/api/v1/admin/sales", nil, 403)
	run(0, `^revoked checkout\n$`, "", "revoke", "--name=checkout")
	s.ask(t, key, "GET", "/api/v1/admin/sales", nil, 200)
	s.ask(t, key, "POST", "/api/v1/admin/sales", fields{}, 403)
	run(0, `^shop support, created \S+, last used \S+Z\n$`, "", "list")
	run(1, "", `shop`, "create", "--name=shop")
	run(1, "", `--name`, "create", "--name=a b")
	run(2, "", `--role`, "create", "--name=other", "--role=buyer")
	run(1, "", `no key admin`, "revoke", "--name=admin")
	run(0, `^revoked shop\n$`, "", "revoke", "--name=shop")
	within(t, "the key is refused", func() bool {
		status, _ := s.send(t, key, "GET", "/api/v1/admin/sales", nil)
		return status == http.StatusUnauthorized
	})
	code, printed, stderr = execute(t, nil, "keys", "list", database)
	if code != 0 || printed+stderr != "" {
		t.Errorf("exit %d, printed %q and %q", code, printed, stderr)
	}
}
