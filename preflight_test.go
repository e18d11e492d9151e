package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"flashsale/test/kit"
)

// preflight exits with 0 if no check has failed, 1 if one has, and 2 for wrong arguments. It prints no secret.
func TestPreflight(t *testing.T) {
	path, embedded := sqliteFile(t)
	if code, _, stderr := execute(t, nil, "preflight", embedded); code != 2 || !strings.Contains(stderr, path) {
		t.Errorf("before there is a database: exit %d, %s", code, stderr)
	}
	s := serve(t, nil, embedded)
	address := strings.TrimPrefix(s.url, "http://")
	base := []string{"preflight", embedded, "--ops-addr=off", "--connections=100"}
	here := append(base[:4:4], "--http-addr="+address)
	away := kit.Redis(t)
	away.Kill()
	redis, database := kit.Redis(t), kit.SharedMariaDB(t).NewDatabase(t)
	stores := []string{"preflight", "--ops-addr=off", "--connections=100", "--redis=" + redis.URL(), "--database=" + database}
	secret, password := strings.Repeat("S3cret", 8), "Passw0rd of the operator"
	env := map[string]string{"FLASHSALE_SECRET": secret, "FLASHSALE_ADMIN_PASSWORD": password, "FLASHSALE_PAYMENT": "handoff", "FLASHSALE_CHECKOUT_URL": "https://shop.example/pay"}
	if code, _, stderr := execute(t, nil, "migrate", "up", "--database="+database); code != 0 {
		t.Fatal(stderr)
	}
	u, err := url.Parse(database)
	noError(t, err)
	databasePassword, _ := u.User.Password()
	wrong := "--database=" + strings.Replace(database, databasePassword, "Wr0ngPassw0rd", 1)
	for name, tc := range map[string]struct {
		env    map[string]string
		args   []string
		code   int
		stdout string
	}{
		"embedded":              {nil, here, 0, "warn  redis.reach: "},
		"embedded, with a peer": {nil, append(here[:5:5], "--peers="+address), 0, "ok    peer: "},
		"a dead peer":           {nil, append(here[:5:5], "--peers="+away.Addr()), 1, "fail  peer: "},
		"Redis is away":         {env, append(here[:5:5], "--redis="+away.URL()), 1, "fail  redis.reach: "},
		"servers":               {env, stores, 0, "ok    database.schema: "},
		"servers, no secret":    {nil, stores, 1, "fail  settings: --secret"},
		"a wrong password":      {env, append(stores[:4:4], wrong), 1, "fail  database.reach: "},
		"too few buyers":        {nil, append(base[:4:4], "--buyers=0"), 2, ""},
		"a peer without a port": {nil, append(base[:4:4], "--peers=one"), 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := execute(t, tc.env, tc.args...)
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
	code, stdout, _ := execute(t, env, append(stores, "--json")...)
	var doc struct {
		OK       bool
		Findings []struct{ Level, Check, Found string }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != 0 || !doc.OK || len(doc.Findings) < 10 {
		t.Errorf("as JSON: exit %d, %v: %s", code, err, stdout)
	}
	s.stop(t)
}
