package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"flashsale/test/kit"
)

// Exit 0 when nothing has failed, 1 when something has, 2 for a question that makes no sense. No secret is shown.
func TestPreflight(t *testing.T) {
	path, embedded := sqliteFile(t)
	if code, _, stderr := command(t, nil, "preflight", embedded); code != 2 || !strings.Contains(stderr, path) {
		t.Errorf("before there is a database: exit %d, %s", code, stderr)
	}
	s := serve(t, nil, embedded)
	address := strings.TrimPrefix(s.url, "http://")
	base := []string{"preflight", embedded, "--ops-addr=off", "--connections=100"}

	away := kit.Redis(t)
	away.Kill()
	redis, database := kit.Redis(t), kit.SharedMariaDB(t).NewDatabase(t)
	stores := []string{"preflight", "--ops-addr=off", "--connections=100", "--redis=" + redis.URL(), "--database=" + database}
	secret, password := strings.Repeat("S3cret", 8), "Passw0rd of the operator"
	env := map[string]string{"FLASHSALE_SECRET": secret, "FLASHSALE_ADMIN_PASSWORD": password}
	if code, _, stderr := command(t, nil, "migrate", "up", "--database="+database); code != 0 {
		t.Fatal(stderr)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	databasePassword, _ := u.User.Password()
	for name, tc := range map[string]struct {
		env    map[string]string
		args   []string
		code   int
		stdout string
	}{
		"embedded":                  {nil, append(base, "--http-addr="+address), 0, "warn  redis.reach: "},
		"embedded, with a peer":     {nil, append(base, "--http-addr="+address, "--peers="+address), 0, "ok    peer: "},
		"embedded, rehearsed":       {nil, append(base, "--http-addr="+address, "--rehearse"), 1, "fail  rehearsal: "},
		"a peer that is gone":       {nil, append(base, "--http-addr="+address, "--peers="+away.Addr()), 1, "fail  peer: "},
		"Redis is away":             {nil, append(base, "--http-addr="+address, "--redis="+away.URL(), "--secret="+secret, "--admin-password="+password), 1, "fail  redis.reach: "},
		"servers":                   {env, stores, 0, "ok    database.schema: "},
		"servers, without a secret": {nil, stores, 1, "fail  settings: --secret"},
		"a password that is wrong":  {env, append(stores[:4:4], "--database="+strings.Replace(database, databasePassword, "Wr0ngPassw0rd", 1)), 1, "fail  database.reach: "},
		"too few buyers":            {nil, append(base, "--buyers=0"), 2, ""},
		"a peer without a port":     {nil, append(base, "--peers=one"), 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, tc.env, tc.args...)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || (code == 0) != (stderr == "") {
				t.Errorf("exit %d, want %d with %q; printed %s%s", code, tc.code, tc.stdout, stdout, stderr)
			}
			for _, shown := range []string{secret, password, databasePassword, "Wr0ngPassw0rd"} {
				if strings.Contains(stdout+stderr, shown) {
					t.Errorf("%s shows in %s%s", shown, stdout, stderr)
				}
			}
		})
	}
	t.Run("as JSON", func(t *testing.T) {
		code, stdout, _ := command(t, env, append(stores, "--json")...)
		var doc struct {
			OK       bool
			Findings []struct{ Level, Check, Found string }
		}
		if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != 0 || !doc.OK || len(doc.Findings) < 10 {
			t.Errorf("exit %d, %v: %s", code, err, stdout)
		}
	})
	if code := s.stop(); code != 0 {
		t.Errorf("the server that was looked at: exit %d, %s", code, s.stderr)
	}
}
