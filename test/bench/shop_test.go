//go:build bench && linux

package bench

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service/auth"
	"flashsale/test/kit"
)

const (
	secret = "bench-secret-of-more-than-thirty-two-bytes"
	// tokenLife is far longer than a run.
	tokenLife = 24 * time.Hour
	// manyUnits and manyEach let every buyer buy again and again; they are the largest quota and limit that the engine
	// accepts.
	manyUnits, manyEach = 100_000_000, 10_000
	// drainTimeout bounds the wait until a backlog is settled: a million orders at a slow machine's pace.
	drainTimeout = 5 * time.Minute
	// look is the polling interval for what no event announces; lookBooks is the one for checks that scan the database.
	look, lookBooks = 10 * time.Millisecond, 250 * time.Millisecond

	buyPattern = "/api/v1/sales/:sale/:path/orders"
	buyBody    = `{"quantity":1}`
)

// engineArgs enable all limiters, with limits so high that none of them refuses a buyer of the load.
var engineArgs = []string{
	"serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--secret", secret, "--admin-password", "bench-operator",
	"--limit-rate", "1e6", "--limit-burst", "1000000", "--ip-rate", "1e6", "--user-requests", "1000", "--log-format", "json",
}

// shop is an engine on stores of its own.
type shop struct {
	t        *testing.T
	database string
	mariadb  *kit.MariaDBServer // nil: SQLite
	redis    *kit.RedisServer   // nil: embedded in the engine
	// redisDead is set when the row has killed Redis.
	redisDead bool
	reader    *redis.Client
	gate      *gate.Gate
	engine    *process
	url, ops  string
	client    *http.Client
	tokens    *auth.Tokens
	paths     *auth.Paths
	admin     string
	troubles  int
}

// newStores starts MariaDB and Redis. If embedded is set, it chooses an SQLite file and the embedded Redis instead.
func newStores(t *testing.T, embedded bool) *shop {
	t.Helper()
	s := &shop{
		t: t, client: &http.Client{Timeout: time.Minute}, tokens: auth.NewTokens([]byte(secret), time.Now),
		paths: auth.NewPaths([]byte(secret), time.Now),
	}
	t.Cleanup(s.client.CloseIdleConnections)
	if embedded {
		s.database = "sqlite:" + filepath.Join(t.TempDir(), "flashsale.db")
		return s
	}
	s.mariadb, s.redis = kit.MariaDB(t), kit.Redis(t)
	s.database = s.mariadb.NewDatabase(t)
	s.reader = redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	t.Cleanup(func() { _ = s.reader.Close() })
	s.gate = gate.New(s.reader, "bench")
	return s
}

func (s *shop) redisArg() string {
	if s.redis == nil {
		return "embedded"
	}
	return s.redis.URL()
}

// open starts the engine on the stores.
func (s *shop) open(binary string, args ...string) *shop {
	s.t.Helper()
	args = append(append(append([]string{}, engineArgs...), "--database", s.database, "--redis", s.redisArg()), args...)
	s.engine = start(s.t, binary, args...)
	s.url = s.engine.says(" is at ")
	s.ops = strings.TrimSuffix(s.engine.says("figures for operators: "), "/metrics")
	token, _, err := s.tokens.Sign(model.Identity{UserID: "admin", Role: model.RoleOperator}, tokenLife)
	if err != nil {
		s.t.Fatal(err)
	}
	s.admin = token
	return s
}

// reply is a complete HTTP answer.
type reply struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

func (s *shop) call(method, address, token, body string) (r reply, err error) {
	req, err := http.NewRequestWithContext(context.Background(), method, address, strings.NewReader(body))
	if err != nil {
		return r, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.client.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	for _, name := range []string{"Date", "Content-Length", "Connection"} { // each server writes its own
		res.Header.Del(name)
	}
	return reply{res.StatusCode, res.Header, string(raw)}, err
}

func (s *shop) must(status int, method, address, token, body string) reply {
	s.t.Helper()
	r, err := s.call(method, address, token, body)
	if err != nil || r.Status != status {
		s.t.Fatalf("%s %s: status %d, want %d: %v %s; the log ends with: %s", method, address, r.Status, status, err, r.Body, s.engine.logged())
	}
	return r
}

// sale makes an open sale.
func (s *shop) sale(quota, each int) (id string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{
		"title": "Bench", "description": "A sale under load.", "image_url": "/assets/sale.png",
		"price_cents": 990, "original_price_cents": 1990, "quota": quota, "limit_per_user": each, "pay_timeout_seconds": 24 * 3600,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "ends_at": time.Now().Add(tokenLife).UTC().Format(time.RFC3339),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	var made struct{ ID string }
	r := s.must(http.StatusCreated, http.MethodPost, s.url+"/api/v1/admin/sales", s.admin, string(body))
	if err := json.Unmarshal([]byte(r.Body), &made); err != nil || made.ID == "" {
		s.t.Fatalf("make a sale: %v %s", err, r.Body)
	}
	return made.ID
}

// soldOut makes a sale whose only unit is sold.
func (s *shop) soldOut(w *wallet) (id string) {
	s.t.Helper()
	id = s.sale(1, 1)
	s.buy(id, "first", w, http.StatusCreated)
	s.drained(id)
	return id
}

// buy repeats an attempt until it gets the wanted status, because the engine needs some time to notice that a store was
// killed.
func (s *shop) buy(saleID, user string, w *wallet, status int) reply {
	s.t.Helper()
	path, token := w.request(s, saleID, user)
	var last reply
	s.wait(stopTimeout, look, fmt.Sprintf("an attempt is answered with %d", status), func() error {
		r, err := s.call(http.MethodPost, s.url+path, token, buyBody)
		if last = r; err != nil || r.Status != status {
			return fmt.Errorf("status %d %s: %w", r.Status, r.Body, err)
		}
		return nil
	})
	return last
}

// wait polls check until it returns nil. It fails the test after timeout.
func (s *shop) wait(timeout, every time.Duration, what string, check func() error) {
	s.t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			s.t.Fatalf("%s: not within %s: %v; the log ends with: %s", what, timeout, err, s.engine.logged())
		}
	}
}

// drained waits until the streams of the sales are empty.
func (s *shop) drained(sales ...string) {
	s.t.Helper()
	if s.gate == nil {
		s.settled(sales...)
		return
	}
	s.wait(drainTimeout, look, "the backlog is settled", func() error {
		states, err := s.gate.Peek(context.Background(), sales...)
		if err != nil {
			return err
		}
		for _, state := range states {
			if state.Stream > 0 {
				return fmt.Errorf("%d entries are left", state.Stream)
			}
		}
		return nil
	})
}

// settled waits until the engine's own audit finds no error, no attempt in flight and an empty stream.
func (s *shop) settled(sales ...string) {
	s.t.Helper()
	for _, id := range sales {
		s.wait(drainTimeout, lookBooks, "the gate agrees with the database", func() error {
			r, err := s.call(http.MethodGet, s.url+"/api/v1/admin/sales/"+id+"/audit", s.admin, "")
			if err != nil {
				return err
			}
			var audit struct {
				OK   bool
				Gate struct{ Inflight, Stream int64 }
			}
			if err := json.Unmarshal([]byte(r.Body), &audit); err != nil {
				return err
			}
			if r.Status != http.StatusOK || !audit.OK || audit.Gate.Inflight != 0 || audit.Gate.Stream != 0 {
				return fmt.Errorf("status %d: %s", r.Status, r.Body)
			}
			return nil
		})
	}
}

// tally holds the engine's own counts.
type tally struct {
	accepted int64            // purchases with an order, made or queued
	statuses map[string]int64 // of purchase requests
}

func (s *shop) tally() tally {
	s.t.Helper()
	page := s.must(http.StatusOK, http.MethodGet, s.ops+"/metrics", "", "").Body
	found := tally{statuses: map[string]int64{}}
	for name, v := range counters(page, "flashsale_purchases_total{", "flashsale_http_request_seconds_count{") {
		switch {
		case strings.Contains(name, `verdict="accepted"`), strings.Contains(name, `verdict="queued"`):
			found.accepted += int64(v)
		case strings.Contains(name, `route="`+buyPattern+`"`):
			_, rest, _ := strings.Cut(name, `status="`)
			status, _, _ := strings.Cut(rest, `"`)
			found.statuses[status] += int64(v)
		}
	}
	return found
}

// storeWork counts the work of the stores, the engine's background work included.
type storeWork struct{ redisReads, statements float64 }

func (s *shop) storeWork() (w storeWork) {
	s.t.Helper()
	if s.mariadb == nil || s.redisDead {
		return w
	}
	// Redis counts a read whenever it reads from a connection, which is about one per round trip.
	info, err := s.reader.Info(s.t.Context(), "stats").Result()
	if err != nil {
		s.t.Fatalf("ask Redis for its figures: %v", err)
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "total_reads_processed:"); ok {
			w.redisReads, _ = strconv.ParseFloat(v, 64)
		}
	}
	w.statements, err = strconv.ParseFloat(s.variables("SHOW GLOBAL STATUS WHERE variable_name = 'Questions'")["Questions"], 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// variables reads names and values from MariaDB.
func (s *shop) variables(query string) map[string]string {
	s.t.Helper()
	u, err := url.Parse(s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = u.User.Username(), "tcp", u.Host
	config.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		s.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(s.t.Context(), query)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	found := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			s.t.Fatal(err)
		}
		found[name] = value
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return found
}

// balance stops the engine and compares the orders in the database with the engine's counts and with the answers that
// the load tool saw. A client that left before its answer came may have an order that the load tool did not count: at
// most gone.
func (s *shop) balance(r *Result, seen, gone int64, sales ...string) {
	s.t.Helper()
	if s.redisDead {
		s.redis.Restart() // after its restart the gate has to agree, too
	}
	s.settled(sales...)
	counted := s.tally()
	s.troubles += s.engine.troubles()
	if err := s.engine.stop(); err != nil {
		r.void("%v", err)
	}
	db, err := repository.Open(context.Background(), s.database, 4)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var orders, rejected int64
	for _, id := range sales {
		books, ok, err := db.Books(context.Background(), id)
		if err != nil || !ok {
			s.t.Fatalf("books of %s: found %t, %v", id, ok, err)
		}
		if v := books.Violations(); len(v) > 0 {
			r.void("the books of %s don't balance: %v", id, v)
		}
		orders += books.Orders[model.OrderPending]
		rejected += books.Orders[model.OrderRejected]
	}
	switch left := counted.statuses["499"] + counted.statuses["503"]; {
	case orders < counted.accepted:
		r.void("%d purchases were accepted, and %d orders stand in the database", counted.accepted, orders)
	case orders > counted.accepted+left:
		r.void("%d orders stand in the database, but %d purchases were accepted and %d clients left", orders, counted.accepted, left)
	case orders < seen:
		r.void("the load tool saw %d purchases accepted, and %d orders stand in the database", seen, orders)
	case orders > seen+gone:
		r.void("%d orders stand in the database; the load tool saw %d and left at most %d unheard", orders, seen, gone)
	}
	r.note("books balance: %d orders, %d counted by the engine, %d answers seen by the load tool; %d queued attempts were refused later; %d log lines at warn or above",
		orders, counted.accepted, seen, rejected, s.troubles)
}

// wallet keeps the buyers' tokens, because each costs a signature.
type wallet struct{ tokens []string }

// token returns the token of buyer number i.
func (w *wallet) token(t *testing.T, signer *auth.Tokens, i int) string {
	t.Helper()
	for n := len(w.tokens); n <= i; n++ {
		token, _, err := signer.Sign(model.Identity{UserID: userID(n), Role: model.RoleBuyer}, tokenLife)
		if err != nil {
			t.Fatal(err)
		}
		w.tokens = append(w.tokens, token)
	}
	return w.tokens[i]
}

func userID(i int) string { return fmt.Sprintf("u%07d", i) }

// request returns a buyer's path and token.
func (w *wallet) request(s *shop, saleID, user string) (path, token string) {
	s.t.Helper()
	token, _, err := s.tokens.Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, tokenLife)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.path(saleID, user), token
}

func (s *shop) path(saleID, user string) string {
	path, _ := s.paths.Issue(user, saleID, tokenLife)
	return "/api/v1/sales/" + saleID + "/" + path + "/orders"
}

// requests writes the purchases of the buyers from (included) to to (excluded), spread over the sales, to a file.
func (w *wallet) requests(s *shop, from, to int, sales ...string) (t target) {
	s.t.Helper()
	file, err := os.Create(filepath.Join(s.t.TempDir(), "requests"))
	if err != nil {
		s.t.Fatal(err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	for i := from; i < to; i++ {
		request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			s.path(sales[i%len(sales)], userID(i)), w.token(s.t, s.tokens, i), len(buyBody), buyBody)
		if t.bytes == 0 {
			t.bytes = len(request)
		}
		if len(request) != t.bytes {
			s.t.Fatalf("a request has %d bytes, others have %d", len(request), t.bytes)
		}
		if _, err := out.WriteString(request); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		s.t.Fatal(err)
	}
	t.file, t.connections = file.Name(), wrkConnections
	return t
}

// perAttempt returns the growth of a counter divided by the number of attempts.
func perAttempt(before, after, attempts float64) float64 {
	return (after - before) / math.Max(attempts, 1)
}
