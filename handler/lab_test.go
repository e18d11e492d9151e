package handler

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// scripted is a bench that compares as the test says.
type scripted struct {
	steps  chan service.LabProgress // closed at the end
	report string
	err    error
}

func (b *scripted) Compare(ctx context.Context, _ service.LabPlan, progress func(service.LabProgress)) (string, error) {
	for {
		select {
		case step, more := <-b.steps:
			if !more {
				return b.report, b.err
			}
			progress(step)
		case <-ctx.Done():
			return b.report, nil
		}
	}
}

func (b *scripted) Reports() ([]service.LabReport, error) { return nil, nil }

func (b *scripted) WriteReport(w io.Writer, id string, page bool) (bool, error) {
	_, _ = fmt.Fprintf(w, "%s %t", id, page)
	return id == "known", b.err
}

// labOffice is an office with a lab, which doesn't mind the sale that is open.
type labOffice struct {
	*office
	bench *scripted
	stop  func() // as the server does
}

func newLabOffice(t *testing.T) *labOffice {
	t.Helper()
	api, bench := benchAPI(t, false), &scripted{report: "R"}
	closing := make(chan struct{})
	api.Closing = closing
	api.Lab = service.NewLab(bench, api.Catalog, []service.LabStrategy{{Name: "one"}}, slog.New(slog.DiscardHandler))
	o := &labOffice{newOffice(t, api), bench, sync.OnceFunc(func() { close(closing) })}
	t.Cleanup(func() {
		o.stop()
		if err := api.Lab.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return o
}

func (o *labOffice) begin() {
	o.Helper()
	o.bench.steps = make(chan service.LabProgress)
	_, verdict, invalid := o.api.Lab.Start(service.LabPlan{Buyers: 100, Stock: 1, Concurrency: 1, WhileOpen: true})
	if verdict != model.Accepted {
		o.Fatal(verdict, invalid)
	}
}

// connect asks for the lab's stream; nothing of the answer is read.
func (o *labOffice) connect() net.Conn {
	o.Helper()
	token, _, err := o.api.Tokens.Sign(model.Identity{UserID: "op", Role: model.RoleOperator}, time.Hour)
	if err != nil {
		o.Fatal(err)
	}
	client, server := net.Pipe()
	o.accepted <- server
	_, err = io.WriteString(client, "GET /api/v1/admin/lab/events HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer "+token+"\r\n\r\n")
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { _ = client.Close() })
	return client
}

// follower is a console that reads what it is sent.
type follower struct {
	conn   net.Conn
	status int
	header http.Header
	said   chan string // "event data", or ":"
	ended  chan struct{}
}

func (o *labOffice) follow() *follower {
	o.Helper()
	conn := o.connect()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the one who reads it does
	if err != nil {
		o.Fatal(err)
	}
	f := &follower{conn, res.StatusCode, res.Header, make(chan string, 1000), make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer func() { _ = res.Body.Close() }()
		name := ""
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			kind, value, _ := strings.Cut(lines.Text(), ": ")
			switch kind {
			case "event":
				name = value
			case "data":
				f.said <- name + " " + value
			case ":":
				f.said <- ":"
			}
		}
	}()
	return f
}

// heard is what came since the last call.
func (f *follower) heard() (all []string) {
	synctest.Wait()
	for {
		select {
		case s := <-f.said:
			all = append(all, s)
		default:
			return all
		}
	}
}

func (f *follower) over() bool {
	synctest.Wait()
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// A console hears of a run from its beginning to its end, five times a second at most, and then of the next.
func TestLabEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		f := o.follow()
		if all := f.heard(); len(all) != 1 || all[0] != ":" {
			t.Errorf("before the first run: %q", all)
		}
		for round := range 2 {
			o.begin()
			for done := range 100 {
				o.bench.steps <- service.LabProgress{Strategy: "one", Index: 1, Done: done + 1}
				passes(10 * time.Millisecond)
			}
			all := f.heard()
			if len(all) < 4 || len(all) > 6 {
				t.Errorf("round %d: %d events in a second: %q", round, len(all), all)
			}
			for _, s := range all {
				if !strings.HasPrefix(s, `progress {"started_at":`) || !strings.Contains(s, `"index":1,"of":1,`) || !strings.Contains(s, `"results":[]`) {
					t.Errorf("round %d: %s", round, s)
				}
			}
			close(o.bench.steps)
			passes(consolePause)
			all = f.heard()
			if n := len(all); n < 2 || !strings.Contains(all[n-2], `"done":100,`) || all[n-1] != `done {"failed":false,"id":"R","stopped":"","url":"/lab/reports/R"}` {
				t.Errorf("round %d: at the end %q", round, all)
			}
		}
		late := o.follow()
		passes(consolePause)
		if all := late.heard(); len(all) != 3 || !strings.HasPrefix(all[1], "progress ") || !strings.HasPrefix(all[2], "done ") {
			t.Errorf("who comes late hears %q", all)
		}
	})
}

// Of a run that broke off, or measured nothing, there is no report to lead to.
func TestLabEventsWithoutAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		f := o.follow()
		o.bench.report, o.bench.err = "", errors.New("broken")
		o.begin()
		close(o.bench.steps)
		passes(consolePause)
		if all := f.heard(); all[len(all)-1] != `done {"failed":true,"id":"","stopped":"","url":""}` {
			t.Errorf("%q", all)
		}
	})
}

// A console's stream is kept alive while there is no news, and ends with its time, its client and the server.
func TestConsoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		f := o.follow()
		f.heard()
		passes(2 * heartbeat)
		if all := f.heard(); strings.Join(all, "") != "::" {
			t.Errorf("in two heartbeats: %q", all)
		}
		passes(consoleLifetime - 2*heartbeat - 1)
		if f.over() {
			t.Error("it ended early")
		}
		passes(1)
		if !f.over() || o.api.consoles.Load() != 0 {
			t.Errorf("over %t, %d open", f.over(), o.api.consoles.Load())
		}

		gone := o.follow()
		_ = gone.conn.Close()
		synctest.Wait()
		if n := o.api.consoles.Load(); n != 0 {
			t.Errorf("%d are open after the last has left", n)
		}

		o.api.consoles.Store(maxConsoles)
		if f := o.follow(); f.status != http.StatusServiceUnavailable || f.header.Get("Retry-After") == "" {
			t.Errorf("one too many: %d %v", f.status, f.header)
		}
		o.api.consoles.Store(0)
		last := o.follow()
		o.stop()
		if !last.over() {
			t.Error("it goes on when the server stops")
		}
	})
}

// A console that doesn't read is dropped, and the next one is served.
func TestConsoleThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLabOffice(t)
		readHead(t, o.connect())
		f := o.follow()
		o.begin()
		passes(consolePause)
		if all := f.heard(); len(all) < 2 {
			t.Errorf("the other one heard %q", all)
		}
		passes(sendTimeout)
		if n := o.api.consoles.Load(); n != 1 {
			t.Errorf("%d are open, want 1", n)
		}
	})
}

func TestLabReport(t *testing.T) {
	s := newShop(t)
	s.api.LabPolicy = "default-src 'none'; style-src 'sha256-x'"
	bench := &scripted{}
	s.api.Lab = service.NewLab(bench, s.api.Catalog, nil, s.api.Log)
	for path, want := range map[string]struct {
		status             int
		body, kind, policy string
	}{
		"/lab/reports/known":      {200, "known true", "text/html; charset=utf-8", s.api.LabPolicy},
		"/lab/reports/known.json": {200, "known false", jsonType, "default-src 'none'; frame-ancestors 'none'"},
		"/lab/reports/other":      {404, "", "application/problem+json", "default-src 'none'; frame-ancestors 'none'"},
		"/lab/reports/known.html": {404, "", "application/problem+json", "default-src 'none'; frame-ancestors 'none'"},
	} {
		w := s.get(path, "")
		if w.Code != want.status || want.body != "" && w.Body.String() != want.body || w.Header().Get("Content-Type") != want.kind ||
			w.Header().Get("Content-Security-Policy") != want.policy {
			t.Errorf("%s: %d %s %v", path, w.Code, w.Body, w.Header())
		}
	}
	bench.err = errors.New("a secret path")
	if w := s.get("/lab/reports/known", ""); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
