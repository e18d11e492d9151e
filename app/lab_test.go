package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/strategy"
	"flashsale/test/kit"
)

// labRun is what a run of the command `lab` left.
type labRun struct {
	report lab.Report
	stdout string
	page   string
	err    error
}

func (r labRun) of(t *testing.T, strategy string) *lab.Result {
	t.Helper()
	for _, result := range r.report.Strategies {
		if result.Strategy == strategy {
			return result
		}
	}
	t.Fatalf("the report has no %s: %s", strategy, r.stdout)
	return nil
}

// runTheLab runs the command as a user would, but for the process.
func runTheLab(ctx context.Context, t *testing.T, change func(*config.Settings), args ...string) (r labRun) {
	t.Helper()
	dir := t.TempDir()
	cmd, err := config.Parse(append([]string{
		"lab", "--database=sqlite:" + filepath.Join(dir, "data", "flashsale.db"), "--out=" + filepath.Join(dir, "out"),
	}, args...), func(string) string { return "" }, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cmd.Settings)
	}
	if err := Validate(&cmd); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	r.err = Execute(ctx, cmd, "test", &stdout, &stderr)
	r.stdout = stdout.String()
	if stderr.Len() > 0 {
		t.Errorf("what is no terminal got: %s", &stderr)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "data", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	figures, err := os.ReadFile(filepath.Join(dir, "out", "report.json"))
	if errors.Is(err, os.ErrNotExist) {
		return r
	}
	page, pageErr := os.ReadFile(filepath.Join(dir, "out", "report.html"))
	if err := errors.Join(err, pageErr, json.Unmarshal(figures, &r.report)); err != nil {
		t.Fatal(err)
	}
	r.page = string(page)
	return r
}

// exact checks that a strategy sold all of the stock, and to no more buyers than there were units.
func (r labRun) exact(t *testing.T, strategy string, stock int64) {
	t.Helper()
	got := r.of(t, strategy)
	if got.Sold != stock || got.Oversold != 0 || got.Undersold != 0 || got.Lost != 0 || got.Verdict != lab.Exact {
		t.Errorf("%s: %+v", strategy, got)
	}
}

func TestLab(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		on   func(*testing.T) func(*config.Settings)
	}{
		"embedded":             {nil, nil},
		"embedded, over HTTP":  {[]string{"--over-http"}, nil},
		"servers":              {nil, func(t *testing.T) func(*config.Settings) { return onMariaDB(t, kit.Redis(t)) }},
		"servers, over HTTP":   {[]string{"--over-http"}, func(t *testing.T) func(*config.Settings) { return onMariaDB(t, kit.Redis(t)) }},
		"servers, a few buyer": {[]string{"--buyers=12", "--concurrency=12"}, func(t *testing.T) func(*config.Settings) { return onMariaDB(t, kit.Redis(t)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var change func(*config.Settings)
			if tc.on != nil {
				change = tc.on(t)
			}
			args := append([]string{"--buyers=150", "--stock=20", "--concurrency=30"}, tc.args...)
			r := runTheLab(t.Context(), t, change, args...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			buyers := r.report.Buyers
			for _, name := range strategy.Names() {
				got := r.of(t, name)
				if got.Requests != buyers || got.RequestsPerSecond <= 0 || got.P99MS < got.P50MS {
					t.Errorf("%s: %+v", name, got)
				}
				if !strings.Contains(r.stdout, name) || !strings.Contains(r.page, strategy.LessonOf(name).Costs[:20]) {
					t.Errorf("%s is missing in the table or on the page", name)
				}
				if name != "naive" {
					r.exact(t, name, int64(min(20, buyers)))
				}
			}
			if got := r.of(t, "naive"); buyers > 20 && (got.Oversold == 0 || got.Verdict != lab.Oversold) {
				t.Errorf("naive did not oversell: %+v", got)
			}
		})
	}
}

// With two instances a lock in the process guards nothing, and the report says why.
func TestLabTwoInstances(t *testing.T) {
	t.Parallel()
	r := runTheLab(t.Context(), t, nil, "--strategies=mutex,pessimistic,local,hybrid", "--buyers=300", "--stock=100", "--instances=2")
	if r.err != nil {
		t.Fatal(r.err)
	}
	mutex := r.of(t, "mutex")
	if mutex.Oversold == 0 || mutex.Verdict != lab.Oversold || !strings.Contains(mutex.Explanation, "a second instance") {
		t.Errorf("%+v", mutex)
	}
	for _, name := range []string{"pessimistic", "local", "hybrid"} {
		r.exact(t, name, 100)
	}
}

// An instance that dies in the middle takes no unit along, whatever it knew, was doing or had queued.
func TestLabKill(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"straight": nil, "over HTTP": {"--over-http"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--strategies=local,redis,hybrid,pessimistic", "--buyers=300", "--stock=100", "--instances=2", "--kill"}, args...)
			r := runTheLab(t.Context(), t, onMariaDB(t, kit.Redis(t)), args...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			for _, name := range []string{"local", "redis", "hybrid", "pessimistic"} {
				r.exact(t, name, 100)
				if !r.of(t, name).Killed {
					t.Errorf("%s: nobody was killed", name)
				}
			}
		})
	}
}

// The lab leaves the stores that it was lent as they were.
func TestLabLeavesNothing(t *testing.T) {
	server := kit.Redis(t)
	change := onMariaDB(t, server)
	var settings config.Settings
	change(&settings)
	db, err := repository.Open(t.Context(), settings.Database, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	leaks := goleak.IgnoreCurrent()
	r := runTheLab(t.Context(), t, change, "--buyers=60", "--stock=10", "--concurrency=10")
	goleak.VerifyNone(t, leaks)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if codes, _, err := db.SaleCodes(t.Context(), time.Time{}); err != nil || len(codes) > 0 {
		t.Errorf("sales: %v, %v", codes, err)
	}
	if page, _, err := db.Orders(t.Context(), model.OrderFilter{Limit: 10}); err != nil || len(page) > 0 {
		t.Errorf("orders: %v, %v", page, err)
	}
	if account, ok, err := db.Account(t.Context(), "admin"); ok || err != nil {
		t.Errorf("an account was made: %+v, %v", account, err)
	}
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	keys, err := client.Keys(t.Context(), "*").Result()
	keys = slices.DeleteFunc(keys, func(key string) bool { return client.TTL(t.Context(), key).Val() > 0 })
	if err != nil || len(keys) > 0 {
		t.Errorf("keys without an end: %v, %v", keys, err)
	}
}

// Stores that an instance serves from are not for playing.
func TestLabRefusesBusyStores(t *testing.T) {
	t.Parallel()
	change := onMariaDB(t, kit.Redis(t))
	s := start(t, change)
	s.eventually("the instance is on the list", func() bool {
		all, err := s.app.gate.Instances(t.Context(), time.Now())
		return err == nil && len(all) > 0
	})
	r := runTheLab(t.Context(), t, change, "--buyers=5", "--stock=5")
	if r.err == nil || !strings.Contains(r.err.Error(), s.url) || len(r.report.Strategies) > 0 {
		t.Errorf("%v, %s", r.err, r.stdout)
	}
}

// Who stops the lab gets what it has measured by then.
func TestLabInterrupted(t *testing.T) {
	t.Parallel()
	server := kit.Redis(t)
	ctx, interrupt := context.WithCancel(t.Context())
	change := onMariaDB(t, server)
	var settings config.Settings
	change(&settings)
	db, err := repository.Open(t.Context(), settings.Database, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	go func() { // when somebody has bought
		defer interrupt()
		deadline := time.After(patience)
		for {
			select {
			case <-deadline:
				return
			case <-time.After(pollEvery):
				page, _, err := db.Orders(context.WithoutCancel(ctx), model.OrderFilter{Limit: 1})
				if err == nil && len(page) > 0 {
					return
				}
			}
		}
	}()
	r := runTheLab(ctx, t, change, "--strategies=pessimistic,hybrid", "--buyers=1000000", "--stock=1000000")
	if !errors.Is(r.err, ErrInterrupted) || !r.report.Interrupted || len(r.report.Strategies) != 1 {
		t.Fatalf("%v, %s", r.err, r.stdout)
	}
	got := r.of(t, "pessimistic")
	if got.Verdict != lab.Incomplete || got.Sold == 0 || got.Requests == r.report.Buyers || !strings.Contains(r.stdout, "partial") {
		t.Errorf("%+v, %s", got, r.stdout)
	}
}

func TestLabUsage(t *testing.T) {
	for says, args := range map[string][]string{
		"--strategies":   {"--strategies=luck"},
		"each once":      {"--strategies=redis,redis"},
		"want all, or":   {"--strategies=all,redis"},
		"--buyers":       {"--buyers=0"},
		"--stock":        {"--stock=-1"},
		"--concurrency":  {"--concurrency=0"},
		"--instances":    {"--instances=9"},
		"--kill":         {"--kill"},
		"--out":          {"--out="},
		"--database":     {"--database=postgres://x"},
		"--local-share":  {"--local-share=2"},
		"--local-buffer": {"--local-buffer=-1"},
	} {
		t.Run(says, func(t *testing.T) {
			cmd, err := config.Parse(append([]string{"lab"}, args...), func(string) string { return "" }, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if err := Validate(&cmd); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Operators see where the lab runs, and no password.
func TestLabStoresHideCredentials(t *testing.T) {
	for address, want := range map[string]string{
		"embedded":                 "embedded",
		"redis://127.0.0.1:6379/1": "redis://127.0.0.1:6379/1",
		"rediss://user:p%40ss@host:6379/1?dial_timeout=1s":       "rediss://host:6379/1",
		"redis://:secret@a:6379,redis://:secret@b:6379":          "redis://a:6379,redis://b:6379",
		"redis+sentinel://:secret@a:26379,b:26379/shop":          "redis+sentinel://a:26379,b:26379/shop",
		"redis+sentinel://user:sec@ret@a:26379,b:26379/shop?x=1": "redis+sentinel://a:26379,b:26379/shop",
	} {
		got := labStores(&config.Settings{LabDatabase: "mysql://user:secret@db:3306/lab", LabRedis: address})
		if got.Redis != want || got.Database != "mysql://db:3306/lab" {
			t.Errorf("%s is shown as %+v, want %s", address, got, want)
		}
	}
}
