package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// An app that was stopped leaves no goroutine behind, whatever it was busy with. Not parallel: others' would be
// counted.
func TestStopLeavesNothingRunning(t *testing.T) {
	for name, change := range map[string]func(*config.Settings){
		"embedded":       nil,
		"with figures":   func(c *config.Settings) { c.OpsAddr = "127.0.0.1:0" },
		"optimistic":     func(c *config.Settings) { c.Strategy = "optimistic" },
		"stores outside": onMariaDB(t, kit.Redis(t)),
	} {
		t.Run(name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			s := start(t, change)
			saleID := s.createSale(nil).ID
			ann := s.buyer("ann")
			ann.pay(ann.buy(saleID, 1).ID)
			heard := s.events(saleID)
			heard.next(t)
			s.stop()
			heard.ended(t)
			goleak.VerifyNone(t, leaks)
		})
	}
}

// New gives back what it has opened when it can't go on, and what Close gives back can be opened again.
func TestNewThatFails(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	cmd, err := config.Parse([]string{
		"--http-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:1", "--database=sqlite:" + filepath.Join(t.TempDir(), "x.db"), "--log-level=error",
	}, func(string) string { return "" }, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd.Settings.OpsAddr = "203.0.113.1:1" // not an address of this machine
		if app, err := New(t.Context(), cmd.Settings, io.Discard); err == nil {
			t.Fatal(app.Close())
		}
		goleak.VerifyNone(t, leaks)
		cmd.Settings.OpsAddr = ""
		app, err := New(t.Context(), cmd.Settings, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks)
	}
}

// journal is a log that may be written and read at once.
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

// The log tells what was asked and answered, without anything that lets its reader act in a buyer's name.
func TestLogsKeepSecrets(t *testing.T) {
	t.Parallel()
	cmd, err := config.Parse([]string{
		"--http-addr=127.0.0.1:0", "--ops-addr=off", "--demo=false", "--database=sqlite:" + filepath.Join(t.TempDir(), "x.db"),
		"--secret=" + testSecret, "--payment-secret=" + strings.Repeat("p", 32), "--admin-password=" + adminPassword, "--log-level=debug", "--log-format=json",
	}, func(string) string { return "" }, io.Discard, io.Discard)
	if err == nil {
		err = cmd.Settings.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	var log journal
	s := boot(t, cmd.Settings, &log)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	path := ann.path(saleID)
	var made order
	ann.call("POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", fields{"quantity": 1}, "Idempotency-Key", "key-of-ann", "X-Request-ID", "request-of-ann").want(201).read(&made)
	p := ann.startPayment(made.ID)
	ann.choose(p, "pay")
	s.anyone().call("POST", "/api/v1/users", fields{"name": "carol", "password": "carols password"}).want(201)
	s.anyone().call("POST", "/api/v1/sessions", fields{"name": "carol", "password": "carols other one"}).want(401)
	s.anyone().call("GET", "/api/v1/orders?token="+ann.token, nil).want(401)
	s.stop()
	for name, secret := range map[string]string{
		"the secret": testSecret, "the payment secret": strings.Repeat("p", 32), "the operator's password": adminPassword, "a password": "carols password",
		"a wrong password": "carols other one", "a token": ann.token, "a path": path, "a key": "key-of-ann",
	} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s stands in the log", name)
		}
	}
	if line := `"route":"/api/v1/sales/:sale/:path/orders"`; !strings.Contains(log.String(), line) || !strings.Contains(log.String(), "request-of-ann") {
		t.Errorf("no line of the purchase in %.2000s", log.String())
	}
}

// Two instances on the same stores: what one does, the other knows; and either may leave.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	outside := onMariaDB(t, kit.Redis(t))
	one, two := start(t, outside), start(t, outside)
	saleID := one.createSale(fields{"quota": 20, "limit_per_user": 3}).ID
	two.eventually("the other knows the sale", func() bool { return two.sale(saleID).State == "open" })
	heard := two.events(saleID)

	made := one.buyer("ann").buy(saleID, 1)
	ann := two.buyer("ann")
	if o := ann.order(made.ID); o.Status != "pending" {
		t.Errorf("%+v", o)
	}
	path := one.buyer("ann").path(saleID)
	ann.call("POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", fields{"quantity": 1}, "Idempotency-Key", "k").want(201)
	a := one.buyer("ann").purchase(saleID, 1, "Idempotency-Key", "k").want(201)
	if a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s is another order", a.body)
	}
	ann.pay(made.ID)
	for heard.next(t).Available != 18 {
	}
	one.setStatus(saleID, "pause")
	ann.purchase(saleID, 1).refused(409, "paused")
	two.eventually("the other shows the pause", func() bool { return two.sale(saleID).State == "paused" })
	two.setStatus(saleID, "resume")
	one.eventually("one knows that the sale goes on", func() bool { return one.sale(saleID).State == "open" })

	for _, s := range []*server{one, two} {
		s.eventually("both are on the list", func() bool {
			a := s.operator().call("GET", "/api/v1/admin/stats", nil).want(200)
			return bytes.Count(a.body, []byte(`"strategy"`)) == 2
		})
	}
	var got tally
	together(40, func(i int) {
		s := []*server{one, two}[i%2]
		c := s.buyer(fmt.Sprint("u", i))
		got.add(c.try(context.WithoutCancel(t.Context()), "POST", "/api/v1/sales/"+saleID+"/"+c.forgedPath(saleID)+"/orders", fields{"quantity": 1}))
	})
	got.want(t, map[string]int{"201": 18, "409 sold_out": 22})
	one.stop()
	var newest orders
	ann.call("GET", "/api/v1/orders?limit=1", nil).want(200).read(&newest)
	ann.cancel(newest.Orders[0].ID)
	two.buyer("last").buy(saleID, 1)
	two.eventually("one has left the list", func() bool {
		return bytes.Count(two.operator().call("GET", "/api/v1/admin/stats", nil).want(200).body, []byte(`"strategy"`)) == 1
	})
	if books := two.balanced(saleID); books.Held+books.Paid != 20 || books.Available != 0 {
		t.Errorf("books %+v", books)
	}
}

// The slow client: whoever doesn't send its request to the end doesn't keep the server from stopping.
func TestStopInSpiteOfIdleConnections(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.anyone().call("GET", "/healthz", nil).want(200) // its connection stays open
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
}
