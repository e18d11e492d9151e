package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// parse calls Parse with an environment, and returns what it prints as well.
func parse(env map[string]string, args ...string) (cmd Command, stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd, err = Parse(args, func(name string) string { return env[name] }, &out, &errOut)
	return cmd, out.String(), errOut.String(), err
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	check.Done(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A flag goes before the environment, the environment before the file, and the file before the default, for every type of
// setting.
func TestPrecedence(t *testing.T) {
	for _, tc := range []struct {
		setting                      string
		read                         func(Settings) any
		byDefault                    any
		yaml, env, flag              string
		fromYAML, fromEnv, fromFlags any
	}{
		{
			"http-addr", func(s Settings) any { return s.HTTPAddr }, "127.0.0.1:8080",
			"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3",
		},
		{
			"strategy", func(s Settings) any { return s.Strategy }, "hybrid",
			"redis", "optimistic", "hybrid", "redis", "optimistic", "hybrid",
		},
		{"limit-burst", func(s Settings) any { return s.LimitBurst }, 20000, "1", "2", "3", 1, 2, 3},
		{"limit-rate", func(s Settings) any { return s.LimitRate }, 20000.0, "0.5", "1e6", "2.5", 0.5, 1e6, 2.5},
		{
			"ack-wait", func(s Settings) any { return s.AckWait }, 800 * time.Millisecond,
			"1s", "2s", "1m30s", time.Second, 2 * time.Second, 90 * time.Second,
		},
		{
			"trusted-proxies", func(s Settings) any { return s.TrustedProxies }, []string(nil),
			"[10.0.0.1, 10.0.0.0/8]", "10.0.0.2,10.0.0.3", "10.0.0.4",
			[]string{"10.0.0.1", "10.0.0.0/8"},
			[]string{"10.0.0.2", "10.0.0.3"},
			[]string{"10.0.0.4"},
		},
		{"demo", func(s Settings) any { return s.DemoSale() }, true, "false", "true", "false", false, true, false},
		{"secret", func(s Settings) any { return s.Secret }, "", "a file", "a variable", "a flag", "a file", "a variable", "a flag"},
	} {
		variable := "FLASHSALE_" + strings.ToUpper(strings.ReplaceAll(tc.setting, "-", "_"))
		file := writeFile(t, tc.setting+": "+tc.yaml+"\n")
		for _, given := range []struct {
			by   string
			env  map[string]string
			args []string
			want any
		}{
			{"nothing", nil, nil, tc.byDefault},
			{"an empty variable", map[string]string{variable: ""}, nil, tc.byDefault},
			{"the file", nil, []string{"--config", file}, tc.fromYAML},
			{"the file that the environment names", map[string]string{"FLASHSALE_CONFIG": file}, nil, tc.fromYAML},
			{"an empty variable above the file", map[string]string{variable: ""}, []string{"--config", file}, tc.fromYAML},
			{"the environment", map[string]string{variable: tc.env}, nil, tc.fromEnv},
			{"the environment above the file", map[string]string{variable: tc.env}, []string{"--config", file}, tc.fromEnv},
			{"a flag", nil, []string{"--" + tc.setting + "=" + tc.flag}, tc.fromFlags},
			{"a flag above the file", nil, []string{"--config", file, "--" + tc.setting + "=" + tc.flag}, tc.fromFlags},
			{"a flag in front of the file", nil, []string{"--" + tc.setting + "=" + tc.flag, "--config", file}, tc.fromFlags},
			{"a flag above all", map[string]string{variable: tc.env, "FLASHSALE_CONFIG": file}, []string{"serve", "--" + tc.setting + "=" + tc.flag}, tc.fromFlags},
		} {
			t.Run(tc.setting+" by "+given.by, func(t *testing.T) {
				cmd, _, _, err := parse(given.env, given.args...)
				check.Done(err)
				check.Same(t, tc.setting, tc.read(cmd.Settings), given.want)
			})
		}
	}
}

// The file that a flag names goes before the file that the environment names, which may be missing.
func TestConfigFlagGoesBeforeItsVariable(t *testing.T) {
	good := writeFile(t, "limit-burst: 5\n")
	want := settingsOf(t, "--config", good)
	check.Same(t, "burst", want.LimitBurst, 5)
	for _, other := range []string{writeFile(t, "limit-burst: 6\nlimit-wait: 1s\n"), good + ".missing", writeFile(t, "{")} {
		cmd, _, _, err := parse(map[string]string{"FLASHSALE_CONFIG": other}, "--config", good)
		check.Error(t, other, err, nil)
		check.Same(t, "settings", &cmd.Settings, want)
	}
}

// The defaults are those of the contract: only this machine reaches the server, and no proxy is trusted. TestDerivedSettings
// shows that a server starts with them.
func TestDefaults(t *testing.T) {
	cmd, _, _, err := parse(nil)
	check.Done(err)
	want := Settings{
		HTTPAddr: "127.0.0.1:8080", OpsAddr: "127.0.0.1:9090", Database: "sqlite:data/flashsale.db", DBMaxConns: 32,
		Redis: "embedded", Queue: "redis-stream", Strategy: "hybrid", LocalShare: 0.5, LocalBuffer: 64, Batch: 512, Ack: "confirmed", AckWait: 800 * time.Millisecond,
		PayGrace: 30 * time.Second, LimitAlgorithm: "token-bucket", LimitRate: 20000, LimitBurst: 20000, IPRate: 200,
		UserRequests: 10, UserWindow: time.Second, TraceRatio: 0.01, LabRedis: "embedded", UserClaim: "sub", Accounts: "auto", Payment: "auto", Beacon: "https://api.drand.sh", EventDays: 30, LogFormat: "auto", LogLevel: "info",
	}
	check.Same(t, "command", cmd.Name, "serve")
	check.Same(t, "settings", cmd.Settings, want)
}

func TestCommands(t *testing.T) {
	labOf := func(p model.LabPlan, out string) func(Command) bool {
		return func(c Command) bool { return c.Name == "lab" && reflect.DeepEqual(c.Lab, Lab{p, out}) }
	}
	tokens := func(want Tokens) func(Command) bool {
		return func(c Command) bool { return c.Name == "tokens" && c.Tokens == want }
	}
	for args, right := range map[string]func(Command) bool{
		"":                                      func(c Command) bool { return c.Name == "serve" && c.Settings.DemoSale() },
		"--demo=false":                          func(c Command) bool { return c.Name == "serve" && !c.Settings.DemoSale() },
		"--demo":                                func(c Command) bool { return c.Settings.DemoSale() }, // a flag in a word
		"serve":                                 func(c Command) bool { return c.Name == "serve" },
		"migrate up":                            func(c Command) bool { return c.Name == "migrate up" },
		"migrate down":                          func(c Command) bool { return c.Name == "migrate down" },
		"migrate status":                        func(c Command) bool { return c.Name == "migrate status" },
		"tokens --users 3":                      tokens(Tokens{3, "u", 24 * time.Hour}),
		"tokens --users=3 --prefix=x- --ttl=1h": tokens(Tokens{3, "x-", time.Hour}),
		"audit":                                 func(c Command) bool { return c.Name == "audit" && c.Audit.Sale == "" },
		"audit --sale S":                        func(c Command) bool { return c.Audit.Sale == "S" },
		"version":                               func(c Command) bool { return c.Name == "version" },
		"verify-draw draw.json":                 func(c Command) bool { return c.Name == "verify-draw" && c.VerifyDraw == VerifyDraw{File: "draw.json"} },
		"verify-draw x --number=0 --beacon-key=ab": func(c Command) bool {
			return c.VerifyDraw.File == "x" && *c.VerifyDraw.Number == 0 && c.VerifyDraw.BeaconKey == "ab"
		},
		"audit --database=sqlite:x.db": func(c Command) bool { return c.Settings.Database == "sqlite:x.db" },
		"--database=sqlite:x.db audit": func(c Command) bool { return c.Name == "audit" && c.Settings.Database == "sqlite:x.db" },
		"rehearse --url=https://shop --shape=crowd.yaml": func(c Command) bool {
			return c.Name == "rehearse" && c.Rehearse == Rehearse{URL: "https://shop", Shape: "crowd.yaml", Connections: 4000, Out: "rehearsal-report"}
		},
		"rehearse --url=https://shop --shape=x --connections=9 --out=y": func(c Command) bool {
			return c.Rehearse == Rehearse{URL: "https://shop", Shape: "x", Connections: 9, Out: "y"}
		},
		"lab": labOf(model.LabPlan{
			Strategies: []string{"all"}, Buyers: 2000, Stock: 200, Concurrency: 50, Instances: 1, Seed: 1,
		}, "lab-report"),
		"lab --strategies=naive,local --buyers=5 --stock=4 --concurrency=3 --instances=2 --kill --seed=7 --out=x": labOf(
			model.LabPlan{
				Strategies: []string{"naive", "local"}, Buyers: 5, Stock: 4, Concurrency: 3, Instances: 2, Kill: true, Seed: 7,
			}, "x"),
	} {
		cmd, stdout, stderr, err := parse(nil, strings.Fields(args)...)
		if err != nil || !right(cmd) || stdout+stderr != "" {
			t.Errorf("%s: %+v, %v, printed %q", args, cmd, err, stdout+stderr)
		}
	}
}

// --help lists every setting with its variable.
func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "-h", "serve --help", "--demo=false --help", "tokens --help"} {
		_, stdout, stderr, err := parse(nil, strings.Fields(args)...)
		check.Error(t, args, err, ErrHelp)
		check.Same(t, args+": errors", stderr, "")
		for _, name := range []string{
			"config", "http-addr", "ops-addr", "database", "db-max-conns", "redis", "queue", "queue-url", "strategy", "ack", "ack-wait", "pay-grace",
			"limit-algorithm", "limit-rate", "limit-burst", "limit-wait", "ip-rate", "user-requests", "user-window", "trusted-proxies",
			"secret", "payment-secret", "admin-password", "demo", "log-format", "log-level",
		} {
			variable := "($FLASHSALE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + ")"
			if !regexp.MustCompile(`--(\[no-\])?`+name+`\b`).MatchString(stdout) || !strings.Contains(stdout, variable) {
				t.Errorf("--%s %s is missing in\n%s", name, variable, stdout)
			}
		}
		variables, fields := strings.Count(stdout, "($FLASHSALE_"), reflect.TypeFor[Settings]().NumField()
		check.Same(t, args+": all settings, and the file, are listed", variables > fields, true)
	}
	_, stdout, _, _ := parse(nil, "--help")
	for _, command := range []string{"serve", "migrate up", "migrate down", "migrate status", "tokens", "audit", "verify-draw", "version"} {
		check.Same(t, command+" is listed", strings.Contains(stdout, command), true)
	}
}

// Help is printed whatever else is wrong.
func TestHelpInSpiteOfErrors(t *testing.T) {
	for variable, value := range map[string]string{"FLASHSALE_CONFIG": "/nowhere/at.all", "FLASHSALE_ACK_WAIT": "soon"} {
		_, stdout, _, err := parse(map[string]string{variable: value}, "--help")
		check.Error(t, variable, err, ErrHelp)
		check.Same(t, variable+": the help is printed", strings.Contains(stdout, "--http-addr"), true)
	}
}

// An error of usage is one line that names what is wrong. Nothing is printed.
func TestParseErrors(t *testing.T) {
	wrong := func(t *testing.T, env map[string]string, args []string, says ...string) {
		t.Helper()
		_, stdout, stderr, err := parse(env, args...)
		if err == nil || errors.Is(err, ErrHelp) || strings.ContainsAny(err.Error(), "\n\r") || stdout+stderr != "" {
			t.Fatalf("%q, printed %q", err, stdout+stderr)
		}
		for _, word := range says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %s", err, word)
			}
		}
	}
	for _, flag := range []string{
		"--colour=red", "--http-addr", "--ack-wait=soon", "--ack-wait=5", "--limit-burst=many", "--limit-burst=1.5",
		"--limit-rate=fast", "--demo=perhaps", "--strategy=luck", "--local-share=half", "--local-buffer=few", "--ack=maybe",
		"--queue=paper", "--limit-algorithm=dice", "--log-format=xml", "--log-level=loud", "--config=/nowhere/at.all", "--config=" + os.TempDir(),
	} {
		t.Run(flag, func(t *testing.T) {
			name, _, _ := strings.Cut(flag, "=")
			wrong(t, nil, []string{flag}, name)
		})
	}
	for command, says := range map[string][]string{
		"sell": {"sell"}, "version now": {"now"}, "migrate": {"up", "down", "status"},
		"tokens": {"--users"}, "tokens --users=many": {"--users"}, "tokens --users=1 --ttl=day": {"--ttl"},
		"verify-draw": {"file"}, "verify-draw x --number=many": {"--number"},
		"--strategy=luck": {"luck", "hybrid"}, "--config=/nowhere/at.all": {"/nowhere/at.all"},
	} {
		t.Run(command, func(t *testing.T) { wrong(t, nil, strings.Fields(command), says...) })
	}
	for variable, tc := range map[string]struct{ value, says string }{
		"FLASHSALE_ACK_WAIT": {"soon", "--ack-wait"}, "FLASHSALE_LIMIT_BURST": {"many", "--limit-burst"},
		"FLASHSALE_STRATEGY": {"luck", "--strategy"}, "FLASHSALE_CONFIG": {"/nowhere/at.all", "/nowhere/at.all"},
	} {
		t.Run(variable, func(t *testing.T) { wrong(t, map[string]string{variable: tc.value}, nil, tc.says) })
	}
	for text, says := range map[string]string{
		"colour: red\n": "colour", "Ack-Wait: 1s\n": "Ack-Wait", "ack_wait: 1s\n": "ack_wait", "users: 5\n": "users",
		"config: other.yaml\n": "config", "help: true\n": "help", "http:\n  addr: x\n": "http", "- ack-wait\n": "--config",
		"a: b: c\n\t- }": "--config", "ack-wait: 1s\nack-wait: 2s\n": "ack-wait", "ack-wait: soon\n": "ack-wait",
		"ack-wait: 5\n": "ack-wait", "limit-burst: [1, 2]\n": "limit-burst",
	} {
		t.Run("the file "+text, func(t *testing.T) { wrong(t, nil, []string{"--config", writeFile(t, text)}, says) })
	}
}

// These forms of a file are accepted.
func TestFiles(t *testing.T) {
	type test struct {
		text  string
		right func(Settings) bool
	}
	check.Each(t, map[string]test{
		"empty":            {"", func(s Settings) bool { return s.LimitBurst == 20000 }},
		"comments only":    {"# nothing yet\n", func(s Settings) bool { return s.LimitBurst == 20000 }},
		"a null":           {"limit-burst: null\n", func(s Settings) bool { return s.LimitBurst == 20000 }},
		"quotes":           {"limit-burst: \"7\"\nack-wait: '2s'\n", func(s Settings) bool { return s.LimitBurst == 7 && s.AckWait == 2*time.Second }},
		"large numbers":    {"limit-rate: 1e9\nlimit-burst: 1000000000\n", func(s Settings) bool { return s.LimitRate == 1e9 && s.LimitBurst == 1_000_000_000 }},
		"a list in lines":  {"trusted-proxies:\n  - 10.0.0.1\n  - ::1/128\n", func(s Settings) bool { return slices.Equal(s.TrustedProxies, []string{"10.0.0.1", "::1/128"}) }},
		"a list in a text": {"trusted-proxies: 10.0.0.1,10.0.0.2\n", func(s Settings) bool { return len(s.TrustedProxies) == 2 }},
		"an empty list":    {"trusted-proxies: []\n", func(s Settings) bool { return len(s.TrustedProxies) == 0 }},
		"no ops address":   {"ops-addr: \"\"\n", func(s Settings) bool { return s.OpsAddr == "" }},
		"a secret of signs": {"secret: \"#a: b, 'c' and more: d {e} [f]\"\n", func(s Settings) bool {
			return s.Secret == "#a: b, 'c' and more: d {e} [f]"
		}},
		"a secret of digits":   {"secret: 0123456701\n", func(s Settings) bool { return s.Secret == "0123456701" }},
		"a grouped number":     {"secret: 1_000_000_000\n", func(s Settings) bool { return s.Secret == "1_000_000_000" }},
		"a hexadecimal number": {"secret: 0x1F\n", func(s Settings) bool { return s.Secret == "0x1F" }},
		"a long fraction":      {"secret: 12345.67890\n", func(s Settings) bool { return s.Secret == "12345.67890" }},
		"a word for yes":       {"secret: True\n", func(s Settings) bool { return s.Secret == "True" }},
		"a text of lines":      {"secret: |-\n  one\n  two\n", func(s Settings) bool { return s.Secret == "one\ntwo" }},
		"Windows' lines":       {"limit-burst: 7\r\nack-wait: 2s\r\n", func(s Settings) bool { return s.LimitBurst == 7 && s.AckWait == 2*time.Second }},
	}, func(t *testing.T, tc test) {
		s := settingsOf(t, "--config", writeFile(t, tc.text))
		check.Same(t, fmt.Sprintf("%+v are right", s), tc.right(*s), true)
	})
}

// The operators' address can be switched off by a flag, a variable and the file.
func TestOpsAddrOff(t *testing.T) {
	type test struct {
		variable string // FLASHSALE_OPS_ADDR
		args     []string
	}
	check.Each(t, map[string]test{
		"an empty flag":        {"", []string{"--ops-addr="}},
		"a flag that says off": {"", []string{"--ops-addr=off"}},
		"a variable":           {"off", nil},
		"the file":             {"", []string{"--config", writeFile(t, "ops-addr: off\n")}},
		"the file, empty":      {"", []string{"--config", writeFile(t, "ops-addr: ''\n")}},
		"a flag over all":      {"127.0.0.1:9", []string{"--ops-addr="}},
	}, func(t *testing.T, tc test) {
		cmd, _, _, err := parse(map[string]string{"FLASHSALE_OPS_ADDR": tc.variable}, tc.args...)
		check.Error(t, "settings", errors.Join(err, cmd.Settings.Validate()), nil)
		check.Same(t, "address", cmd.Settings.OpsAddr, "")
	})
}
