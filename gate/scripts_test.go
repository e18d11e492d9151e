package gate

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
)

// life uses every script on one sale, and calls forget before each.
func (b *bench) life(g *Gate, forget func()) {
	b.Helper()
	ctx := b.Context()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	o := offer()
	forget()
	check(install(g, 1, contents(o)))
	forget()
	_, ok, err := g.Count(ctx, o.ID, "u-1", model.Frequency{Limit: 9, Window: time.Minute})
	check(err)
	if !ok {
		b.Error("the first request came too soon")
	}
	forget()
	a := attempt(o, "u-1", 2)
	a.Frequency = model.Frequency{Limit: 9, Window: time.Minute}
	outcome, err := admitOne(ctx, g, a, 1)
	check(err)
	if !outcome.Queued() {
		b.Errorf("admit: %+v", outcome)
	}
	entries := b.read(g, o.ID)
	forget()
	check(g.Settled(ctx, o.ID, entries, []model.Outcome{{Verdict: model.Accepted}}))
	forget()
	check(g.CatchUp(ctx, o.ID, 5, 6, []model.GateChange{{Version: 6, OrderID: a.ID, UserID: "u-1", Units: 1}}))
	forget()
	sale := o.Sale
	sale.Revision, sale.LimitPerUser = 2, 5
	check(g.Configure(ctx, sale))
	forget()
	ok, err = g.Close(ctx, o.ID, 2)
	check(err)
	if !ok {
		b.Error("the gate can't be closed")
	}
	states, err := g.Peek(ctx, o.ID)
	check(err)
	if want := (model.GateState{Exists: true, Epoch: 1, Left: 9}); core(states[0]) != want {
		b.Errorf("the gate is %+v, want %+v", states[0], want)
	}
}

// TestHole25_ScriptsAreLoadedAgain flushes the scripts before each call.
func TestHole25_ScriptsAreLoadedAgain(t *testing.T) {
	eachRedis(t, func(b *bench) {
		b.life(b.gate, func() { must(b, b.client.ScriptFlush(b.Context())) })
	})
}

// TestHole25_RedisRestarts: the same client goes on after Redis came back empty.
func TestHole25_RedisRestarts(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	o := b.open(offer())
	b.admit(attempt(o, "u-1", 1))
	server.Kill()
	if got, err := admitOne(t.Context(), b.gate, attempt(o, "u-2", 1), 1); err == nil || errors.Is(err, model.ErrNoGate) {
		t.Errorf("without Redis: %+v, %v", got, err)
	}
	server.Restart()
	if got, err := admitOne(t.Context(), b.gate, attempt(o, "u-2", 1), 1); !errors.Is(err, model.ErrNoGate) {
		t.Errorf("an empty Redis: %+v, %v, want ErrNoGate", got, err)
	}
	b.life(b.gate, func() {})
}

// TestHole42_RunsOnACluster runs the whole life of many sales over two nodes that share the slots, as a client
// of a Redis Cluster sees them. Its hook refuses a script whose keys lie in two slots.
func TestHole42_RunsOnACluster(t *testing.T) {
	low, high := kit.Redis(t), kit.Redis(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: low.Addr()}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: high.Addr()}}},
			}, nil
		},
	})
	client.AddHook(oneTag{t})
	t.Cleanup(func() { _ = client.Close() })
	g := New(client, "here")
	nodes := []*bench{newBench(t, low.URL()), newBench(t, high.URL())}
	for _, node := range nodes {
		for range 20 {
			node.life(g, func() {})
		}
	}
	var sales []string
	for i, node := range nodes {
		keys := must(node, node.client.Keys(t.Context(), "fs:{*}:gate"))
		if len(keys) == 0 {
			t.Errorf("node %d has no sale of %d", i, 40)
		}
		for _, key := range keys {
			sales = append(sales, hashTag(key))
		}
	}
	states, err := g.Peek(t.Context(), sales...)
	if err != nil || len(states) != 40 {
		t.Fatalf("%d gates over both nodes, %v", len(states), err)
	}
	for i, s := range states {
		if core(s) != (model.GateState{Exists: true, Epoch: 1, Left: 9}) {
			t.Errorf("gate %d is %+v", i, s)
		}
	}
}

// TestHole42_ScriptsTouchOnlyDeclaredKeys reads every script: each key that it names is one of its KEYS, or the
// parameter of a function that was given one.
func TestHole42_ScriptsTouchOnlyDeclaredKeys(t *testing.T) {
	declared := regexp.MustCompile(`^(KEYS\[[^\]]+\]|key)$`)
	keysOf := func(command string, args []string) []string {
		switch command {
		case "TIME", "INFO":
			return nil
		case "UNLINK", "RENAME":
			return args
		case "XGROUP": // behind its subcommand
			return args[1:2]
		}
		return args[:1]
	}
	calls := 0
	for name, source := range scripts(t) {
		code := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(source, "")
		for _, call := range luaCalls(t, code) {
			calls++
			command := strings.Trim(call[0], "'")
			for _, key := range keysOf(command, call[1:]) {
				if !declared.MatchString(key) {
					t.Errorf("%s: %s touches %s, which is not declared", name, command, key)
				}
			}
		}
		if strings.Contains(code, "fs:") {
			t.Errorf("%s makes a key by itself", name)
		}
		if n := strings.Count(code, "redis."); n != len(luaCalls(t, code)) {
			t.Errorf("%s uses more of Redis than calls", name)
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls were found", calls)
	}
}

// luaCalls gives the arguments of each redis.call and redis.pcall.
func luaCalls(t *testing.T, code string) (calls [][]string) {
	t.Helper()
	for _, at := range regexp.MustCompile(`redis\.p?call\(`).FindAllStringIndex(code, -1) {
		var args []string
		depth, start := 0, at[1]
		for i := at[1]; ; i++ {
			if i == len(code) {
				t.Fatalf("a call does not end: %.40q", code[at[0]:])
			}
			c := code[i]
			if (c == ',' || c == ')') && depth == 0 {
				args = append(args, strings.TrimSpace(code[start:i]))
				start = i + 1
				if c == ')' {
					break
				}
			}
			switch c {
			case '(', '[':
				depth++
			case ')', ']':
				depth--
			}
		}
		calls = append(calls, args)
	}
	return calls
}

// TestScriptsHaveHeaders: what goes in and what comes out stands above every script.
func TestScriptsHaveHeaders(t *testing.T) {
	for name, source := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			var header []string
			for line := range strings.Lines(source) {
				if !strings.HasPrefix(line, "-- ") {
					break
				}
				header = append(header, line)
			}
			text := strings.Join(header, "")
			code := strings.TrimPrefix(source, text)
			words := []string{"KEYS[1]", "ARGV", "Returns"}
			if functions[name] {
				words = []string{": ", "Gives"}
			}
			for _, word := range words {
				if !strings.Contains(text, word) {
					t.Errorf("the header lacks %s", word)
				}
			}
			for _, used := range regexp.MustCompile(`KEYS\[\d\]`).FindAllString(code, -1) {
				if !strings.Contains(text, used) {
					t.Errorf("the header does not say what %s is", used)
				}
			}
			if n := strings.Count(code, "\n"); n > 60 {
				t.Errorf("%d lines of code", n)
			}
		})
	}
}

// functions are files that other scripts start with.
var functions = map[string]bool{"frequency.lua": true, "run_id.lua": true, "window.lua": true}

// TestAdmitHeaderNamesEveryCode holds the header of admit.lua against the codes that Go reads.
func TestAdmitHeaderNamesEveryCode(t *testing.T) {
	header, _, _ := strings.Cut(scripts(t)["admit.lua"], "local ")
	_, returns, _ := strings.Cut(header, "Returns")
	code := scripts(t)["admit.lua"] + scripts(t)["window.lua"]
	for want := codeAdmitted; want <= codeSoldOut; want++ {
		if !regexp.MustCompile(`\b` + strconv.Itoa(want) + ` \w`).MatchString(returns) {
			t.Errorf("the header does not say what %d means", want)
		}
	}
	for _, m := range regexp.MustCompile(`(?:return|reply\[2 \* at - 1\] =) (\d+)`).FindAllStringSubmatch(code, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > codeSoldOut {
			t.Errorf("a code that Go does not read: %s", m[1])
		}
	}
}

// scripts are all the Lua files by their names.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("lua/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	all := make(map[string]string, len(paths))
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(source)
	}
	return all
}

// TestHole42_KeysHaveTheSalesTag: every key is made in keys.go, and those of a sale carry its id in braces.
func TestHole42_KeysHaveTheSalesTag(t *testing.T) {
	source, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	makers := regexp.MustCompile(`(?m)^func (\w+Key)\(tag.*\{ return (.*) \}$`).FindAllStringSubmatch(string(source), -1)
	if want := strings.Count(string(source), "(tag"); len(makers) != want || want < 5 {
		t.Errorf("%d functions make keys of a sale, %d of them in the form that this test reads", want, len(makers))
	}
	for _, m := range makers {
		if !strings.HasPrefix(m[2], `"fs:{" + tag + "}:`) {
			t.Errorf("%s gives %s: it is not under the tag", m[1], m[2])
		}
	}
	if got := tagOf("S", 0, 1); got != "S" {
		t.Errorf("the only part of a sale's gate has the tag %s", got)
	}
	if got := stagedKey(unitsKey("S"), "7"); hashTag(got) != "S" || got == unitsKey("S") {
		t.Errorf("a staged key is %s", got)
	}
	// Whatever a user's id is made of, the tag stays the sale's: the first braces decide.
	if got := counterKey("S", "a{b}c"); hashTag(got) != "S" {
		t.Errorf("a counter's key is %s", got)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if path == "keys.go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), `"fs:`) {
			t.Errorf("%s makes a key by itself", path)
		}
	}
}

func TestOptions(t *testing.T) {
	opts, err := Options("redis://user:pass@example.com:6380/3")
	if err != nil {
		t.Fatal(err)
	}
	if opts.Addr != "example.com:6380" || opts.DB != 3 || opts.Username != "user" || opts.Password != "pass" {
		t.Errorf("the options are %+v", opts)
	}
	if opts.DialTimeout <= 0 || opts.ReadTimeout <= 0 || opts.WriteTimeout <= 0 || opts.PoolSize <= 0 ||
		opts.PoolTimeout <= 0 || opts.MaxRetries > 1 || !opts.ContextTimeoutEnabled {
		t.Errorf("a wait or the pool has no bound: %+v", opts)
	}
	for _, url := range []string{"", "embedded", "http://example.com", "redis://example.com/x"} {
		if _, err := Options(url); err == nil {
			t.Errorf("%q passes", url)
		}
	}
}

// TestUnreachableRedisIsToldSoon: each dial may take a second where packets vanish, and a buyer waits for all.
func TestUnreachableRedisIsToldSoon(t *testing.T) {
	opts, err := Options("redis://example.invalid:6379/0")
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	opts.Dialer = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("no way there")
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	if got, err := admitOne(t.Context(), New(client, "here"), attempt(offer(), "u-1", 1), 1); err == nil || errors.Is(err, model.ErrNoGate) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := dials.Load(); n > 1+retries {
		t.Errorf("one attempt dialled %d times, want at most %d", n, 1+retries)
	}
}
