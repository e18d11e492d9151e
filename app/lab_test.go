package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"flashsale/app"
	"flashsale/app/command"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/strategy"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// labCommand is what a run of the command `lab` has left.
type labCommand struct {
	report lab.Report
	stdout string
	page   string
	err    error
}

func (r labCommand) of(t testing.TB, strategy string) *lab.Result {
	t.Helper()
	i := slices.IndexFunc(r.report.Strategies, func(result *lab.Result) bool { return result.Strategy == strategy })
	if i < 0 {
		t.Fatalf("the report has no %s: %v, %s", strategy, r.err, r.stdout)
	}
	return r.report.Strategies[i]
}

// runTheLab runs the command in this process.
func runTheLab(ctx context.Context, t testing.TB, change func(*config.Settings), args ...string) (r labCommand) {
	t.Helper()
	dir := t.TempDir()
	data, out := filepath.Join(dir, "data", "flashsale.db"), filepath.Join(dir, "out")
	cmd := parsed(t, append([]string{"lab", "--database=sqlite:" + data, "--out=" + out}, args...)...)
	change(&cmd.Settings)
	var stdout, stderr bytes.Buffer
	r.err = command.Execute(ctx, cmd, "test", &stdout, &stderr)
	r.stdout = stdout.String()
	if stderr.Len() > 0 {
		t.Errorf("the progress was shown although stderr is no terminal: %s", &stderr)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "data", "*")); err != nil || len(left) > 0 {
		t.Errorf("the lab has left %v, %v", left, err)
	}
	figures, err := os.ReadFile(filepath.Join(out, "report.json"))
	if errors.Is(err, os.ErrNotExist) {
		return r
	}
	page, pageErr := os.ReadFile(filepath.Join(out, "report.html"))
	check.NoError(t, err, pageErr, json.Unmarshal(figures, &r.report))
	r.page = string(page)
	return r
}

// exact checks that a strategy sold all of the stock, and to no more buyers than there were units.
func (r labCommand) exact(t testing.TB, strategy string, stock int64) {
	t.Helper()
	got := r.of(t, strategy)
	if got.Verdict == lab.Failed { // an attempt was not answered in time, and its unit is left
		pace.Errorf(t, "%s: %+v", strategy, got)
		return
	}
	if got.Sold != stock || got.Oversold != 0 || got.Undersold != 0 || got.Lost != 0 || got.Verdict != lab.Exact {
		t.Errorf("%s: %+v", strategy, got)
	}
}

func TestLab(t *testing.T) {
	t.Parallel()
	const stock = 60
	kit.EachStores(t, func(t *testing.T, stores kit.Stores) {
		runs := map[string][]string{"many buyers": nil}
		change := asTheyAre // the lab's own embedded stores
		if stores.RestartRedis != nil {
			change = withStores(stores)
			runs["a few buyers"] = []string{"--buyers=12", "--concurrency=12"}
		}
		for name, args := range runs {
			t.Run(name, func(t *testing.T) {
				pace.Try(t, func(t *pace.Trial) {
					r := runTheLab(t.Context(), t, change, append([]string{"--buyers=150", fmt.Sprint("--stock=", stock), "--concurrency=30"}, args...)...)
					check.NoError(t, r.err)
					buyers := r.report.Buyers
					for _, kind := range strategy.Kinds() {
						name := kind.Name
						got := r.of(t, name)
						if got.Requests != buyers || got.RequestsPerSecond <= 0 || got.P99MS < got.P50MS {
							t.Errorf("%s: %+v", name, got)
						}
						if !strings.Contains(r.stdout, name) || !strings.Contains(r.page, kind.Lesson.Costs[:20]) {
							t.Errorf("%s is missing in the table or on the page", name)
						}
						if name != "naive" {
							r.exact(t, name, int64(min(stock, buyers)))
						} else if buyers > stock && (got.Oversold == 0 || got.Verdict != lab.Oversold) {
							t.Slowf("naive did not oversell, as if buyers had come one after another: %+v", got)
						}
					}
				})
			})
		}
	})
}

// An instance that dies in the middle takes no unit with it, whatever it had in memory or in the queue.
func TestLabKill(t *testing.T) {
	t.Parallel()
	strategies := []string{"local", "redis", "hybrid", "pessimistic"}
	r := runTheLab(t.Context(), t, withStores(kit.ServerStores(t)), "--instances=2", "--strategies="+strings.Join(strategies, ","), "--buyers=300", "--stock=100", "--kill")
	check.NoError(t, r.err)
	for _, name := range strategies {
		if r.exact(t, name, 100); !r.of(t, name).Killed {
			t.Errorf("%s: no instance was killed", name)
		}
	}
}

// The lab leaves the stores that it was given as they were. Not parallel: the goroutines of other tests would be counted.
func TestLabLeavesNothing(t *testing.T) {
	stores := kit.ServerStores(t)
	db, err := repository.Open(t.Context(), stores.Database, 4)
	check.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	leaks := goleak.IgnoreCurrent()
	r := runTheLab(t.Context(), t, withStores(stores), "--buyers=60", "--stock=10", "--concurrency=10")
	noneRuns(t, leaks)
	check.NoError(t, r.err)
	codes, _, errSales := db.SaleCodes(t.Context(), time.Time{})
	orders, _, errOrders := db.Orders(t.Context(), model.OrderFilter{Limit: 10})
	account, found, errAccount := db.Account(t.Context(), "admin")
	if err := errors.Join(errSales, errOrders, errAccount); err != nil || len(codes) > 0 || len(orders) > 0 || found {
		t.Errorf("the lab has left sales %v, orders %v, an account %+v, %v", codes, orders, account, err)
	}
	opts, err := redis.ParseURL(stores.Redis)
	check.NoError(t, err)
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	keys, err := client.Keys(t.Context(), "*").Result()
	keys = slices.DeleteFunc(keys, func(key string) bool { return client.TTL(t.Context(), key).Val() > 0 })
	if err != nil || len(keys) > 0 {
		t.Errorf("keys that do not expire: %v, %v", keys, err)
	}
}

// The lab does not run on stores that an instance uses.
func TestLabRefusesBusyStores(t *testing.T) {
	t.Parallel()
	stores := withStores(kit.ServerStores(t))
	s := start(t, stores)
	s.listed()
	r := runTheLab(t.Context(), t, stores, "--buyers=5", "--stock=5")
	if r.err == nil || !strings.Contains(r.err.Error(), s.url) || len(r.report.Strategies) > 0 {
		t.Errorf("%v, %s", r.err, r.stdout)
	}
}

// An interrupted lab reports what it has measured.
func TestLabInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	stores := kit.ServerStores(t)
	db, err := repository.Open(t.Context(), stores.Database, 4)
	check.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	go func() { // when somebody has bought
		defer interrupt()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(25 * time.Millisecond) {
			page, _, err := db.Orders(context.WithoutCancel(ctx), model.OrderFilter{Limit: 1})
			if err == nil && len(page) > 0 {
				return
			}
		}
	}()
	r := runTheLab(ctx, t, withStores(stores), "--strategies=pessimistic,hybrid", "--buyers=1000000", "--stock=1000000")
	if !errors.Is(r.err, lab.ErrInterrupted) || !r.report.Interrupted || len(r.report.Strategies) != 1 {
		t.Fatalf("%v, %s", r.err, r.stdout)
	}
	got := r.of(t, "pessimistic")
	if got.Verdict != lab.Incomplete || got.Sold == 0 || got.Requests == r.report.Buyers || !strings.Contains(r.stdout, "partial") {
		t.Errorf("%+v, %s", got, r.stdout)
	}
}

func TestLabUsage(t *testing.T) {
	for says, arg := range map[string]string{
		"--strategies": "--strategies=luck", "each once": "--strategies=redis,redis", "want all, or": "--strategies=all,redis",
		"--buyers": "--buyers=0", "--stock": "--stock=-1", "--concurrency": "--concurrency=0", "--instances": "--instances=9",
		"--kill": "--kill",
		"--out":  "--out=", "--database": "--database=postgres://x", "--local-share": "--local-share=2",
		"--local-buffer": "--local-buffer=-1",
	} {
		cmd, err := config.Parse([]string{"lab", arg}, func(string) string { return "" }, io.Discard, io.Discard)
		check.NoError(t, err)
		if err := command.Validate(&cmd); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// Operators see which stores the lab uses, and no password.
func TestLabStoresHideCredentials(t *testing.T) {
	for address, want := range map[string]string{
		"embedded":                 "embedded",
		"redis://127.0.0.1:6379/1": "redis://127.0.0.1:6379/1",
		"rediss://user:p%40ss@host:6379/1?dial_timeout=1s":       "rediss://host:6379/1",
		"redis://:secret@a:6379,redis://:secret@b:6379":          "redis://a:6379,redis://b:6379",
		"redis+sentinel://:secret@a:26379,b:26379/shop":          "redis+sentinel://a:26379,b:26379/shop",
		"redis+sentinel://user:sec@ret@a:26379,b:26379/shop?x=1": "redis+sentinel://a:26379,b:26379/shop",
	} {
		got := app.LabStores(&config.Settings{LabDatabase: "mysql://user:secret@db:3306/lab", LabRedis: address})
		if got.Redis != want || got.Database != "mysql://db:3306/lab" {
			t.Errorf("%s is shown as %+v, want %s", address, got, want)
		}
	}
}
