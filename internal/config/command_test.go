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
)

// parse is Parse with an environment of its own; what it prints comes back as well.
func parse(env map[string]string, args ...string) (cmd Command, stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd, err = Parse(args, func(name string) string { return env[name] }, &out, &errOut)
	return cmd, out.String(), errOut.String(), err
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A flag goes before the environment, that before the file, that before the default, whatever the kind of value.
func TestPrecedence(t *testing.T) {
	tests := map[string]struct {
		setting                      string
		read                         func(Settings) any
		byDefault                    any
		yaml, env, flag              string
		fromYAML, fromEnv, fromFlags any
	}{
		"a text": {
			"http-addr", func(s Settings) any { return s.HTTPAddr }, "127.0.0.1:8080",
			"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3",
		},
		"a choice": {
			"strategy", func(s Settings) any { return s.Strategy }, "hybrid",
			"redis", "optimistic", "hybrid", "redis", "optimistic", "hybrid",
		},
		"a number": {
			"limit-burst", func(s Settings) any { return s.LimitBurst }, 20000,
			"1", "2", "3", 1, 2, 3,
		},
		"a fraction": {
			"limit-rate", func(s Settings) any { return s.LimitRate }, 20000.0,
			"0.5", "1e6", "2.5", 0.5, 1e6, 2.5,
		},
		"a duration": {
			"ack-wait", func(s Settings) any { return s.AckWait }, 800 * time.Millisecond,
			"1s", "2s", "1m30s", time.Second, 2 * time.Second, 90 * time.Second,
		},
		"a list": {
			"trusted-proxies", func(s Settings) any { return s.TrustedProxies }, []string(nil),
			"[10.0.0.1, 10.0.0.0/8]", "10.0.0.2,10.0.0.3", "10.0.0.4",
			[]string{"10.0.0.1", "10.0.0.0/8"},
			[]string{"10.0.0.2", "10.0.0.3"},
			[]string{"10.0.0.4"},
		},
		"a yes or no": {
			"demo", func(s Settings) any { return s.DemoSale() }, true,
			"false", "true", "false", false, true, false,
		},
		"a secret": {
			"secret", func(s Settings) any { return s.Secret }, "",
			"from the file", "from the environment", "from a flag", "from the file", "from the environment", "from a flag",
		},
	}
	for name, tc := range tests {
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
			t.Run(name+" by "+given.by, func(t *testing.T) {
				cmd, _, _, err := parse(given.env, given.args...)
				if err != nil {
					t.Fatal(err)
				}
				if got := tc.read(cmd.Settings); !reflect.DeepEqual(got, given.want) {
					t.Errorf("%s is %v, want %v", tc.setting, got, given.want)
				}
			})
		}
	}
}

// The file that a flag names goes before the one that the environment names, which need not even be there.
func TestConfigFlagGoesBeforeItsVariable(t *testing.T) {
	good := writeFile(t, "limit-burst: 5\n")
	for name, other := range map[string]string{
		"another file": writeFile(t, "limit-burst: 6\nlimit-wait: 1s\n"), "a missing file": good + ".missing", "a broken file": writeFile(t, "{"),
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, _, err := parse(map[string]string{"FLASHSALE_CONFIG": other}, "--config", good)
			if err != nil {
				t.Fatal(err)
			}
			if cmd.Settings.LimitBurst != 5 || cmd.Settings.LimitWait != 0 {
				t.Errorf("burst %d, wait %v", cmd.Settings.LimitBurst, cmd.Settings.LimitWait)
			}
		})
	}
}

// What the contract promises when nothing is set, and that this starts.
func TestDefaults(t *testing.T) {
	cmd, _, _, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		HTTPAddr: "127.0.0.1:8080", OpsAddr: "127.0.0.1:9090", Database: "sqlite:data/flashsale.db", DBMaxConns: 32,
		Redis: "embedded", Queue: "redis-stream", Strategy: "hybrid", LocalShare: 0.5, LocalBuffer: 64, Batch: 512, Ack: "confirmed", AckWait: 800 * time.Millisecond,
		PayGrace: 30 * time.Second, LimitAlgorithm: "token-bucket", LimitRate: 20000, LimitBurst: 20000, IPRate: 200,
		UserRequests: 10, UserWindow: time.Second, TraceRatio: 0.01, LabRedis: "embedded", LogFormat: "auto", LogLevel: "info",
	}
	if !reflect.DeepEqual(cmd.Settings, want) || cmd.Name != "serve" {
		t.Errorf("%s with\n%+v, want\n%+v", cmd.Name, cmd.Settings, want)
	}
	if !cmd.Settings.Embedded() || !cmd.Settings.DemoSale() {
		t.Error("the default is not embedded with a demo sale")
	}
	if err := cmd.Settings.Validate(); err != nil {
		t.Error(err)
	}
}

func TestCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want func(Command) bool
	}{
		"no command":      {nil, func(c Command) bool { return c.Name == "serve" }},
		"only a flag":     {[]string{"--demo=false"}, func(c Command) bool { return c.Name == "serve" && !c.Settings.DemoSale() }},
		"serve":           {[]string{"serve"}, func(c Command) bool { return c.Name == "serve" }},
		"migrate up":      {[]string{"migrate", "up"}, func(c Command) bool { return c.Name == "migrate up" }},
		"migrate down":    {[]string{"migrate", "down"}, func(c Command) bool { return c.Name == "migrate down" }},
		"migrate status":  {[]string{"migrate", "status"}, func(c Command) bool { return c.Name == "migrate status" }},
		"tokens":          {[]string{"tokens", "--users", "3"}, func(c Command) bool { return c.Name == "tokens" && c.Tokens == Tokens{3, "u", 24 * time.Hour} }},
		"tokens with all": {[]string{"tokens", "--users=3", "--prefix=x-", "--ttl=1h"}, func(c Command) bool { return c.Tokens == Tokens{3, "x-", time.Hour} }},
		"audit":           {[]string{"audit"}, func(c Command) bool { return c.Name == "audit" && c.Audit.Sale == "" }},
		"audit of a sale": {[]string{"audit", "--sale", "S"}, func(c Command) bool { return c.Audit.Sale == "S" }},
		"version":         {[]string{"version"}, func(c Command) bool { return c.Name == "version" }},
		"lab": {[]string{"lab"}, func(c Command) bool {
			return c.Name == "lab" && reflect.DeepEqual(c.Lab, Lab{Strategies: []string{"all"}, Buyers: 2000, Stock: 200, Concurrency: 50, Instances: 1, Seed: 1, Out: "lab-report"})
		}},
		"lab with all": {[]string{"lab", "--strategies=naive,local", "--buyers=5", "--stock=4", "--concurrency=3", "--instances=2", "--over-http", "--kill", "--seed=7", "--out=x"}, func(c Command) bool {
			return reflect.DeepEqual(c.Lab, Lab{[]string{"naive", "local"}, 5, 4, 3, 2, true, true, 7, "x"})
		}},
		"settings after":   {[]string{"audit", "--database=sqlite:x.db"}, func(c Command) bool { return c.Settings.Database == "sqlite:x.db" }},
		"settings before":  {[]string{"--database=sqlite:x.db", "audit"}, func(c Command) bool { return c.Name == "audit" && c.Settings.Database == "sqlite:x.db" }},
		"a flag in a word": {[]string{"--demo"}, func(c Command) bool { return c.Settings.DemoSale() }},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stdout, stderr, err := parse(nil, tc.args...)
			if err != nil || !tc.want(cmd) || stdout+stderr != "" {
				t.Errorf("%+v, %v, printed %q", cmd, err, stdout+stderr)
			}
		})
	}
}

// --help lists every setting with its variable and default, and says no more than that.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"serve", "--help"}, {"--demo=false", "--help"}, {"tokens", "--help"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			_, stdout, stderr, err := parse(nil, args...)
			if !errors.Is(err, ErrHelp) || stderr != "" {
				t.Fatalf("%v, %q", err, stderr)
			}
			flags := regexp.MustCompile(`--([a-z][a-z-]*)`).FindAllStringSubmatch(stdout, -1)
			listed := map[string]bool{}
			for _, f := range flags {
				listed[f[1]] = true
			}
			names := []string{
				"config", "http-addr", "ops-addr", "database", "db-max-conns", "redis", "queue", "queue-url", "strategy", "ack", "ack-wait", "pay-grace",
				"limit-algorithm", "limit-rate", "limit-burst", "limit-wait", "ip-rate", "user-requests", "user-window", "trusted-proxies",
				"secret", "payment-secret", "admin-password", "demo", "log-format", "log-level",
			}
			for _, name := range names {
				variable := "($FLASHSALE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + ")"
				if !listed[name] || !strings.Contains(stdout, variable) {
					t.Errorf("--%s %s is missing in\n%s", name, variable, stdout)
				}
			}
			fields := reflect.TypeFor[Settings]().NumField()
			if variables := strings.Count(stdout, "($FLASHSALE_"); variables <= fields {
				t.Errorf("%d variables are listed of %d settings and the file", variables, fields)
			}
		})
	}
	_, stdout, _, _ := parse(nil, "--help")
	for _, command := range []string{"serve", "migrate up", "migrate down", "migrate status", "tokens", "audit", "version"} {
		if !strings.Contains(stdout, command) {
			t.Errorf("no %s in\n%s", command, stdout)
		}
	}
}

// Help is given whatever else is wrong.
func TestHelpInSpiteOfAll(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"a missing file": {"FLASHSALE_CONFIG": "/nowhere/at.all"}, "a bad duration": {"FLASHSALE_ACK_WAIT": "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, stdout, _, err := parse(env, "--help"); !errors.Is(err, ErrHelp) || !strings.Contains(stdout, "--http-addr") {
				t.Errorf("%v, printed %q", err, stdout)
			}
		})
	}
}

// Wrong usage is told in one line that names what is wrong, and nothing else is printed.
func TestParseErrors(t *testing.T) {
	file := func(text string) []string { return []string{"--config", writeFile(t, text)} }
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		says []string
	}{
		"an unknown flag":              {nil, []string{"--colour=red"}, []string{"--colour"}},
		"an unknown command":           {nil, []string{"sell"}, []string{"sell"}},
		"a word too many":              {nil, []string{"version", "now"}, []string{"now"}},
		"half a command":               {nil, []string{"migrate"}, []string{"up", "down", "status"}},
		"tokens without a number":      {nil, []string{"tokens"}, []string{"--users"}},
		"tokens with a bad number":     {nil, []string{"tokens", "--users=many"}, []string{"--users"}},
		"tokens with a bad time":       {nil, []string{"tokens", "--users=1", "--ttl=day"}, []string{"--ttl"}},
		"a flag without its value":     {nil, []string{"--http-addr"}, []string{"--http-addr"}},
		"a bad duration":               {nil, []string{"--ack-wait=soon"}, []string{"--ack-wait"}},
		"a duration without a unit":    {nil, []string{"--ack-wait=5"}, []string{"--ack-wait"}},
		"a bad number":                 {nil, []string{"--limit-burst=many"}, []string{"--limit-burst"}},
		"a fraction for a number":      {nil, []string{"--limit-burst=1.5"}, []string{"--limit-burst"}},
		"a bad fraction":               {nil, []string{"--limit-rate=fast"}, []string{"--limit-rate"}},
		"a bad yes or no":              {nil, []string{"--demo=perhaps"}, []string{"--demo"}},
		"an unknown strategy":          {nil, []string{"--strategy=luck"}, []string{"--strategy", "luck", "hybrid"}},
		"a part that is none":          {nil, []string{"--local-share=half"}, []string{"--local-share"}},
		"a buffer of words":            {nil, []string{"--local-buffer=few"}, []string{"--local-buffer"}},
		"an unknown ack":               {nil, []string{"--ack=maybe"}, []string{"--ack"}},
		"an unknown queue":             {nil, []string{"--queue=paper"}, []string{"--queue"}},
		"an unknown limiter":           {nil, []string{"--limit-algorithm=dice"}, []string{"--limit-algorithm"}},
		"an unknown log format":        {nil, []string{"--log-format=xml"}, []string{"--log-format"}},
		"an unknown log level":         {nil, []string{"--log-level=loud"}, []string{"--log-level"}},
		"bad duration in environment":  {map[string]string{"FLASHSALE_ACK_WAIT": "soon"}, nil, []string{"--ack-wait"}},
		"bad number in environment":    {map[string]string{"FLASHSALE_LIMIT_BURST": "many"}, nil, []string{"--limit-burst"}},
		"bad strategy in environment":  {map[string]string{"FLASHSALE_STRATEGY": "luck"}, nil, []string{"--strategy"}},
		"a missing file":               {nil, []string{"--config", "/nowhere/at.all"}, []string{"--config", "/nowhere/at.all"}},
		"a missing file, by variable":  {map[string]string{"FLASHSALE_CONFIG": "/nowhere/at.all"}, nil, []string{"/nowhere/at.all"}},
		"a folder for a file":          {nil, []string{"--config", os.TempDir()}, []string{"--config"}},
		"an unknown key":               {nil, file("colour: red\n"), []string{"colour"}},
		"a key of another case":        {nil, file("Ack-Wait: 1s\n"), []string{"Ack-Wait"}},
		"a key as in Go":               {nil, file("ack_wait: 1s\n"), []string{"ack_wait"}},
		"a command's option":           {nil, file("users: 5\n"), []string{"users"}},
		"the file in the file":         {nil, file("config: other.yaml\n"), []string{"config"}},
		"a call for help in the file":  {nil, file("help: true\n"), []string{"help"}},
		"a nested file":                {nil, file("http:\n  addr: x\n"), []string{"http"}},
		"a list":                       {nil, file("- ack-wait\n"), []string{"--config"}},
		"no YAML":                      {nil, file("a: b: c\n\t- }"), []string{"--config"}},
		"the same key twice":           {nil, file("ack-wait: 1s\nack-wait: 2s\n"), []string{"ack-wait"}},
		"a bad duration in the file":   {nil, file("ack-wait: soon\n"), []string{"ack-wait"}},
		"a bare number for a duration": {nil, file("ack-wait: 5\n"), []string{"ack-wait"}},
		"a list for a number":          {nil, file("limit-burst: [1, 2]\n"), []string{"limit-burst"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, stdout, stderr, err := parse(tc.env, tc.args...)
			if err == nil || errors.Is(err, ErrHelp) {
				t.Fatalf("taken: %v", err)
			}
			if strings.ContainsAny(err.Error(), "\n\r") || stdout+stderr != "" {
				t.Errorf("not one line: %q, printed %q", err, stdout+stderr)
			}
			for _, word := range tc.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %s", err, word)
				}
			}
		})
	}
}

// What a file may look like.
func TestFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		check func(Settings) bool
	}{
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
		"Windows' lines": {"limit-burst: 7\r\nack-wait: 2s\r\n", func(s Settings) bool { return s.LimitBurst == 7 && s.AckWait == 2*time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, _, err := parse(nil, "--config", writeFile(t, tc.text))
			if err != nil || !tc.check(cmd.Settings) {
				t.Errorf("%v, %+v", err, cmd.Settings)
			}
		})
	}
}

// The operators' address can be switched off in every way that settings come.
func TestOpsAddrOff(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"an empty flag":        {nil, []string{"--ops-addr="}},
		"a flag that says off": {nil, []string{"--ops-addr=off"}},
		"a variable":           {map[string]string{"FLASHSALE_OPS_ADDR": "off"}, nil},
		"the file":             {nil, []string{"--config", writeFile(t, "ops-addr: off\n")}},
		"the file, empty":      {nil, []string{"--config", writeFile(t, "ops-addr: ''\n")}},
		"a flag over all":      {map[string]string{"FLASHSALE_OPS_ADDR": "127.0.0.1:9"}, []string{"--ops-addr="}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, _, err := parse(tc.env, tc.args...)
			if err == nil {
				err = cmd.Settings.Validate()
			}
			if err != nil || cmd.Settings.OpsAddr != "" {
				t.Errorf("%v, %q", err, cmd.Settings.OpsAddr)
			}
		})
	}
}

// No error shows a password or a secret: it may end up in a log.
func TestErrorsKeepSecrets(t *testing.T) {
	for _, args := range [][]string{
		{"--database=mysql://user:hunter2hunter2@host:x/db"},
		{"--database=postgres://user:hunter2hunter2@host/db"},
		{"--redis=redis://:hunter2hunter2@host:x/0"},
		{"--redis=http://:hunter2hunter2@host/0"},
		{"--secret=hunter2hunter2"},
		{"--payment-secret=hunter2hunter2"},
		{"--admin-password=" + strings.Repeat("hunter2hunter2", 10)},
	} {
		t.Run(args[0], func(t *testing.T) {
			cmd, _, _, err := parse(nil, args...)
			if err == nil {
				err = cmd.Settings.Validate()
			}
			if err == nil || strings.Contains(fmt.Sprint(err), "hunter2hunter2") {
				t.Errorf("%v", err)
			}
		})
	}
}
