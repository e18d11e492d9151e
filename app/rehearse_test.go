package app_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/app/command"
	"flashsale/app/preflight"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// rehearse runs the command with a rehearsal whose buyers all wait for their orders.
func (f *fit) rehearse(t testing.TB, args ...string) report {
	t.Helper()
	return f.preflighted(t, append([]string{"--rehearse", "--ack-wait=10s"}, args...)...)
}

// shadows lists the shadow sales.
func (f *fit) shadows() []string {
	f.t.Helper()
	ids, err := f.db.ShadowSales(f.t.Context())
	check.NoError(f.t, err)
	return ids
}

// count returns the number that a query on the fit's database gives; SHOP is the database's name.
func (f *fit) count(query string) (n int) {
	f.t.Helper()
	check.NoError(f.t, f.root.QueryRowContext(f.t.Context(), "SELECT COUNT(*) FROM "+strings.ReplaceAll(query, "SHOP", f.name)).Scan(&n))
	return n
}

const rehearsals = "SHOP.audit_log WHERE action = 'rehearse'"

// nothingLeft checks that the rehearsals have left no more than their lines in the audit log.
func (f *fit) nothingLeft(sales, rehearsed int) {
	f.t.Helper()
	for query, want := range map[string]int{
		"SHOP.sales": sales, "SHOP.stock": sales, "SHOP.orders": 0, "SHOP.buyers": 0, "SHOP.users WHERE name <> 'admin'": 0,
		rehearsals: rehearsed,
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

// A rehearsal sells a whole sale through the engine beside a running instance, and no buyer sees the sale.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	s := f.instance()
	s.app.SetVersion("test")
	coming := s.createSale(fields{"starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)})

	ended := make(chan report, 1)
	go func() { ended <- f.rehearse(t, "--rehearsal-buyers=500") }()
	seen := ""
	var r report
	for r.Findings == nil {
		select {
		case r = <-ended:
		default:
		}
		ids := f.shadows()
		var list struct{ Sales []sale }
		s.anyone().get("/api/v1/sales").read(&list)
		if page := s.anyone().get("/"); len(list.Sales) != 1 || list.Sales[0].ID != coming.ID ||
			bytes.Contains(page.body, []byte("Rehearsal")) {
			t.Fatalf("buyers see %+v and %s", list.Sales, page.body)
		}
		for _, id := range ids {
			if _, known := s.app.Catalog.InMemory(id); known {
				seen = id // the running instance knows the sale, and could have shown it
			}
		}
	}
	if seen == "" {
		t.Error("the running instance never knew the shadow sale")
	}
	if !r.OK || r.level("rehearsal.books") != preflight.OK || r.level("rehearsal.rate") != preflight.OK {
		t.Fatalf("findings %+v", r.Findings)
	}
	got, want := r.Rehearsal, map[model.Verdict]int{model.Accepted: 100, model.SoldOut: 400}
	if got.Buyers != 500 || got.Units != 100 || got.RequestsPerSecond <= 0 || got.P50MS <= 0 || got.P99MS < got.P50MS ||
		!maps.Equal(got.Verdicts, want) {
		t.Errorf("the rehearsal %+v", got)
	}
	f.nothingLeft(1, 1)
	s.eventually("the running instance forgets the shadow sale", func() bool {
		_, known := s.app.Catalog.InMemory(seen)
		return !known
	})
	s.anyone().get("/api/v1/sales/" + coming.ID)
}

// A rehearsal that would do harm is refused, and the refusal gives the reason.
func TestRehearsalRefused(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	refused := func(says string, args ...string) {
		t.Helper()
		r := f.rehearse(t, args...)
		last := r.Findings[len(r.Findings)-1]
		if last.Check != "rehearsal" || last.Level != preflight.Fail || !strings.Contains(last.Found, says) || r.Rehearsal != nil {
			t.Errorf("%+v, want %q", last, says)
		}
		if f.count(rehearsals) != 0 {
			t.Error("there was a rehearsal")
		}
	}
	refused("checks failed", "--instances=1")
	for says, opens := range map[string]time.Duration{"is open": -time.Minute, "opens within": 4 * time.Minute} {
		id := f.sale(func(s *model.Sale) { s.StartsAt = time.Now().Add(opens) })
		refused(says)
		check.NoError(t, f.db.EraseSale(t.Context(), id))
	}
	lease := func(ttl time.Duration) {
		if ours, err := f.db.Lease(t.Context(), "rehearsal", "another", ttl); err != nil || !ours {
			t.Fatalf("%t, %v", ours, err)
		}
	}
	lease(4 * time.Minute) // another rehearsal has begun
	refused("another one runs")
	lease(time.Millisecond)
	s := f.instance()
	s.app.SetVersion("older")
	s.eventually("the instance reports", func() bool {
		running, err := s.app.Gate().Running(t.Context(), time.Now())
		return err == nil && running[s.app.Instance()].Version == "older"
	})
	refused("of version")
}

// A rehearsal removes the hidden sale of one that was killed, and can be repeated.
func TestRehearsalClearsUp(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	left := f.sale(func(s *model.Sale) { s.Status, s.StartsAt = model.SaleShadow, time.Now().Add(-time.Minute) })
	if ids := f.shadows(); !slices.Equal(ids, []string{left}) {
		t.Fatalf("shadow sales %v", ids)
	}
	if r := f.rehearse(t, "--rehearsal-buyers=10"); !r.OK || r.Rehearsal == nil || r.Rehearsal.Units != 2 {
		t.Errorf("the first rehearsal: %+v", r)
	}
	f.nothingLeft(0, 1)
	if r := f.rehearse(t, "--rehearsal-buyers=10"); !r.OK {
		t.Errorf("the second rehearsal: %+v", r.Findings)
	}
}

// A rehearsal that is stopped in the middle removes its sale first.
func TestRehearsalIsStopped(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	cmd := parsed(t, append([]string{
		"preflight", "--rehearse", "--rehearsal-buyers=20000", "--http-addr=127.0.0.1:0", "--ops-addr=off", "--connections=100",
		"--secret=" + testSecret, "--admin-password=" + adminPassword, "--payment=handoff", "--checkout-url=https://shop.example/pay",
	}, f.args...)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- command.Execute(ctx, cmd, "test", io.Discard, io.Discard) }()
	check.Eventually(t, "somebody buys", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		default:
		}
		return f.count("SHOP.orders") > 0
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	f.nothingLeft(0, 1)
}
