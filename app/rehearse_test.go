package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// rehearsed are the arguments of a rehearsal whose buyers all wait for their orders.
func (f *fit) rehearsed(more ...string) []string {
	return slices.Concat(f.args, []string{"--rehearse", "--ack-wait=10s"}, more)
}

// in is the same shop for a subtest.
func (f *fit) in(t *testing.T) *fit {
	other := *f
	other.t = t
	return &other
}

// shadows lists the shadow sales that are there.
func (f *fit) shadows() []string {
	f.t.Helper()
	ids, err := f.db.ShadowSales(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return ids
}

// count gives the one number that a query on the fit's database gives; SHOP is its name.
func (f *fit) count(query string) (n int) {
	f.t.Helper()
	if err := f.root.QueryRowContext(f.t.Context(), strings.ReplaceAll(query, "SHOP", f.name)).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// nothingLeft says that a rehearsal has left no more than its line in the log.
func (f *fit) nothingLeft(sales, rehearsals int) {
	f.t.Helper()
	for query, want := range map[string]int{
		"SELECT COUNT(*) FROM SHOP.sales": sales, "SELECT COUNT(*) FROM SHOP.stock": sales,
		"SELECT COUNT(*) FROM SHOP.orders": 0, "SELECT COUNT(*) FROM SHOP.buyers": 0, "SELECT COUNT(*) FROM SHOP.users WHERE name <> 'admin'": 0,
		"SELECT COUNT(*) FROM SHOP.operations WHERE action = 'rehearse'": rehearsals,
	} {
		if n := f.count(query); n != want {
			f.t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	keys, err := f.redis.Keys(f.t.Context(), "fs:{*}:gate").Result()
	if err != nil || len(keys) != sales {
		f.t.Errorf("gates %v, want %d; %v", keys, sales, err)
	}
}

// A rehearsal sells a whole sale through the engine beside a running instance, and no buyer sees anything of it.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	s := f.instance()
	s.app.version = "test"
	coming := s.createSale(fields{"starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)})

	ended := make(chan report, 1)
	go func() { ended <- preflighted(t, f.rehearsed("--rehearsal-buyers=500")...) }()
	seen := ""
	var r report
	for r.Findings == nil {
		select {
		case r = <-ended:
		default:
		}
		ids := f.shadows()
		var list struct{ Sales []sale }
		s.anyone().call("GET", "/api/v1/sales", nil).want(http.StatusOK).read(&list)
		if len(list.Sales) != 1 || list.Sales[0].ID != coming.ID {
			t.Fatalf("buyers see %+v", list.Sales)
		}
		if page := s.anyone().call("GET", "/", nil).want(http.StatusOK); bytes.Contains(page.body, []byte("Rehearsal")) {
			t.Fatalf("buyers see %s", page.body)
		}
		for _, id := range ids {
			if _, known := s.app.catalog.InMemory(id); known {
				seen = id // the running instance knows the sale, and had it to show
			}
		}
	}
	if seen == "" {
		t.Error("the sale was never there while it was looked for")
	}
	if !r.OK || r.level("rehearsal.books") != isOK || r.level("rehearsal.rate") != isOK {
		t.Fatalf("%+v", r.Findings)
	}
	got := r.Rehearsal
	if got.Buyers != 500 || got.Units != 100 || got.RequestsPerSecond <= 0 || got.P50MS <= 0 || got.P99MS < got.P50MS ||
		got.Verdicts[model.Accepted] != 100 || got.Verdicts[model.SoldOut] != 400 || len(got.Verdicts) != 2 {
		t.Errorf("%+v", got)
	}
	f.nothingLeft(1, 1)
	s.eventually("the running instance forgets it", func() bool {
		_, known := s.app.catalog.InMemory(seen)
		return !known
	})
	s.anyone().call("GET", "/api/v1/sales/"+coming.ID, nil).want(http.StatusOK)
}

// Whatever speaks against a rehearsal is said, and then nothing is done.
func TestRehearsalRefused(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	opens := func(in time.Duration) func(*fit) {
		return func(f *fit) {
			id := f.sale(func(s *model.Sale) { s.StartsAt = time.Now().Add(in) })
			f.t.Cleanup(func() {
				if err := f.db.EraseSale(context.WithoutCancel(f.t.Context()), id); err != nil {
					f.t.Error(err)
				}
			})
		}
	}
	for name, tc := range map[string]struct {
		before func(*fit)
		args   []string
		says   string
	}{
		"a check that failed": {func(*fit) {}, []string{"--instances=1"}, "checks failed"},
		"a sale that is open": {opens(-time.Minute), nil, "is open"},
		"one that opens soon": {opens(4 * time.Minute), nil, "opens within"},
		"another rehearsal": {func(f *fit) {
			lease := func(ttl time.Duration) {
				if ours, err := f.db.Lease(context.WithoutCancel(f.t.Context()), rehearsalName, "another", ttl); err != nil || !ours {
					f.t.Fatalf("%t, %v", ours, err)
				}
			}
			lease(rehearsalTime + 2*clearTime) // as a rehearsal itself takes it
			f.t.Cleanup(func() { lease(time.Millisecond) })
		}, nil, "another one runs"},
		"an instance of another version": {func(f *fit) {
			s := f.instance()
			s.app.version = "older"
			s.eventually("it reports", func() bool {
				running, err := s.app.gate.Running(f.t.Context(), time.Now())
				return err == nil && running[s.app.instance].Version == "older"
			})
		}, nil, "of version"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.before(f.in(t))
			r := preflighted(t, f.rehearsed(tc.args...)...)
			last := r.Findings[len(r.Findings)-1]
			if last.Check != rehearsalName || last.Level != isFail || !strings.Contains(last.Found, tc.says) || r.Rehearsal != nil {
				t.Errorf("%+v, want %q", last, tc.says)
			}
			if f.in(t).count("SELECT COUNT(*) FROM SHOP.operations WHERE action = 'rehearse'") != 0 {
				t.Error("there was a rehearsal")
			}
		})
	}
}

// A sale that a killed rehearsal has left is hidden, and the next one removes it.
func TestRehearsalClearsUp(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	left := f.sale(func(s *model.Sale) { s.Status, s.StartsAt = model.SaleShadow, time.Now().Add(-time.Minute) })
	if ids := f.shadows(); !slices.Equal(ids, []string{left}) {
		t.Fatalf("%v", ids)
	}
	if r := preflighted(t, f.rehearsed("--rehearsal-buyers=10")...); !r.OK || r.Rehearsal == nil || r.Rehearsal.Units != 2 {
		t.Errorf("%+v", r)
	}
	f.nothingLeft(0, 1)
	if r := preflighted(t, f.rehearsed("--rehearsal-buyers=10")...); !r.OK {
		t.Errorf("a second one: %+v", r.Findings)
	}
}

// Whoever is told to stop in the middle of it removes the sale first.
func TestRehearsalIsStopped(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	cmd := parsed(t, append([]string{
		"preflight", "--rehearse", "--rehearsal-buyers=20000", "--http-addr=127.0.0.1:0", "--ops-addr=off", "--connections=100",
		"--secret=" + testSecret, "--admin-password=" + adminPassword,
	}, f.args...)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Execute(ctx, cmd, "test", io.Discard, io.Discard) }()
	deadline := time.After(patience)
	for f.count("SELECT COUNT(*) FROM SHOP.orders") == 0 {
		select {
		case <-deadline:
			t.Fatal("nobody buys")
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		case <-time.After(pollEvery):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	f.nothingLeft(0, 1)
}

// What buyers were told is held against the books.
func TestRehearsalJudge(t *testing.T) {
	audit := func(held int64) service.Audit {
		return service.Audit{Books: model.Books{Stock: model.Stock{Quota: 10, Available: 10 - held, Held: held}}}
	}
	drifting := audit(10)
	drifting.Drift = 1
	broken := audit(10)
	broken.Violations = []string{"held"}
	for name, tc := range map[string]struct {
		verdicts    map[model.Verdict]int
		audit       service.Audit
		books, rate level
	}{
		"exact":               {map[model.Verdict]int{model.Accepted: 10, model.SoldOut: 40}, audit(10), isOK, isOK},
		"some were queued":    {map[model.Verdict]int{model.Accepted: 8, verdictQueued: 2, model.SoldOut: 40}, audit(10), isOK, isWarn},
		"a unit is left":      {map[model.Verdict]int{model.Accepted: 9, model.SoldOut: 41}, audit(9), isFail, isOK},
		"a confirmed is lost": {map[model.Verdict]int{model.Accepted: 11, model.SoldOut: 39}, audit(10), isFail, isOK},
		"one nobody heard of": {map[model.Verdict]int{model.Accepted: 9, model.SoldOut: 41}, audit(10), isFail, isOK},
		"one failed":          {map[model.Verdict]int{model.Accepted: 10, verdictFailed: 1, model.SoldOut: 39}, audit(10), isFail, isOK},
		"the gate drifts":     {map[model.Verdict]int{model.Accepted: 10, model.SoldOut: 40}, drifting, isFail, isOK},
		"the books don't":     {map[model.Verdict]int{model.Accepted: 10, model.SoldOut: 40}, broken, isFail, isOK},
	} {
		t.Run(name, func(t *testing.T) {
			r := rehearsal{Buyers: 50, Units: 10, Verdicts: tc.verdicts}
			list := r.judge(tc.audit, time.Second)
			if gravest(list, "rehearsal.books") != tc.books || gravest(list, "rehearsal.rate") != tc.rate {
				t.Errorf("%+v", list)
			}
		})
	}
}
