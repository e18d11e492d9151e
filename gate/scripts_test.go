package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// life runs the scripts of a gate in one shard on a new sale.
func (b *bench) life() model.Offer {
	b.Helper()
	o := b.open(offer())
	limit := model.Frequency{Limit: 9, Window: time.Minute}
	check.Same(b, "the wait after the first request", b.count(o.GateRef(), "u-1", limit), 0)
	a := attempt(o, "u-1", 2)
	a.Frequency = limit
	b.admit(a)
	b.settle(b.read(o, all), accepted)
	b.catchUp(o, model.GateChange{Version: 6, OrderID: a.ID, UserID: "u-1", Units: 1})
	sale := o.Sale
	sale.Revision, sale.LimitPerUser = 2, 5
	check.NoError(b, b.gate.Configure(b.Context(), sale))
	check.Same(b, "closed", b.close(o, 2), true)
	b.want(o, model.GateState{Exists: true, Epoch: 1, Left: 9})
	return o
}

// TestHole25_ScriptsAreLoadedAgain removes all scripts from Redis before each call of one.
func TestHole25_ScriptsAreLoadedAgain(t *testing.T) {
	eachRedis(t, func(b *bench) {
		flushing := b.as("flushing")
		flushing.client.AddHook(scriptHook(func(ctx context.Context, script *redis.Cmd, run redis.ProcessHook) error {
			if script.Name() == "evalsha" {
				must(b, b.client.ScriptFlush(ctx))
			}
			return run(ctx, script)
		}))
		flushing.life()
	})
}

// TestHole25_RedisRestarts: without Redis there are errors, and no answer that there is no gate. The same client works again
// after Redis has restarted without data.
func TestHole25_RedisRestarts(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	o := b.sale()
	b.admit(attempt(o, "u-1", 1))
	server.Kill()
	for range 3 {
		if got, err := b.tryAdmit(attempt(o, "u-2", 1), 1); err == nil {
			t.Errorf("admit without Redis: %+v", got)
		}
	}
	if states, err := b.gate.Peek(t.Context(), o.GateRef()); err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("peek without Redis: %+v, %v", states, err)
	}
	if version, err := b.gate.Version(t.Context()); err == nil || version != "" {
		t.Errorf("the version without Redis: %q, %v", version, err)
	}
	if err := b.gate.Erase(t.Context(), o.GateRef()); err == nil {
		t.Error("erase without Redis: no error")
	}
	server.Restart()
	check.Same(t, "the verdict with an empty Redis", b.judge(attempt(o, "u-2", 1), 1).Verdict, model.NoGate)
	b.life()
}

// scripts returns the text of each Lua file by its name.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	return texts(t, "lua/*.lua")
}

func texts(t *testing.T, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	list := make(map[string]string, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check.NoError(t, err)
		list[filepath.Base(path)] = string(text)
	}
	return list
}

// TestHole42_ScriptsTouchOnlyDeclaredKeys: each key in a call of Redis is one of KEYS, or the parameter of a function.
func TestHole42_ScriptsTouchOnlyDeclaredKeys(t *testing.T) {
	const one = `^, (KEYS\[[^\]]+\]|key)[,)]`
	arguments := map[string]string{ // of the commands whose key is not their first argument, or not their only key
		"TIME": `^\)`, "INFO": `^, 'server'\)`, "XGROUP": `^, 'CREATE', KEYS\[\d\],`,
		"UNLINK": `^(, KEYS\[\d\])+\)`, "RENAME": `^(, KEYS\[\d\]){2}\)`,
	}
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	calls := 0
	for name, source := range scripts(t) {
		code := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(source, "")
		found := call.FindAllStringSubmatchIndex(code, -1)
		for _, at := range found {
			command, rest := code[at[2]:at[3]], code[at[1]:]
			want, special := arguments[command]
			if !special {
				want = one
			}
			if !regexp.MustCompile(want).MatchString(rest) {
				t.Errorf("%s: %s has a key that is not declared: %.40s", name, command, rest)
			}
		}
		if n := strings.Count(code, "redis."); n != len(found) || strings.Contains(code, "fs:") {
			t.Errorf("%s uses Redis %d times, %d of them in the form that this test reads, or makes a key", name, n, len(found))
		}
		calls += len(found)
	}
	if calls < 20 {
		t.Errorf("only %d calls were found", calls)
	}
}

// TestScriptsHaveHeaders: each file begins with a comment that names its keys, arguments and results, and that of
// admit.lua every code that Go knows.
func TestScriptsHaveHeaders(t *testing.T) {
	functions := map[string]bool{"campaigns.lua": true, "each_gate.lua": true, "frequency.lua": true, "requests.lua": true, "run_id.lua": true, "window.lua": true} // parts of other scripts
	header := regexp.MustCompile(`^(-- .*\n)+`)
	for name, source := range scripts(t) {
		text := header.FindString(source)
		code := strings.TrimPrefix(source, text)
		words := []string{`KEYS\[1\]`, "ARGV", "Returns"}
		if functions[name] {
			words = []string{": ", "Gives"}
		}
		for _, key := range regexp.MustCompile(`KEYS\[\d\]`).FindAllString(code, -1) {
			words = append(words, regexp.QuoteMeta(key))
		}
		for want := 0; name == "admit.lua" && want < len(verdicts); want++ {
			words = append(words, fmt.Sprintf(`(?s)Codes:.*\b%d \w`, want))
		}
		for _, word := range words {
			if !regexp.MustCompile(word).MatchString(text) {
				t.Errorf("the header of %s lacks %s", name, word)
			}
		}
		if n := strings.Count(code, "\n"); n > 70 {
			t.Errorf("%s has %d lines of code", name, n)
		}
	}
}

// TestHole42_KeysHaveTheSalesTag: only keys.go makes keys, and all keys of a sale have the same tag.
func TestHole42_KeysHaveTheSalesTag(t *testing.T) {
	for path, text := range texts(t, "*.go") {
		if strings.Contains(text, `"fs:`) && path != "keys.go" && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s makes a key", path)
		}
	}
	keys := map[string]bool{}
	for _, key := range append(keysOf("{S}"), stagedKey(unitsKey("{S}"), "7"), countersKey("{S}", true)) {
		keys[key] = true
		check.Same(t, "the tag of the key "+key, hashTag(key), "S")
	}
	if made := strings.Count(texts(t, "keys.go")["keys.go"], `"fs:" + tag`); len(keys) != 5 || made != 4 {
		t.Errorf("%d different keys, and %d functions make keys; does this test know all of them?", len(keys), made)
	}
	check.Same(t, "the only shard", tagsOf(model.GateRef{SaleID: "S", Shards: 1}), []string{"{S}"})
	check.Same(t, "the shards of a campaign's sale", tagsOf(model.GateRef{SaleID: "S", CampaignID: "C", Shards: 2}), []string{"{C.0}:S", "{C.1}:S"})
}
