package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/app/command"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/lab/rehearsal"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// rehearsed is a run of the command rehearse.
type rehearsed struct {
	rehearsal.Report
	err  error
	page string
}

// rehearse runs the command with a shape. The command must fail unless the rehearsal has passed, and show no secret.
func rehearse(ctx context.Context, t testing.TB, shape string, args ...string) (r rehearsed) {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "shape.yaml")
	check.NoError(t, os.WriteFile(file, []byte(shape), 0o600))
	cmd := parsed(t, append([]string{"rehearse", "--shape=" + file, "--out=" + folder, "--connections=200", "--secret=" + testSecret, "--payment=sandbox"}, args...)...)
	var out bytes.Buffer
	r.err = command.Execute(ctx, cmd, "test", &out, io.Discard)
	if strings.Contains(out.String(), testSecret) {
		t.Errorf("the secret was printed: %s", &out)
	}
	text, err := os.ReadFile(filepath.Join(folder, "report.json"))
	if err != nil {
		return r // it was refused
	}
	page, err := os.ReadFile(filepath.Join(folder, "report.html"))
	check.NoError(t, err, json.Unmarshal(text, &r.Report))
	if r.page = string(page); r.err == nil && r.Verdict != rehearsal.Passed || !strings.Contains(out.String(), string(r.Verdict)) || !strings.Contains(r.page, string(r.Verdict)) {
		t.Errorf("ended with %v, and the verdict is %s: %s", r.err, r.Verdict, &out)
	}
	return r
}

// right fails the test if a rehearsal has found something. On a busy machine the crowd may come late.
func (r rehearsed) right(t *testing.T) {
	t.Helper()
	if len(r.Findings) > 0 || r.Verdict == rehearsal.Passed && r.err != nil || r.Verdict != rehearsal.Passed && r.Verdict != rehearsal.Late {
		t.Errorf("%s, %v: %v", r.Verdict, r.err, r.Findings)
	}
}

// answers returns how often a stage was answered in a way.
func (r rehearsed) answers(stage rehearsal.Stage, answer string) int {
	for _, s := range r.Stages {
		for _, a := range s.Answers {
			if s.Stage == stage && a.What == answer {
				return a.N
			}
		}
	}
	return 0
}

func people(list []rehearsal.Count, what string) int {
	for _, c := range list {
		if c.What == what {
			return c.N
		}
	}
	return 0
}

// limited gives a server the limits of production, and lets it trust this machine as a proxy.
func limited(s *config.Settings) {
	s.LimitRate, s.LimitBurst, s.IPRate, s.UserRequests, s.UserWindow = 20_000, 20_000, 200, 10, time.Second
	s.TrustedProxies = []string{"127.0.0.1"}
}

// A crowd buys a hidden sale through the front door with its limits: people as the storefront does, some with slow
// connections, and bots.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	for _, ack := range []string{"confirmed", "queued"} {
		t.Run(ack, func(t *testing.T) {
			t.Parallel()
			s := start(t, limited, func(s *config.Settings) { s.Ack = ack })
			r := rehearse(t.Context(), t, "arrivals: spike\nbuyers: 150\nunits: 30\nlasts: 2s\nhalf: 500ms\npay: 0.5\nslow: 0.1\nbots: 0.1\n", "--url="+s.url, "--database="+s.app.Settings().Database)
			r.right(t)
			if r.Books.Left != 0 || r.Books.Orders != 30 || r.Books.Paid == 0 || r.Books.Held == 0 || r.Books.Held+r.Books.Paid != 30 {
				t.Errorf("books %+v", r.Books)
			}
			bots := 150 - people(r.People, "sold_out") - people(r.People, "pending") - people(r.People, "paid")
			if bots == 0 || len(r.Bots) == 0 || r.answers("bot order", "429 too_frequent")+r.answers("bot order", "409 sold_out") == 0 {
				t.Errorf("people %v, bots %v", r.People, r.Bots)
			}
			for _, stage := range []rehearsal.Stage{"page", "time", "path"} {
				if n := r.answers(stage, "200"); n != 150-bots {
					t.Errorf("%s: %d answers of 200, want %d", stage, n, 150-bots)
				}
			}
			if r.answers("sandbox", "200") != int(r.Books.Paid) || r.answers("stream", "200") == 0 || (r.answers("order", "202") > 0) != (ack == "queued") || r.answers("poll", "200") < r.answers("order", "202") {
				t.Errorf("stages %+v", r.Stages)
			}
			for _, table := range []string{"sales", "stock", "orders", "buyers", "payments", "sandbox_transactions"} {
				var n int
				check.NoError(t, s.database().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
				if n != 0 {
					t.Errorf("%d rows are left in %s", n, table)
				}
			}
			if r.Verdict == rehearsal.Passed {
				kept, ok, err := s.app.Stores.Database.LargestRehearsal(t.Context(), "test")
				if err != nil || !ok || kept.Buyers != 150 || kept.Units != 30 || !json.Valid(kept.Report) {
					t.Errorf("stored %+v, %t, %v", kept, ok, err)
				}
			}
		})
	}
}

// userOf returns the id of the user who sends a request.
func userOf(r *http.Request) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	var claims struct{ Sub string }
	check.Done(errors.Join(err, json.Unmarshal(text, &claims)))
	return claims.Sub
}

// rush finds each fault that is planted between the server and the buyers, and in the database.
func TestRehearsalFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	const plenty, few = "units: 20", "units: 5" // for ten buyers
	for name, tc := range map[string]struct {
		units string
		plant func(s *server, res *http.Response, saleID string) // changes the answer to one purchase, and what the database has
		to    int                                                // the status of the answers that may be changed
		kind  string
	}{
		"nothing": {few, nil, 0, ""},
		"an oversell": {few, func(s *server, res *http.Response, saleID string) {
			id := saleID + strings.Repeat("A", 26)
			s.exec(`INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch, idempotency_key, created_at_ms, expires_at_ms)
				SELECT ?, sale_id, ?, 1, amount_cents, currency, status, source, epoch, 'planted', created_at_ms, expires_at_ms FROM orders WHERE sale_id = ? LIMIT 1`,
				id, userOf(res.Request), saleID)
			answerWith(res, http.StatusCreated, fmt.Sprintf(`{"id":%q,"status":"pending"}`, id))
		}, http.StatusConflict, rehearsal.Oversold},
		"a lost order": {plenty, func(s *server, res *http.Response, saleID string) {
			user := userOf(res.Request)
			s.exec("DELETE FROM orders WHERE sale_id = ? AND user_id = ?", saleID, user)
			s.exec("DELETE FROM buyers WHERE sale_id = ? AND user_id = ?", saleID, user)
			s.exec("UPDATE stock SET available = available + 1, held = held - 1 WHERE sale_id = ?", saleID)
		}, http.StatusCreated, rehearsal.LostOrder},
		"a wrong refusal": {plenty, func(s *server, res *http.Response, saleID string) {
			user := userOf(res.Request)
			s.exec("DELETE FROM orders WHERE sale_id = ? AND user_id = ?", saleID, user)
			s.exec("DELETE FROM buyers WHERE sale_id = ? AND user_id = ?", saleID, user)
			s.exec("UPDATE stock SET available = available + 1, held = held - 1 WHERE sale_id = ?", saleID)
			answerWith(res, http.StatusConflict, `{"status":409,"code":"sold_out"}`)
		}, http.StatusCreated, rehearsal.WrongRefusal},
		"a refusal of what was sold": {few, func(_ *server, res *http.Response, _ string) {
			answerWith(res, http.StatusConflict, `{"status":409,"code":"sold_out"}`)
		}, http.StatusCreated, rehearsal.WrongRefusal},
		"a refusal for no reason": {plenty, func(_ *server, res *http.Response, _ string) {
			answerWith(res, http.StatusConflict, `{"status":409,"code":"ended"}`)
		}, http.StatusCreated, rehearsal.WrongRefusal},
		"a broken answer": {plenty, func(_ *server, res *http.Response, _ string) {
			answerWith(res, http.StatusInternalServerError, `{"status":500,"code":"internal"}`)
		}, http.StatusCreated, rehearsal.BrokenAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, limited)
			front, err := url.Parse(s.url)
			check.NoError(t, err)
			var planted atomic.Bool
			door := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) {
					r.SetURL(front)
					r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
				},
				ModifyResponse: func(res *http.Response) error {
					parts := strings.Split(res.Request.URL.Path, "/")
					if tc.plant != nil && strings.HasSuffix(res.Request.URL.Path, "/orders") && res.StatusCode == tc.to && planted.CompareAndSwap(false, true) {
						tc.plant(s, res, parts[4])
					}
					return nil
				},
			})
			defer door.Close()
			shape := "arrivals: spike\nbuyers: 10\nlasts: 1s\nhalf: 200ms\nwalk: purchase\n" + tc.units
			r := rehearse(t.Context(), t, shape, "--url="+door.URL, "--database="+s.app.Settings().Database)
			if tc.kind == "" {
				r.right(t)
				return
			}
			found := slices.ContainsFunc(r.Findings, func(f rehearsal.Finding) bool { return f.Kind == tc.kind && f.Count == 1 })
			if !planted.Load() || !found || r.Verdict != rehearsal.Failed || !errors.Is(r.err, rehearsal.ErrFailed) {
				t.Errorf("planted %t, %s, %v: %v, want %s", planted.Load(), r.Verdict, r.err, r.Findings, tc.kind)
			}
		})
	}
}

// answerWith replaces an answer.
func answerWith(res *http.Response, status int, body string) {
	_ = res.Body.Close()
	res.StatusCode, res.Body, res.ContentLength = status, io.NopCloser(strings.NewReader(body)), int64(len(body))
	res.Header.Set("Content-Length", fmt.Sprint(len(body)))
	res.Header.Set("Content-Type", "application/problem+json")
}

// A shop that nobody gets into has not passed, though it tells nobody a lie.
func TestRehearsalFindsWhoGaveUp(t *testing.T) {
	t.Parallel()
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer door.Close()
	s := start(t)
	r := rehearse(t.Context(), t, "arrivals: spike\nbuyers: 3\nunits: 1\nlasts: 1s\nwalk: purchase\n", "--url="+door.URL, "--database="+s.app.Settings().Database)
	if len(r.Findings) != 1 || r.Findings[0].Kind != rehearsal.GaveUp || r.Findings[0].Count != 3 {
		t.Errorf("%v: %v", r.err, r.Findings)
	}
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

// rehearse runs the command on the fit's stores.
func (f *fit) rehearse(ctx context.Context, t testing.TB, shape, url string) rehearsed {
	t.Helper()
	return rehearse(ctx, t, shape, append(f.args[:2:2], "--url="+url)...)
}

const smallCrowd = "arrivals: spike\nbuyers: 20\nunits: 5\nlasts: 1s\nwalk: purchase\n"

// nothingLeft checks that the rehearsals have left no more than their results.
func (f *fit) nothingLeft(sales, rehearsed int) {
	f.t.Helper()
	for query, want := range map[string]int{
		"SHOP.sales": sales, "SHOP.stock": sales, "SHOP.orders": 0, "SHOP.buyers": 0, "SHOP.users WHERE name <> 'admin'": 0,
		"SHOP.rehearsals": rehearsed,
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

// reporting starts an instance of a version, and waits until it reports.
func (f *fit) reporting(version string) *server {
	f.t.Helper()
	s := f.versioned(version)
	s.eventually("the instance reports", func() bool {
		running, err := s.app.Gate().Running(f.t.Context(), time.Now())
		return err == nil && running[s.app.Instance()].Version == version
	})
	return s
}

// Buyers see nothing of a rehearsal, which leaves no more than its result.
func TestRehearsalIsHidden(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	left := f.sale(func(s *model.Sale) {
		s.ID, s.Status, s.StartsAt = model.NewShadowID(), model.SaleShadow, time.Now().Add(-time.Minute)
	}) // by a killed rehearsal
	if ids := f.shadows(); !slices.Equal(ids, []string{left}) {
		t.Fatalf("shadow sales %v", ids)
	}
	s := f.reporting("test")
	coming := s.createSale(fields{"starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)})
	ended := make(chan rehearsed, 1)
	go func() { ended <- f.rehearse(t.Context(), t, smallCrowd, s.url) }()
	seen := ""
	var r rehearsed
	for r.Shape == nil && r.err == nil {
		select {
		case r = <-ended:
		default:
		}
		ids := f.shadows()
		var list struct{ Sales []sale }
		s.anyone().get("/api/v1/sales").read(&list)
		if page := s.anyone().get("/"); len(list.Sales) != 1 || list.Sales[0].ID != coming.ID || bytes.Contains(page.body, []byte("Rehearsal")) {
			t.Fatalf("buyers see %+v and %s", list.Sales, page.body)
		}
		for _, id := range ids {
			if s.app.Catalog.InMemory(id) != nil && id != left {
				seen = id // the running instance knows the sale, and could have shown it
			}
		}
	}
	r.right(t)
	if seen == "" || r.Books.Left != 0 || r.Books.Orders != 5 || people(r.People, "sold_out") != 15 {
		t.Errorf("seen %q, books %+v, people %v", seen, r.Books, r.People)
	}
	f.nothingLeft(1, 1)
	s.eventually("the running instance forgets the shadow sale", func() bool { return s.app.Catalog.InMemory(seen) == nil })
	s.anyone().get("/api/v1/sales/" + coming.ID)
}

// What was measured is kept, also if the hidden sale can't be removed. The command tells that.
func TestRehearsalThatStays(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	s := f.reporting("test")
	f.do("CREATE TRIGGER " + f.name + ".stays BEFORE DELETE ON " + f.name + ".orders FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'stays'")
	r := f.rehearse(t.Context(), t, smallCrowd, s.url)
	if r.err == nil || !strings.Contains(r.err.Error(), "stays") || r.Books.Orders != 5 || f.count("SHOP.rehearsals") != 1 || len(f.shadows()) != 1 {
		t.Errorf("ended with %v, books %+v", r.err, r.Books)
	}
}

// A rehearsal that would do harm is refused, and the refusal gives the reason.
func TestRehearsalRefused(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	refused := func(says string) {
		t.Helper()
		r := f.rehearse(t.Context(), t, smallCrowd, "http://127.0.0.1:1")
		if !errors.Is(r.err, rehearsal.ErrNotNow) || !strings.Contains(r.err.Error(), says) || r.Shape != nil || len(f.shadows()) > 0 {
			t.Errorf("%v, want %q", r.err, says)
		}
	}
	for says, opens := range map[string]time.Duration{"is open": -time.Minute, "opens within": 4 * time.Minute} {
		id := f.sale(func(s *model.Sale) { s.StartsAt = time.Now().Add(opens) })
		refused(says)
		f.do("UPDATE " + f.name + ".sales SET starts_at_ms = 0, ends_at_ms = 1 WHERE id = '" + id + "'")
	}
	lease := func(ttl time.Duration) {
		check.Eventually(t, "the lease is free, a millisecond after it has ended", func() bool {
			ours, err := f.db.Lease(t.Context(), "rehearsal", "another", ttl)
			check.NoError(t, err)
			return ours
		})
	}
	lease(time.Minute) // another rehearsal has begun
	refused("another rehearsal runs")
	refused("another rehearsal runs") // the refused one has not ended the lease
	lease(0)
	f.reporting("older")
	refused("is of version")
}

// A rehearsal that is stopped in the middle removes its sale first, and says that it is partial.
func TestRehearsalIsStopped(t *testing.T) {
	t.Parallel()
	f := newFit(t)
	s := f.reporting("test")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan rehearsed, 1)
	go func() {
		ended <- f.rehearse(ctx, t, "arrivals: spike\nbuyers: 20000\nunits: 20000\nlasts: 1h\nhalf: 30m\nwalk: purchase\n", s.url)
	}()
	check.Eventually(t, "somebody buys", func() bool {
		select {
		case r := <-ended:
			t.Fatalf("ended: %v", r.err)
		default:
		}
		return f.count("SHOP.orders") > 0
	})
	cancel()
	if r := <-ended; !errors.Is(r.err, lab.ErrInterrupted) || r.Verdict != rehearsal.Interrupted {
		t.Errorf("ended with %v, %s: %v", r.err, r.Verdict, r.Findings)
	}
	f.nothingLeft(0, 1)
}
