package app_test

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashsale/app"
	"flashsale/internal/config"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// A stopped app leaves no goroutine behind. Not parallel: the goroutines of other tests would be counted.
func TestStopLeavesNothingRunning(t *testing.T) {
	for name, change := range map[string]func(*config.Settings){
		"embedded":       asTheyAre,
		"with metrics":   withFigures,
		"optimistic":     func(s *config.Settings) { s.Strategy = "optimistic" },
		"stores outside": withStores(kit.ServerStores(t)),
		"redis-list":     queues["redis-list"](t),
		"kafka":          queues["kafka"](t),
	} {
		t.Run(name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			s := start(t, change)
			saleID := s.createSale(nil).ID
			ann := s.buyer("ann")
			ann.pay(ann.buy(saleID, 1).ID)
			heard := s.events(saleID)
			heard.next()
			s.stop()
			heard.ended()
			noneRuns(t, leaks, ofTheCluster("read"), ofTheCluster("write"))
		})
	}
}

// noneRuns waits until no goroutine runs but those that the options ignore.
func noneRuns(t testing.TB, ignored ...goleak.Option) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for err := goleak.Find(ignored...); err != nil; err = goleak.Find(ignored...) {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// ofTheCluster ignores a goroutine of the fake Kafka's end of a connection, which may end after the app.
func ofTheCluster(method string) goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn)." + method)
}

// New gives back what it has opened when it fails, and what Close gives back can be opened again.
func TestNewThatFails(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	settings := parsed(t, "--http-addr=127.0.0.1:0", "--database="+kit.SQLite(t), "--log-level=error").Settings
	for range 2 { // the second time there are a secret, an operator and a demo sale
		settings.OpsAddr = "203.0.113.1:1" // not an address of this machine
		if a, err := app.New(t.Context(), settings, app.Options{Logs: io.Discard}); err == nil {
			t.Fatal("New has succeeded", a.Close())
		}
		noneRuns(t, leaks)
		settings.OpsAddr = ""
		a, err := app.New(t.Context(), settings, app.Options{Logs: io.Discard})
		check.NoError(t, err)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		noneRuns(t, leaks)
	}
}

// journal is a log that goroutines may write and read at the same time.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Two instances on the same stores know what the other does, and either may stop.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	stores := withStores(kit.ServerStores(t))
	one, two := start(t, stores), start(t, stores)
	saleID := one.createSale(fields{"quota": 20, "limit_per_user": 3}).ID
	two.knows(saleID)
	heard := two.events(saleID)

	made := one.buyer("ann").purchased(201, saleID, 2, "Idempotency-Key", "k")
	ann := two.buyer("ann")
	if a := ann.purchase(saleID, 2, "Idempotency-Key", "k").want(201); a.text("id") != made.ID || !a.replayed() {
		t.Errorf("%s is another order", a.body)
	}
	ann.pay(made.ID)
	hearUntil(heard, "both units are sold", func(e stockEvent) bool { return e.Available == 18 })
	one.setStatus(saleID, "pause")
	ann.purchase(saleID, 1).refused(409, "paused")
	two.eventually("the other instance shows the pause", func() bool { return two.sale(saleID).State == "paused" })
	two.setStatus(saleID, "resume")
	one.knows(saleID)

	listed := func(s *server, instances int) {
		t.Helper()
		s.eventually(fmt.Sprint(instances, " instances are listed"), func() bool {
			return bytes.Count(s.operator().get("/api/v1/admin/stats").body, []byte(`"strategy"`)) == instances
		})
	}
	listed(one, 2)
	listed(two, 2)
	both := buyTogether(saleID, 40, func(i int) *client { return []*server{one, two}[i%2].buyer(fmt.Sprint("u", i)) })
	both.want(t, map[string]int{"201": 18, "409 sold_out": 22})
	one.stop()
	listed(two, 1)
	two.wantStock(saleID, stock{held: 18, paid: 2})
}

// Connections that are open or idle do not keep the server from stopping: buyers that listen, and clients that send
// nothing.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := start(t)
		saleID := s.createSale(nil).ID
		s.anyone().get("/healthz") // its connection stays open
		streams := make([]*stream, 50)
		for i := range streams {
			streams[i] = s.events(saleID)
			streams[i].next()
		}
		began := time.Now()
		s.stop()
		for _, heard := range streams {
			heard.ended()
		}
		if took := time.Since(began); took > 3*time.Second { // after four seconds the server cuts the rest
			t.Slowf("the stop took %v", took)
		}
		if _, err := s.anyone().try(t.Context(), "GET", "/healthz", nil); err == nil {
			t.Error("a stopped server answers")
		}
	})
}
